# SPDX-License-Identifier: Apache-2.0
"""Thousands of connections that come and go leave nothing, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable

import pytest
from daemons import LONG, SANITIZED
from doors import GROWTH_BYTES, MIB, Door, await_bytes, client_hello, over_tcp, reset
from plain_client import CALL, HELLO, SUBMIT, Client, frame, head, message

TIMES = 20_000 if LONG else 500 if SANITIZED else 1500
HANDSHAKES = 1_000 if SANITIZED else 10_000
# As many may be under way at once as there are places of strangers. The allocator keeps what they took, and less than a leak leaves.
HANDSHAKES_BYTES = 528 * MIB // 16
THREADS = 4

HELLO_FRAME = frame(CALL, 0, message({1: 7, HELLO: message({1: 1, 2: 1, 3: 65536, 4: 4, 5: "flood", 380: 1})}))
SAID = {
    "nothing": b"",
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "half a hello": HELLO_FRAME[:40],
    "hello": HELLO_FRAME,
    "hello and more": HELLO_FRAME + head(SUBMIT, 0, 16, 16),
}
ENDS: dict[str, Callable] = {"fin": lambda stream: stream.close(), "rst": reset}


def flood(door: Door, times: int, come_and_go: Callable[[int], None], growth_bytes: int = GROWTH_BYTES) -> None:
    """Threads call it with each number below @times."""
    failures = []

    def turns(index: int) -> None:
        try:
            for turn in range(index, times, THREADS):
                come_and_go(turn)
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    with door.leaves_nothing(growth_bytes), door.serves_others():
        threads = [threading.Thread(target=turns, args=(index,)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures


@pytest.mark.parametrize("end", ENDS)
def test_floods_of_connects_leave_nothing(door: Door, end: str):
    def come_and_go(turn: int) -> None:
        stream = door.connect()
        with contextlib.suppress(ConnectionError):
            stream.sendall(list(SAID.values())[turn % len(SAID)])
        ENDS[end](stream)

    flood(door, TIMES, come_and_go)


@pytest.mark.parametrize("kind", ["tls"], indirect=True)
def test_10_000_handshakes_that_are_given_up_leave_nothing(door: Door):
    """By FIN and RST in turn: half of them at once, half when the server's part of the handshake has begun to come."""
    hello, ends = client_hello(door.address), list(ENDS.values())

    def come_and_go(turn: int) -> None:
        stream = over_tcp(door.address)
        with contextlib.suppress(ConnectionError):  # it was ended for a younger one
            stream.sendall(hello)
            if turn % 4 < 2:
                await_bytes(stream)
        ends[turn % 2](stream)

    flood(door, HANDSHAKES, come_and_go, GROWTH_BYTES + HANDSHAKES_BYTES)


def test_a_client_that_comes_during_a_flood_is_served(door: Door):
    """It waits behind those that came before, and then has its session."""
    with door.leaves_nothing():
        streams = [door.connect() for _ in range(500)]
        for stream in streams:
            with contextlib.suppress(ConnectionError, ssl.SSLError):  # it waited for more than ten seconds
                stream.sendall(SAID["garbage"])
        with contextlib.closing(Client(door.connect())) as client:
            client.hello()
        for stream in streams:
            stream.close()
