# SPDX-License-Identifier: Apache-2.0
"""Brings the rows of coming sample batches into the server's DRAM while the trainer computes."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import errors
from .._arguments import integer, kind_of, shown
from .._batch import PrefetchBatch
from .._group import Group

if TYPE_CHECKING:
    from .._server import Server, Table
    from ._modules import EmbeddingBagCollection

# The server has no room, or too many requests are in flight; or the server is gone, which the next lookup reports.
_NO_ROOM = (
    errors.PinsFullError,  # type: ignore[attr-defined]
    errors.TicketsFullError,  # type: ignore[attr-defined]
    errors.ArenaFullError,  # type: ignore[attr-defined]
    errors.BusyError,  # type: ignore[attr-defined]
    errors.DisconnectedError,  # type: ignore[attr-defined]
)
_NO_MORE = object()
_GONE = (
    errors.TicketExpiredError,  # type: ignore[attr-defined]
    errors.TicketUsedError,  # type: ignore[attr-defined]
    errors.NoTicketError,  # type: ignore[attr-defined]
)


class IdRoom:
    """A PrefetchBatch that serves one sample batch after another. The module's rooms keep it."""

    def __init__(self, server: Server, key: tuple, parts: Sequence[tuple[Table, int]]) -> None:
        self.key = key
        self.most = [count for _, count in parts]
        self._sizes: list[int] | None = list(self.most)
        self.batch: PrefetchBatch = server.prefetch_batch(parts)

    def fill(self, ids: Sequence[torch.Tensor]) -> None:
        sizes, self._sizes = self._sizes, None  # unknown until the end, in case of an interrupt
        for i, one in enumerate(ids):
            if sizes is None or sizes[i] != len(one):
                self.batch.set_count(i, len(one))
            self.batch.ids(i)[:] = one.numpy().view(np.uint64)
        self._sizes = [len(one) for one in ids]


class Ahead:
    """The prefetch of one sample batch for one module, from its request until its release."""

    def __init__(self, module: EmbeddingBagCollection, room: IdRoom) -> None:
        self.module = module
        self.error: errors.Error | None = None  # the error with which the server refused it
        self._room: IdRoom | None = room
        self._is_known = False  # its outcome

    def look(self, waits: bool) -> PrefetchBatch | None:
        """Returns the batch that has the prefetch. None: there is none; or, unless @waits, there is none yet."""
        if self._room is None:
            return None
        batch = self._room.batch
        try:
            if not self._is_known and waits:
                batch.wait(self.module.timeout)
            self._is_known = self._is_known or batch.poll()
        except errors.TimeoutError:  # type: ignore[attr-defined]
            raise  # the outcome is still unknown
        except errors.Error as error:
            self._is_known = True
            self.error = error
        return batch if batch.ticket else None

    def release(self) -> None:
        """Releases the prefetch; never raises. A prefetch that cannot be released now is released with the module's
        next request, or expires. Further calls have no effect."""
        room, self._room = self._room, None
        if room is None:
            return
        rooms = self.module._rooms
        try:
            room.batch.release(self.module.timeout)
        except errors.TimeoutError:  # type: ignore[attr-defined]
            rooms.abandon(room)
            return
        except errors.Error:
            return  # disconnected, or expired
        except RuntimeError:  # the connection is closed, or another call is in progress
            rooms.abandon(room)
            return
        rooms.give(room)


def push_with(
    ahead: Ahead | None, batch: Any, *arguments: Any, group: Group | None = None, **options: Any
) -> None:
    """Pushes @batch, and releases the prefetch of @ahead."""
    if group is not None:  # an expired prefetch would cost the group its step, so the push does not name it
        batch.push(*arguments, group=group, **options)
        if ahead is not None:
            ahead.release()
        return
    prefetch = ahead.look(waits=True) if ahead is not None else None
    try:
        batch.push(*arguments, prefetch=prefetch, **options)
    except _GONE:
        if prefetch is None or prefetch.ticket or not batch.ticket:
            raise
        batch.push(*arguments, **options)  # the prefetch had expired


