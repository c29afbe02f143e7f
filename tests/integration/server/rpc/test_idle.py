# SPDX-License-Identifier: Apache-2.0
"""Very many idle connections, and connections beyond the limit."""

from __future__ import annotations

import contextlib
import select
import time
import warnings
from collections.abc import Callable

import pytest
from daemons import SANITIZED
from doors import FREED_BYTES, LIMIT_S, MIB, NETWORK, Door, raise_descriptor_limit, wait_until
from plain_client import CALL, ERROR, HELLO, REPLY, Client, fields_of, frame, message

import embtier

IDLE = 2_000 if SANITIZED else 10_000
FEWEST = 1_500  # with fewer, the test says nothing about very many
DESCRIPTORS_EACH = 11  # of a session over a network (config_descriptors.c)
OTHER_DESCRIPTORS = 3000
BYTES_EACH = {"tcp": 24 << 10, "tls": 64 << 10, "unix": 24 << 10}  # of the server's own memory; without sanitizers
BUSY = embtier.errors.code_of("BUSY")


def idle_count(record_property: Callable[[str, object], None]) -> int:
    """10,000, or fewer if this user may not have that many descriptors, with a line in the report. The server gets the limit of this
    process."""
    granted = raise_descriptor_limit(IDLE * DESCRIPTORS_EACH + OTHER_DESCRIPTORS)
    count = min(IDLE, (granted - OTHER_DESCRIPTORS) // DESCRIPTORS_EACH // 100 * 100)
    if count < FEWEST:
        pytest.skip(f"{granted} descriptors are enough for {max(count, 0)} idle connections; ulimit -n has the limit")
    if count < IDLE:
        note = f"{count} idle connections instead of {IDLE}: this user may have {granted} descriptors (ulimit -n)"
        record_property("note", note)
        warnings.warn(note, stacklevel=2)
    return count


def hello_frame(arena_bytes: int) -> bytes:
    return frame(CALL, 0, message({1: 7, HELLO: message({1: 1, 2: 1, 3: arena_bytes, 4: 1, 5: "idle", 380: 1})}))


def test_10_000_idle_connections_cost_little_and_disturb_nobody(make_door, record_property):
    """Each has said hello. A tenth of them have a session with a region. All have a socket in this process, too."""
    count = idle_count(record_property)
    door = make_door({"max_sessions": count + 100, "max_user_sessions": count + 100})
    with door.leaves_nothing(growth_bytes=FREED_BYTES + 64 * MIB), contextlib.ExitStack() as stack:
        memory = door.anonymous_bytes()
        stack.enter_context(door.serves_others())
        threads, idle = door.threads(), []
        for begin in range(0, count, 100):  # hundreds at a time: their answers come together
            some = []
            for i in range(100):
                some.append(stack.enter_context(contextlib.closing(Client(door.connect()))))
                some[-1].send(hello_frame(65536 if i % 10 == 0 else 0))
            for client in some:
                kind, _, reply, _ = client.receive()
                while not reply.get(2):  # progress
                    kind, _, reply, _ = client.receive()
                assert kind == REPLY and ERROR not in reply, (begin, reply)
            idle += some
        assert door.held()["sessions"] >= count
        assert door.threads() == threads
        if not SANITIZED:
            most = memory + count * BYTES_EACH[door.kind] + count // 10 * 80_000
            wait_until(lambda: door.anonymous_bytes() < most, lambda: f"{door.anonymous_bytes()} of {most} bytes")
        door.must_serve()
        idle[0].call(7, {}, 8)  # the first and the last can still ask
        idle[-1].call(7, {}, 8)
    door.daemon.stop()


def test_a_session_has_its_memory_from_the_beginning(door: Door):
    """A lack of memory is an answer to hello, and not the end of a server whose clients send rows later."""
    with door.leaves_nothing():
        memory = door.anonymous_bytes()
        with contextlib.closing(door.client(64 * MIB)):
            assert door.anonymous_bytes() - memory >= 60 * MIB


def refusal_of(client: Client) -> str:
    """Returns the text with which its hello is refused."""
    client.send(hello_frame(0))
    kind, _, reply, _ = client.receive()
    error = fields_of(reply[ERROR])
    assert (kind, error[1]) == (REPLY, BUSY)
    return error[2].decode()


def test_a_client_beyond_the_limit_is_told_and_may_come_when_others_have_gone(make_door):
    door = make_door({"max_sessions": 8, "max_user_sessions": 8})
    with door.leaves_nothing():
        with door.clients(8, arena_bytes=0) as held, contextlib.ExitStack() as stack:
            # Clients without a session have places of their own. Those before lose theirs to the next ones.
            for _ in range(60):
                client = stack.enter_context(contextlib.closing(Client(door.connect())))
                assert "socket.max_sessions" in refusal_of(client)
            held[0].call(7, {}, 8)
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(embtier.BusyError), embtier.connect(door.url, timeout=LIMIT_S, arena_bytes=0):
                break
            assert time.monotonic() < deadline
    door.daemon.stop()


@pytest.mark.parametrize("kind", NETWORK, indirect=True)
def test_one_user_who_holds_all_that_it_may_leaves_room_for_others(make_door):
    """All clients over plain TCP are one user. Those of a local user still find room."""
    door = make_door({"max_sessions": 32, "max_user_sessions": None})
    with door.leaves_nothing(), contextlib.ExitStack() as stack:
        refusal = ""
        for _ in range(40):
            client = stack.enter_context(contextlib.closing(Client(door.connect())))
            client.send(hello_frame(0))
            _, _, reply, _ = client.receive()
            if ERROR in reply:
                refusal = fields_of(reply[ERROR])[2].decode()
        assert "your user may have at most" in refusal and "socket.max_user_sessions" in refusal
        with door.daemon.connect(arena_bytes=MIB) as server:
            assert (server.open_table("door").get([3])[:, 0] == 3).all()
    door.daemon.stop()


def test_a_hello_that_comes_a_byte_at_a_time_is_too_late(door: Door):
    """The ten seconds are those of the whole hello."""
    with door.leaves_nothing(), contextlib.closing(Client(door.connect())) as client:
        for byte in hello_frame(0):
            client.send(bytes([byte]))
            if select.select([client.socket], [], [], 0.4)[0]:
                break
        else:
            raise AssertionError("all of a slow hello was taken")
        kind, _, reply, _ = client.receive()
        assert kind == REPLY and fields_of(reply[ERROR])[1] == embtier.errors.code_of("TIMEOUT")


def test_clients_that_say_nothing_are_told_and_let_go(door: Door):
    """After ten seconds, whether they were silent, or sent half a head or half a hello."""
    with door.leaves_nothing(), contextlib.ExitStack() as stack:
        silent = []
        for i in range(30):
            silent.append(stack.enter_context(contextlib.closing(Client(door.connect()))))
            silent[-1].send(hello_frame(0)[: (0, 20, 40)[i % 3]])
        for client in silent:
            kind, _, reply, _ = client.receive()
            assert kind == REPLY and fields_of(reply[ERROR])[1] == embtier.errors.code_of("TIMEOUT")
            assert client.is_closed()
