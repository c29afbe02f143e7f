# SPDX-License-Identifier: Apache-2.0
"""Progress functions. The library calls them in the middle of a call, which continues even if they raise.

An exception cannot pass through C: ctypes prints it and continues. So it is kept here until the call has returned.
Python runs the handler of a signal when it next runs Python code. In a long call this is before the progress
function's first line, where nothing can catch an exception of the handler. So the handler of SIGINT, which raises
KeyboardInterrupt, is also deferred until the call returns, as in a call without progress.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from ._arguments import kind_of, shown
from ._connection import CALLED_BACK
from ._library import ProgressFunction

Progress = Callable[[int, int, str], None]


class Reports:
    """``with Reports(progress) as reports:`` is used around one call into the library, which gets
    ``reports.function``. At its end it raises the first exception of @progress. @progress may be None: then
    nothing is reported."""

    def __init__(self, progress: Progress | None) -> None:
        if progress is not None and not callable(progress):
            raise TypeError(f"progress must be a function or None, not {kind_of(progress)} {shown(progress)}")
        self._progress = progress
        self._error: BaseException | None = None
        self._handler: Any = None  # SIGINT's, while it is deferred
        self._interrupt: tuple[int, FrameType | None] | None = None
        self.function: Any = ProgressFunction() if progress is None else ProgressFunction(self._report)

    def __enter__(self) -> Reports:
        if self._progress is not None and threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):  # else the handler is not Python's
                self._handler = handler
                signal.signal(signal.SIGINT, self._defer)
        return self

    def __exit__(self, _type: type | None, _error: BaseException | None, _traceback: TracebackType | None) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
        self.function = None  # it refers to this object
        try:
            if self._error is not None:
                raise self._error
        finally:
            if self._interrupt is not None:
                self._handler(*self._interrupt)

    def _defer(self, number: int, frame: FrameType | None) -> None:
        self._interrupt = (number, frame)

    def _report(self, _context: Any, done: int, total: int, unit: bytes) -> None:
        if self._error is not None:
            return
        try:
            self._progress(done, total, unit.decode())
        except BaseException as error:
            self._error = error


CALLED_BACK.add(Reports._report.__code__)
