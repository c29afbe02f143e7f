# SPDX-License-Identifier: Apache-2.0
"""A server may be killed before any call that changes the file system: while it drops, moves, imports or restores tables, applies
a plan, moves rows to other shards or data directories, makes or deletes a checkpoint, compacts, stops, or starts with all tables restored. Every row
is still as its table's durability promises, and a table or checkpoint is there wholly or not at all. The same holds for an export
whose client is killed.

A fault library (tests/faults/kill_at.c) counts the calls from the moment that the test chooses, and kills. The start after that
may be killed too. EMBTIER_TEST_KILL=MOMENT:CALL[:CALL_OF_THE_START], as failures name it, repeats one case. The same call number
means the same state only as far as threads do things in the same order."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, FAULTS, LONG, SANITIZED, Daemon
from stores import MOVE_LIMIT_S, has_lost_server, was_busy

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

# Per moment; the long form takes every call.
KILLS = int(os.environ.get("EMBTIER_TEST_KILLS", 2 if SANITIZED else 10_000 if LONG else 6))
ONLY = os.environ.get("EMBTIER_TEST_KILL", "").split(":")  # [""]: none is named

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


class Killer:
    """The test's half of kill_at.c."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(24))

    def tell(self, armed: int, before: int) -> None:
        with self.path.open("r+b") as file:
            file.write(struct.pack("<3Q", armed, before, 0))

    @property
    def count(self) -> int:
        return struct.unpack("<3Q", self.path.read_bytes())[2]


class Store:
    """A stopped store with two checkpoints: all rows are 1 in the first and 2 in the second."""

    def __init__(self, folder: Path) -> None:
        self.daemon = Daemon(folder, SETTINGS, lanes=1)
        dram = self.daemon.dram(1) | {"bytes": "8MiB", "array_bytes": "4MiB"}  # an array and the hot rows of a split
        pmem = self.daemon.pmem(1) | {"bytes": "4MiB", "array_bytes": "2MiB"}
        self.daemon.configure({"cache": {"tiers": [dram, pmem]}})
        self.rows, self.copy, self.more = folder / "rows", folder / "copy", folder / "more"
        self.killer = Killer(folder / "kill")
        self.daemon.with_fault("kill_at", EMBTIER_FAULT_KILL=str(self.killer.path))
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
        self.file = folder / "rows.npy"  # of a table to be imported
        np.save(self.file, np.full((ROWS, DIM), 5, np.float32))

    def put_back(self) -> None:
        shutil.rmtree(self.rows)
        shutil.rmtree(self.more, ignore_errors=True)
        shutil.rmtree(self.more.with_name("away"), ignore_errors=True)  # of a case that failed
        shutil.copytree(self.copy, self.rows)
        self.killer.tell(0, 0)

    def launch(self, call: int, *arguments: str) -> bool:
        """Starts the server. True when it is ready; false if it was killed before @call."""
        self.killer.tell(1, call)
        self.daemon.launch(*arguments)
        deadline = time.monotonic() + 60
        while self.daemon.is_running:
            assert time.monotonic() < deadline
            with contextlib.suppress(*GONE):
                self.daemon.connect(arena_bytes=0).close()
                return True
            time.sleep(0.01)
        return False


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("store"))
    yield store
    store.daemon.end()


# ---- The moments of a kill: each notes how far it came, and checks the store afterwards ----


class Moment:
    """One kind of work of a running server."""

    checkpoints = {1, 2}  # must still be there afterwards
    bears: tuple[type[embtier.Error], ...] = ()  # of checkpoints: those that the next start goes on with may delete some

    def prepare(self, server) -> None:
        pass

    def run(self, server, store) -> None:
        raise NotImplementedError

    def check(self, server) -> None:
        raise NotImplementedError

    def arrange(self, store) -> list[str]:
        """Changes what the next start finds, and returns its options. One that is refused changes nothing."""
        return []

    def put_right(self, store) -> None:
        """Undoes that after a start was refused."""

    def check_stopped(self, store) -> None:
        """A further check, after the server has gone."""

    def live(self, store, call: int) -> None:
        """Runs until the server is killed before @call, or until all is done."""
        store.put_back()
        store.daemon.start()
        with contextlib.suppress(*GONE), store.daemon.connect(timeout=60) as server:
            self.prepare(server)
            store.killer.tell(1, call)
            self.run(server, store)


