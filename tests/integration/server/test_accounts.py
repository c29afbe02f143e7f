# SPDX-License-Identifier: Apache-2.0
"""Is what one client, or one user, has of what is finite left to others, and given back?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from daemons import Daemon
from raw_client import RawClient

LIMIT_S = 60
STEP_BYTES = 8 << 20
LARGE = 64 << 20
PROGRESS = 4


def await_that(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# ---- Shared memory ----

_CONNECTS = """
import sys
sys.path.insert(0, sys.argv[1])
from raw_client import RawClient
RawClient(sys.argv[2], arena_bytes=int(sys.argv[3]))
"""


class SlowMemory:
    """A daemon whose system is slow to give large shared memory, as long as the file is there."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon = daemon
        self._trigger = folder / "trigger"
        self.clients: list[subprocess.Popen] = []
        daemon.with_fault(
            "held_memory", EMBTIER_FAULT_TRIGGER=str(self._trigger), EMBTIER_FAULT_BYTES=str(STEP_BYTES)
        )

    def hold(self) -> None:
        self._trigger.touch()

    def let_go(self) -> None:
        self._trigger.unlink(missing_ok=True)

    def is_held(self) -> bool:
        return Path(f"{self._trigger}.waits").exists()

    def begin(self) -> subprocess.Popen:
        """A client that asks for much."""
        here = os.path.dirname(__file__)
        self.clients.append(
            subprocess.Popen([sys.executable, "-c", _CONNECTS, here, self.daemon.socket, str(LARGE)])
        )
        return self.clients[-1]


@pytest.fixture
def slow_memory(make_daemon, tmp_path) -> Iterator[SlowMemory]:
    slow = SlowMemory(make_daemon({"socket": {"max_arena_bytes": LARGE}}), tmp_path)
    slow.daemon.start()
    yield slow
    slow.let_go()
    for client in slow.clients:
        client.kill()
        client.wait()


def test_memory_that_is_slow_to_come_holds_up_nobody_and_is_given_back(slow_memory):
    daemon = slow_memory.daemon
    with daemon.connect(arena_bytes=1 << 20) as server:
        table = server.create_table("t", 4)
        table.set([1], np.ones((1, 4)))
        with daemon.connect(arena_bytes=0) as other:
            had, descriptors = other.status()["metrics"], daemon.all_descriptors()
        slow_memory.hold()
        client = slow_memory.begin()
        await_that(slow_memory.is_held)
        with daemon.connect(arena_bytes=0) as other:  # while that waits
            now = other.status()["metrics"]
            assert now["session_arena_bytes"] >= had["session_arena_bytes"] + LARGE  # counted from the first
        assert (table.get([1]) == 1).all()
        client.kill()
        client.wait()
        assert slow_memory.is_held()
        assert (table.get([1]) == 1).all()
        slow_memory.let_go()
        daemon.await_metric("sessions", had["sessions"])
        daemon.await_metric("session_arena_bytes", had["session_arena_bytes"])
        with daemon.connect(arena_bytes=0):
            daemon.must_have_closed_all_but(descriptors)
        with RawClient(daemon.socket, arena_bytes=LARGE) as again:
            assert again.arena_bytes >= LARGE


def test_who_waits_for_memory_hears_of_it(slow_memory):
    slow_memory.hold()
    client = RawClient(slow_memory.daemon.socket, hello=False)
    heard = threading.Event()
    receive = client.receive

    def listen():
        reply = receive()
        if PROGRESS in reply:
            heard.set()
        return reply

    client.receive = listen
    thread = threading.Thread(target=client.hello, args=(LARGE, 8))
    thread.start()
    try:
        assert heard.wait(LIMIT_S)
    finally:
        slow_memory.let_go()
        thread.join()
    assert client.arena_bytes >= LARGE
    client.close()


def test_a_stop_while_memory_comes_slowly_is_a_stop(slow_memory):
    daemon = slow_memory.daemon
    with daemon.connect() as server:
        server.create_table("t", 4, rows=10).set([1], np.ones((1, 4)))
    slow_memory.hold()
    client = slow_memory.begin()
    await_that(slow_memory.is_held)
    with ThreadPoolExecutor() as pool:
        stop = pool.submit(daemon.stop)
        await_that(lambda: not Path(daemon.socket).exists())  # it has begun
        slow_memory.let_go()
        stop.result()
    assert client.wait(LIMIT_S) != 0
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("t").get([1]) == 1).all()
