# SPDX-License-Identifier: Apache-2.0
"""A check, a start and each reload warn of certificates and users that keep clients out, and of a key that is no secret."""

from __future__ import annotations

import json
import subprocess

import pytest
from accessed import Guarded
from daemons import CLI


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    yield daemon
    daemon.end()


def checked(guarded: Guarded, *options: str) -> subprocess.CompletedProcess[str]:
    command = [CLI, *options, "config", "check", guarded.folder / "embtierd.yaml"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    return done


def logged(guarded: Guarded) -> list[str]:
    """The warnings, in the form of a check."""
    lines = [line for line in guarded.logged("") if line["level"] == "warn" and {"at", "why"} <= set(line)]
    return [f"{line['at']}: {line['msg']}: {line['why']}" for line in lines]


def harm(guarded: Guarded) -> None:
    """Puts a client's certificate that has expired in the server's place, with a key for all, and adds two users that no client can be."""
    certificate, key = guarded.authority.sign("late", "IP:127.0.0.1", days=-1, usage="clientAuth")
    (guarded.authority.folder / "server.crt").write_bytes(certificate.read_bytes())
    (guarded.authority.folder / "server.key").write_bytes(key.read_bytes())
    (guarded.authority.folder / "server.key").chmod(0o644)
    guarded.users += [{"name": "nobody", "role": "read"}, {"name": "shown", "role": "read", "certificates": ["CN=shown"]}]
    guarded.write()


WARNINGS = [
    ("tls.certificate: clients will refuse the server's certificate: ", "server.crt expired at 20"),
    ("tls.certificate: clients will refuse the server's certificate: ", "server.crt: the certificate is not made for servers; make a new one"),
    ("tls.key: the server's private key is no secret: ", "server.key may be read by all users of this machine; chmod it to 0600"),
    ("users[1]: no client can be this user of the access file: ", "user 'nobody' has no tokens"),
    ("users[2]: no client can be this user of the access file: ", "user 'shown' is known by certificates alone"),
]


def test_a_check_and_a_start_give_the_same_warnings(guarded):
    assert checked(guarded).stderr == ""
    harm(guarded)
    del guarded.config["tls"]["client_ca"]
    guarded.configure({})
    done = checked(guarded)
    assert done.stdout.endswith("embtierd.yaml: no mistakes found, 5 warnings\n")
    lines = done.stderr.splitlines()
    assert len(lines) == len(WARNINGS)
    for line, (what, why) in zip(lines, WARNINGS, strict=True):
        assert line.startswith("embtier: warning: ") and what in line and why in line, line
    warnings = json.loads(checked(guarded, "-o", "json").stdout)["warnings"]
    assert [f"embtier: warning: {warning}" for warning in warnings] == lines
    guarded.start()
    assert logged(guarded) == warnings


def test_a_reload_warns_of_what_it_takes(guarded):
    guarded.start()
    assert logged(guarded) == []
    (guarded.authority.folder / "server.key").chmod(0o644)
    guarded.users.append({"name": "nobody", "role": "read"})
    guarded.write()
    with guarded.connect() as root:
        root.reload()
        told = logged(guarded)
        assert len(told) == 2 and "server.key may be read by all users" in told[0] and "user 'nobody' has no tokens" in told[1]
        guarded.write("users: [")
        with pytest.raises(Exception, match="what was in force before stays"):
            root.reload()
        assert logged(guarded) == told  # nothing was taken