def must_be_saved_or_not(server, is_saved: bool = False) -> None:
    """Rows were 2 in the last known checkpoint, then 3. A newer checkpoint may have saved the 3s; if @is_saved, it must have."""
    replay = [np.unique(numbers(server, name)).tolist() for name in TABLES if not is_logged(name)]
    assert replay in ([[[3], [3]]] if is_saved else [[[2], [2]], [[3], [3]]]), replay
    for name in filter(is_logged, TABLES):
        must_be(server, name, 3)


def what_is_in(folder: Path) -> dict[str, tuple[int, int]]:
    """Each path, its size and its time of change."""
    files = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (info.st_size, info.st_mtime_ns) for path, info in files.items()}


class Drop(Moment):
    """Drops two tables; no checkpoint has the updates before it."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, store) -> None:
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


class Move(Moment):
    """Moves tables to an array, a split and back, with rows that no checkpoint has, and new ones on the way."""

    def __init__(self) -> None:
        self.homes = dict.fromkeys(TABLES, {"cache"})  # that the table may have

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, store) -> None:
        for name in ("victim_replay", "victim_async"):
            for home in ("array", "split", "cache", "split", "cache") if name == "victim_replay" else ("split", "array"):
                self.homes[name] = self.homes[name] | {home}
                server.move_table(name, home, hot_rows=range(0, ROWS, 3) if home == "split" else None)
                self.homes[name] = {home}
                write(server, [name], 3)

    def check(self, server) -> None:
        for spec in server.tables():
            assert spec.home in self.homes[spec.name], f"{spec.name} is in home {spec.home}, not {self.homes[spec.name]}"
        for name in TABLES:
            must_be(server, name, 3 if is_logged(name) else 2)


def place(home: str, rows: int, **more: object) -> dict:
    """A range of a table in a plan."""
    figures = {"rows": rows, "lookup_share": 1 if rows == ROWS else 0.5, "time_s": 1e-6, "reads_per_s": 0, "writes_bytes_per_day": 0}
    cached = {"hit_rates": [0.5, 0.25], "cache_bytes": [0, 0]}
    return {"home": home, **figures} | (cached if home == "cache" else {"tier": "dram"}) | more


class Apply(Moment):
    """Applies a plan by which one table becomes an array, one a split, and the others go to the cache."""

    PLANNED = {"victim_replay": ("array", "dram"), "victim_async": ("split", "dram")}
    MAY_GIVE_WAY = False
    HOT = range(0, ROWS, 3)

    def __init__(self) -> None:
        self.is_done = False

    def prepare(self, server) -> None:
        write(server, TABLES, 3)
        self.before = self.places(server)

    @staticmethod
    def places(server) -> dict[str, tuple[str, str]]:
        return {spec.name: (spec.home, spec.tier or "") for spec in server.tables()}

    def planned(self, name: str) -> tuple[str, str]:
        return self.PLANNED.get(name, ("cache", ""))

    def parts(self, name: str) -> list[dict]:
        home, tier = self.planned(name)
        hot, row_bytes = len(self.HOT), DIM * 4
        if home == "cache":
            return [place("cache", ROWS)]
        if home == "array":
            return [place("array", ROWS, bytes=ROWS * row_bytes, tier=tier)]
        return [place("array", hot, bytes=hot * (row_bytes + 16), tier=tier), place("cache", ROWS - hot)]

    def write_plan(self, folder: Path, generation: int) -> Path:
        row_bytes = DIM * 4
        parts = {name: self.parts(name) for name in TABLES}
        memory = {"bandwidth_bytes_per_s": 1e9, "read_bytes": 0, "time_s": 0, "cache_bytes": 0, "capacity_bytes": 1 << 40}
        used = dict.fromkeys(("dram", "pmem"), 0)
        for part in itertools.chain(*parts.values()):
            if part["home"] == "array":
                used[part["tier"]] += part["bytes"]
        table = {"rows": ROWS, "dim": DIM, "dtype": "f32", "optimizer": "none", "read_bytes": 1000}
        plan = {
            "format": "embtier-plan", "version": 1, "generation": generation, "samples_per_s": 1000, "samples_per_batch": 100,
            "time_s": 1e-3, "gpu_count": 0, "table_count": len(TABLES),
            "memories": [*({"name": tier, **memory, "array_bytes": used[tier]} for tier in used),
                         {"name": "ssd", **memory, "array_bytes": ROWS * row_bytes * len(TABLES)}],
            "tables": [{"name": name, **table, "parts": parts[name]} for name in TABLES],
        }  # fmt: skip
        path = folder / f"{generation}.plan"
        path.write_text(json.dumps(plan))
        return path

    def apply(self, daemon: Daemon, generation: int) -> subprocess.CompletedProcess:
        trace = daemon.folder / "hot.trace"
        if not trace.exists():
            with embtier.TraceWriter(trace, [embtier.TraceTable("victim_async", DIM, rows=ROWS)]) as file:
                file.add("victim_async", np.concatenate([np.repeat(list(self.HOT), 3), IDS]).astype(np.uint64))
                file.next_batch()
        plan = self.write_plan(daemon.folder, generation)
        command = [CLI, "-s", daemon.socket, "apply", plan, "--trace", trace]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def run(self, server, store) -> None:
        self.is_done = self.apply(store.daemon, 2).returncode == 0

    def check(self, server) -> None:
        for name, found in self.places(server).items():
            homes = {self.planned(name)} | ({self.before[name]} if not self.is_done else set())
            if self.MAY_GIVE_WAY and not self.is_done:
                homes.add(("cache", ""))
            assert found in homes, f"{name} is in {found}, not in {homes}"
        for name in TABLES:
            must_be(server, name, 3 if is_logged(name) else 2)

    def check_stopped(self, store) -> None:
        """The plan is in force if it was said to be, and a further run goes on."""
        store.daemon.start()
        if self.is_done:
            assert "the plan has generation 1, and the one in force has 2" in self.apply(store.daemon, 1).stderr
        done = self.apply(store.daemon, 2)
        assert done.returncode == 0, done.stderr
        with store.daemon.connect() as server:
            assert self.places(server) == {name: self.planned(name) for name in TABLES}
        store.daemon.kill()


class Swap(Apply):
    """Applies a plan by which tables of two full tiers change places, so that one of them has to give way."""

    BEFORE = {"victim_replay": "dram", "sync": "dram", "victim_async": "pmem"}
    PLANNED = {"victim_replay": ("array", "pmem"), "sync": ("array", "dram"), "victim_async": ("array", "dram")}
    MAY_GIVE_WAY = True

    def prepare(self, server) -> None:
        for name, tier in self.BEFORE.items():
            server.move_table(name, "array", tier=tier)
        super().prepare(server)


class Restore(Moment):
    """Restores two tables under their own names, which dropped tables have freed."""

    def __init__(self) -> None:
        self.is_done = False

    def prepare(self, server) -> None:
        for name in ("victim_replay", "victim_async"):
            server.drop_table(name)

    def run(self, server, store) -> None:
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


class Writes(Moment):
    """Writes newer and newer numbers. Logged rows keep what was acknowledged; the others go back to the checkpoint."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = 2

    def check(self, server) -> None:
        for name in TABLES:
            if is_logged(name):
                found = np.unique(numbers(server, name))
                assert self.acknowledged <= found.min() and found.max() <= self.sent, (name, found)
            else:
                must_be(server, name, 2)


