# SPDX-License-Identifier: Apache-2.0
"""`embtier clients` shows what each client has asked for, over each transport, and `embtier clients end` ends one, whose client is
told why."""

from __future__ import annotations

import json
import os
import re

import embtier
import numpy as np
import pytest
from accessed import TRANSPORTS, Guarded, await_true, token_file

DIM, ROWS, ARENA = 4, 100, 1 << 20
SORTS = ["number", "user", "from", "transport", "age", "requests", "rows", "arena", "in-flight", "tickets"]
WHY = "an administrator has ended this session"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    daemon = Guarded(tmp_path_factory.mktemp("sessions") / "guarded")
    for name, role in (("trainer", "train"), ("other", "train"), ("some_boss", "admin")):
        daemon.add(name, role, **({"tables": ["t"]} if name == "some_boss" else {}))
    daemon.start()
    with daemon.connect() as root:
        root.create_table("t", DIM, ROWS, optimizer="sgd")
    yield daemon
    daemon.stop()
    daemon.end()


def clients(daemon: Guarded, user: str = "boss", *options: str) -> list[dict]:
    return json.loads(daemon.run_as(user, "shm", "-o", "json", "clients", *options)[0])


def of_user(daemon: Guarded, user: str) -> list[dict]:
    return [session for session in clients(daemon) if session["user"] == user]


def only(daemon: Guarded, user: str) -> dict:
    (session,) = of_user(daemon, user)
    return session


@pytest.fixture(autouse=True)
def all_gone(guarded):
    """Sessions of earlier tests may end a moment later."""
    await_true(lambda: len(clients(guarded)) == 1, "the end of other sessions")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_a_client_asked_for_is_what_it_counted(guarded, transport):
    with guarded.connect_as("trainer", transport, arena_bytes=ARENA) as server:
        table = server.open_table("t")
        assert (only(guarded, "trainer")["requests"], only(guarded, "trainer")["rows"]) == (0, 0)
        for count in (1, 7, ROWS):
            table.get(np.arange(count))
        table.set(np.arange(5), np.ones((5, DIM), np.float32))
        session = only(guarded, "trainer")
        assert (session["requests"], session["rows"]) == (4, 1 + 7 + ROWS + 5)
        assert (session["transport"], session["connections"], session["in_flight"], session["tickets"]) == (transport, 1, 0, 0)
        assert ARENA <= session["arena_bytes"] < 2 * ARENA and session["client"].startswith("python")
        assert bool(session["address"]) == (transport in ("tcp", "tls"))
        assert session["pid"] == (None if transport in ("tcp", "tls") else os.getpid())
        with server.bag_batch([embtier.Bags(table, 3, 1)]) as batch:
            batch.ids(0)[:] = np.arange(3)
            batch.offsets(0)[:] = [0, 3]
            batch.lookup(ticket=True)
            session = only(guarded, "trainer")
            assert (session["requests"], session["rows"], session["tickets"]) == (5, 113 + 3, 1)
    await_true(lambda: not of_user(guarded, "trainer"), "the end of the session")


def test_sessions_are_sorted_by_a_column(guarded):
    with guarded.connect_as("trainer", arena_bytes=ARENA) as small, guarded.connect_as("other", "tcp", arena_bytes=8 * ARENA) as large:
        small.open_table("t").get(np.arange(9))
        found = {sort: [session["user"] for session in clients(guarded, "boss", "--sort", sort)] for sort in SORTS}
        assert found["number"] == ["trainer", "other", "boss"]
        assert found["user"] == ["boss", "other", "trainer"]
        assert found["transport"] == ["trainer", "boss", "other"]
        assert found["arena"] == ["other", "trainer", "boss"]
        assert found["rows"][0] == found["requests"][0] == "trainer"
        assert found["age"] == ["trainer", "other", "boss"]
        text, _ = guarded.run_as("boss", "shm", "clients", "--sort", "arena")
        assert re.match(r" *SESSION +USER +FROM +BY +FOR +REQUESTS +ROWS +ARENA +IN FLIGHT +TICKETS +CLIENT\n", text)
        assert [line.split()[1] for line in text.splitlines()[1:]] == ["other", "trainer", "boss"]
        assert text.splitlines()[3].endswith("(this command)")
        large.close()
    assert "allowed: number, user" in guarded.run_as("boss", "shm", "clients", "--sort", "colour", code=2)[1]


