# SPDX-License-Identifier: Apache-2.0
"""When a call to the disk fails, any of them, once or from then on: are updates refused with the error
while reads go on, does all heal when the disk does, and is no row ever wrong or lost?"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
from daemons import LONG, SANITIZED
from failing_io import Control, Fault, faults_of

import embtier

# The long form tries all sites with all faults, some four hundred, which takes twenty minutes or more.
SECONDS = float(os.environ.get("EMBTIER_TEST_FAULT_SECONDS", 0 if LONG else 25))  # 0: all of them
HEAL_S = 25
RESTART_S = 20

# name: (dim, optimizer, durability); a row holds one number in all its columns
TABLES = {
    "replay": (256, "none", "replay"),
    "pushed": (128, "sgd", "replay"),
    "async": (128, "none", "async"),
    "sync": (64, "sgd", "sync"),
}
ROWS = 3000
CHUNK = 500
REFUSALS = (embtier.IoError, embtier.NoSpaceError)


class Rows:
    """Of one table: row i has a number from least[i] to most[i], which are what was acknowledged last,
    and what was sent. What was refused may be there, row by row, at once or later."""

    def __init__(self) -> None:
        self.least = np.zeros(ROWS, dtype=np.int64)
        self.most = np.zeros(ROWS, dtype=np.int64)
        self.saved = np.zeros(ROWS, dtype=np.int64)  # what a crash goes back to at most

    def check(self, name, ids, got, crashed=False) -> None:
        assert (got == got[:, :1]).all(), f"{name}: rows torn"
        least = self.saved if crashed else self.least
        wrong = np.flatnonzero((got[:, 0] < least[ids]) | (got[:, 0] > self.most[ids]))
        assert wrong.size == 0, (
            f"{name}: {wrong.size} rows, as {ids[wrong[:5]]}, are {got[wrong[:5], 0]}, not of "
            f"{least[ids[wrong[:5]]]} to {self.most[ids[wrong[:5]]]}"
        )


class Work:
    """The same requests each time, larger than the cache, by one client."""

    def __init__(self, daemon) -> None:
        self.daemon = daemon
        self.rows = {name: Rows() for name in TABLES}
        self.refused: list[str] = []
        self.unsure: set[str] = set()
        self.made: set[str] = set()
        self.names = (f"made_{i}" for i in itertools.count())

    def create(self) -> None:
        with self.daemon.connect() as server:
            for name, (dim, optimizer, durability) in TABLES.items():
                server.create_table(name, dim, ROWS, optimizer=optimizer, durability=durability)
            for name in TABLES:
                self.update(server, name, np.arange(ROWS))
            self.save(server)

    def attempt(self, what: str, function, *arguments) -> bool:
        """False if it was refused, for one of the reasons that it may be refused for."""
        try:
            function(*arguments)
            return True
        except REFUSALS as error:
            assert str(error), what
            self.refused.append(f"{what}: {error}")
            return False

    def update(self, server, name, ids) -> None:
        """By SET, or, where there is an optimizer, by a push."""
        rows = self.rows[name]
        with server.push_batch([(server.open_table(name), CHUNK)]) as batch:
            for part in np.array_split(ids, len(ids) // CHUNK):
                number = rows.most[part].max() + 1
                if TABLES[name][1] == "sgd":
                    rows.most[part] += 1
                    batch.ids(0)[:] = part
                    batch.gradients(0)[:] = -1
                    batch.push(1.0, 1)
                    rows.least[part] += 1
                else:
                    rows.most[part] = number
                    server.open_table(name).set(part, np.full((len(part), TABLES[name][0]), number))
                    rows.least[part] = number

    def read(self, server, name, crashed=False) -> None:
        for ids in np.array_split(np.arange(ROWS), 6):
            self.rows[name].check(name, ids, server.open_table(name).get(ids), crashed)

    def save(self, server) -> None:
        least = {name: rows.least.copy() for name, rows in self.rows.items()}
        server.verify_checkpoint(server.checkpoint(keep=1).id)
        for name, rows in self.rows.items():
            rows.saved = least[name]

    def make_table(self, server) -> None:
        name = next(self.names)
        self.unsure.add(name)
        server.create_table(name, 4, durability="sync").set([7], [[1, 2, 3, 4]])
        self.unsure.remove(name)
        self.made.add(name)

    def drop_table(self, server) -> None:
        name = sorted(self.made)[0]
        self.made.remove(name)
        self.unsure.add(name)
        server.drop_table(name)
        self.unsure.remove(name)

    def run(self, reads_fail: bool = False) -> None:
        """Everything, whatever of it is refused."""
        with self.daemon.connect(timeout=60) as server:
            for turn in range(2):
                for name in TABLES:
                    self.attempt(f"update of {name}", self.update, server, name, np.random.permutation(ROWS))
                    if not self.attempt(f"read of {name}", self.read, server, name):
                        assert reads_fail, self.refused[-1]
                self.attempt("create", self.make_table, server)
                self.attempt("checkpoint", self.save, server)
                if turn and self.made:
                    self.attempt("drop", self.drop_table, server)

    def heals(self) -> bool:
        """All is taken again, soon."""
        deadline = time.monotonic() + HEAL_S
        with self.daemon.connect(timeout=60) as server:
            while True:
                tried = [
                    self.attempt(f"update of {name}", self.update, server, name, np.arange(CHUNK))
                    for name in TABLES
                ]
                tried += [
                    self.attempt("checkpoint", self.save, server),
                    self.attempt("create", self.make_table, server),
                ]
                if all(tried):
                    self.drop_table(server)
                    return True
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.1)

    def check(self, crashed: bool = False) -> None:
        """All rows; @crashed: those of replay tables may be as they were in the newest checkpoint."""
        with self.daemon.connect() as server:
            for name, (_, _, durability) in TABLES.items():
                self.read(server, name, crashed and durability == "replay")
                if crashed:
                    got = server.open_table(name).get(np.arange(ROWS))[:, 0].astype(np.int64)
                    self.rows[name].least[:] = self.rows[name].most[:] = got
            there = {spec.name for spec in server.tables()} - {*TABLES}
            assert self.made <= there <= self.made | self.unsure
            for name in self.made:
                assert (server.open_table(name).get([7]) == [[1, 2, 3, 4]]).all()


def new_daemon(make_daemon):
    daemon = make_daemon(
        {
            "checkpoints": {"interval_seconds": 0},
            "data": {"shards_per_directory": 3},
            "lanes": {"write_queue_bytes": "1MiB"},
            "rocksdb": {"memtable_bytes": "1MiB"},
        },
        lanes=1,
    )
    daemon.configure({"cache": {"tiers": [daemon.dram(1, 4)]}})
    control = Control(daemon.folder / "control")
    daemon.with_fault(
        "failing_io",
        EMBTIER_FAULT_FOLDER=str(daemon.folder / "rows"),
        EMBTIER_FAULT_CONTROL=str(control.path),
    )
    return daemon, control


def difference(after, before):
    return {site: count - before[site] for site, count in after.items() if count > before[site]}


def sites(make_daemon):
    """How often each is passed while the server works, stops and starts."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    work = Work(daemon)
    work.create()
    marks = [control.counts()]
    work.run()
    marks.append(control.counts())
    daemon.stop()
    marks.append(control.counts())
    daemon.start()
    marks.append(control.counts())
    daemon.stop()
    assert not work.refused
    return {
        phase: difference(after, before)
        for phase, after, before in zip(("work", "stop", "start"), marks[1:], marks)
    }


