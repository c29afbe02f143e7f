# SPDX-License-Identifier: Apache-2.0
"""Shared helpers for tests of prefetches: a cache that is too small, and the number of pinned rows in it."""

from __future__ import annotations

import time

import numpy as np
from conftest import LANES

import embtier

DIM = 256  # a row of f32 has 1 KiB, and the first tier 4 MiB a lane
TIER_ROWS = 4096 * LANES
ROWS = 8 * TIER_ROWS  # both tiers together hold a quarter
LIMIT_S = 60


def make_table(server: embtier.Server, name: str) -> embtier.Table:
    return server.create_table(name, DIM, ROWS, optimizer="sgd", init=("uniform", -1, 1), seed=3)


def press(table: embtier.Table, first: int = ROWS // 2) -> None:
    """Reads all rows from @first on, which are more than the cache holds."""
    for begin in range(first, table.rows, 4096):
        table.get(np.arange(begin, min(begin + 4096, table.rows)))


def all_rows(table: embtier.Table) -> np.ndarray:
    """Reads all rows, as many at a time as the arena has room for."""
    return np.concatenate([table.get(ids) for ids in np.split(np.arange(ROWS), 8 * LANES)])


def pinned_rows(server: embtier.Server) -> int:
    return int(server.status()["metrics"]["cache_pinned_rows"])


def await_pinned(server: embtier.Server, rows: int) -> None:
    """Waits until @rows are pinned. Pins end some time after the answer to the request that ends them."""
    deadline = time.monotonic() + LIMIT_S
    while (pinned := pinned_rows(server)) != rows:
        assert time.monotonic() < deadline, f"{pinned} rows are pinned"
        time.sleep(0.002)


def hits(table: embtier.Table, ids: np.ndarray) -> int:
    with table.server.batch([(table, len(ids))]) as batch:
        batch.ids(0)[:] = ids
        return batch.get().hit_rows
