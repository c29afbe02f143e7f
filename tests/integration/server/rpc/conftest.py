# SPDX-License-Identifier: Apache-2.0
"""The door: on each engine, for each way to connect. A sanitizer sees each engine and each way, and not each with each. A full check
runs tls with epoll in the plain build, and tcp with io_uring for the long tests alone; a quick check runs all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from daemons import SANITIZED, Daemon
from doors import CA, ENGINES, KINDS, Door


LEFT_TO_PLAIN_BUILDS = [("io_uring", "tcp"), ("epoll", "tls")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects pairs of engine and way under a sanitizer: there the tests of this folder take minutes of processor time."""

    def is_left(item: pytest.Item) -> bool:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        return SANITIZED and (params.get("engine"), params.get("kind")) in LEFT_TO_PLAIN_BUILDS

    left = [item for item in items if is_left(item)]
    items[:] = [item for item in items if not is_left(item)]
    config.hook.pytest_deselected(items=left)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("server", "IP:127.0.0.1")
    os.environ[CA] = str(made.certificate)
    return made


@pytest.fixture(scope="module")
def changes(engine: str, kind: str, authority: Authority) -> dict:
    """Configuration of a server with a door."""
    tls = {"certificate": f"{authority.folder}/server.crt", "key": f"{authority.folder}/server.key"}
    rpc = {"listen": [f"{kind}://127.0.0.1:0"], "io_uring": ENGINES[engine]}
    return {"rpc": rpc} | ({"tls": tls} if kind == "tls" else {})


def opened(daemon: Daemon, kind: str) -> Door:
    daemon.start()
    return Door(daemon, kind)


@pytest.fixture
def make_door(make_daemon: Callable, changes: dict, kind: str) -> Callable[..., Door]:
    """Starts a server with these changes to its section socket."""
    return lambda socket=None: opened(make_daemon(changes | {"socket": socket or {}}), kind)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory, changes: dict, kind: str) -> Iterator[Door]:
    """One for all tests of a file. It must stop without a fault."""
    daemon = Daemon(Path(tmp_path_factory.mktemp("embtierd")), changes)
    try:
        yield opened(daemon, kind)
        daemon.stop()
    finally:
        daemon.end()
