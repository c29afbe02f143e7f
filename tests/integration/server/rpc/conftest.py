# SPDX-License-Identifier: Apache-2.0
"""The door: on each engine, for each way to connect. A sanitizer sees each engine with TCP or TLS. A full check runs tls with epoll in
the plain build, and tcp with io_uring for the long tests alone; a quick check runs all. Each test has one engine over a Unix stream, in the
plain build."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from daemons import SANITIZED, Daemon
from doors import CA, ENGINES, KINDS, UNIX, Door


LEFT_TO_PLAIN_BUILDS = [("io_uring", "tcp"), ("epoll", "tls")]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects pairs of engine and way: all of them take minutes of processor time."""

    def is_left(item: pytest.Item) -> bool:
        params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        engine, kind = params.pop("engine", None), params.pop("kind", None)
        if engine and kind == "unix":
            return SANITIZED or engine != engine_of(item.originalname, params)
        return SANITIZED and (engine, kind) in LEFT_TO_PLAIN_BUILDS

    left = [item for item in items if is_left(item)]
    items[:] = [item for item in items if not is_left(item)]
    config.hook.pytest_deselected(items=left)


def engine_of(test: str, params: dict) -> str:
    """That of a test over a Unix stream. The names choose it, so that half of all have each."""
    return list(ENGINES)[zlib.crc32(f"{test} {sorted(params.items())}".encode()) % len(ENGINES)]


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
    rpc = {"listen": [UNIX if kind == "unix" else f"{kind}://127.0.0.1:0"], "io_uring": ENGINES[engine]}
    return {"rpc": rpc} | ({"tls": tls} if kind == "tls" else {})


def placed(daemon: Daemon) -> Daemon:
    """Has its Unix stream, if it is to have one, lie beside its own socket."""
    if daemon.config.get("rpc", {}).get("listen") == [UNIX]:
        daemon.configure({"rpc": {"listen": [f"{UNIX}{daemon.path}.rpc"]}})
    return daemon


@pytest.fixture
def make_daemon(make_daemon: Callable[..., Daemon]) -> Callable[..., Daemon]:
    return lambda *arguments, **options: placed(make_daemon(*arguments, **options))


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
    daemon = placed(Daemon(Path(tmp_path_factory.mktemp("embtierd")), changes))
    try:
        yield opened(daemon, kind)
        daemon.stop()
    finally:
        daemon.end()
