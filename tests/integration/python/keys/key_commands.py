# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of `embtier keys`: the command, `openssl`, clocks that are wrong, and TLS between Python's two ends."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
from pathlib import Path

from conftest import EMBTIERD

CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
FAULTS = EMBTIERD.parents[1] / "tests/faults"
DAY_S = 86400


def keys(*arguments: str | Path, days: int = 0, **how) -> subprocess.CompletedProcess[str]:
    """Runs the command @days from now."""
    environment = dict(os.environ)
    if days:
        environment |= {
            "LD_PRELOAD": str(FAULTS / "libother_time.so"),
            "EMBTIER_FAULT_SECONDS": str(days * DAY_S),
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        }
    command = [str(CLI), "keys", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False, **how)


def done(*arguments: str | Path, days: int = 0, **how) -> str:
    result = keys(*arguments, days=days, **how)
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def told(*arguments: str | Path, days: int = 0):
    return json.loads(done(*arguments, "-o", "json", days=days))


def refused(*arguments: str | Path, code: int = 1, days: int = 0, **how) -> str:
    """The message."""
    result = keys(*arguments, days=days, **how)
    assert result.returncode == code and result.stdout == "", result
    return result.stderr


def openssl(*arguments: str | Path, **how) -> str:
    command = ["openssl", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **how)
    assert result.returncode == 0, result
    return result.stdout


def foreign_ca(folder: Path, algorithm: str = "ec -pkeyopt ec_paramgen_curve:P-384", extensions: tuple[str, ...] = (), days: int = 30):
    """A CA that openssl makes, in files of our names."""
    more = [word for extension in extensions for word in ("-addext", extension)]
    openssl("req", "-x509", "-newkey", *algorithm.split(), "-nodes", "-keyout", folder / "ca.key", "-out", folder / "ca.crt",
            "-subj", "/O=Example/CN=Foreign CA", "-days", days, *more)  # fmt: skip


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def context(role: int, folder: Path, name: str, ca: Path) -> ssl.SSLContext:
    """One end, which has the certificate @name and asks the other end for one by @ca."""
    made = ssl.SSLContext(role)
    made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    made.load_verify_locations(ca)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict:
    """Passes bytes between the two until both are done, and a few bytes more. Returns the client's certificate as the server sees it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = server.wrap_bio(to_server, to_client, server_side=True)
    client_end = client.wrap_bio(to_client, to_server, server_hostname=host)
    waiting = [client_end, server_end]
    for _ in range(20):
        waiting = [end for end in waiting if not _advance(end)]
        if not waiting:
            break
    assert not waiting
    client_end.write(b"rows")
    assert server_end.read() == b"rows"
    return server_end.getpeercert()


def _advance(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