class Reshard(Writes):
    """Moves rows to more shards, then to fewer, while rows change. The next start goes on with it."""

    checkpoints: set[int] = set()  # each shard that gives rows away has one made, and older ones go
    bears = (embtier.NotFoundError,)

    def move(self, server, store, *words: str) -> subprocess.CompletedProcess:
        command = [str(CLI), "--socket", store.daemon.socket, *words, "--rate", "0"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as move:
            while move.poll() is None:
                self.sent += 1
                write(server, [name for name in TABLES if is_logged(name)], self.sent)
                self.acknowledged = self.sent
            return subprocess.CompletedProcess(command, move.returncode, stderr=move.stderr.read())

    def orders(self, store) -> list[list[str]]:
        return [["reshard", "--shards", str(shards)] for shards in (3, 1)]

    def run(self, server, store) -> None:
        deadline = time.monotonic() + MOVE_LIMIT_S
        for words in self.orders(store):
            while (done := self.move(server, store, *words)).returncode:
                if has_lost_server(done):
                    raise embtier.DisconnectedError(done.stderr)
                assert was_busy(done) and time.monotonic() < deadline, done.stderr


class Directories(Reshard):
    """Adds a data directory, and removes it again, while rows change. The configuration does not know of it."""

    def orders(self, store) -> list[list[str]]:
        return [["data", "add", str(store.more)], ["data", "remove", str(store.more), "--delete-checkpoints"]]


class DeadDirectory(Directories):
    """The drive of the added directory is lost, and a start leaves it out. If that is refused, the drive comes back."""

    bears = (embtier.NotFoundError, embtier.MismatchError)  # checkpoints may have rows there
    refusals = ("--without-directory: ", "a data directory that was removed from the store")
    is_left_out = False

    def away(self, store) -> Path:
        return store.more.with_name("away")

    def arrange(self, store) -> list[str]:
        if store.more.exists():
            store.more.rename(self.away(store))
        self.is_left_out = True
        return ["--without-directory", str(store.more)]

    def put_right(self, store) -> None:
        why = store.daemon.log_lines()[-1]
        assert any(words in why for words in self.refusals), why
        if self.away(store).exists():
            self.away(store).rename(store.more)
        self.is_left_out = False

    def check_stopped(self, store) -> None:
        """A directory that was left out, and comes back, is the store's no more."""
        if self.is_left_out and self.away(store).exists():
            self.away(store).rename(store.more)
            store.daemon.start()
            with store.daemon.connect(timeout=60) as server:
                for name in TABLES:
                    must_be(server, name, 8)
            store.daemon.kill()
        shutil.rmtree(self.away(store), ignore_errors=True)


class Compact(Writes):
    """Writes rows until there have been some compactions."""

    def run(self, server, store) -> None:
        deadline = time.monotonic() + 60
        while server.status()["metrics"]["store_compactions"] < 4:
            assert time.monotonic() < deadline, "nothing is compacted"
            self.sent += 1
            write(server, TABLES, self.sent)
            self.acknowledged = self.sent


class Stop(Moment):
    """Stops with rows that are only in the cache."""

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, store) -> None:
        store.daemon._process.terminate()
        store.daemon._process.wait(60)

    def check(self, server) -> None:
        must_be_saved_or_not(server)


