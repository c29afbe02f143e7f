# SPDX-License-Identifier: Apache-2.0
"""Clients that are silent, broken or gone cost the server nothing, and disturb no other client."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from control_requests import KINDS, MESSAGES, REQUESTS, request
from daemons import HELPERS, LONG
from raw_client import GET, RawClient, field, fields, frame

import embtier

PROTOCOL = embtier.errors.code_of("PROTOCOL")


@pytest.fixture
def daemon(watched_daemon):
    return watched_daemon


def connect(daemon):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect(daemon.socket)
    return client


def is_closed(client) -> bool:
    """Reads to the end. Returns only if the server has closed the connection."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


HELLO = field(1, 1) + field(2, 1)

GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "length_0": struct.pack("<I", 0),
    "length_over_the_limit": struct.pack("<I", (64 << 10) + 1),
    "a_reply_instead_of_a_request": frame(field(1, 1) + field(2, 1) + field(5, b"")),
    "no_body": frame(field(1, 7)),
    "half_a_varint": frame(b"\x08\xff"),
    "a_field_longer_than_its_frame": frame(b"\x12\x7f"),
    "two_bodies_one_broken": frame(field(2, HELLO) + b"\x1a\x7f"),
    "a_nul_in_a_name": frame(field(1, 1) + field(4, field(1, b"a\0b"))),
    "a_newline_in_a_client_name": frame(field(2, HELLO + field(5, "x\nlevel=error"))),
    "a_create_without_a_spec": frame(field(2, HELLO)) + frame(field(3, b"")),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_ends_the_connection_with_an_error(daemon, what):
    for pieces in (1, len(GARBAGE[what])):
        with connect(daemon) as client:
            data = GARBAGE[what]
            step = max(1, len(data) // pieces)
            try:
                for at in range(0, len(data), step):
                    client.send(data[at : at + step])
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert is_closed(client)
    assert daemon.logged("client dropped")


def fields_sent(message: str, values: dict) -> set[tuple[str, str]]:
    found = {(message, name) for name in values}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= fields_sent(MESSAGES[message][name].type, value)
    return found


def fields_there_are(message: str) -> set[tuple[str, str]]:
    found = {(message, name) for name in MESSAGES[message]}
    for one in MESSAGES[message].values():
        if one.type in MESSAGES:
            found |= fields_there_are(one.type)
    return found


def test_every_kind_of_request_and_every_field_is_sent():
    """The tests below send them. New kinds and fields of control.proto belong into control_requests.py."""
    assert {kind for kind, _ in REQUESTS} == set(KINDS)
    sent = set().union(*(fields_sent(KINDS[kind].type, values) for kind, values in REQUESTS))
    assert sent == set().union(*(fields_there_are(kind.type) for kind in KINDS.values()))


# The named thing does not exist.
REFUSED = {"job_cancel": "NOT_FOUND", "group_leave": "NO_GROUP", "profile_read": "NOT_FOUND", "session_end": "NOT_FOUND"}


def test_every_kind_of_request_is_served(daemon):
    """Otherwise bent requests would not get far."""
    with RawClient(daemon.path, hello=False) as client:
        for kind, values in REQUESTS:
            client.socket.sendall(request(kind, values))
            reply = client.receive_last()
            why = "PROTOCOL" if "joins" in values else REFUSED.get(kind)  # it comes after the first hello
            if "add" in values or "remove" in values:  # a directory with a relative path
                why = "INVALID"
            if why:
                assert fields(reply[3][0])[1] == [embtier.errors.code_of(why)], kind
            else:
                assert 3 not in reply, (kind, reply)


def bend(data: bytearray, rng) -> None:
    for _ in range(rng.randint(1, 6)):
        kind = rng.randrange(3)
        at = rng.randrange(len(data))
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 4)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 4))
        if not data:
            break


def test_random_bytes_and_bent_frames_harm_no_client(daemon, rng):
    hello, *others = (request(kind, values, number) for number, (kind, values) in enumerate(REQUESTS))
    for _ in range(2000 if LONG else 300):
        chosen = sorted(rng.sample(range(len(others)), rng.randint(0, 5)))
        data = bytearray(b"".join(others[i] for i in chosen))
        if not data or rng.random() < 0.2:
            data = bytearray(hello) + data
            bend(data, rng)
        else:
            bend(data, rng)
            data = hello + data
        with connect(daemon) as client:
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert is_closed(client)


def test_nothing_before_hello_is_answered_but_that(daemon):
    with RawClient(daemon.path, hello=False) as client:
        for body in (3, 4, 5, 6, 7):
            payload = field(1, field(1, "x") + field(3, 1) + field(4, 1)) if body == 3 else field(1, "x")
            reply = client.call(body, b"" if body in (5, 7) else payload)
            assert fields(reply[3][0])[1] == [PROTOCOL]
        client.hello(0, 0)
        assert 8 in client.call(7)
        assert 3 in client.call(2, HELLO)  # a second hello


def test_versions_that_do_not_meet_are_refused(daemon):
    with RawClient(daemon.path, hello=False) as client:
        reply = client.call(2, field(1, 2) + field(2, 9))
        assert fields(reply[3][0])[1] == [embtier.errors.code_of("VERSION")]


