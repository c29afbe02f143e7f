# SPDX-License-Identifier: Apache-2.0
"""Where no thread can be made (RLIMIT_NPROC, the pids of a container), the server refuses to start, or refuses the request and
serves everybody else. Where files may not grow (`ulimit -f`), it refuses a request that needs a longer file."""

from __future__ import annotations

import mmap
import os
import struct
import time

import numpy as np
import pytest
from daemons import LANES, log_fields
from stores import run_cli

import embtier

NONE = 2**64 - 1
UID = 54321  # no other user has it, so no other process counts
_LIMIT, _THREADS, _MOST, _MADE, _REFUSED = range(5)


class Threads:
    """The control of tests/faults/few_threads.c."""

    def __init__(self, daemon) -> None:
        path = daemon.folder / "threads"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        self[_LIMIT] = NONE
        daemon.with_fault("few_threads", EMBTIER_FAULT_CONTROL=str(path))

    def __getitem__(self, field: int) -> int:
        return struct.unpack_from("<Q", self._memory, 8 * field)[0]

    def __setitem__(self, field: int, value: int) -> None:
        struct.pack_into("<Q", self._memory, 8 * field, value)

    def forget(self) -> None:
        for field in (_THREADS, _MOST, _MADE, _REFUSED):
            self[field] = 0


def fill(server, name: str, durability: str = "replay"):
    table = server.create_table(name, 16, durability=durability)
    table.set(np.arange(5000), np.repeat(np.arange(5000)[:, None], 16, axis=1))
    return table


def test_a_start_is_refused_for_each_number_of_threads_that_is_too_small(make_daemon):
    daemon = make_daemon()
    threads = Threads(daemon)
    daemon.start()
    with daemon.connect() as server:
        for durability in ("replay", "async"):
            fill(server, durability, durability)
        server.checkpoint(step=1)
    daemon.stop()
    refused = 0
    while True:
        threads.forget()
        threads[_LIMIT] = refused
        daemon.launch()
        while daemon.is_running and not daemon.logged("ready")[1:]:
            time.sleep(0.002)
        if daemon.is_running:
            break
        daemon.await_end(1)
        why = log_fields(daemon.log_lines()[-1])["why"]
        assert "thread" in why, why
        assert threads[_REFUSED] > 0
        refused += 1
    assert 10 < refused < 100
    assert (threads[_LIMIT], threads[_REFUSED]) == (refused, 0)  # not even a thread that only improves speed was refused
    with daemon.connect() as server:
        assert (server.open_table("replay").get(np.arange(5000)) == np.arange(5000)[:, None]).all()
    daemon.stop()


def test_what_clients_ask_for_makes_no_thread(make_daemon, tmp_path):
    daemon = make_daemon({"rocksdb": {"memtable_bytes": "4MiB"}})
    threads = Threads(daemon)
    daemon.start()
    threads[_MADE] = threads[_REFUSED] = 0
    threads[_LIMIT] = threads[_THREADS]
    for step in range(3):
        with daemon.connect() as server:
            for durability in ("replay", "async", "sync"):
                table = fill(server, f"{durability}_{step}", durability)
                assert (table.get(np.arange(5000)) == np.arange(5000)[:, None]).all()
            made = server.checkpoint(step=step)
            server.verify_checkpoint(made.id)
            server.export_table(table, tmp_path / f"export-{step}")
            server.import_table(tmp_path / f"export-{step}", name=f"again_{step}")
            server.drop_table(f"again_{step}")
            server.restore_checkpoint(made.id, [f"async_{step}"], f"restored_{step}")
    assert daemon.is_running
    assert (threads[_MADE], threads[_REFUSED]) == (0, 0)
    daemon.stop()


def test_readers_that_get_no_threads_are_not_there_on_any_lane(make_daemon):
    daemon = make_daemon()
    threads = Threads(daemon)
    daemon.start()

    def set_readers(count: int):
        return run_cli(daemon, "knob", "set", "lanes.readers_per_lane", str(count))

    with daemon.connect() as server:
        table = fill(server, "rows")
        before = threads[_THREADS]
        threads[_LIMIT] = before + 4 * LANES - 1  # the last lane gets one less than it needs
        refused = set_readers(6)
        assert refused.returncode == 1 and "cannot start another reader thread" in refused.stderr, refused
        assert "lanes.readers_per_lane is in force as before" in refused.stderr
        assert run_cli(daemon, "knob", "get", "lanes.readers_per_lane").stdout.split()[1] == "2"
        deadline = time.monotonic() + 60
        while threads[_THREADS] != before:
            assert time.monotonic() < deadline, threads[_THREADS]
            time.sleep(0.01)
        threads[_LIMIT] = NONE
        assert set_readers(6).stdout == "lanes.readers_per_lane: 2 -> 6\n"
        assert threads[_THREADS] == before + 4 * LANES
        assert (table.get(np.arange(5000)) == np.arange(5000)[:, None]).all()
    daemon.stop()


def test_a_limit_of_the_length_of_files_refuses_what_is_longer(make_daemon):
    """The limit sends SIGXFSZ, which by default would end the server."""
    daemon = make_daemon({"rocksdb": {"memtable_bytes": "4MiB"}})
    most = 8 << 20
    daemon.launch(wrapper=("prlimit", f"--fsize={most}:{most}"))
    daemon.await_ready()
    assert daemon.logged("limit of file length")[0]["bytes"] == str(most)
    with daemon.connect(arena_bytes=4 << 20) as server:
        table = fill(server, "rows")
        for _ in range(3):
            with pytest.raises(embtier.NoSpaceError, match="ulimit -f"):
                daemon.connect(arena_bytes=16 << 20)
        assert (table.get(np.arange(5000)) == np.arange(5000)[:, None]).all()
    daemon.stop()


def test_a_soft_limit_of_the_length_of_files_is_raised(make_daemon):
    daemon = make_daemon()
    daemon.launch(wrapper=("prlimit", "--fsize=1048576:unlimited"))
    daemon.await_ready()
    assert not daemon.logged("limit of file length")
    with daemon.connect(arena_bytes=16 << 20) as server:
        fill(server, "rows")
    daemon.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_limit_of_a_users_processes_is_told(make_daemon):
    daemon = make_daemon()
    for path in (daemon.folder, daemon.folder / "rows", daemon.folder / "pmem", os.path.dirname(daemon.socket)):
        os.chown(path, UID, UID)
    for path in daemon.folder.parents:
        if path.stat().st_uid == os.getuid() and path.name:
            path.chmod(path.stat().st_mode | 0o011)
    why = daemon.fail_to_start(wrapper=(
        "setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "prlimit", "--nproc=12:12",
    ))  # fmt: skip
    assert "ulimit -u" in why and "pids.max" in why
