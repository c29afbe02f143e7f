#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps of the quickstart's model over TCP, compared with shared memory.

The model is that of examples/train_online_retail.py, with its default sizes, SGD and one thread of torch. Both sides have tables of
their own in one server, which has all rows in memory, and take turns of some steps. They train the same batches, so their losses
must be the same to the last bit. A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys

import numpy as np
import torch
from bench_daemon import ROOT, Listening, embtier, listening, options

sys.path.insert(0, str(ROOT / "examples"))

from online_retail import Retail, load  # noqa: E402
from train_online_retail import DATA, INIT, Batch, Trainer, batches, make_trainers  # noqa: E402

BATCH, STEPS = 128, 50  # samples; steps of a turn
DISTINCT_BATCHES = 100  # used round and round, so that their rows are in memory after the first turns
MODEL = argparse.Namespace(dim=320, lr=20.0, mlp_lr=1e-3, seed=1)  # the program's defaults
ARENA_BYTES = 64 << 20


class Side:
    def __init__(self, name: str, address: str, retail: Retail, drawn: list[Batch]) -> None:
        self.server = embtier.connect(address, arena_bytes=ARENA_BYTES)
        tables = {
            feature: self.server.create_table(
                f"{name}.{feature}", MODEL.dim, rows, optimizer="sgd", init=INIT, seed=MODEL.seed * 100 + i
            )
            for i, (feature, rows) in enumerate(retail.rows.items())
        }
        self.trainer: Trainer = make_trainers(tables, None, MODEL)[0]
        self.drawn = itertools.cycle(drawn)

    def turn(self, steps: int) -> float:
        """Returns samples a second."""
        before = self.trainer.seconds
        for batch in itertools.islice(self.drawn, steps):
            self.trainer.step(batch)
        return steps * BATCH / (self.trainer.seconds - before)


def take_turns(server: Listening, turns: int, steps: int) -> list[tuple[float, float]]:
    retail = load(DATA, MODEL.seed)
    order = np.random.default_rng(MODEL.seed).permutation(len(retail.train))[: DISTINCT_BATCHES * BATCH]
    drawn = list(batches(retail.train, order, BATCH))
    tcp, memory = Side("tcp", server.address, retail, drawn), Side("memory", server.socket, retail, drawn)
    for side in (memory, tcp):
        side.turn(len(drawn) if steps == STEPS else 1)
    pairs = []
    for turn in range(turns):
        if turn % 2:
            ours, theirs = tcp.turn(steps), memory.turn(steps)
        else:
            theirs, ours = memory.turn(steps), tcp.turn(steps)
        pairs.append((ours, theirs))
    if tcp.trainer.losses != memory.trainer.losses:
        sys.exit("bench_rpc_training: the losses of the two sides differ")
    return pairs


def report(pairs: list[tuple[float, float]]) -> None:
    ratios = [ours / theirs for ours, theirs in pairs]
    print(
        json.dumps(
            {
                "name": "rpc-train",
                "unit": " samples/s",
                "better": "higher",
                "ours": statistics.median(ours for ours, _ in pairs),
                "reference": statistics.median(theirs for _, theirs in pairs),
                "reference_name": "the same model over shared memory",
                "reference_options": f"quickstart's model, batches of {BATCH}, rows of {MODEL.dim} f32, all in memory",
                "ratio": statistics.median(ratios),
                "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
                "n": len(pairs),
                "limit": "the model's arithmetic on one core",
            }
        ),
        flush=True,
    )


def main() -> None:
    given = options(__doc__, ["rpc-train"], 15)
    torch.set_num_threads(1)
    steps = max(2, round(STEPS * min(given.scale, 1)))
    config = {"cache": {"tiers": [{"bytes": "1GiB"}]}}
    with listening(config) as server:
        report(take_turns(server, given.turns, steps))


if __name__ == "__main__":
    main()