@pytest.mark.parametrize("arena,slots", [(2**40, 8), (2**64 - 1, 8), (1 << 20, 1025), (1 << 20, 2**32 - 1)])
def test_too_much_memory_or_too_many_slots_are_refused(daemon, arena, slots):
    with RawClient(daemon.path, hello=False) as client:
        reply = client.call(2, HELLO + field(3, arena) + field(4, slots))
        assert fields(reply[3][0])[1] == [embtier.errors.code_of("TOO_LARGE")]


def test_an_arena_too_small_for_its_slots_grows(daemon):
    with RawClient(daemon.path, arena_bytes=1, slots=1024) as client:
        assert client.arena_bytes > client.payload
        for _ in range(1025):  # enough to use the last slot, whose submission must lie in the arena too
            assert client.request(GET, [], segments_offset=client.payload).err == 0


def test_clients_that_say_nothing_are_let_go(daemon):
    """The server drops them if no hello has come within 10 s, whether they are silent or have sent half a frame."""
    began = time.monotonic()
    clients = [connect(daemon) for _ in range(20)]
    try:
        for client in clients[10:]:
            client.send(struct.pack("<I", 20) + b"\x08")
        assert all(map(is_closed, clients))
        assert 5 < time.monotonic() - began < 60
    finally:
        for client in clients:
            client.close()


def test_1000_clients_that_leave_at_once_leave_nothing_behind(daemon):
    for i in range(1000):
        with connect(daemon) as client:
            if i % 3 == 1:
                client.send(frame(field(2, HELLO + field(3, 65536) + field(4, 8))))
            elif i % 3 == 2:
                client.send(b"\x00")


def test_more_clients_than_allowed_are_refused_and_the_others_stay(make_daemon):
    daemon = make_daemon({"socket": {"max_sessions": 8}})
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("t", 4)
        others = [connect(daemon) for _ in range(20)]
        assert (table.get([1, 2]) == 0).all()
        for client in others:
            client.close()
        deadline = time.monotonic() + 60
        while True:
            try:
                with daemon.connect() as another:
                    assert (another.open_table("t").get([1]) == 0).all()
                    break
            except embtier.BusyError:
                assert time.monotonic() < deadline


def test_all_clients_together_get_no_more_memory_than_allowed(make_daemon):
    limits = {"max_arena_bytes": "4MiB", "max_user_arena_bytes": "8MiB", "max_total_arena_bytes": "8MiB"}
    daemon = make_daemon({"socket": limits})
    daemon.start()
    with daemon.connect(arena_bytes=4 << 20) as first:
        with daemon.connect(arena_bytes=4 << 20):
            with pytest.raises(embtier.BusyError):
                daemon.connect(arena_bytes=1 << 20)
        daemon.await_metric("session_arena_bytes", 4 << 20)
        with daemon.connect(arena_bytes=4 << 20) as again:
            again.create_table("t", 4).set([1], [[1] * 4])
        assert first.open_table("t").get([1]).tolist() == [[1] * 4]


def test_clients_that_die_with_requests_in_flight_leave_nothing_behind(daemon):
    """The clients are processes of their own. They are killed while they keep 8 requests for many missing rows in flight."""
    with daemon.connect() as server:
        server.create_table("big", 64)
    program = f"""
import struct, sys
sys.path.insert(0, {HELPERS!r})
from raw_client import GET, SET, RawClient
client = RawClient({daemon.socket!r}, arena_bytes=16 << 20, slots=8)
table, seed = client.handle("big"), int(sys.argv[1])
at = [client.payload + 4096 + i * (4000 * 264 + 64) for i in range(8)]
print("going", flush=True)
while True:
    numbers = []
    for i in range(8):
        client.write(at[i], struct.pack("<4000Q", *range(seed, seed + 4000)))
        numbers.append(client.submit(SET if i % 2 else GET, [(table, at[i], at[i] + 32000, 4000)]))
        seed += 4000
    for number in numbers:
        client.wait(number)
"""
    for round_ in range(3):
        clients = [
            subprocess.Popen([sys.executable, "-c", program, str(i << 32)], stdout=subprocess.PIPE)
            for i in range(2)
        ]
        try:
            for client in clients:
                assert client.stdout.readline() == b"going\n"
            time.sleep(0.05 * (round_ + 1))
        finally:
            for client in clients:
                client.kill()
                client.wait()
                client.stdout.close()


def test_doorbells_rung_without_end_harm_no_client(daemon):
    with RawClient(daemon.path) as client:
        handle = client.handle("steady")
        client.write(client.payload + 4096, struct.pack("<Q", 7))
        os.set_blocking(client.doorbell, False)
        for _ in range(2000):
            os.write(client.doorbell, struct.pack("<Q", 1))
        try:
            os.write(client.doorbell, struct.pack("<Q", 2**64 - 3000))  # now the eventfd is nearly full
        except BlockingIOError:
            pass
        done = client.request(GET, [(handle, client.payload + 4096, client.payload + 8192, 1)])
        assert done.err == 0
        # A client that reads its own doorbell may have to wait until it rings again.
        for _ in range(50):
            number = client.submit(GET, [(handle, client.payload + 4096, client.payload + 8192, 1)])
            try:
                os.read(client.doorbell, 8)
            except BlockingIOError:
                pass
            client.set_tail(client.next)
            assert client.wait(number).err == 0
