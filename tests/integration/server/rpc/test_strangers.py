# SPDX-License-Identifier: Apache-2.0
"""Connections whose clients say no hello have places of their own. However many there are, others connect and work. Those of a Unix
stream have places of their user instead."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator

import pytest
from doors import LIMIT_S, MIB, NETWORK, Door, client_hello, over_tcp, wait_until
from plain_client import CALL, ERROR, HELLO, REPLY, Client, fields_of, frame, message

SESSIONS = 8
PLACES = SESSIONS // 2 + 16  # config_descriptors.h
LOOPS = 2
HANDSHAKE_THREADS = 2
MOST = 2 * PLACES  # while a loop takes its share of what another one has
FLOOD = 10 * PLACES
WARNING = "clients that had not said hello were dropped"


def silent(door: Door) -> socket.socket:
    return over_tcp(door.address)


def in_a_handshake(door: Door) -> socket.socket:
    """It never takes the server's answer."""
    stream = over_tcp(door.address)
    stream.sendall(client_hello(door.address) if door.kind == "tls" else b"EBT1")
    return stream


def without_a_hello(door: Door) -> socket.socket:
    return door.connect()


def with_half_a_hello(door: Door) -> socket.socket:
    stream = door.connect()
    body = message({1: 7, HELLO: message({1: 1, 2: 1, 5: "half", 380: 1})})
    stream.sendall(frame(CALL, 0, body)[:-2])
    return stream


def refused(door: Door) -> socket.socket:
    """Its hello is one of another version; it stays, and reads nothing more."""
    stream = door.connect()
    stream.sendall(frame(CALL, 0, message({1: 7, HELLO: message({1: 8, 2: 9, 5: "later"})})))
    return stream


STRANGERS: dict[str, Callable[[Door], socket.socket]] = {
    "silent": silent,
    "in a handshake": in_a_handshake,
    "without a hello": without_a_hello,
    "with half a hello": with_half_a_hello,
    "refused": refused,
}


@pytest.fixture(scope="module", params=NETWORK)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def loops() -> int:
    return LOOPS


@pytest.fixture
def small_door(make_daemon: Callable, changes: dict, kind: str, loops: int) -> Iterator[Door]:
    limits = {"max_sessions": SESSIONS, "max_user_sessions": SESSIONS}
    tls = {"tls": changes["tls"] | {"handshake_threads": HANDSHAKE_THREADS}} if kind == "tls" else {}
    daemon = make_daemon(changes | tls | {"rpc": changes["rpc"] | {"threads": loops}, "socket": limits})
    daemon.start()
    yield Door(daemon, kind)
    daemon.stop()


@contextlib.contextmanager
def flood(door: Door, connect: Callable[[Door], socket.socket], count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            with contextlib.suppress(ConnectionError, ssl.SSLError):  # it was ended before it was through
                made.append(stack.enter_context(contextlib.closing(connect(door))))
        yield made


def strangers_are_no_sessions(door: Door, connect: Callable[[Door], socket.socket]) -> bool:
    """The strangers are fresh ones, as the server drops them after ten seconds. The sessions of clients that have gone count until
    they have ended."""
    with flood(door, connect, PLACES):
        metrics = door.daemon.metrics()
    return metrics["strangers"] >= PLACES // 2 and metrics["sessions"] <= SESSIONS // 2


@pytest.mark.parametrize("state", STRANGERS)
def test_a_client_connects_and_works_beside_any_number_of_strangers(small_door: Door, state: str):
    door = small_door
    with door.leaves_nothing(), door.serves_others():
        threads = door.threads()
        assert threads.get("handshakes", 0) == (HANDSHAKE_THREADS if door.kind == "tls" else 0)
        with flood(door, STRANGERS[state], FLOOD):
            assert door.threads() == threads
            for _ in range(3):
                door.must_serve()
                with flood(door, STRANGERS[state], PLACES):
                    door.must_serve()
            assert door.daemon.metrics()["strangers"] <= MOST
            wait_until(lambda: strangers_are_no_sessions(door, STRANGERS[state]), door.daemon.metrics)
        wait_until(lambda: door.daemon.logged(WARNING))
    assert door.daemon.metrics()["ended_strangers"] >= FLOOD - MOST


@pytest.mark.parametrize("loops", [1])
def test_the_oldest_stranger_goes_first(small_door: Door):
    """A second loop would keep its share of them, however old."""
    with flood(small_door, silent, MOST) as old, flood(small_door, silent, MOST):
        for stream in old[: MOST // 2]:
            with contextlib.suppress(ConnectionError):
                assert stream.recv(1) == b""


def early_ones_that_are_gone(door: Door, hosts: list[str]) -> int | None:
    """How many strangers of those addresses have gone for a flood from another one. None: by now some may have gone by themselves."""
    with contextlib.ExitStack() as stack:
        began_s = time.monotonic()
        early = [stack.enter_context(socket.create_connection(door.address, LIMIT_S, source_address=(host, 0))) for host in hosts]
        ended = door.daemon.metrics()["ended_strangers"]
        stack.enter_context(flood(door, silent, FLOOD))
        wait_until(lambda: door.daemon.metrics()["ended_strangers"] >= ended + FLOOD - MOST)
        gone = select.select(early, [], [], 0)[0]
        return len(gone) if time.monotonic() < began_s + 8 else None


def test_strangers_from_one_address_leave_those_from_others_alone(small_door: Door):
    """But for an address that shares its line by chance."""
    others = [f"127.0.0.{host}" for host in range(2, 8)]
    gone: list[int | None] = [None]
    wait_until(lambda: gone.append(early_ones_that_are_gone(small_door, others)) or gone[-1] is not None)
    assert gone[-1] < len(others) / 2


def test_a_session_is_no_stranger_however_long_it_is_idle(small_door: Door):
    with contextlib.closing(small_door.client()) as idle:
        with flood(small_door, silent, FLOOD):
            idle.call(7, {}, 8)
        idle.call(7, {}, 8)


def test_strangers_take_no_place_of_sessions(small_door: Door):
    """All sessions that may be are there, and find places, while all places of strangers are taken."""
    with flood(small_door, without_a_hello, PLACES), small_door.clients(SESSIONS - 1, arena_bytes=MIB):
        with small_door.daemon.connect(arena_bytes=0) as server:
            assert server.status()["metrics"]["sessions"] == SESSIONS


def test_a_long_hello_is_refused(small_door: Door):
    """A stranger has the server keep little."""
    with contextlib.closing(Client(small_door.connect())) as client:
        client.send(frame(CALL, 0, message({1: 7, HELLO: message({1: 1, 2: 1, 5: "long", 9999: b"x" * 5000})})))
        kind, _, reply, _ = client.receive()
        assert kind == REPLY
        assert b"allowed: 1 to 4092" in fields_of(reply[ERROR])[2]
        assert client.is_closed()
