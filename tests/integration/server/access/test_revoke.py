# SPDX-License-Identifier: Apache-2.0
"""A reload ends the sessions whose credential no longer leads to their user, tells them why, and drops no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import embtier
import numpy as np
import pytest
from accessed import TRANSPORTS, Guarded, await_true, hash_of, new_token
from daemons import HELPERS

HERE = str(Path(__file__).resolve().parent)


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    daemon.add("trainer", "train")
    daemon.start()
    with daemon.connect() as root:
        root.create_table("t", 4)
    yield daemon
    daemon.stop()
    daemon.end()


def reload(daemon: Guarded) -> None:
    daemon.write()
    with daemon.connect(arena_bytes=0) as root:
        root.reload()


def assert_ended(table: embtier.Table, credential: str, user: str = "trainer") -> None:
    """Its next request or call says why; a second one does too."""
    for _ in range(2):
        with pytest.raises(embtier.DisconnectedError, match=f"the client's {credential} is no longer that of user '{user}'"):
            table.get([1])


def assert_logged(daemon: Guarded, credential: str, user: str = "trainer") -> None:
    (line,) = daemon.logged("client dropped")
    assert (line["user"], line["err"]) == (user, "PERMISSION")
    assert line["why"] == f"the client's {credential} is no longer that of user '{user}' in this server's access file"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_token_that_is_removed_ends_its_sessions(guarded, transport):
    old, new = guarded.tokens["trainer"], new_token()
    guarded.user("trainer")["tokens"].append(hash_of(new))
    reload(guarded)
    with (
        guarded.connect_with(old, transport) as revoked, guarded.connect_with(new, transport) as kept,
        guarded.connect_as("boss", transport) as boss,
    ):  # fmt: skip
        tables = [server.open_table("t") for server in (revoked, kept, boss)]
        guarded.user("trainer")["tokens"] = [hash_of(new)]
        reload(guarded)
        assert_ended(tables[0], "token")
        await_true(lambda: boss.users()["trainer"]["sessions"]["used"] == 1, "the end of the session")
        for table in tables[1:]:
            table.set([1], np.ones((1, 4)))
        with pytest.raises(embtier.PermissionError, match="does not know the token"):
            guarded.connect_with(old, transport)
        assert_logged(guarded, "token")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_user_that_is_gone_or_renamed_is_ended(guarded, transport):
    with guarded.connect_as("trainer", transport) as server:
        table = server.open_table("t")
        guarded.user("trainer")["name"] = "renamed"
        reload(guarded)
        assert_ended(table, "token")
        with guarded.connect_with(guarded.tokens["trainer"], transport) as again:
            assert again.user() == "renamed"
            table = again.open_table("t")
            guarded.users.pop()
            reload(guarded)
            assert_ended(table, "token", "renamed")


def test_a_token_that_leads_to_another_user_ends_its_sessions(guarded):
    guarded.add("other", "admin")
    with guarded.connect_as("trainer", "tcp") as server:
        table = server.open_table("t")
        moved = guarded.user("trainer")["tokens"]
        guarded.user("trainer")["tokens"], guarded.user("other")["tokens"] = [hash_of(new_token())], moved
        reload(guarded)
        assert_ended(table, "token")
        with guarded.connect_as("trainer", "tcp") as again:
            assert again.user() == "other"


def test_changes_that_leave_the_credential_end_no_session(guarded):
    with guarded.connect_as("trainer", "tcp") as server, guarded.connect_as("boss") as boss:
        table = server.open_table("t")
        entry = guarded.user("trainer")
        guarded.users.remove(entry)
        guarded.users.insert(0, entry | {"role": "read", "tables": ["t"], "unix_users": [3001]})
        guarded.add("more", "read")
        boss.reload()
        assert table.get([1]).shape == (1, 4)
        guarded.write("users: none")
        with pytest.raises(embtier.Error):
            boss.reload()
        assert table.get([1]).shape == (1, 4)
    assert not guarded.logged("client dropped")


def test_a_client_that_revokes_itself_gets_its_answer(guarded):
    with guarded.connect_as("boss", "tcp") as boss:
        table = boss.open_table("t")
        guarded.user("boss")["tokens"] = [hash_of(new_token())]
        guarded.write()
        assert boss.reload() == 2
        await_true(lambda: guarded.logged("client dropped"), "the end of the session")
        assert_ended(table, "token", "boss")


def test_a_signal_ends_sessions_too(guarded):
    with guarded.connect_as("trainer", "tcp") as server:
        table = server.open_table("t")
        guarded.user("trainer")["tokens"] = [hash_of(new_token())]
        guarded.write()
        guarded.signal(1)
        await_true(lambda: guarded.logged("client dropped"), "the end of the session")
        assert_ended(table, "token")


def test_what_an_ended_client_held_is_given_back(guarded):
    """An import under way, a ticket, a place in a group."""
    guarded.user("trainer")["role"] = "admin"
    reload(guarded)
    with guarded.raw_as("trainer", "shm") as importer, guarded.connect_as("trainer") as server:
        assert importer.error("load_open", {"spec": {"name": "half", "dim": 4, "dtype": 1}}) == (0, "")
        server.join("g", 2, 0)
        guarded.user("trainer")["tokens"] = [hash_of(new_token())]
        reload(guarded)
    with guarded.connect() as root:
        await_true(lambda: "trainer" not in root.users(), "the end of the account")
        assert {table.name for table in root.tables()} == {"t"}


def test_a_certificate_that_is_removed_ends_its_sessions(guarded):
    guarded.users.append({"name": "certified", "role": "train", "certificates": ["CN=one", "DNS:two.example.org"]})
    reload(guarded)
    address = guarded.address("tls")

    def connect(name: str, alternative: str = "") -> embtier.Server:
        cert, key = guarded.authority.sign(name, alternative)
        return embtier.connect(f"{address}&cert={cert}&key={key}", timeout=60, arena_bytes=1 << 20)

    with connect("one") as revoked, connect("any", "DNS:two.example.org") as kept:
        tables = [server.open_table("t") for server in (revoked, kept)]
        guarded.user("certified")["certificates"].pop(0)
        reload(guarded)
        assert_ended(tables[0], "certificate", "certified")
        tables[1].set([1], np.ones((1, 4)))
        assert_logged(guarded, "certificate", "certified")


_AS_OTHER = """
import os, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from raw_any import RawAny, error_of
os.setgroups([])
os.setgid(int(sys.argv[5]))
os.setuid(int(sys.argv[4]))
with RawAny(sys.argv[3], None) as client:
    print(error_of(client.greeting)[0], flush=True)
    input()
    try:
        print(client.error("status", {}), flush=True)
    except (ConnectionError, OSError, AssertionError):
        print("ended", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("transport", ["shm", "unix+rpc"])
def test_a_unix_user_or_group_that_is_removed_ends_its_sessions(guarded, transport):
    guarded.users += [
        {"name": "by_uid", "role": "read", "unix_users": [3001, 3002]},
        {"name": "by_group", "role": "read", "unix_groups": [7001, 7002]},
    ]
    reload(guarded)
    os.chmod(f"{guarded.path}.rpc", 0o666)
    clients = {
        ids: subprocess.Popen(
            [sys.executable, "-c", _AS_OTHER, HERE, HELPERS, guarded.address(transport), *map(str, ids)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) for ids in ((3001, 9), (3002, 9), (9, 7001), (9, 7002))
    }  # fmt: skip
    try:
        for client in clients.values():
            assert client.stdout.readline() == "0\n"
        guarded.user("by_uid")["unix_users"] = [3002]
        guarded.user("by_group")["unix_groups"] = [7002]
        reload(guarded)
        said = {ids: client.communicate("\n", timeout=60)[0] for ids, client in clients.items()}
    finally:
        for client in clients.values():
            client.kill()
            client.wait()
    assert "(0, '')" in said[3002, 9] and "(0, '')" in said[9, 7002]
    for ids, credential, user in (((3001, 9), "Unix user", "by_uid"), ((9, 7001), "Unix group", "by_group")):
        assert "(0, '')" not in said[ids], said
        assert any(f"{credential} is no longer that of user '{user}'" in line["why"] for line in guarded.logged("client dropped"))
