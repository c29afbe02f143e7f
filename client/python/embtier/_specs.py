# SPDX-License-Identifier: Apache-2.0
"""Descriptions of tables, from Python to C and back."""

from __future__ import annotations

from ctypes import c_void_p, sizeof

from . import _arguments, _types
from ._library import TableInfo, TableOptions, lib
from ._types import TableSpec


def table_options(
    name: str,
    dim: int,
    rows: int | None,
    dtype: str = "f32",
    optimizer: str = "none",
    init: str | tuple = "zeros",
    seed: int = 0,
    rounding: str = "stochastic",
    allow_nonfinite: bool = False,
    durability: str = "replay",
    home: str = "cache",
    tier: str | None = None,
    **hyperparameters: float | None,
) -> TableOptions:
    """Makes C's options. It checks only what C cannot detect: numbers that have a special meaning there."""
    if rows is not None and _arguments.integer("rows", rows) < 1:
        raise ValueError(f"rows must be at least 1, or None for unbounded, not {_arguments.shown(rows)}")
    init_number, first, second = _types.split_init(init)
    values = {k: hyperparameters.get(k) for k in _types.HYPERPARAMETERS}
    for word, value in values.items():
        if value is not None and _arguments.number(word, value) == _types.DEFAULT:
            raise ValueError(f"{word} {_arguments.shown(value)} is out of range; None is the optimizer's default")
    return TableOptions(
        struct_bytes=sizeof(TableOptions),
        name=name,
        rows=_types.UNBOUNDED if rows is None else rows,
        dim=dim,
        dtype=_types.number_of("dtype", _types.DTYPE_NUMBERS, dtype),
        optimizer=_types.number_of("optimizer", _types.OPTIMIZER_NUMBERS, optimizer),
        init=init_number,
        init_first=first,
        init_second=second,
        seed=seed,
        **{k: _types.DEFAULT if v is None else v for k, v in values.items()},
        rounds_to_nearest=_types.number_of("rounding", _types.ROUNDING_NUMBERS, rounding),
        allows_nonfinite=_arguments.flag("allow_nonfinite", allow_nonfinite),
        durability=_types.number_of("durability", _types.DURABILITY_NUMBERS, durability),
        home=_types.number_of("home", _types.HOME_NUMBERS, home),
        home_tier=tier,
    )


def spec_of(info: TableInfo) -> TableSpec:
    init = _types.word_of(_types.INIT_NUMBERS, info.init)
    parameters = (info.init_first, info.init_second)[: _types.INIT_PARAMETERS.get(init, 0)]
    optimizer = _types.word_of(_types.OPTIMIZER_NUMBERS, info.optimizer)
    has = _types.OPTIMIZER_HYPERPARAMETERS.get(optimizer, ())
    return TableSpec(
        name=info.name.decode(),
        rows=None if info.rows == _types.UNBOUNDED else info.rows,
        dim=info.dim,
        dtype=_types.word_of(_types.DTYPE_NUMBERS, info.dtype),
        optimizer=optimizer,
        init=(init, *parameters),
        seed=info.seed,
        eager=bool(info.eager),
        **{k: getattr(info, k) if k in has else None for k in _types.HYPERPARAMETERS},
        rounding=_types.word_of(_types.ROUNDING_NUMBERS, info.rounds_to_nearest),
        allow_nonfinite=bool(info.allows_nonfinite),
        durability=_types.word_of(_types.DURABILITY_NUMBERS, info.durability),
        home=_types.word_of(_types.HOME_NUMBERS, info.home),
        tier=(info.home_tier or b"").decode() or None,
        table_id=info.table_id,
        state=info.state.decode(),
        state_numbers=info.state_bytes // 4,
        uuid=info.uuid.decode(),
        step=info.step,
        hot_rows=info.hot_rows,
    )


def specs_of(pointer: c_void_p) -> list[TableSpec]:
    """Reads a list of the library and frees it."""
    try:
        count = lib.embtier_table_list_count(pointer)
        return [spec_of(lib.embtier_table_list_at(pointer, i).contents) for i in range(count)]
    finally:
        lib.embtier_table_list_free(pointer)
