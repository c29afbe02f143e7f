# SPDX-License-Identifier: Apache-2.0
"""Slow requests are logged with where their time went, and not too many of them. Every read of SSD takes 20 ms longer
(tests/faults/slow_reads.c), or more."""

from __future__ import annotations

import itertools
import subprocess

import numpy as np
import pytest
from daemons import CLI, Daemon
from readers import await_true

ROWS, DIM = 40_000, 128
READ_MS = 20
BURST = 12  # more than a lane logs in a second


def lines_of(daemon: Daemon) -> list[dict[str, str]]:
    return daemon.logged("slow request")


def set_limit(daemon: Daemon, limit_ms: int) -> str:
    command = [CLI, "--address", daemon.socket, "knob", "set", "log.slow_request_ms", str(limit_ms)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def spent_of(line: dict[str, str]) -> dict[str, float]:
    spent = {name: float(line[name]) for name in ("ms", "before_rows_ms", "rows_ms", "ssd_ms")}
    assert spent["before_rows_ms"] + spent["rows_ms"] == pytest.approx(spent["ms"], abs=0.01)
    return spent


@pytest.fixture
def filled(make_daemon):
    """A daemon whose rows are all on SSD, and a table of them."""
    daemon = make_daemon({"lanes": {"count": 1}, "checkpoints": {"interval_seconds": 0}})
    daemon.trigger = daemon.folder / "slow"
    daemon.with_fault("slow_reads", EMBTIER_FAULT_TRIGGER=str(daemon.trigger), EMBTIER_FAULT_READ_MS=str(READ_MS))
    daemon.start()
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.create_table("t", DIM)
        for first in range(0, ROWS, 10_000):
            table.set(np.arange(first, first + 10_000), np.ones((10_000, DIM), np.float32))
    daemon.restart()
    daemon.trigger.touch()
    with daemon.connect(arena_bytes=32 << 20) as server:
        yield daemon, server.open_table("t")


def test_slow_requests_are_logged_with_where_the_time_went(filled):
    daemon, table = filled
    ids = np.array([7, 7_000, 17_000, 37_000])
    table.get(ids[:2])
    assert not lines_of(daemon)  # the log is off
    set_limit(daemon, READ_MS)
    table.get(ids)  # the first two are in memory now
    (line,) = await_true(lambda: lines_of(daemon), "the request is logged")
    assert (line["op"], int(line["rows"]), int(line["memory_rows"]), line["error"]) == ("get", 4, 2, "OK")
    spent = spent_of(line)
    assert READ_MS <= spent["ssd_ms"] <= spent["rows_ms"] + 0.01
    daemon.trigger.unlink()
    set_limit(daemon, 1)
    table.get(np.arange(ROWS))  # 20 MB: no machine reads them in a millisecond
    line = await_true(lambda: lines_of(daemon)[1:], "the request is logged")[0]
    assert spent_of(line)["before_rows_ms"] > 0
    set_limit(daemon, 0)
    table.get(np.arange(ROWS))
    assert len(lines_of(daemon)) == 2


def test_each_slow_request_is_logged_or_counted(filled):
    daemon, table = filled
    set_limit(daemon, READ_MS)
    fresh, asked, logged = itertools.count(0, 64), 0, 0

    def get() -> bool:
        """Reads a row that nobody has read. Returns True if the log has this request, and so tells how many before it have no
        line."""
        nonlocal asked, logged
        table.get([next(fresh)])
        asked += 1
        before, logged = logged, len(lines_of(daemon))
        return logged > before

    def some_are_left_out() -> bool:
        return any(not get() for _ in range(BURST))

    await_true(some_are_left_out, "a request has no line")
    await_true(get, "a request of the next second has a line")
    lines = lines_of(daemon)
    assert len(lines) < asked == len(lines) + sum(int(line["left_out"]) for line in lines)
