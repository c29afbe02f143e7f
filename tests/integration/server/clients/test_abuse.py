# SPDX-License-Identifier: Apache-2.0
"""Whatever a client does, the daemon goes on, serves everybody else, and has freed everything a second later.
tests/bench/bench_abuse.c measures the cost in the others' rates."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from daemons import HELPERS, SANITIZED
from raw_client import RawClient, field, frame

WITHIN_S = 60 if SANITIZED else 1  # in one round at least, since on a busy machine any process may be delayed for longer
LIMIT_S = 60  # in every round
ROUNDS, ROUNDS_MOST, ROUND_S = 1 if SANITIZED else 3, 20, 0.3
# Memory that the allocator keeps. Where rows are written, also RocksDB's write buffers, including those being flushed.
SLACK_BYTES, WRITTEN_BYTES = 6 << 20, 48 << 20

# Gets to some point, says so, and goes on until it is killed. Some take a count; others do as many as they can.
_ABUSER = """
import array, os, random, signal, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
from control_requests import KINDS
from raw_client import GET, SET, ARENA_HEAD, RawClient, field, frame
path, what, count = sys.argv[2], sys.argv[3], int(sys.argv[4])
HELLO = frame(field(2, field(1, 1) + field(2, 1)))
BODIES = [kind.number for kind in KINDS.values()]
STATUS = frame(field(1, 1) + field(7, b""))
LIST = frame(field(1, 2) + field(5, b""))
rng = random.Random(os.getpid())
held = []

def raw(first=b""):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(first)
    return client

def going():
    print("going", flush=True)

def hold():
    going()
    while True:
        signal.pause()

def mute():
    held.extend(raw() for _ in range(count))
    hold()

def half_a_frame():
    for i in range(count):  # some before hello, some behind it with nearly a whole one
        held.append(raw(HELLO + struct.pack("<I", 60000) + bytes(59000) if i % 2 else struct.pack("<I", 20) + b"x"))
    hold()

def passes_descriptors(client, data):
    files = [os.memfd_create("passed") for _ in range(12)]
    socket.send_fds(client, [data], files)
    for file in files:
        os.close(file)

def descriptors():
    for _ in range(count):
        client = raw(HELLO)
        for _ in range(4):
            passes_descriptors(client, STATUS)
        held.append(client)
    hold()

def garbage():
    going()
    while True:
        client = raw(HELLO if rng.random() < 0.7 else b"")
        try:
            for _ in range(rng.randint(1, 4)):
                body = rng.randbytes(rng.randint(1, 3000))
                kind = rng.randrange(5)
                if kind == 0:
                    client.sendall(body)
                elif kind == 1:
                    client.sendall(frame(body))
                elif kind == 2:
                    client.sendall(struct.pack("<I", rng.choice([0, 1, 65536, 65537, 2**31, 2**32 - 1])) + body)
                elif kind == 3:
                    client.sendall(frame(field(1, 1) + field(rng.choice(BODIES), body)))
                else:
                    passes_descriptors(client, frame(body))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        except (BrokenPipeError, ConnectionResetError):
            pass
        client.close()

def unread():
    for _ in range(count):
        client = raw(HELLO)
        client.setblocking(False)
        held.append(client)
    def fill():
        for client in held:
            try:
                while True:
                    client.send((STATUS + LIST) * 50)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                pass
    fill()
    going()
    while True:
        fill()
        time.sleep(0.01)

def status():
    client = raw(HELLO)
    going()
    while True:
        client.sendall(STATUS * 50)
        client.recv(1 << 20)

def flood(op, look):
    # All slots in use, always; tiny and huge ones, over the same bytes.
    slots, huge = 1024, 100_000
    while True:
        client = RawClient(path, arena_bytes=8 << 20, slots=slots)
        table = client.handle("flooded")
        ids = client.payload + 4096
        rows = ids + huge * 8
        client.write(ids, struct.pack(f"<{huge}Q", *range(huge)))
        for i, rows_asked in enumerate((1, huge)):
            client.write(client.payload + i * 64, struct.pack("<QQQII", table, ids, rows, rows_asked, 0))
        for slot in range(slots):
            at = ARENA_HEAD + 64 * slot
            client.write(at, struct.pack("<IIIIQQ32x", op, 0, 1, 0, client.payload + slot % 2 * 64, 0))
        done = 0
        client.set_tail(slots)
        going()
        while client.closed_why == 0:
            if look:
                while client.completion(done) is not None:
                    done += 1
            else:
                done += slots
            client.set_tail(done + slots)
        client.close()

