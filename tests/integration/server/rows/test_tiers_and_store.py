# SPDX-License-Identifier: Apache-2.0
"""The tiers and the shards behind a running server behave as the figures say."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, LONG, SANITIZED


def test_rows_are_really_in_the_pmem_tiers_file(make_daemon):
    """Rows of a pattern, more than fit into DRAM. The mapping of the tier's file holds as many of them as the server says, and
    lookups are served from there."""
    daemon = make_daemon()
    daemon.start()
    dim, count = 64, (24_000 if SANITIZED else 60_000) * LANES
    with daemon.connect() as server:
        table = server.create_table("rows", dim)
        for first in range(0, count, 6000):
            ids = np.arange(first, first + 6000)
            # A pattern that is easily found in memory: a magic number, then the id, then both again.
            rows = np.empty((6000, dim), dtype=np.uint32)
            rows[:, 0::2], rows[:, 1::2] = 0x7E57DA7A, ids[:, None]
            table.set(ids, rows.view(np.float32))
    metrics = daemon.metrics()
    told = metrics["cache_rows"]["pmem"]
    assert told > 1000 and metrics["cache_demoted_rows"]["dram"] >= told
    assert metrics["cache_used_bytes"]["pmem"] >= told * dim * 4
    assert metrics["cache_used_bytes"]["pmem"] <= metrics["cache_capacity_bytes"]["pmem"]
    assert metrics["cache_capacity_bytes"]["pmem"] <= (2 << 20) * LANES
    found = rows_in_mapping(daemon.pid, str(daemon.folder / "pmem"), dim)
    assert len(found) >= told
    assert {row[2:].tobytes() for row in found} <= {np.tile(row[:2], dim // 2 - 1).tobytes() for row in found}

    with daemon.connect() as server:
        table = server.open_table("rows")
        before = daemon.metrics()["lookup_rows"]["pmem"]
        for id_ in np.unique(found[:, 1])[:500].tolist():
            got = table.get([id_]).view(np.uint32)
            assert (got[0, 1::2] == id_).all()
        after = daemon.metrics()
        assert after["lookup_rows"]["pmem"] > before, "no row was served from the tier"
        assert after["cache_promoted_rows"]["pmem"] > 0
    daemon.stop()


def rows_in_mapping(pid, folder, dim):
    """The whole rows in the process's mapping of a file under @folder, deleted or not."""
    found = []
    with open(f"/proc/{pid}/maps") as maps:
        spans = [line.split()[0] for line in maps if folder in line]
    assert spans, "the tier is not mapped"
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for span in spans:
            first, end = (int(part, 16) for part in span.split("-"))
            memory.seek(first)
            words = np.frombuffer(memory.read(end - first), dtype=np.uint32)
            magic = np.flatnonzero(words == 0x7E57DA7A)
            magic = magic[magic + dim <= len(words)]
            rows = words[magic[:, None] + np.arange(dim)]
            whole = (rows[:, 0::2] == 0x7E57DA7A).all(1) & (rows[:, 1::2] == rows[:, 1:2]).all(1)
            found.append(rows[whole])
    return np.concatenate(found)


def test_a_row_is_in_one_tier_only(own_daemon):
    """Both tiers and the write queue together never have more rows than exist."""
    with own_daemon.connect() as server:
        table = server.create_table("few", 64)
        table.set(np.arange(4000), np.ones((4000, 64)))
        for _ in range(20):
            table.get(np.random.default_rng(1).integers(0, 4000, 2000))
        metrics = own_daemon.metrics()
    assert 0 < sum(metrics["cache_rows"].values()) <= 4000
    assert sum(metrics["cache_dirty_rows"].values()) <= sum(metrics["cache_rows"].values())


