# SPDX-License-Identifier: Apache-2.0
"""Which user a client is: by token, by Unix user and by group; and what a client that is no user gets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import embtier
import numpy as np
import pytest
from accessed import PERMISSION, TRANSPORTS, Guarded, await_true, hash_of, new_token, token_file
from daemons import EMBTIERD, HELPERS
from raw_any import RawAny, error_of

HERE = str(Path(__file__).resolve().parent)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
NETWORK = ["unix+rpc", "tcp", "tls"]


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    daemon.add("reader", "read")
    yield daemon
    daemon.end()


# ---- Tokens ----


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_token_says_who_the_client_is(guarded, transport):
    guarded.start()
    with guarded.connect_as("reader", transport) as server:
        assert server.user() == "reader"
    with guarded.connect_as("boss", transport) as server:
        assert server.user() == "boss"
        assert server.create_table("t", 4).get([1]).shape == (1, 4)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_token_of_another_server_is_refused(guarded, transport):
    """Even of root, who may do all without one."""
    guarded.start()
    token = new_token()
    with pytest.raises(embtier.PermissionError, match="does not know the token") as caught:
        guarded.connect_with(token, transport)
    assert token not in str(caught.value)
    with pytest.raises(embtier.PermissionError):
        guarded.connect_with(new_token(), transport)
    assert guarded.metrics()["access_refusals"] == 2
    said = guarded.logged("hello refused")
    assert len(said) == 2 and said[0]["err"] == "PERMISSION"
    for line in said:
        assert_says_where(line, transport)
    text = guarded.log.read_text()
    assert "embt_" not in text and token not in text and guarded.tokens["reader"] not in text


def assert_says_where(line: dict[str, str], transport: str) -> None:
    """A host that guesses tokens can be found, and a process of this host too."""
    if transport in ("tcp", "tls"):
        assert re.fullmatch(r"127\.0\.0\.1:\d+", line["from"]) and "uid" not in line, line
    else:
        assert int(line["pid"]) == os.getpid() and int(line["uid"]) == os.geteuid() and "from" not in line, line


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_log_says_where_a_user_comes_from(guarded, transport):
    guarded.configure({"log": {"level": "debug"}})
    guarded.start()
    with guarded.connect_as("reader", transport) as server, pytest.raises(embtier.PermissionError):
        server.create_table("t", 4)
    for said in ("client connected", "request refused"):
        assert_says_where(next(line for line in guarded.logged(said) if line["user"] == "reader"), transport)
    assert "4294967295" not in guarded.log.read_text()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_tokens_are_valid_while_one_is_replaced(guarded, transport):
    old, new = guarded.tokens["reader"], new_token()
    guarded.user("reader")["tokens"].append(hash_of(new))
    guarded.write()
    guarded.start()
    for token in (old, new):
        with guarded.connect_with(token, transport) as server:
            assert server.user() == "reader"
    guarded.user("reader")["tokens"] = [hash_of(new)]
    guarded.write()
    with guarded.connect_with(new, transport) as before, guarded.connect() as root:
        root.reload()
        with pytest.raises(embtier.PermissionError):
            guarded.connect_with(old, transport)
        with guarded.connect_with(new, transport) as server:
            assert server.user() == "reader"
        assert before.status()  # connections are of a user, not of a token


@pytest.mark.parametrize("transport", NETWORK)
def test_malformed_tokens_are_refused_and_hurt_nobody(guarded, transport):
    guarded.start()
    address = guarded.address(transport)
    with guarded.connect_as("reader", transport) as steady:
        for token in ("x", "embt_", "embt_" + "A" * 42, "embt_" + "A" * 44, "embt_" + "A" * 42 + "é", "A" * 64):
            with RawAny(address, token) as client:
                err, said = error_of(client.greeting)
                assert err == PERMISSION and "does not know the token" in said, said
        for token in ("A" * 65, "embt_\n", "A" * 60000):
            try:
                with RawAny(address, token) as client:
                    err, said = error_of(client.greeting)
                    assert err not in (0, PERMISSION) and "A" * 65 not in said, said
            except ConnectionError:
                pass
        assert steady.status()


def test_after_a_refused_hello_nothing_else_is_answered(guarded):
    guarded.start()
    for transport in TRANSPORTS:
        with RawAny(guarded.address(transport), new_token()) as client:
            assert error_of(client.greeting)[0] == PERMISSION
            for kind in ("status", "table_list", "reload"):
                err, said = client.error(kind, {})
                assert err != 0 and "must say hello first" in said


@pytest.mark.parametrize("transport", NETWORK)
def test_a_client_may_say_hello_again_with_another_token(guarded, transport):
    guarded.start()
    hello = {"protocol_min": 1, "protocol_max": 1, "pages": True}
    with RawAny(guarded.address(transport), new_token()) as client:
        assert error_of(client.greeting)[0] == PERMISSION
        reply = client.call("hello", hello | {"token": guarded.tokens["reader"]})
        assert error_of(reply)[0] == 0
        assert client.error("table_drop", {"name": "t"})[0] == PERMISSION


# ---- The file of a token ----


def test_a_token_file_that_others_may_read_is_refused(guarded):
    guarded.start()
    for mode in (0o644, 0o640, 0o604, 0o620):
        with pytest.raises(embtier.PermissionError, match="chmod it to 0600"):
            guarded.connect_with(guarded.tokens["reader"], mode=mode)
    for text in ("", "embt_", "embt_" + "A" * 42, "embt_" + "A" * 44, "password"):
        with pytest.raises(embtier.InvalidError, match="holds no token") as caught:
            guarded.connect_with(text)
        assert "AAAA" not in str(caught.value) and "password" not in str(caught.value)
    with token_file(guarded.folder, guarded.tokens["reader"]) as path:
        path.unlink()
        with pytest.raises(embtier.NotFoundError, match="token file"):
            guarded.connect()
    for ending in ("", "\r"):
        with guarded.connect_with(guarded.tokens["reader"] + ending) as server:
            assert server.user() == "reader"


@needs_root
def test_a_token_file_of_another_user_is_refused(guarded):
    guarded.start()
    with token_file(guarded.folder, guarded.tokens["reader"]) as path:
        os.chown(path, 65534, 0)
        with pytest.raises(embtier.PermissionError, match="belongs to user 65534"):
            guarded.connect()


# ---- Certificates ----


def test_a_certificate_says_who_the_client_is(guarded, tmp_path):
    authority = guarded.authority
    for name, shown in (("by_subject", "CN=one"), ("by_dns", "DNS:two.example.org"), ("by_uri", "URI:spiffe://x/y")):
        guarded.users.append({"name": name, "role": "read", "certificates": [shown]})
    guarded.write()
    guarded.start()
    address = guarded.address("tls")

    def with_certificate(name: str, alternative: str = "") -> str:
        cert, key = authority.sign(name, alternative)
        return f"{address}&cert={cert}&key={key}"

    for name, alternative, user in (
        ("one", "", "by_subject"), ("any", "DNS:two.example.org", "by_dns"), ("other", "DNS:z,URI:spiffe://x/y", "by_uri"),
    ):  # fmt: skip
        with embtier.connect(with_certificate(name, alternative), timeout=60, arena_bytes=0) as server:
            assert server.user() == user
            with pytest.raises(embtier.PermissionError, match="needs role admin"):
                server.create_table("t", 4)
    with pytest.raises(embtier.PermissionError, match="certificate is no user's"):
        embtier.connect(with_certificate("stranger", "DNS:one"), timeout=60, arena_bytes=0)
    with pytest.raises(embtier.PermissionError, match="neither a token"):
        embtier.connect(address, timeout=60, arena_bytes=0)
    mine = with_certificate("one")
    with token_file(tmp_path, guarded.tokens["boss"]) as path:  # the token counts
        with embtier.connect(mine, timeout=60, arena_bytes=0) as server:
            assert server.user() == "boss"
        del os.environ["EMBTIER_TOKEN_FILE"]
        with embtier.connect(f"{address}&token={path}", timeout=60, arena_bytes=0) as server:
            assert server.user() == "boss"
        os.environ["EMBTIER_TOKEN_FILE"] = str(path)
    with token_file(tmp_path, new_token()), pytest.raises(embtier.PermissionError, match="does not know the token"):
        embtier.connect(mine, timeout=60, arena_bytes=0)


# ---- Unix users and groups ----

_AS_OTHER = """
import os, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from raw_any import RawAny, error_of
from raw_client import fields
os.setgroups([int(g) for g in sys.argv[6].split(",") if g])
os.setgid(int(sys.argv[5]))
os.setuid(int(sys.argv[4]))
with RawAny(sys.argv[3], sys.argv[7] or None) as client:
    err, said = error_of(client.greeting)
    print(fields(client.greeting[5][0]).get(440, [b""])[0].decode() if err == 0 else f"{err} {said}")
