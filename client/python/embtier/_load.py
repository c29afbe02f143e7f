# SPDX-License-Identifier: Apache-2.0
"""New tables, made of rows that the caller gives in pieces, or of Parquet files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import warnings
from collections.abc import Iterable, Iterator
from ctypes import byref, c_void_p
from typing import Any

import numpy as np

from ._arguments import kind_of, short, shown
from ._connection import Connection
from ._ids import as_dtype, as_ids, as_rows, as_shape
from ._library import TableOptions, lib
from ._progress import Progress, Reports
from ._types import DTYPE_NUMBERS, NUMPY_DTYPES, word_of

_STATE_DTYPE = np.dtype("<f4")
_CAST = "; convert other numbers first, with table.cast() of pyarrow or array.astype('float32')"


class _Room:
    """The memory, shared with the server, for rows of a load."""

    def __init__(self, pointer: c_void_p, table: str, dtype: str, dim: int, with_state: bool) -> None:
        buffer = lib.embtier_load_buffer(pointer)
        self._table, self._dtype, self._dim, self._with_state = table, dtype, dim, with_state
        self.capacity: int = buffer.capacity
        self.row_bytes: int = buffer.row_bytes
        size = self.capacity * self.row_bytes
        memory = (ctypes.c_uint8 * size).from_address(buffer.rows)
        ids = (ctypes.c_uint64 * self.capacity).from_address(buffer.ids)
        numpy_dtype = NUMPY_DTYPES[dtype]
        weight_bytes = dim * numpy_dtype.itemsize
        self._ids = np.frombuffer(ids, np.uint64)
        strides = (self.row_bytes, numpy_dtype.itemsize)
        self._rows = np.ndarray((self.capacity, dim), numpy_dtype, memory, 0, strides)
        numbers = (self.row_bytes - weight_bytes) // _STATE_DTYPE.itemsize
        strides = (self.row_bytes, _STATE_DTYPE.itemsize)
        self._state = np.ndarray((self.capacity, numbers), _STATE_DTYPE, memory, weight_bytes, strides)

    def fill(self, piece: Any) -> Iterator[int]:
        """Puts a @piece into the memory, as many rows at a time as fit, and yields the number of rows each time."""
        wanted = "(ids, rows, state)" if self._with_state else "(ids, rows)"
        if not isinstance(piece, (tuple, list)) or len(piece) != (3 if self._with_state else 2):
            raise TypeError(f"one of the pieces must be {wanted}, not {kind_of(piece)} {shown(piece)}")
        ids = as_ids(piece[0]).reshape(-1)
        rows = as_shape("rows", as_rows(self._dtype, piece[1]), (len(ids), self._dim), self._table)
        state = as_dtype("state", piece[2], _STATE_DTYPE) if self._with_state else _STATE_DTYPE.type(0)
        state = as_shape("state", state, (len(ids), self._state.shape[1]), self._table)
        for begin in range(0, len(ids), self.capacity):
            end = min(len(ids), begin + self.capacity)
            count = end - begin
            self._ids[:count], self._rows[:count], self._state[:count] = ids[begin:end], rows[begin:end], state[begin:end]
            yield count


def load(
    connection: Connection, options: TableOptions, pieces: Iterable[Any], with_state: bool, progress: Progress | None
) -> tuple[int, int]:
    """Makes the table of @options from @pieces. Returns the number of their rows and bytes."""
    if not isinstance(pieces, Iterable):
        raise TypeError(f"pieces must give (ids, rows) one after the other, not {kind_of(pieces)} {shown(pieces)}")
    pointer, taken = c_void_p(), 0
    try:
        with connection as handle:
            connection.check(lib.embtier_load_open(handle, byref(options), with_state, 0, byref(pointer)))
            connection.add_batch(pointer)
        dtype = word_of(DTYPE_NUMBERS, options.dtype)
        room = _Room(pointer, options.name.decode(), dtype, options.dim, with_state)
        for piece in pieces:
            for count in room.fill(piece):
                with connection:
                    connection.check(lib.embtier_load_rows(pointer, count))
                taken += count
        with Reports(progress) as reports, connection:
            connection.check(lib.embtier_load_end(pointer, reports.function, None))
        return taken, taken * room.row_bytes
    finally:
        if pointer.value is not None:
            if connection.is_open:
                connection.discard(lib.embtier_load_close, pointer)
                with contextlib.suppress(RuntimeError), connection:  # else the next call closes it
                    pass
            connection.let_go(pointer)


# ---- Parquet ----

_ROWS_AT_ONCE = 65536


def is_parquet(path: Any) -> bool:
    """True if the file's first bytes are those of Parquet."""
    try:
        file = os.open(os.fspath(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO does not block this open
    except (OSError, TypeError, ValueError):
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and os.pread(file, 4, 0) == b"PAR1"
    except OSError:
        return False
    finally:
        os.close(file)


class Parquet:
    """A Parquet file with a column of vectors of one length, and perhaps one of ids. ImportError without pyarrow."""

    def __init__(self, path: Any, column: str | None, ids_column: str | None) -> None:
        try:
            import pyarrow.parquet
        except ImportError as error:
            raise ImportError(f"{os.fspath(path)!r} is a Parquet file, for which the package pyarrow is needed: {error}") from None
        self._types = pyarrow.types
        self._path = os.fspath(path)
        self._file = pyarrow.parquet.ParquetFile(path)
        schema = self._file.schema_arrow
        self._fields = {field.name: field.type for field in schema}
        self.column = self._choose("tensor", column, self._is_vector, "a list of float32 or float16 numbers")
        self.ids_column = ids_column
        if ids_column is not None or "id" in self._fields:
            self.ids_column = self._choose("ids_column", ids_column or "id", self._types.is_integer, "an integer")
        self._tell_of_other_ids()
        kind = self._fields[self.column].value_type
        self.dtype = "f16" if self._types.is_float16(kind) else "f32"
        self.rows: int = self._file.metadata.num_rows
        self.dim = self._find_dim()

    def _is_vector(self, kind: Any) -> bool:
        types = self._types
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return is_list and (types.is_float32(kind.value_type) or types.is_float16(kind.value_type))

    def _choose(self, what: str, name: str | None, fits: Any, says: str) -> str:
        fitting = [one for one, kind in self._fields.items() if fits(kind)]
        if name is None and len(fitting) == 1:
            return fitting[0]
        if name is None and not fitting:
            raise ValueError(f"{self._path}: no column is {says}; it has {self._shown_fields()}{_CAST}")
        if name is None:
            raise ValueError(f"{self._path}: columns {shown(fitting)} are each {says}: name one with {what}=")
        if name not in self._fields:
            raise LookupError(f"{self._path}: has no column {shown(name)}; it has {shown(list(self._fields))}")
        if name not in fitting:
            raise ValueError(f"{self._path}: column {shown(name)} is {self._fields[name]}, not {says}{_CAST}")
        return name

    def _shown_fields(self) -> str:
        return short(", ".join(f"{name} ({kind})" for name, kind in self._fields.items()), 300)

    def _tell_of_other_ids(self) -> None:
        """Warns of integer columns that may have been meant as ids: without ids, rows are numbered in their order."""
        integers = [one for one, kind in self._fields.items() if self._types.is_integer(kind)]
        if self.ids_column is None and integers:
            warnings.warn(
                f"{self._path}: rows are numbered in their order, but columns {shown(integers)} are not used: name "
                "the column of ids with ids_column=", stacklevel=4,
            )  # fmt: skip

    def _find_dim(self) -> int:
        kind = self._fields[self.column]
        if self._types.is_fixed_size_list(kind):
            return kind.list_size
        for batch in self._file.iter_batches(1, columns=[self.column]):
            if batch.num_rows and batch.column(0)[0].is_valid:
                return len(batch.column(0)[0])
        raise ValueError(f"{self._path}: column {self.column!r} has no vector, so their length is unknown")

    def _vectors(self, column: Any, first: int) -> np.ndarray:
        """Returns an array [rows, dim]. The batch begins with row @first."""
        numbers = column.flatten()
        lengths = column.value_lengths().to_numpy(zero_copy_only=False) if hasattr(column, "value_lengths") else None
        wrong = column.null_count or numbers.null_count or len(numbers) != len(column) * self.dim
        if wrong or (lengths is not None and (lengths != self.dim).any()):
            raise ValueError(
                f"{self._path}: column {self.column!r} has a vector in rows {first} to {first + len(column) - 1} that is missing, "
                f"has a number missing, or is not of {self.dim} numbers"
            )
        return numbers.to_numpy(zero_copy_only=False).reshape(len(column), self.dim)

    def pieces(self, progress: Progress | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        columns = [self.column] + ([self.ids_column] if self.ids_column else [])
        first = 0
        for batch in self._file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            if progress is not None:
                progress(first, self.rows, "rows")
            ids: Any = np.arange(first, first + batch.num_rows, dtype=np.uint64)
            if self.ids_column:
                found = batch.column(columns.index(self.ids_column))
                if found.null_count:
                    raise ValueError(f"{self._path}: column {self.ids_column!r} has an id that is missing")
                ids = found.to_numpy(zero_copy_only=False)
            yield ids, self._vectors(batch.column(0), first)
            first += batch.num_rows