class Checkpoint(Moment):
    """Makes a checkpoint of rows that are only in the cache; the older of the two before it is deleted."""

    checkpoints = {2}

    def __init__(self) -> None:
        self.made = 0

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, store) -> None:
        self.made = server.checkpoint(step=17, keep=2).id

    def check(self, server) -> None:
        must_be_saved_or_not(server, bool(self.made))
        ids = [info.id for info in server.checkpoints() if info.step == 17]
        assert not self.made or ids == [self.made], "was made, and is gone"
        is_saved = numbers(server, "replay")[0] == 3
        assert bool(ids) == is_saved, f"checkpoints of step 17 are {ids}, rows are of one: {is_saved}"
        assert ids or 1 in [info.id for info in server.checkpoints()], "the oldest went for none"


class Delete(Moment):
    checkpoints = {2}

    def __init__(self) -> None:
        self.is_done = False

    def run(self, server, store) -> None:
        server.delete_checkpoint(1)
        self.is_done = True

    def check(self, server) -> None:
        for name in TABLES:
            must_be(server, name, 2)
        for info in server.checkpoints():
            assert info.id != 1 or not self.is_done, "was deleted, and is there again"
            server.restore_checkpoint(info.id, ["victim_async"], "again")
            must_be(server, "again", min(info.id, 2))  # the start may have made others
            server.drop_table("again")