def loops(segments, each):
    # Sessions that have one request in flight each, of which request memory holds a few.
    clients = []
    for _ in range(count):
        client = RawClient(path, arena_bytes=segments * 32 + (1 << 20), slots=4)
        ids = client.payload + segments * 32
        segment = struct.pack("<QQQII", client.handle("flooded"), ids, ids + each * 8, each, 0)
        client.write(client.payload, segment * segments)
        client.write(ids, struct.pack(f"<{each}Q", *range(each)))
        for slot in range(4):
            client.write(ARENA_HEAD + 64 * slot, struct.pack("<IIIIQQ32x", GET, 0, segments, 0, client.payload, 0))
        clients.append([client, 0])
    for client, _ in clients:
        client.set_tail(1)
    going()
    while True:
        for entry in clients:
            client, done = entry
            answer = client.completion(done)
            if answer is not None:
                assert answer.err == 0, answer
                entry[1] = done + 1
                client.set_tail(done + 2)
        time.sleep(0.001)

def connects(hello):
    going()
    due = time.monotonic()
    while True:
        if hello:
            RawClient(path, arena_bytes=1 << 16, slots=64).close()
        else:
            raw().close()
        due += 0.001
        time.sleep(max(0, due - time.monotonic()))

{
    "mute": mute,
    "half_a_frame": half_a_frame,
    "descriptors": descriptors,
    "garbage": garbage,
    "unread": unread,
    "status": status,
    "flood_of_gets": lambda: flood(GET, True),
    "flood_of_sets": lambda: flood(SET, True),
    "unseen_completions": lambda: flood(GET, False),
    "loops_of_segments": lambda: loops(65536, 4),
    "loops_of_rows": lambda: loops(64, 4096),
    "connects": lambda: connects(False),
    "connects_and_hellos": lambda: connects(True),
}[what]()
"""

ABUSERS = {
    "mute": 100,
    "half_a_frame": 100,
    "descriptors": 20,  # with 48 each; the system limits the descriptors in flight
    "garbage": 0,
    "unread": 20,
    "status": 0,
    "flood_of_gets": 0,
    "flood_of_sets": 0,
    "unseen_completions": 0,
    "loops_of_segments": 12,
    "loops_of_rows": 12,
    "connects": 0,
    "connects_and_hellos": 0,
}
# These ask for 100,000 rows.
FLOODS = ("flood_of_gets", "flood_of_sets", "unseen_completions")


@contextlib.contextmanager
def abuser(daemon, what: str):
    """An abuser at work while the block runs, and dead afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ABUSER, HELPERS, daemon.socket, what, str(ABUSERS[what])],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"going\n"
        yield process
        assert process.poll() is None, "it ended by itself"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def held(daemon) -> dict:
    """The resources that the daemon holds for its clients, the connection that asks included. Threads make rings when they begin
    to read, which no client holds."""
    with daemon.connect(arena_bytes=0) as server:
        metrics = server.status()["metrics"]
        with open(f"/proc/{daemon.pid}/maps") as maps:
            mappings = sum("/memfd:embtier-" in line for line in maps)
        return {
            "sessions": metrics["sessions"],
            "arena bytes": metrics["session_arena_bytes"],
            "descriptors": {kind: count for kind, count in daemon.descriptors().items() if kind != "anon_inode:[io_uring]"},
            "mappings": mappings,
        }


def await_held(daemon, wanted: dict) -> float:
    """Waits for @wanted; returns the seconds it took."""
    began = time.monotonic()
    while (now := held(daemon)) != wanted:
        assert time.monotonic() < began + LIMIT_S, f"held: {now}, before: {wanted}"
        time.sleep(0.01)
    return time.monotonic() - began


