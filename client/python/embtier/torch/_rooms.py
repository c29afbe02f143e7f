# SPDX-License-Identifier: Apache-2.0
"""Batches that serve one pass of a module after another, and the tickets of those that a graph holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import errors
from .._batch import BagBatch, Bags
from .._server import Server, Table
from ._bags import Given
from ._prefetcher import Ahead, IdRoom


class Room:
    """A BagBatch, and tensors of all its memory. It serves one forward pass after another."""

    def __init__(self, server: Server, key: tuple, parts: list[Bags]) -> None:
        self.key = key
        self.most = [(part.count, part.bag_count) for part in parts]
        self.sizes: list[tuple[int, int]] | None = self.most
        self.batch: BagBatch = server.bag_batch(parts)
        self._weighted = [part.weighted for part in parts]
        self.make_tensors()

    def make_tensors(self) -> None:
        """Makes tensors of the batch's memory. Tensors made under inference_mode() cannot be written outside of
        it."""
        batch, places = self.batch, range(len(self._weighted))
        self.ids = [torch.from_numpy(batch.ids(i).view(np.ndarray).view(np.int64)) for i in places]
        self.offsets = [torch.from_numpy(batch.offsets(i).view(np.int32)) for i in places]
        self.bags = [torch.from_numpy(batch.bags(i)) for i in places]
        self.weights = [
            torch.from_numpy(batch.weights(i)) if weighted else None for i, weighted in enumerate(self._weighted)
        ]

    def fill(self, given: Sequence[Given]) -> None:
        sizes, self.sizes = self.sizes, None  # unknown until the end, in case of an interrupt
        if self.bags[-1].is_inference() and not torch.is_inference_mode_enabled():
            self.make_tensors()
        for i, one in enumerate(given):
            if sizes is None or sizes[i] != one.sizes:
                self.batch.set_bags(i, *one.sizes)
            count, bag_count = one.sizes
            self.ids[i][:count] = one.ids
            self.offsets[i][: bag_count + 1] = one.offsets
            if one.weights is not None:
                self.weights[i][:count] = one.weights  # type: ignore[index]
        self.sizes = [one.sizes for one in given]


class Rooms:
    """The batches of one module. A batch with a ticket belongs to its graph. It comes back after its push, or is
    abandoned."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.timeout: float | None = None  # seconds for releasing an abandoned batch
        self._free: dict[tuple, list[Any]] = {}  # of Room, and of IdRoom
        self._abandoned: deque[Room | IdRoom] = deque()

    def take(self, given: Sequence[Given]) -> Room:
        """Returns a batch with room for @given. Releases the tickets of abandoned batches first."""
        self._release_abandoned()
        key = tuple((one.feature, one.weights is not None) for one in given)
        sizes = [one.sizes for one in given]
        most = sizes
        free = self._free.get(key)
        if free:
            room = free.pop()
            if all(a <= c and b <= d for (a, b), (c, d) in zip(sizes, room.most)):
                return room
            most = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(sizes, room.most)]
            del room
        roomy = [(_rounded(count), bag_count) for count, bag_count in most]
        try:
            return Room(self.server, key, _parts(given, roomy))
        except (errors.ArenaFullError, errors.TooLargeError):  # type: ignore[attr-defined]
            self._free.clear()
        return Room(self.server, key, _parts(given, sizes))

    def take_ids(self, features: list[str], tables: list[Table], ids: list[torch.Tensor]) -> IdRoom:
        """Returns a batch with room for the @ids of each of the @features."""
        key = ("ahead", *features)
        free = self._free.get(key)
        if free:
            room = free.pop()
            if all(len(one) <= most for one, most in zip(ids, room.most)):
                return room
        parts = [(table, _rounded(len(one))) for table, one in zip(tables, ids)]
        return self.made(lambda: IdRoom(self.server, key, parts))

    def give(self, room: Room | IdRoom) -> None:
        """Takes back a batch without a ticket that is not in flight."""
        self._free.setdefault(room.key, []).append(room)

    def abandon(self, room: Room | IdRoom) -> None:
        """Takes back a batch that may have a ticket or be in flight. Any thread may call it at any time."""
        self._abandoned.append(room)

    def _release_abandoned(self) -> None:
        for _ in range(len(self._abandoned)):
            try:
                room = self._abandoned.popleft()
            except IndexError:  # another thread releases them too
                return
            try:
                room.batch.release(self.timeout)
            except errors.BusyError:  # type: ignore[attr-defined]
                self._abandoned.append(room)  # in flight: it is retried the next time
            except errors.TimeoutError:  # type: ignore[attr-defined]
                self._abandoned.append(room)
                raise
            except errors.Error:
                pass  # disconnected: the batch is freed, and its ticket expires
            else:
                self.give(room)

    def made(self, make: Callable[[], Any]) -> Any:
        """Returns the batch that @make makes. If the arena is full, it first frees the free batches."""
        self._release_abandoned()
        try:
            return make()
        except errors.ArenaFullError:  # type: ignore[attr-defined]
            self._free.clear()
        return make()


def _parts(given: Sequence[Given], sizes: Sequence[tuple[int, int]]) -> list[Bags]:
    return [
        Bags(one.bag.table, *size, one.bag.mode, one.weights is not None) for one, size in zip(given, sizes)
    ]


def _rounded(count: int) -> int:
    """Rounds up, by at most a quarter, because the next batch seldom has the same size."""
    step = 1 << max(0, count.bit_length() - 3)
    return -(-count // step) * step


class Ticket:
    """A batch with a ticket, held by the graph of a forward pass; and the prefetch of its rows."""

    was_pushed = False

    def __init__(self, rooms: Rooms, room: Room, ahead: Ahead | None) -> None:
        self.ahead = ahead
        self._rooms = rooms
        self._session = rooms.server._connection.session
        self._room: Room | None = room

    def take(self) -> Room:
        if self._room is not None and self._session != self._rooms.server._connection.session:
            raise RuntimeError(
                "the connection was renewed after the forward pass, whose ticket is gone: run the forward pass again"
            )
        room, self._room = self._room, None
        if room is None and not self.was_pushed:
            raise RuntimeError(
                "an earlier backward pass through this graph has failed, and its ticket is gone: run the forward "
                "pass again"
            )
        if room is None:
            raise RuntimeError(
                "the rows of this graph have been updated, and its ticket is used up: backward goes through "
                'it once, unless the module is made with update="step"'
            )
        return room

    def __del__(self) -> None:
        if self._room is not None:
            self._rooms.abandon(self._room)


