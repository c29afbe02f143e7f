# SPDX-License-Identifier: Apache-2.0
"""A client that dies leaves nothing, wherever it was, whether its process is killed or its connection reset."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import states
from daemons import LONG, SANITIZED
from doors import NETWORK, Door, reset, wait_until

TIMES = 200 if LONG else 5 if SANITIZED else 8
LEFT_BYTES = 40 << 10  # of one death: a leak of more is found


@pytest.fixture(scope="module")
def connect(door: Door, kind: str) -> states.Connect:
    return states.Connect(kind, door.address)


@pytest.fixture(scope="module")
def mortal_door(door: Door, connect: states.Connect) -> Door:
    with door.daemon.connect(arena_bytes=0) as server:
        assert server.checkpoint().id == 1  # exports and restores read it
    states.STATES["an export"](connect).close()  # makes what is made once
    return door


def drop_restored(door: Door) -> None:
    wait_until(lambda: not any(door.daemon.metrics()["jobs"].values()))
    with door.daemon.connect(arena_bytes=0) as server:
        for spec in server.tables():
            if spec.name.startswith(states.RESTORED):
                server.drop_table(spec.name)


def must_leave_nothing(door: Door, die: Callable[[], None]) -> None:
    """@die has TIMES clients end."""

    def turn() -> None:
        die()
        door.settled()
        drop_restored(door)

    with door.leaves_nothing(), door.serves_others():
        if SANITIZED:  # it keeps freed memory, and tells of leaks at its end
            turn()
        else:
            door.must_stop_growing(turn, TIMES * LEFT_BYTES)


@pytest.mark.parametrize("state", states.STATES)
def test_a_killed_client_leaves_nothing(mortal_door: Door, connect: states.Connect, state: str):
    program = Path(states.__file__)
    at = [connect.address] if isinstance(connect.address, str) else map(str, connect.address)
    arguments = [state, connect.kind, str(TIMES), *at]
    must_leave_nothing(mortal_door, lambda: subprocess.run([sys.executable, program, *arguments], check=True))


@pytest.mark.parametrize("kind", NETWORK, indirect=True)  # a Unix stream has no RST
@pytest.mark.parametrize("state", states.STATES)
def test_a_reset_connection_leaves_nothing(mortal_door: Door, connect: states.Connect, state: str):
    def die() -> None:
        for _ in range(TIMES):
            reset(states.STATES[state](connect).socket)

    must_leave_nothing(mortal_door, die)
