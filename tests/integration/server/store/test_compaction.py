# SPDX-License-Identifier: Apache-2.0
"""`embtier compaction`: an operator looks at the compaction of shards, puts it off, gives it hours, and has the shards catch up,
while clients read and write."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import pytest
from daemons import EMBTIERD, Daemon
from stores import run_cli

ROWS, DIM = 512, 256
IDS = np.arange(ROWS)
VERSIONS = 20  # half a MiB each: level 0 has many files, and fewer than make a shard urgent
LIMIT_S = 60


def rows_of(version: int) -> np.ndarray:
    return np.repeat((IDS + version * ROWS).astype(np.float32)[:, None], DIM, axis=1)


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    """With one shard and small write buffers. Its table's rows are written to disk at once."""
    daemon = make_daemon()
    daemon.configure({"data": {"shards_per_directory": 1}, "lanes": {"count": 1}, "rocksdb": {"memtable_bytes": "1MiB"}})
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS, durability="async")
    return daemon


def write(daemon: Daemon, versions: int = VERSIONS) -> None:
    with daemon.connect() as server:
        table = server.open_table("rows")
        for version in range(1, versions + 1):
            table.set(IDS, rows_of(version))


def check_rows(daemon: Daemon, version: int = VERSIONS) -> None:
    with daemon.connect() as server:
        np.testing.assert_array_equal(server.open_table("rows").get(IDS), rows_of(version))


def embtier(daemon: Daemon, *arguments: str) -> str:
    done = run_cli(daemon, "compaction", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(daemon: Daemon) -> dict:
    done = run_cli(daemon, "-o", "json", "compaction", "status")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def states(daemon: Daemon) -> set[str]:
    return {database["state"] for database in status(daemon)["databases"]}


def await_states(daemon: Daemon, wanted: set[str]) -> None:
    until = time.monotonic() + LIMIT_S
    while (found := states(daemon)) != wanted:
        assert time.monotonic() < until, f"{found}, not {wanted}: {status(daemon)}"
        time.sleep(0.05)


def later_hours() -> str:
    """Hours that begin in two and end in three. This machine's local time is the server's."""
    now = datetime.now()
    return f"{now + timedelta(hours=2):%H:%M}-{now + timedelta(hours=3):%H:%M}"


def test_a_limit_of_bytes_is_a_knob_and_told(daemon: Daemon):
    assert status(daemon)["limit"] == {"bytes_per_second": 0, "bytes_per_second_now": 0, "state": "none", "why": "no limit is set"}
    assert run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "3MiB").returncode == 0
    write(daemon, 1)
    until = time.monotonic() + LIMIT_S
    while (limit := status(daemon)["limit"])["state"] != "holds":
        assert time.monotonic() < until, limit
        write(daemon, 1)
    assert limit == {"bytes_per_second": 3 << 20, "bytes_per_second_now": 3 << 20, "state": "holds", "why": "the limit holds"}
    assert "limit: 3MiB a second, " in embtier(daemon, "status")
    refused = run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "1KiB")
    assert refused.returncode != 0 and "at least 1 MiB" in refused.stderr
    assert run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "0").returncode == 0
    assert status(daemon)["limit"]["bytes_per_second"] == 0


