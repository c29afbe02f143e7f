# SPDX-License-Identifier: Apache-2.0
"""When a call to the disk fails, any of them, once or from then on: are updates refused with the error
while reads go on, does all heal when the disk does, and is no row ever wrong or lost?

In the long form all kinds of calls fail, each by all errors, at the first, at the last and at other ones of
a phase, once and from then on (of EINTR a thousand times in a row: a program that takes an interrupted call
again, as it should, would not end otherwise); in the short form as many as there is time for,
EMBTIER_TEST_FAULT_SECONDS. EMBTIER_TEST_FAULTS=PATTERN: only those that match; EMBTIER_TEST_FAULT=CASE, as
failures say it: exactly that one, such as work-write-log-EIO-from-3."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import shutil
import signal
import time
import zlib

import numpy as np
import pytest
from daemons import LONG, STOP_LIMIT_S, log_fields
from failing_io import Control, Fault, faults_of

import embtier

ONLY = os.environ.get("EMBTIER_TEST_FAULT")
PATTERN = os.environ.get("EMBTIER_TEST_FAULTS")
# The long form tries all sites with all faults, which takes hours.
SECONDS = float(os.environ.get("EMBTIER_TEST_FAULT_SECONDS", 0 if LONG or PATTERN else 25))  # 0: all of them
PARTS = 4 if LONG and not (ONLY or PATTERN) else 1  # of all sites, side by side
HEAL_S, HEAL_ROUNDS = 25, 20  # at least
RESTART_S = 60

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
# Told as what they are, whatever call they befall, and also by what is refused later for their sake. What is cut
# short (SHORT) is no error by itself.
CLASSES = {
    "EIO": embtier.IoError,
    "EINTR": embtier.IoError,
    "ENOSPC": embtier.NoSpaceError,
    "EDQUOT": embtier.NoSpaceError,
}
REASONS = [os.strerror(getattr(errno, name)).lower() for name in CLASSES]


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
        """False if it was refused, for one of the reasons that it may be refused for."""
        try:
            function(*arguments)
            return True
        except REFUSALS as error:
            self.must_tell(what, error)
            self.refused.append(f"{what}: {error}")
            return False

    def must_tell(self, what: str, error: embtier.Error) -> None:
        """What has failed, and of which file, or at least why."""
        assert str(error), what
        if self.fault and self.fault.error in CLASSES:
            assert isinstance(error, CLASSES[self.fault.error]), f"{what}: of {self.fault}: {error!r}"
            told = str(error)
            is_named = str(self.daemon.folder) in told or any(why in told.lower() for why in REASONS)
            assert is_named, f"{what}: of {self.fault}: {told}"

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

    def update_all(self) -> None:
        """Each row anew, which is in no checkpoint then."""
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
        """All is taken again, soon: a few rounds may take all the time on a machine with too much to do."""
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
                # The shard of what is dropped may be another one, which has not got over it yet.
                if all(tried) and self.attempt("drop", self.drop_table, server):
                    return True
                if rounds >= HEAL_ROUNDS and time.monotonic() > deadline:
                    return False
                time.sleep(0.1)

    # ---- Of whole tables ----

    def restorable(self, server) -> int:
        """A checkpoint that stays when others are made, and its rows."""
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
        """What there is now is what there was, for all that follows."""
        for name, rows in self.rows.items():
            got = server.open_table(name).get(np.arange(ROWS))[:, 0].astype(np.int64)
            rows.least[:] = rows.most[:] = rows.saved[:] = got

    def check_recovered(self) -> None:
        with self.daemon.connect() as server:
            for name, (_, _, durability) in TABLES.items():
                rows = self.rows[name]
                self.must_be(server, name, rows.saved if durability == "replay" else rows.least)

    def is_put_back(self) -> bool:
        """That of one row says it of all."""
        with self.daemon.connect() as server:
            return server.open_table("sync").get([0])[0, 0] == self.put_back["sync"][0]

    def check_put_back(self) -> None:
        with self.daemon.connect() as server:
            for name in TABLES:
                self.must_be(server, name, self.put_back[name])
            self.know(server)

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


# ---- Requests that read or write tables as a whole: what comes before, it, and what must be then ----


def prepare_none(work, server) -> None:
    pass


def name_checkpoint(work, server) -> None:
    work.newest = server.checkpoints()[-1].id


def restore(work, server) -> None:
    server.restore_checkpoint(work.newest, ["pushed"], "copy")


def look_at_copy(work, server) -> None:
    work.must_be(server, "pushed", work.rows["pushed"].saved, "copy")
    # What failed may have been the shard's own work beside the request, and not be got over yet.
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


def difference(after, before):
    return {site: count - before[site] for site, count in after.items() if count > before[site]}


def sites(make_daemon) -> dict[str, dict]:
    """How often each is passed in each of the phases below."""
    daemon, control = new_daemon(make_daemon)
    counts = {}

    @contextlib.contextmanager
    def phase(name):
        before = control.counts()
        yield
        counts[name] = difference(control.counts(), before)

    daemon.start()
    work = Work(daemon)
    work.create()
    with phase("work"):
        work.run()
    work.update_all()
    with phase("stop"):
        daemon.stop()
    with phase("start"):
        daemon.start()
    for name, (prepare, act, look) in REQUESTS.items():
        with daemon.connect(timeout=60) as server:
            work.save(server)
            prepare(work, server)
            with phase(name):
                act(work, server)
            look(work, server)
    work.run()
    work.update_all()
    daemon.kill()
    with phase("crash"):
        daemon.start()
    with daemon.connect() as server:
        checkpoint = str(work.restorable(server))
    work.update_all()
    daemon.kill()
    with phase("restore_start"):
        daemon.start("--restore", checkpoint)
    daemon.stop()
    assert not work.refused
    return counts


def places(rng, count: int) -> list[int]:
    """Which of @count calls are to fail: one in the short form."""
    if LONG:
        return sorted({1, (count + 1) // 2, count, rng.randint(1, count)})
    return [rng.choice([1, rng.randint(1, count)])]


def all_faults(make_daemon, rng, part: int) -> list[tuple[str, Fault, bool]]:
    """With each, whether it is bound to happen: of calls as many as half of those that there were once. What is
    compacted when is a matter of time, and so how many tables and manifests are written, though some are in all the
    work; so is what RocksDB looks at, and how many files a checkpoint links."""

    def is_bound(phase, call, kind, at, count) -> bool:
        if kind == "other" or call in ("link", "list", "stat"):
            return False
        if kind in ("table", "manifest"):
            return phase == "work" and at == 1 and call != "unlink"
        if phase != "work" and kind in ("current", "folder"):
            return False
        return at == 1 or 2 * at <= count

    return [
        (phase, Fault(call, kind, error, on, at), is_bound(phase, call, kind, at, count))
        for phase, counts in sites(make_daemon).items()
        for (call, kind), count in counts.items()
        if zlib.crc32(f"{phase}-{call}-{kind}".encode()) % PARTS == part
        for error, on in faults_of(call)
        for at in places(rng, count)
    ]


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
            until = time.monotonic() + 3  # from then on, since the calls that are to fail may be late ones
        time.sleep(0.02)
    failed = control.disarm()
    code = daemon._process.wait(90)
    daemon._process = None
    assert code in (0, 1), f"the stop ended with {code}"
    # It waits for what holds rows. What says that it was clean is written when RocksDB is closed.
    assert code == 0 or fault.kind != "table", daemon.log_lines()[-1]
    daemon.start()
    work.check(crashed=code != 0)
    assert work.heals()
    return failed, f"stop ended with {code}"


def is_ready(daemon, *arguments: str) -> bool:
    """Or has ended, and said why."""
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
    """A read that the disk refused is told as that. Of a log it is no torn end, and not to be cut."""
    line = daemon.log_lines()[-1]
    error = log_fields(line)["err"]
    assert "wal_recovery_mode" not in line, line
    if (fault.call, fault.kind) == ("stat", "folder"):
        # A folder that RocksDB can't look at is none, it says; a data directory is no good configuration.
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
    work.update_all()  # so that the start makes a checkpoint of what the stop wrote
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
    """A start after a crash. Rows of replay tables are the checkpoint's then, and those of others what
    was acknowledged, be it at once or when the disk is well again."""
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
        daemon.kill()  # nor did it make the disk worse
    else:
        must_say(daemon, fault)
    daemon.start()
    work.check_recovered()
    assert work.heals()
    return failed, "ready" if ready else "refused"


def run_while_put_back(daemon, control, work, fault) -> tuple[int, str]:
    """A start with --restore, after a crash. One that is refused may be asked for again, or not."""
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
    """In the end: what has failed may stand for a while in databases that nothing of heals() was written to."""

    def whole() -> None:
        for part in REQUESTS[phase]:
            part(work, server)

    for _ in range(10):
        refused = len(work.refused)
        if work.attempt(phase, whole) and len(work.refused) == refused:
            return
        time.sleep(1)
    raise AssertionError(work.refused[-1])


def run_while_asking(phase):
    """One request, of those that read or write tables as a whole."""
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


def chosen_faults(make_daemon, rng, part: int) -> list[tuple[str, Fault, bool]]:
    if ONLY:
        phase, _, fault = ONLY.partition("-")
        return [(phase, Fault.parse(fault), True)]
    cases = all_faults(make_daemon, rng, part)
    if PATTERN:
        cases = [case for case in cases if re.search(PATTERN, f"{case[0]}-{case[1]}")]
    rng.shuffle(cases)
    return cases


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_call_fails_updates_are_refused_and_no_row_is_wrong(make_daemon, rng, part):
    seed = rng.randrange(2**32)
    cases = chosen_faults(make_daemon, rng, part)
    began = time.monotonic()
    done, failures, happened = 0, [], 0
    for phase, fault, is_bound_to_happen in cases:
        if SECONDS and time.monotonic() - began > SECONDS:
            break
        np.random.seed(seed)  # the same for a case by itself
        daemon, control = new_daemon(make_daemon)
        before = time.monotonic()
        try:
            failed, said = RUN[phase](daemon, control, Work(daemon, fault), fault)
            said = f"{failed} failed, {said}"
            happened += failed > 0
            assert failed or not is_bound_to_happen, "the fault never happened"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:1500]
            failures.append(f"EMBTIER_TEST_FAULT={phase}-{fault}: {said}")
        print(f"{phase}-{fault}: {said} ({time.monotonic() - before:.1f} s)", flush=True)
        done += 1
        if daemon.is_running:
            daemon.kill()
        if not failures or f"={phase}-{fault}: " not in failures[-1]:
            shutil.rmtree(daemon.folder / "rows")
    print(f"{done} of {len(cases)} faults, {happened} happened, {len(failures)} wrong")
    assert not failures, "\n".join(failures)
    # A few may all be such as are not bound to.
    assert done < 20 or 10 * happened >= 7 * done, "hardly any fault happened"


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EIO"])
def test_rows_whose_only_copy_is_to_leave_the_cache_stay_while_the_disk_takes_none(make_daemon, error):
    """SETs of more rows than cache, queue and write buffers hold are refused at last; until then and
    after that all rows that were acknowledged are there, and go to SSD when it takes them again."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    dim, count = 256, 12_000
    wanted = np.zeros(count, dtype=np.float32)
    refusal = CLASSES[error]
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


