# SPDX-License-Identifier: Apache-2.0
"""A device that took a day's bytes of `endurance.max_dwpd` has write-back held: updates wait, lookups do not, and no row is lost.
The tests need files on a disk that the kernel counts."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, LANES, Daemon
from test_devices import change_history, disk_beneath, endurance, endurance_text, history_file, wait_for

DIM = 128
OLD = 2000  # rows that are on SSD
NEW = 40_000  # more bytes than cache and write queues have
DAY_S = 86_400


def set_limit(daemon, value: str) -> None:
    subprocess.run([CLI, "-s", daemon.socket, "knob", "set", "endurance.max_dwpd", value], check=True, capture_output=True)


def warnings(daemon) -> set[str]:
    command = [CLI, "-s", daemon.socket, "-o", "json", "status"]
    status = json.loads(subprocess.run(command, check=False, capture_output=True, text=True).stdout)
    return {warning["name"] for warning in status["warnings"]}


def use_up(history: dict) -> None:
    """As if a petabyte had been written some hours ago."""
    history["since_ms"] -= DAY_S * 1000
    history["hours"][(history["seen_ms"] // 3_600_000 - 5) % 168] = 10**15


@pytest.fixture
def held(make_daemon) -> Daemon:
    """A server with old rows, whose device has no bytes left for today."""
    daemon = make_daemon({
        "cache": {"tiers": [Daemon.dram()]},
        "checkpoints": {"interval_seconds": 0},
        "lanes": {"write_queue_bytes": f"{LANES}MiB"},
    })  # fmt: skip
    disk_beneath(daemon.folder)
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", DIM).set(np.arange(OLD), np.full((OLD, DIM), 1))
    daemon.stop()
    change_history(history_file(daemon), use_up)
    daemon.start()
    assert "write_back_held" not in warnings(daemon)
    set_limit(daemon, "0.001")
    wait_for(daemon.metrics, lambda metrics: set(metrics["device_write_back_held"].values()) == {1})
    return daemon


def set_new(daemon, rows: int) -> None:
    with daemon.connect(arena_bytes=32 << 20, timeout=0) as server:
        table = server.open_table("rows")
        for first in range(0, rows, 1000):
            ids = np.arange(OLD + first, OLD + first + 1000)
            table.set(ids, np.repeat(ids[:, None] % 1000, DIM, axis=1))


def must_have(daemon, rows: int) -> None:
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.open_table("rows")
        assert np.all(table.get(np.arange(OLD)) == 1)
        for first in range(0, rows, 1000):
            ids = np.arange(OLD + first, OLD + first + 1000)
            assert np.all(table.get(ids) == ids[:, None] % 1000)


def test_updates_wait_and_lookups_do_not(held):
    written = held.metrics()["store_row_bytes_written"]
    updates = threading.Thread(target=set_new, args=(held, NEW))
    updates.start()
    wait_for(held.metrics, lambda metrics: metrics["write_queue_bytes"] >= 0.9 * metrics["write_queue_capacity_bytes"])
    with held.connect() as server:
        table = server.open_table("rows")
        for _ in range(5):
            assert np.all(table.get(np.arange(OLD)) == 1)  # most of them on SSD
    assert updates.is_alive()
    assert held.metrics()["store_row_bytes_written"] - written < NEW * DIM * 4 / 4
    assert "write_back_held" in warnings(held) and "drive_over_limit" not in warnings(held)
    assert endurance(held)["devices"][0]["write_back_held"] is True
    assert "rows are written back at its rate, and updates may wait" in endurance_text(held)
    (warning,) = held.logged("a drive took a day's writes of endurance.max_dwpd")
    assert warning["level"] == "warn"

    set_limit(held, "0")
    updates.join(60)
    assert not updates.is_alive()
    must_have(held, NEW)
    assert set(held.metrics()["device_write_back_held"].values()) == {0} and "write_back_held" not in warnings(held)
    held.restart()
    must_have(held, NEW)


def test_a_stop_writes_all_rows(held):
    rows = 8000
    set_new(held, rows)
    assert set(held.metrics()["device_write_back_held"].values()) == {1}
    held.restart()
    must_have(held, rows)


def test_a_crash_loses_no_row_of_a_logged_table(held):
    with held.connect(timeout=0) as server:
        table = server.create_table("logged", DIM, durability="async")
        for turn in range(3):  # each waits for its turn
            table.set(np.arange(200), np.full((200, DIM), turn))
    held.kill()
    held.start()
    with held.connect() as server:
        assert np.all(server.open_table("logged").get(np.arange(200)) == 2)
