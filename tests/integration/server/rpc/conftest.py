# SPDX-License-Identifier: Apache-2.0
"""The door: on each engine, for each way to connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from certificates import Authority
from doors import CA, ENGINES, KINDS, Door


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("server", "IP:127.0.0.1")
    return made


@pytest.fixture
def make_door(make_daemon: Callable, engine: str, kind: str, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Door]:
    """Starts a server with these changes to its section socket."""
    monkeypatch.setenv(CA, str(authority.certificate))
    tls = {"certificate": f"{authority.folder}/server.crt", "key": f"{authority.folder}/server.key"}

    def make(socket: dict | None = None) -> Door:
        rpc = {"listen": [f"{kind}://127.0.0.1:0"], "io_uring": ENGINES[engine]}
        daemon = make_daemon({"rpc": rpc, "socket": socket or {}} | ({"tls": tls} if kind == "tls" else {}))
        daemon.start()
        return Door(daemon, kind)

    return make


@pytest.fixture
def door(make_door: Callable[..., Door]) -> Iterator[Door]:
    """It must stop without a fault."""
    made = make_door()
    yield made
    made.daemon.stop()