def test_never_two_shards_compact_at_once_and_their_debt_falls(make_daemon):
    daemon = make_daemon(
        {
            "data": {"shards_per_directory": 4 * LANES},
            "rocksdb": {
                "memtable_bytes": f"{4 * LANES}MiB",
                "background_threads": 4,
                # Small levels, so that a test's rows make as much compaction debt as a real server's.
                "options": "target_file_size_base=262144;max_bytes_for_level_base=524288",
                "compaction_trigger_files": 2,
            },
        }
    )
    daemon.start()
    rng = np.random.default_rng(1)
    rows = np.ones((10_000, 64), dtype=np.float32)
    with daemon.connect() as server:
        table = server.create_table("rows", 64)
        deadline = time.monotonic() + (15 if LONG else 2 if SANITIZED else 6)
        most, metrics = 0, None
        while time.monotonic() < deadline or (
            metrics["store_compactions"] <= 4 and time.monotonic() < deadline + 60  # until there is enough work
        ):
            table.set(rng.integers(0, 200_000, 10_000), rows)
            metrics = server.status()["metrics"]
            most = max(most, metrics["store_pending_compaction_bytes"])
            assert metrics["store_compacting_shards"] <= 1
        deadline = time.monotonic() + 60
        while (metrics := server.status()["metrics"])["store_pending_compaction_bytes"] > most / 2:
            assert time.monotonic() < deadline, "the debt does not fall"
            time.sleep(0.1)
        assert metrics["store_compactions"] > 4, "the test has made too little work"
        assert metrics["store_compacting_shards_peak"] == 1
        assert (table.get(rng.integers(0, 200_000, 1000)) <= 1).all()
    daemon.stop()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer takes memory of its own")
