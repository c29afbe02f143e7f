# SPDX-License-Identifier: Apache-2.0
"""Clients over streams where shared memory has no counterpart: bytes in pieces, clients that do not read, wide batches, TCP, refusals."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from plain_client import CALL, DATA, DONE, GET, LIMIT_S, READ, REFUSED, REPLY, SUBMIT, WRITE, Client, frame, message
from test_protocol import create, starting

import embtier

MIB = 1 << 20


@contextlib.contextmanager
def serving(folder: Path, rpc: str, more: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    """A server with these lines in its sections rpc and socket; and its log so far. It must stop without a fault."""
    with starting(folder, rpc, more) as process:
        log = (folder / "log").read_text()
        assert process.poll() is None, log
        yield process, log
        process.terminate()
        assert process.wait(LIMIT_S) == 0, (folder / "log").read_text()


def addresses_of(log: str) -> list[str]:
    return [line.split('"')[-2] for line in log.splitlines() if 'msg="listening"' in line]


@pytest.fixture(params=["auto", "off"], ids=["io_uring", "epoll"])
def io_uring(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def client(daemon) -> Iterator[Client]:
    made = Client(f"{daemon.path}.rpc")
    made.region = bytearray(8 * MIB)
    yield made
    made.close()


def two_rows(client: Client, table: int) -> tuple[bytes, bytes]:
    """The message and payload of a GET of two rows."""
    client.region[64:96] = struct.pack("<QQQII", table, 128, 192, 2, 0)
    client.region[128:144] = struct.pack("<2Q", 5, 7)
    return message({1: GET, 3: 1, 4: 64, 9: [64, 32, 128, 16], 10: [192, 32]}), bytes(client.region[64:96] + client.region[128:144])


# ---- Bytes in pieces ----


@pytest.mark.parametrize("size", [1, 7, 33, 1000])
def test_frames_that_come_in_pieces(client, name, size):
    client.hello()
    body, payload = two_rows(client, create(client, name)[1])
    sent = b"".join(frame(SUBMIT, number, body, payload) for number in range(3)) + frame(READ, 9, message({1: [64, 32]}))
    for at in range(0, len(sent), size):
        client.send(sent[at : at + size])
        time.sleep(0.0002)
    got = [client.receive() for _ in range(4)]
    assert sorted((kind, number) for kind, number, _, _ in got) == [(DONE, 0), (DONE, 1), (DONE, 2), (DATA, 9)]
    assert {payload for kind, _, _, payload in got if kind == DONE} == {got[0][3] if got[0][0] == DONE else got[1][3]}


def test_answers_keep_their_order_when_the_client_reads_late(client, name):
    """Answers that go out with the same call of the system are each sent once, whatever is begun when one of them is over."""
    assert client.hello(8 * MIB)[4] >= 8 * MIB
    body, payload = two_rows(client, create(client, name)[1])
    rng = random.Random(7)
    for turn in range(30):
        large, small = rng.randrange(1, 6 * MIB), rng.randrange(1, 100)
        number = client.next
        client.next += 2
        client.send(
            frame(SUBMIT, number, body, payload) + frame(READ, 1, message({1: [64, large]})) + frame(SUBMIT, number + 1, body, payload)
            + frame(READ, 2, message({1: [64, small]})) + frame(99, 3, b"unknown") + frame(98, 4, b"", b"x")
        )  # fmt: skip
        time.sleep(rng.choice([0, 0.001, 0.01]))
        got = []
        while len(got) < 6:
            got.append(client.receive())
            time.sleep(rng.choice([0, 0, 0.001]))
        kinds = sorted((kind, number) for kind, number, _, _ in got)
        assert kinds == [(DONE, number), (DONE, number + 1), (DATA, 1), (DATA, 2), (REFUSED, 3), (REFUSED, 4)], turn
        assert {len(payload) for kind, _, _, payload in got if kind == DATA} == {large, small}


def test_a_slot_is_free_as_soon_as_its_answer_is_there(daemon, name):
    client = Client(f"{daemon.path}.rpc")
    assert client.hello(slots=1)[5] == 1
    body, payload = two_rows(client, create(client, name)[1])
    for number in range(3000):
        client.send(frame(SUBMIT, number, body, payload))
        kind, answered, done, _ = client.receive()
        assert (kind, answered, done.get(1, 0)) == (DONE, number, 0)
    client.send(frame(SUBMIT, 5000, body, payload))  # not the next one
    assert client.receive()[0] == REFUSED and client.is_closed()
    client.close()


def test_clients_that_leave_in_the_middle(daemon, name):
    body, payload = b"", b""
    for cut in (1, 31, 32, 40, 60, 100, 130):
        for reads in (False, True):
            client = Client(f"{daemon.path}.rpc")
            client.hello()
            body, payload = two_rows(client, create(client, f"{name}_{cut}_{reads}")[1])
            client.send(frame(SUBMIT, 0, body, payload) + frame(SUBMIT, 1, body, payload)[:cut])
            if reads:
                client.receive()
            client.close()
    deadline = time.monotonic() + LIMIT_S
    with daemon.connect(arena_bytes=0) as server:
        while server.status()["metrics"]["sessions"] > 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)


# ---- Wide batches ----


def test_batches_of_more_spans_than_a_message_has(daemon, name):
    """Rows between those that are wanted stay as the caller left them."""
    with daemon.connect(arena_bytes=16 * MIB) as server:
        table = server.create_table(name, dim=4, rows=1000)
        rows = np.arange(4000, dtype=np.float32).reshape(1000, 4)
        table.set(np.arange(1000, dtype=np.uint64), rows)
        parts = 700
        batch = server.batch([(table, 4)] * parts)
        for i in range(parts):
            batch.ids(i)[:2] = [i, i + 1]
            batch.rows(i)[:] = -1
            batch.set_count(i, 2)
        batch.get()
        for i in range(parts):
            batch.set_count(i, 4)
            assert (batch.rows(i)[:2] == rows[i : i + 2]).all() and (batch.rows(i)[2:] == -1).all(), i


def test_gradients_of_weights_of_many_parts(daemon, name):
    with daemon.connect(arena_bytes=16 * MIB) as server:
        table = server.create_table(name, dim=4, rows=100, optimizer="sgd")
        ids = np.arange(100, dtype=np.uint64)
        table.set(ids, np.ones((100, 4), np.float32))
        parts = 600
        batch = server.bag_batch([embtier.Bags(table, 2, 1, weighted=True)] * (parts - 1) + [embtier.Bags(table, 2, 1)])
        for i in range(parts):
            batch.ids(i)[:] = [i % 100, (i + 1) % 100]
            batch.offsets(i)[:] = [0, 2]
            if i < parts - 1:
                batch.weights(i)[:] = 1
        batch.lookup(ticket=True)
        for i in range(parts):
            batch.gradients(i)[:] = i + 1
        batch.skip(parts - 2)
        batch.push(lr=0.0, step=1, weight_gradients=True)
        for i in range(parts - 1):
            assert (batch.weights(i) == (0 if i == parts - 2 else 4 * (i + 1))).all(), i


# ---- TCP, refusals, stops ----


def test_everything_over_tcp_with_several_threads(tmp_path, io_uring):
    with serving(tmp_path, f'  listen: ["tcp://127.0.0.1:0", "tcp://[::1]:0"]\n  threads: 3\n  io_uring: {io_uring}\n') as (_, log):
        addresses = addresses_of(log)
        assert len(addresses) == 2
        servers = [embtier.connect(addresses[i % 2], timeout=LIMIT_S, arena_bytes=MIB) for i in range(8)]
        servers[0].create_table("t", dim=16, rows=1000)
        for i, server in enumerate(servers):
            ids = np.arange(i * 100, i * 100 + 100, dtype=np.uint64)
            server.open_table("t").set(ids, np.full((100, 16), i, np.float32))
        for server in servers:
            got = server.open_table("t").get(np.arange(800, dtype=np.uint64))
            assert (got == np.repeat(np.arange(8, dtype=np.float32), 100)[:, None]).all()
            server.close()


def timers_of(port: int) -> list[str]:
    """The kind of timer of each connection to or from @port: 02 is one that probes a silent connection (proc(5), /proc/net/tcp)."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    is_of_it = f":{port:04X}"
    return [line[5].split(":")[0] for line in lines if line[3] == "01" and (line[1] + line[2]).count(is_of_it)]


