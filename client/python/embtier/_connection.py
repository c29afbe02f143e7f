# SPDX-License-Identifier: Apache-2.0
"""The only owner of a ``struct embtier *``, and the rules of its use.

Lifetimes. Batches, and the NumPy views of their ids and rows, point into memory that the library unmaps when it
disconnects. So a closed connection disconnects once the last of them is gone, and a view never dangles. Python's
garbage collector may find an object on any thread and in the middle of another call. So handles to be freed are queued
here, and the next call frees them.

Threads. One thread at a time uses a connection; a second one gets an error at once instead of waiting. A backward pass
of torch has a thread for each device that outputs lie on; these threads take turns.
Interrupts. The handler of a signal, such as that of Ctrl-C, may raise an exception between any two bytecodes: for
example, right after a call into the library has returned. So the library owns the state of requests. Python asks it
whether a batch is in flight, has a ticket, or has pushed a step. Python records its own state before the call. If an
exception leaves a connection taken, the same thread may still use it.
Processes. A connection does not survive fork(): the child gets an error, and frees nothing.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeVar

from . import errors
from ._arguments import deadline_of, kind_of, milliseconds_left, shown
from ._library import lib

_AGAIN = errors.code_of("AGAIN")
_BUSY = errors.code_of("BUSY")


@dataclass(frozen=True)
class Patience:
    """As :func:`embtier.connect` was told. Times are in seconds; infinity: for ever."""

    reconnect_timeout: float = 0.0
    request_timeout: float = math.inf
    retry_reads: bool = False


class Connection:
    """``with connection as handle:`` takes the connection for one call into the library."""

    def __init__(self, handle: c_void_p, patience: Patience | None = None) -> None:
        self.patience = patience or Patience()
        self._handles = [handle]  # popped by the caller that disconnects
        self._handle = handle
        self._batches: set[int] = set()  # batches whose memory is in use
        self._garbage: deque[tuple[Callable[[Any], Any], c_void_p]] = deque()
        self._taken: dict[str, tuple[int]] = {}  # "by": the thread of the call in progress
        self._pid = os.getpid()
        self._getpid = os.getpid  # kept because module globals may be gone at exit
        self._disconnect_handle = lib.embtier_disconnect
        self.turn = threading.RLock()  # for the threads of a backward pass
        self.closed = False
        self.writes: Counter[str] = Counter()  # SETs and pushes submitted, by table
        self.tables: weakref.WeakSet = weakref.WeakSet()
        self.session = 0  # number of reconnects
        self.pushers: dict[str, weakref.ref] = {}  # by table: the optimizer of embtier.torch that pushed last

    def __enter__(self) -> c_void_p:
        if self._pid != os.getpid():
            raise RuntimeError("a connection does not survive fork(): connect again in the child")
        if self.closed:
            raise RuntimeError(
                "the connection is closed, by close() or the end of its with block: embtier.connect() makes a new one"
            )
        mine = (threading.get_ident(),)
        holder = self._taken.setdefault("by", mine)  # in one bytecode, so no interrupt can come between
        if holder is not mine and (holder != mine or _is_within_a_call()):
            raise RuntimeError(
                "the connection is in use by another call: make one connection per thread, and do not call it from a "
                "progress function"
            )
        try:
            self._free_garbage()
        except BaseException:
            self._taken.clear()
            raise
        return self._handle

    def __exit__(self, *_: object) -> None:
        self._taken.clear()

    def __del__(self) -> None:
        self._disconnect()

    @property
    def is_open(self) -> bool:
        """True if the connection is not closed, and belongs to this process."""
        return not self.closed and self._pid == self._getpid()

    def close(self) -> None:
        """Allows no more calls. Disconnects at once, or when the last batch is gone."""
        if not self.closed and self._pid == os.getpid():
            with self:
                self.closed = True
        self.closed = True
        if not self._batches:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._pid != self._getpid():
            return
        try:
            handle = self._handles.pop()
        except IndexError:
            return
        self._disconnect_handle(handle)

    def add_batch(self, pointer: c_void_p) -> None:
        """Keeps the connection's memory until remove_batch() or let_go(), even if the connection is closed."""
        assert pointer.value is not None
        self._batches.add(pointer.value)

    def remove_batch(self, pointer: c_void_p) -> None:
        """Frees a batch that is gone with all its views. Any thread may call it at any time."""
        if not self.closed:
            self._garbage.append((lib.embtier_batch_free, pointer))
        self.let_go(pointer)

    def let_go(self, pointer: c_void_p) -> None:
        """Ends the effect of add_batch(): nothing needs the memory."""
        self._batches.discard(pointer.value or 0)
        if self.closed and not self._batches:
            self._disconnect()  # no call is in progress: close() waited for its turn

    def discard(self, free: Callable[[Any], Any], handle: c_void_p) -> None:
        """Queues a @handle other than a batch for @free. Any thread may call it at any time."""
        self._garbage.append((free, handle))

    def _free_garbage(self) -> None:
        """Frees in order, so that a batch goes before its tables; stops at a batch in flight. A handle leaves the queue
        before it is freed. So an interrupt may leave it unfreed, but nothing is freed twice."""
        while self._garbage:
            free, handle = one = self._garbage.popleft()
            if free is not lib.embtier_batch_free:
                free(handle)
            elif lib.embtier_poll(handle) == _AGAIN or free(handle) == _BUSY:
                self._garbage.appendleft(one)
                return

    def check(self, code: int) -> None:
        """Raises the exception for @code, unless it is 0, with the library's message about the call just made. Must be
        called inside the ``with`` of that call."""
        if code:
            message = lib.embtier_message(self._handle).decode(errors="replace")
            if code == _DISCONNECTED:
                message += "; Server.reconnect() makes a new session, for the same tables"
            raise errors.make(code, message)


    def reconnect(self) -> None:
        """Waits in short pieces, so that Ctrl-C ends it. The library continues its pauses from piece to piece."""
        deadline = deadline_of(self.patience.reconnect_timeout)
        while True:
            with self as handle:
                self.session += 1
                code = lib.embtier_reconnect_within(handle, milliseconds_left(deadline, _SLICE_MS))
                if code not in _PASSING or time.monotonic() >= deadline:
                    self.check(code)
                    self._come_back()
                    return

    def _come_back(self) -> None:
        for table in self.tables:
            table._read_spec()
            self.writes[table.name] += 1  # rows that were read before may not be current


