# SPDX-License-Identifier: Apache-2.0
"""A disk that rows, or other programs, have filled to the last byte can be freed with the server's own means. The server stops
and starts, and each acknowledged row is there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, LONG
from stores import paths, run_cli

import embtier

DIM = 1024  # long rows, as each takes a sanitizer's time
BATCH = 250  # rows, about a mebibyte
DISK_MIB = 48 + 48 * max(LANES, 2)  # a smaller disk has a smaller reserve
LIMIT_S = 60
MIB = 1 << 20
MOST_ROWS = DISK_MIB * BATCH


class Disk:
    """A file system of the server's own."""

    def __init__(self, daemon, home: str = "cache", mib: int = DISK_MIB, shards: int = LANES, memtable_mib: int = 2 * LANES) -> None:
        self.daemon, self.home = daemon, home
        tier = daemon.dram(LANES, 4)
        if home == "array":  # room for more rows than the disk has
            array_mib = MOST_ROWS * (DIM * 4 + 8) // MIB + 4
            tier |= {"bytes": f"{4 * LANES + array_mib}MiB", "array_bytes": f"{array_mib}MiB"}
        self.path = daemon.folder / "disk"
        self.path.mkdir()
        script = f'mount -t tmpfs -o size={mib}m none {self.path} && exec "$0" "$@"'
        self.wrapper = ("unshare", "-Urm", "sh", "-c", script)
        if subprocess.run([*self.wrapper, "true"], capture_output=True, timeout=60).returncode != 0:
            pytest.skip("no tmpfs of our own here")
        del daemon.config["data"]["reserve_bytes"]  # as large as the server makes it
        daemon.configure(
            {
                "data": {"directories": [str(self.path)], "shards_per_directory": shards},
                "cache": {"tiers": [tier]},
                "checkpoints": {"interval_seconds": 0},
                "rocksdb": {"memtable_bytes": f"{memtable_mib}MiB"},
                "lanes": {"write_queue_bytes": f"{LANES}MiB"},
            }
        )
        # This process keeps the file system when the server has gone.
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
        """Fills the disk to the last byte, as another program would."""
        (self.inside / "ballast").write_bytes(b"")
        self.take()

    def take(self) -> None:
        """Takes the present free space, too."""
        with (self.inside / "ballast").open("ab", buffering=0) as file:
            block = bytes(1 << 20)
            while len(block) > 1:
                try:
                    file.write(block)
                except OSError:
                    block = block[: len(block) // 2]

    def leave(self, wanted: float) -> None:
        """Leaves about @wanted bytes free, as another program would."""
        with (self.inside / "ballast").open("wb") as file, contextlib.suppress(OSError):
            info = os.statvfs(self.inside)
            os.posix_fallocate(file.fileno(), 0, max(int(info.f_bavail * info.f_frsize - wanted), 1))

    def create(self, server: embtier.Server, name: str = "rows", **options) -> embtier.Table:
        """A table for more rows than the disk has, in the home of this test."""
        rows = MOST_ROWS if self.home == "array" else None
        return server.create_table(name, DIM, rows, home=self.home, **options)

    def reserve_bytes(self) -> int:
        return (self.inside / "reserve").stat().st_blocks * 512

    def end(self) -> None:
        if self.daemon.is_running:
            self.daemon.kill()
        self.keeper.kill()
        self.keeper.wait()


@pytest.fixture(params=[os.environ["EMBTIER_TEST_HOME"]] if "EMBTIER_TEST_HOME" in os.environ else ["cache", "array"])
def disk(make_daemon, request):
    """A disk for tables of each home."""
    disk = Disk(make_daemon(lanes=LANES), request.param)
    yield disk
    disk.end()


@pytest.fixture
def some_disk(make_daemon, rng):
    """A disk for tables of a random home."""
    disk = Disk(make_daemon(lanes=LANES), os.environ.get("EMBTIER_TEST_HOME") or rng.choice(["cache", "array"]))
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


def fill_with_rows(table, number: int = 1, count: int = 0) -> int:
    """Sets new rows behind the existing @count, until the server refuses for some time because of space. Returns the number of
    rows."""
    refused = 0
    while refused < 3:
        ids = np.arange(count, count + BATCH)
        try:
            table.set(ids, rows_of(ids, number))
            count += BATCH
        except embtier.NoSpaceError:
            refused += 1
            time.sleep(0.3)
        assert count < MOST_ROWS
    return count


def must_hold(table, count: int, number: int = 1) -> None:
    for ids in np.array_split(np.arange(count), max(count // BATCH, 1)):
        assert (table.get(ids) == rows_of(ids, number)).all(), f"{table.name}: {ids[0]}…"


def warnings_of(daemon) -> dict[str, str]:
    """The broken rules of health, which decide how bad all is."""
    shown = json.loads(run_cli(daemon, "-o", "json", "status").stdout)
    found = {warning["name"]: warning["health"] for warning in shown["warnings"]}
    assert shown["health"] == ("bad" if "bad" in found.values() else "warning" if found else "ok")
    return found


def test_a_table_that_cannot_leave_its_array_as_the_disk_is_full_stays_there(some_disk):
    disk = some_disk
    mib, rows = 24, 22 * BATCH
    tier = disk.daemon.dram(LANES, 4) | {"bytes": f"{4 * LANES + mib}MiB", "array_bytes": f"{mib}MiB"}
    disk.daemon.configure({"cache": {"tiers": [tier]}})
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = server.create_table("rows", DIM, rows, home="array")
        for ids in np.array_split(np.arange(rows), rows // BATCH):
            table.set(ids, rows_of(ids, 2))
        disk.fill()
        with pytest.raises(embtier.NoSpaceError, match="table 'rows' keeps its home array: its updated rows cannot be written"):
            server.move_table("rows", "cache")
        must_hold(table, rows, 2)
        assert re.search(r"\n  write_error +NO_SPACE\n", run_cli(disk.daemon, "stats").stdout)
        assert warnings_of(disk.daemon)["writes_blocked"] == "bad"
        assert [spec.home for spec in server.tables()] == ["array"]
        (disk.inside / "ballast").unlink()
        await_true(lambda: disk.daemon.metrics()["write_queue_bytes"] == 0, "what was queued is written")
        assert "writes_blocked" not in warnings_of(disk.daemon)
        assert server.move_table("rows", "cache") > 0
        must_hold(table, rows, 2)
    disk.daemon.stop()
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        assert server.open_table("rows").spec.home == "cache"
        must_hold(server.open_table("rows"), rows, 2)


# Each durability, with the home of which others fill the disk to the last byte; rows alone fill it in the other home. So each two of
# durability, home and filler meet. The long form has all three together.
OTHERS_FILL = [("replay", "cache"), ("async", "array"), ("sync", "cache")]
if LONG:
    OTHERS_FILL += [("replay", "array"), ("async", "cache"), ("sync", "array")]


@pytest.mark.parametrize(("durability", "others_fill"), OTHERS_FILL)
def test_a_full_disk_is_freed_by_a_drop(disk, durability, others_fill):
    to_the_last_byte = disk.home == others_fill
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = disk.create(server, durability=durability)
        server.create_table("small", DIM).set(np.arange(10), rows_of(np.arange(10), 5))
        count = fill_with_rows(table)
        # A compaction may have taken the free space at that moment, so that the disk refused rows before the reserve was near.
        while (status := disk.daemon.metrics())["store_space_refusals"] == 0:
            count = fill_with_rows(table, count=count)
        assert count > DISK_MIB * BATCH / 4, "most of the disk is there for rows"
        await_true(lambda: reserve_is_full(disk), "no rows take the reserve")
        assert disk.reserve_bytes() == status["store_reserve_bytes"]
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


def skip_if_memory_has_more_than_the_reserve(disk, to_the_last_byte: bool) -> None:
    """See test_what_others_have_taken_from_an_array_is_waited_for."""
    if disk.home == "array" and to_the_last_byte:
        pytest.skip("an array of a replay table has all its changed rows in memory")


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
def test_a_full_disk_takes_a_checkpoint_and_the_deletion_of_one(disk, to_the_last_byte):
    skip_if_memory_has_more_than_the_reserve(disk, to_the_last_byte)
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = disk.create(server)
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


@pytest.mark.parametrize(("durability", "others_fill"), [pair for pair in OTHERS_FILL if pair[0] != "sync"])
def test_a_server_on_a_full_disk_stops_with_all_that_it_has(disk, durability, others_fill):
    to_the_last_byte = disk.home == others_fill
    if durability == "replay":
        skip_if_memory_has_more_than_the_reserve(disk, to_the_last_byte)
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        count = fill_with_rows(disk.create(server, durability=durability))
    if to_the_last_byte:
        disk.fill()
    disk.daemon.stop()
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        must_hold(server.open_table("rows"), count)
        server.drop_table("rows")
    disk.daemon.stop()


def test_what_others_have_taken_from_an_array_is_waited_for(make_daemon):
    """The changed rows of a replay table are in its array until a checkpoint or a stop. The disk had room for them when they were
    acknowledged. If other programs take that room, no checkpoint is made, rows are served from memory, and a stop waits."""
    disk = Disk(make_daemon(lanes=LANES), "array")
    disk.start()
    try:
        with disk.daemon.connect(timeout=LIMIT_S) as server:
            table = disk.create(server)
            first = server.checkpoint().id
            count = fill_with_rows(table)
            assert count > DISK_MIB * BATCH / 4, "most of the disk is there for rows"
            disk.fill()
            with pytest.raises(embtier.NoSpaceError, match="no checkpoint"):
                server.checkpoint()
            assert [found.id for found in server.checkpoints()] == [first]
            must_hold(table, count)
            with pytest.raises(embtier.NoSpaceError, match="no space left on the server's disk"):
                table.set(np.arange(BATCH), rows_of(np.arange(BATCH), 2))
            told = disk.daemon.logged("the disk is full except for the reserve")
            assert {line["fullest_directory"] for line in told} == {str(disk.path)}
            must_hold(table, count)
        disk.daemon.signal(signal.SIGTERM)
        await_true(lambda: "rows cannot be written back, and the write is retried" in disk.daemon.log.read_text(), "the stop waits")
        assert disk.daemon.is_running
        (disk.inside / "ballast").unlink()
        disk.daemon.await_end(0)
        disk.start()
        with disk.daemon.connect(timeout=LIMIT_S) as server:
            must_hold(server.open_table("rows"), count)
        disk.daemon.stop()
    finally:
        disk.end()


@pytest.mark.parametrize("to_the_last_byte", [False, True], ids=["rows", "others"])
def test_a_server_killed_on_a_full_disk_starts_and_serves_what_was_acknowledged(disk, to_the_last_byte):
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        count = fill_with_rows(disk.create(server, durability="async"))
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


SHARDS = 64  # with two databases each


def reserve_is_full(disk) -> bool:
    status = disk.daemon.metrics()
    return status["store_reserve_held_bytes"] == status["store_reserve_bytes"] > 0


@pytest.fixture
def wide_disk(make_daemon):
    """The reserve has less than 4 MiB for each database, but more than each needs."""
    disk = Disk(make_daemon(lanes=LANES), mib=512, shards=SHARDS, memtable_mib=32)
    yield disk
    disk.end()


@pytest.mark.parametrize("stopped", [False, True], ids=["killed", "stopped"])
@pytest.mark.parametrize("durability", ["replay", "sync"])
def test_many_shards_start_on_a_disk_that_others_have_filled(wide_disk, durability, stopped):
    """Each database makes some files when it is opened; the reserve has room for all of them."""
    disk, ids = wide_disk, np.arange(SHARDS * 25)
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        disk.create(server, durability=durability).set(ids, rows_of(ids, 1))
        server.checkpoint()
    await_true(lambda: reserve_is_full(disk), "the reserve is filled")
    disk.fill()
    for _ in range(2):
        if stopped:
            disk.daemon.stop()
        else:
            disk.daemon.kill()
        disk.start()
        with disk.daemon.connect(timeout=LIMIT_S) as server:
            assert (server.open_table("rows").get(ids) == rows_of(ids, 1)).all()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        server.drop_table("rows")
        server.checkpoint()
    disk.daemon.stop()


def test_what_uses_the_reserve_leaves_a_start_its_part(wide_disk):
    """While a checkpoint is made, other programs take the space that the server gives up for it; then the server dies."""
    disk, ids = wide_disk, np.arange(SHARDS * 25)
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = disk.create(server, durability="async")
        table.set(ids, rows_of(ids, 1))
        await_true(lambda: reserve_is_full(disk), "the reserve is filled")
        disk.fill()
        ended = threading.Event()
        greedy = threading.Thread(target=lambda: [disk.take() for _ in iter(ended.is_set, True)])
        greedy.start()
        try:
            for _ in range(3):
                with contextlib.suppress(embtier.NoSpaceError, embtier.IoError):
                    server.checkpoint()
        finally:
            ended.set()
            greedy.join()
        assert disk.reserve_bytes() > 0
        disk.daemon.kill()
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        assert (server.open_table("rows").get(ids) == rows_of(ids, 1)).all()
    disk.daemon.kill()


def test_an_eager_table_that_does_not_fit_is_refused_when_it_is_asked_for(some_disk):
    disk = some_disk
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        before = disk.daemon.metrics()["store_written_bytes"]["flush"]
        for rows in (DISK_MIB * BATCH, 1 << 40, 1 << 62):
            with pytest.raises(embtier.NoSpaceError, match=r"MiB are needed, and \d+ MiB are free"):
                server.create_table("rows", DIM, rows, eager=True)
        assert server.tables() == []
        assert disk.daemon.metrics()["store_written_bytes"]["flush"] == before
        server.create_table("rows", DIM, BATCH, eager=True, init=("constant", 2))
        assert (server.open_table("rows").get(np.arange(BATCH)) == 2).all()
    disk.daemon.stop()


NO_ROOM = r"MiB are needed, and \d+ MiB are free"


def set_rows(table, count: int, number: int = 1) -> None:
    """Sets rows, with retries while a compaction takes space for a while."""
    for ids in np.array_split(np.arange(count), count // BATCH):
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                table.set(ids, rows_of(ids, number))
                break
            except embtier.NoSpaceError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def written_bytes(daemon) -> float:
    return daemon.metrics()["store_written_bytes"]["flush"]


@pytest.mark.parametrize("durability", ["replay", "async"])
def test_a_restore_that_does_not_fit_is_refused_before_anything_is_made(some_disk, durability):
    """There is room for a second copy of the small table only. When other programs free some space, both fit."""
    disk = some_disk
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        count = DISK_MIB // 8 * BATCH
        set_rows(disk.create(server, durability=durability), count)
        server.create_table("small", DIM).set(np.arange(10), rows_of(np.arange(10), 5))
        made = server.checkpoint().id

        def leave_half() -> None:
            """A compaction takes space when it begins, and frees some when it ends."""
            disk.leave(disk.daemon.metrics()["store_reserve_bytes"] + count * DIM * 4 // 2)

        def restored(name: str) -> bool:
            if name == "small":
                leave_half()
            with contextlib.suppress(embtier.NoSpaceError, embtier.IoError):
                server.restore_checkpoint(made, [name], name=f"{name}.again")
                return True
            return False

        def refused() -> str | None:
            leave_half()
            before = written_bytes(disk.daemon)
            try:
                server.restore_checkpoint(made, ["rows"], name="rows.again")
            except embtier.NoSpaceError as error:
                assert sorted(one.name for one in server.tables()) == ["rows", "small"]
                if "of checkpoint" not in str(error):  # a new compaction has taken the space meanwhile
                    return None
                assert durability != "replay" or written_bytes(disk.daemon) == before  # logs may have grown
                return str(error)
            server.drop_table("rows.again")
            return None

        error = await_true(refused, "it has no room")
        assert re.search(NO_ROOM, error)
        said = re.search(r"1 table of checkpoint (\d+), about (\d+) rows: (\d+) MiB are needed", error)
        assert int(said[1]) == made and 0.5 * count < int(said[2]) <= 1.05 * count, error
        await_true(lambda: restored("small"), "there is room for that one, but while a shard compacts")
        assert (server.open_table("small.again").get(np.arange(10)) == rows_of(np.arange(10), 5)).all()
        must_hold(server.open_table("rows"), count)
        (disk.inside / "ballast").unlink()
        await_true(lambda: restored("rows"), "there is room again")
        must_hold(server.open_table("rows.again"), count)
    disk.daemon.stop()


def test_a_restore_is_not_refused_for_what_rows_were_before(some_disk):
    """Files have rows several times, so the checkpoint is larger than the tables restored from it."""
    disk = some_disk
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        table = disk.create(server)
        count = DISK_MIB // 8 * BATCH
        for number in range(3):
            set_rows(table, count, number)
        made = server.checkpoint().id
        server.restore_checkpoint(made, ["rows"], name="again")
        must_hold(server.open_table("again"), count, 2)
    disk.daemon.stop()


def test_a_restore_of_another_store_that_does_not_fit_ends_the_start_before_anything_is_made(some_disk, make_daemon):
    disk = some_disk
    other = make_daemon()
    other.start()
    with other.connect(timeout=LIMIT_S) as server:
        set_rows(server.create_table("rows", DIM), DISK_MIB * 6 // 5 * BATCH)
        server.checkpoint()
    other.stop()
    nsenter = ("nsenter", "-U", "-m", "--preserve-credentials", "-t", str(disk.keeper.pid))
    said = disk.daemon.fail_to_start("--restore-from", paths(other), wrapper=nsenter)
    assert re.search(NO_ROOM, said) and "1 table of checkpoint" in said, said
    disk.start()
    with disk.daemon.connect(timeout=LIMIT_S) as server:
        assert server.tables() == []
        set_rows(server.create_table("own", DIM), BATCH)
    disk.daemon.stop()


@pytest.mark.parametrize("kind", ["array", "array with ids", "export"])
def test_an_import_that_does_not_fit_is_refused_before_anything_is_made(some_disk, make_daemon, tmp_path, kind):
    disk = some_disk
    def weights(count: int) -> Path:
        path = tmp_path / f"{count}.npy"
        array = np.lib.format.open_memmap(path, "w+", np.float32, (count, DIM))  # a sparse file of zeros
        del array
        return path

    count, options = DISK_MIB * 6 // 5 * BATCH, {}
    disk.start()
    if kind == "array with ids":
        np.save(tmp_path / "ids.npy", np.arange(count, dtype=np.uint64) * 7)
        options["ids_path"] = tmp_path / "ids.npy"
    path = weights(count)
    if kind == "export":
        other = make_daemon()
        other.start()
        with other.connect(timeout=LIMIT_S, arena_bytes=32 << 20) as server:
            server.import_table(path, "big")
            path = tmp_path / "export"
            server.export_table("big", path)
        other.stop()
    with disk.daemon.connect(timeout=LIMIT_S, arena_bytes=32 << 20) as server:
        before = written_bytes(disk.daemon)
        with pytest.raises(embtier.NoSpaceError, match=NO_ROOM) as caught:
            server.import_table(path, "big", **options)
        assert f"table 'big', {count} rows" in str(caught.value)
        assert server.tables() == [] and written_bytes(disk.daemon) == before
        server.import_table(weights(BATCH), "little")
        # A name that is taken is reported before missing space.
        with pytest.raises(embtier.ExistsError):
            server.import_table(path, "little", **options)
    disk.daemon.stop()
