# SPDX-License-Identifier: Apache-2.0
"""Bad requests, and readers that are slow, silent or many, end, leave nothing, and keep no other from being answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from daemons import SANITIZED, Daemon
from readers import LISTEN, await_true, connect, get, port_of, rest_of

MIB = 1 << 20
# A sanitizer keeps 256 MiB that were freed. The rest is less than 64 connections of 288 KiB.
GROWTH_BYTES = (384 if SANITIZED else 0) * MIB + 12 * MIB
CONNECTIONS = 64
SLOW = 8
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def anonymous_bytes(daemon: Daemon) -> int:
    with open(f"/proc/{daemon.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))


@contextlib.contextmanager
def leaves_nothing(daemon: Daemon) -> Iterator[int]:
    """Yields the port. After the block the server must answer, and hold no more than before it."""
    port = port_of(daemon)
    for _ in range(3):  # the allocator and the library keep what their first uses take
        assert get(port, "/metrics").status == 200
    before, memory = daemon.settled_descriptors(), anonymous_bytes(daemon)
    yield port
    assert get(port, "/metrics").status == 200
    daemon.must_have_closed_all_but(before)
    await_true(lambda: anonymous_bytes(daemon) - memory < GROWTH_BYTES, "memory is given back")


def asked(port: int, request: bytes) -> bytes:
    """The first line of the answer. The server may close before it has read all."""
    with connect(port) as stream:
        with contextlib.suppress(ConnectionError):
            stream.sendall(request)
        return rest_of(stream).split(b"\r\n", 1)[0]


CLOSE = b"Host: localhost\r\nConnection: close\r\n"
BAD_REQUESTS = {
    "a path outside": (b"GET /../etc/passwd HTTP/1.1\r\n" + CLOSE + b"\r\n", b" 404 "),
    "the same in another spelling": (b"GET /%2e%2e/etc/passwd HTTP/1.1\r\n" + CLOSE + b"\r\n", b" 404 "),
    "no such path": (b"GET /metrics/ HTTP/1.1\r\n" + CLOSE + b"\r\n", b" 404 "),
    "a path with a zero": (b"GET /metrics%00 HTTP/1.1\r\n" + CLOSE + b"\r\n", b" "),
    "an unknown method": (b"BREW /metrics HTTP/1.1\r\n" + CLOSE + b"\r\n", b" 405 "),
    "a body": (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n" + CLOSE + b"\r\nhello", b" 405 "),
    "a delete": (b"DELETE /livez HTTP/1.1\r\n" + CLOSE + b"\r\n", b" 405 "),
    "a body of a GET": (b"GET /livez HTTP/1.1\r\nContent-Length: 5\r\n" + CLOSE + b"\r\nhello", b" 200 "),
    "a site that took the address": (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", b" 403 "),
    "HTTP/1.0": (b"GET /livez HTTP/1.0\r\n\r\n", b" 200 "),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_each_request_has_its_answer(http_daemon: Daemon, name: str):
    request, status = BAD_REQUESTS[name]
    with leaves_nothing(http_daemon) as port:
        assert status in asked(port, request)


def test_nothing_but_reading_is_allowed(http_daemon: Daemon):
    answer = get(port_of(http_daemon), "/metrics", method="PUT")
    assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD"


LONG = {
    "header": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * MIB + b"\r\n\r\n",
    "headers": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * (MIB // 6) + b"\r\n",
    "path": b"GET /" + b"x" * MIB + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "method": b"G" * MIB + b" / HTTP/1.1\r\n\r\n",
    "line": b"x" * MIB,
    "zeros": bytes(MIB),
}


@pytest.mark.parametrize("what", LONG)
def test_a_mebibyte_is_refused(http_daemon: Daemon, what: str):
    with leaves_nothing(http_daemon) as port:
        first = asked(port, LONG[what])
        assert first == b"" or any(status in first for status in (b" 400 ", b" 413 ", b" 414 ", b" 431 ")), first


def test_half_open_connections_end(http_daemon: Daemon):
    """Each is ended in ten seconds of silence, and others are answered when a place is free."""
    said = [b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HT", REQUEST[:-2]]
    with leaves_nothing(http_daemon) as port, contextlib.ExitStack() as streams:
        held = [streams.enter_context(connect(port)) for _ in range(CONNECTIONS + 16)]
        for i, stream in enumerate(held):
            stream.sendall(said[i % len(said)])
        assert get(port, "/livez").status == 200
        for stream in held:
            assert b" 200 " not in rest_of(stream)


def trickle(port: int, ended: threading.Event) -> None:
    """Sends a byte of an endless header now and then, until the server ends the connection."""
    with contextlib.suppress(ConnectionError), connect(port) as stream:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        while not ended.is_set():
            stream.sendall(b"x")
            time.sleep(0.2)


def sip(port: int, ended: threading.Event) -> None:
    """Asks for more than the system's buffers hold, and reads a byte now and then."""
    with contextlib.suppress(ConnectionError), connect(port, receive_bytes=2048) as stream:
        stream.sendall(REQUEST * 40)
        while not ended.is_set() and stream.recv(1):
            time.sleep(0.2)


@pytest.mark.parametrize("behave", [trickle, sip], ids=["sends", "reads"])
def test_a_peer_that_is_slow_is_ended(http_daemon: Daemon, behave: Callable):
    """It is never silent for long, and its request ends all the same."""
    ended = threading.Event()
    with leaves_nothing(http_daemon) as port:
        before = http_daemon.settled_descriptors()
        threads = [threading.Thread(target=behave, args=(port, ended)) for _ in range(SLOW)]
        for thread in threads:
            thread.start()
        try:
            kind = "socket:[]"
            await_true(lambda: http_daemon.all_descriptors()[kind] == before[kind] + SLOW, "all are connected")
            http_daemon.must_have_closed_all_but(before)  # while they go on
        finally:
            ended.set()
            for thread in threads:
                thread.join()


def test_500_connections_at_once_are_answered(http_daemon: Daemon):
    with leaves_nothing(http_daemon) as port:
        streams = [connect(port) for _ in range(500)]
        for stream in streams:
            with contextlib.suppress(ConnectionError):
                stream.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert all(b" 200 " in rest_of(stream) for stream in streams)
        for stream in streams:
            stream.close()


def test_no_more_connections_than_configured_are_held(make_daemon):
    daemon = make_daemon({"http": {**LISTEN["http"], "max_connections": 2}})
    daemon.start()
    sockets = daemon.settled_descriptors().get("socket:[]", 0)
    with contextlib.ExitStack() as streams:
        held = [streams.enter_context(connect(port_of(daemon))) for _ in range(8)]
        held[0].sendall(REQUEST)
        assert held[0].recv(1)
        assert daemon.all_descriptors().get("socket:[]", 0) <= sockets + 2


def test_readers_that_reset_leave_nothing(http_daemon: Daemon):
    with leaves_nothing(http_daemon) as port:
        for _ in range(200):
            stream = connect(port)
            stream.sendall(REQUEST)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            stream.close()
