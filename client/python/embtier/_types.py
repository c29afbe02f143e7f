# SPDX-License-Identifier: Apache-2.0
"""The words that describe a table. Their numbers are those of embtier_types.h; a test compares them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._arguments import kind_of, number, shown

DTYPE_NUMBERS = {"f32": 1, "f16": 2, "bf16": 3}
OPTIMIZER_NUMBERS = {
    "none": 0, "sgd": 1, "adagrad": 2, "rowwise_adagrad": 3, "rmsprop": 4, "adam": 5, "momentum": 6, "adamw": 7,
    "sparse_adam": 8,
}  # fmt: skip
# In the order of the C structs' fields. These are names of create_table()'s arguments and of TableSpec's fields.
HYPERPARAMETERS = ("eps", "alpha", "beta1", "beta2", "momentum", "weight_decay", "clip_norm")
OPTIMIZER_HYPERPARAMETERS = {
    "none": (),
    "sgd": ("weight_decay", "clip_norm"),
    "adagrad": ("eps", "weight_decay", "clip_norm"),
    "rowwise_adagrad": ("eps", "weight_decay", "clip_norm"),
    "rmsprop": ("eps", "alpha", "weight_decay", "clip_norm"),
    "adam": ("eps", "beta1", "beta2", "weight_decay", "clip_norm"),
    "momentum": ("momentum", "weight_decay", "clip_norm"),
    "adamw": ("eps", "beta1", "beta2", "weight_decay", "clip_norm"),
    "sparse_adam": ("eps", "beta1", "beta2", "weight_decay", "clip_norm"),
}
DEFAULT = -1e300  # EMBTIER_DEFAULT
ROUNDING_NUMBERS = {"stochastic": 0, "nearest": 1}
DURABILITY_NUMBERS = {"replay": 0, "async": 1, "sync": 2}
HOME_NUMBERS = {"cache": 0, "array": 1, "split": 2}
POOL_NUMBERS = {"sum": 1, "mean": 2, "max": 3}
INIT_NUMBERS = {"zeros": 0, "constant": 1, "uniform": 2, "normal": 3}
INIT_PARAMETERS = {"zeros": 0, "constant": 1, "uniform": 2, "normal": 2}

# NumPy has no bfloat16, so arrays have such rows as bits.
NUMPY_DTYPES: dict[str, np.dtype] = {"f32": np.dtype("<f4"), "f16": np.dtype("<f2"), "bf16": np.dtype("<u2")}

UNBOUNDED = 0


@dataclass(frozen=True)
class TableSpec:
    """Description of a table.

    @rows: None if it is unbounded: any id from 0 to 2**64 - 1 is a row.
    @state: "creating", "live" or "dropping".
    @home, @tier: as in :meth:`Server.create_table`; @tier is None if the home is the cache.
    @hot_rows: of home "split": the number of rows that have a place in its array; else 0.
    @state_numbers: number of state values that the optimizer keeps for a row.
    @uuid: tells the table's rows from those of other created tables. Checkpoints, exports and imports preserve it, so
    copies have the same.
    @step: see :attr:`Table.step`, as of the time when the table was opened or listed.

    Hyperparameters are None if the optimizer does not have them."""

    name: str
    rows: int | None
    dim: int
    dtype: str
    optimizer: str
    init: tuple[str | float, ...]
    seed: int
    eager: bool
    eps: float | None
    alpha: float | None
    beta1: float | None
    beta2: float | None
    momentum: float | None
    weight_decay: float | None
    clip_norm: float | None
    rounding: str
    allow_nonfinite: bool
    durability: str
    home: str
    tier: str | None
    table_id: int
    state: str
    state_numbers: int
    uuid: str = ""
    step: int = field(default=0, compare=False)
    hot_rows: int = 0

    @property
    def numpy_dtype(self) -> np.dtype:
        return NUMPY_DTYPES[self.dtype]


def word_of(numbers: dict[str, int], found: int) -> str:
    for word, value in numbers.items():
        if value == found:
            return word
    return f"unknown ({found})"


def one_of(what: str, words: Collection[str], word: Any) -> str:
    """Returns @word, one of @words."""
    if not isinstance(word, str):
        raise TypeError(f"{what} must be one of {', '.join(words)}, not {kind_of(word)} {shown(word)}")
    if word not in words:
        raise ValueError(f"{what} must be one of {', '.join(words)}, not {shown(word)}")
    return word


def number_of(what: str, numbers: dict[str, int], word: str) -> int:
    return numbers[one_of(what, numbers, word)]


def split_init(init: str | tuple) -> tuple[int, float, float]:
    """Splits ``"zeros"``, ``("constant", value)``, ``("uniform", low, high)`` or ``("normal", mean, stddev)`` into a
    number and two parameters."""
    if not isinstance(init, (str, tuple, list)) or not init:
        raise TypeError(f"init must be a word, or a tuple of one and numbers, not {kind_of(init)} {shown(init)}")
    word, *parameters = (init,) if isinstance(init, str) else init
    init_number = number_of("init", INIT_NUMBERS, word)
    if len(parameters) != INIT_PARAMETERS[word]:
        raise ValueError(f"init {word!r} takes {INIT_PARAMETERS[word]} parameters, not {len(parameters)}")
    first, second = (*(number(f"a parameter of init {word!r}", value) for value in parameters), 0.0, 0.0)[:2]
    return init_number, first, second
