# SPDX-License-Identifier: Apache-2.0
"""When any call to the disk fails, once or from then on, updates are refused with the error while reads go on. The server
recovers when the disk does, and no row is ever wrong or lost.

The long form makes every kind of call fail with every error: the first, the last and others of a phase, once and from then on.
With EINTR a thousand calls in a row fail, since a correct program retries an interrupted call and would never end otherwise. The
short form tries as many as fit into EMBTIER_TEST_FAULT_SECONDS. EMBTIER_TEST_FAULTS=PATTERN: only those that match.
EMBTIER_TEST_FAULT=CASE: only that one, named as failures name it, such as work-write-log-EIO-from-3."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
import zlib

import numpy as np
import pytest
from daemons import LONG, STOP_LIMIT_S
from failing_io import Fault, faults_of
from failing_work import (
    CHUNK, CLASSES, HEAL_S, REFUSALS, REQUESTS, ROWS, RUN, TABLES, Work, is_ready, must_say, new_daemon,
    run_while_recovering,
)  # fmt: skip

ONLY = os.environ.get("EMBTIER_TEST_FAULT")
PATTERN = os.environ.get("EMBTIER_TEST_FAULTS")
# The long form tries all sites with all faults, which takes hours.
SECONDS = float(os.environ.get("EMBTIER_TEST_FAULT_SECONDS", 0 if LONG or PATTERN else 15))  # 0: no limit
PARTS = 4 if LONG and not (ONLY or PATTERN) else 1  # of all sites, side by side


def difference(after, before):
    return {site: count - before[site] for site, count in after.items() if count > before[site]}


def sites(make_daemon) -> dict[str, dict]:
    """The number of times that each phase below passes each site."""
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
    """The numbers of the calls that fail, from 1 to @count; one in the short form."""
    if LONG:
        return sorted({1, (count + 1) // 2, count, rng.randint(1, count)})
    return [rng.choice([1, rng.randint(1, count)])]


def all_faults(make_daemon, rng, part: int) -> list[tuple[str, Fault, bool]]:
    """Each fault, with True if it is bound to happen: its call is in the first half of those that were counted once. Timing
    decides when compactions run, and so the number of tables and manifests written, though each `work` writes some. It also
    decides which files RocksDB looks at, how many files a checkpoint links, and how much a stop has left to write to logs."""

    def is_bound(phase, call, kind, at, count) -> bool:
        if kind == "other" or call in ("link", "list", "stat"):
            return False
        if kind in ("table", "manifest"):
            return phase == "work" and at == 1 and call != "unlink"
        if phase != "work" and kind in ("current", "folder"):
            return False
        if phase == "stop" and kind == "log":
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
        np.random.seed(seed)  # so that a case run alone does the same
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
    # In a short run, all faults may be ones that are not bound to happen.
    assert done < 20 or 10 * happened >= 7 * done, "hardly any fault happened"


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT", "EIO"])
def test_rows_whose_only_copy_is_to_leave_the_cache_stay_while_the_disk_takes_none(make_daemon, error):
    """SETs of more rows than cache, queue and write buffers hold are refused in the end. Before and after that, all acknowledged
    rows are there, and they go to SSD when the disk takes them again."""
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
    """Rows that fit into a write buffer have left the cache and its queue, but are not on disk yet."""
    daemon, control = new_daemon(make_daemon)
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", 16)
        table.set(np.arange(1000), np.ones((1000, 16)))
        server.checkpoint()
        control.arm(Fault("write", "table", "ENOSPC", True, 1))
        table.set(np.arange(1000), np.full((1000, 16), 2))
    # Two signals at the same moment count as one: no user can have read the log between them.
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
    """RocksDB opens the log to write to it, and the server to sync it."""
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
    """RocksDB notes the length of each log that another has followed. A log whose writes failed is shorter than RocksDB notes, so
    a start after a crash would take it for damaged."""
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
    """The first reads are ours, which look for damage; then come RocksDB's own."""
    daemon, control = new_daemon(make_daemon)
    failed, said = run_while_recovering(daemon, control, Work(daemon), fault)
    assert failed and said == "refused"
    daemon.stop()


@pytest.mark.parametrize("on", [False, True], ids=["once", "from_then_on"])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_start_that_can_not_list_its_checkpoints_goes_back_to_none_but_the_newest(make_daemon, at, on):
    """The first call opens the checkpoints' folder. Later calls read its entries: itself, its parent, and three checkpoints."""
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


# Faults that once did more harm than a refusal. Some were reported as "file exists", "damaged" or "no checkpoint yet", or a full
# disk as a broken one. After others the server accepted no updates until a restart, or aborted.
HARMFUL = [
    ("work", Fault("unlink", "json", "EIO", True, 1)),
    ("work", Fault("open", "folder", "ENOSPC", True, 1)),
    ("export", Fault("read", "json", "EIO", True, 1)),
    ("work", Fault("write", "manifest", "EIO", True, 44)),
    ("crash", Fault("resize", "table", "EIO", True, 5)),
    ("start", Fault("stat", "current", "EINTR", False, 3)),
    ("work", Fault("stat", "other", "EIO", True, 1)),
    ("work", Fault("sync", "log", "ENOSPC", True, 1)),
    # A quota, on each file that RocksDB or the server writes.
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
    assert failed or fault.at > 1, "the fault never happened"  # the number of calls depends on timing
    if daemon.is_running:
        daemon.stop()
