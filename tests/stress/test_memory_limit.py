# SPDX-License-Identifier: Apache-2.0
"""A server refuses to start with less memory than it needs, and lives under load with exactly that. The limit is that of a
control group of the daemon's own, which needs root."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, LONG, SANITIZED
from scans import Scan

import embtier

pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer needs memory of its own")

LOAD_S = 600 if LONG else 15
MIB = 1 << 20
BUDGETS_MIB = {
    "request": 32, "ticket": 16, "queue": 8, "memtable": 16, "metadata": 8, "arenas": 160, "transfers": 128,
}  # fmt: skip
TIERS_MIB = 16 * LANES
NAMED_MIB = sum(BUDGETS_MIB.values()) + TIERS_MIB


class Group:
    """A control group for memory below our own, of version 2, or of version 1 if that has the memory controller."""

    def __init__(self, name: str) -> None:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        fields = [line.split(":", 2) for line in lines]
        root = Path("/sys/fs/cgroup")
        path = [path for _, controllers, path in fields if "memory" in controllers.split(",")]
        if path:
            root, self._limit, self._peak = root / "memory", "limit_in_bytes", "max_usage_in_bytes"
            self._kills = "oom_control"
        else:
            path, self._limit, self._peak, self._kills = [fields[0][2]], "max", "peak", "events"
        own = root / path[0].lstrip("/")
        self.folder = (own if own.is_dir() else root) / name

    def __enter__(self) -> Group:
        self.folder.mkdir()
        if not (self.folder / f"memory.{self._limit}").exists():
            self.folder.rmdir()
            raise FileNotFoundError(self._limit)
        return self

    def __exit__(self, *_: object) -> None:
        deadline = time.monotonic() + 60
        while True:  # the group is busy for a moment after its process has ended
            try:
                return self.folder.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def limit(self, count: int) -> None:
        (self.folder / f"memory.{self._limit}").write_text(str(count))

    @property
    def peak(self) -> int:
        file = self.folder / f"memory.{self._peak}"
        return int(file.read_text()) if file.exists() else 0

    @property
    def kills(self) -> int:
        lines = (self.folder / f"memory.{self._kills}").read_text().splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    @property
    def wrapper(self) -> tuple[str, ...]:
        """A command prefix that runs a command in the group."""
        return ("/bin/sh", "-c", f'echo $$ > "{self.folder}/cgroup.procs" && exec "$@"', "sh")


@pytest.fixture
def group() -> Iterator[Group]:
    with contextlib.ExitStack() as stack:
        try:
            entered = stack.enter_context(Group(f"embtier-test-{os.getpid()}"))
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        yield entered


@pytest.fixture
def limited(make_daemon, group):
    """A daemon that is not running yet, whose budgets add up to NAMED_MIB."""
    daemon = make_daemon(
        {
            "lanes": {
                "request_bytes": f"{BUDGETS_MIB['request']}MiB",
                "ticket_bytes": f"{BUDGETS_MIB['ticket']}MiB",
                "write_queue_bytes": f"{BUDGETS_MIB['queue']}MiB",
            },
            "rocksdb": {
                "memtable_bytes": f"{BUDGETS_MIB['memtable']}MiB",
                "metadata_cache_bytes": f"{BUDGETS_MIB['metadata']}MiB",
            },
            "socket": {
                "max_arena_bytes": "32MiB",
                "max_user_arena_bytes": f"{BUDGETS_MIB['arenas']}MiB",
                "max_total_arena_bytes": f"{BUDGETS_MIB['arenas']}MiB",
                "max_sessions": 64,
                "max_user_sessions": 64,
            },
            "checkpoints": {"interval_seconds": 5, "transfer_bytes": f"{BUDGETS_MIB['transfers']}MiB"},
        }
    )
    daemon.configure(
        {"cache": {"tiers": [{"name": "dram", "kind": "dram", "bytes": f"{TIERS_MIB}MiB"}, daemon.pmem()]}}
    )
    yield daemon
    if daemon.is_running:  # it must end before its group
        daemon.kill()


def needed_bytes(daemon, group: Group) -> int:
    """The bytes that the daemon says it needs, when limited to its budgets."""
    group.limit(NAMED_MIB * MIB)
    why = daemon.fail_to_start(wrapper=group.wrapper)
    said = re.search(r"all memory together is (\d+)MiB \(", why)
    assert said, why
    for part in ("tiers", "requests", "tickets", "write queue", "RocksDB", "shared arenas", "exports and imports"):
        assert part in why
    for part in ("lanes", "databases", "compaction", "sessions", "the rest"):
        assert part in why
    assert f"at most the machine's {NAMED_MIB}MiB" in why, why
    assert group.kills == 0
    return int(said[1]) * MIB


def test_a_limit_of_a_page_less_than_is_needed_is_refused(limited, group):
    needed = needed_bytes(limited, group)
    group.limit(needed - os.sysconf("SC_PAGESIZE"))
    assert "all memory together is" in limited.fail_to_start(wrapper=group.wrapper)
    assert group.kills == 0
    group.limit(needed)
    limited.launch(wrapper=group.wrapper)
    limited.await_ready()
    limited.stop()


def connect(daemon, end: float, arena_bytes: int = 32 * MIB) -> embtier.Server:
    """Connects. All arenas together may already have their full size, so retries until an earlier one is gone."""
    while True:
        try:
            return daemon.connect(arena_bytes=arena_bytes, timeout=120)
        except embtier.BusyError:
            assert time.monotonic() < end + 60
            time.sleep(0.01)


def work(daemon, end: float, seed: int, failures: list) -> None:
    """Does all that takes memory: whole arenas, tickets, pushes, rows that are on SSD, tables."""
    try:
        rng = np.random.default_rng(seed)
        while time.monotonic() < end:
            with connect(daemon, end) as server:
                table = server.open_table(f"load-{seed % 3}")
                count = 20_000
                with contextlib.ExitStack() as stack:
                    batch = stack.enter_context(server.batch([(table, count)]))
                    bags = server.bag_batch([embtier.Bags(table, count, count, "sum")])
                    stack.enter_context(bags)
                    for _ in range(20):
                        batch.ids(0)[:] = rng.integers(0, 400_000, count)
                        batch.rows(0)[:] = 1
                        batch.set()
                        bags.ids(0)[:] = rng.integers(0, 400_000, count)
                        bags.offsets(0)[:] = np.arange(count + 1)
                        with contextlib.suppress(embtier.TicketsFullError):  # the tickets' memory is for fewer
                            bags.lookup(ticket=True)
                            bags.gradients(0)[:] = 1
                            bags.push(0.1, 1)
                        if time.monotonic() > end:
                            break
    except BaseException as error:  # passed on to the test's thread
        failures.append(error)


class Transfers:
    """Scans, exports, imports and restores, as many at a time as there is memory for; one that finds none tries again."""

    def __init__(self, daemon, folder: Path, failures: list) -> None:
        self._daemon, self._folder, self._failures = daemon, folder, failures
        self.done: collections.Counter = collections.Counter()  # ended ones of each kind, and refused ones
        with daemon.connect(arena_bytes=32 * MIB) as server:
            table = server.create_table("given", 64, optimizer="adagrad", durability="sync")
            for first in range(0, 40_000, 10_000):
                table.set(np.arange(first, first + 10_000), np.ones((10_000, 64), np.float32))
            self._checkpoint = server.checkpoint().id
            server.export_table("given", folder / "given", checkpoint=self._checkpoint, state=True)
        self.end = time.monotonic() + LOAD_S  # counted from here, after all that
        kinds = [self.scan] * 3 + [self.export] + [self.load] * 4 + [self.restore]  # one user may have four of each kind
        self.threads = [threading.Thread(target=self._go_on, args=(kind, i)) for i, kind in enumerate(kinds)]

    def _go_on(self, kind, number: int) -> None:
        try:
            patience = self.end + 120  # until the first one of a kind has ended
            while time.monotonic() < (self.end if self.done[kind.__name__] else patience):
                with connect(self._daemon, patience, 2 * MIB) as server:
                    try:
                        kind(server, number)
                        self.done[kind.__name__] += 1
                    except embtier.BusyError as error:
                        late = "without an update in progress" in str(error)  # on an overloaded machine
                        if not late and "checkpoints.transfer_bytes" not in str(error):
                            raise
                        self.done["late" if late else "refused"] += 1
                        time.sleep(0.02)
                    except embtier.NotFoundError:
                        if kind != self.scan:
                            raise
                        self.done["late"] += 1  # the newest checkpoint was deleted before it was opened
        except BaseException as error:  # passed on to the test's thread
            self._failures.append(error)

    def scan(self, server, number: int) -> None:
        rows = Scan(server, f"load-{number % 3}")
        try:
            while len(rows.next()) and time.monotonic() < self.end:
                pass
        finally:
            rows.close()

    def export(self, server, _number: int) -> None:
        server.export_table("load-1", self._folder / "load", state=True)
        shutil.rmtree(self._folder / "load")

    def load(self, server, number: int) -> None:
        server.import_table(self._folder / "given", f"loaded-{number}")
        server.drop_table(f"loaded-{number}")

    def restore(self, server, _number: int) -> None:
        server.restore_checkpoint(self._checkpoint, ["given"], name="restored")
        server.drop_table("restored")


def anonymous_bytes(pid: int) -> int:
    """Resident memory that is neither shared nor of files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def test_with_what_is_needed_it_lives_under_load(limited, group, rng, tmp_path):
    needed = needed_bytes(limited, group)
    group.limit(needed)
    limited.launch(wrapper=group.wrapper)
    limited.await_ready()
    with limited.connect(arena_bytes=0) as server:
        for i, durability in enumerate(("replay", "async", "sync")):
            server.create_table(f"load-{i}", 64, optimizer="adagrad", durability=durability)
    failures: list[BaseException] = []
    transfers = Transfers(limited, tmp_path, failures)
    threads = [
        threading.Thread(target=work, args=(limited, transfers.end, rng.randrange(2**20) * 3 + i, failures))
        for i in range(4)
    ]
    threads += transfers.threads
    for thread in threads:
        thread.start()
    peak_anon = 0
    for thread in threads:
        while thread.is_alive():
            thread.join(0.05)
            peak_anon = max(peak_anon, anonymous_bytes(limited.pid))
    assert limited.is_running and group.kills == 0, limited.log.read_text()[-2000:]
    assert not failures, failures
    for kind in ("scan", "export", "load", "restore", "refused"):
        assert transfers.done[kind] > 0, transfers.done
    print(f"transfers {dict(transfers.done)},", end=" ")
    print(f"budgets {NAMED_MIB} MiB, limit {needed // MIB} MiB,", end=" ")
    print(f"peak with page cache {group.peak // MIB} MiB, of RssAnon {peak_anon // MIB} MiB")
    limited.stop()
    assert group.kills == 0
