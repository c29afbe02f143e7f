#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps with and without prefetch, on ten times the rows that the cache holds.

Tables are as in bench_training.py, ids Zipf (1.05), with Adagrad per row, and all rows are on SSD before. A step looks a batch
up, waits for the trainer's pass over its dense layers, and pushes; with prefetch the rows of the next batches are brought in
meanwhile. The two take turns of some steps on one server. While steps are timed, as many batches are asked for as are trained:
steps before them fill the pipeline, and steps after them empty it. A figure is one JSON object on a line, as
tests/bench/lib/bench.h has it."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from bench_daemon import options
from bench_training import DIM, GATHERS, LEARNING_RATE, THREADS, Setting, draw_ids, server

import embtier

AHEAD = 2  # in batches
BAGS = 64  # per table and batch
STEPS = 6  # timed ones, per turn


class Trainer:
    def __init__(self, setting: Setting, connection: embtier.Server) -> None:
        self.setting = setting
        self.random = np.random.default_rng(3)
        self.tables = [
            connection.create_table(
                f"t{i}", DIM, setting.rows, optimizer="rowwise_adagrad", init=("uniform", -0.1, 0.1),
                eager=True,
            )  # fmt: skip
            for i in range(setting.tables)
        ]
        parts = [(table, setting.ids) for table in self.tables]
        self.batch = connection.bag_batch([embtier.Bags(t, setting.ids, setting.bags) for t in self.tables])
        self.prefetches = [connection.prefetch_batch(parts) for _ in range(AHEAD + 1)]
        self.offsets = np.arange(0, setting.ids + 1, GATHERS)
        self.step = 0
        width = DIM * setting.tables
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

    def batches(self) -> Iterator[list[np.ndarray]]:
        while True:
            yield [draw_ids(self.setting, self.random) for _ in self.tables]

    def train(self, ids: list[np.ndarray], prefetch: embtier.PrefetchBatch | None) -> None:
        for i, of_table in enumerate(ids):
            self.batch.ids(i)[:] = of_table
            self.batch.offsets(i)[:] = self.offsets
        self.batch.lookup(ticket=True)
        bags = [torch.from_numpy(self.batch.bags(i)) for i in range(len(ids))]
        inputs = torch.cat(bags, dim=1).requires_grad_()
        self.mlp(inputs).square().mean().backward()
        assert inputs.grad is not None
        for i, gradient in enumerate(torch.split(inputs.grad, DIM, dim=1)):
            self.batch.gradients(i)[:] = gradient.numpy()
        self.step += 1
        self.batch.push(LEARNING_RATE, self.step, prefetch=prefetch)

    def turn(self, looks_ahead: bool, drawn: Iterator[list[np.ndarray]]) -> float:
        """Returns the seconds of a step."""
        ahead = AHEAD if looks_ahead else 0
        batches = [next(drawn) for _ in range(ahead + 1 + STEPS + ahead)]
        free = deque(self.prefetches)
        waiting: deque[embtier.PrefetchBatch] = deque()
        asked = 0
        times = []
        for n, ids in enumerate(batches):
            times.append(time.perf_counter())
            while looks_ahead and asked < len(batches) and asked <= n + ahead:
                prefetch = free.popleft()
                for i, of_table in enumerate(batches[asked]):
                    prefetch.ids(i)[:] = of_table
                prefetch.submit_prefetch()
                waiting.append(prefetch)
                asked += 1
            if not looks_ahead:
                self.train(ids, None)
                continue
            waiting[0].wait()
            self.train(ids, waiting[0])
            free.append(waiting.popleft())
        times.append(time.perf_counter())
        begin = ahead + 1
        return (times[begin + STEPS] - times[begin]) / STEPS


def report(setting: Setting, pairs: list[tuple[float, float]], reads: float) -> None:
    ratios = [without / with_prefetch for with_prefetch, without in pairs]
    print(
        json.dumps(
            {
                "name": f"step-{setting.model}",
                "unit": " samples/s",
                "better": "higher",
                "ours": setting.bags / statistics.median(pair[0] for pair in pairs),
                "reference": setting.bags / statistics.median(pair[1] for pair in pairs),
                "reference_name": "the same without prefetch",
                "reference_options": f"{setting.tables} tables of {setting.rows:,} rows, ten times the cache, "
                f"{setting.bags} samples of {GATHERS} ids a table, {AHEAD} batches ahead, {THREADS} lane(s)",
                "ratio": statistics.median(ratios),
                "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
                "n": len(pairs),
                "limit": f"reads of the device: {reads:,.0f} rows read per step",
            }
        ),
        flush=True,
    )


def main() -> None:
    given = options(__doc__, ["step"], 9)
    torch.set_num_threads(THREADS)
    for model, tables, rows in (("rm1", 10, 1_000_000), ("rm2", 40, 250_000)):
        tables = max(1, round(tables * given.scale))
        bags = max(8, round(BAGS * given.scale))
        setting = Setting(model, tables, max(20_000, round(rows * given.scale)), "zipf", bags)
        cache_bytes = max(48 << 20, tables * setting.rows * DIM * 4 // 10)
        print(f"bench_steps: {setting}, cache of {cache_bytes >> 20} MiB", file=sys.stderr)
        with server(setting, cache_bytes) as connection:
            trainer = Trainer(setting, connection)
            drawn = trainer.batches()
            trainer.turn(False, drawn)
            before = connection.status()["metrics"]["store_rows_read"]
            pairs = [(trainer.turn(True, drawn), trainer.turn(False, drawn)) for _ in range(given.turns)]
            steps = given.turns * (2 * (STEPS + 1) + 2 * AHEAD)
            report(setting, pairs, (connection.status()["metrics"]["store_rows_read"] - before) / steps)


if __name__ == "__main__":
    main()
