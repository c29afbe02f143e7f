# SPDX-License-Identifier: Apache-2.0
"""Readers come and go while clients read rows from SSD: every row is right, no client stands still, and the threads are there."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, LANES, SANITIZED
from knobbed import answer, differences, refused, set_knob, wait_for

MIB = 1 << 20
DIM = 64
ROWS = 20_000 if SANITIZED else 60_000
BATCH = 1_000
MOST = 16 if SANITIZED else 64
NAME = "lanes.readers_per_lane"


@pytest.fixture
def cold(make_daemon):
    """A daemon whose cache has room for few of the rows that the test writes."""
    daemon = make_daemon({"cache": {"tiers": [{"name": "dram", "bytes": f"{4 * LANES}MiB"}], "map_percent": 0}})
    daemon.start()
    with daemon.connect(arena_bytes=8 * MIB) as server:
        table = server.create_table("t", DIM, rows=ROWS)
        for first in range(0, ROWS, BATCH):
            ids = np.arange(first, first + BATCH)
            table.set(ids, rows_of(ids))
    return daemon


def rows_of(ids: np.ndarray) -> np.ndarray:
    return np.repeat((ids + 1).astype(np.float32)[:, None], DIM, axis=1)


def threads_named(daemon, wanted: str) -> int:
    count = 0
    for task in Path(f"/proc/{daemon.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this thread has just ended
            count += (task / "comm").read_text().strip() == wanted
    return count


class Client(threading.Thread):
    def __init__(self, daemon, seed: int) -> None:
        super().__init__(daemon=True)
        self.server = daemon.connect(arena_bytes=8 * MIB)
        self.table = self.server.open_table("t")
        self.random = np.random.default_rng(seed)
        self.stop, self.failure, self.rounds = threading.Event(), None, 0

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                ids = self.random.integers(0, ROWS, BATCH)
                np.testing.assert_array_equal(self.table.get(ids), rows_of(ids))
                self.rounds += 1
        except Exception as error:  # told by end()
            self.failure = error

    def end(self) -> None:
        self.stop.set()
        self.join()
        self.server.close()
        if self.failure:
            raise self.failure


def test_clients_read_while_readers_come_and_go(cold):
    before = cold.metrics()["lookup_rows"]["ssd"]
    clients = [Client(cold, seed) for seed in range(3)]
    for client in clients:
        client.start()
    for count in (MOST, 1, MOST, 1, 5, 2, MOST - 1, 1) if SANITIZED else (MOST, 1) * 6 + (5, 2, MOST - 1, 1, 7):
        assert set_knob(cold, NAME, str(count))["value"] == str(count)
        wait_for(lambda: threads_named(cold, "reader") == count * LANES, f"there are not {count} readers")  # noqa: B023
        rounds = [client.rounds for client in clients]
        wait_for(lambda: all(c.rounds > r + 1 or c.failure for c, r in zip(clients, rounds)), "a client stands still")  # noqa: B023
    for client in clients:
        client.end()
    assert cold.metrics()["lookup_rows"]["ssd"] > before + BATCH
    assert cold.metrics()["failed_rows"] == 0
    cold.stop()


def test_a_server_stops_while_readers_change(cold):
    clients = [Client(cold, seed) for seed in range(2)]
    for client in clients:
        client.start()
    begun, over = threading.Event(), threading.Event()

    def change() -> None:
        counts = [str(MOST), "1"]
        while not over.is_set():
            command = [CLI, "--timeout", "60", "--address", str(cold.socket), "knob", "set", NAME, counts[0]]
            subprocess.run(command, capture_output=True, timeout=120, check=False)
            counts.reverse()
            begun.set()

    setter = threading.Thread(target=change, daemon=True)
    setter.start()
    assert begun.wait(60)
    for client in clients:
        client.end()
    cold.stop()
    over.set()
    setter.join()
    cold.start()
    with cold.connect(arena_bytes=8 * MIB) as server:
        table = server.open_table("t")
        for first in range(0, ROWS, BATCH):
            ids = np.arange(first, first + BATCH)
            np.testing.assert_array_equal(table.get(ids), rows_of(ids))
    cold.stop()


def test_the_file_gets_the_number_too(cold):
    changed = set_knob(cold, NAME, "3", "--persist")
    assert (changed["old"], changed["value"], changed["applied"]) == ("2", "3", True)
    assert set_knob(cold, "rocksdb.compaction_trigger_files", "8", "--persist")["old"] == "4"
    assert differences(cold) == {}
    cold.stop()
    cold.start()
    assert answer(cold, "knob", "get", NAME)["value"] == "3"
    assert answer(cold, "knob", "get", "rocksdb.compaction_trigger_files")["value"] == "8"
    assert threads_named(cold, "reader") == 3 * LANES
    cold.stop()


def test_numbers_that_cannot_be_are_refused(cold):
    for name, value, part in (
        (NAME, "0", "1 to 64"),
        (NAME, "65", "1 to 64"),
        (NAME, "4 threads", "1 to 64"),
        ("rocksdb.compaction_trigger_files", "1", "2 to 16"),
        ("rocksdb.compaction_trigger_files", "17", "2 to 16"),
    ):
        assert part in refused(cold, "knob", "set", name, value)
    assert answer(cold, "knob", "get", NAME)["value"] == "2"
    assert threads_named(cold, "reader") == 2 * LANES
    cold.stop()
