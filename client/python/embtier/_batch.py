# SPDX-License-Identifier: Apache-2.0
"""Batches. A batch has any number of parts, each with one table and any number of ids. Ids and rows lie in memory
shared with the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import byref, c_double, c_void_p, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import errors
from ._arguments import deadline_of, flag, integer, kind_of, milliseconds_left, number, seconds, several, shown
from ._connection import Connection, Opened, connection_of
from ._group import STEP_MAX, Group, handle_of
from ._ids import IdArray, NumberArray, OffsetArray, as_numbers
from ._library import BagPart, Part, PushOptions, lib
from ._types import POOL_NUMBERS, number_of

if TYPE_CHECKING:
    from ._server import Table

_GET, _SET, _GET_POOLED, _PUSH, _RELEASE, _GET_POOLED_TICKET, _PREFETCH = 1, 2, 3, 4, 5, 6, 7
_READS = {_GET, _GET_POOLED, _PREFETCH}  # a lookup with a ticket leaves one behind
_AGAIN = errors.code_of("AGAIN")
_BUSY = errors.code_of("BUSY")
_TIMEOUT = errors.code_of("TIMEOUT")
_NOBODY = 2**32 - 1
_SLICE_MS = 100  # longest delay of Ctrl-C during a wait
_SLOT_WAIT_S = 50e-6


class _Memory:
    """Owns a ``struct embtier_batch *``; freed when the batch and all views of it are gone. It exists before the
    library makes the batch, so that every batch has an owner."""

    pointer = c_void_p()  # for an interrupt in __init__()

    def __init__(self, connection: Connection, tables: list[Table]) -> None:
        self.connection = connection
        self.tables = tables  # the library's handles outlive the batch
        self.pointer = c_void_p()

    def __del__(self) -> None:
        if self.pointer.value is not None:
            self.connection.remove_batch(self.pointer)


class _Region:
    """Bytes of a batch, in the form that NumPy reads; the base of the array made of it."""

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
    if not isinstance(table, Opened):
        raise TypeError(f"the table of a part must be a Table, not {kind_of(table)} {shown(table)}")
    if table._connection is not connection:
        raise ValueError(f"table {table.name!r} was opened by another connection")
    integer("a part's count of ids", count, 0, 2**32 - 1)


class Batch:
    """Made by :meth:`Server.batch`. As a context manager it frees itself.

    The caller must not touch ids and rows between submit and completion. Views keep their memory, so they stay valid
    after :meth:`free`, after the connection is closed and after the server is gone. Only the thread that uses the
    connection may use the batch.
    """

    def __init__(
        self, connection: Connection, parts: Sequence[tuple[Table, int]], state: bool = False
    ) -> None:
        self._has_state = flag("state", state)
        make = lib.embtier_batch_new_with_state if self._has_state else lib.embtier_batch_new
        self._make_of_ids(connection, make, parts)

    def _make_of_ids(self, connection: Connection, make: Any, parts: Sequence[tuple[Table, int]]) -> None:
        parts = several("parts", parts)
        for part in parts:
            if not isinstance(part, (tuple, list)) or len(part) != 2:
                raise TypeError(f"one of the parts must be (table, count of ids), not {kind_of(part)} {shown(part)}")
            _check_part(connection, *part)
        array = (Part * len(parts))(*[Part(table._handle(), count) for table, count in parts])
        self._make(connection, make, array, [table for table, _ in parts])
        self._counts = [part.count for part in array]
        self._room = list(self._counts)

    def _make(self, connection: Connection, make: Any, parts: Any, tables: list[Table]) -> None:
        memory = _Memory(connection_of(connection), tables)
        self._memory: _Memory | None = None
        self._connection = connection
        self._tables = tables
        self._addresses: dict[tuple[Any, int], int] = {}
        self._group: Group | None = None  # the group that lookups and SETs name
        self._pushed_to: Group | None = None  # the group that the last push named
        with connection as handle:
            connection.check(make(handle, parts, len(tables), byref(memory.pointer)))
            connection.add_batch(memory.pointer)
        self._memory = memory

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

    @property
    def _in_flight(self) -> bool:
        if self._memory is None or not self._connection.is_open:
            return False
        with self._connection:
            return lib.embtier_poll(self._memory.pointer) == _AGAIN

    @property
    def _pushed_step(self) -> int:
        """The step of the last request, if it is an applied push whose result was seen; else 0."""
        return 0 if self._memory is None else lib.embtier_batch_pushed_step(self._memory.pointer)

    def _address(self, function: Callable[..., int | None], part: int) -> int:
        """Returns the result of @function for @part. An address never changes, so the library is asked once."""
        if self._memory is None:
            raise RuntimeError("the batch is freed")
        address = self._addresses.get((function, part))
        if address is None:
            address = self._addresses[function, part] = function(self._memory.pointer, part) or 0
        return address

    def _view(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype, stride: int | None = None
    ) -> np.ndarray:
        if 0 in shape or not address:
            return np.empty(shape, dtype)
        assert self._memory is not None
        strides = None if stride is None else (stride, dtype.itemsize)
        return np.asarray(_Region(self._memory, address, shape, dtype, strides))

    def _numbers(
        self, address: int | None, shape: tuple[int, ...], dtype: np.dtype, stride: int | None = None
    ) -> NumberArray:
        return self._view(address, shape, dtype, stride).view(NumberArray)

    def _place(self, part: int) -> int:
        """Returns @part as a number from 0; a negative one counts from the end. IndexError if it does not exist."""
        if type(part) is not int:
            part = integer("part", part)
        count = len(self._tables)
        if not -count <= part < count:
            raise IndexError(f"part {shown(part)} does not exist: the batch has {count} parts")
        return part if part >= 0 else part + count

    def count(self, part: int) -> int:
        """The number of ids of @part."""
        return self._counts[self._place(part)]

    def set_count(self, part: int, count: int) -> None:
        """Changes the number of ids of @part, up to the number the batch was made with. Existing views keep their
        length."""
        part, count = self._place(part), integer("count", count)
        if not 0 <= count <= self._room[part]:
            raise ValueError(f"part {part} has room for 0 to {self._room[part]} ids, not for a count of {shown(count)}")
        with self._connection:
            code = lib.embtier_batch_set_count(self._pointer(), part, count)
            self._connection.check(code)
        self._counts[part] = count

    def ids(self, part: int) -> IdArray:
        """The ids of @part: a view, uint64 [count]. An assignment checks ids as :meth:`Table.get` does."""
        part = self._place(part)
        address = self._address(lib.embtier_batch_ids, part)
        view = self._view(address, (self._counts[part],), np.dtype("<u8"))
        return view.view(IdArray)

    def rows(self, part: int) -> np.ndarray:
        """The rows of @part: a view [count, dim] of float32, float16, or uint16 with the bits of bfloat16
        (:func:`embtier.torch.rows` returns torch.bfloat16). In a batch with state these are the weights alone; the
        view is then not contiguous. An assignment checks its values, as in all views of numbers: ValueError for a
        finite number that is too large for the dtype."""
        part = self._place(part)
        table = self._tables[part]
        address = self._address(lib.embtier_batch_rows, part)
        stride = lib.embtier_batch_row_bytes(self._pointer(), part) if self._has_state else None
        return self._numbers(address, (self._counts[part], table.dim), table.numpy_dtype, stride)

    def state(self, part: int) -> np.ndarray:
        """The optimizer's state of the rows of @part, for a batch made with ``state=True``: a view [count, numbers] of
        float32 for every dtype of the table. The count of numbers is 0 for an optimizer without state, 1 for
        "rowwise_adagrad", and dim for "adagrad", "rmsprop" and "momentum". It is 2 * dim for the Adams: all first
        moments, then all second moments. The view is not contiguous, and for f16 and bf16 tables of odd dim not
        aligned. NumPy supports that; other libraries may need a copy."""
        part = self._place(part)
        if not self._has_state:
            raise ValueError("the batch was made without state")
        table = self._tables[part]
        address = self._address(lib.embtier_batch_state, part)
        stride = lib.embtier_batch_row_bytes(self._pointer(), part)
        shape = (self._counts[part], table.state_numbers)
        return self._numbers(address, shape, np.dtype("<f4"), stride)

    def table(self, part: int) -> Table:
        return self._tables[self._place(part)]

    @property
    def hit_rows(self) -> int:
        """The number of rows of the last finished request that were served from memory, without a read from SSD."""
        return lib.embtier_batch_hit_rows(self._pointer())

    def get(
        self, timeout: float | None = None, *, group: Group | None = None, step: int | None = None
    ) -> Batch:
        """Fills the rows, and the state if the batch has it. Raises IdRangeError, DroppedError, TooLargeError,
        DisconnectedError, …

        @group, @step: read the rows at @step of a group of trainers; GroupStepError if this member has not pushed the
        step before."""
        self._be_of(group, step)
        self._submit_and_wait(_GET, timeout)
        return self

    def set(
        self, timeout: float | None = None, *, group: Group | None = None, step: int | None = None
    ) -> Batch:
        """Stores the rows; if an id occurs twice, the last one wins. NaN and infinity are stored as given. The
        optimizer's state does not change, unless the batch has state: then that is stored too. @group, @step: as for
        :meth:`get`."""
        self._be_of(group, step)
        self._submit_and_wait(_SET, timeout)
        return self

    def _be_of(self, group: Group | None, step: int | None) -> None:
        """Makes the next request, unless it is a push, name @group."""
        if (group is None) != (step is None):
            raise ValueError("group and step must be given together")
        if group is self._group is None:
            return
        step = 0 if step is None else integer("step", step, 0, STEP_MAX)
        handle = None if group is None else handle_of(group, self._connection)
        with self._connection:
            self._connection.check(lib.embtier_batch_set_group(self._pointer(), handle, step))
        self._group = group

    def _submit_and_wait(
        self,
        operation: int,
        timeout: float | None,
        options: PushOptions | None = None,
        group: Group | None = None,
    ) -> None:
        """Waits for a free slot if other batches are in flight, submits, and waits for the result. A read is repeated
        as the program has asked for."""
        patience = self._connection.patience
        if timeout is None and group is None:
            timeout = patience.request_timeout
        try:
            self._submit_and_wait_once(operation, timeout, options, group)
            return
        except errors.DisconnectedError:  # type: ignore[attr-defined]
            if not patience.retry_reads or operation not in _READS or self._group is not None:
                raise
        self._connection.reconnect()
        self._submit_and_wait_once(operation, timeout, options, group)

    def _submit_and_wait_once(
        self, operation: int, timeout: float | None, options: PushOptions | None, group: Group | None
    ) -> None:
        deadline = deadline_of(timeout)
        while True:
            try:
                self._submit(operation, options, group)
                break
            except errors.BusyError:  # type: ignore[attr-defined]
                if self._in_flight or time.monotonic() >= deadline:
                    raise
                time.sleep(_SLOT_WAIT_S)
        self._wait_until(deadline, timeout)

    def _push_options(
        self,
        lr: float | Sequence[float],
        step: int,
        prefetch: PrefetchBatch | None,
        group: Group | None,
        weight_gradients: bool = False,
    ) -> PushOptions:
        if not 1 <= integer("step", step) <= STEP_MAX:
            raise ValueError(f"step must be 1 to 2**53 - 1, not {shown(step)}")
        options = PushOptions(struct_bytes=sizeof(PushOptions), step=step, weight_gradients=weight_gradients)
        rates = as_numbers("lr", lr)
        if rates.ndim == 0:
            options.learning_rate = rates.item()
        elif rates.shape == (len(self),):
            options.learning_rates = (c_double * len(self))(*[number("lr", rate) for rate in rates])
        else:
            raise ValueError(f"lr must be a number or one for each of the {len(self)} parts")
        if prefetch is not None:
            if not isinstance(prefetch, PrefetchBatch):
                raise TypeError(f"prefetch must be a PrefetchBatch, not a {kind_of(prefetch)}")
            if prefetch._in_flight:
                raise errors.make(_BUSY, "the prefetch is in flight: wait for it first")
            options.prefetch = prefetch._pointer()
        if group is not None:
            options.group = handle_of(group, self._connection)
        return options

    def submit_get(self, *, group: Group | None = None, step: int | None = None) -> None:
        """Starts a GET and returns. BusyError if this batch, or max_in_flight others, are in flight."""
        self._be_of(group, step)
        self._submit(_GET)

    def submit_set(self, *, group: Group | None = None, step: int | None = None) -> None:
        """Starts a SET and returns."""
        self._be_of(group, step)
        self._submit(_SET)

    def _submit(
        self, operation: int, options: PushOptions | None = None, group: Group | None = None
    ) -> None:
        """@options: the options of a push, else None. @group: the group that it names."""
        connection = self._connection
        with connection:
            written = [table.name for table in self._tables] if operation in (_SET, _PUSH) else []
            connection.writes.update(written)
            self._pushed_to = group
            if group is not None:
                group._pushes.add(self)
            if options is None:
                code = lib.embtier_submit(self._pointer(), operation)
            else:
                code = lib.embtier_submit_push(self._pointer(), byref(options))
            if code:
                connection.writes.subtract(written)
            connection.check(code)

    def poll(self) -> bool:
        """True once the request is done, False while it is in flight. Raises the request's error. Never waits. Over a network, also
        sends what the system did not take of the request before."""
        with self._connection:
            return self._result(lib.embtier_poll(self._pointer()))

    def wait(self, timeout: float | None = None) -> None:
        """Waits for the request, at most @timeout seconds (None and infinity: for ever; 0: not at all), and raises its
        error. After a TimeoutError the request continues. Ctrl-C ends the wait, not the request."""
        self._wait_until(deadline_of(timeout), timeout)

    def _wait_until(self, deadline: float, timeout: float | None) -> None:
        while True:
            left_ms = milliseconds_left(deadline, _SLICE_MS)
            with self._connection:
                code = lib.embtier_wait(self._pointer(), left_ms)
                if code == _TIMEOUT:  # the wait's; or the result of a group's push
                    code = lib.embtier_poll(self._pointer())
                if self._result(code):
                    return
            if time.monotonic() >= deadline:
                raise errors.make(
                    _TIMEOUT,
                    f"no answer within {float(timeout or 0):g} seconds; the request continues. Is the server "
                    "stopped, or its "
                    "disk busy?",
                )

    def _result(self, code: int) -> bool:
        if code == _AGAIN:
            return False
        try:
            self._connection.check(code)
        except errors.Error as error:
            self._blame(error)
            raise
        if self._pushed_to is not None:
            self._pushed_to._read_step()
        return True

    def _blame(self, error: Any) -> None:
        """Adds to @error the member of a group that it is about."""
        member = lib.embtier_batch_blamed_member(self._pointer())
        if member != _NOBODY:
            error.member = member
        if why := lib.embtier_batch_blamed_err(self._pointer()):
            error.err = errors.name_of(why)

    def free(self) -> None:
        """Frees the batch's memory once the last view of it is gone. BusyError while the request is in flight. Freeing
        twice is allowed."""
        if self._in_flight:
            raise errors.make(_BUSY, "the batch is in flight: wait for it first")
        self._memory = None

    def __reduce__(self) -> Any:
        raise TypeError("a Batch lives in memory shared with the server: it cannot be pickled or copied")


@dataclass
class Bags:
    """A part of a :class:`BagBatch`: bags of rows of one table, each pooled to one vector.

    @count: number of ids. @bag_count: number of bags. @mode: "sum", "mean" or "max". @weighted: each id has a weight
    (not with "max").
    """

    table: Table
    count: int
    bag_count: int
    mode: str = "sum"
    weighted: bool = False


class BagBatch(Batch):
    """Made by :meth:`Server.bag_batch`: embedding bags that the server pools, one vector for each bag. It is a
    :class:`Batch` with bags in place of rows.

    A sum is in the order of the ids, in float32, so the same bags of the same rows give the same bits. A mean is the
    sum divided by the number of ids. A bag without ids is zeros.

    To train, look up with a ticket, write the gradients over the bags, and push::

        bags = batch.lookup(ticket=True).bags(0)
        ...
        batch.gradients(0)[:] = gradients  # float32 [bag_count, dim]
        batch.push(lr=0.01, step=1)

    Under a ticket the server keeps the looked-up ids for a limited time. While the batch has a ticket, other lookups
    and :meth:`set_bags` raise InvalidError: :meth:`push` or :meth:`release` it. A refused push leaves the batch its
    ticket. The ticket of a batch that is freed expires; :meth:`Server.reconnect` ends all tickets.
    """

    def __init__(self, connection: Connection, parts: Sequence[Bags]) -> None:
        parts = several("parts", parts)
        array = (BagPart * len(parts))()
        for i, part in enumerate(parts):
            if not isinstance(part, Bags):
                raise TypeError(f"a part must be an embtier.Bags(table, count, bag_count), not {kind_of(part)} {shown(part)}")
            _check_part(connection, part.table, part.count)
            integer("a part's bag_count", part.bag_count, 0, 2**32 - 2)
            mode = number_of("mode", POOL_NUMBERS, part.mode)
            array[i] = BagPart(part.table._handle(), part.count, part.bag_count, mode, part.weighted)
        self._make(connection, lib.embtier_batch_new_bags, array, [part.table for part in parts])
        self._counts = [part.count for part in array]
        self._room = list(self._counts)
        self._bag_counts = [part.bag_count for part in array]
        self._bag_room = list(self._bag_counts)
        self._weighted = [part.weighted for part in array]

    def set_bags(self, part: int, count: int, bag_count: int) -> None:
        """Changes the numbers of ids and bags of @part, up to those the batch was made with. Existing views keep their
        length."""
        part = self._place(part)
        count, bag_count = integer("count", count), integer("bag_count", bag_count)
        if not (0 <= count <= self._room[part] and 0 <= bag_count <= self._bag_room[part]):
            raise ValueError(
                f"part {part} has room for {self._room[part]} ids in {self._bag_room[part]} bags, "
                f"not for {shown(count)} in {shown(bag_count)}"
            )
        with self._connection:
            self._connection.check(lib.embtier_batch_set_bags(self._pointer(), part, count, bag_count))
        self._counts[part], self._bag_counts[part] = count, bag_count

    def offsets(self, part: int) -> OffsetArray:
        """A view, uint32 [bag_count + 1]: bag b has the ids from offsets[b] up to offsets[b + 1]. The first is 0, the
        last is the number of ids. An assignment checks offsets as :meth:`ids` checks ids."""
        part = self._place(part)
        address = self._address(lib.embtier_batch_offsets, part)
        return self._view(address, (self._bag_counts[part] + 1,), np.dtype("<u4")).view(OffsetArray)

    def weights(self, part: int) -> NumberArray:
        """A view, float32 [count], of a weighted part; only real numbers can be assigned. After a push with
        ``weight_gradients=True`` it holds the gradients of the weights."""
        part = self._place(part)
        if not self._weighted[part]:
            raise ValueError(f"part {part} was made without weights")
        address = self._address(lib.embtier_batch_weights, part)
        return self._numbers(address, (self._counts[part],), np.dtype("<f4"))

    def bags(self, part: int) -> np.ndarray:
        """The result: a view, float32 [bag_count, dim] for every dtype of the table. After a lookup with a ticket it is
        the same memory as :meth:`gradients`."""
        part = self._place(part)
        address = self._address(lib.embtier_batch_bags, part)
        return self._view(address, (self._bag_counts[part], self._tables[part].dim), np.dtype("<f4"))

    def lookup(
        self,
        timeout: float | None = None,
        *,
        ticket: bool = False,
        group: Group | None = None,
        step: int | None = None,
    ) -> BagBatch:
        """Fills the bags. Raises BagRangeError for offsets that decrease or do not end at the number of ids,
        IdRangeError, DroppedError, TooLargeError, DisconnectedError, …

        @ticket: the batch then has a ticket for one :meth:`push`. TicketsFullError if the server has no memory for it
        until others have been used; UnsupportedError if some parts of one table have mode "max" and others not.
        @group, @step: as for :meth:`Batch.get`."""
        operation = _GET_POOLED_TICKET if flag("ticket", ticket) else _GET_POOLED
        self._be_of(group, step)
        self._submit_and_wait(operation, timeout)
        return self

    def submit_lookup(
        self, *, ticket: bool = False, group: Group | None = None, step: int | None = None
    ) -> None:
        """Starts a lookup and returns; then :meth:`poll` or :meth:`wait`."""
        operation = _GET_POOLED_TICKET if flag("ticket", ticket) else _GET_POOLED
        self._be_of(group, step)
        self._submit(operation)

    @property
    def ticket(self) -> int:
        """The number of the batch's ticket; 0: none. There is none while a request is in flight."""
        return lib.embtier_batch_ticket(self._pointer())

    def gradients(self, part: int) -> NumberArray:
        """The gradients for :meth:`push`: a view, float32 [bag_count, dim] for every dtype of the table; only real
        numbers can be assigned. It is the same memory as :meth:`bags`, so a lookup overwrites it."""
        return self.bags(part).view(NumberArray)

    def skip(self, part: int, skipped: bool = True) -> None:
        """Makes the gradients of @part count as zeros in the next push, whatever :meth:`gradients` holds. A table does
        not change if all its parts are skipped. Valid until the next lookup. InvalidError without a ticket."""
        part = self._place(part)
        with self._connection:
            self._connection.check(lib.embtier_batch_set_skipped(self._pointer(), part, skipped))

    def push(
        self,
        lr: float | Sequence[float],
        step: int,
        weight_gradients: bool = False,
        timeout: float | None = None,
        *,
        prefetch: PrefetchBatch | None = None,
        group: Group | None = None,
    ) -> BagBatch:
        """Pushes the gradients by the batch's ticket. The mode and weights of a bag turn its gradient into one for each
        of its rows. Gradients of the same row are added up, and the table's optimizer runs once for the row.

        @lr: learning rate, or one for each part, the same for all parts of a table.
        @step: step of the training, from 1.
        @weight_gradients: :meth:`weights` then holds the gradients of the weights, for all parts that have weights;
        after a failed push its contents are undefined.
        @prefetch: released when the push is done; a refused push does not change it. NoTicketError, TicketUsedError and
        TicketExpiredError may be about the prefetch. Then @prefetch no longer has a number, this batch still has its
        ticket, and the push can be made without @prefetch. InvalidError if @prefetch has no prefetch, BusyError if it
        is in flight.
        @group: group of trainers. The push is this member's part of @step, ``group.step + 1`` (GroupStepError for
        another), and is done when all members have pushed it. GroupRefusedError, GroupBrokenError, TimeoutError,
        MismatchError, NoGroupError: see :class:`Group`.

        InvalidError: there is no ticket, or lr is not finite in float32. UnsupportedError: a table has no optimizer.
        NonfiniteError, for a table without ``allow_nonfinite``: a gradient is NaN or infinite, or a finite row would
        become so; nothing was applied. Also TicketExpiredError, TicketUsedError, NoTicketError, ShapeError, and the
        errors of :meth:`Batch.set`."""
        options = self._push_options(lr, step, prefetch, group, weight_gradients)
        self._submit_and_wait(_PUSH, timeout, options, group)
        return self

    def submit_push(
        self,
        lr: float | Sequence[float],
        step: int,
        weight_gradients: bool = False,
        *,
        prefetch: PrefetchBatch | None = None,
        group: Group | None = None,
    ) -> None:
        """Starts a push and returns; then :meth:`poll` or :meth:`wait`."""
        self._submit(_PUSH, self._push_options(lr, step, prefetch, group, weight_gradients), group)

    def release(self, timeout: float | None = None) -> None:
        """Gives the ticket back when no push will follow. Allowed without a ticket."""
        seconds("timeout", timeout)
        if self._in_flight or self.ticket:  # no ticket is known before the request is done
            self._submit_and_wait(_RELEASE, timeout)

    def set_count(self, part: int, count: int) -> None:
        raise TypeError("a BagBatch has set_bags() instead")

    def rows(self, part: int) -> np.ndarray:
        raise TypeError("a BagBatch has bags(), not rows")

    def state(self, part: int) -> np.ndarray:
        raise TypeError("a BagBatch has bags(), not state")


