# SPDX-License-Identifier: Apache-2.0
"""Killed before any one of the calls with which it changes the file system: while it drops tables, puts
tables back into the running server, compacts, or stops, has every row what its table's durability
promises, and is a table there wholly or not at all?

A fault library counts the calls (tests/faults/kill_at.c) from when the test says so, and kills."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import LONG, SANITIZED, Daemon

import embtier

# Of each moment; the long form takes every call.
KILLS = int(os.environ.get("EMBTIER_TEST_KILLS", 2 if SANITIZED else 10_000 if LONG else 8))

DIM = 16
ROWS = 1500
IDS = np.arange(ROWS)
TABLES = ("replay", "async", "sync", "victim_replay", "victim_async")
GONE = (embtier.DisconnectedError, embtier.UnreachableError)
SETTINGS = {
    "data": {"shards_per_directory": 2},
    "lanes": {"count": 1, "write_queue_bytes": "1MiB", "request_bytes": "8MiB"},
    "rocksdb": {"memtable_bytes": "1MiB", "metadata_cache_bytes": "1MiB"},
    "checkpoints": {"interval_seconds": 0},
}


def is_logged(name: str) -> bool:
    return not name.endswith("replay")


def write(server, names, number) -> None:
    for name in names:
        server.open_table(name).set(IDS, np.full((ROWS, DIM), number))


def numbers(server, name) -> np.ndarray:
    rows = server.open_table(name).get(IDS)
    assert (rows == rows[:, :1]).all(), f"{name}: torn rows"
    return rows[:, 0]


def must_be(server, name, number) -> None:
    found = np.unique(numbers(server, name))
    assert found.tolist() == [number], f"{name}: {found}, not {number}"


class Store:
    """A stopped one with two checkpoints: in the first all rows are 1, then 2."""

    def __init__(self, folder: Path) -> None:
        self.daemon = Daemon(folder, SETTINGS, lanes=1)
        self.rows, self.copy = folder / "rows", folder / "copy"
        self.shared = folder / "kill"
        self.shared.write_bytes(bytes(24))
        self.daemon.with_fault("kill_at", EMBTIER_FAULT_KILL=str(self.shared))
        self.daemon.start()
        with self.daemon.connect() as server:
            for name in TABLES:
                durability = name.rpartition("_")[2]
                server.create_table(name, DIM, ROWS, init=("constant", 9), durability=durability)
            for number in (1, 2):
                write(server, TABLES, number)
                server.checkpoint()
        self.daemon.stop()
        shutil.copytree(self.rows, self.copy)

    def start_anew(self) -> None:
        shutil.rmtree(self.rows)
        shutil.copytree(self.copy, self.rows)
        self.tell(0, 0)
        self.daemon.start()

    def tell(self, armed: int, before: int) -> None:
        with self.shared.open("r+b") as file:
            file.write(struct.pack("<3Q", armed, before, 0))

    @property
    def count(self) -> int:
        return struct.unpack("<3Q", self.shared.read_bytes())[2]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    yield store
    store.daemon.end()


# ---- What it is killed in: each says how far it came, and what then must be ----


class Drop:
    """Of two tables; the updates before it are of no checkpoint."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, daemon) -> None:
        for name in ("victim_replay", "victim_async"):
            server.drop_table(name)
            self.dropped.append(name)

    def check(self, server) -> None:
        there = {spec.name for spec in server.tables()}
        assert not there & set(self.dropped), "was dropped, and is there again"
        for name in TABLES:
            if name in there:
                must_be(server, name, 3 if is_logged(name) else 2)
            else:
                assert name.startswith("victim"), f"{name} is gone"
                server.create_table(name, DIM, ROWS, init=("constant", 7))
                must_be(server, name, 7)


class Restore:
    """Of two tables under their names, which others have given up."""

    def __init__(self) -> None:
        self.is_done = False

    def prepare(self, server) -> None:
        for name in ("victim_replay", "victim_async"):
            server.drop_table(name)

    def run(self, server, daemon) -> None:
        server.restore_checkpoint(1, ["victim_replay", "victim_async"])
        self.is_done = True

    def check(self, server) -> None:
        there = {spec.name for spec in server.tables()}
        for name in TABLES:
            victim = name.startswith("victim")
            assert name in there or (victim and not self.is_done), f"{name} is gone"
            if name in there:
                must_be(server, name, 1 if victim else 2)
            else:
                server.create_table(name, DIM, ROWS, init=("constant", 7))
                must_be(server, name, 7)


class Compact:
    """Rows are written until there have been compactions."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = 2

    def prepare(self, server) -> None:
        pass

    def run(self, server, daemon) -> None:
        deadline = time.monotonic() + 60
        while server.status()["metrics"]["store_compactions"] < 4:
            assert time.monotonic() < deadline, "nothing is compacted"
            self.sent += 1
            write(server, TABLES, self.sent)
            self.acknowledged = self.sent

    def check(self, server) -> None:
        for name in TABLES:
            if is_logged(name):
                found = np.unique(numbers(server, name))
                assert self.acknowledged <= found.min() and found.max() <= self.sent, (name, found)
            else:
                must_be(server, name, 2)


class Stop:
    """With rows that are nowhere but in the cache."""

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, daemon) -> None:
        daemon._process.terminate()
        daemon._process.wait(60)

    def check(self, server) -> None:
        replay = [np.unique(numbers(server, name)).tolist() for name in TABLES if not is_logged(name)]
        assert replay in ([[2], [2]], [[3], [3]]), replay
        for name in filter(is_logged, TABLES):
            must_be(server, name, 3)


MOMENTS = {"drop": Drop, "restore": Restore, "compact": Compact, "stop": Stop}


def killed_before(store: Store, moment, call: int) -> int:
    """Runs @moment until it is killed before @call, or is done; how many calls there were."""
    daemon = store.daemon
    store.start_anew()
    with contextlib.suppress(*GONE), daemon.connect(timeout=60) as server:
        moment.prepare(server)
        store.tell(1, call)
        moment.run(server, daemon)
    count = store.count
    daemon.kill()
    store.tell(0, 0)
    return count


def start_killed_before(store: Store, call: int) -> None:
    """What the start after it has to do may be cut short as well."""
    daemon = store.daemon
    store.tell(1, call)
    daemon.launch()
    deadline = time.monotonic() + 60
    while daemon.is_running:
        assert time.monotonic() < deadline
        with contextlib.suppress(*GONE):
            daemon.connect(arena_bytes=0).close()
            break
        time.sleep(0.01)
    daemon.kill()
    store.tell(0, 0)


def look(store: Store, moment, what: str) -> None:
    with store.daemon.connect(timeout=60) as server:
        try:
            moment.check(server)
        except (AssertionError, embtier.Error) as error:
            raise AssertionError(f"{what}: {error}") from error


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_before_any_change_of_the_file_system_nothing_that_was_promised_is_lost(store, rng, moment):
    calls = killed_before(store, MOMENTS[moment](), 0)
    assert calls > 5, "are they counted?"
    chosen = list(range(1, calls + 1))
    if KILLS < calls:
        chosen = sorted(rng.sample(chosen, KILLS))
    killed = 0
    for call in chosen:
        what = MOMENTS[moment]()
        killed += killed_before(store, what, call) >= call
        again = rng.choice([0, rng.randrange(1, 100)])
        if again:
            start_killed_before(store, again)
        store.daemon.start()
        look(store, what, f"before call {call} of {calls}, and of the next start's before call {again}")
        store.daemon.kill()
    print(f"{moment}: {calls} calls, killed before {killed} of {len(chosen)}")
    assert killed > 0
