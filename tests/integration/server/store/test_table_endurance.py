# SPDX-License-Identifier: Apache-2.0
"""`embtier endurance` charges each table with its bytes, and all tables with those that they share."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, Daemon
from histories import write_summed

DIM = 64
ROWS = 8000
KEY_AND_HEAD = 24
WINDOWS = ("now", "hour", "day", "week")


def endurance(daemon, *options: str) -> str:
    command = [CLI, "-s", daemon.socket, "-t", "0", *options, "endurance"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def report_of(daemon) -> dict:
    report = json.loads(endurance(daemon, "-o", "json"))
    report["tables"] = {table["name"]: table for table in report["tables"]}
    return report


def wait_for(look, condition):
    deadline = time.monotonic() + 60
    while not condition(answer := look()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    return answer


def update(table, rounds: int = 1) -> None:
    for turn in range(rounds):
        for first in range(0, ROWS, 2000):
            table.set(np.arange(first, first + 2000), np.full((2000, DIM), turn + 1))


def rows_of(report: dict) -> list[dict]:
    return [*report["tables"].values(), report["dropped_tables"], report["shared"]]


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon({"cache": {"tiers": [Daemon.dram()]}, "checkpoints": {"interval_seconds": 0}})
    daemon.start()
    return daemon


def expect_sums(report: dict) -> None:
    """Each byte has one place."""
    for member in ("flush_bytes", "compaction_bytes", "log_bytes", "import_bytes", "other_bytes", "written_bytes"):
        assert sum(row[member] for row in rows_of(report)) == report["all_tables"][member], member
    causes = report["written_bytes_by_cause"]
    for cause in ("flush", "compaction", "log", "import"):
        assert report["all_tables"][f"{cause}_bytes"] == causes[cause]
    assert report["all_tables"]["written_bytes"] == report["written_bytes"] == sum(causes.values())
    assert min(row["written_bytes"] for row in rows_of(report)) >= 0


def test_tables_and_what_they_share_are_all_that_was_written(daemon, tmp_path):
    with daemon.connect(arena_bytes=32 << 20) as server:
        update(server.create_table("replayed", DIM, ROWS), 2)
        update(server.create_table("logged", DIM, ROWS, durability="async"), 3)
        server.create_table("eager", DIM, ROWS, eager=True)
        server.export_table("logged", tmp_path / "export")
        server.import_table(tmp_path / "export", "imported")
        server.checkpoint()
        report = report_of(daemon)
        expect_sums(report)
        tables = report["tables"]
        row_bytes = DIM * 4 + KEY_AND_HEAD
        assert tables["logged"]["log_bytes"] == 3 * ROWS * row_bytes
        assert report["shared"]["log_bytes"] > 0  # heads of records, pages written again as they fill
        assert tables["eager"]["initial_bytes"] == tables["eager"]["flush_bytes"] > ROWS * row_bytes
        assert tables["replayed"]["log_bytes"] == tables["replayed"]["initial_bytes"] == tables["logged"]["initial_bytes"] == 0
        assert tables["replayed"]["flush_bytes"] >= ROWS * row_bytes
        assert tables["imported"]["import_bytes"] + tables["imported"]["flush_bytes"] > ROWS * DIM * 4
        causes = report["written_bytes_by_cause"]
        assert report["shared"]["other_bytes"] == sum(causes[cause] for cause in ("blob", "checkpoint", "other"))
        text = endurance(daemon)
        assert "\n(shared) " in text and "first values" in text and "logged" in text
        server.drop_table("logged")
        dropped = report_of(daemon)
        expect_sums(dropped)
        assert dropped["shared"]["log_bytes"] >= tables["logged"]["log_bytes"]
        device_bytes = [device["server_bytes"] for device in dropped["devices"]]
        if device_bytes and None not in device_bytes:  # else the data are in memory
            wait_for(lambda: sum(device["server_bytes"] for device in report_of(daemon)["devices"]),
                     lambda seen: seen == pytest.approx(report_of(daemon)["written_bytes"], rel=0.02))  # fmt: skip


def test_what_initializes_a_table_is_not_counted_twice(daemon):
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.create_table("eager", DIM, ROWS, eager=True)
        before = report_of(daemon)["tables"]["eager"]
        update(table)
        server.checkpoint()
        after = report_of(daemon)["tables"]["eager"]
    assert after["initial_bytes"] == before["initial_bytes"] > 0
    assert after["flush_bytes"] >= before["flush_bytes"] + ROWS * DIM * 4


def tables_file(daemon) -> Path:
    return Path(daemon.config["data"]["directories"][0]) / "endurance-tables.json"


def restart_older(daemon, seconds: int) -> None:
    """Restarts with histories that have begun some time before."""
    daemon.stop()
    content = json.loads(tables_file(daemon).read_text())
    for history in [content["shared"], *content["tables"]]:
        history["since_ms"] -= seconds * 1000
    write_summed(tables_file(daemon), content)
    devices = tables_file(daemon).with_name("endurance.json")
    content = json.loads(devices.read_text())
    for item in content["histories"]:
        item["history"]["since_ms"] -= seconds * 1000
    write_summed(devices, content)
    daemon.start()


def test_rates_of_tables_outlive_the_server(daemon):
    with daemon.connect(arena_bytes=32 << 20) as server:
        update(server.create_table("busy", DIM, ROWS, durability="async"), 3)
        update(server.create_table("calm", DIM, ROWS))
        server.create_table("idle", DIM, ROWS)
        server.checkpoint()
    before = report_of(daemon)
    assert set(before["tables"]["busy"]["daily_bytes"].values()) == {None}  # younger than an hour
    restart_older(daemon, 4 * 3600)
    with daemon.connect(arena_bytes=32 << 20) as server:
        update(server.open_table("calm"))
    report = wait_for(lambda: report_of(daemon), lambda report: report["shared"]["daily_bytes"]["day"] is not None)
    tables = report["tables"]
    for name in ("busy", "calm"):
        assert tables[name]["history_bytes"] >= before["tables"][name]["written_bytes"] > 0
        assert tables[name]["history_seconds"] == pytest.approx(4 * 3600, abs=600)
        daily = tables[name]["daily_bytes"]
        assert daily["now"] >= daily["hour"] * 0.9 > 0 and daily["hour"] >= daily["day"] * 0.9 > 0
        assert daily["day"] == pytest.approx(daily["week"]) == pytest.approx(tables[name]["history_bytes"] * 6, rel=0.1)
    assert set(tables["idle"]["daily_bytes"].values()) == {0}
    assert tables["busy"]["daily_bytes"]["day"] > tables["calm"]["daily_bytes"]["day"]
    for window in ("day", "week"):  # shorter windows of the server's own history are cut elsewhere
        rows = [*tables.values(), report["shared"]]
        assert sum(row["daily_bytes"][window] for row in rows) == pytest.approx(report["all_tables"]["daily_bytes"][window], rel=0.1)
    text = endurance(daemon)
    assert "last week" in text and text.count("\nbusy ") == 2 and text.count("\n(shared) ") == 2


def test_a_damaged_file_costs_the_rates_of_tables_and_nothing_else(daemon):
    with daemon.connect(arena_bytes=32 << 20) as server:
        update(server.create_table("rows", DIM, ROWS, durability="async"))
    daemon.stop()
    path = tables_file(daemon)
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 1
    path.write_bytes(text)
    daemon.start()
    assert path.with_name(path.name + ".damaged").exists()
    with daemon.connect(arena_bytes=32 << 20) as server:
        assert (server.open_table("rows").get(np.arange(ROWS)) == 1).all()
    assert report_of(daemon)["tables"]["rows"]["history_bytes"] < ROWS * DIM * 4