"""


def as_other(daemon, transport: str, uid: int, gid: int, groups: str = "", token: str = "") -> str:
    """Connects as another Unix user. Returns the name that the server knows it by, or the error."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_OTHER, HERE, HELPERS, daemon.address(transport), str(uid), str(gid), groups, token],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@needs_root
@pytest.mark.parametrize("transport", ["shm", "unix+rpc"])
def test_a_client_is_known_by_its_unix_user_and_groups(guarded, transport):
    guarded.users += [
        {"name": "by_group", "role": "read", "unix_groups": [7001, 7002]},
        {"name": "later_group", "role": "admin", "unix_groups": [7003]},
        {"name": "by_uid", "role": "read", "unix_users": [3001, "nobody"]},
    ]
    guarded.write()
    guarded.start()
    for socket in (guarded.path, f"{guarded.path}.rpc"):
        os.chmod(socket, 0o666)
    assert as_other(guarded, transport, 3001, 3001) == "by_uid"
    assert as_other(guarded, transport, 3001, 7001, "7003") == "by_uid"  # the user before its groups
    assert as_other(guarded, transport, 65534, 65534) == "by_uid"
    assert as_other(guarded, transport, 3002, 7001) == "by_group"  # its own group
    assert as_other(guarded, transport, 3002, 3002, "100,7002") == "by_group"
    assert as_other(guarded, transport, 3002, 7003, "7002") == "by_group"  # the first in the file
    assert as_other(guarded, transport, 3002, 3002, ",".join(map(str, range(100, 400))) + ",7003") == "later_group"
    refused = as_other(guarded, transport, 3002, 3002, "100,200")
    assert refused.startswith(f"{PERMISSION} Unix user 3002 and its groups are no user's"), refused
    token = guarded.tokens["boss"]
    assert as_other(guarded, transport, 3001, 3001, token=token) == "boss"
    refused = as_other(guarded, transport, 3001, 3001, token=new_token())  # although it would be known without it
    assert refused.startswith(f"{PERMISSION} this server does not know the token"), refused
    assert as_other(guarded, transport, 0, 0) == ""  # root may do all


