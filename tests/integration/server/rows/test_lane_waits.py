# SPDX-License-Identifier: Apache-2.0
"""Only requests for rows on SSD wait for SSD.

Every read of an SST file takes 50 ms longer (tests/faults/slow_reads.c), or more."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, SANITIZED
from raw_client import GET, RawClient

import embtier

HOT, DIM = 512, 64
COLD = 32_000 if SANITIZED else 40_000 * LANES  # more than a client has in flight below; without a sanitizer, than the cache holds
WINDOW_S, WAITED_MS = 0.25, 3000
REST = 0.05  # most of the time in which a lane may run, or wait for a processor, while there is nothing to do

@pytest.fixture
def slow_daemon(make_daemon):
    """A daemon with rows on slow SSD. All have been written, and none is cached unless a test asks for it."""
    daemon = make_daemon({"lanes": {"request_bytes": "16MiB"}})
    daemon.trigger = daemon.folder / "slow"
    daemon.with_fault(
        "slow_reads", EMBTIER_FAULT_TRIGGER=str(daemon.trigger), EMBTIER_FAULT_READ_MS="50"
    )
    daemon.start()
    with daemon.connect() as server:
        server.create_table("hot", DIM).set(np.arange(HOT), np.ones((HOT, DIM)))
        cold = server.create_table("cold", DIM)
        for first in range(0, COLD, 8000):
            ids = np.arange(first, first + 8000)
            cold.set(ids, np.repeat(ids[:, None], DIM, axis=1))
    daemon.restart()
    return daemon


def test_the_fault_is_one(slow_daemon):
    """Without the fault the tests below prove nothing: a read must take 50 ms, and a second one of the same row must not."""
    slow_daemon.trigger.touch()
    with slow_daemon.connect() as server:
        table = server.open_table("cold")
        began = time.monotonic()
        assert (table.get([5]) == 5).all()
        first = time.monotonic() - began
        quickest = 1.0
        for _ in range(20):
            began = time.monotonic()
            table.get([5])
            quickest = min(quickest, time.monotonic() - began)
    assert first >= 0.05 > quickest


class Hog:
    """Keeps requests in flight, each for the same missing rows, over the same memory."""

    def __init__(self, daemon, count: int, requests: int = 64, first: int = 0) -> None:
        self.client = RawClient(daemon.path, arena_bytes=(1 << 20) + count * (8 + 4 * DIM), slots=64)
        ids = self.client.payload + 4096
        self.client.write(ids, np.arange(first, first + count).tobytes())
        table = self.client.handle("cold")
        for _ in range(requests):
            self.last = self.client.submit(GET, [(table, ids, ids + 8 * count, count)])

    def answered(self) -> int:
        return sum(self.client.completion(number) is not None for number in range(self.last + 1))


def slow_down(daemon, read_ms: int) -> None:
    """Restarts the daemon, whose reads take so long from now on."""
    daemon.environment["EMBTIER_FAULT_READ_MS"] = str(read_ms)
    daemon.restart()
    daemon.trigger.touch()


def await_reading(daemon) -> None:
    deadline = time.monotonic() + 60
    while daemon.metrics()["reading_rows"] == 0:
        assert time.monotonic() < deadline, "nothing waits for SSD"
        time.sleep(0.01)


def lanes_ns(daemon) -> list[int]:
    """The time in which each lane ran, or waited for a processor. It is the same on a busy machine."""
    tasks, lanes = sorted(Path(f"/proc/{daemon.pid}/task").iterdir()), []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the kernel's threads come and go
            lanes += [task] if (task / "comm").read_text().startswith("lane-") else []
    assert len(lanes) == LANES
    return [sum(map(int, (task / "schedstat").read_text().split()[:2])) for task in lanes]


def share_of_busiest_lane(daemon) -> float:
    before, began = lanes_ns(daemon), time.monotonic_ns()
    time.sleep(WINDOW_S)
    after, spent = lanes_ns(daemon), time.monotonic_ns() - began
    return max(new - old for new, old in zip(after, before)) / spent


@pytest.mark.parametrize("requests,count", [(2, 200), (64, 10000)], ids=["a_few_misses", "more_than_there_is_memory_for"])
def test_lanes_rest_and_serve_others_while_a_client_waits_for_ssd(slow_daemon, requests, count):
    slow_daemon.environment["EMBTIER_FAULT_READ_MS"] = str(WAITED_MS)
    slow_daemon.restart()
    deadline, shares, first = time.monotonic() + 60, [], 0
    with slow_daemon.connect() as server:
        hot = server.open_table("hot")
        hot.get(np.arange(HOT))  # cached from now on
        slow_daemon.trigger.touch()
        while True:  # reads may be over before this thread has looked at them
            hog = Hog(slow_daemon, count, requests, first)
            first = (first + count) % (COLD - count)
            while slow_daemon.metrics()["reading_rows"] == 0 and hog.answered() < requests:
                assert time.monotonic() < deadline, "nothing waits for SSD"
                time.sleep(0.01)
            while slow_daemon.metrics()["reading_rows"] > 0 and hog.answered() < requests:
                shares.append(share_of_busiest_lane(slow_daemon))
                got = [hot.get(np.arange(HOT)) for _ in range(20)]
                assert all((rows == 1).all() for rows in got)
                if shares[-1] < REST and slow_daemon.metrics()["reading_rows"] > 0 and hog.answered() < requests:
                    hog.client.close()
                    slow_daemon.trigger.unlink()
                    return
                assert time.monotonic() < deadline, f"lanes run while nothing is to be done: {shares}"
            hog.client.close()
            assert time.monotonic() < deadline, f"lanes run while nothing is to be done: {shares}"


def test_one_client_does_not_get_all_the_memory_for_requests(slow_daemon):
    """Otherwise a large request would wait until many of the other client's rows have been read."""
    slow_down(slow_daemon, 250)  # a minute for all of them
    with slow_daemon.connect() as server:
        hot = server.open_table("hot")
        hot.get(np.arange(HOT))
        hog = Hog(slow_daemon, 30_000)
        try:
            await_reading(slow_daemon)
            time.sleep(0.2)
            many = np.random.default_rng(1).integers(0, HOT, 100_000)  # 2.4 MB, twice that with many lanes
            assert (hot.get(many) == 1).all()
            assert hog.answered() == 0
        finally:
            hog.client.close()
            slow_daemon.trigger.unlink()


