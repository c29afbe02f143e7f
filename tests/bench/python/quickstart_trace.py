#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes to a file which rows the training of tools/quickstart looks up, in order.

Each row of each table has a number, from 0 up in the order in which it is first seen. The file has one number of four bytes,
little-endian, for each row of each GET. A step asks for each of its rows once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

from online_retail import load  # noqa: E402

SEED, BATCH = 1, 128  # as in examples/train_online_retail.py


def accesses() -> np.ndarray:
    """The numbers of tables and ids, [count, 2]."""
    samples = load(ROOT / "tests/data/online-retail.csv.gz", SEED).train
    order = np.random.default_rng(SEED).permutation(len(samples))
    parts = []
    for i in range(0, len(order), BATCH):
        step = samples.take(order[i : i + BATCH])
        for table, bags in enumerate(step.bags.values()):
            ids = np.unique(bags.ids)
            parts.append(np.stack([np.full(len(ids), table), ids], axis=1))
    return np.concatenate(parts)


def numbers(keys: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    by_first_sight = np.empty(len(first), np.uint32)
    by_first_sight[np.argsort(first)] = np.arange(len(first))
    return by_first_sight[inverse.reshape(-1)]


if __name__ == "__main__":
    numbers(accesses()).astype("<u4").tofile(sys.argv[1])
