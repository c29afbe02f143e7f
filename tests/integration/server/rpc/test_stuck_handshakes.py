# SPDX-License-Identifier: Apache-2.0
"""Handshakes have threads of their own: while these are stuck, open connections go on."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest
from doors import Door, await_bytes, client_hello, over_tcp, rows_request
from plain_client import DONE, GET, SUBMIT, frame

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
ROUNDS = 50

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long
_libc.waitpid.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
WALL = 0x40000000  # __WALL: waits for threads too


def ptrace(request: int, thread: int) -> None:
    if _libc.ptrace(request, thread, None, None) != 0:
        number = ctypes.get_errno()
        if number in (errno.EPERM, errno.ENOSYS):
            pytest.skip("the system lets no test stop a thread of its own child")
        raise OSError(number, os.strerror(number))


@contextlib.contextmanager
def stopped(thread: int) -> Iterator[None]:
    """The thread stands still in the block, and no other thread of its process does."""
    ptrace(PTRACE_SEIZE, thread)
    ptrace(PTRACE_INTERRUPT, thread)
    assert _libc.waitpid(thread, None, WALL) == thread
    try:
        yield
    finally:
        ptrace(PTRACE_DETACH, thread)


def threads_of(pid: int, name: str) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this thread has just ended
            found += [int(task.name)] if (task / "comm").read_text().strip() == name else []
    return found


@pytest.mark.parametrize("kind", ["tls"], indirect=True)
def test_handshakes_that_are_stuck_hold_up_no_open_connection(door: Door):
    with door.leaves_nothing(), contextlib.closing(door.client()) as client, contextlib.closing(over_tcp(door.address)) as late:
        with contextlib.ExitStack() as stuck:
            for thread in threads_of(door.daemon.pid, "handshakes"):
                stuck.enter_context(stopped(thread))
            late.sendall(client_hello(door.address))
            for turn in range(ROUNDS):
                fields, payload = rows_request(client, GET, 10)
                client.send(frame(SUBMIT, turn, fields, payload))
                assert client.receive()[0] == DONE
            assert not select.select([late], [], [], 0)[0], "its handshake went on, so nothing was stuck"
        await_bytes(late)
    door.must_serve()