def test_a_stop_waits_until_the_disk_takes_what_is_in_write_buffers(make_daemon):
    """Rows that fit into a write buffer have left the cache and its queue, and are nowhere on the disk yet."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", 16)
        table.set(np.arange(1000), np.ones((1000, 16)))
        server.checkpoint()
        control.arm(Fault("write", "table", "ENOSPC", True, 1))
        table.set(np.arange(1000), np.full((1000, 16), 2))
    # Two where one is meant, at the same moment: nobody can have read the log between them.
    for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        daemon._process.send_signal(number)
    deadline = time.monotonic() + STOP_LIMIT_S
    while not daemon.logged("write buffers cannot be flushed"):
        assert daemon.is_running and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    assert daemon.is_running
    assert control.disarm() > 0
    assert daemon._process.wait(STOP_LIMIT_S) == 0
    daemon._process = None
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("rows").get(np.arange(1000)) == 2).all()
    control.arm(Fault("write", "table", "ENOSPC", True, 1))
    with daemon.connect() as server:
        server.open_table("rows").set([0], np.full((1, 16), 3))
    before = len(daemon.logged("write buffers cannot be flushed"))
    daemon._process.send_signal(signal.SIGTERM)
    while len(daemon.logged("write buffers cannot be flushed")) == before:
        assert daemon.is_running
        time.sleep(0.05)
    daemon._process.send_signal(signal.SIGTERM)
    assert daemon._process.wait(STOP_LIMIT_S) == 1, "a signal after that ends it"
    daemon._process = None
    assert "go back to the newest checkpoint" in daemon.log_lines()[-1]


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


READS = [
    Fault(call, kind, "EIO", on, 1)
    for call in ("read", "stream") for kind in ("log", "manifest") for on in ((False, True) if LONG else (False,))
]  # fmt: skip


@pytest.mark.parametrize("fault", READS, ids=str)
def test_a_read_that_fails_while_a_crash_is_got_over_is_not_taken_for_a_torn_end(make_daemon, fault):
    """Reads are ours, which look for damage, and then RocksDB's own."""
    daemon, control = new_daemon(make_daemon)
    failed, said = run_while_recovering(daemon, control, Work(daemon), fault)
    assert failed and said == "refused"
    daemon.stop()


