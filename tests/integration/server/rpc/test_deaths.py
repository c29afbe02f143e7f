# SPDX-License-Identifier: Apache-2.0
"""A client that dies leaves nothing, wherever it was, whether its process is killed or its connection reset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import states
from daemons import LONG
from doors import Door, reset

TIMES = 200 if LONG else 10


@pytest.fixture(scope="module")
def mortal_door(door: Door) -> Door:
    with door.daemon.connect(arena_bytes=0) as server:
        server.checkpoint()  # exports read it
    states.STATES["an export"](door.connect).close()  # makes what is made once
    return door


@pytest.mark.parametrize("state", states.STATES)
def test_a_killed_client_leaves_nothing(mortal_door: Door, kind: str, state: str):
    door = mortal_door
    with door.leaves_nothing(), door.serves_others():
        program = Path(states.__file__)
        subprocess.run([sys.executable, program, state, kind, *map(str, door.address), str(TIMES)], check=True)


@pytest.mark.parametrize("state", states.STATES)
def test_a_reset_connection_leaves_nothing(mortal_door: Door, state: str):
    door = mortal_door
    with door.leaves_nothing(), door.serves_others():
        for _ in range(TIMES):
            reset(states.STATES[state](door.connect).socket)