@needs_root
def test_over_tcp_no_unix_user_counts(guarded):
    guarded.users.append({"name": "nobody", "role": "admin", "unix_users": [0, 3001, 4294967294]})
    guarded.write()
    guarded.start()
    for uid in (0, 3001):
        refused = as_other(guarded, "tcp", uid, uid)
        assert refused.startswith(f"{PERMISSION} this server wants to know its clients"), refused


def test_a_client_learns_that_the_server_asks_for_no_certificates(guarded):
    del guarded.config["tls"]["client_ca"]
    guarded.configure({})
    guarded.start()
    certificate, key = guarded.authority.sign("trainer")
    said = r"shown no token \(EMBTIER_TOKEN_FILE\); the server asks for no certificates, as its configuration has no tls.client_ca"
    with pytest.raises(embtier.PermissionError, match=said):
        embtier.connect(f"{guarded.address('tls')}&cert={certificate}&key={key}", timeout=60)
    with pytest.raises(embtier.PermissionError, match="neither a token .* nor a certificate"):
        embtier.connect(guarded.address("tcp"), timeout=60)


# ---- Users beside each other ----


def test_users_over_a_network_have_limits_of_their_own(guarded):
    guarded.configure({"socket": {"max_user_sessions": 3, "max_user_arena_bytes": "4MiB", "max_arena_bytes": "4MiB"}})
    guarded.add("other", "read")
    guarded.start()
    kept = [guarded.connect_as("reader", "tcp", arena_bytes=0) for _ in range(3)]
    try:
        with pytest.raises(embtier.BusyError, match="at most 3 sessions now"):
            guarded.connect_as("reader", "tcp", arena_bytes=0)
        for _ in range(20):  # those that were refused count no longer
            with guarded.connect_as("other", "tcp", arena_bytes=3 << 20) as server:
                with pytest.raises(embtier.BusyError, match="max_user_arena_bytes"):
                    guarded.connect_as("other", "tcp", arena_bytes=3 << 20)
                await_true(lambda: server.users()["other"]["sessions"]["used"] == 1, "the end of the refused client")
            guarded.await_metric("session_arena_bytes", 0)
        with guarded.connect(arena_bytes=0) as root:
            assert root.users()["reader"]["sessions"]["used"] == 3
    finally:
        for server in kept:
            server.close()
    guarded.await_metric("sessions", 1)
    with guarded.connect(arena_bytes=0) as root:
        assert set(root.users()) == {0}


