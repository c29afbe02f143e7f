# SPDX-License-Identifier: Apache-2.0
"""Memberships of groups of trainers."""

from __future__ import annotations

import weakref
from ctypes import byref, c_void_p, sizeof
from typing import Any

from ._arguments import integer, kind_of, shown
from ._connection import Connection, connection_of
from ._library import GroupOptions, lib

STEP_MAX = 2**53 - 1  # of a training


class Group:
    """This connection's membership of a group of trainers, made by :meth:`Server.join`. Trainers of one model, each
    with its own part of every batch, push to it together::

        group = server.join("model", size=4, member=rank)
        while group.step < steps:
            ...
            batch.push(lr, group.step + 1, group=group)  # returns when all members have pushed it

    A step of the group is one push of each member. The server reduces each push to one gradient for each of its rows.
    It adds up the members' gradients in the order of their numbers, and runs the table's optimizer once for each row.
    The same pushes give the same bytes in any order of arrival. Lookups after a push see the pushes of all members.

    The learning rate of a table must be the same for all members (MismatchError for all); tables may differ. A member
    that has nothing to push in a step pushes a batch without ids. If there are several groups, all members must push to
    them in the same order, or they wait for each other.

    A push that the server refuses, for any reason, also counts as that member's part of the step. Nothing is applied,
    and the others get GroupRefusedError, with ``member`` and ``err`` (the name of that member's error: "NONFINITE").
    Batches keep their tickets, and all push that step again, with the same or other gradients. If only the sum of all
    members would make a finite row NaN or infinite, all get NonfiniteError. A push that is refused before it is sent
    (ValueError, InvalidError for a batch that is not ready) does not reach the group. The others keep waiting.

    The membership ends with :meth:`leave`, or with the session. The session ends when the connection is closed and its
    last batch and view are gone: see :meth:`Server.close`. If a member is gone, the pushes of the others raise
    GroupBrokenError with its number as ``member``, waiting ones at once. If a member has not pushed for too long
    (``lanes.group_seconds`` of the server's configuration), they raise TimeoutError with ``member``. Then all must join
    again, at the step in each member's :attr:`step`. After :meth:`Server.reconnect`, requests that name the group raise
    NoGroupError: join again.
    """

    def __init__(self, connection: Connection, name: str, size: int, member: int, step: int) -> None:
        numbers = [integer("size", size), integer("member", member), integer("step", step)]
        if min(numbers) < 0 or max(numbers[:2]) >= 2**32 or numbers[2] > STEP_MAX:
            raise ValueError(f"size, member and step must be counts, not {', '.join(map(shown, numbers))}")
        options = GroupOptions(sizeof(GroupOptions), name, *numbers)
        pointer = c_void_p()
        with connection_of(connection) as handle:
            connection.check(lib.embtier_group_join(handle, byref(options), byref(pointer)))
        self._connection = connection
        self._pointer = pointer
        self._name, self._size, self._member = name, options.size, options.member
        self._owner: weakref.ref | None = None  # the module of embtier.torch whose steps are the group's
        self._step = step
        self._pushes: weakref.WeakSet = weakref.WeakSet()  # batches; the last results of some have not been read

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            self._connection.discard(lib.embtier_group_free, self._pointer)

    def __repr__(self) -> str:
        return f"<embtier.Group {self.name!r} member {self.member} of {self.size}, step {self.step}>"

    def _handle(self, connection: Connection) -> c_void_p:
        if connection is not self._connection:
            raise ValueError(f"group {self.name!r} was joined by another connection")
        return self._pointer

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int:
        """The number of members."""
        return self._size

    @property
    def member(self) -> int:
        """The number of this member, from 0."""
        return self._member

    @property
    def step(self) -> int:
        """The last step that this connection knows to be done: the join's, then that of this member's last successful
        push. It stays after the membership has ended."""
        if self._connection.is_open:
            self._pushes = weakref.WeakSet([batch for batch in self._pushes if batch._in_flight])
            self._read_step()
        return self._step

    def leave(self) -> None:
        """Ends the membership, which breaks the group as a lost member does. Pushes of the others raise
        GroupBrokenError at once. All members, this one too, may join again. :attr:`step` stays. Allowed if the group is
        already broken. NoGroupError: the membership has ended with its session."""
        with self._connection:
            self._connection.check(lib.embtier_group_leave(self._pointer))

    def _read_step(self) -> None:
        self._step = lib.embtier_group_step(self._pointer)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Group cannot be copied or pickled: it is a membership of a connection of this process; join again "
            "there"
        )


def handle_of(group: Any, connection: Connection) -> c_void_p:
    if not isinstance(group, Group):
        raise TypeError(f"group must be a Group, not a {kind_of(group)}")
    return group._handle(connection)