class PushBatch(Batch):
    """Made by :meth:`Server.push_batch`: ids, and a gradient for each. It is a :class:`Batch` with gradients in place
    of rows. An id may occur any number of times; its gradients are added up."""

    def __init__(self, connection: Connection, parts: Sequence[tuple[Table, int]]) -> None:
        self._make_of_ids(connection, lib.embtier_batch_new_push, parts)

    def gradients(self, part: int) -> NumberArray:
        """The gradients of @part: a view, float32 [count, dim] for every dtype of the table; only real numbers can be
        assigned."""
        part = self._place(part)
        address = self._address(lib.embtier_batch_gradients, part)
        return self._numbers(address, (self._counts[part], self._tables[part].dim), np.dtype("<f4"))

    def push(
        self,
        lr: float | Sequence[float],
        step: int,
        timeout: float | None = None,
        *,
        prefetch: PrefetchBatch | None = None,
        group: Group | None = None,
    ) -> PushBatch:
        """Pushes the gradients. Those of an id are added up, and the table's optimizer runs once for the row.

        @lr: learning rate, or one for each part, the same for all parts of a table.
        @step: step of the training, from 1.
        @prefetch, @group: as for :meth:`BagBatch.push`.

        UnsupportedError: a table has no optimizer. NonfiniteError, for a table without ``allow_nonfinite``: a gradient
        is NaN or infinite, or a finite row would become so, also by a sum that overflows; nothing was applied.
        InvalidError: lr is not finite in float32. TicketsFullError: the tickets leave no memory for the push. Also the
        errors of :meth:`Batch.set`."""
        self._submit_and_wait(_PUSH, timeout, self._push_options(lr, step, prefetch, group), group)
        return self

    def submit_push(
        self,
        lr: float | Sequence[float],
        step: int,
        *,
        prefetch: PrefetchBatch | None = None,
        group: Group | None = None,
    ) -> None:
        """Starts a push and returns; then :meth:`poll` or :meth:`wait`."""
        self._submit(_PUSH, self._push_options(lr, step, prefetch, group), group)

    def coalesce(self) -> PushBatch:
        """Adds up the gradients of equal ids, in their order, over all parts of a table. Afterwards each id occurs
        once, in the part that had it first. Ids ascend, and counts are lower. :meth:`set_count` may raise them again.
        The call is optional: the server does the same to a push with repeated ids, with the same result to the byte.
        With the call, the trainer does that work. BusyError in flight."""
        with self._connection:
            self._connection.check(lib.embtier_batch_coalesce(self._pointer()))
            self._counts = [lib.embtier_batch_count(self._pointer(), i) for i in range(len(self))]
        return self

    def rows(self, part: int) -> np.ndarray:
        raise TypeError("a PushBatch has gradients(), not rows")

    def state(self, part: int) -> np.ndarray:
        raise TypeError("a PushBatch has gradients(), not state")


