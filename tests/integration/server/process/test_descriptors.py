# SPDX-License-Identifier: Apache-2.0
"""Descriptors are a budget: under a low limit the store keeps to its part, however many table files it has, and clients keep to
theirs."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest
from daemons import CLI, LONG, SANITIZED

import embtier

CHECKPOINTS = 60 if SANITIZED else 250
SMALL = {
    "data": {"shards_per_directory": 2},
    "checkpoints": {"interval_seconds": 0},
    "socket": {"max_user_sessions": 65536},
}


def limited(limit: int) -> tuple[str, ...]:
    return "prlimit", f"--nofile={limit}:{limit}"


def start(daemon, limit: int) -> None:
    daemon.launch(wrapper=limited(limit))
    daemon.await_ready()


def table_files(daemon) -> tuple[int, int]:
    """The number of table files on disk, and of open ones."""
    on_disk = sum(1 for _ in (daemon.folder / "rows").glob("shard-*/*/*.sst"))
    is_open = sum(target.endswith(".sst") and "/checkpoints/" not in target for target in daemon._open_files())
    return on_disk, is_open


def make_checkpoints(daemon, server, table, first: int, count: int) -> None:
    """Makes @count checkpoints, each of a few rows with higher ids than all before, so that each adds table files."""
    for number in range(first, first + count):
        ids = np.arange(number * 40, number * 40 + 40)
        table.set(ids, np.full((40, 4), number + 1))
        server.checkpoint(keep=2)


# Rings take descriptors too, so io_uring is where the limit is low.
@pytest.mark.parametrize(
    ("limit", "shards", "lanes", "io_uring"),
    [(256, 2, 1, "auto"), (1024, 4, 2, "off")] + [(256, 2, 1, "off"), (1024, 4, 2, "auto")] * LONG,
)
def test_checkpoints_without_end_of_ever_higher_ids_take_no_more_descriptors(
    make_daemon, limit, shards, lanes, io_uring
):
    changes = {"data": {"shards_per_directory": shards}, "rocksdb": {"io_uring": io_uring}}
    daemon = make_daemon(SMALL, lanes=lanes)
    daemon.configure(changes)
    start(daemon, limit)
    with daemon.connect() as server:
        table = server.create_table("rows", 4)
        make_checkpoints(daemon, server, table, 0, CHECKPOINTS // 2)
        half = len(daemon._open_files())
        make_checkpoints(daemon, server, table, CHECKPOINTS // 2, CHECKPOINTS // 2)
        on_disk, is_open = table_files(daemon)
        assert on_disk > is_open, "all files are open: none was to be closed"
        assert len(daemon._open_files()) <= half + 2 * shards * 20, "what a database may have open is not the limit"
        ids = np.arange(CHECKPOINTS * 40)
        wanted = np.repeat(ids // 40 + 1, 4).reshape(-1, 4)
        assert (table.get(ids) == wanted).all()
        server.verify_checkpoint(server.checkpoints()[-1].id)
        exported = daemon.folder / "rows.npy"
        server.export_table("rows", exported, checkpoint=server.checkpoints()[-1].id)
        server.restore_checkpoint(server.checkpoints()[-1].id, ["rows"], "again")
        assert (server.open_table("again").get(ids) == wanted).all()
    daemon.kill()
    for _ in range(2):
        start(daemon, limit)
        with daemon.connect() as server:
            assert (server.open_table("rows").get(ids) == wanted).all()
            server.checkpoint()
        daemon.stop()


def test_sessions_end_where_the_stores_descriptors_begin(make_daemon):
    daemon = make_daemon(SMALL, lanes=1)
    start(daemon, 512)
    (fewer,) = daemon.logged("fewer clients than the default")
    most = int(fewer["max_sessions"])
    assert 4 <= most < 1024 and fewer["descriptors"] == "512"
    sessions = []
    with daemon.connect() as first:
        table = first.create_table("rows", 4)
        with pytest.raises(embtier.Error):
            while len(sessions) < 1024:
                sessions.append(embtier.connect(daemon.socket, arena_bytes=1 << 20, timeout=60))
        assert len(sessions) == most - 1
        make_checkpoints(daemon, first, table, 0, CHECKPOINTS // 5)
        first.export_table("rows", daemon.folder / "rows.npy")
        assert (table.get(np.arange(40)) == 1).all()
        for session in sessions:
            session.close()
    daemon.stop()
    assert not daemon.logged("clients cannot be accepted")
    assert not any("Too many open files" in line for line in daemon.log_lines())


@pytest.mark.parametrize(
    ("limit", "sessions"), [(100, None), (256, 1024), (1024, 1024)]
)
def test_limit_that_is_too_low_is_refused_with_its_numbers(make_daemon, limit, sessions):
    daemon = make_daemon(SMALL, lanes=1)
    if sessions:
        daemon.configure({"socket": {"max_sessions": sessions}})
    why = daemon.fail_to_start(wrapper=limited(limit))
    needed = int(re.search(r"at least (\d+) file descriptors are needed", why).group(1))
    assert needed > limit and f"the process may have {limit}" in why
    assert "LimitNOFILE" in why and "ulimit" in why and "socket.max_sessions" in why
    check = subprocess.run(
        [*limited(limit), CLI, "config", "check", daemon.folder / "embtierd.yaml"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert check.returncode != 0 and f"at least {needed} file descriptors" in check.stderr
    start(daemon, needed)  # with exactly that limit all works
    with daemon.connect() as server:
        server.create_table("rows", 4).set([1], [[1, 2, 3, 4]])
        server.checkpoint()
    daemon.stop()