def test_a_user_sees_its_own_sessions(guarded):
    with guarded.connect_as("trainer"), guarded.connect_as("other"):
        assert {session["user"] for session in clients(guarded, "trainer")} == {"trainer"}
        assert {session["user"] for session in clients(guarded, "some_boss")} == {"some_boss"}
        assert {session["user"] for session in clients(guarded)} == {"trainer", "other", "boss"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_ended_client_is_told_why_and_may_come_back(guarded, transport):
    with guarded.connect_as("trainer", transport) as server, guarded.connect_as("other", transport) as kept:
        table, others = server.open_table("t"), kept.open_table("t")
        number = only(guarded, "trainer")["number"]
        said, _ = guarded.run_as("boss", transport, "clients", "end", str(number))
        assert said == f"session {number} has ended\n"
        for _ in range(2):
            with pytest.raises(embtier.DisconnectedError, match=WHY):
                table.get([1])
        with pytest.raises(embtier.DisconnectedError, match=WHY):
            server.tables()
        others.get([1])
        with token_file(guarded.folder, guarded.tokens["trainer"]):
            server.reconnect()
        table.get([1])
        assert only(guarded, "trainer")["number"] > number
    logged = [line for line in guarded.logged("client dropped") if line["session"] == str(number)]
    assert [(line["user"], line["err"], line["why"]) for line in logged] == [("trainer", "CANCELLED", WHY)]


@pytest.mark.parametrize("transport", ["tcp", "tls"])
def test_all_connections_of_a_session_end_with_it(guarded, transport):
    address = guarded.address(transport) + ("&" if transport == "tls" else "?") + "connections=3"
    with token_file(guarded.folder, guarded.tokens["trainer"]):
        server = embtier.connect(address, timeout=60, arena_bytes=ARENA)
    with server:
        table = server.open_table("t")
        session = only(guarded, "trainer")
        assert session["connections"] == 3
        guarded.run_as("boss", "shm", "clients", "end", str(session["number"]))
        with pytest.raises(embtier.DisconnectedError, match=WHY):
            table.get([1])
        await_true(lambda: not of_user(guarded, "trainer"), "the end of the session")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_who_may_not_end_a_session_is_told(guarded, transport):
    with guarded.connect_as("other", transport) as server:
        number = str(only(guarded, "other")["number"])
        for user in ("trainer", "other", "some_boss"):
            _, said = guarded.run_as(user, transport, "clients", "end", number, code=1)
            assert said.startswith("embtier: session end ") and f"user '{user}' " in said, said
        server.open_table("t").get([1])
        _, said = guarded.run_as("boss", transport, "clients", "end", "999999", code=1)
        assert said == "embtier: there is no session 999999; `embtier clients` lists them\n"
        for wrong in ("0", "x", "-1"):
            guarded.run_as("boss", transport, "clients", "end", wrong, code=2)


def test_the_status_counts_sessions_by_transport(guarded):
    with guarded.connect_as("trainer", "tls"), guarded.connect_as("trainer", "tcp"), guarded.connect_as("other", "tcp"):
        shown = json.loads(guarded.run_as("boss", "shm", "-o", "json", "status")[0])["clients"]
        assert shown["sessions"] == 4 and shown["by_transport"] == {"shm": 1, "unix+rpc": 0, "tcp": 2, "tls": 1}
        assert "4 sessions (1 shm, 2 tcp, 1 tls) with " in guarded.run_as("boss", "shm", "status")[0]
