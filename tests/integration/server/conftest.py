# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the server's tests. Every daemon ends with its test, by its process id, also when the
test fails."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from daemons import Daemon  # noqa: E402


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons that are not running yet, each in a folder of its own unless told."""
    made: list[Daemon] = []

    def make(changes: dict | None = None, folder: Path | None = None, **options) -> Daemon:
        daemon = Daemon(folder or tmp_path / f"daemon-{len(made)}", changes, **options)
        made.append(daemon)
        return daemon

    yield make
    with contextlib.ExitStack() as stack:  # all of them, also when one says that something is wrong
        for daemon in made:
            stack.callback(daemon.end)


@pytest.fixture
def own_daemon(make_daemon: Callable[..., Daemon]) -> Daemon:
    """Running, with a cache of a few MiB; for tests that stop it or mind what others do."""
    daemon = make_daemon()
    daemon.start()
    return daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for all tests of a file; they use tables of their own. It must end well."""
    daemon = Daemon(tmp_path_factory.mktemp("embtierd"))
    daemon.start()
    yield daemon
    try:
        daemon.stop()
    finally:
        daemon.end()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A table name of the test's own."""
    return "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]


@pytest.fixture
def rng() -> random.Random:
    """Printed with a failure; EMBTIER_TEST_SEED=… gives the same numbers again."""
    seed = int(os.environ.get("EMBTIER_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"EMBTIER_TEST_SEED={seed}")
    return random.Random(seed)
