# SPDX-License-Identifier: Apache-2.0
"""A disk that rows have filled, or others to its last byte: can it be freed with the server's own means, does
the server stop and start, and is each row that was acknowledged there?"""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES

import embtier

DIM = 256
BATCH = 1000  # rows: a mebibyte
DISK_MIB = 192 + 64 * LANES
LIMIT_S = 60


class Disk:
    """A file system of the server's own."""

    def __init__(self, daemon) -> None:
        self.daemon = daemon
        self.path = daemon.folder / "disk"
        self.path.mkdir()
        script = f'mount -t tmpfs -o size={DISK_MIB}m none {self.path} && exec "$0" "$@"'
        self.wrapper = ("unshare", "-Urm", "sh", "-c", script)
        if subprocess.run([*self.wrapper, "true"], capture_output=True, timeout=60).returncode != 0:
            pytest.skip("no tmpfs of our own here")
        daemon.configure(
            {
                "data": {"directories": [str(self.path)], "shards_per_directory": LANES},
                "cache": {"tiers": [daemon.dram(LANES, 4)]},
                "checkpoints": {"interval_seconds": 0},
                "rocksdb": {"memtable_bytes": f"{4 * LANES}MiB"},
                "lanes": {"write_queue_bytes": f"{LANES}MiB"},
            }
        )
        # A process that keeps the file system when the server has gone.
        self.keeper = subprocess.Popen([*self.wrapper, "sleep", "600"])
        self.inside = Path(f"/proc/{self.keeper.pid}/root{self.path}")
        await_true(self.is_mounted, "it is mounted")

    def is_mounted(self) -> bool:
        with contextlib.suppress(OSError):
            return self.inside.stat().st_dev != self.path.stat().st_dev
        return False

    def start(self) -> None:
        self.daemon.launch(wrapper=("nsenter", "-U", "-m", "--preserve-credentials", "-t", str(self.keeper.pid)))
        self.daemon.await_ready()

    def fill(self) -> None:
        """As another program, to the last byte."""
        with (self.inside / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            block = bytes(1 << 20)
            while len(block) > 1:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def reserve_bytes(self) -> int:
        return (self.inside / "reserve").stat().st_blocks * 512

    def end(self) -> None:
        if self.daemon.is_running:
            self.daemon.kill()
        self.keeper.kill()
        self.keeper.wait()


@pytest.fixture
def disk(make_daemon):
    disk = Disk(make_daemon(lanes=LANES))
    yield disk
    disk.end()


def await_true(condition, what: str):
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def rows_of(ids, number: int) -> np.ndarray:
    return np.repeat((ids + number).astype(np.float32)[:, None], DIM, axis=1)


def fill_with_rows(table, number: int = 1) -> int:
    """Sets new rows until there is no space for more, a while long. How many were acknowledged."""
    count = refused = 0
    while refused < 3:
        ids = np.arange(count, count + BATCH)
        try:
            table.set(ids, rows_of(ids, number))
            count += BATCH
        except embtier.NoSpaceError:
            refused += 1
            time.sleep(0.3)
        assert count < DISK_MIB * 1000
    return count


def must_hold(table, count: int, number: int = 1) -> None:
    for ids in np.array_split(np.arange(count), max(count // BATCH, 1)):
        assert (table.get(ids) == rows_of(ids, number)).all(), f"{table.name}: {ids[0]}…"


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
@pytest.mark.parametrize("durability", ["replay", "async", "sync"])
def test_a_full_disk_is_freed_by_a_drop(disk, durability, to_the_last_byte):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = server.create_table("rows", DIM, durability=durability)
        server.create_table("small", DIM).set(np.arange(10), rows_of(np.arange(10), 5))
        count = fill_with_rows(table)
        assert count > DISK_MIB * 1000 / 4, "most of the disk is there for rows"
        status = disk.daemon.metrics()
        assert status["store_reserve_held_bytes"] == status["store_reserve_bytes"] == disk.reserve_bytes() > 0
        assert status["store_space_refusals"] > 0
        if to_the_last_byte:
            disk.fill()
        must_hold(table, count)
        server.drop_table("rows")
        if to_the_last_byte:
            (disk.inside / "ballast").unlink()
        again = server.create_table("again", DIM, durability=durability)

        def is_set() -> bool:
            with contextlib.suppress(embtier.NoSpaceError):
                again.set(np.arange(BATCH), rows_of(np.arange(BATCH), 3))
                return True
            return False

        await_true(is_set, "what was dropped gives its space back")
        must_hold(server.open_table("small"), 10, 5)
        await_true(lambda: disk.reserve_bytes() == status["store_reserve_bytes"], "the reserve is filled again")
    disk.daemon.stop()
    disk.start()
    with disk.daemon.connect() as server:
        must_hold(server.open_table("again"), BATCH, 3)
        must_hold(server.open_table("small"), 10, 5)
    disk.daemon.stop()


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
def test_a_full_disk_takes_a_checkpoint_and_the_deletion_of_one(disk, to_the_last_byte):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = server.create_table("rows", DIM)
        first = server.checkpoint().id
        count = fill_with_rows(table)
        if to_the_last_byte:
            disk.fill()
        second = server.checkpoint().id
        server.delete_checkpoint(first)
        assert [found.id for found in server.checkpoints()] == [second]
        must_hold(table, count)
    disk.daemon.kill()
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        must_hold(server.open_table("rows"), count)
        server.drop_table("rows")
        server.checkpoint(keep=1)
    disk.daemon.stop()


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
@pytest.mark.parametrize("durability", ["replay", "async"])
def test_a_server_on_a_full_disk_stops_with_all_that_it_has(disk, durability, to_the_last_byte):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        count = fill_with_rows(server.create_table("rows", DIM, durability=durability))
    if to_the_last_byte:
        disk.fill()
    disk.daemon.stop()
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        must_hold(server.open_table("rows"), count)
        server.drop_table("rows")
    disk.daemon.stop()


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
def test_a_server_killed_on_a_full_disk_starts_and_serves_what_was_acknowledged(disk, to_the_last_byte):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        count = fill_with_rows(server.create_table("rows", DIM, durability="async"))
    if to_the_last_byte:
        disk.fill()
    for _ in range(2):
        disk.daemon.kill()
        disk.start()
        with disk.daemon.connect(timeout=LIMIT_S) as server:
            must_hold(server.open_table("rows"), count)
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        server.drop_table("rows")
    disk.daemon.stop()


def test_an_eager_table_that_does_not_fit_is_refused_when_it_is_asked_for(disk):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        before = disk.daemon.metrics()["store_written_bytes"]["flush"]
        for rows in (DISK_MIB * 1000, 1 << 40, 1 << 62):
            with pytest.raises(embtier.NoSpaceError, match=r"MiB are needed, and \d+ MiB are free"):
                server.create_table("rows", DIM, rows, eager=True)
        assert server.tables() == []
        assert disk.daemon.metrics()["store_written_bytes"]["flush"] == before
        server.create_table("rows", DIM, BATCH, eager=True, init=("constant", 2))
        assert (server.open_table("rows").get(np.arange(BATCH)) == 2).all()
    disk.daemon.stop()
