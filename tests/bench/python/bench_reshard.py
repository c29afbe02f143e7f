#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes while rows move to other shards, beside the same load before.

One client reads batches of random rows as fast as it can, another writes 30,000 rows a second, of a table that survives the death
of the server. `reshard-live` has rows read a second while rows move from 8 shards to 16, and back, over those before. The others:
`reshard-live-p99` the 99th percentile of the reads, `reshard-live-pause` the longest write, `reshard-live-lost` rows that are not
as they were last acknowledged, beside all writes of rows that were. No bar is met if the writer got less than 95 % of its rate while
rows moved, and that of lost rows only by 1,000,000 writes. A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from bench_daemon import BUILD, connect, embtier, options, started

ROWS, DIM = 1_000_000, 16
READ, WRITTEN, WRITES_PER_S = 1024, 300, 100
LEAST_RATE, LEAST_WRITES = 0.95, 1_000_000
SHARDS = (16, 8)  # in turn, from 8
TURNS = 4
BARS = {"reshard-live": 0.7, "reshard-live-p99": 3.0, "reshard-live-pause": 50.0, "reshard-live-lost": 0.0}


@dataclass
class Load:
    """Rates and times of clients, over a while."""

    rows_per_s: float = 0
    reads_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)
    written_per_s: float = 0

    def p99_ms(self) -> float:
        return float(np.percentile(self.reads_s, 99)) * 1000


class Clients:
    def __init__(self, reader: embtier.Server, writer: embtier.Server, rows: int) -> None:
        self.reader, self.writer, self.rows = reader.open_table("rows"), writer.open_table("rows"), rows
        self.acknowledged = np.zeros(rows, np.float32)
        self.random = np.random.default_rng(1)
        self.version = 0
        self.writes = 0  # of rows, acknowledged

    def _write(self, end: threading.Event, load: Load) -> None:
        due = started = time.monotonic()
        while not load.writes_s or not end.is_set():
            ids = self.random.choice(self.rows, min(WRITTEN, self.rows), replace=False)
            self.version += 1
            values = np.full((len(ids), DIM), self.version, np.float32)
            begin = time.perf_counter()
            self.writer.set(ids, values)
            load.writes_s.append(time.perf_counter() - begin)
            self.acknowledged[ids] = self.version
            self.writes += len(ids)
            due = max(due + 1 / WRITES_PER_S, time.monotonic() - 0.1)
            time.sleep(max(0.0, due - time.monotonic()))
        load.written_per_s = len(load.writes_s) * WRITTEN / (time.monotonic() - started)

    def run(self, is_over) -> Load:
        load, end = Load(), threading.Event()
        ids = np.random.default_rng(2).integers(0, self.rows, (256, READ), dtype=np.uint64)
        writer = threading.Thread(target=self._write, args=(end, load))
        writer.start()
        begin = time.perf_counter()
        while not load.reads_s or not is_over():
            one = time.perf_counter()
            self.reader.get(ids[len(load.reads_s) % len(ids)])
            load.reads_s.append(time.perf_counter() - one)
        load.rows_per_s = len(load.reads_s) * READ / (time.perf_counter() - begin)
        end.set()
        writer.join()
        return load

    def lost(self) -> int:
        """Returns how many rows are not as they were last acknowledged."""
        lost = 0
        for first in range(0, self.rows, READ):
            ids = np.arange(first, min(first + READ, self.rows))
            lost += int((self.reader.get(ids) != self.acknowledged[ids][:, None]).any(axis=1).sum())
        return lost


def print_figure(
    name: str, unit: str, ours: float, reference: float, reference_name: str, ratios: list[float], better: str, loads: list[Load], rows: int
) -> None:
    ratios, bar = sorted(ratios), BARS[name]
    middle = statistics.median(ratios)
    written_per_s = min(load.written_per_s for load in loads)
    is_met = written_per_s >= LEAST_RATE * WRITTEN * WRITES_PER_S
    print(json.dumps({
        "name": name, "unit": unit, "better": better, "ours": ours, "reference": reference, "reference_name": reference_name,
        "reference_options": f"{rows:,} rows, {written_per_s:,.0f} written a second at least", "ratio": middle,
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]], "n": len(ratios), "bar": bar,
        "met": is_met and (ours <= bar and (name != "reshard-live-lost" or reference >= LEAST_WRITES)
        if unit in (" ms", " rows") and name != "reshard-live-p99"
        else middle <= bar if better == "lower" else middle >= bar),
        "limit": "the drive and the cores that reads, writes, copies and checkpoints share",
    }), flush=True)  # fmt: skip


def measure(names: list[str], clients: Clients, socket: str, turns: int, seconds: float) -> None:
    cli = os.environ.get("EMBTIER_CLI", str(BUILD / "tools/embtier"))
    pairs: list[tuple[Load, Load]] = []
    for turn in range(turns):
        until = time.monotonic() + seconds
        before = clients.run(lambda until=until: time.monotonic() > until)
        command = [cli, "-s", socket, "-o", "json", "reshard", "--shards", str(SHARDS[turn % len(SHARDS)])]
        move = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        pairs.append((clients.run(lambda move=move: move.poll() is not None), before))
        assert move.returncode == 0
    moving = [load for load, _ in pairs]
    if "reshard-live" in names:
        print_figure("reshard-live", " rows/s", statistics.median(a.rows_per_s for a, _ in pairs),
                     statistics.median(b.rows_per_s for _, b in pairs), "before", [a.rows_per_s / b.rows_per_s for a, b in pairs],
                     "higher", moving, clients.rows)  # fmt: skip
    if "reshard-live-p99" in names:
        print_figure("reshard-live-p99", " ms", statistics.median(a.p99_ms() for a, _ in pairs),
                     statistics.median(b.p99_ms() for _, b in pairs), "before", [a.p99_ms() / b.p99_ms() for a, b in pairs],
                     "lower", moving, clients.rows)  # fmt: skip
    if "reshard-live-pause" in names:
        longest = [(max(a.writes_s) * 1000, max(b.writes_s) * 1000) for a, b in pairs]
        print_figure("reshard-live-pause", " ms", max(a for a, _ in longest), max(b for _, b in longest), "before",
                     [a / b for a, b in longest], "lower", moving, clients.rows)  # fmt: skip
    if "reshard-live-lost" in names:
        lost = clients.lost()
        print_figure("reshard-live-lost", " rows", lost, clients.writes, "acknowledged", [float(lost)] * turns, "lower", moving, clients.rows)


def main() -> None:
    given = options(__doc__, list(BARS), TURNS)
    rows = max(READ, round(ROWS * given.scale))
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        Path(directory, "rows").mkdir()
        config = {
            "data": {"directories": [f"{directory}/rows"], "shards_per_directory": 8},
            "lanes": {"count": 1},
            "cache": {"tiers": [{"bytes": "32MiB"}]},
            "socket": {"path": f"{directory}/socket"},
        }
        socket = f"{directory}/socket"
        with (
            started(directory, config) as (process, log),
            connect(process, log, socket, 16 << 20) as reader,
            connect(process, log, socket, 16 << 20) as writer,
        ):
            table = reader.create_table("rows", DIM, durability="async")
            for first in range(0, rows, READ):
                table.set(np.arange(first, min(first + READ, rows)), np.zeros((min(READ, rows - first), DIM), np.float32))
            measure(given.names, Clients(reader, writer, rows), socket, min(given.turns, TURNS), given.seconds or 10)


if __name__ == "__main__":
    main()
