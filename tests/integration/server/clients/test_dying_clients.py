# SPDX-License-Identifier: Apache-2.0
"""All that a client held is free again a second after its death, wherever it was at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import HELPERS, SANITIZED, TREE

import embtier

TIMES = 100
WITHIN_S = 60 if SANITIZED else 1  # at least once, since on a busy machine any process may be delayed for longer
TRIES = 20
LIMIT_S = 60
GROWTH_BYTES = 16 << 20

# Forks children that get to some point and kill themselves. It is a process of its own, since the tests have threads.
_DIER = """
import os, signal, socket, struct, sys
sys.path.insert(0, sys.argv[1])
from raw_client import GET, SET, RawClient, field, frame
path, point, times = sys.argv[2], sys.argv[3], int(sys.argv[4])
HELLO = frame(field(2, field(1, 1) + field(2, 1)))

def raw():
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    return client

def requests(op, count):
    client = RawClient(path, arena_bytes=4 << 20, slots=8)
    table = client.handle("mortal")
    for i in range(6):
        at = client.payload + 4096 + i * (count * 72 + 64)
        first = os.getpid() * 100_000 + i * count
        client.write(at, struct.pack(f"<{count}Q", *range(first, first + count)))
        client.submit(op, [(table, at, at + (count * 8 + 63) // 64 * 64, count)])

def half_a_request():
    client = RawClient(path)
    client.write(client.payload, struct.pack("<QQQII", client.handle("mortal"), client.payload + 64, 4096, 5, 0))

def unread_replies():
    client = raw()
    client.sendall(HELLO + frame(field(1, 1) + field(7, b"")) * 50)

def unread_creation():
    client = raw()
    spec = field(1, f"of-{os.getpid()}") + field(2, 1000) + field(3, 4) + field(4, 1) + field(5, 1) + field(6, 1)
    client.sendall(HELLO + frame(field(1, 1) + field(3, field(1, spec))))

POINTS = {
    "connected": raw,
    "half_a_hello": lambda: raw().sendall(HELLO[:7]),
    "hello": lambda: RawClient(path, arena_bytes=4 << 20),
    "a_table_opened": lambda: RawClient(path, arena_bytes=4 << 20).handle("mortal"),
    "half_a_request": half_a_request,
    "gets_in_flight": lambda: requests(GET, 1000),
    "sets_in_flight": lambda: requests(SET, 1000),
    "unread_replies": unread_replies,
    "unread_creation": unread_creation,
}
for _ in range(times):
    child = os.fork()
    if child == 0:
        try:
            held = POINTS[point]()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        sys.exit(f"a child ended by itself: {status}")
"""

POINTS = [
    "connected",
    "half_a_hello",
    "hello",
    "a_table_opened",
    "half_a_request",
    "gets_in_flight",
    "sets_in_flight",
    "unread_replies",
    "unread_creation",
]


def await_that(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("point", POINTS)
def test_what_the_dead_held_is_free_within_a_second(watched_daemon, point):
    daemon = watched_daemon

    def die(times: int) -> None:
        subprocess.run([sys.executable, "-c", _DIER, HELPERS, daemon.socket, point, str(times)], check=True)

    with daemon.connect(arena_bytes=0) as server:
        server.create_table("mortal", 16)
    before = daemon.metrics()
    die(5)  # so that all that is made only once exists
    resident = daemon.metrics()["process_resident_bytes"]
    seconds: list[float] = []
    while not seconds or (min(seconds) > WITHIN_S and len(seconds) < TRIES):
        die(5 if seconds else TIMES)
        began = time.monotonic()
        for name in ("sessions", "session_arena_bytes"):
            daemon.await_metric(name, before[name])
        seconds.append(time.monotonic() - began)
    assert min(seconds) <= WITHIN_S, seconds
    if not SANITIZED:
        await_that(lambda: daemon.metrics()["process_resident_bytes"] < resident + GROWTH_BYTES)
    with daemon.connect(arena_bytes=0) as server:
        for table in server.tables():
            if table.name.startswith("of-"):
                server.drop_table(table.name)


def test_long_work_of_the_dead_ends_and_others_go_on(own_daemon):
    """The work would take minutes. Its rows are short, so that the disk has room for them."""
    create = (
        "import sys; sys.path.insert(0, sys.argv[1]); import embtier;"
        "embtier.connect(sys.argv[2], timeout=60).create_table("
        "'long', 1, 200_000_000, eager=True, progress=lambda *told: print(told, flush=True))"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", create, str(TREE / "client/python"), own_daemon.socket],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert client.stdout.readline().startswith("(")
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    with own_daemon.connect(timeout=60) as server:
        began = time.monotonic()
        server.checkpoint()
        await_that(lambda: server.tables() == [])  # another thread ends the work
        assert time.monotonic() - began < LIMIT_S
        server.create_table("long", 4)


_FORKS_AND_WAITS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import embtier
server = embtier.connect(sys.argv[2], arena_bytes=1 << 20, timeout=60)
group = server.join("g", 2, 0)
if os.fork() == 0:  # has the socket and the shared memory, as its parent does
    print(os.getpid(), flush=True)
    time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def arena_blocks(pid: int) -> int:
    """The allocated blocks of the arena that the process has mapped."""
    for part in Path(f"/proc/{pid}/map_files").iterdir():
        if "embtier-arena" in os.readlink(part):
            return part.stat().st_blocks
    raise AssertionError("it has none mapped")


def test_a_client_that_is_killed_while_a_child_of_it_lives_on_is_let_go(make_daemon):
    daemon = make_daemon()
    daemon.start()
    python = str(Path(embtier.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS_AND_WAITS, python, daemon.socket], stdout=subprocess.PIPE, text=True
    ) as client:
        child = int(client.stdout.readline())
        try:
            assert daemon.metrics()["session_arena_bytes"] >= 1 << 20
            client.kill()
            client.wait()
            daemon.await_metric("session_arena_bytes", 0)
            daemon.await_metric("groups", 0)
            os.kill(child, 0)  # it still runs
            if os.geteuid() == 0:  # only root may look at its mappings
                assert arena_blocks(child) == 0
            with daemon.connect() as server:  # the name of the group is free again
                server.join("g", 2, 0)
        finally:
            os.kill(child, signal.SIGKILL)