def all_faults(make_daemon, rng) -> list[tuple[str, Fault]]:
    cases = []
    for phase, counts in sites(make_daemon).items():
        for (call, kind), count in counts.items():
            for error, on in faults_of(call):
                at = rng.choice([1, rng.randint(1, count)])
                cases.append((phase, Fault(call, kind, error, on, at)))
    return cases


# ---- One fault ----


def run_while_working(daemon, control, work, fault) -> str:
    daemon.start()
    work.create()
    control.arm(fault)
    work.run(reads_fail=fault.call in ("read", "open") and fault.kind == "table")
    failed = control.disarm()
    assert daemon.is_running
    healed = work.heals()
    assert daemon.is_running
    work.check()
    assert healed or fault.kind == "manifest", f"nothing heals: {work.refused[-3:]}"
    if healed:
        daemon.stop()
        daemon.start()
        work.check()
    else:  # an error of the MANIFEST is over when the database has been opened again
        daemon.kill()
        daemon.start()
        work.check(crashed=True)
        assert work.heals()
    return f"{failed} failed, {len(work.refused)} refused{'' if healed else ', did not heal'}"


def run_while_stopping(daemon, control, work, fault) -> str:
    daemon.start()
    work.create()
    work.run()
    assert not work.refused, work.refused
    control.arm(fault)
    daemon._process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 3
    while daemon.is_running and time.monotonic() < deadline:
        time.sleep(0.02)
    failed = control.disarm()
    code = daemon._process.wait(90)
    daemon._process = None
    assert code in (0, 1), f"the stop ended with {code}"
    daemon.start()
    work.check(crashed=code != 0)
    assert work.heals()
    return f"{failed} failed, stop ended with {code}"


