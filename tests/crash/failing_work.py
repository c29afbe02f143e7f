# SPDX-License-Identifier: Apache-2.0
"""The requests that run while a call to the disk fails, and the phases of a server in which it fails."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import time

import numpy as np
from daemons import log_fields
from failing_io import Control, Fault

import embtier

HEAL_S, HEAL_ROUNDS = 60, 20  # at least
RESTART_S = 60

# name: (dim, optimizer, durability); all columns of a row hold the same number
TABLES = {
    "replay": (256, "none", "replay"),
    "pushed": (128, "sgd", "replay"),
    "async": (128, "none", "async"),
    "sync": (64, "sgd", "sync"),
}
ROWS = 3000
CHUNK = 500
REFUSALS = (embtier.IoError, embtier.NoSpaceError)
# An error is reported as its own class, whichever call it hits, also by later requests that are refused because of it. A call
# that is cut short (SHORT) is not an error by itself.
CLASSES = {
    "EIO": embtier.IoError,
    "EINTR": embtier.IoError,
    "ENOSPC": embtier.NoSpaceError,
    "EDQUOT": embtier.NoSpaceError,
}
REASONS = [os.strerror(getattr(errno, name)).lower() for name in CLASSES] + ["no space left on the server's disk"]


class Rows:
    """The rows of one table. Row i holds a number from least[i] (last acknowledged) to most[i] (last sent). A refused update may
    still take effect, row by row, at once or later."""

    def __init__(self) -> None:
        self.least = np.zeros(ROWS, dtype=np.int64)
        self.most = np.zeros(ROWS, dtype=np.int64)
        self.saved = np.zeros(ROWS, dtype=np.int64)  # a crash goes back to these rows or later ones

    def check(self, name, ids, got, crashed=False) -> None:
        assert (got == got[:, :1]).all(), f"{name}: rows torn"
        least = self.saved if crashed else self.least
        wrong = np.flatnonzero((got[:, 0] < least[ids]) | (got[:, 0] > self.most[ids]))
        assert wrong.size == 0, (
            f"{name}: {wrong.size} rows, as {ids[wrong[:5]]}, are {got[wrong[:5], 0]}, not of "
            f"{least[ids[wrong[:5]]]} to {self.most[ids[wrong[:5]]]}"
        )


class Work:
    """The same requests each time, from one client, on more rows than the cache holds."""

    def __init__(self, daemon, fault: Fault | None = None) -> None:
        self.daemon, self.fault = daemon, fault
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
        """False if it was refused for one of the permitted reasons."""
        try:
            function(*arguments)
            return True
        except REFUSALS as error:
            self.must_tell(what, error)
            self.refused.append(f"{what}: {error}")
            return False

    def must_tell(self, what: str, error: embtier.Error) -> None:
        """The error must name the file and the failure, or at least the reason."""
        assert str(error), what
        if self.fault and self.fault.error in CLASSES:
            assert isinstance(error, CLASSES[self.fault.error]), f"{what}: of {self.fault}: {error!r}"
            told = str(error)
            is_named = str(self.daemon.folder) in told or any(why in told.lower() for why in REASONS)
            assert is_named, f"{what}: of {self.fault}: {told}"

    def update(self, server, name, ids) -> None:
        """Updates by SET, or by a push if the table has an optimizer."""
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

    def update_all(self) -> None:
        """Updates each row, so that no checkpoint has these updates."""
        with self.daemon.connect(timeout=60) as server:
            for name in TABLES:
                self.update(server, name, np.random.permutation(ROWS))

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
        """Makes all requests, even if some are refused."""
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
        """True if all requests succeed again soon. On an overloaded machine a few rounds may use up all the time."""
        deadline = time.monotonic() + HEAL_S
        with self.daemon.connect(timeout=60) as server:
            for rounds in itertools.count(1):
                tried = [
                    self.attempt(f"update of {name}", self.update, server, name, np.arange(CHUNK))
                    for name in TABLES
                ]
                tried += [
                    self.attempt("checkpoint", self.save, server),
                    self.attempt("create", self.make_table, server),
                ]
                # The dropped table may be on another shard, which may not have recovered yet.
                if all(tried) and self.attempt("drop", self.drop_table, server):
                    return True
                if rounds >= HEAL_ROUNDS and time.monotonic() > deadline:
                    return False
                time.sleep(0.1)

    # ---- Whole tables ----

    def restorable(self, server) -> int:
        """Makes a checkpoint that stays when others are made, and notes its rows."""
        self.put_back = {name: rows.least.copy() for name, rows in self.rows.items()}
        made = server.checkpoint().id
        for rows in self.rows.values():
            rows.saved = rows.least.copy()
        return made

    def must_be(self, server, name, wanted, copy=None) -> None:
        got = server.open_table(copy or name).get(np.arange(ROWS))
        wrong = np.flatnonzero((got != wanted[:, None]).any(1))
        assert wrong.size == 0, f"{copy or name}: {wrong.size} rows are wrong, as {wrong[:5]}: {got[wrong[:5], 0]}"

    def know(self, server) -> None:
        """Takes the present rows as the expected ones for all that follows."""
        for name, rows in self.rows.items():
            got = server.open_table(name).get(np.arange(ROWS))[:, 0].astype(np.int64)
            rows.least[:] = rows.most[:] = rows.saved[:] = got

    def check_recovered(self) -> None:
        with self.daemon.connect() as server:
            for name, (_, _, durability) in TABLES.items():
                rows = self.rows[name]
                self.must_be(server, name, rows.saved if durability == "replay" else rows.least)

    def is_put_back(self) -> bool:
        """One row is enough: a restore is whole or has not happened."""
        with self.daemon.connect() as server:
            return server.open_table("sync").get([0])[0, 0] == self.put_back["sync"][0]

    def check_put_back(self) -> None:
        with self.daemon.connect() as server:
            for name in TABLES:
                self.must_be(server, name, self.put_back[name])
            self.know(server)

    def check(self, crashed: bool = False) -> None:
        """Checks all rows. @crashed: rows of replay tables may be as in the newest checkpoint."""
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


# ---- Requests that read or write whole tables: the preparation, the request, and the check afterwards ----


def prepare_none(work, server) -> None:
    pass


def name_checkpoint(work, server) -> None:
    work.newest = server.checkpoints()[-1].id


def restore(work, server) -> None:
    server.restore_checkpoint(work.newest, ["pushed"], "copy")


def look_at_copy(work, server) -> None:
    work.must_be(server, "pushed", work.rows["pushed"].saved, "copy")
    # The fault may have hit the shard's own work instead of the request, and the shard may not have recovered yet.
    work.attempt("drop of copy", server.drop_table, "copy")
    assert "copy" not in {spec.name for spec in server.tables()}


def export(work, server) -> None:
    path = work.daemon.folder / "export"
    shutil.rmtree(path, ignore_errors=True)
    server.export_table("pushed", path, checkpoint="newest", state=True)


def load(work, server) -> None:
    server.import_table(work.daemon.folder / "export", "copy", durability="async")


def look_at_export(work, server) -> None:
    load(work, server)
    look_at_copy(work, server)


REQUESTS = {
    "restore": (name_checkpoint, restore, look_at_copy),
    "export": (prepare_none, export, look_at_export),
    "import": (export, load, look_at_copy),
}


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


# ---- One fault ----


def run_while_working(daemon, control, work, fault) -> tuple[int, str]:
    daemon.start()
    work.create()
    descriptors = daemon.settled_descriptors()
    control.arm(fault)
    work.run(reads_fail=fault.call in ("read", "open", "stat") and fault.kind == "table")
    failed = control.disarm()
    assert daemon.is_running
    healed = work.heals()
    assert daemon.is_running
    work.check()
    assert healed, f"nothing heals: {work.refused[-3:]}"
    daemon.must_have_closed_all_but(descriptors)
    daemon.stop()
    daemon.start()
    work.check()
    return failed, f"{len(work.refused)} refused"


def run_while_stopping(daemon, control, work, fault) -> tuple[int, str]:
    daemon.start()
    work.create()
    work.run()
    work.update_all()
    assert not work.refused, work.refused
    control.arm(fault)
    daemon._process.send_signal(signal.SIGTERM)
    began, until = time.monotonic(), None
    while daemon.is_running and time.monotonic() < (until or began + 60):
        if until is None and control.failed:
            until = time.monotonic() + 3  # counted from the first failure, since the calls that are to fail may come late
        time.sleep(0.02)
    failed = control.disarm()
    code = daemon._process.wait(90)
    daemon._process = None
    assert code in (0, 1), f"the stop ended with {code}"
    # The stop waits for every write that holds rows. The mark of a clean stop is written after that, when RocksDB is closed.
    assert code == 0 or fault.kind != "table", daemon.log_lines()[-1]
    daemon.start()
    work.check(crashed=code != 0)
    assert work.heals()
    return failed, f"stop ended with {code}"


def is_ready(daemon, *arguments: str) -> bool:
    """True when the server is ready; false if it ended and said why."""
    daemon.launch(*arguments)
    deadline = time.monotonic() + RESTART_S
    while daemon.is_running and time.monotonic() < deadline:
        try:
            daemon.connect(arena_bytes=0).close()
            return True
        except embtier.UnreachableError:
            time.sleep(0.01)
    assert not daemon.is_running, "the start hangs"
    daemon.await_end(1)
    assert 'msg="embtierd ends"' in daemon.log_lines()[-1], daemon.log_lines()[-1]
    return False


def must_say(daemon, fault) -> None:
    """A read that the disk refused is reported as such. In a log it is not a torn end, so the log must not be cut."""
    line = daemon.log_lines()[-1]
    error = log_fields(line)["err"]
    assert "wal_recovery_mode" not in line, line
    if (fault.call, fault.kind) == ("stat", "folder"):
        # RocksDB reports a folder that it cannot stat as missing; for a data directory the server reports a bad configuration.
        assert error in ("IO", "CONFIG"), f"of {fault}: {line}"
        return
    if fault.error in CLASSES:
        assert error == CLASSES[fault.error].name, f"of {fault}: {line}"
    if fault.call in ("read", "stream", "list", "stat") and fault.error == "EIO":
        assert "Input/output error" in line, line


def run_while_starting(daemon, control, work, fault) -> tuple[int, str]:
    daemon.start()
    work.create()
    work.run()
    work.update_all()  # so that the start makes a checkpoint of the rows that the stop wrote
    descriptors = daemon.settled_descriptors()
    daemon.stop()
    control.arm(fault)
    ready = is_ready(daemon)
    if ready:
        if fault.call not in ("read", "open", "stat"):
            work.check()
        failed = control.disarm()
        daemon.must_have_closed_all_but(descriptors)
        daemon.stop()
    else:
        failed = control.disarm()
        must_say(daemon, fault)
    daemon.start()
    work.check()
    assert work.heals()
    return failed, "ready" if ready else "refused"


def run_while_recovering(daemon, control, work, fault) -> tuple[int, str]:
    """A start after a crash. Replay tables then have the checkpoint's rows, and other tables the acknowledged ones. This holds at
    once, or as soon as the disk works again."""
    daemon.start()
    work.create()
    work.run()
    work.update_all()
    assert not work.refused, work.refused
    descriptors = daemon.settled_descriptors()
    daemon.kill()
    control.arm(fault)
    ready = is_ready(daemon)
    failed = control.disarm()
    if ready:
        work.check_recovered()
        daemon.must_have_closed_all_but(descriptors)
        daemon.kill()  # the start must not have damaged the store either
    else:
        must_say(daemon, fault)
    daemon.start()
    work.check_recovered()
    assert work.heals()
    return failed, "ready" if ready else "refused"


def run_while_put_back(daemon, control, work, fault) -> tuple[int, str]:
    """A start with --restore, after a crash. After a refused one the caller may ask for the restore again, or not."""
    daemon.start()
    work.create()
    work.update_all()
    with daemon.connect(timeout=60) as server:
        checkpoint = work.restorable(server)
    work.update_all()
    descriptors = daemon.settled_descriptors()
    daemon.kill()
    control.arm(fault)
    ready = is_ready(daemon, "--restore", str(checkpoint))
    failed = control.disarm()
    if ready:
        daemon.must_have_closed_all_but(descriptors)
        daemon.kill()
    else:
        must_say(daemon, fault)
    daemon.start()
    if ready or work.is_put_back():
        work.check_put_back()
    else:
        work.check_recovered()
        daemon.kill()
        daemon.start("--restore", str(checkpoint))
        work.check_put_back()
    assert work.heals()
    return failed, "ready" if ready else "refused"


def must_be_done(work, phase, server) -> None:
    """Retries until the request succeeds. A failure may persist for a while in databases to which heals() wrote nothing."""

    def whole() -> None:
        for part in REQUESTS[phase]:
            part(work, server)

    deadline = time.monotonic() + HEAL_S
    while True:
        refused = len(work.refused)
        if work.attempt(phase, whole) and len(work.refused) == refused:
            return
        assert time.monotonic() < deadline, work.refused[-1]
        time.sleep(1)


def run_while_asking(phase):
    """Makes one request that reads or writes whole tables."""
    prepare, act, look = REQUESTS[phase]

    def run(daemon, control, work, fault) -> tuple[int, str]:
        daemon.start()
        work.create()
        with daemon.connect(timeout=60) as server:
            work.save(server)
            prepare(work, server)
            before = {spec.name for spec in server.tables()}
            descriptors = daemon.settled_descriptors()
            control.arm(fault)
            done = work.attempt(phase, act, work, server)
            failed = control.disarm()
            if done:
                look(work, server)
                assert failed or not work.refused, work.refused
            else:
                assert {spec.name for spec in server.tables()} == before, "half of it is there"
        assert work.heals(), work.refused[-3:]
        with daemon.connect(timeout=60) as server:
            work.save(server)
            if not done:
                must_be_done(work, phase, server)
        daemon.must_have_closed_all_but(descriptors)
        daemon.stop()
        daemon.start()
        work.check()
        return failed, "done" if done else "refused"

    return run


RUN = {
    "work": run_while_working, "stop": run_while_stopping, "start": run_while_starting, "crash": run_while_recovering,
    "restore_start": run_while_put_back, **{phase: run_while_asking(phase) for phase in REQUESTS},
}  # fmt: skip