def test_groups_of_two_users_with_one_name_are_two(guarded):
    guarded.add("one", "train")
    guarded.add("two", "train")
    guarded.start()
    with guarded.connect_as("one", "tcp") as one, guarded.connect_as("two", "tcp") as two:
        one.join("g", 1, 0)
        two.join("g", 1, 0)  # would be EXISTS


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_jobs_name_their_user(guarded, transport):
    guarded.start()
    program = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
    command = [program, "--timeout", "60", "--socket", guarded.path]

    def printed(*words: str) -> str:
        return subprocess.run([*command, *words], capture_output=True, text=True, check=True).stdout

    with guarded.connect() as root:
        root.create_table("t", 4)
        root.checkpoint()
    with guarded.raw_as("reader", transport) as client, RawAny(guarded.path) as of_root:
        for exporter in (client, of_root):
            assert exporter.error("scan_open", {"table": "t"}) == (0, "")
        jobs = json.loads(printed("-o", "json", "jobs"))
        assert {(job["kind"], job["user"]) for job in jobs} == {("export", "reader"), ("export", "")}
        assert {job["uid"] for job in jobs if job["user"] == ""} == {os.geteuid()}
        _, *rows = printed("jobs").splitlines()
        assert {row.split()[3] for row in rows} == {"reader", str(os.geteuid())}


def test_a_client_that_is_dropped_is_named(guarded):
    guarded.start()
    with guarded.raw_as("reader", "shm") as client:
        client.shm.socket.sendall(b"\xff" * 64)
        await_true(lambda: guarded.logged("client dropped"), "the end of the client")
    (line,) = guarded.logged("client dropped")
    assert (line["user"], line["uid"]) == ("reader", str(os.geteuid()))


def test_a_client_that_is_refused_does_not_hurt_others(guarded):
    guarded.add("trainer", "train", tables=["t"])
    guarded.start()
    with guarded.connect() as root, guarded.connect_as("reader") as reader:
        table = root.create_table("t", 4)
        root.create_table("theirs", 4)
        mine = reader.open_table("t")
        before = guarded.settled_descriptors()
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(embtier.PermissionError):
                guarded.connect_with(new_token(), "tcp")
            with guarded.connect_as("trainer", "tcp") as trainer:
                with pytest.raises(embtier.PermissionError):
                    trainer.open_table("theirs")
                with pytest.raises(embtier.PermissionError):
                    mine.set([1], np.ones((1, 4)))
                trainer.open_table("t").set([1], np.full((1, 4), 2))
            assert (table.get([1]) == 2).all()
        guarded.must_have_closed_all_but(before)
    assert guarded.metrics()["access_refusals"] == 150
    seconds = time.monotonic() - began
    # The log is not filled: in a second it has 20 lines, and one that counts the rest.
    assert len(guarded.logged("refused")) <= 21 * (seconds + 2)


def test_without_a_file_any_client_may_do_all(make_daemon):
    daemon = make_daemon()
    daemon.start()
    with token_file(daemon.folder, new_token()), daemon.connect() as server:
        assert server.user() == ""
        server.create_table("t", 4)
        assert server.reload() == 0
    assert daemon.logged("nothing was reloaded")


# ---- Starts ----


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("users:\n  - {name: a, role: boss}\n", 0o600, r"access.yaml:2: users\[0\].role: `boss`; allowed: read, train, admin"),
        ("users:\n  - {name: a, role: read}\n", 0o622, "may be written by all users"),
        (None, 0o600, r"embtierd.yaml:\d+: access.file: cannot read .*access.yaml: No such file"),
    ],
)
def test_a_start_and_a_check_refuse_a_bad_file(guarded, text, mode, said):
    if text is None:
        guarded.access.unlink()
    else:
        guarded.write(text)
        guarded.access.chmod(mode)
    assert re.search(said, guarded.fail_to_start())
    done = subprocess.run([EMBTIERD, "--check", "--config", guarded.folder / "embtierd.yaml"], capture_output=True, text=True)
    assert done.returncode == 1 and re.search(said, done.stderr), done.stderr