def test_what_a_dead_client_waits_for_is_not_read(slow_daemon):
    """Reading it all would take a minute."""
    slow_down(slow_daemon, 250)
    before = slow_daemon.metrics()
    hog = Hog(slow_daemon, 30_000)
    await_reading(slow_daemon)
    hog.client.socket.close()
    for name in ("sessions", "session_arena_bytes", "reading_rows"):
        slow_daemon.await_metric(name, before[name])
    assert hog.answered() == 0, "it was told that all was done"
    hog.client.close()
    with slow_daemon.connect() as server:  # other clients need not wait for these reads
        assert (server.open_table("cold").get([5, 6, 7]) == [[5], [6], [7]]).all()


def test_a_few_rows_from_ssd_do_not_wait_for_all_that_a_large_batch_waits_for(slow_daemon):
    """They wait neither behind the batch's rows, nor in a job that younger ones overtake."""
    slow_down(slow_daemon, 20)
    with slow_daemon.connect(arena_bytes=64 << 20) as bulk, slow_daemon.connect() as other:
        ids = np.random.default_rng(1).permutation(COLD)  # in order, each block read would have many of them
        small = ids[-50:].reshape(5, 10)
        count = min(COLD - 50, 160_000)  # the server would not take in more at once
        large = bulk.batch([(bulk.open_table("cold"), count)])
        large.ids(0)[:] = ids[:count]
        large.submit_get()
        deadline = time.monotonic() + 60
        while not large.poll() and slow_daemon.metrics()["reading_rows"] < count // 2:  # over RPC, poll() sends what is left to send
            assert time.monotonic() < deadline, "the large batch does not wait for SSD"
            time.sleep(0.01)
        table = other.open_table("cold")
        for few in small:
            assert (table.get(few) == few[:, None]).all()
            assert slow_daemon.metrics()["reading_rows"] > count // 20, "it waited for the large batch"
        assert not large.poll()
        slow_daemon.trigger.unlink()
        large.wait()


@pytest.mark.skipif(LANES > 2, reason="the batch does not fit into the memory for requests")
def test_a_few_rows_from_ssd_find_a_place_despite_a_batch_of_more_rows_than_may_be_read_at_once(slow_daemon):
    """A lane reads at most 65,536 rows at a time, and one session may not have them all."""
    count = 80_000 * LANES
    with slow_daemon.connect() as server:
        table = server.create_table("narrow", 4)
        for first in range(0, count, 40_000):
            ids = np.arange(first, first + 40_000)
            table.set(ids, np.repeat(ids[:, None], 4, axis=1))
    slow_daemon.restart()
    slow_daemon.trigger.touch()
    with slow_daemon.connect() as bulk, slow_daemon.connect() as other:
        large = bulk.batch([(bulk.open_table("narrow"), count)])
        large.ids(0)[:] = np.random.default_rng(1).permutation(count)
        large.submit_get()
        deadline = time.monotonic() + 60
        while not large.poll() and slow_daemon.metrics()["reading_rows"] < 50_000 * LANES:
            assert time.monotonic() < deadline, "the large batch does not wait for SSD"
            time.sleep(0.01)
        time.sleep(0.5)  # by now it has all that it may have
        assert slow_daemon.metrics()["reading_rows"] < 55_000 * LANES, "nothing is left for others"
        small = np.arange(10)
        assert (other.open_table("cold").get(small) == small[:, None]).all()
        assert not large.poll(), "it waited for the large batch"
        slow_daemon.trigger.unlink()
        if not SANITIZED:  # a sanitizer takes longest for these rows, which are served as the few were
            large.wait()