def test_both_sides_watch_a_silent_link(tmp_path):
    with serving(tmp_path, '  listen: ["tcp://127.0.0.1:0"]\n') as (_, log):
        (address,) = addresses_of(log)
        with embtier.connect(address, timeout=LIMIT_S, arena_bytes=0):
            deadline = time.monotonic() + LIMIT_S
            while timers_of(int(address.rpartition(":")[2])) != ["02", "02"]:  # until all bytes are acknowledged
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_a_client_is_told_why_it_is_refused(tmp_path, io_uring):
    rpc = f'  listen: ["unix+rpc:{tmp_path}/r"]\n  io_uring: {io_uring}\n'
    if len(str(tmp_path)) > 90:
        pytest.skip("the path is too long for a socket")
    with serving(tmp_path, rpc, "  max_sessions: 4\n"):
        kept = [embtier.connect(f"unix+rpc:{tmp_path}/r", timeout=LIMIT_S, arena_bytes=0) for _ in range(2)]
        for _ in range(20):
            with contextlib.ExitStack() as stack, pytest.raises(embtier.BusyError, match="sessions"):
                for _ in range(4):
                    stack.enter_context(embtier.connect(f"unix+rpc:{tmp_path}/r", timeout=LIMIT_S, arena_bytes=0))
        deadline = time.monotonic() + LIMIT_S
        while True:  # the server may still count those that have just gone
            try:
                embtier.connect(f"{tmp_path}/s", timeout=LIMIT_S, arena_bytes=0).close()
                break
            except embtier.BusyError:
                assert time.monotonic() < deadline
        for server in kept:
            server.close()