def test_as_many_new_files_as_a_knob_says_start_a_compaction(daemon: Daemon):
    def await_files(are_so: Callable[[int, set[str]], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while True:
            told = status(daemon)["databases"]
            if are_so(max(database["level0_files"] for database in told), {database["state"] for database in told}):
                return
            assert time.monotonic() < until, told
            time.sleep(0.05)

    done = run_cli(daemon, "knob", "set", "rocksdb.compaction_trigger_files", "16")
    assert (done.returncode, done.stdout) == (0, "rocksdb.compaction_trigger_files: 4 -> 16\n")
    write(daemon, 8)
    await_files(lambda files, states: files >= 5 and states == {"idle"})  # with four, they would be due
    assert run_cli(daemon, "knob", "set", "rocksdb.compaction_trigger_files", "2").returncode == 0
    await_files(lambda files, states: files < 2 and states == {"idle"})
    check_rows(daemon, 8)


def test_it_is_paused_resumed_and_told(daemon: Daemon):
    assert "paused" in embtier(daemon, "pause")
    write(daemon)
    await_states(daemon, {"idle", "paused"})
    (waiting,) = (database for database in status(daemon)["databases"] if database["state"] == "paused")
    assert waiting["level0_files"] >= 4 and waiting["running"] == 0
    assert status(daemon)["paused"] is True
    text = embtier(daemon, "status")
    assert "embtier compaction resume" in text and waiting["path"] in text and "1 of 2 databases have nothing to compact" in text
    assert "goes on" in embtier(daemon, "resume")
    await_states(daemon, {"idle"})
    assert status(daemon)["paused"] is False
    assert embtier(daemon, "status").startswith("goes on: up to 1 shard of each device at a time")
    check_rows(daemon)


def test_all_shards_catch_up_while_clients_write(daemon: Daemon):
    embtier(daemon, "pause")
    write(daemon)
    await_states(daemon, {"idle", "paused"})
    run_is_over, written = threading.Event(), [VERSIONS]

    def go_on() -> None:
        with daemon.connect() as server:
            table = server.open_table("rows")
            while not run_is_over.is_set():
                table.set(IDS, rows_of(written[0] + 1))
                written[0] += 1

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        assert embtier(daemon, "run") == "all shards have compacted\n"
    finally:
        run_is_over.set()
        writer.join()
    assert status(daemon)["paused"] is True
    assert daemon.metrics()["store_compactions"] > 0
    check_rows(daemon, written[0])


WIDE = 8192


def pile_up(daemon: Daemon) -> None:
    """Has a shard wait with 12 files of a MiB or more, whose compaction writes a MiB a second. It reads no more than it merges.
    It has few more files: with many, the shard would be urgent, and the limit give way."""

    daemon.restart({"rocksdb": {"options": "compaction_readahead_size=16384", "direct_io": "off"}})
    assert run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "1MiB").returncode == 0
    with daemon.connect() as server:
        server.create_table("wide", DIM, WIDE, durability="async")
    pile_up_files(daemon)


def level0_files(now: dict) -> int:
    return max(database["level0_files"] for database in now["databases"])


def pile_up_files(daemon: Daemon) -> None:
    embtier(daemon, "pause")
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.open_table("wide")

        def write_part(part: int) -> None:  # as many rows as a write buffer has
            version, first = divmod(part * 1024, WIDE)
            table.set(np.arange(first, first + 1024), np.full((1024, DIM), version, np.float32))

        for part in range(16):
            write_part(part)
        until = time.monotonic() + LIMIT_S
        part, files, settled = 16, -1, 0
        while (now := level0_files(status(daemon))) < 12:
            assert time.monotonic() < until, status(daemon)
            settled = settled + 1 if now == files else 0
            files = now
            if settled >= 10:  # a flush that was late has written several buffers as one file
                write_part(part)
                part, settled = part + 1, 0
            time.sleep(0.05)


@pytest.fixture
def reader(daemon: Daemon):
    """A client that is never quiet, so that the limit holds. Its updates make few files."""
    is_over, has_begun = threading.Event(), threading.Event()

    def go_on() -> None:
        with daemon.connect() as server:
            table = server.open_table("rows")
            while not is_over.is_set():
                table.set(IDS[:4], rows_of(1)[:4])
                has_begun.set()
                time.sleep(0.002)

    threads: list[threading.Thread] = []

    def begin() -> None:
        threads.append(threading.Thread(target=go_on))
        threads[-1].start()
        assert has_begun.wait(LIMIT_S)
        time.sleep(0.3)  # the limit looks now and then

    yield begin
    is_over.set()
    for thread in threads:
        thread.join()


def begin_again_if_over(daemon: Daemon, now: dict) -> None:
    """A compaction that begins before the limit has noticed the reader is over in a moment, and there must be another."""
    if now["progress"]["total_bytes"] == 0 and level0_files(now) < 4:
        pile_up_files(daemon)
        embtier(daemon, "resume")


def watch_progress(daemon: Daemon, count: int) -> list[dict]:
    """Returns so many different states of compactions that are neither at their begin nor at their end."""
    until = time.monotonic() + LIMIT_S
    seen: list[dict] = []
    while len(seen) < count:
        now = status(daemon)
        assert time.monotonic() < until, (seen, now)
        progress = now["progress"]
        if 0 < progress["done_bytes"] < progress["total_bytes"] and (not seen or progress != seen[-1]["progress"]):
            seen.append(now)
        begin_again_if_over(daemon, now)
        time.sleep(0.05)
    return seen


def test_a_compaction_that_runs_tells_how_far_it_is(daemon: Daemon, reader):
    pile_up(daemon)
    idle = status(daemon)
    assert idle["progress"] == {"done_bytes": 0, "total_bytes": 0, "remaining_s": None}
    assert all(one["done_bytes"] == one["total_bytes"] == 0 and one["remaining_s"] is None for one in idle["databases"])
    reader()
    embtier(daemon, "resume")
    for now in watch_progress(daemon, 3):
        (one,) = (database for database in now["databases"] if database["total_bytes"] > 0)
        progress = now["progress"]
        assert one["state"] == "runs" and one["running"] > 0 and one["elapsed_s"] > 0
        assert (progress["done_bytes"], progress["total_bytes"]) == (one["done_bytes"], one["total_bytes"])
        assert one["total_bytes"] > 4 << 20
        left = one["elapsed_s"] * (one["total_bytes"] / one["done_bytes"] - 1)
        assert one["remaining_s"] == progress["remaining_s"] == pytest.approx(left, abs=0.01)
    text = embtier(daemon, "status")
    if "compacting: " in text:  # it may have ended just now
        assert " read (" in text and " left" in text and " of " in text
    assert run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "0").returncode == 0
    until = time.monotonic() + LIMIT_S
    while status(daemon)["progress"]["total_bytes"] > 0:
        assert time.monotonic() < until
        time.sleep(0.05)