def anonymous_bytes(daemon) -> int:
    with open(f"/proc/{daemon.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def await_anonymous_bytes_below(daemon, most: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (now := anonymous_bytes(daemon)) >= most:
        assert time.monotonic() < deadline, f"{now} bytes, allowed: less than {most}"
        time.sleep(0.01)


@pytest.fixture
def own_daemon(make_daemon):
    """Its memory for requests holds a few of the largest that abusers send."""
    daemon = make_daemon({"lanes": {"request_bytes": "32MiB"}})
    daemon.start()
    return daemon


@pytest.fixture
def daemon(watched_daemon):
    """A daemon with a client that asks for rows all the time, and checks them (conftest.py)."""
    with watched_daemon.connect(arena_bytes=0) as server:
        server.create_table("flooded", 8)
    return watched_daemon


def make_flooded_rows(daemon) -> None:
    before = daemon.metrics()["session_arena_bytes"]
    with daemon.connect() as server:
        server.open_table("flooded").get(np.arange(100_000))
    daemon.await_metric("session_arena_bytes", before)  # until the client's memory is freed, which may take long


def steady_state(daemon) -> dict:
    """The resources held when nothing changes any more."""
    before = held(daemon)
    while True:
        time.sleep(0.1)
        if (now := held(daemon)) == before:
            return now
        before = now


@pytest.mark.parametrize("what", ABUSERS)
def test_nothing_of_an_abuser_stays_and_others_get_right_answers(daemon, what):
    if what in FLOODS:
        make_flooded_rows(daemon)
    before = steady_state(daemon)
    anonymous, seconds = 0, []
    is_dropped = what not in ("garbage", "unseen_completions")  # the server drops clients that break the protocol
    while len(seconds) < 1 + ROUNDS or (min(seconds) >= WITHIN_S and len(seconds) < ROUNDS_MOST):
        with abuser(daemon, what), daemon.connect() as server:
            until = time.monotonic() + ROUND_S
            table = server.open_table("steady")
            served = 0
            while served < 3 or time.monotonic() < until or not is_dropped:
                is_dropped = is_dropped or bool(daemon.logged("client dropped"))
                assert time.monotonic() < until + LIMIT_S, "no client was dropped, or none is served"
                ids = np.random.default_rng(served).integers(0, 500, 200)
                assert (table.get(ids) == ids[:, None]).all()
                assert server.open_table("steady").dim == 8
                served += 1
                time.sleep(0.01 if SANITIZED else 0.001)
        seconds.append(await_held(daemon, before))
        if len(seconds) == 1:  # by now all that is made only once exists
            anonymous = anonymous_bytes(daemon)
    assert min(seconds) < WITHIN_S, seconds
    if not SANITIZED:
        slack = WRITTEN_BYTES if what in FLOODS else 0
        await_anonymous_bytes_below(daemon, anonymous + SLACK_BYTES + slack)


def test_descriptors_that_come_along_are_closed_at_once(daemon):
    """Otherwise a client could use up the daemon's descriptors, and keep open a pipe whose end others await."""
    with RawClient(daemon.path, arena_bytes=0) as client:
        before = steady_state(daemon)
        for _ in range(20):
            pipes = [os.pipe() for _ in range(12)]
            request = frame(field(1, 1) + field(7, b""))
            socket.send_fds(client.socket, [request], [writer for _, writer in pipes])
            for _, writer in pipes:
                os.close(writer)
            assert client.receive_last()[2]
            for reader, _ in pipes:  # a pipe ends only when no process holds its other side
                assert select.select([reader], [], [], LIMIT_S)[0] and os.read(reader, 1) == b""
                os.close(reader)
        await_held(daemon, before)


def test_unread_replies_take_little_memory_and_end_the_connection(daemon):
    before = steady_state(daemon)["sessions"]
    anonymous = anonymous_bytes(daemon)
    began = time.monotonic()
    with abuser(daemon, "unread"):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            if not SANITIZED:
                assert anonymous_bytes(daemon) < anonymous + SLACK_BYTES
            time.sleep(0.05)
        daemon.await_metric("sessions", before)
        assert time.monotonic() - began > 5
    assert {line["why"] for line in daemon.logged("client dropped")} == {"the client does not read its replies"}


def test_clients_cannot_fill_the_log(daemon):
    def told() -> int:
        more = daemon.logged("more clients were refused or dropped")
        return len(daemon.logged("client dropped")) + sum(int(line["count"]) for line in more)

    lines = len(daemon.log_lines())
    began = time.monotonic()
    for _ in range(1000):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(daemon.socket)
            client.sendall(b"\xff" * 8)
            client.recv(4096)
    deadline = time.monotonic() + LIMIT_S
    while told() < 1000:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    seconds = time.monotonic() - began
    assert 10 < len(daemon.log_lines()) - lines < 40 * (seconds + 1)
    assert told() == 1000
