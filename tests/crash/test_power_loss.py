# SPDX-License-Identifier: Apache-2.0
"""After a power loss at any moment, every row is as its table's durability promises. power_loss.py makes a possible state of the
disk from the server's writes and syncs. Meanwhile clients update rows and make checkpoints, and create, import, restore and drop
tables."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import LONG, SANITIZED
from power_loss import Disk
from stores import checkpoint_under_load, has_lost_server, is_whole, run_move, was_busy
from test_kill import ROWS, Oracle, update_until_it_dies

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

LOSSES = int(os.environ.get("EMBTIER_TEST_LOSSES", 3 if SANITIZED else 200 if LONG else 5))
GONE = (embtier.DisconnectedError, embtier.UnreachableError)
HINT = "wal_recovery_mode=kPointInTimeRecovery"

# name: (dim, optimizer, durability); all columns of a row hold the same number, in push_* the number of its pushes
LOGGED = {
    "set_sync": (64, "none", "sync"),
    "push_sync": (3, "sgd", "sync"),
    "set_async": (150, "none", "async"),
    "push_async": (16, "sgd", "async"),
}
REPLAY = {"replay": (64, "none"), "replay_adam": (20, "adam")}
REPLAY_ROWS = 2000
IMPORTED = 5  # all numbers of the file to be imported


def describe(server, rows: dict[str, np.ndarray]) -> str:
    """Says which rows have which number."""
    found = []
    for name, got in rows.items():
        spec = server.open_table(name).spec
        for number in np.unique(got):
            ids = np.flatnonzero((got == number).any(1))
            found.append(f"{name} ({spec.home} {spec.tier}): {len(ids)} rows are {number}, as {ids[:9].tolist()}")
    return "; ".join(found)


class Load:
    """Makes requests until the server dies, and notes which results the server must remember."""

    def __init__(self, daemon, rng, moves: bool) -> None:
        self.daemon, self.rng, self.moves = daemon, rng, moves
        self.oracles = {name: Oracle() for name in LOGGED}
        self.replay_sent = self.replay_acknowledged = 0
        self.checkpoint_rows = {0: (0, 0)}  # id: the least and most that its replay tables may hold
        self.newest = 0  # the newest that was acknowledged
        self.newest_is_ours = False  # else the server may replace it
        self.whole_checkpoints = {0}  # the others may have parts of an update (is_whole())
        self.tables: set[str] = set()  # made and not dropped
        self.unsure: set[str] = set()  # being made or dropped
        self.whole: dict[str, tuple[int, int]] = {}  # the least and most that rows of tables made with rows may hold
        self.counts = dict.fromkeys(("created", "imported", "put back", "moved"), 0)
        self.file = daemon.folder / "import.npy"
        np.save(self.file, np.full((REPLAY_ROWS, 24), IMPORTED, np.float32))
        self.failures: list[BaseException] = []
        self.names = (f"made_{i}" for i in itertools.count())

    def create(self) -> None:
        with self.daemon.connect() as server:
            for name, (dim, optimizer, durability) in LOGGED.items():
                server.create_table(name, dim, ROWS, optimizer=optimizer, durability=durability)
            for name, (dim, optimizer) in REPLAY.items():
                server.create_table(name, dim, REPLAY_ROWS, optimizer=optimizer)

    def threads(self) -> list[threading.Thread]:
        """One for each kind of work."""
        work = [
            (self.set_replay,), (self.make_checkpoints, self.rng.uniform(0, 0.2)), (self.make_tables,),
            (self.import_tables, self.rng.choice(["replay", "async", "sync"])), (self.put_back_tables,),
        ]  # fmt: skip
        if self.moves:
            work.append((self.move_shards, self.rng.randrange(2**32)))
        for name, oracle in self.oracles.items():
            work.append((update_until_it_dies, self.daemon, name, self.rng.randrange(2**32), oracle))
        return [threading.Thread(target=self.run, args=one) for one in work]

    def run(self, function, *arguments) -> None:
        try:
            function(*arguments)
        except (*GONE, embtier.ShutdownError):
            pass
        except BaseException as error:  # passed on to the test's thread
            self.failures.append(error)

    def set_replay(self) -> None:
        """Sets all rows of all replay tables, by one request each time."""
        with self.daemon.connect() as server:
            parts = [(server.open_table(name), REPLAY_ROWS) for name in REPLAY]
            with server.batch(parts) as batch:
                while True:
                    self.replay_sent += 1
                    for part in range(len(parts)):
                        batch.ids(part)[:] = np.arange(REPLAY_ROWS)
                        batch.rows(part)[:] = self.replay_sent
                    batch.set()
                    self.replay_acknowledged = self.replay_sent

    def make_checkpoints(self, pause_s: float) -> None:
        with self.daemon.connect() as server:
            while True:
                time.sleep(pause_s)
                least = self.replay_acknowledged
                made = checkpoint_under_load(server, keep=2)
                self.checkpoint_rows[made.id] = least, self.replay_sent
                if made.cut_updates == 0:
                    self.whole_checkpoints.add(made.id)
                self.newest, self.newest_is_ours = made.id, True

    def move_shards(self, seed: int) -> None:
        """Moves rows to other numbers of shards, one after the other. A start may go on with a move of before, which is BUSY."""
        rng = random.Random(seed)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = run_move(self.daemon, rng.randint(1, 7))
                if has_lost_server(done):
                    return
                assert done.returncode == 0 or was_busy(done), done.stderr
                self.counts["moved"] += done.returncode == 0
            time.sleep(0.02)

    def make_tables(self) -> None:
        with self.daemon.connect() as server:
            while True:
                name = f"row_{next(self.names)}"
                self.unsure.add(name)
                server.create_table(name, 4, durability="sync").set([7], [[1, 2, 3, 4]])
                self.add("created", server, name)

    def import_tables(self, durability: str) -> None:
        with self.daemon.connect() as server:
            while True:
                name = f"import_{next(self.names)}"
                self.whole[name] = IMPORTED, IMPORTED
                self.unsure.add(name)
                server.import_table(self.file, name, durability=durability)
                self.add("imported", server, name)

    def put_back_tables(self) -> None:
        """Restores one replay table from a checkpoint into the running server, under another name."""
        with self.daemon.connect() as server:
            while True:
                name, checkpoint = f"restore_{next(self.names)}", self.newest
                if not checkpoint or checkpoint not in self.whole_checkpoints:
                    server.tables()  # also notices the end of the server
                else:
                    self.whole[name] = self.checkpoint_rows[checkpoint]
                    self.unsure.add(name)
                    with contextlib.suppress(embtier.NotFoundError):  # the thread that makes checkpoints may have deleted it
                        server.restore_checkpoint(checkpoint, ["replay"], name)
                        self.add("put back", server, name)
                time.sleep(0.02)

    def add(self, how: str, server, name: str) -> None:
        """Notes that @name exists, and drops an older table of its kind."""
        self.counts[how] += 1
        self.tables.add(name)
        self.unsure.remove(name)
        time.sleep(0.05)
        alike = [one for one in list(self.tables) if one.split("_")[0] == name.split("_")[0]]  # other threads add some
        alike.sort(key=lambda one: int(one.rpartition("_")[2]))
        if len(alike) > 3:
            self.tables.remove(alike[0])
            self.unsure.add(alike[0])
            server.drop_table(alike[0])
            self.unsure.remove(alike[0])

    def await_one(self, how: str) -> None:
        """Waits for one to end. With all other work these take long, and few would end before the power loss."""
        before, deadline = self.counts[how], time.monotonic() + 10
        while self.counts[how] == before and not self.failures and time.monotonic() < deadline:
            time.sleep(0.01)

    def await_update(self, threads: list[threading.Thread]) -> None:
        """Waits for an update of a sync table, acknowledged when synced. Before that a power loss may have nothing to take."""
        oracles = [oracle for name, oracle in self.oracles.items() if name.endswith("_sync")]
        before, deadline = [oracle.acknowledged.sum() for oracle in oracles], time.monotonic() + 30
        while [oracle.acknowledged.sum() for oracle in oracles] == before:
            if time.monotonic() > deadline or not any(thread.is_alive() for thread in threads):
                return
            time.sleep(0.01)

    # ---- Checks after a loss ----

    def check(self, stopped: bool) -> None:
        """Checks all tables, and takes the present rows as the new state, since all that a start has read is on disk."""
        assert not self.failures, self.failures
        with self.daemon.connect() as server:
            self.check_tables(server)
            for name, oracle in self.oracles.items():
                self.check_logged(server, name, oracle, stopped)
            self.check_replay(server, stopped)

    def check_tables(self, server) -> None:
        there = {spec.name for spec in server.tables()} - {*LOGGED, *REPLAY}
        assert self.tables <= there, f"tables {self.tables - there} are gone"
        assert there <= self.tables | self.unsure, f"{there - self.tables - self.unsure} are there again"
        for name in there:
            self.check_table(server, name)
        for name in there - self.tables:
            server.drop_table(name)
        self.unsure.clear()

    def check_table(self, server, name: str) -> None:
        """Checks tables whose creation was not acknowledged too: a table made with rows has either all of them, or does not
        exist."""
        if name in self.whole:
            least, most = self.whole[name]
            numbers = np.unique(server.open_table(name).get(np.arange(REPLAY_ROWS)))
            assert len(numbers) == 1 and least <= numbers[0] <= most, f"{name}: {numbers}, not of {least} to {most}"
        elif name in self.tables:
            assert (server.open_table(name).get([7]) == [[1, 2, 3, 4]]).all(), f"{name}_sync: its rows are gone"

    def check_logged(self, server, name, oracle, stopped) -> None:
        got = server.open_table(name).get(np.arange(ROWS))
        torn = np.flatnonzero((got != got[:, :1]).any(1))
        assert torn.size == 0, f"{name}: rows torn: {torn[:9]}"
        least = oracle.acknowledged if name.endswith("_sync") or stopped else oracle.durable
        lost = np.flatnonzero(got[:, 0] < least)
        assert lost.size == 0, f"{name}: {lost.size} rows, as {lost[:9]}, are {got[lost[:9], 0]}, not {least[lost[:9]]}"
        assert (got[:, 0] <= oracle.sent).all(), name
        oracle.sent[:] = oracle.acknowledged[:] = got[:, 0]
        oracle.durable = oracle.acknowledged.copy()

    def check_replay(self, server, stopped) -> None:
        listed = [checkpoint.id for checkpoint in server.checkpoints()]
        is_replaced = not self.newest_is_ours and max(listed, default=0) > self.newest
        assert not self.newest or self.newest in listed or is_replaced, f"checkpoint {self.newest} is gone: {listed}"
        for id in listed:
            with contextlib.suppress(embtier.NotFoundError) if self.moves else contextlib.nullcontext():
                server.verify_checkpoint(id)  # a move that goes on makes some, and the server deletes its own oldest
        newest = max(listed, default=0)
        rows = {name: server.open_table(name).get(np.arange(REPLAY_ROWS)) for name in REPLAY}
        numbers = sorted({int(number) for got in rows.values() for number in np.unique(got)})
        if len(numbers) == 1:
            if not stopped:  # else the rows are those of the stop, not of this checkpoint
                self.whole_checkpoints.add(newest)
        elif stopped or newest in self.whole_checkpoints or is_whole(self.daemon, newest):
            pytest.fail(f"rows of several requests: {describe(server, rows)}")
        assert all((got == got[:, :1]).all() for got in rows.values()), f"rows torn: {describe(server, rows)}"
        least, most = self.checkpoint_rows[self.newest]
        if newest > self.newest or stopped:  # one may have been made, or be in the making, without an answer
            most = self.replay_sent
        if stopped:
            least = self.replay_acknowledged
        assert least <= numbers[0] and numbers[-1] <= most, f"replay rows are {numbers}, not of {least} to {most}"
        self.replay_sent = self.replay_acknowledged = numbers[-1]
        self.newest, self.newest_is_ours = newest, False
        self.checkpoint_rows[self.newest] = numbers[0], numbers[-1]


def random_options(daemon, rng) -> dict:
    lanes = rng.randint(1, 2)
    return {
        "checkpoints": {"interval_seconds": 0},
        "data": {"shards_per_directory": 2},
        "lanes": {"count": lanes},
        "cache": {"tiers": [daemon.dram(lanes, 4)]},
        "rocksdb": {
            "memtable_bytes": rng.choice(["2MiB", "16MiB"]),
            "direct_io": rng.choice(["auto", "off"]),
            "io_uring": rng.choice(["auto", "off"]),
            "options": None,
        },
    }


def run(daemon, disk, rng, losses: int, syncs: bool = True, moves: bool = False) -> None:
    """@syncs: false if the server skips syncs, which must be found out; then each loss must have something to take."""
    load = Load(daemon, rng, moves)
    daemon.configure(random_options(daemon, rng))
    daemon.start()
    load.create()
    for oracle in load.oracles.values():
        oracle.durable = oracle.acknowledged.copy()
    files = entries = 0
    for loss in range(losses):
        stopped = rng.random() < 0.2
        threads = load.threads()
        for thread in threads:
            thread.start()
        if rng.random() < 0.3:
            load.await_one(rng.choice(["imported", "put back"]))
        if not syncs or (files == 0 and loss >= losses // 2):
            load.await_update(threads)
        time.sleep(rng.uniform(0, 3 if moves else 1))
        daemon.stop() if stopped else daemon.kill()
        for thread in threads:
            thread.join()
        while True:
            lost = disk.lose_power(rng)
            files, entries = files + lost.files, entries + lost.entries
            daemon.configure(random_options(daemon, rng))
            if rng.random() < 0.7:
                break
            daemon.launch()  # power fails again during the start
            time.sleep(rng.uniform(0, 0.15))
            daemon.kill()
        daemon.start()  # without help, whatever pages are missing from the unfinished end of a log
        load.check(stopped)
        print(f"loss {loss}: {lost}, stopped={stopped}")
    if moves:
        directory = daemon.config["data"]["directories"][0]
        print("generation of buckets:", json.loads(Path(directory, "buckets.json").read_text())["generation"])
    cut = sum("end of a log was cut off" in line for line in daemon.log_lines())
    print(f"{losses} losses: {files} files and {entries} entries changed, {cut} logs cut; tables {load.counts}")
    assert losses < 5 or files > 0
    assert losses < 50 or all(count for how, count in load.counts.items() if how != "moved" or moves), load.counts
    assert losses < 50 or cut > 0, "no log had an unfinished end"
    daemon.stop()


def with_disk(make_daemon, **environment):
    """Two data directories, folders of one disk: the losses in each are independent."""
    daemon = make_daemon()
    rows = daemon.folder / "rows"
    directories = [rows / "first", rows / "second"]
    for directory in directories:
        directory.mkdir()
    daemon.configure({"data": {"directories": [str(directory) for directory in directories]}})
    disk = Disk(rows, daemon.folder / "journal")
    daemon.with_fault("unsynced", **disk.environment(), **environment)
    return daemon, disk


def test_a_power_loss_costs_no_more_than_each_tables_durability_says(make_daemon, rng):
    run(*with_disk(make_daemon), rng, LOSSES)


def test_a_power_loss_while_rows_move_to_other_shards_costs_no_more(make_daemon, rng):
    run(*with_disk(make_daemon), rng, LOSSES, moves=True)


def test_a_server_that_never_synced_its_logs_would_be_found_out(make_daemon, rng):
    """The test above detects lost syncs: in the rows, in a checkpoint's copy of the logs, or at a start.

    A start is refused by the server, which knows the synced size of each log in use, or by RocksDB, whose MANIFEST has
    the sizes of older logs.
    """
    said = (
        r"_sync: .* rows|_sync: its rows are gone|/logged/\d+\.log: has \d+ bytes instead"
        r"|/logged/\d+\.log: damaged: its checksum is"
        r'|err=CORRUPT why="\S+/logged(/\d+\.log: |: Corruption: .* WAL)'
    )
    with pytest.raises((AssertionError, embtier.CorruptError), match=said):
        run(*with_disk(make_daemon, EMBTIER_FAULT_IGNORE_SYNC="*/rows/*/shard-*.log"), rng, 10, syncs=False)


def test_a_log_that_is_damaged_where_it_begins_is_gone_after_a_start_with_the_option(make_daemon):
    """RocksDB would keep the log in use: each checkpoint would fail, and the next start would find the damage again."""
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    ids = np.arange(1000)
    with daemon.connect() as server:
        server.create_table("rows", 8, durability="sync").set(ids, np.ones((1000, 8)))
    daemon.kill()
    for log in (daemon.folder / "rows").glob("shard-*/logged/*.log"):
        with log.open("r+b") as file:
            file.seek(20)  # in the first record, even if it has one row, and not in its length
            file.write(b"\x55" * 40)
    daemon.launch()
    daemon.await_end(1)
    assert HINT in daemon.log_lines()[-1], daemon.log_lines()[-1]
    daemon.configure({"rocksdb": {"options": HINT}})
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("rows").get(ids) == 0).all()
        server.verify_checkpoint(server.checkpoint().id)
        server.open_table("rows").set(ids, np.full((1000, 8), 2))
    daemon.kill()
    daemon.configure({"rocksdb": {"options": None}})
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("rows").get(ids) == 2).all()
    daemon.stop()