class Prefetcher:
    """Iterates over the sample batches of a data loader, and asks the server to bring the rows of the next ones into
    DRAM. They stay there until the batch has been trained with::

        ahead = embtier.torch.Prefetcher(loader, collection, lambda batch: batch.features, ahead=2)
        for batch in ahead:
            loss_of(collection(batch.features), batch).backward()

    @loader: any iterable of sample batches. Each is passed on unchanged, in order, and read @ahead batches early. An
    exception of the loader is raised in its turn.
    @module: an :class:`EmbeddingBag`, an :class:`EmbeddingBagCollection`, or a list of them.
    @inputs: a function of a sample batch that returns the inputs of the module's forward pass. For a collection they
    are a mapping of features to ids, (ids, offsets) or (ids, offsets, per_sample_weights). For an EmbeddingBag they are
    one of these; for a list of modules a list. The function may run before earlier batches have been trained with. Ids
    of padding are left out.
    @ahead: number of sample batches that the server prefetches, at least 1. Rows of up to @ahead + 1 of them are pinned
    at a time.

    When the iterator yields a sample batch, the module gets the batch's prefetch. The next forward pass with a ticket
    (gradients are enabled, the module is not frozen, ``update="backward"``) takes the prefetch into its graph. The push
    of its backward pass releases it. Otherwise, after a batch without a push or with ``update="step"``, it is released
    when the next sample batch is requested. All prefetches are released when the iteration ends, also by an exception
    in the loop. They are also released when the iterator is closed, and by :meth:`release`.

    If the server has no room for a prefetch (PinsFullError, TicketsFullError; ArenaFullError; BusyError: too many
    requests in flight; DisconnectedError), the sample batch is trained without it. ``skipped_prefetches`` counts it,
    with a warning the first time. Other errors, such as IdRangeError for ids from @inputs, are raised when that sample
    batch's turn comes or has passed. If a prefetch expires before its push, the push is made without it.

    Limits. A module has one iteration at a time. A prefetch changes no numbers, so a wrong @inputs makes training slow,
    not wrong. If several forward passes of a module use one sample batch, the first takes the prefetch. Prefetching
    pays if rows are read from SSD or slower memory, and the next batches' distinct rows fit into half of the first
    tier. Each prefetch is one more request in flight.

    Threads: the connection serves one thread at a time. The iterator only starts requests, and checks them later.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        module: EmbeddingBagCollection | Sequence[EmbeddingBagCollection],
        inputs: Callable[[Any], Any],
        ahead: int = 2,
    ) -> None:
        ahead = integer("ahead", ahead)
        if ahead < 1:
            raise ValueError(f"ahead must be at least 1, not {shown(ahead)}")
        if not callable(inputs):
            raise TypeError(f"inputs must be a function of a sample batch, not {kind_of(inputs)} {shown(inputs)}")
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            raise TypeError(f"loader must be an iterable of sample batches, not {kind_of(loader)} {shown(loader)}")
        self.loader = loader
        self.ahead = ahead
        self.skipped_prefetches = 0
        self._is_list = isinstance(module, (list, tuple, torch.nn.ModuleList))
        self._modules: list[EmbeddingBagCollection] = list(module) if self._is_list else [module]  # type: ignore
        for one in self._modules:
            if not hasattr(one, "_ids_of"):
                raise TypeError(f"module must be an EmbeddingBagCollection, not {kind_of(one)} {shown(one)}")
        self._inputs = inputs
        self._held: list[Ahead] = []

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        source = iter(self.loader)
        waiting: deque[tuple[Any, list[Ahead]]] = deque()
        end: Exception | None = None
        is_first = True
        is_over = False
        try:
            while True:
                while not is_over and len(waiting) <= self.ahead:
                    try:
                        batch = next(source, _NO_MORE)
                        if batch is _NO_MORE:
                            is_over = True
                        else:
                            waiting.append((batch, [] if is_first else self._prefetch(batch)))
                    except Exception as exception:
                        end, is_over = exception, True
                    is_first = False
                if not waiting:
                    break
                batch, held = waiting.popleft()
                self._make_current(held)
                yield batch
                self._finish(held)
            if end is not None:
                raise end
        finally:
            self.release()

    def release(self) -> None:
        """Releases all prefetches of this object, also those of sample batches to come. Never raises."""
        for module in self._modules:
            module._ahead = None
        held, self._held = self._held, []
        for one in held:
            one.release()

    def _prefetch(self, batch: Any) -> list[Ahead]:
        given = self._inputs(batch)
        begun = []
        for module, one in zip(self._modules, given if self._is_list else [given], strict=True):
            ahead = self._begin(module, one)
            if ahead is not None:
                begun.append(ahead)
        return begun

    def _begin(self, module: EmbeddingBagCollection, one: Any) -> Ahead | None:
        features, tables, ids = module._ids_of(one)
        if not features:
            return None
        room = None
        try:
            room = module._rooms.take_ids(features, tables, ids)
            room.fill(ids)
            room.batch.submit_prefetch()
        except _NO_ROOM as error:
            if room is not None:
                module._rooms.give(room)
            self._skip(error)
            return None
        ahead = Ahead(module, room)
        self._held.append(ahead)
        return ahead

    def _skip(self, error: errors.Error) -> None:
        self.skipped_prefetches += 1
        if self.skipped_prefetches == 1:
            warnings.warn(
                f"skipped a prefetch: {error}; more are counted in skipped_prefetches", stacklevel=3
            )

    def _make_current(self, held: list[Ahead]) -> None:
        for module in self._modules:
            module._ahead = None
        for one in held:
            self._look(one, waits=False)
            one.module._ahead = one

    def _finish(self, held: list[Ahead]) -> None:
        for module in self._modules:
            module._ahead = None
        for one in held:
            self._look(one, waits=True)
            one.release()
            if one in self._held:
                self._held.remove(one)

    def _look(self, one: Ahead, waits: bool) -> None:
        """Handles an error with which the server refused the prefetch."""
        one.look(waits)
        error, one.error = one.error, None
        if isinstance(error, _NO_ROOM):
            self._skip(error)
        elif error is not None:
            raise error