class Import(Moment):
    """Imports two tables, while rows of other tables are only in the cache."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def prepare(self, server) -> None:
        write(server, TABLES, 3)

    def run(self, server, store) -> None:
        for durability in ("replay", "async"):
            name = f"made_{durability}"
            server.import_table(store.file, name, durability=durability)
            self.made.append(name)

    def check(self, server) -> None:
        must_be_saved_or_not(server, bool(self.made))  # an import ends with a checkpoint
        there = {spec.name for spec in server.tables()}
        for name in ("made_replay", "made_async"):
            assert name in there or name not in self.made, f"{name} is gone"
            if name in there:
                must_be(server, name, 5)
            else:
                server.create_table(name, DIM, ROWS, init=("constant", 7))
                must_be(server, name, 7)


class RestoreStart(Moment):
    """Restores all tables after a crash; since the checkpoint one table has come and one has gone."""

    checkpoints = {1}

    def __init__(self) -> None:
        self.is_done = False

    def live(self, store, call: int) -> None:
        store.put_back()
        store.daemon.start()
        with store.daemon.connect() as server:
            write(server, TABLES, 3)
            server.drop_table("victim_async")
            server.create_table("late", DIM, ROWS, init=("constant", 6))
        store.daemon.kill()
        self.is_done = store.launch(call, "--restore", "1")

    def check(self, server) -> None:
        there = {spec.name for spec in server.tables()}
        if there == {*TABLES}:
            for name in TABLES:
                must_be(server, name, 1)
            return
        assert not self.is_done and there == {*TABLES, "late"} - {"victim_async"}, there
        must_be(server, "late", 6)
        for name in {*TABLES} - {"victim_async"}:
            must_be(server, name, 3 if is_logged(name) else 2)


class RestoreFrom(Moment):
    """Restores all tables of another store into an empty one."""

    checkpoints: set[int] = set()

    def __init__(self) -> None:
        self.is_done = self.is_there = False

    def live(self, store, call: int) -> None:
        shutil.rmtree(store.rows)
        store.rows.mkdir()
        self.before = what_is_in(store.copy)
        self.is_done = store.launch(call, "--restore", "1", "--restore-from", str(store.copy))

    def check(self, server) -> None:
        there = {spec.name for spec in server.tables()}
        self.is_there = there == {*TABLES}
        assert self.is_there or (not self.is_done and not there), there
        for name in there:
            must_be(server, name, 1)

    def check_stopped(self, store) -> None:
        assert what_is_in(store.copy) == self.before, "the other store has changed"
        if self.is_there:
            return
        store.daemon.start("--restore", "1", "--restore-from", str(store.copy))
        self.is_done = True
        with store.daemon.connect() as server:
            self.check(server)
        store.daemon.kill()


MOMENTS = {
    "drop": Drop, "move": Move, "apply": Apply, "swap": Swap, "restore": Restore, "reshard": Reshard, "directories": Directories, "dead_directory": DeadDirectory,
    "compact": Compact, "stop": Stop,
    "checkpoint": Checkpoint, "delete": Delete, "import": Import, "restore_start": RestoreStart, "restore_from": RestoreFrom,
}  # fmt: skip


def count_of(store: Store, moment: Moment, call: int) -> int:
    """The number of calls until the server was killed before @call, or was done."""
    moment.live(store, call)
    deadline = time.monotonic() + 1
    while store.killer.count < call and store.daemon.is_running and time.monotonic() < deadline:
        time.sleep(0.01)  # the call may come in the clean-up after the request
    count = store.killer.count
    store.daemon.kill()
    store.killer.tell(0, 0)
    return count


def look(store: Store, moment: Moment) -> None:
    options = moment.arrange(store)
    if not options or not store.launch(0, *options):
        moment.put_right(store)
        store.daemon.start()
    with store.daemon.connect(timeout=60) as server:
        ids = {info.id for info in server.checkpoints()}
        assert moment.checkpoints <= ids, f"of checkpoints {moment.checkpoints} there are {ids}"
        for id in ids:
            with contextlib.suppress(*moment.bears):
                server.verify_checkpoint(id)
        moment.check(server)
        write(server, [spec.name for spec in server.tables()], 8)  # the store can still be used
        server.verify_checkpoint(server.checkpoint().id)
    store.daemon.kill()
    moment.check_stopped(store)


def chosen(rng, moment: str, calls: int) -> list[tuple[int, int]]:
    """Pairs: the call before which the server is killed, and that for the start after it (0: it is not killed)."""
    if ONLY[0]:
        return [(int(ONLY[1]), int(ONLY[2]) if len(ONLY) > 2 else 0)]
    every = range(1, calls + 1)
    some = every if KILLS >= calls else sorted(rng.sample(every, KILLS))
    return [(call, rng.choice([0, rng.randrange(1, 100)])) for call in some]


def report(moment: str, calls: int, tried: int, killed: int, starts: int, failures: list[str]) -> None:
    print(f"{moment}: {calls} calls, killed before {killed} of {tried} chosen, in {starts} starts after that too")
    assert not failures, "\n".join(failures)
    assert 3 * killed >= tried, "hardly any kill happened"  # the number of calls varies, most where cores are few


def must_be_chosen(moment: str) -> None:
    if ONLY[0] not in ("", moment):
        pytest.skip("EMBTIER_TEST_KILL names another moment")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_before_any_change_of_the_file_system_nothing_that_was_promised_is_lost(store, rng, moment):
    must_be_chosen(moment)
    calls = count_of(store, MOMENTS[moment](), 0)
    assert calls > 5, "are they counted?"
    tries, killed, starts, failures = chosen(rng, moment, calls), 0, 0, []
    for call, again in tries:
        try:
            for _ in range(5):
                what = MOMENTS[moment]()
                count = count_of(store, what, call)
                killed += count >= call
                if count >= call or ONLY[0]:
                    break
                call = rng.randint(1, max(1, count))  # fewer calls than expected: one of those there were
            if again:
                starts += not store.launch(again, *what.arrange(store))
                store.daemon.kill()
                store.killer.tell(0, 0)
            look(store, what)
        except (AssertionError, embtier.Error) as error:
            failures.append(f"EMBTIER_TEST_KILL={moment}:{call}:{again} (of {calls} calls): {error}"[:3000])
            print(failures[-1], flush=True)
            if store.daemon.is_running:
                store.daemon.kill()
    report(moment, calls, len(tries), killed, starts, failures)


# ---- Exports: the client is killed ----


def export_until_killed(daemon: Daemon, killer: Killer, arguments: list[str], call: int) -> tuple[int, int]:
    """The exit status, and the number of calls."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(FAULTS / "libkill_at.so"),
        "EMBTIER_FAULT_KILL": str(killer.path),
        "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
    }
    killer.tell(1, call)
    done = subprocess.run(
        [CLI, "-s", daemon.socket, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    count = killer.count
    killer.tell(0, 0)
    return done.returncode, count


@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_an_export_that_is_killed_is_whole_or_not_there_and_can_be_made_again(make_daemon, tmp_path, rng, format):
    must_be_chosen(f"export_{format}")
    daemon = make_daemon(SETTINGS, lanes=1)
    daemon.start()
    killer, folder, path = Killer(tmp_path / "kill"), tmp_path / "exports", tmp_path / "exports/rows"
    partial = path.with_name("rows.partial")
    folder.mkdir()
    rows = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)
    arguments = ["export", "rows", str(path), "--checkpoint", "newest", "--state", "--format", format,
                 "--file-bytes", "100KiB"]  # fmt: skip
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, optimizer="adagrad")
        table.set(IDS * 7, rows)
        wanted = [part.tobytes() for part in table.get_with_state(IDS * 7)]
        server.checkpoint()

        def check(path: Path) -> None:
            server.import_table(path, "back")
            found = [part.tobytes() for part in server.open_table("back").get_with_state(IDS * 7)]
            server.drop_table("back")
            assert found == wanted, f"{path}: not what was exported"

        def run(call: int) -> bool:
            """True if the client was killed."""
            code, _ = export_until_killed(daemon, killer, arguments, call)
            assert code in (-signal.SIGKILL, 0), f"ends with {code}"
            there = {child.name for child in folder.iterdir()}
            assert there <= {"rows", "rows.partial"}, there
            assert len(there) < 2 or not any(partial.iterdir()), "it has its name, and something else is left"
            assert code != 0 or there == {"rows"}, there
            unfinished = partial / "unfinished.embtier-export"
            if path.exists():
                check(path)
                assert export_until_killed(daemon, killer, arguments, 0)[0] == 1, "an export was replaced"
                check(path)
                shutil.rmtree(path)
            elif (unfinished / "table.json").exists():  # as if only the final name were missing
                with contextlib.suppress(embtier.CorruptError):
                    check(unfinished)
            assert export_until_killed(daemon, killer, arguments, 0)[0] == 0
            assert {child.name for child in folder.iterdir()} == {"rows"}, "something is left of the one before"
            check(path)
            return code != 0

        code, calls = export_until_killed(daemon, killer, arguments, 0)
        assert code == 0 and calls > 20, "are they counted?"
        files = json.loads((path / "table.json").read_text())
        assert len(files["parts"]) > 1
        tries, killed, failures = chosen(rng, f"export_{format}", calls), 0, []
        for call, _ in tries:
            shutil.rmtree(path, ignore_errors=True)
            try:
                killed += run(call)
            except (AssertionError, embtier.Error) as error:
                failures.append(f"EMBTIER_TEST_KILL=export_{format}:{call} (of {calls} calls): {error}"[:3000])
                shutil.rmtree(partial, ignore_errors=True)
    report(f"export_{format}", calls, len(tries), killed, 0, failures)
    daemon.stop()
