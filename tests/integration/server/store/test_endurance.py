# SPDX-License-Identifier: Apache-2.0
"""Every byte that goes to SSD is counted for a cause and a table, and `embtier endurance` shows this."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, Daemon

DIM = 128
ROWS = 40_000


def process_written_bytes(daemon) -> int:
    lines = Path(f"/proc/{daemon.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def endurance(daemon, *arguments: str) -> dict:
    done = subprocess.run(
        [CLI, "-s", daemon.socket, "-t", "0", "-o", "json", "endurance", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def while_measuring(daemon, work, is_good, *options: str) -> str:
    """The report of an interval in which @work was done; a slow machine may need a longer one."""
    for seconds in (2, 8, 32):
        command = [CLI, "-s", daemon.socket, "-t", "0", *options, "endurance", "--interval", str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as measuring:
            work()
            report = measuring.communicate()[0]
        assert measuring.returncode == 0
        if is_good(report):
            return report
    pytest.fail(f"nothing was written in any interval: {report}")


def has_writes(report: str) -> bool:
    return json.loads(report)["written_bytes"] > 0 and json.loads(report)["stored_row_bytes"] > 0


def update(table, rounds: int, rows: int = ROWS) -> None:
    """Writes every row several times, so that flushes and compactions have something to do."""
    for turn in range(rounds):
        for first in range(0, rows, 8000):
            ids = np.arange(first, first + 8000)
            table.set(ids, np.full((8000, DIM), turn + 1))


def wait_until_quiet(daemon) -> None:
    """Waits until no flush and no compaction is under way: a table file is counted only when it is complete."""
    deadline = time.monotonic() + 120
    before, since = None, time.monotonic()
    while time.monotonic() < since + 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
        metrics = daemon.metrics()
        now = (
            process_written_bytes(daemon),
            metrics["store_written_bytes"],
            metrics["store_pending_compaction_bytes"],
            metrics["write_queue_rows"],
        )
        if now != before or metrics["store_compacting_shards"]:
            before, since = now, time.monotonic()


@pytest.fixture
def writing_daemon(make_daemon):
    daemon = make_daemon(
        {
            "cache": {"tiers": [Daemon.dram()]},  # a tier's file on SSD would add bytes of its own
            "endurance": {"capacity_bytes": "1GB", "rated_written_bytes": "365GB", "rated_years": 1},
        }
    )
    daemon.start()
    return daemon


def test_the_causes_add_up_to_what_the_system_counts(writing_daemon):
    with writing_daemon.connect(arena_bytes=32 << 20) as server:
        update(server.create_table("rows", DIM), 6)
    wait_until_quiet(writing_daemon)
    seen = process_written_bytes(writing_daemon)
    written = writing_daemon.metrics()["store_written_bytes"]
    device = os.stat(writing_daemon.config["data"]["directories"][0]).st_dev
    if seen == 0 or os.major(device) == 0:  # the data are in memory; only the name of a socket on disk may be written
        pytest.skip("this file system does not count what is written to it")
    assert set(written) == {"flush", "compaction", "log", "blob", "checkpoint", "import", "other"}
    assert written["flush"] > ROWS * DIM * 4 and written["compaction"] > 0 and written["other"] > 0
    assert written["log"] == 0  # the table's durability is `replay`
    assert sum(written.values()) == pytest.approx(seen, rel=0.02)


def test_bytes_go_to_the_table_whose_rows_they_are(writing_daemon):
    with writing_daemon.connect(arena_bytes=32 << 20) as server:
        hot, cold = server.create_table("hot", DIM), server.create_table("cold", DIM)
        server.create_table("read_only", DIM).get(np.arange(100))
        update(cold, 1)
        update(hot, 4)
        wait_until_quiet(writing_daemon)
        report = endurance(writing_daemon)
        tables = {table["name"]: table for table in report["tables"]}
        for name, rounds in {"hot": 4, "cold": 1, "read_only": 0}.items():
            assert tables[name]["updated_rows"] == rounds * ROWS
            assert tables[name]["updated_bytes"] == rounds * ROWS * DIM * 4
        assert tables["read_only"]["flush_bytes"] == tables["read_only"]["compaction_bytes"] == 0
        assert tables["hot"]["flush_bytes"] > 2 * tables["cold"]["flush_bytes"] > ROWS * DIM * 4

        causes = report["written_bytes_by_cause"]
        both = [tables["hot"], tables["cold"]]
        assert sum(table["flush_bytes"] for table in both) == pytest.approx(causes["flush"], abs=1000)
        assert sum(table["compaction_bytes"] for table in both) == pytest.approx(causes["compaction"], abs=1000)
        command = [CLI, "-s", writing_daemon.socket, "-t", "0", "endurance"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert "(dropped)" not in text and "\n(all) " in text  # none was dropped yet; some bytes belong to no table
        server.drop_table("cold")
        report = endurance(writing_daemon)
        assert report["dropped_tables"]["flush_bytes"] >= tables["cold"]["flush_bytes"] - 1000
        assert report["dropped_tables"]["updated_bytes"] == ROWS * DIM * 4


def test_rates_are_those_of_the_interval_and_the_rating_that_of_the_configuration(writing_daemon):
    with writing_daemon.connect(arena_bytes=32 << 20) as server:
        table = server.create_table("rows", DIM)
        update(table, 2)
        wait_until_quiet(writing_daemon)
        young = endurance(writing_daemon)
        assert young["written_bytes"] > 0 and young["written_bytes_per_day"] is None and young["rated_life_years"] is None
        report = json.loads(while_measuring(writing_daemon, lambda: (update(table, 2), server.checkpoint()), has_writes, "-o", "json"))
    assert report["capacity_bytes"] == 10**9 and report["rated_written_bytes"] == 365 * 10**9
    assert report["rated_drive_writes_per_day"] == pytest.approx(1)
    assert report["written_bytes"] == sum(report["written_bytes_by_cause"].values()) > 0
    assert report["written_bytes_per_day"] == pytest.approx(report["written_bytes"] * 86400 / report["seconds"])
    assert report["drive_writes_per_day"] == pytest.approx(report["written_bytes_per_day"] / 10**9)
    assert report["rated_life_years"] == pytest.approx(1 / report["drive_writes_per_day"])
    assert report["write_amplification"] == pytest.approx(
        report["written_bytes"] / report["all_tables"]["updated_bytes"]
    )
    assert report["store_amplification"] == pytest.approx(report["written_bytes"] / report["stored_row_bytes"])

    deadline = time.monotonic() + 60
    while True:  # a compaction may begin late
        idle = endurance(writing_daemon, "--interval", "0.3")["all_tables"]
        assert idle["updated_rows"] == 0
        if idle["flush_bytes"] == idle["compaction_bytes"] == 0:
            break
        assert time.monotonic() < deadline


def test_updates_that_the_cache_absorbs_make_no_amplification_of_the_store_smaller(make_daemon):
    """The rows fit into the cache, so a hundred updates of a row are written back once."""
    daemon = make_daemon({"cache": {"tiers": [Daemon.dram()]}})  # a tier's file on SSD would add bytes of its own
    daemon.start()
    rows = 1000
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, rows)
        for turn in range(100):
            table.set(np.arange(rows), np.full((rows, DIM), turn))
        server.checkpoint()
        report = endurance(daemon)
    row_bytes = DIM * 4
    assert report["all_tables"]["updated_bytes"] == 100 * rows * row_bytes
    assert rows * row_bytes <= report["stored_row_bytes"] <= 3 * rows * row_bytes
    assert report["write_amplification"] < 0.1 and report["store_amplification"] > 0.8
    idle = endurance(daemon, "--interval", "0.3")
    assert idle["stored_row_bytes"] == 0 and idle["store_amplification"] is None


def test_people_can_read_it(writing_daemon, make_daemon):
    def text(daemon) -> str:
        command = [CLI, "-s", daemon.socket, "-t", "0", "endurance"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with writing_daemon.connect(arena_bytes=32 << 20) as server:
        update(server.create_table("rows", DIM), 1)
    for words in ("updated rows", "compaction", "(all)", "written a day ", "rated for ", "1 DWPD: ", " written in 1 year\n"):
        assert words in text(writing_daemon)
    with writing_daemon.connect(arena_bytes=32 << 20) as server:
        table = server.open_table("rows")
        while_measuring(writing_daemon, lambda: (update(table, 1), server.checkpoint()), lambda report: "they are written in " in report)
    plain = make_daemon()
    plain.start()
    assert "endurance.rated_written_bytes is not configured; it is the TBW" in text(plain)
