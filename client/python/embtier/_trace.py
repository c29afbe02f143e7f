# SPDX-License-Identifier: Apache-2.0
"""Writes traces: files of lookups for ``embtier profile show``. docs/internals/placement/trace-format.md describes
them. No server is needed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from . import errors
from ._arguments import flag, integer, path, several, shown, text
from ._ids import as_ids, as_offsets
from ._server import Table
from ._types import DTYPE_NUMBERS, TableSpec, number_of
from ._xxh3 import xxh3_64

_VERSION = 1
_TABLES_MAX = 8192
_BLOCK_IDS = _BLOCK_BAGS = 65536
_DIM_MAX = 8192
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}|[A-Za-z0-9_]")
_UPDATE, _CONTINUES = 1, 2
_ERRORS = {
    errno.EEXIST: "EXISTS", errno.ENOENT: "NOT_FOUND", errno.ENOSPC: "NO_SPACE", errno.EACCES: "PERMISSION",
    errno.EPERM: "PERMISSION",
}  # fmt: skip


@dataclass(frozen=True)
class TraceTable:
    """Description of a table of a trace.

    @name: 1 to 127 of A-Z, a-z, 0-9 and _.-, not starting with . or -
    @dim: numbers of a row, 1 to 8192.
    @rows: None if it is unbounded: any id from 0 to 2**64 - 1 is a row.
    @dtype: "f32", "f16" or "bf16".
    """

    name: str
    dim: int
    rows: int | None = None
    dtype: str = "f32"

    def __post_init__(self) -> None:
        text("name", self.name)
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be 1 to 127 of A-Z a-z 0-9 _ . - and not start with . or -, not {shown(self.name)}"
            )
        integer("dim", self.dim, 1, _DIM_MAX)
        if self.rows is not None:
            integer("rows", self.rows, 1, 2**64 - 1)
        number_of("dtype", DTYPE_NUMBERS, self.dtype)

    def _record(self) -> bytes:
        name = self.name.encode()
        record = struct.pack("<QIBBH", int(self.rows or 0), int(self.dim), DTYPE_NUMBERS[self.dtype], len(name), 0)
        return record + name.ljust((len(name) + 7) // 8 * 8, b"\0")


def _as_tables(tables: Any) -> list[TraceTable]:
    found = []
    for table in several("tables", tables):
        spec = table.spec if isinstance(table, Table) else table
        if isinstance(spec, TableSpec):
            spec = TraceTable(spec.name, spec.dim, spec.rows, spec.dtype)
        if not isinstance(spec, TraceTable):
            raise TypeError(f"tables must be of TraceTable, Table or TableSpec, not {shown(table)}")
        found.append(spec)
    if not 1 <= len(found) <= _TABLES_MAX:
        raise ValueError(f"tables must be 1 to {_TABLES_MAX}, not {len(found)}")
    return found


def _blocks(ends: np.ndarray) -> Iterator[tuple[int, int, int, int, bool]]:
    """Splits bags that end at @ends into blocks: begin and end of the bags, begin and end of the ids, and True if the
    first bag goes on from the block before. A bag that is too long for a block is cut."""
    bag = id = 0
    continues = False
    while bag < len(ends):
        most = id + _BLOCK_IDS
        next_bag = min(bag + _BLOCK_BAGS, bag + int(np.searchsorted(ends[bag:], most, side="right")))
        is_cut = next_bag == bag
        next_id = most if is_cut else int(ends[next_bag - 1])
        yield bag, bag + 1 if is_cut else next_bag, id, next_id, continues
        bag, id, continues = next_bag, next_id, is_cut


class TraceWriter:
    """A trace that is being written. As a context manager it is closed at the end of the block, and removed if that
    ended with an exception::

        tables = [embtier.TraceTable("users", 64), embtier.TraceTable("items", 64, rows=1_000_000)]
        with embtier.TraceWriter("run.trace", tables) as trace:
            for ids, offsets in loader:  # of all tables, as FBGEMM's and TorchRec's
                trace.add_jagged(ids, offsets)
                trace.next_batch()

    Lookups of a call that an exception such as KeyboardInterrupt ends half-way would spoil the trace. Then it is
    removed too. The file has its name from the beginning, so that a program that is killed leaves the batches so far. It
    is then cut short, so that readers refuse it and say so. Thread: one at a time. It does not survive fork(): the child
    gets an error, and changes nothing."""

    # Without a buffer, so that a forked child has nothing to flush into the parent's file.
    _file: BinaryIO | None = None

    def __init__(self, path: str | os.PathLike, tables: Iterable[TraceTable | Table | TableSpec]) -> None:
        """@path: of a file that does not exist yet.
        @tables: descriptions of the tables, or tables of a server.

        ExistsError: there is such a file. Other errors are those of opening it.
        """
        self._tables = _as_tables(tables)
        self._numbers: dict[str, int] = {}
        for number, table in enumerate(self._tables):
            if self._numbers.setdefault(table.name, number) != number:
                raise ValueError(f"tables has two of the name {shown(table.name)}")
        self._path = _path(path)
        self._pid = os.getpid()
        self._getpid = os.getpid  # kept because module globals may be gone at exit
        self._batch = self._block_count = self._bag_count = self._id_count = 0
        with self._errors():
            self._file = open(self._path, "xb", buffering=0)
        records = b"".join(table._record() for table in self._tables)
        header = struct.pack("<8sIIII", b"EMBTRACE", _VERSION, len(self._tables), len(records), 0)
        self._write(header + records)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._remove()

    def __del__(self) -> None:
        self._remove()

    def add(self, table: str | int | Table, ids: Any, offsets: Any = None, update: bool = True) -> None:
        """Adds lookups of one table to the current batch. If it is called again for the table, the bags follow the
        others.

        @table: its name, its number in the list of tables, or the table of a server.
        @ids: row ids of any integer type. Without @offsets each one is a bag, or each line of ids that have two dimensions.
        @offsets: for n bags n + 1 numbers: bag i has ids[offsets[i] : offsets[i + 1]]; the first is 0, the last
        len(ids).
        @update: True if the batch updates these rows after the lookup, as training does.

        IdRangeError: a table with a number of rows has no such row. ValueError: the offsets fall, or do not cover the
        ids. Then nothing was added.
        """
        number = self._number(table)
        ids = as_ids(ids)
        if offsets is None:
            ends = _ends_of_lines(ids)
        else:
            ends = _ends_of(_as_offsets(offsets), ids)
        self._check(number, ids)
        self._add_parts([(number, ids.reshape(-1), ends)], flag("update", update))

    def add_jagged(self, ids: Any, offsets: Any, update: bool = True) -> None:
        """Adds lookups of all tables to the current batch: all bags of the first table, then those of the next one, as
        in FBGEMM's table-batched embeddings and TorchRec's KeyedJaggedTensor. Each table has the same number of bags.

        @offsets: one number per bag and table, and one more at the end. Otherwise as in :meth:`add`.
        """
        ids = as_ids(ids)
        offsets = _as_offsets(offsets)
        ends = _ends_of(offsets, ids)
        bags, rest = divmod(len(ends), len(self._tables))
        if rest:
            raise ValueError(f"offsets has {len(ends)} bags, which {len(self._tables)} tables cannot share evenly")
        is_update = flag("update", update)
        parts = []
        for number in range(len(self._tables)):
            begin, end = int(offsets[number * bags]), int(offsets[(number + 1) * bags])
            self._check(number, ids[begin:end])
            parts.append((number, ids[begin:end], ends[number * bags : (number + 1) * bags] - np.uint64(begin)))
        self._add_parts(parts, is_update)

    def next_batch(self) -> None:
        """Ends the current batch. Later additions belong to the next one."""
        self._open_file()
        self._batch += 1

    def close(self) -> None:
        """Completes the file. Without it the trace is cut short, and is removed."""
        if self._file is None:
            return
        self._open_file()
        try:
            self._write(struct.pack("<4sIQQQ", b"EBLK", 2, self._block_count, self._bag_count, self._id_count))
            with self._errors():
                self._file.close()
        except BaseException:
            self._remove()
            raise
        self._file = None

    # ---- Blocks ----

    def _number(self, table: Any) -> int:
        if isinstance(table, Table):
            table = table.spec.name
        if not isinstance(table, str):
            try:
                return integer("table", table, 0, len(self._tables) - 1)
            except TypeError:
                raise TypeError(f"table must be a name, a number or a Table, not {shown(table)}") from None
        if table not in self._numbers:
            raise ValueError(f"table {shown(table)} is not in this trace")
        return self._numbers[table]

    def _check(self, number: int, ids: np.ndarray) -> None:
        self._open_file()
        rows = self._tables[number].rows
        if rows is not None and ids.size and int(ids.max()) >= rows:
            message = f"row id {int(ids.max())}: table {self._tables[number].name!r} has {rows} rows"
            raise errors.make(errors.code_of("ID_RANGE"), message)

    def _add_parts(self, parts: list[tuple[int, np.ndarray, np.ndarray]], update: bool) -> None:
        """Adds ids and ends of bags of some tables: all of them, or the file is removed."""
        try:
            for number, ids, ends in parts:
                self._add(number, ids, ends, update)
        except BaseException:
            self._remove()
            raise

    def _add(self, number: int, ids: np.ndarray, ends: np.ndarray, update: bool) -> None:
        for bag, bag_end, id, id_end, continues in _blocks(ends):
            flags = (_UPDATE if update else 0) | (_CONTINUES if continues else 0)
            counts = (bag_end - bag, id_end - id)
            header = struct.pack("<4sIQIIII", b"EBLK", 1, self._batch, number, flags, *counts)
            bag_ends = (np.minimum(ends[bag:bag_end], np.uint64(id_end)) - np.uint64(id)).astype("<u4").tobytes()
            padding = b"\0" * (-len(bag_ends) % 8)
            self._write(header + bag_ends + padding + np.ascontiguousarray(ids[id:id_end], "<u8").tobytes())
            self._block_count += 1
            self._bag_count += bag_end - bag - continues
            self._id_count += id_end - id

    def _write(self, data: bytes) -> None:
        """Writes @data and its checksum."""
        left = memoryview(data + struct.pack("<Q", xxh3_64(data)))
        with self._errors():
            while left:
                left = left[self._open_file().write(left) :]

    # ---- The file ----

    def _open_file(self) -> BinaryIO:
        if self._pid != self._getpid():
            raise RuntimeError("a trace does not survive fork(): write it in the process that began it")
        if self._file is None:
            raise ValueError("the trace is closed")
        return self._file

    def _remove(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._pid == self._getpid():
            with contextlib.suppress(OSError):
                file.close()
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Makes errors of the system those of embtier. Half a block would spoil the file, so it is removed."""
        try:
            yield
        except OSError as error:
            self._remove()
            code = errors.code_of(_ERRORS.get(error.errno or 0, "IO"))
            raise errors.make(code, f"{shown(os.fsdecode(self._path))}: {error.strerror}") from None