def read_while_stopping(folder: Path, io_uring: str) -> tuple[list, bool]:
    """Stops a server while it sends rows. Returns all that came, and True if this client was late to read it."""
    with serving(folder, f'  listen: ["tcp://127.0.0.1:0"]\n  io_uring: {io_uring}\n') as (process, log):
        host, port = addresses_of(log)[0].removeprefix("tcp://").split(":")
        made = Client(socket.create_connection((host, int(port)), LIMIT_S))
        made.hello(8 * MIB)
        made.send(frame(READ, 1, message({1: [64, 4 * MIB]})))
        made.socket.recv(1, socket.MSG_PEEK)  # the answer has begun
        began, got = time.monotonic(), []
        process.terminate()
        with contextlib.suppress(EOFError, ConnectionResetError):
            while True:
                got.append(made.receive())
        is_late = time.monotonic() - began > 1
        made.close()
        assert process.wait(LIMIT_S) == 0
    return got, is_late


def test_a_stop_sends_answers_first_and_says_why(tmp_path, io_uring):
    """A server that stops waits two seconds for its clients. So a turn in which this client was late does not count."""
    for turn in range(20):
        folder = tmp_path / str(turn)
        folder.mkdir()
        got, is_late = read_while_stopping(folder, io_uring)
        if len(got) == 2 or not is_late:
            break
    (kind, number, _, payload), (last_kind, _, reply, _) = got
    assert (kind, number, len(payload)) == (DATA, 1, 4 * MIB)
    assert last_kind == REPLY and reply.get(1, 0) == 0 and 3 in reply  # a reply to no request: an error


# ---- Hostile bytes ----


def random_span(rng: random.Random) -> list[int]:
    return [rng.choice([0, 8, 64, 128, 4096, MIB, 2**63, rng.getrandbits(64)]), rng.choice([0, 1, 8, 32, 4096, 2**32, 2**64 - 1])]


def random_message(rng: random.Random) -> bytes:
    """Fields of a SUBMIT, a WRITE or a READ, with a flipped bit or cut off now and then."""
    spans = {number: sum((random_span(rng) for _ in range(rng.randrange(4))), []) for number in rng.sample([1, 9, 10], 2)}
    fields = {number: rng.choice([0, 1, 2, 3, 64, rng.getrandbits(32)]) for number in rng.sample(range(2, 9), 3)}
    made = bytearray(message({1: rng.randrange(12)} | fields | spans))
    for _ in range(rng.choice([0, 0, 1, 5])):
        made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
    return bytes(made[: rng.choice([len(made), len(made), rng.randrange(len(made) + 1)])])


def random_frames(rng: random.Random, body: bytes, payload: bytes) -> bytes:
    """Frames of which some are the right GET that is given, some are nearly right, and some are noise."""
    out = b""
    for number in range(rng.randrange(1, 6)):
        kind = rng.choice([SUBMIT, SUBMIT, WRITE, READ, CALL, DONE, rng.randrange(256)])
        sent = rng.choice([body, random_message(rng)])
        with_it = rng.choice([payload, b"", rng.randbytes(rng.choice([16, 48, 200]))])
        one = bytearray(frame(kind, rng.choice([number, number, rng.getrandbits(32)]), sent, with_it))
        if rng.random() < 0.1:
            one[rng.randrange(len(one))] ^= 1 << rng.randrange(8)
        out += one
    return out


def be_hostile(rng: random.Random, host: str, port: str, table: int) -> None:
    """Sends frames, closes its half, and reads until the server has closed."""
    made = Client(socket.create_connection((host, int(port)), LIMIT_S))
    if rng.random() < 0.9:
        made.hello(MIB)
    frames = random_frames(rng, *two_rows(made, table))
    with contextlib.suppress(EOFError, ConnectionError):  # the server may close before it has all
        made.send(frames)
        made.socket.shutdown(socket.SHUT_WR)
        while True:
            made.receive()
    made.close()


def test_random_frames_do_no_harm(tmp_path, io_uring, rng):
    """After each client that sends them, another one reads its rows; at the end nothing is left of any."""
    ids = np.arange(100, dtype=np.uint64)
    with serving(tmp_path, f'  listen: ["tcp://127.0.0.1:0"]\n  io_uring: {io_uring}\n') as (_, log):
        (address,) = addresses_of(log)
        host, port = address.removeprefix("tcp://").split(":")
        with embtier.connect(address, timeout=LIMIT_S, arena_bytes=MIB) as server:
            server.create_table("hostile", dim=4, rows=100)  # the first table of a server has id 1
            table = server.create_table("other", dim=4, rows=100)
            table.set(ids, np.ones((100, 4), np.float32))
            for turn in range(300):
                be_hostile(rng, host, port, 1)
                assert (table.get(ids) == 1).all(), turn
            deadline = time.monotonic() + LIMIT_S
            while server.status()["metrics"]["sessions"] > 1:
                assert time.monotonic() < deadline
                time.sleep(0.05)
