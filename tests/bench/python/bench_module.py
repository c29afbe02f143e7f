#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of a model by embtier.torch's modules, against the same model with torch.nn.EmbeddingBag, all rows in DRAM.

26 tables of 20,000 rows of 32 numbers, mean of three ids, SGD, 256 samples, and dense layers over the bags. `module` has a module
per table, `collection` one for all; both push in the backward pass. `-step` gathers the gradients for CombinedOptimizer
(update="step"). torch has sparse gradients; `torch-dense` has dense ones, its default. The sides take turns of some steps. A
figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import json
import statistics
import time

import numpy as np
import torch
from bench_daemon import options
from bench_training import LEARNING_RATE, Setting, server

import embtier
import embtier.torch

TABLES, ROWS, DIM, LENGTH = 26, 20_000, 32, 3
BAGS = 256
STEPS = 20  # per turn


class Model(torch.nn.Module):
    def __init__(self, bags: list[torch.nn.Module] | None, collection: torch.nn.Module | None, width: int) -> None:
        super().__init__()
        self.bags = None if bags is None else torch.nn.ModuleList(bags)
        self.collection = collection
        self.top = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, ids: list[torch.Tensor]) -> torch.Tensor:
        if self.collection is not None:
            pooled = list(self.collection({str(i): one for i, one in enumerate(ids)}).values())
        else:
            assert self.bags is not None
            pooled = [bag(one) for bag, one in zip(self.bags, ids)]
        return self.top(torch.cat(pooled, 1)).square().mean()


class Side:
    def __init__(self, model: Model, rows_apart: bool) -> None:
        """@rows_apart: torch's side; a second optimizer steps its sparse gradients as ours does."""
        self.model = model
        optimizer = torch.optim.SGD(model.top.parameters() if rows_apart else model.parameters(), lr=LEARNING_RATE)
        self.optimizers = [optimizer if rows_apart else embtier.torch.CombinedOptimizer(optimizer, model)]
        if rows_apart:
            assert model.bags is not None
            self.optimizers.append(torch.optim.SGD(model.bags.parameters(), lr=LEARNING_RATE))

    def turn(self, batches: list[list[torch.Tensor]]) -> float:
        """Returns the seconds of a step."""
        begin = time.perf_counter()
        for ids in batches:
            for one in self.optimizers:
                one.zero_grad()
            self.model(ids).backward()
            for one in self.optimizers:
                one.step()
        return (time.perf_counter() - begin) / len(batches)


def sides(connection: embtier.Server, tables: int, rows: int) -> dict[str, Side]:
    def make(prefix: str) -> list[embtier.Table]:
        made = [
            connection.create_table(f"{prefix}{i}", DIM, rows, optimizer="sgd", init=("normal", 0, 0.1), eager=True)
            for i in range(tables)
        ]
        for table in made:
            table.get(np.arange(rows))  # brings them from SSD to DRAM, where they stay
        return made

    width = tables * DIM
    found = {"torch": Side(Model([torch.nn.EmbeddingBag(rows, DIM, sparse=True) for _ in range(tables)], None, width), True)}
    found["torch-dense"] = Side(Model([torch.nn.EmbeddingBag(rows, DIM) for _ in range(tables)], None, width), True)
    for update, suffix in (("backward", ""), ("step", "-step")):
        choice = {"lr": LEARNING_RATE, "update": update}
        apart = [embtier.torch.EmbeddingBag(table, **choice) for table in make(f"m{suffix}")]
        found[f"module{suffix}"] = Side(Model(apart, None, width), False)
        together = {str(i): table for i, table in enumerate(make(f"c{suffix}"))}
        collection = embtier.torch.EmbeddingBagCollection(together, **choice)
        found[f"collection{suffix}"] = Side(Model(None, collection, width), False)
    return found


def report(name: str, seconds: list[float], reference: list[float], tables: int, rows: int) -> None:
    ratios = [theirs / ours for ours, theirs in zip(seconds, reference)]
    print(
        json.dumps(
            {
                "name": name,
                "unit": " steps/s",
                "better": "higher",
                "ours": 1 / statistics.median(seconds),
                "reference": 1 / statistics.median(reference),
                "reference_name": f"torch {torch.__version__}, sparse gradients",
                "reference_options": f"{tables} tables of {rows:,} rows of {DIM}, {BAGS} samples of {LENGTH} ids, 1 thread, 1 lane",
                "ratio": statistics.median(ratios),
                "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
                "n": len(ratios),
                "limit": "Python's and autograd's time for a module; one request a pass",
            }
        ),
        flush=True,
    )


def main() -> None:
    given = options(__doc__, ["module", "collection", "module-step", "collection-step", "torch-dense"], 15)
    torch.set_num_threads(1)
    tables, rows = max(2, round(TABLES * given.scale)), max(1000, round(ROWS * given.scale))
    random = torch.Generator().manual_seed(1)
    room = 8 * tables * rows * DIM * 4 + (64 << 20)
    with server(Setting("module", tables, rows, "uniform", BAGS), room, {"lanes": {"count": 1}}) as connection:
        every = sides(connection, tables, rows)
        seconds: dict[str, list[float]] = {name: [] for name in every}
        for turn in range(-2, given.turns):
            steps = max(2, round(STEPS * given.scale))
            batches = [[torch.randint(0, rows, (BAGS, LENGTH), generator=random) for _ in range(tables)] for _ in range(steps)]
            for name, side in every.items():
                took = side.turn(batches)
                if turn >= 0:
                    seconds[name].append(took)
        for name in given.names:
            report(name, seconds[name], seconds["torch"], tables, rows)


if __name__ == "__main__":
    main()