def read_status_json(daemon: Daemon) -> dict:
    address = next(line["address"] for line in reversed(daemon.logged("listening")) if line["address"].startswith("http://"))
    with urllib.request.urlopen(f"{address}/status.json", timeout=LIMIT_S) as answer:
        return json.load(answer)


def read_top(daemon: Daemon) -> dict:
    return json.loads(run_cli(daemon, "-o", "json", "top", "--batch", "-n", "1", "--panel", "shards").stdout)


def await_progress(daemon: Daemon, look: Callable[[], dict]) -> dict:
    until = time.monotonic() + LIMIT_S
    while not 0 < (now := look())["compaction"]["done_bytes"] < now["compaction"]["total_bytes"]:
        assert time.monotonic() < until, now
        begin_again_if_over(daemon, status(daemon))
    return now


@pytest.mark.skipif(b"this embtierd was built without HTTP" in EMBTIERD.read_bytes(), reason="built without HTTP")
def test_the_page_and_top_tell_how_far_compactions_are(daemon: Daemon, reader):
    daemon.configure({"http": {"listen": "127.0.0.1:0"}})  # in force when shards pile up
    pile_up(daemon)
    idle = {"done_bytes": 0, "total_bytes": 0, "remaining_s": None}
    assert status(daemon)["progress"] == read_status_json(daemon)["compaction"] == read_top(daemon)["compaction"] == idle
    assert all(row["read_share"] is row["remaining_s"] is None for row in read_top(daemon)["shards"])
    reader()
    embtier(daemon, "resume")
    now = await_progress(daemon, lambda: read_status_json(daemon))
    (one,) = (database for database in now["databases"] if database["total_bytes"] > 0)
    assert {name: one[name] for name in idle} == now["compaction"]
    assert one["remaining_s"] == pytest.approx(one["elapsed_s"] * (one["total_bytes"] / one["done_bytes"] - 1), abs=0.01)
    frame = await_progress(daemon, lambda: read_top(daemon))
    (row,) = (row for row in frame["shards"] if row["read_share"] is not None)
    assert row["read_share"] == pytest.approx(frame["compaction"]["done_bytes"] / frame["compaction"]["total_bytes"])
    assert row["remaining_s"] == frame["compaction"]["remaining_s"] and row["state"] == "runs"
    text = run_cli(daemon, "top", "--batch", "-n", "1", "--panel", "shards").stdout
    assert " LEFT " in text
    if "\ncompacting: " in text:  # it may have ended just now
        assert " read (" in text


