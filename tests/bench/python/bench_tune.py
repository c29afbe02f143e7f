#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The prediction of `embtier tune` beside what a server then does: bytes written to SSD for each byte of rows, in each layout.

The prediction has the configuration, row length, rows, rate and popularity of the load, and nothing else of the server. Then a server
with that layout takes the load: all rows once, then updates at the rate until the bytes of all rows were written back twice, which do not
count, then four times, which do. The server's own metrics count its writes when nothing is left to compact. Ids follow Zipf's law, and the cache has an eighth of the rows. A figure is one JSON object on a line, as tests/bench/lib/bench.h has it, one for each
layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_daemon import BUILD, connect, embtier, options, started

LAYOUTS = ["leveled", "universal", "blob"]
ROWS, DIM, BATCH = 60_000, 128, 256
LEAST_ROWS = 24_576  # more than the least cache has
ROW_BYTES = DIM * 4
UPDATES_A_SECOND = 5000
ZIPF = 0.8
SHARDS = 2
MINUTES = 2
WARM, TIMES = 2, 4  # that the bytes of all rows are written back, before and in the part that counts
TOLERANCE = 0.1
WRITTEN = ("flush", "compaction", "log", "blob")
# Levels as those of a store that is a hundred times as large.
LEVELS = "max_bytes_for_level_base=1048576;target_file_size_base=262144"


def configuration(directory: str, layout: str, rows: int) -> dict:
    return {
        "data": {"directories": [f"{directory}/rows"], "shards_per_directory": SHARDS},
        "lanes": {"count": 1},
        "cache": {"tiers": [{"bytes": max(8 << 20, rows * ROW_BYTES // 8)}], "map_percent": 0},
        "rocksdb": {"memtable_bytes": "2MiB", "layout": layout, "options": LEVELS},
        "checkpoints": {"interval_seconds": 0},
        "socket": {"path": f"{directory}/socket"},
    }


class Ids:
    """Ids by Zipf's law over ranks, which a permutation spreads over all ids."""

    def __init__(self, rows: int) -> None:
        self.random = np.random.default_rng(7)
        self.places = self.random.permutation(rows)
        weights = np.arange(1, rows + 1, dtype=np.float64) ** -ZIPF
        self.sums = np.cumsum(weights) / weights.sum()

    def draw(self) -> np.ndarray:
        return np.unique(self.places[np.searchsorted(self.sums, self.random.random(BATCH))])


def counts(server: embtier.Server) -> tuple[float, float]:
    """Returns bytes written to SSD, and bytes of rows handed over."""
    metrics = server.status()["metrics"]
    return sum(metrics["store_written_bytes"][cause] for cause in WRITTEN), metrics["store_row_bytes_written"]


def settle(server: embtier.Server) -> None:
    quiet = 0
    while quiet < 5:
        quiet = 0 if server.status()["metrics"]["store_compacting_shards"] else quiet + 1
        time.sleep(0.2)


def update(server: embtier.Server, table: embtier.Table, ids: Ids, until: float) -> None:
    """Updates rows at the rate until @until bytes of rows have been handed over."""
    rows = np.random.default_rng(1).random((BATCH, DIM), dtype=np.float32)
    begin, done, looked = time.monotonic(), 0, 0.0
    while True:
        if time.monotonic() - looked > 0.5:
            looked = time.monotonic()
            if counts(server)[1] >= until:
                return
        batch = ids.draw()
        table.set(batch, rows[: len(batch)])
        done += BATCH
        time.sleep(max(0.0, begin + done / UPDATES_A_SECOND - time.monotonic()))


def happens(layout: str, rows: int) -> float:
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        os.mkdir(f"{directory}/rows")
        with (
            started(directory, configuration(directory, layout, rows)) as (process, log),
            connect(process, log, f"{directory}/socket", 16 << 20) as server,
        ):
            table = server.create_table("t", DIM, rows=rows)
            for first in range(0, rows, BATCH):
                some = np.arange(first, min(first + BATCH, rows))
                table.set(some, np.random.default_rng(first).random((len(some), DIM), dtype=np.float32))
            ids = Ids(rows)
            update(server, table, ids, (1 + WARM) * rows * ROW_BYTES)
            settle(server)
            before = counts(server)
            update(server, table, ids, before[1] + TIMES * rows * ROW_BYTES)
            settle(server)
            after = counts(server)
            return (after[0] - before[0]) / (after[1] - before[1])


def predicted(rows: int, minutes: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        file = Path(directory, "embtierd.yaml")
        file.write_text(json.dumps(configuration(directory, "leveled", rows)))
        command = [BUILD / "tools/embtier", "-o", "json", "tune", "--directory", directory, "--config", file, "--rows", rows,
                   "--dim", DIM, "--updates", UPDATES_A_SECOND, "--zipf", ZIPF, "--minutes", minutes]  # fmt: skip
        output = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True).stdout
    result = json.loads(output)
    print(json.dumps(result["model"]), file=sys.stderr)
    return {one["layout"]: one["write_amplification"]["value"] for one in result["layouts"]}


def main() -> None:
    given = options(__doc__, ["tune"], 1)
    rows = max(LEAST_ROWS, round(ROWS * given.scale))
    guesses = predicted(rows, max(0.05, MINUTES * min(1, given.scale)))
    for layout in LAYOUTS:
        actual = happens(layout, rows)
        ratio = guesses[layout] / actual
        print(json.dumps({
            "name": f"tune-{layout}", "unit": " B/B", "better": "equal", "ours": guesses[layout], "reference": actual,
            "reference_name": "a server with this layout, then", "reference_options": f"{rows:,} rows of {ROW_BYTES} B, {SHARDS} shards",
            "ratio": ratio, "ratio_quartiles": [ratio, ratio], "n": 1, "tolerance": TOLERANCE, "met": abs(ratio - 1) <= TOLERANCE,
            "limit": "compactions of a shard, which differ from run to run",
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
