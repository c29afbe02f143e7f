# SPDX-License-Identifier: Apache-2.0
"""For bench_placement.py: a server under a plan, and a mixture of tables that clients look up and train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from bench_daemon import BUILD, connect, embtier
from bench_training import DIM, THREADS, ZIPF

MIB = 1 << 20
ROW_BYTES = DIM * 4

# Rows and ids a bag of MLPerf's recommendation benchmark (DLRM-DCNv2): the 26 tables of Criteo's logs of a day with at most 40
# million rows each, and its multi-hot sizes. The logs may not be shipped, so ids are drawn by Zipf's law.
MLPERF_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209, 11_938, 155, 4, 976,
    14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
)  # fmt: skip
MLPERF_GATHERS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
SHRINK = 50  # the tables together have 1 GB then
LEAST_ROWS = 1000  # tables of fewer rows are left as they are


class Mixture:
    """Tables, and batches of ids for all of them."""

    def __init__(self, scale: float, bags: int) -> None:
        self.rows = [max(min(rows, LEAST_ROWS), round(rows * scale / SHRINK)) for rows in MLPERF_ROWS]
        self.names = [f"t{i:02}" for i in range(len(self.rows))]
        self.bags = bags
        self.counts = [bags * gathers for gathers in MLPERF_GATHERS]
        self.lookups = sum(self.counts)  # of a batch
        self._steps, self._places = [], []
        for i, rows in enumerate(self.rows):
            weights = np.arange(1, rows + 1) ** -ZIPF
            self._steps.append(np.cumsum(weights / weights.sum()))
            self._places.append(np.random.default_rng(i).permutation(rows).astype(np.uint64))

    @property
    def bytes(self) -> int:
        return sum(self.rows) * ROW_BYTES

    def draw(self, random: np.random.Generator) -> list[np.ndarray]:
        """The ids of a batch, by table."""
        ids = []
        for steps, places, count in zip(self._steps, self._places, self.counts):
            ranks = np.minimum(np.searchsorted(steps, random.random(count)), len(places) - 1)
            ids.append(places[ranks])
        return ids

    def offsets(self, table: int) -> np.ndarray:
        return np.arange(0, self.counts[table] + 1, MLPERF_GATHERS[table])

    def create(self, server: embtier.Server) -> list[embtier.Table]:
        """Makes the tables, all rows of which are then on SSD."""
        return [
            server.create_table(name, DIM, rows, optimizer="sgd", init=("uniform", -0.1, 0.1), eager=True)
            for name, rows in zip(self.names, self.rows)
        ]

    def write_trace(self, path: Path, batches: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        described = [embtier.TraceTable(name, DIM, rows=rows) for name, rows in zip(self.names, self.rows)]
        with embtier.TraceWriter(path, described) as trace:
            for _ in range(batches):
                for i, ids in enumerate(self.draw(random)):
                    trace.add(self.names[i], ids, self.offsets(i))
                trace.next_batch()


class Daemon:
    """A server on a directory of its own, with one tier. It can start again with more memory for arrays."""

    def __init__(self, folder: Path, tier_bytes: int, memtable_bytes: int = 32 * MIB) -> None:
        self.folder, self.tier_bytes, self.memtable_bytes = folder, tier_bytes, memtable_bytes
        self.socket = str(folder / "socket")
        self.process: subprocess.Popen | None = None
        (folder / "rows").mkdir()

    def start(self, array_bytes: int = 0) -> None:
        arrays = -(-array_bytes // MIB)
        config = {
            "data": {"directories": [str(self.folder / "rows")], "shards_per_directory": 2},
            "lanes": {"count": THREADS, "ticket_bytes": "256MiB"},
            "cache": {"tiers": [{"name": "dram", "bytes": f"{self.tier_bytes // MIB}MiB", "array_bytes": f"{arrays}MiB"}]},
            "checkpoints": {"interval_seconds": 0},
            "rocksdb": {"memtable_bytes": f"{self.memtable_bytes // MIB}MiB", "metadata_cache_bytes": "16MiB"},
            "socket": {"path": self.socket, "max_arena_bytes": "512MiB"},
        }
        (self.folder / "embtierd.yaml").write_text(json.dumps(config))
        self.log = (self.folder / "log").open("w+")
        self.process = subprocess.Popen(
            [os.environ.get("EMBTIERD", BUILD / "daemon/embtierd"), "--init", "--config", self.folder / "embtierd.yaml"],
            stderr=self.log,
        )
        self.connect().close()

    @property
    def cli(self) -> str:
        return os.environ.get("EMBTIER_CLI", str(BUILD / "tools/embtier"))

    def connect(self, arena_bytes: int = 128 * MIB) -> embtier.Server:
        return connect(self.process, self.log, self.socket, arena_bytes)

    def stop(self, is_clean: bool = True) -> None:
        if self.process:
            self.process.terminate() if is_clean else self.process.kill()
            self.process.wait()
            self.process = None

    def embtier(self, *arguments: str | Path, codes: tuple[int, ...] = (0,)) -> dict:
        """Runs the command, and returns its JSON."""
        command = [self.cli, "-s", self.socket, "-o", "json", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in codes:
            sys.exit(f"bench_placement: {' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout) if done.stdout.startswith("{") else {}


@contextmanager
def daemon(tier_bytes: int) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as folder:
        made = Daemon(Path(folder), tier_bytes)
        try:
            yield made
        finally:
            made.stop(is_clean=False)  # no client needs the rows any more