def _path(value: Any) -> bytes:
    return path("path", value)


def _as_offsets(offsets: Any) -> np.ndarray:
    offsets = as_offsets(offsets)
    if offsets.ndim != 1 or not len(offsets):
        raise ValueError(f"offsets must have one dimension and at least one number, not the shape {offsets.shape}")
    return offsets


def _ends_of_lines(ids: np.ndarray) -> np.ndarray:
    if ids.ndim not in (1, 2):
        raise ValueError(f"ids must have one or two dimensions, not the shape {ids.shape}")
    length = ids.shape[1] if ids.ndim == 2 else 1
    return np.arange(1, len(ids) + 1, dtype=np.uint64) * np.uint64(length)


def _ends_of(offsets: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if ids.ndim != 1:
        raise ValueError(f"ids must have one dimension if there are offsets, not the shape {ids.shape}")
    if offsets[0] != 0 or offsets[-1] != len(ids):
        raise ValueError(
            f"offsets must begin with 0 and end with the number of ids, {len(ids)}, not {offsets[0]} and {offsets[-1]}"
        )
    if (offsets[1:] < offsets[:-1]).any():
        position = int(np.argmax(offsets[1:] < offsets[:-1])) + 1
        raise ValueError(f"offsets fall at position {position}, from {offsets[position - 1]} to {offsets[position]}")
    return offsets[1:].astype(np.uint64)
