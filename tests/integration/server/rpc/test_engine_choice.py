# SPDX-License-Identifier: Apache-2.0
"""A server for which the system refuses io_uring takes epoll by itself, and says why."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from daemons import Daemon, merged
from doors import TABLE, Door

import embtier

_ACTIONS = Path("/proc/sys/kernel/seccomp/actions_avail")
pytestmark = pytest.mark.skipif(
    not _ACTIONS.exists() or "errno" not in _ACTIONS.read_text().split(), reason="the kernel has no filters of system calls"
)
# The errors that containers and kernel.io_uring_disabled give: the reason in the log.
REFUSALS = {
    "EPERM": ("a container's filter or kernel.io_uring_disabled forbids it", os.strerror(1)),
    "ENOSYS": ("the kernel has none, or a container's filter hides it", os.strerror(38)),
}


@pytest.fixture(scope="module")
def engine() -> str:
    """The server has the choice: the fixture of conftest.py names engines."""
    return "io_uring"


@pytest.fixture
def daemon(make_daemon: Callable[..., Daemon], changes: dict) -> Daemon:
    return make_daemon(merged(changes, {"rpc": {"threads": 3}}))


def without_io_uring(error: str) -> tuple[str, ...]:
    return sys.executable, str(Path(__file__).parent / "without_io_uring.py"), error


@pytest.mark.parametrize("error", REFUSALS)
def test_a_server_without_io_uring_serves_with_epoll_and_says_why(daemon: Daemon, kind: str, error: str):
    daemon.launch(wrapper=without_io_uring(error))
    daemon.await_ready()
    (said,) = daemon.logged("io_uring is not available; clients over RPC are served with epoll")
    assert said["level"] == "warn"
    for reason in REFUSALS[error]:
        assert reason in said["why"]
    assert "anon_inode:[io_uring]" not in daemon.descriptors()
    door = Door(daemon, kind)
    with door.leaves_nothing(), embtier.connect(door.url) as server:
        table = server.open_table(TABLE)
        assert (table.get([7, 999])[:, 0] == [7, 999]).all()
        table.set([5000], np.full((1, table.dim), 3, np.float32))
        assert (table.get([5000]) == 3).all()
    daemon.stop()


@pytest.mark.parametrize("error", REFUSALS)
def test_a_server_that_must_have_io_uring_does_not_start_without_it(daemon: Daemon, error: str):
    daemon.configure({"rpc": {"io_uring": "on"}})
    why = daemon.fail_to_start(wrapper=without_io_uring(error))
    for reason in REFUSALS[error]:
        assert reason in why


def test_a_server_that_has_io_uring_uses_it(daemon: Daemon):
    daemon.start()
    if refused := daemon.logged("io_uring is not available"):
        pytest.skip(refused[0]["why"])
    assert daemon.descriptors().get("anon_inode:[io_uring]", 0) >= daemon.config["rpc"]["threads"]
    daemon.stop()
