# SPDX-License-Identifier: Apache-2.0
"""When a checkpoint's files are damaged, or the disk is full, the server says so and goes on."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from checkpointed import ids_of, numbers_of, the_number
from daemons import LANES
from stores import cut, damaged, flip, settings, with_tables, write_all

import embtier

# ---- Damage ----

# Below a checkpoint's folder; the largest file that matches is taken.
FILES = {
    "table": "shard-*/replay/*.sst",
    "logged table": "shard-*/logged/*.sst",
    "log": "shard-*/logged/*.log",
    "manifest": "shard-*/replay/MANIFEST-*",
    "current": "shard-*/replay/CURRENT",
    "options": "shard-*/replay/OPTIONS-*",
    "catalog": "catalog.json",
    "record": "checkpoint.json",
}


def file_of(daemon, id: int, pattern: str) -> Path:
    """The largest such file, since logs may be empty."""
    folder = Path(daemon.config["data"]["directories"][0]) / f"checkpoints/{id:06d}"
    return max(sorted(folder.glob(pattern)), key=lambda path: path.stat().st_size)


def with_files_of_all_kinds(daemon) -> int:
    """Makes a checkpoint that has all of FILES, and an older one. Returns the newer one's id."""
    with with_tables(daemon) as server:
        write_all(server, 1)
        server.checkpoint()
    daemon.restart()  # this flushes logged tables too
    with daemon.connect() as server:
        write_all(server, 2)
        newest = server.checkpoint().id
        write_all(server, 3)
    return newest


def test_verify_finds_damage_of_any_file_and_the_server_goes_on(make_daemon):
    daemon = make_daemon()
    newest = with_files_of_all_kinds(daemon)
    with daemon.connect() as server:
        for kind, pattern in FILES.items():
            path = file_of(daemon, newest, pattern)
            for how in (flip, cut, None):
                with damaged(path, how):
                    with pytest.raises(embtier.CorruptError) as found:
                        server.verify_checkpoint(newest)
                    assert path.name in str(found.value), (kind, how)
                assert numbers_of(server) == [3] * 3
            server.verify_checkpoint(newest)
        write_all(server, 4)
        server.verify_checkpoint(server.checkpoint().id)
    daemon.restart()
    with daemon.connect() as server:
        assert numbers_of(server) == [4] * 3


# A start after a crash needs no logs, and no other files of logged tables. The contents of a table file are checked when they are
# read.
REFUSED = {
    "manifest": (flip, cut, None),
    "current": (flip, None),
    "record": (flip, cut, None),
    "catalog": (flip, cut, None),
    "table": (cut, None),
}


def test_after_a_crash_a_damaged_checkpoint_is_refused_and_nothing_else_is_taken(make_daemon):
    daemon = make_daemon()
    newest = with_files_of_all_kinds(daemon)
    daemon.kill()
    for kind, ways in REFUSED.items():
        path = file_of(daemon, newest, FILES[kind])
        for how in ways:
            with damaged(path, how):
                why = daemon.fail_to_start()
                assert path.name in why, (kind, how, why)
    daemon.start()  # the checkpoint is whole again
    with daemon.connect() as server:
        assert numbers_of(server) == [2, 3, 3]


# ---- A full disk ----

DISK_MIB = 48 + 80 * LANES


def fill(path: Path) -> None:
    """Fills the file system of @path."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        block = bytes(65536)
        while len(block) > 1:
            try:
                file.write(block)
            except OSError:
                block = block[: len(block) // 2]


def test_a_full_disk_refuses_a_checkpoint_and_the_server_goes_on(make_daemon):
    """The checkpoint needs more than the reserve."""
    daemon = make_daemon()
    disk = daemon.folder / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size={DISK_MIB}m none {disk} && exec "$0" "$@"'
    wrapper = ("unshare", "-Urm", "sh", "-c", script)
    if subprocess.run([*wrapper, "true"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("no tmpfs of our own here")
    data = {"directories": [str(disk)], "shards_per_directory": LANES, "reserve_bytes": "1MiB"}
    daemon.configure(settings(daemon, data=data))
    daemon.launch(wrapper=wrapper)
    daemon.await_ready()
    ballast = Path(f"/proc/{daemon.pid}/root{disk}/ballast")
    with daemon.connect() as server:
        table = server.create_table("replay", 8)
        table.set(np.arange(3000), np.full((3000, 8), 1))
        first = server.checkpoint().id
        table.set(np.arange(3000), np.full((3000, 8), 2))
        more = server.create_table("more", 64)
        assert ids_of(server) == [first]
        refused = 0
        deadline = time.monotonic() + 60
        while refused < 2:
            ids = ids_of(server)
            with contextlib.suppress(embtier.NoSpaceError):
                more.set(np.arange(20_000), np.full((20_000, 64), 1))
            fill(ballast)
            try:
                server.checkpoint()  # this can succeed: old logs and files may have been deleted meanwhile, which gives room
            except embtier.NoSpaceError:
                refused += 1
                assert ids_of(server) == ids
                deadline = time.monotonic() + 60  # for the next refusal
            assert time.monotonic() < deadline
        assert the_number(table.get(np.arange(3000))) == 2
        ballast.unlink()
        deadline = time.monotonic() + 60
        while True:
            try:
                second = server.checkpoint()
                break
            except embtier.NoSpaceError:  # until the server uses the disk again
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert ids_of(server)[-1] == second.id
        server.verify_checkpoint(second.id)
        table.set(np.arange(3000), np.full((3000, 8), 3))
        assert the_number(table.get(np.arange(3000))) == 3
        assert daemon.metrics()["checkpoints"]["failed"] >= 2
    daemon.stop()