def run_while_starting(daemon, control, work, fault) -> str:
    daemon.start()
    work.create()
    work.run()
    daemon.stop()
    control.arm(fault)
    daemon.launch()
    deadline = time.monotonic() + RESTART_S
    ready = False
    while not ready and daemon.is_running and time.monotonic() < deadline:
        try:
            daemon.connect(arena_bytes=0).close()
            ready = True
        except embtier.UnreachableError:
            time.sleep(0.01)
    assert ready or not daemon.is_running, "the start hangs"
    if ready:
        if fault.call not in ("read", "open"):
            work.check()
        failed = control.disarm()
        daemon.stop()
    else:
        failed = control.disarm()
        daemon.await_end(1)
        assert 'msg="embtierd ends"' in daemon.log_lines()[-1], daemon.log_lines()[-1]
    daemon.start()
    work.check()
    assert work.heals()
    return f"{failed} failed, {'ready' if ready else 'refused'}"


RUN = {"work": run_while_working, "stop": run_while_stopping, "start": run_while_starting}


def test_whatever_call_fails_updates_are_refused_and_no_row_is_wrong(make_daemon, rng):
    np.random.seed(rng.randrange(2**32))
    cases = all_faults(make_daemon, rng)
    only = os.environ.get("EMBTIER_TEST_FAULTS")  # a pattern of those that are printed
    if only:
        cases = [case for case in cases if re.search(only, f"{case[0]}-{case[1]}")]
    rng.shuffle(cases)
    began = time.monotonic()
    done, failures = 0, []
    for phase, fault in cases:
        if SECONDS and not only and time.monotonic() - began > SECONDS:
            break
        daemon, control = new_daemon(make_daemon)
        before = time.monotonic()
        try:
            said = RUN[phase](daemon, control, Work(daemon), fault)
        except Exception as error:
            failures.append(f"{phase}-{fault}: {type(error).__name__}: {error}"[:1500])
            said = failures[-1]
        print(f"{phase}-{fault}: {said} ({time.monotonic() - before:.1f} s)", flush=True)
        done += 1
        if daemon.is_running:
            daemon.kill()
        if said not in failures:
            shutil.rmtree(daemon.folder / "rows")
    print(f"{done} of {len(cases)} faults, {len(failures)} wrong")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_rows_whose_only_copy_is_to_leave_the_cache_stay_while_the_disk_takes_none(make_daemon, error):
    """SETs of more rows than cache, queue and write buffers hold are refused at last; until then and
    after that all rows that were acknowledged are there, and go to SSD when it takes them again."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    dim, count = 256, 12_000
    wanted = np.zeros(count, dtype=np.float32)
    refusal = embtier.NoSpaceError if error == "ENOSPC" else embtier.IoError
    control.arm(Fault("write", "table", error, True, 1))
    with daemon.connect() as server, daemon.connect() as other:
        table, again = server.create_table("rows", dim), other.open_table("rows")
        with pytest.raises(refusal):
            for ids in np.array_split(np.arange(count), count // 200):
                table.set(ids, np.repeat(ids[:, None] + 1, dim, axis=1))
                wanted[ids] = ids + 1
        acknowledged = np.flatnonzero(wanted)
        assert daemon.metrics()["write_queue_bytes"] > 0, "no row has left the cache"

        def check(known) -> None:
            for ids in np.array_split(known, len(known) // 500 + 1):
                got = again.get(ids)
                assert (got == wanted[ids, None]).all(), f"{ids[(got != wanted[ids, None]).any(1)][:5]}"

        check(acknowledged)
        with pytest.raises(refusal):
            while True:
                table.set(acknowledged[:200], np.repeat(wanted[:200, None], dim, axis=1))
                table.set(np.arange(200) + count, np.ones((200, dim)))
        check(acknowledged)
        assert daemon.metrics()["cache_dirty_rows"]["dram"] > 0
        assert control.disarm() > 0
        deadline = time.monotonic() + HEAL_S
        while True:
            try:
                table.set(np.arange(count), np.repeat(np.arange(count)[:, None] + 1, dim, axis=1))
                break
            except REFUSALS:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        wanted = np.arange(count, dtype=np.float32) + 1
        check(np.arange(count))
    daemon.stop()
    daemon.start()
    with daemon.connect() as other:
        again = other.open_table("rows")
        check(np.arange(count))


@pytest.mark.parametrize("at", [1, 2, 3] if LONG else [2])
def test_a_log_that_could_not_be_opened_once_does_not_refuse_updates_for_good(make_daemon, at):
    """RocksDB opens it to write to it, and the server to sync it."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    work = Work(daemon)
    work.create()
    control.arm(Fault("open", "log", "EIO", False, at))
    with daemon.connect() as server:
        while not control.failed:
            work.attempt("update", work.update, server, "sync", np.random.permutation(ROWS))
    assert work.heals(), work.refused[-1]
    work.check()
    daemon.stop()
    daemon.start()
    work.check()


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_checkpoints_while_no_log_can_be_written_do_not_spoil_the_store(make_daemon, error):
    """RocksDB notes how long a log is that another has followed: one that has failed is shorter than
    it thinks, and a start after a crash would take it for damaged."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    work = Work(daemon)
    work.create()
    control.arm(Fault("write", "log", error, True, 1))
    with daemon.connect(timeout=60) as server:
        for _ in range(60):
            for name in ("async", "sync"):
                work.attempt(f"update of {name}", work.update, server, name, np.arange(CHUNK))
            work.attempt("checkpoint", work.save, server)
    assert work.refused
    daemon.kill()
    control.disarm()
    daemon.start()
    work.check(crashed=True)
    assert work.heals()


# What did harm once, beyond being refused. It was told as "file exists" and "damaged".
HARMFUL = [
    Fault("unlink", "json", "EIO", True, 1),
    Fault("open", "folder", "ENOSPC", True, 1),
]


@pytest.mark.parametrize("fault", HARMFUL, ids=str)
def test_a_fault_that_once_did_harm_does_no_more(make_daemon, fault):
    daemon, control = new_daemon(make_daemon)
    print(run_while_working(daemon, control, Work(daemon), fault))
    daemon.stop()