_DISCONNECTED = errors.code_of("DISCONNECTED")
_PASSING = {errors.code_of(name) for name in ("UNREACHABLE", "TIMEOUT", "BUSY", "DISCONNECTED", "SHUTDOWN")}
_SLICE_MS = 100  # longest delay of Ctrl-C during a pause; an attempt is not cut short

_Call = TypeVar("_Call", bound=Callable[..., Any])


def repeated(method: _Call) -> _Call:
    """For methods that only read: makes a call once more, in a new session, if its connection is lost and the program
    has asked for that. Not more often: a call that makes servers crash must not go round."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except errors.DisconnectedError:  # type: ignore[attr-defined]
            if not self._connection.patience.retry_reads:
                raise
        self._connection.reconnect()
        return method(self, *arguments, **options)

    return call  # type: ignore[return-value]


# The code of functions that the library calls during a call.
CALLED_BACK: set[CodeType] = set()


def _is_within_a_call() -> bool:
    """True if this thread runs a function that the library has called."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in CALLED_BACK:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def connection_of(value: Any) -> Connection:
    """Returns @value, which must be a Connection. Only this package makes objects with it."""
    if not isinstance(value, Connection):
        raise TypeError(
            f"connection must be that of a Server, whose methods make this, not {kind_of(value)} {shown(value)}"
        )
    return value


class Opened:
    """Base class of tables, for modules that _server.py imports."""

    _connection: Connection


def table_of(what: str, value: Any) -> Any:
    """Returns @value, which must be a Table."""
    if not isinstance(value, Opened):
        raise TypeError(f"{what} must be an embtier.Table, not {kind_of(value)} {shown(value)}")
    return value
