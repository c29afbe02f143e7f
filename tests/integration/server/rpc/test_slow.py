# SPDX-License-Identifier: Apache-2.0
"""Clients that send or read slowly, or stop in the middle: they keep little memory, not for ever, and delay nobody."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import struct
import termios
import time

import pytest
from doors import FREED_BYTES, MIB, Door, SteppedTls, end_half, open_table, rows_request, send_until_full, wait_until
from plain_client import CALL, DATA, DONE, GET, READ, REFUSED, SET, SUBMIT, WRITE, Client, frame, head, message

import embtier

TIMEOUT = embtier.errors.code_of("TIMEOUT")
STATUS = 7
UNSENT_BYTES = 512 << 10  # rpc_stream.c
HELD_BYTES = 5 << 18  # a connection: 1 MiB by the table in docs/internals/transports.md, and what the server has not read
ROWS = 1000


def begun(client: Client) -> dict[str, bytes]:
    """A frame of each kind that has begun, and not ended."""
    body, payload = rows_request(client, SET, ROWS, 2000)
    submit = frame(SUBMIT, 0, body, payload)
    return {
        "a head": submit[:20],
        "a message": submit[:40],
        "a payload": submit[: 32 + len(body) + 1],
        "the middle of a payload": submit[: len(submit) // 2],
        "the last byte": submit[:-1],
        "a write": frame(WRITE, 0, message({1: [64, 1000]}), bytes(1000))[:500],
        "a call": head(CALL, 0, 60_000, 0) + bytes(10_000),
        "a frame that is skipped": head(99, 0, 1000, 0),
    }


def test_a_frame_that_does_not_go_on_ends_its_connection(door: Door):
    """After half a minute, all of these together. Clients that stopped between two frames stay."""
    with door.leaves_nothing(), door.serves_others(), contextlib.ExitStack() as stack:
        with door.clients(1, arena_bytes=MIB) as (one,):
            frames = begun(one)
        idle = stack.enter_context(door.clients(2))
        stopped = {}
        for name, sent in frames.items():
            stopped[name] = stack.enter_context(contextlib.closing(door.client(MIB)))
            stopped[name].send(sent)
        for name, client in stopped.items():
            kind, _, refusal, _ = client.receive()
            if name == "a frame that is skipped" and refusal[1] != TIMEOUT:
                kind, _, refusal, _ = client.receive()  # the first one said that its kind is unknown
            assert (kind, refusal[1]) == (REFUSED, TIMEOUT), name
            assert "in the middle of a frame" in refusal[2].decode()
            assert client.is_closed()
        for client in idle:
            open_table(client)


def test_a_byte_at_a_time_is_served_as_any_other(door: Door):
    """Bytes move, so no limit is passed; and others do not notice."""
    with door.leaves_nothing(), door.serves_others(), contextlib.closing(door.client(MIB)) as client:
        body, payload = rows_request(client, GET, 4, 1)
        for byte in frame(SUBMIT, 0, body, payload):
            client.send(bytes([byte]))
            time.sleep(0.001)
        assert client.receive()[:2] == (DONE, 0)


def queued(client: Client) -> int:
    """Bytes that this end has received and not read."""
    return struct.unpack("i", fcntl.ioctl(client.socket, termios.FIONREAD, bytes(4)))[0]


def await_standstill(clients: list[Client]) -> None:
    """Until no more bytes come: the system's queues are full, or all are here. The server drops such clients after 30 s."""
    seen: list[list[int]] = [[]]

    def stands() -> bool:
        time.sleep(0.3)
        seen.append([queued(client) for client in clients])
        return seen[-1] == seen[-2]

    wait_until(stands)


