# SPDX-License-Identifier: Apache-2.0
"""Exports and imports of tables as the library describes them."""

from __future__ import annotations

import os
from ctypes import pointer, sizeof
from dataclasses import dataclass

from . import _types
from ._arguments import flag, integer, shown
from ._library import ExportedInfo, ExportOptions, ImportedInfo, ImportOptions, TableOptions

_CHECKPOINT_NEWEST = 2**64 - 1  # EMBTIER_CHECKPOINT_NEWEST
_FORMATS = {"safetensors": 0, "npy": 1}
_AS_EXPORTED = -1
_ROWS_OF_FILE = 2**64 - 1  # EMBTIER_ROWS_OF_FILE


@dataclass(frozen=True)
class Exported:
    """Result of :meth:`Server.export_table`.

    @checkpoint: the checkpoint that the rows are from.
    @rows: number of rows.
    @bytes: size of all files of rows.
    @parts: number of parts: one safetensors file each, or one .npy file for each tensor.
    """

    checkpoint: int
    rows: int
    bytes: int
    parts: int


@dataclass(frozen=True)
class Imported:
    """Result of :meth:`Server.import_table`.

    @name: name of the table.
    @rows: number of rows in the files.
    @bytes: size of these rows in the files.
    """

    name: str
    rows: int
    bytes: int


def export_options_of(
    checkpoint: int | str | None, state: bool, all_rows: bool, format: str, file_bytes: int | None
) -> ExportOptions:
    if isinstance(checkpoint, str) and checkpoint != "newest":
        raise ValueError(f"checkpoint must be an id, 'newest' or None, not {shown(checkpoint)}")
    if checkpoint is None:
        number = 0
    elif isinstance(checkpoint, str):
        number = _CHECKPOINT_NEWEST
    else:
        number = integer("checkpoint", checkpoint, 1, _CHECKPOINT_NEWEST - 1)
    return ExportOptions(
        struct_bytes=sizeof(ExportOptions),
        checkpoint=number,
        with_state=flag("state", state),
        all_rows=all_rows,
        npy=_types.number_of("format", _FORMATS, format),
        file_bytes=0 if file_bytes is None else integer("file_bytes", file_bytes, 1, 2**64 - 1),
    )


def import_options_of(
    table: TableOptions | None,
    state: bool,
    durability: str | None,
    home: str,
    tier: str | None,
    tensor: str | None,
    ids_path: str | os.PathLike[str] | None,
    rows: int | str | None,
) -> ImportOptions:
    """Makes C's options. @table: None, and so NULL for C, if the caller gave no options of the
    table."""
    number = _AS_EXPORTED
    if durability is not None:
        number = _types.number_of("durability", _types.DURABILITY_NUMBERS, durability)
    return ImportOptions(
        struct_bytes=sizeof(ImportOptions),
        table=None if table is None else pointer(table),
        durability=number,
        without_state=not flag("state", state),
        tensor=tensor,
        ids_path=ids_path,
        rows=_rows_of(rows),
        home=_types.number_of("home", _types.HOME_NUMBERS, home),
        home_tier=tier,
    )


def _rows_of(rows: int | str | None) -> int:
    if rows is None:
        return _ROWS_OF_FILE
    if isinstance(rows, str) and rows == "unbounded":
        return _types.UNBOUNDED
    if isinstance(rows, str):
        raise ValueError(f"rows must be a number, 'unbounded' or None, not {shown(rows)}")
    if not 1 <= integer("rows", rows) < _ROWS_OF_FILE:
        raise ValueError(f"rows must be at least 1, and below 2**64 - 1, not {shown(rows)}")
    return rows


def exported_of(info: ExportedInfo) -> Exported:
    return Exported(checkpoint=info.checkpoint, rows=info.rows, bytes=info.bytes, parts=info.parts)


def imported_of(info: ImportedInfo) -> Imported:
    return Imported(name=info.name.decode(), rows=info.rows, bytes=info.bytes)

