# SPDX-License-Identifier: Apache-2.0
"""A server that was killed may hold its address for a moment, until the kernel has cancelled the operations of its io_uring. The next
server waits for it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from certificates import own_host
from daemons import Daemon

import embtier

HELD = "an address is in use; a server that was killed may hold it for a moment"
LIMIT_S = 60


def take_address(daemon: Daemon, kind: str) -> tuple[socket.socket, str]:
    """Returns a socket that listens, and its address."""
    if kind == "tcp":
        taken = socket.create_server((own_host(), 0))
        host, port = taken.getsockname()
        return taken, f"tcp://{host}:{port}"
    taken = socket.socket(socket.AF_UNIX)
    path = f"{Path(daemon.path).parent}/{time.monotonic_ns()}"
    taken.bind(path)
    taken.listen()
    return taken, f"unix+rpc:{path}"


@pytest.mark.parametrize("kind", ["tcp", "unix+rpc"])
def test_an_address_that_is_let_go_of_during_the_start_is_taken(make_daemon, kind):
    daemon = make_daemon()
    deadline = time.monotonic() + LIMIT_S
    while not daemon.logged("ready"):
        assert time.monotonic() < deadline  # each time, this process was late by more than the daemon's patience
        taken, address = take_address(daemon, kind)
        with taken:
            daemon.configure({"rpc": {"listen": [address]}})
            waits = len(daemon.logged(HELD))
            daemon.launch("--log-level", "debug")
            while daemon.is_running and len(daemon.logged(HELD)) == waits:
                time.sleep(0.001)
        while daemon.is_running and not daemon.logged("ready"):
            time.sleep(0.01)
    embtier.connect(address, timeout=LIMIT_S, arena_bytes=0).close()
    daemon.stop()
