# SPDX-License-Identifier: Apache-2.0
"""A batch: any number of parts, each one table and any number of ids; ids and rows lie in memory
shared with the server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ctypes import byref, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import errors
from ._connection import Connection
from ._ids import IdArray
from ._library import BagPart, Part, lib
from ._types import POOL_NUMBERS, number_of

if TYPE_CHECKING:
    from ._server import Table

_GET, _SET, _GET_POOLED = 1, 2, 3
_AGAIN = errors.code_of("AGAIN")
_TIMEOUT = errors.code_of("TIMEOUT")
_SLICE_MS = 100  # how long a wait may keep Ctrl-C waiting
_SLOT_WAIT_S = 50e-6


class _Memory:
    """Owns a ``struct embtier_batch *``; freed when the batch and all views of it are gone."""

    def __init__(self, connection: Connection, tables: list[Table], pointer: c_void_p) -> None:
        self.connection = connection
        self.tables = tables  # the library's handles outlive the batch
        self.pointer = pointer
        connection.add_batch(pointer)

    def __del__(self) -> None:
        self.connection.remove_batch(self.pointer)


class _Region:
    """Bytes of a batch as NumPy wants to hear of them; the base of the array that is made of it."""

    def __init__(
        self,
        memory: _Memory,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3, "data": (address, False), "shape": shape, "typestr": dtype.str, "strides": strides,
        }  # fmt: skip


def _check_part(connection: Connection, table: Table, count: int) -> None:
    if table._connection is not connection:
        raise ValueError(f"table {table.name!r} was opened by another connection")
    if not 0 <= count < 2**32:
        raise ValueError(f"a part has 0 to 2**32 - 1 ids, not {count}")


class Batch:
    """Made by :meth:`Server.batch`. A context manager that frees it.

    Ids and rows are to be left alone between submit and done. Views stay good after :meth:`free`,
    after the connection is closed and after the server is gone: they keep their memory. Used by the
    thread that uses the connection.
    """

    def __init__(
        self, connection: Connection, parts: Sequence[tuple[Table, int]], state: bool = False
    ) -> None:
        for table, count in parts:
            _check_part(connection, table, count)
        array = (Part * len(parts))(*[Part(table._handle(), count) for table, count in parts])
        make = lib.embtier_batch_new_with_state if state else lib.embtier_batch_new
        self._make(connection, make, array, [table for table, _ in parts])
        self._has_state = state
        self._counts = [count for _, count in parts]
        self._room = list(self._counts)

    def _make(self, connection: Connection, make: Any, parts: Any, tables: list[Table]) -> None:
        pointer = c_void_p()
        with connection as handle:
            connection.check(make(handle, parts, len(tables), byref(pointer)))
            self._memory: _Memory | None = _Memory(connection, tables, pointer)
        self._connection = connection
        self._tables = tables
        self._in_flight = False

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory = None

    def __len__(self) -> int:
        """The number of parts."""
        return len(self._tables)

    def _pointer(self) -> c_void_p:
        if self._memory is None:
            raise RuntimeError("the batch is freed")
        return self._memory.pointer

    def _view(
        self, address: int | None, shape: tuple[int, ...], dtype: np.dtype, stride: int | None = None
    ) -> np.ndarray:
        if 0 in shape or not address:
            return np.empty(shape, dtype)
        assert self._memory is not None
        strides = None if stride is None else (stride, dtype.itemsize)
        return np.asarray(_Region(self._memory, address, shape, dtype, strides))

    def count(self, part: int) -> int:
        """The number of ids of @part."""
        return self._counts[part]

    def set_count(self, part: int, count: int) -> None:
        """Changes the number of ids of @part, to at most what the batch was made with. Views made
        before keep their length."""
        if not 0 <= count <= self._room[part]:
            raise ValueError(f"part {part} has room for 0 to {self._room[part]} ids, not {count}")
        part = range(len(self))[part]
        with self._connection:
            code = lib.embtier_batch_set_count(self._pointer(), part, count)
            self._connection.check(code)
        self._counts[part] = count

    def ids(self, part: int) -> IdArray:
        """The ids of @part: a view, uint64 [count]. Assigning checks them: ValueError for a
        negative one."""
        part = range(len(self))[part]
        address = lib.embtier_batch_ids(self._pointer(), part)
        view = self._view(address, (self._counts[part],), np.dtype("<u8"))
        return view.view(IdArray)

    def rows(self, part: int) -> np.ndarray:
        """The rows of @part: a view [count, dim] of float32, float16, or uint16 with the bits of
        bfloat16 (:func:`embtier.torch.rows` has it as torch.bfloat16). In a batch with state these are
        the weights alone; the view is then not contiguous."""
        part = range(len(self))[part]
        table = self._tables[part]
        address = lib.embtier_batch_rows(self._pointer(), part)
        stride = lib.embtier_batch_row_bytes(self._pointer(), part) if self._has_state else None
        return self._view(address, (self._counts[part], table.dim), table.numpy_dtype, stride)

    def state(self, part: int) -> np.ndarray:
        """The optimizer's state of the rows of @part, of a batch made with ``state=True``: a view
        [count, numbers] of float32, whatever the table's dtype. Numbers are 0 for an optimizer without
        state, 1 for "rowwise_adagrad", dim for "adagrad" and "rmsprop", 2 * dim for "adam": all first
        moments, then all second moments. The view is not contiguous, and for f16 and bf16 tables of
        odd dim not aligned, which NumPy can do with; others may need a copy."""
        part = range(len(self))[part]
        if not self._has_state:
            raise ValueError("the batch was made without state")
        table = self._tables[part]
        address = lib.embtier_batch_state(self._pointer(), part)
        stride = lib.embtier_batch_row_bytes(self._pointer(), part)
        shape = (self._counts[part], table.state_numbers)
        return self._view(address, shape, np.dtype("<f4"), stride)

    def table(self, part: int) -> Table:
        return self._tables[part]

    @property
    def hit_rows(self) -> int:
        """Rows of the last finished request that were served from the server's cache."""
        return lib.embtier_batch_hit_rows(self._pointer())

    def get(self, timeout: float | None = None) -> Batch:
        """Fills the rows, and the state if the batch has it. Raises IdRangeError, DroppedError, TooLargeError, DisconnectedError, …"""
        return self._submit_and_wait(_GET, timeout)

    def set(self, timeout: float | None = None) -> Batch:
        """Stores the rows; the same id twice: the last one wins. NaN and Inf are stored as given.
        The optimizer's state stays, unless the batch has it: then that is stored too."""
        return self._submit_and_wait(_SET, timeout)

    def _submit_and_wait(self, operation: int, timeout: float | None) -> Batch:
        """First for a free slot, if other batches are in flight; then for the result."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self._submit(operation)
                break
            except errors.BusyError:  # type: ignore[attr-defined]
                if self._in_flight or (deadline is not None and time.monotonic() >= deadline):
                    raise
                time.sleep(_SLOT_WAIT_S)
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return self

    def submit_get(self) -> None:
        """Starts a GET and returns. BusyError when this batch, or max_in_flight others, are in
        flight."""
        self._submit(_GET)

    def submit_set(self) -> None:
        """Starts a SET and returns."""
        self._submit(_SET)

    def _submit(self, operation: int) -> None:
        connection = self._connection
        with connection:
            connection.check(lib.embtier_submit(self._pointer(), operation))
            self._in_flight = True
            if operation == _SET:
                connection.writes.update(table.name for table in self._tables)

    def poll(self) -> bool:
        """True once the request is done, False while it is in flight; raises its error. Never
        waits."""
        with self._connection:
            return self._result(lib.embtier_poll(self._pointer()), _AGAIN)

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the request at most @timeout seconds (None: for ever) and raises its error;
        TimeoutError then, and the request goes on. Ctrl-C ends the waiting, not the request."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left_ms = _SLICE_MS
            if deadline is not None:
                left_ms = min(left_ms, max(0, round((deadline - time.monotonic()) * 1000)))
            with self._connection:
                code = lib.embtier_wait(self._pointer(), left_ms)
                if self._result(code, _TIMEOUT):
                    return
            if deadline is not None and time.monotonic() >= deadline:
                raise errors.make(
                    _TIMEOUT, f"no answer within {timeout:g} seconds; the request goes on"
                )

    def _result(self, code: int, not_done: int) -> bool:
        if code and code == not_done:
            return False
        self._in_flight = False
        self._connection.check(code)
        return True

    def free(self) -> None:
        """Gives the batch's room back, when the last view of it is gone. BusyError while the
        request is in flight. Freeing twice is fine."""
        if self._memory is not None and self._in_flight and not self._connection.closed:
            with self._connection:
                if lib.embtier_poll(self._pointer()) == _AGAIN:
                    raise errors.make(errors.code_of("BUSY"), "the batch is in flight: wait first")
        self._memory = None

    def __reduce__(self) -> Any:
        raise TypeError("a Batch lives in memory shared with the server: it cannot be pickled or copied")


@dataclass
class Bags:
    """A part of a :class:`BagBatch`: bags of rows of one table, each pooled to one vector.

    @count ids in @bag_count bags; @mode "sum", "mean" or "max"; @weighted: each id has a weight (not
    with "max").
    """

    table: Table
    count: int
    bag_count: int
    mode: str = "sum"
    weighted: bool = False


class BagBatch(Batch):
    """Made by :meth:`Server.bag_batch`: embedding bags that the server pools, one vector each. What
    is said of :class:`Batch` holds, but for rows: there are bags in their place.

    A sum is in the order of the ids, in float32, so the same bags of the same rows give the same
    bits. A mean is the sum divided by the number of ids. A bag without ids is zeros.
    """

    def __init__(self, connection: Connection, parts: Sequence[Bags]) -> None:
        array = (BagPart * len(parts))()
        for i, part in enumerate(parts):
            _check_part(connection, part.table, part.count)
            if not 0 <= part.bag_count < 2**32 - 1:
                raise ValueError(f"a part has 0 to 2**32 - 2 bags, not {part.bag_count}")
            mode = number_of("mode", POOL_NUMBERS, part.mode)
            array[i] = BagPart(part.table._handle(), part.count, part.bag_count, mode, part.weighted)
        self._make(connection, lib.embtier_batch_new_bags, array, [part.table for part in parts])
        self._counts = [part.count for part in parts]
        self._room = list(self._counts)
        self._bag_counts = [part.bag_count for part in parts]
        self._bag_room = list(self._bag_counts)
        self._weighted = [part.weighted for part in parts]

    def set_bags(self, part: int, count: int, bag_count: int) -> None:
        """Changes the numbers of ids and bags of @part, to at most what the batch was made with.
        Views made before keep their length."""
        part = range(len(self))[part]
        if not (0 <= count <= self._room[part] and 0 <= bag_count <= self._bag_room[part]):
            raise ValueError(
                f"part {part} has room for {self._room[part]} ids in {self._bag_room[part]} bags, "
                f"not for {count} in {bag_count}"
            )
        with self._connection:
            self._connection.check(lib.embtier_batch_set_bags(self._pointer(), part, count, bag_count))
        self._counts[part], self._bag_counts[part] = count, bag_count

    def offsets(self, part: int) -> np.ndarray:
        """A view, uint32 [bag_count + 1]: bag b has the ids from offsets[b] up to offsets[b + 1]. The
        first is 0, the last the number of ids."""
        part = range(len(self))[part]
        address = lib.embtier_batch_offsets(self._pointer(), part)
        return self._view(address, (self._bag_counts[part] + 1,), np.dtype("<u4"))

    def weights(self, part: int) -> np.ndarray:
        """A view, float32 [count], of a weighted part."""
        part = range(len(self))[part]
        if not self._weighted[part]:
            raise ValueError(f"part {part} was made without weights")
        address = lib.embtier_batch_weights(self._pointer(), part)
        return self._view(address, (self._counts[part],), np.dtype("<f4"))

    def bags(self, part: int) -> np.ndarray:
        """The answer: a view, float32 [bag_count, dim], whatever the table's dtype."""
        part = range(len(self))[part]
        address = lib.embtier_batch_bags(self._pointer(), part)
        return self._view(address, (self._bag_counts[part], self._tables[part].dim), np.dtype("<f4"))

    def lookup(self, timeout: float | None = None) -> BagBatch:
        """Fills the bags. Raises BagRangeError for offsets that decrease or do not end with the ids,
        IdRangeError, DroppedError, TooLargeError, DisconnectedError, …"""
        self._submit_and_wait(_GET_POOLED, timeout)
        return self

    def submit_lookup(self) -> None:
        """Starts a lookup and returns; then :meth:`poll` or :meth:`wait`."""
        self._submit(_GET_POOLED)

    def set_count(self, part: int, count: int) -> None:
        raise TypeError("a BagBatch has set_bags()")

    def rows(self, part: int) -> np.ndarray:
        raise TypeError("a BagBatch has bags(), no rows")

    def state(self, part: int) -> np.ndarray:
        raise TypeError("a BagBatch has bags(), no state")
