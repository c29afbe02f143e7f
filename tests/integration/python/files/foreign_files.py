# SPDX-License-Identifier: Apache-2.0
"""Files that the tests of imports write."""

from __future__ import annotations

import json

import numpy as np

ROWS = 1000
IDS = np.arange(0, 900, 3, dtype=np.uint64)


def numbers(rows: int, dim: int, dtype: str = "<f4") -> np.ndarray:
    return np.random.default_rng(rows).uniform(-1, 1, (rows, dim)).astype(dtype)


def header_of(**tensors) -> bytes:
    return json.dumps(
        {k: {"dtype": d, "shape": s, "data_offsets": o} for k, (d, s, o) in tensors.items()}
    ).encode()
