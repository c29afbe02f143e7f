# SPDX-License-Identifier: Apache-2.0
"""Exports and imports of tables, as the library describes them."""

from __future__ import annotations

import operator
import os
from ctypes import pointer
from dataclasses import dataclass

from . import _types
from ._library import ExportedInfo, ExportOptions, ImportedInfo, ImportOptions, TableOptions

_CHECKPOINT_NEWEST = 2**64 - 1  # EMBTIER_CHECKPOINT_NEWEST
_FORMATS = {"safetensors": 0, "npy": 1}
_AS_EXPORTED = -1
_ROWS_OF_FILE = 2**64 - 1  # EMBTIER_ROWS_OF_FILE


@dataclass(frozen=True)
class Exported:
    """What :meth:`Server.export_table` has written.

    @checkpoint: the table is as it was in it. @rows: how many. @bytes: of all files of rows.
    @parts: one safetensors file each, or one .npy file for each tensor.
    """

    checkpoint: int
    rows: int
    bytes: int
    parts: int


@dataclass(frozen=True)
class Imported:
    """What :meth:`Server.import_table` has made.

    @name: of the table. @rows: that were in the files. @bytes: theirs, as they lie there.
    """

    name: str
    rows: int
    bytes: int


def export_options_of(
    checkpoint: int | str | None, state: bool, all_rows: bool, format: str, file_bytes: int | None
) -> ExportOptions:
    if isinstance(checkpoint, str) and checkpoint != "newest":
        raise ValueError(f"checkpoint must be an id, 'newest' or None, not {checkpoint!r}")
    if checkpoint is None:
        number = 0
    elif checkpoint == "newest":
        number = _CHECKPOINT_NEWEST
    elif not 1 <= (number := operator.index(checkpoint)) < _CHECKPOINT_NEWEST:
        raise ValueError(f"checkpoint must be from 1 to 2**64 - 2, not {number}")
    if file_bytes is not None and not 1 <= (file_bytes := operator.index(file_bytes)) < 2**64:
        raise ValueError(f"file_bytes must be from 1 to 2**64 - 1, not {file_bytes}")
    return ExportOptions(
        checkpoint=number,
        with_state=bool(state),
        all_rows=bool(all_rows),
        npy=_types.number_of("format", _FORMATS, format),
        file_bytes=file_bytes or 0,
    )


def import_options_of(
    table: TableOptions | None,
    state: bool,
    durability: str | None,
    tensor: str | None,
    ids_path: str | os.PathLike[str] | None,
    rows: int | str | None,
) -> ImportOptions:
    """@table: NULL for C where the caller has said nothing of it."""
    number = _AS_EXPORTED
    if durability is not None:
        number = _types.number_of("durability", _types.DURABILITY_NUMBERS, durability)
    return ImportOptions(
        table=None if table is None else pointer(table),
        durability=number,
        without_state=not state,
        tensor=None if tensor is None else bytes_of("tensor", tensor.encode()),
        ids_path=None if ids_path is None else path_of(ids_path),
        rows=_rows_of(rows),
    )


def _rows_of(rows: int | str | None) -> int:
    if rows is None:
        return _ROWS_OF_FILE
    if rows == "unbounded":
        return _types.UNBOUNDED
    if isinstance(rows, str):
        raise ValueError(f"rows must be a number, 'unbounded' or None, not {rows!r}")
    if not 1 <= (rows := operator.index(rows)) < _ROWS_OF_FILE:
        raise ValueError(f"rows must be at least 1, and below 2**64 - 1, not {rows}")
    return rows


def path_of(path: str | os.PathLike[str]) -> bytes:
    return bytes_of("a path", os.fsencode(path))


def bytes_of(what: str, text: bytes) -> bytes:
    """C would take what stands before a zero byte for all of it."""
    if b"\0" in text:
        raise ValueError(f"{what} must not hold a zero byte: {text!r}")
    return text


def exported_of(info: ExportedInfo) -> Exported:
    return Exported(checkpoint=info.checkpoint, rows=info.rows, bytes=info.bytes, parts=info.parts)


def imported_of(info: ImportedInfo) -> Imported:
    return Imported(name=info.name.decode(), rows=info.rows, bytes=info.bytes)

