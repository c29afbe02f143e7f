#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training in the server, compared with PyTorch in process: pooled lookups, pushes, and the bytes they move.

The model is the embedding part of the papers' RM1 (10 tables) and RM2 (40): 80 gathers a bag, 64 numbers a row, 2,048 bags a
table, ids uniform and Zipf (1.05), all rows in DRAM, SGD. The server has as many lanes as PyTorch has threads, half of the cores,
so that neither side waits for the other's. Where FBGEMM can be imported (PyPI's fbgemm-gpu-cpu, with the PyTorch it was made
for), its fused table-batched embedding bags are a second reference. A figure is one JSON object on a line, as
tests/bench/lib/bench.h has it."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from bench_daemon import connect, embtier, options, started

try:
    import fbgemm_gpu.split_table_batched_embeddings_ops_training as fbgemm
except ImportError:
    fbgemm = None

GATHERS, DIM, BAGS = 80, 64, 2048
ZIPF = 1.05
BATCHES = 3  # different batches, used round and round
THREADS = max(1, (os.cpu_count() or 1) // 2)
LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Setting:
    model: str
    tables: int
    rows: int  # per table; the machine's memory must hold all rows twice, on both sides
    draw: str  # "uniform" or "zipf"
    bags: int = BAGS

    @property
    def ids(self) -> int:
        """Number of ids per table and batch."""
        return self.bags * GATHERS


def settings(scale: float) -> Iterator[Setting]:
    # 40 tables of a million rows do not fit three times into 24 GiB.
    for model, tables, rows in (("rm1", 10, 1_000_000), ("rm2", 40, 400_000)):
        for draw in ("uniform", "zipf"):
            few = max(1, round(tables * scale)) if scale < 1 else tables
            yield Setting(model, few, max(1000, round(rows * scale)), draw, max(8, round(BAGS * scale)))


def draw_ids(setting: Setting, random: np.random.Generator) -> np.ndarray:
    if setting.draw == "uniform":
        return random.integers(0, setting.rows, setting.ids)
    weights = np.arange(1, setting.rows + 1) ** -ZIPF
    steps = np.cumsum(weights / weights.sum())
    ranks = np.minimum(np.searchsorted(steps, random.random(setting.ids)), setting.rows - 1)
    return np.random.default_rng(7).permutation(setting.rows)[ranks]


@contextmanager
def server(
    setting: Setting, cache_bytes: int = 0, settings: dict | None = None, arena_bytes: int = 900 << 20, home: str = "cache"
) -> Iterator[embtier.Server]:
    """@cache_bytes: 0 means as much as all rows need. @home: of the tables; arrays' memory comes on top of the cache's.
    @settings: further keys of the configuration, or overrides."""
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        os.mkdir(f"{directory}/rows")
        # An array takes 8 more bytes a row, and the unused rest of a slab.
        arrays = setting.tables * ((setting.rows * (DIM * 4 + 8) >> 20) + 4) if home == "array" else 0
        cached = 0 if arrays else int(setting.tables * setting.rows * DIM * 4 * 1.35)
        cache = cache_bytes or cached + (64 << 20)
        config = {
            "data": {"directories": [f"{directory}/rows"], "shards_per_directory": max(4, THREADS)},
            "lanes": {"count": THREADS, "ticket_bytes": "768MiB"},
            "cache": {"tiers": [{"bytes": f"{(cache >> 20) + arrays}MiB", "array_bytes": f"{arrays}MiB"}]},
            "socket": {
                "path": f"{directory}/socket", "max_arena_bytes": "1GiB", "max_batch_rows": 8 << 20,
            },
        }  # fmt: skip
        for part, keys in (settings or {}).items():
            config[part] = config.get(part, {}) | keys
        with started(directory, config) as (process, log), connect(process, log, f"{directory}/socket", arena_bytes) as connection:
            yield connection


class Fused:
    def __init__(self, weights: list[torch.Tensor]) -> None:
        embeddings = fbgemm.SplitTableBatchedEmbeddingBagsCodegen(
            [
                (len(rows), DIM, fbgemm.EmbeddingLocation.HOST, fbgemm.ComputeDevice.CPU)
                for rows in weights
            ],
            optimizer=fbgemm.OptimType.EXACT_SGD,
            learning_rate=LEARNING_RATE,
        )
        for mine, rows in zip(embeddings.split_embedding_weights(), weights):
            mine.data.copy_(rows)
        self.bags = embeddings


class Sides:
    """The same bags of the same rows, in the server and in PyTorch."""

    def __init__(self, setting: Setting, connection: embtier.Server, home: str = "cache") -> None:
        self.setting = setting
        self.connection = connection
        random = np.random.default_rng(1)
        self.tables = [
            connection.create_table(
                f"t{i}", DIM, setting.rows, optimizer="sgd", init=("uniform", -0.1, 0.1), seed=i, home=home
            )
            for i in range(setting.tables)
        ]
        self.bags = [
            torch.nn.EmbeddingBag(setting.rows, DIM, mode="sum", sparse=True) for _ in self.tables
        ]
        for table, bag in zip(self.tables, self.bags):
            self.copy_rows(connection, table, bag.weight.data)
        self.optimizer = torch.optim.SGD([bag.weight for bag in self.bags], LEARNING_RATE)
        self.draws = [[draw_ids(setting, random) for _ in self.tables] for _ in range(BATCHES)]
        self.offsets = np.arange(0, setting.ids + 1, GATHERS)
        parts = [embtier.Bags(table, setting.ids, setting.bags) for table in self.tables]
        self.batch = connection.bag_batch(parts)
        self.gradient = torch.randn(setting.bags, DIM) * 1e-3
        self.step = 0
        width = DIM * setting.tables
        self.mlp = torch.nn.Sequential(
            *(torch.nn.Linear(width, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU()),
            torch.nn.Linear(256, 1),
        )

    def copy_rows(self, connection: embtier.Server, table: embtier.Table, to: torch.Tensor) -> None:
        """Copies a table's rows to PyTorch, which brings them into the cache as well."""
        for first in range(0, self.setting.rows, 50_000):
            count = min(50_000, self.setting.rows - first)
            with connection.batch([(table, count)]) as batch:
                batch.ids(0)[:] = np.arange(first, first + count)
                to[first : first + count] = torch.from_numpy(batch.get().rows(0))

    def lay_out(self, turn: int) -> None:
        for i, ids in enumerate(self.draws[turn % BATCHES]):
            self.batch.ids(i)[:] = ids
            self.batch.offsets(i)[:] = self.offsets

    def pooled(self, turn: int) -> tuple[float, float]:
        """Returns the seconds of a forward pass, ours and PyTorch's."""
        self.lay_out(turn)
        inputs = [torch.from_numpy(ids) for ids in self.draws[turn % BATCHES]]
        offsets = torch.from_numpy(self.offsets[:-1])
        ours = seconds(self.batch.lookup)
        with torch.no_grad():
            theirs = seconds(lambda: [bag(ids, offsets) for bag, ids in zip(self.bags, inputs)])
        return ours, theirs

    def push(self, turn: int) -> tuple[float, float]:
        """Returns the seconds of a backward pass with the optimizer's step. Ours comes at once after the forward pass, so it
        includes the rest of the casting."""
        self.lay_out(turn)
        self.step += 1
        self.batch.lookup(ticket=True)
        for i in range(len(self.tables)):
            self.batch.gradients(i)[:] = self.gradient.numpy()
        ours = seconds(lambda: self.batch.push(LEARNING_RATE, self.step))
        offsets = torch.from_numpy(self.offsets[:-1])
        sums = [
            bag(torch.from_numpy(ids), offsets)
            for bag, ids in zip(self.bags, self.draws[turn % BATCHES])
        ]

        def backward() -> None:
            torch.autograd.backward(sums, [self.gradient] * len(sums))
            self.optimizer.step()

        theirs = seconds(backward)
        self.optimizer.zero_grad(set_to_none=True)
        return ours, theirs

    def cast(self, turn: int) -> tuple[float, float, float]:
        """Returns the seconds of a push after the trainer's forward pass, of a push when all is cast, and of the casting."""
        before = self.casting_seconds()
        after = self.push_after(turn, self.dense)
        casting = self.casting_seconds() - before
        return after, self.push_after(turn, wait_for_casters), casting

    def casting_seconds(self) -> float:
        return self.connection.status()["metrics"]["casting_seconds"]

    def push_after(self, turn: int, pause: Callable[[], object]) -> float:
        self.lay_out(turn)
        self.step += 1
        self.batch.lookup(ticket=True)
        for i in range(len(self.tables)):
            self.batch.gradients(i)[:] = self.gradient.numpy()
        pause()
        return seconds(lambda: self.batch.push(LEARNING_RATE, self.step))

    def fused(self) -> Fused:
        """FBGEMM's module, with the same rows."""
        return Fused([bag.weight.detach() for bag in self.bags])

    def pooled_fused(self, turn: int, fused: Fused) -> tuple[float, float]:
        self.lay_out(turn)
        ours = seconds(self.batch.lookup)
        inputs = self.joined(turn)
        with torch.no_grad():
            return ours, seconds(lambda: fused.bags(*inputs))

    def push_fused(self, turn: int, fused: Fused) -> tuple[float, float]:
        ours = self.push_after(turn, lambda: None)
        sums = fused.bags(*self.joined(turn))
        gradient = torch.cat([self.gradient] * len(self.tables), dim=1)
        return ours, seconds(lambda: sums.backward(gradient))

    def joined(self, turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.from_numpy(np.concatenate(self.draws[turn % BATCHES]))
        return ids, torch.arange(0, len(ids) + 1, GATHERS)

    def dense(self) -> torch.Tensor:
        """The part of the model that is not embeddings: its pass over the batch, forward and backward."""
        loss = self.mlp(torch.cat([self.gradient] * len(self.tables), dim=1)).square().mean()
        loss.backward()
        return loss

    def check(self) -> None:
        """Both sides must still have the same rows, and almost all lookups must have hit. 1 in 1,000 rows left while the index
        grew, unless an earlier lookup has brought it back."""
        self.lay_out(0)
        self.batch.lookup()
        if self.batch.hit_rows < 0.998 * self.setting.ids * len(self.tables):
            sys.exit("bench_training: rows are not in DRAM")
        ids, offsets = torch.from_numpy(self.draws[0][0]), torch.from_numpy(self.offsets[:-1])
        with torch.no_grad():
            torch.testing.assert_close(
                torch.from_numpy(self.batch.bags(0)), self.bags[0](ids, offsets), rtol=1e-3, atol=1e-3
            )


def seconds(what: Callable[[], object]) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


PYTORCH = f"PyTorch {torch.__version__} EmbeddingBag, {THREADS} thread(s)"
FBGEMM = f"FBGEMM's table-batched embedding bags, {THREADS} thread(s)"


def report(
    name: str, setting: Setting, pairs: list[tuple[float, float]], bar: float | None, reference: str = PYTORCH
) -> None:
    rows = setting.ids * setting.tables
    ratios = [theirs / ours for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    quartiles = np.quantile(ratios, [0.25, 0.75]).tolist()
    figure = {
        "name": f"{name}-{setting.model}-{setting.draw}",
        "unit": " rows/s",
        "better": "higher",
        "ours": rows / statistics.median(ours for ours, _ in pairs),
        "reference": rows / statistics.median(theirs for _, theirs in pairs),
        "reference_name": reference,
        "reference_options": f"{setting.tables} tables of {setting.rows:,} rows, SGD",
        "ratio": ratio,
        "ratio_quartiles": quartiles,
        "n": len(pairs),
        "limit": "memory bandwidth and latency of one core a thread",
    }
    if bar is not None:
        figure |= {"bar": bar, "met": ratio >= bar}
    print(json.dumps(figure), flush=True)


def wait_for_casters() -> None:
    time.sleep(1)


def report_hidden(setting: Setting, turns: list[tuple[float, float, float]]) -> None:
    """Reports the part of the casting for which a push does not wait, when it comes after the trainer's pass over its dense
    layers. A push after all is cast gives the time of a push alone."""
    after, cast, casting = (statistics.median(turn[i] for turn in turns) for i in range(3))
    share = 1 - min(max(after - cast, 0) / casting, 1)
    print(
        json.dumps(
            {
                "name": f"cast-hidden-{setting.model}-{setting.draw}",
                "unit": " of the casting",
                "better": "higher",
                "ours": share,
                "reference": 1.0,
                "reference_name": "casting at the time of the push: nothing hidden, 1: all",
                "reference_options": f"casting is {casting:.3f} s, the push {cast:.3f} s, or {after:.3f} s; "
                f"{os.cpu_count()} cores for trainer, lanes and casters",
                "ratio": share,
                "bar": 0.9,
                "met": share >= 0.9,
                "ratio_quartiles": [share, share],
                "n": len(turns),
                "limit": "a core for the casters",
            }
        ),
        flush=True,
    )


def report_bytes(setting: Setting, sides: Sides) -> None:
    """Reports the bytes that cross shared memory in a step: ids and distinct rows twice, or ids and bags twice."""
    distinct = sum(len(np.unique(ids)) for ids in sides.draws[0])
    rows = distinct * 2 * (8 + DIM * 4)
    offsets = (setting.bags + 1) * 4
    pooled = setting.tables * (setting.ids * 8 + offsets + 2 * setting.bags * DIM * 4)
    print(
        json.dumps(
            {
                "name": f"pooled-bytes-{setting.model}-{setting.draw}",
                "unit": " B/step",
                "better": "lower",
                "ours": pooled,
                "reference": rows,
                "reference_name": "GET and SET of the distinct rows",
                "reference_options": f"{setting.tables} tables of {setting.rows:,} rows",
                "ratio": pooled / rows,
                "ratio_quartiles": [pooled / rows] * 2,
                "n": 1,
                "limit": "counted, not measured",
            }
        ),
        flush=True,
    )


def main() -> None:
    given = options(__doc__, ["pooled", "cast-push", "cast-hidden", "pooled-bytes", "pooled-array"], 15)
    names = given.names
    torch.set_num_threads(THREADS)
    for setting in settings(given.scale):
        print(f"bench_training: {setting}", file=sys.stderr)
        with server(setting) as connection:
            sides = Sides(setting, connection)
            asked = {"pooled": 0.7 if setting.draw == "uniform" else 1.0, "cast-push": 5.0}
            for name, turn in (("pooled", sides.pooled), ("cast-push", sides.push)):
                if name in names:
                    report(name, setting, [turn(n) for n in range(given.turns + 1)][1:], asked[name])
            sides.check()
            if fbgemm:
                fused = sides.fused()
                for name, turn in (("pooled", sides.pooled_fused), ("cast-push", sides.push_fused)):
                    if name in names:
                        pairs = [turn(n, fused) for n in range(given.turns + 1)][1:]
                        report(f"{name}-fbgemm", setting, pairs, None, FBGEMM)
            if "cast-hidden" in names:
                report_hidden(setting, [sides.cast(n) for n in range(given.turns + 1)][1:])
            if "pooled-bytes" in names:
                report_bytes(setting, sides)
            del sides
        if "pooled-array" in names:
            with server(setting, home="array") as connection:
                sides = Sides(setting, connection, "array")
                pairs = [sides.pooled(n) for n in range(given.turns + 1)][1:]
                report("pooled-array", setting, pairs, 1.2 if setting.draw == "zipf" else None)
                sides.check()


if __name__ == "__main__":
    main()