@pytest.mark.parametrize("full", [False, True])
def test_a_run_tells_how_far_it_is(daemon: Daemon, reader, full: bool):
    pile_up(daemon)
    reader()
    seen: list[tuple[int, int, str]] = []

    def is_told() -> bool:
        return any(0 < done < total for done, total, _ in seen)

    def look(is_over: threading.Event) -> None:
        while not is_over.is_set():
            for job in json.loads(run_cli(daemon, "-o", "json", "jobs").stdout):
                if job["kind"] == "compaction run" and job["total"] and (job["done"], job["total"], job["unit"]) not in seen:
                    seen.append((job["done"], job["total"], job["unit"]))
                if is_told():  # enough: let it end
                    run_cli(daemon, "knob", "set", "rocksdb.compaction_bytes_per_second", "0")
            time.sleep(0.05)

    def run() -> None:
        is_over = threading.Event()
        watcher = threading.Thread(target=look, args=(is_over,))
        watcher.start()
        try:
            embtier(daemon, "run", *(["--full"] if full else []))
        finally:
            is_over.set()
            watcher.join()

    until = time.monotonic() + LIMIT_S
    run()
    while not is_told():  # it began before the limit had noticed the reader
        assert time.monotonic() < until, seen
        pile_up_files(daemon)
        run()
    assert {unit for _, _, unit in seen} == {"MiB"}
    assert all(done <= total for done, total, _ in seen) and max(total for _, total, _ in seen) >= 8


def test_it_keeps_hours_until_the_next_start(daemon: Daemon):
    hours = later_hours()
    assert "rocksdb.compaction_hours" in embtier(daemon, "schedule", hours)
    write(daemon)
    await_states(daemon, {"idle", "waits for its hours"})
    told = status(daemon)
    assert told["hours"] == hours and told["in_hours"] is False and 100 <= told["minutes_to_hours"] <= 120
    assert f"waits for its hours ({hours})" in embtier(daemon, "status")
    daemon.restart({"rocksdb": {"compaction_hours": "00:00-24:00"}})
    assert status(daemon)["hours"] == "00:00-24:00"
    await_states(daemon, {"idle"})
    daemon.restart({"rocksdb": {"compaction_hours": hours}})
    assert status(daemon)["in_hours"] is False
    embtier(daemon, "schedule", "")
    assert status(daemon)["in_hours"] is True
    check_rows(daemon)


@pytest.mark.parametrize("hours", ["22:00", "6-7", "22:00-25:00", "10:00-10:00", "x" * 300])
def test_wrong_hours_are_refused(daemon: Daemon, hours: str):
    done = run_cli(daemon, "compaction", "schedule", hours)
    assert done.returncode == 2 and "22:00-06:00" in done.stderr
    daemon.stop()
    daemon.configure({"rocksdb": {"compaction_hours": hours[:255]}})
    said = daemon.fail_to_start()
    assert "rocksdb.compaction_hours" in said and "22:00-06:00" in said


def test_all_files_are_rewritten_in_another_layout(daemon: Daemon):
    """Their names are not used again, so files that stay were not rewritten. RocksDB deletes files after it has told that it is done."""

    def files() -> set:
        return {path for path in daemon.folder.rglob("shard-*/*/*") if path.suffix in (".sst", ".blob")}

    def await_files(are_so: Callable[[set], bool]) -> None:
        until = time.monotonic() + LIMIT_S
        while not are_so(found := files()):
            assert time.monotonic() < until, found
            time.sleep(0.05)

    write(daemon, 3)
    daemon.restart({"rocksdb": {"layout": "blob", "compaction_hours": later_hours()}})  # nothing else compacts
    before = files()
    assert before and not any(path.suffix == ".blob" for path in before)
    assert embtier(daemon, "run", "--full") == "all files have been rewritten\n"
    await_files(lambda found: not before & found and any(path.suffix == ".blob" for path in found))
    check_rows(daemon, 3)
    daemon.restart({"rocksdb": {"layout": "leveled"}})
    assert embtier(daemon, "run", "--full")
    await_files(lambda found: not any(path.suffix == ".blob" for path in found))
    check_rows(daemon, 3)


def test_with_nothing_to_do_a_run_is_over_and_leaves_no_job(daemon: Daemon):
    assert embtier(daemon, "run") == "all shards have compacted\n"
    done = run_cli(daemon, "-o", "json", "jobs")
    assert json.loads(done.stdout) == []
