# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from daemons import Daemon  # noqa: E402
from readers import HAS_HTTP, LISTEN  # noqa: E402


@pytest.fixture(autouse=True)
def _has_http() -> None:
    if not HAS_HTTP:
        pytest.skip("this embtierd was built without libmicrohttpd")


@pytest.fixture
def http_daemon(make_daemon: Callable[..., Daemon]) -> Daemon:
    """A running daemon that serves HTTP."""
    daemon = make_daemon(LISTEN)
    daemon.start()
    return daemon