@pytest.mark.parametrize("on", [False, True], ids=["once", "from_then_on"])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_start_that_can_not_list_its_checkpoints_goes_back_to_none_but_the_newest(make_daemon, at, on):
    """The first call opens their folder, those after it read it: itself, its parent, and three checkpoints."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    work = Work(daemon)
    work.create()
    with daemon.connect(timeout=60) as server:
        for _ in range(2):
            for name in TABLES:
                work.update(server, name, np.random.permutation(ROWS))
            work.restorable(server)
        for name in TABLES:
            work.update(server, name, np.random.permutation(ROWS))
        assert len(server.checkpoints()) == 3
    daemon.kill()
    fault = Fault("list", "shelf", "EIO", on, at)
    control.arm(fault)
    ready = is_ready(daemon)
    assert control.disarm() > 0
    if ready:
        work.check_recovered()
        daemon.kill()
    else:
        must_say(daemon, fault)
    daemon.start()
    work.check_recovered()
    assert work.heals()
    daemon.stop()


# What did harm once, beyond being refused: it was told as "file exists", as "damaged", as "no checkpoint yet", a full disk as a broken one; nothing was
# taken again before a restart; the process was aborted.
HARMFUL = [
    ("work", Fault("unlink", "json", "EIO", True, 1)),
    ("work", Fault("open", "folder", "ENOSPC", True, 1)),
    ("export", Fault("read", "json", "EIO", True, 1)),
    ("work", Fault("write", "manifest", "EIO", True, 44)),
    ("crash", Fault("resize", "table", "EIO", True, 5)),
    ("start", Fault("stat", "current", "EINTR", False, 3)),
    ("work", Fault("stat", "other", "EIO", True, 1)),
    ("work", Fault("sync", "log", "ENOSPC", True, 1)),
    # A quota: of each file that RocksDB or the server writes.
    ("work", Fault("write", "log", "EDQUOT", True, 1)),
    ("work", Fault("sync", "log", "EDQUOT", True, 1)),
    ("work", Fault("write", "table", "EDQUOT", True, 1)),
    ("work", Fault("write", "manifest", "EDQUOT", True, 1)),
    ("work", Fault("open", "table", "EDQUOT", True, 1)),
    ("work", Fault("write", "json", "EDQUOT", True, 1)),
]


@pytest.mark.parametrize("phase,fault", HARMFUL, ids=str)
def test_a_fault_that_once_did_harm_does_no_more(make_daemon, phase, fault):
    daemon, control = new_daemon(make_daemon)
    failed, said = RUN[phase](daemon, control, Work(daemon, fault), fault)
    print(said)
    assert failed or fault.at > 1, "the fault never happened"  # how many calls there are is a matter of time
    if daemon.is_running:
        daemon.stop()
