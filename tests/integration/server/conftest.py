# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the server's tests. Every daemon ends with its test, by its process id, even if the test fails."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from daemons import SANITIZED, Daemon, embtier  # noqa: E402


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons that are not running yet, each in a folder of its own unless told otherwise."""
    made: list[Daemon] = []

    def make(changes: dict | None = None, folder: Path | None = None, **options) -> Daemon:
        daemon = Daemon(folder or tmp_path / f"daemon-{len(made)}", changes, **options)
        made.append(daemon)
        return daemon

    yield make
    with contextlib.ExitStack() as stack:  # ends all of them, even if the check of one fails
        for daemon in made:
            stack.callback(daemon.end)


@pytest.fixture
def own_daemon(make_daemon: Callable[..., Daemon]) -> Daemon:
    """A running daemon with a cache of a few MiB, for tests that stop it or that other clients would disturb."""
    daemon = make_daemon()
    daemon.start()
    return daemon


@pytest.fixture
def watched_daemon(own_daemon: Daemon) -> Iterator[Daemon]:
    """A daemon with a client that asks for rows all the time, and must always be served. After the test, descriptors and sessions
    must be as before it."""
    stop = threading.Event()
    failures = []
    with own_daemon.connect() as server:
        table = server.create_table("steady", 8)
        table.set(np.arange(500), np.repeat(np.arange(500)[:, None], 8, axis=1))
    own_daemon.await_metric("session_arena_bytes", 0)  # until the memory of that connection is freed, which may take long

    def ask():
        try:
            with own_daemon.connect() as server:
                table = server.open_table("steady")
                asking.set()
                while not stop.is_set():
                    assert (table.get(np.arange(500)) == np.arange(500)[:, None]).all()
                    time.sleep(0.02 if SANITIZED else 0.002)  # else half of a sanitizer's processor is for this
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)
        finally:
            asking.set()

    asking = threading.Event()
    thread = threading.Thread(target=ask)
    thread.start()
    asking.wait()
    own_daemon.await_metric("sessions", 2)  # the thread's, and that of the metric's request
    with own_daemon.connect(arena_bytes=0) as server:  # when it is answered, all closed sessions are gone
        figures, before = server.status()["metrics"], own_daemon.all_descriptors()
    try:
        yield own_daemon
        for name in ("sessions", "session_arena_bytes", "reading_rows"):
            own_daemon.await_metric(name, figures[name])
        with own_daemon.connect(arena_bytes=0):
            own_daemon.must_have_closed_all_but(before)
    finally:
        stop.set()
        thread.join()
    assert not failures


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of a file, which use tables of their own. It must end well."""
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


@pytest.fixture
def random_homes(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives tables a random home, and arrays and splits a random tier, as long as there is room. Only tables with a number of rows
    become arrays. Must come before the test's daemons, which keep memory for arrays in each tier."""
    create_table = embtier.Server.create_table
    homes = random.Random(rng.randrange(2**32))

    def create(server: embtier.Server, name: str, dim: int, rows: int | None = None, **options):
        if rows is not None and "home" not in options and (tier := homes.choice([None, None, "dram", "pmem"])):
            # A table that is too large, or whose tier does not exist, is cached.
            try:
                return create_table(server, name, dim, rows, home="array", tier=tier, **options)
            except (embtier.NoMemoryError, embtier.TooLargeError):
                pass
            except embtier.InvalidError as error:
                assert f"there is no tier '{tier}'" in str(error)
        table = create_table(server, name, dim, rows, **options)
        if "home" not in options and table.spec.home == "cache" and homes.random() < 0.5:
            split(server, name, homes.choice([2, 3, 10]))
        return table

    def split(server: embtier.Server, name: str, every: int) -> None:
        # The tests' ids are small numbers, so some of them are hot.
        try:
            server.move_table(name, "split", hot_rows=range(0, 4000, every))
        except embtier.IdRangeError as error:  # a smaller table
            rows = int(re.search(r"has (\d+) rows", str(error))[1])
            server.move_table(name, "split", hot_rows=range(0, rows, every))
        except (embtier.NoMemoryError, embtier.TooLargeError):
            pass
        except embtier.InvalidError as error:
            assert re.search("no tier keeps memory for arrays|without an arena", str(error))

    monkeypatch.setattr(embtier.Server, "create_table", create)
    monkeypatch.setattr(Daemon, "array_mib", 16)