def test_resident_memory_stays_where_it_was_when_the_server_was_ready(own_daemon):
    """Budgets are reserved and touched before the server is ready. Work adds the memory of RocksDB's own threads and tables, at
    most its budgets and a few MiB."""
    before = own_daemon.metrics()["process_resident_bytes"]
    budgets = (16 + 8) << 20  # memtables and metadata, which RocksDB allocates as it goes
    with own_daemon.connect(arena_bytes=16 << 20) as server:
        table = server.create_table("rows", 256)
        for first in range(0, 60_000, 6000):
            table.set(np.arange(first, first + 6000), np.ones((6000, 256)))
            table.get(np.arange(first // 2, first // 2 + 6000))
        deadline = time.monotonic() + 60
        while True:  # a compaction gives its memory back when it ends
            metrics = own_daemon.metrics()
            allowed = before + budgets + metrics["session_arena_bytes"] + (48 << 20)
            if metrics["process_resident_bytes"] <= allowed:
                break
            assert time.monotonic() < deadline, (metrics["process_resident_bytes"], allowed)
            time.sleep(0.1)


def of_threads(pid: int, ask: Callable[[int], int]) -> dict[str, set[int]]:
    """The results of @ask for the threads of each name. The kernel's threads come and go, and those of RocksDB get their names
    when they run."""
    found: dict[str, set[int]] = collections.defaultdict(set)
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = (task / "comm").read_text().strip().split("-")[0]
            found[name].add(ask(int(task.name)))
    return found


def test_threads_that_no_client_waits_for_leave_the_cores_to_others(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("rows", 16, 1000).set(np.arange(1000), np.ones((1000, 16)))
        server.checkpoint()  # makes RocksDB flush
    usual = os.getpriority(os.PRIO_PROCESS, 0)

    def wrong() -> list[str]:
        nice = of_threads(own_daemon.pid, lambda thread: os.getpriority(os.PRIO_PROCESS, thread))
        policies = of_threads(own_daemon.pid, os.sched_getscheduler)
        right = {
            name: usual in nice[name] and policies[name] == {os.SCHED_OTHER}
            for name in ("lane", "reader", "caster", "writer", "syncer", "embtierd")
        }
        right["lane"] &= nice["lane"] == {usual}
        right["writer"] &= nice["writer"] == {usual}
        right["worker"] = nice["worker"] == {usual, min(usual + 10, 19)}  # workers on which updates wait; workers for scans
        # A lower priority would make updates wait where cores are busy.
        right["rocksdb:high"] = os.SCHED_BATCH in policies["rocksdb:high"] and nice["rocksdb:high"] == {usual}
        return [name for name in right if not right[name]]

    await_none(wrong)


def await_none(wrong: Callable[[], list[str]]) -> None:
    """Waits until all threads are right. A thread sets its own properties when it first runs, which may be after the server is
    ready."""
    deadline = time.monotonic() + 60
    while names := wrong():
        assert time.monotonic() < deadline, names
        time.sleep(0.1)


def turns_ns(pid: int) -> dict[str, set[int]]:
    """The length of a turn that the threads of each name asked for; 0 if the system does not say."""
    number = {"x86_64": 315, "aarch64": 275}.get(os.uname().machine)
    if number is None:
        pytest.skip("the number of sched_getattr is not known here")

    def turn_ns(thread: int) -> int:
        attributes = ctypes.create_string_buffer(48)
        if ctypes.CDLL(None, use_errno=True).syscall(number, thread, attributes, 48, 0) != 0:
            raise OSError(ctypes.get_errno(), "sched_getattr")
        return struct.unpack_from("<Q", attributes, 24)[0]

    return of_threads(pid, turn_ns)


def test_threads_that_requests_wait_for_ask_for_short_turns(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("rows", 16, 1000)
    usual = max(turns_ns(own_daemon.pid)["embtierd"])
    if usual == 0:
        pytest.skip("a system that is older than these")

    def wrong() -> list[str]:
        turns = turns_ns(own_daemon.pid)
        right = {name: max(turns[name], default=usual) < usual for name in ("lane", "caster", "writer", "syncer")}
        right["reader"] = min(turns["reader"], default=usual) < usual  # the lanes' readers, not that of scans
        return [name for name in right if not right[name]]

    await_none(wrong)


def test_where_cores_are_few_a_checkpoint_leaves_them_to_clients_that_ask(make_daemon):
    daemon = make_daemon()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        daemon.start()
    finally:
        os.sched_setaffinity(0, cores)
    ids = np.arange(8000)
    asked, done = threading.Event(), threading.Event()

    def ask():
        try:
            with daemon.connect() as server:
                table = server.open_table("rows")
                while not done.is_set():
                    table.get(ids[:100])
                    asked.set()
        finally:
            asked.set()

    with daemon.connect() as server:
        table = server.create_table("rows", 64)
        table.set(ids, np.ones((len(ids), 64)))
        server.checkpoint()
        assert daemon.metrics()["checkpoint_yielded_seconds"] == 0, "no client has asked for anything"
        asking = threading.Thread(target=ask)
        asking.start()
        asked.wait()
        try:
            deadline = time.monotonic() + 60
            while daemon.metrics()["checkpoint_yielded_seconds"] == 0:  # a short checkpoint may come between two requests
                assert time.monotonic() < deadline, "the cores were never left to others"
                table.set(ids, np.ones((len(ids), 64)))
                server.checkpoint(keep=2)
        finally:
            done.set()
            asking.join()


def test_figures_add_up(own_daemon):
    """Each row of a GET was served from exactly one source."""
    with own_daemon.connect() as server:
        table = server.create_table("rows", 100)
        rounds, asked = 20 if SANITIZED else 60, 0
        rng = np.random.default_rng(2)
        for _ in range(rounds):
            table.set(rng.integers(0, 30_000, 1000), np.ones((1000, 100)))
            table.get(rng.integers(0, 40_000, 3000))
            asked += 3000
        metrics = server.status()["metrics"]
    assert metrics["request_rows"] == {"get": asked, "set": 1000 * rounds, "push": 0, "prefetch": 0}
    assert sum(metrics["lookup_rows"].values()) == asked
    assert metrics["requests"] == 2 * rounds and metrics["tables"] == 1 and metrics["lanes"] == LANES
    assert metrics["write_queue_bytes"] <= metrics["write_queue_capacity_bytes"] <= 2 * (4 << 20)  # of lanes.write_queue_bytes