class PrefetchBatch(Batch):
    """Made by :meth:`Server.prefetch_batch`: ids whose rows the server brings into DRAM. It is a :class:`Batch` without
    rows::

        with server.prefetch_batch([(users, 1000)]) as ahead:
            ahead.ids(0)[:] = ids  # uint64 [count], repeated or not
            ahead.prefetch()
            ...
            batch.push(lr=0.01, step=1, prefetch=ahead)  # or ahead.release()

    After :meth:`prefetch` the rows are in the server's first tier, DRAM. They stay there until :meth:`release`, or
    until a push that names the batch is done. Any client can read and change them meanwhile. While the batch has a
    prefetch, :meth:`prefetch` and :meth:`set_count` raise InvalidError; its ids may change. The server keeps a prefetch
    for a limited time, like a ticket; :meth:`Server.reconnect` ends all prefetches. As a context manager the batch
    releases its prefetch and frees itself; :meth:`free` alone leaves the prefetch to expire.
    """

    def __init__(self, connection: Connection, parts: Sequence[tuple[Table, int]]) -> None:
        self._make_of_ids(connection, lib.embtier_batch_new_prefetch, parts)

    def __enter__(self) -> PrefetchBatch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if self._memory is not None and not self._connection.closed:
                self.release()
        except errors.Error:
            pass  # disconnected, expired, or a push is in flight: the prefetch ends with that
        finally:
            self._memory = None

    def prefetch(self, timeout: float | None = None) -> PrefetchBatch:
        """Returns when the rows are in DRAM. :attr:`hit_rows` is the number of rows that were there before.

        PinsFullError: prefetched rows of all clients together may use half of the first tier, and those of one user
        three quarters of what other users leave of it. TicketsFullError: the tickets leave no memory for the prefetch.
        Also IdRangeError, DroppedError, TooLargeError, DisconnectedError, … After an error no row is kept, and the
        trainer can continue without the prefetch."""
        self._submit_and_wait(_PREFETCH, timeout)
        return self

    def submit_prefetch(self) -> None:
        """Starts a prefetch and returns; then :meth:`poll` or :meth:`wait`."""
        self._submit(_PREFETCH)

    @property
    def ticket(self) -> int:
        """The number of the batch's prefetch; 0: none. There is none while a request is in flight, such as a push that
        names it."""
        return lib.embtier_batch_ticket(self._pointer())

    def release(self, timeout: float | None = None) -> None:
        """Releases the rows when no push will follow. Waits for a prefetch in flight. Allowed without a prefetch.
        Raises TicketExpiredError, TicketUsedError or NoTicketError if the server has already released the rows."""
        seconds("timeout", timeout)
        if self._in_flight:
            try:
                self.wait(timeout)
            except errors.Error:
                if self._in_flight:
                    raise
        if self.ticket:
            self._submit_and_wait(_RELEASE, timeout)

    def rows(self, part: int) -> np.ndarray:
        raise TypeError("a PrefetchBatch has ids(), not rows")

    def state(self, part: int) -> np.ndarray:
        raise TypeError("a PrefetchBatch has ids(), not state")
