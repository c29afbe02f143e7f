# SPDX-License-Identifier: Apache-2.0
"""`embtierd --without-directory`: a start without the directory of a dead drive, which must have no rows."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import Daemon
from stores import MOVE_LIMIT_S, run_cli

ROWS, DIM, SHARDS = 3000, 16, 2
IDS = np.arange(ROWS)
MODES = ("replay", "async", "sync")


def rows_of(version: int) -> np.ndarray:
    return np.repeat((IDS + version * ROWS).astype(np.float32)[:, None], DIM, axis=1)


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    daemon = make_daemon({"data": {"shards_per_directory": SHARDS}})
    daemon.start()
    with daemon.connect() as server:
        for mode in MODES:
            server.create_table(mode, DIM, durability=mode).set(IDS, rows_of(0))
    return daemon


def check_rows(daemon: Daemon, version: int) -> None:
    with daemon.connect() as server:
        for mode in MODES:
            np.testing.assert_array_equal(server.open_table(mode).get(IDS), rows_of(version))


def shown(daemon: Daemon) -> dict:
    return json.loads(run_cli(daemon, "-o", "json", "data", "list").stdout)


def kill_while_adding(daemon: Daemon, path: Path) -> int:
    """Returns a checkpoint that was made while the directory had no bucket. It has files there."""
    arguments = ("data", "add", str(path), "--rate", "0.001")
    thread = threading.Thread(target=lambda: run_cli(daemon, *arguments, limit_s=MOVE_LIMIT_S))
    thread.start()
    until = time.monotonic() + 60
    while not ((now := shown(daemon))["order"] and now["order"]["total"]):
        assert time.monotonic() < until, now
        time.sleep(0.02)
    assert now["directories"][-1]["buckets"] == 0
    with daemon.connect() as server:
        id = server.checkpoint().id
    assert list(path.glob(f"checkpoints/{id:06d}/*"))
    daemon.kill()
    thread.join()
    return id


@pytest.mark.parametrize("left", ["nothing", "an empty directory", "an empty directory that the file names"])
def test_a_new_drive_that_dies_before_it_has_rows_is_left_out(daemon: Daemon, left: str):
    first, second = f"{daemon.folder}/rows", Path(daemon.folder, "more")
    kill_while_adding(daemon, second)
    shutil.move(second, f"{daemon.folder}/away")
    if left != "nothing":
        second.mkdir()
    if "names" in left:
        daemon.configure({"data": {"directories": [first, str(second)]}})
    else:
        why = daemon.fail_to_start()
        assert f"directory 1 of the store is missing, which was {second}" in why
        assert "--without-directory" in why
    daemon.start("--without-directory", str(second))
    assert daemon.logged("a data directory that is missing has been removed from the store")
    check_rows(daemon, 0)
    now = shown(daemon)
    assert [directory["path"] for directory in now["directories"]] == [first] and now["order"] is None
    with daemon.connect() as server:
        for mode in MODES:
            server.open_table(mode).set(IDS, rows_of(1))
        server.verify_checkpoint(server.checkpoint().id)
    daemon.kill()
    shutil.rmtree(second, ignore_errors=True)
    shutil.move(f"{daemon.folder}/away", second)  # a disk that was mounted late
    daemon.configure({"data": {"directories": [first, str(second)]}})
    daemon.start()
    assert daemon.logged("a data directory that was removed from the store is ignored")
    check_rows(daemon, 1)
    daemon.stop()
    shutil.rmtree(second)
    daemon.start("--without-directory", str(second))  # again: it has left
    assert run_cli(daemon, "data", "add", str(second), "--rate", "0", limit_s=MOVE_LIMIT_S).returncode == 0
    check_rows(daemon, 1)
    assert [directory["number"] for directory in shown(daemon)["directories"]] == [0, 2]


def test_checkpoints_without_rows_there_are_restored(daemon: Daemon, make_daemon):
    first, second = f"{daemon.folder}/rows", Path(daemon.folder, "more")
    with daemon.connect() as server:
        old = server.checkpoint().id
        for mode in MODES:
            server.open_table(mode).set(IDS, rows_of(1))
    newest = kill_while_adding(daemon, second)
    shutil.rmtree(second)
    other = make_daemon()
    other.start("--restore-from", first)
    check_rows(other, 1)
    assert "is missing" in daemon.fail_to_start("--restore", str(old))
    for id, version in ((newest, 1), (old, 0)):
        daemon.start("--without-directory", str(second), "--restore", str(id))
        check_rows(daemon, version)
        daemon.kill()


def test_a_directory_with_rows_is_never_left_out(daemon: Daemon):
    first, second = f"{daemon.folder}/rows", Path(daemon.folder, "more")
    with daemon.connect() as server:
        old = server.checkpoint().id
    assert run_cli(daemon, "data", "add", str(second), "--rate", "0", limit_s=MOVE_LIMIT_S).returncode == 0
    option = ("--without-directory", str(second))
    daemon.stop()
    assert "is there: start without the option" in daemon.fail_to_start(*option)
    shutil.move(second, f"{daemon.folder}/away")
    for more in ((), ("--restore", str(old))):
        assert "data directory 1 has rows, 8192 of 16384 buckets" in daemon.fail_to_start(*option, *more)
    assert "has its catalog" in daemon.fail_to_start("--without-directory", first)
    assert "has no data directory at" in daemon.fail_to_start("--without-directory", f"{daemon.folder}/none")
    shutil.move(f"{daemon.folder}/away", second)
    daemon.start()
    check_rows(daemon, 0)


def test_a_first_copy_of_the_map_that_may_be_old_is_not_believed(daemon: Daemon):
    """The missing directory may have a newer one."""
    first, second, third = (Path(daemon.folder, name) for name in ("rows", "more", "third"))
    assert run_cli(daemon, "data", "add", str(second), "--rate", "0", limit_s=MOVE_LIMIT_S).returncode == 0
    map, old = first / "buckets.json", (first / "buckets.json").read_bytes()
    kill_while_adding(daemon, third)
    shutil.move(third, f"{daemon.folder}/away")
    newest = map.read_bytes()
    for wrong in (old, b"damaged"):
        map.write_bytes(wrong)
        assert "is not the newest whole copy" in daemon.fail_to_start("--without-directory", str(third))
        assert map.read_bytes() == wrong
    map.write_bytes(newest)
    daemon.start("--without-directory", str(third))
    check_rows(daemon, 0)