def test_clients_that_do_not_read_keep_no_memory_of_the_server(door: Door):
    """Each asks for far more than it reads: rows, parts of its region, and replies. Then it sends more than the server takes. There is
    one limit for what the server keeps of all of it, besides regions: plaintext, ciphertext, and the queues of the system."""
    with door.leaves_nothing(), door.serves_others(), door.clients(20, arena_bytes=4 * MIB, slots=64) as clients:
        memory = door.anonymous_bytes()
        for i, client in enumerate(clients):
            body, payload = rows_request(client, GET, ROWS * 4)
            submits = [frame(SUBMIT, number, body, payload) for number in range(64)]
            reads = [frame(READ, number, message({1: [64, 3 * MIB]})) for number in range(50)]
            asks = [frame(CALL, 0, message({1: 7, STATUS: b""}))] * 200
            writes = [frame(WRITE, 0, message({1: [64, 3 * MIB]}), bytes(3 * MIB))] * 3
            send_until_full(client.socket, b"".join((submits, reads, asks)[i % 3] + writes))
        await_standstill(clients)
        grown = max(0, door.anonymous_bytes() - memory - FREED_BYTES)
        sent, received = zip(*(door.queued_bytes(client.socket) for client in clients))
        assert max(sent) <= 2 * UNSENT_BYTES
        assert grown + sum(sent) + sum(received) <= len(clients) * HELD_BYTES
        door.must_serve()


def test_clients_that_take_no_byte_are_dropped(door: Door):
    """After 30 s: the bytes are those of rows, and of parts of a region."""
    with door.leaves_nothing(), door.serves_others(), door.clients(2, arena_bytes=16 * MIB) as (rows, parts):
        for client in (rows, parts):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body, payload = rows_request(rows, GET, 50_000)
        rows.send(frame(SUBMIT, 0, body, payload))
        parts.send(frame(READ, 0, message({1: [64, 15 * MIB] * 8})))
        wait_until(lambda: door.held()["sessions"] <= 2)  # that of the question, and that of the other client


def test_a_slow_reader_gets_all(door: Door):
    with door.leaves_nothing(), door.serves_others(), door.clients(1, arena_bytes=16 * MIB) as (client,):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.send(b"".join(frame(READ, number, message({1: [64, MIB]})) for number in range(20)))
        for number in range(20):
            time.sleep(0.02)
            kind, got, _, payload = client.receive()
            assert (kind, got, len(payload)) == (DATA, number, MIB)


@pytest.mark.parametrize("kind", ["tls"], indirect=True)
@pytest.mark.parametrize("count", [0, 1, 64])
def test_a_close_notify_ends_the_session_as_well(door: Door, count: int):
    """There is no FIN. The server ends its own side by close_notify too, unless it cuts an answer off: that is to look so."""
    end = EOFError if count == 0 else (EOFError, ConnectionError, ssl.SSLError)
    with door.leaves_nothing(), door.serves_others(), contextlib.closing(Client(SteppedTls(door.address))) as client:
        client.hello(4 * MIB, 64)
        body, payload = rows_request(client, GET, 2000)
        client.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(count)))
        client.socket.close_notify()
        with pytest.raises(end):
            while True:
                client.receive()


@pytest.mark.parametrize("count", [0, 1, 64])
def test_the_end_of_what_a_client_sends_ends_its_session(door: Door, count: int):
    """docs/protocol.md: a client that half closes gives up its answers. Those that were on their way may still come, each whole or
    cut off by the end; then the server closes."""
    with door.leaves_nothing(), door.serves_others(), door.clients(1, arena_bytes=4 * MIB, slots=64) as (client,):
        body, payload = rows_request(client, GET, 2000)
        client.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(count)))
        end_half(client.socket)
        assert client.is_closed()


def test_a_client_that_half_closes_and_reads_nothing_is_forgotten(door: Door):
    """In each state: while rows go out, while the server does not read, and while it waits for more of a frame."""
    with door.leaves_nothing(), door.serves_others(), door.clients(3, arena_bytes=4 * MIB, slots=64) as (rows, parts, half):
        body, payload = rows_request(rows, GET, 4000)
        rows.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(64)))
        parts.send(frame(READ, 0, message({1: [64, 3 * MIB] * 20})) * 2)
        half.send(frame(SUBMIT, 0, body, payload)[:100])
        for client in (rows, parts, half):
            end_half(client.socket)
        wait_until(lambda: door.held()["sessions"] <= 2)
