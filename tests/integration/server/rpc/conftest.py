# SPDX-License-Identifier: Apache-2.0
"""The door: on each engine, for each way to connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from doors import ENGINES, KINDS, Door


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make_door(make_daemon: Callable, engine: str, kind: str) -> Callable[..., Door]:
    """Starts a server with these changes to its section socket."""

    def make(socket: dict | None = None) -> Door:
        daemon = make_daemon({"rpc": {"listen": ["tcp://127.0.0.1:0"], "io_uring": ENGINES[engine]}, "socket": socket or {}})
        daemon.start()
        return Door(daemon, kind)

    return make


@pytest.fixture
def door(make_door: Callable[..., Door]) -> Iterator[Door]:
    """It must stop without a fault."""
    made = make_door()
    yield made
    made.daemon.stop()
