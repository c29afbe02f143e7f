# SPDX-License-Identifier: Apache-2.0
"""`/livez` and `/readyz` tell what the server does, and why it is not ready."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import embtier
import numpy as np
import pytest
from daemons import CLI, Daemon
from readers import LISTEN, await_true, free_port, get, port_of, scrape

DIM, MIB = 64, 1 << 20
DISK_MIB = 96


def test_a_server_is_alive_and_ready(http_daemon: Daemon):
    port = port_of(http_daemon)
    for path, text in (("/livez", "serving\n"), ("/readyz", "ready\n")):
        answer = get(port, path)
        assert (answer.status, answer.text) == (200, text)
        assert answer.headers["cache-control"] == "no-store"
        head = get(port, path, method="HEAD")
        assert (head.status, head.text, head.headers["content-length"]) == (200, "", str(len(text)))


def test_a_server_that_starts_is_alive_and_not_ready(make_daemon, tmp_path):
    """The start waits at its first database until that was seen."""
    port, trigger = free_port(), tmp_path / "trigger"
    daemon = make_daemon({"http": {"listen": f"127.0.0.1:{port}"}})
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_PATH="shard-")
    trigger.touch()
    daemon.launch()
    seen: dict[str, set] = {"/livez": set(), "/readyz": set(), "/metrics": set()}

    def look() -> None:
        for path, answers in seen.items():
            with contextlib.suppress(ConnectionRefusedError):
                answer = get(port, path)
                answers.add((answer.status, answer.text if answer.status == 503 or path == "/livez" else ""))

    def starts() -> bool:
        look()
        return (200, "starting\n") in seen["/livez"] and (503, "the server is starting\n") in seen["/readyz"]

    def is_ready() -> bool:
        look()
        return (200, "") in seen["/readyz"]

    await_true(starts, "the server starts")
    assert not is_ready()
    trigger.unlink()
    await_true(is_ready, "the server is ready")
    assert seen["/livez"] <= {(200, "starting\n"), (200, "serving\n")}
    assert seen["/readyz"] == {(503, "the server is starting\n"), (200, "")}
    daemon.await_ready()


class Disk:
    """A file system of the daemon's own, which a file can fill."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon, self.path = daemon, daemon.folder / "disk"
        self.path.mkdir()
        script = f'mount -t tmpfs -o size={DISK_MIB}m none {self.path} && exec "$0" "$@"'
        self.wrapper = ("unshare", "-Urm", "sh", "-c", script)
        if subprocess.run([*self.wrapper, "true"], capture_output=True, timeout=60).returncode != 0:
            pytest.skip("no tmpfs of our own here")
        daemon.configure({
            "data": {"directories": [str(self.path)], "shards_per_directory": 1},
            "lanes": {"count": 1},
            "cache": {"tiers": [daemon.dram(1, 24)]},
            "checkpoints": {"interval_seconds": 0},
            "rocksdb": {"memtable_bytes": "2MiB"},
        })  # fmt: skip
        daemon.launch(wrapper=self.wrapper)
        daemon.await_ready()
        self.filler = Path(f"/proc/{daemon.pid}/root{self.path}/filler")

    def fill(self) -> None:
        with self.filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(MIB))

    def empty(self) -> None:
        self.filler.unlink()


def test_a_full_disk_is_a_reason(make_daemon):
    daemon = make_daemon(LISTEN, lanes=1)
    disk = Disk(daemon)
    port = port_of(daemon)
    assert get(port, "/readyz").status == 200
    disk.fill()
    answer = await_true(lambda: (a := get(port, "/readyz")).status == 503 and a, "the server is not ready")
    assert "disk_full: there is no room for rows" in answer.text
    assert scrape(daemon)["ready", ""] == 0
    assert get(port, "/livez").status == 200  # a restart would not help
    disk.empty()
    await_true(lambda: get(port, "/readyz").status == 200, "the server is ready again")


def test_refused_updates_are_a_reason_though_there_is_room(make_daemon):
    """A batch needs more space than there is, and a smaller one fits."""
    daemon = make_daemon(LISTEN, lanes=1)
    disk = Disk(daemon)
    port = port_of(daemon)
    with daemon.connect() as server:
        table = server.create_table("t", DIM, durability="async")
        disk.filler.write_bytes(bytes(int(scrape(daemon)["store_room_bytes", ""]) - 2 * MIB))
        await_true(lambda: 0 < scrape(daemon)["store_room_bytes", ""] < 3 * MIB, "the server has looked")
        rows = 4 * MIB // (DIM * 4)
        with pytest.raises(embtier.NoSpaceError):
            table.set(np.arange(rows), np.ones((rows, DIM), np.float32))
        answer = get(port, "/readyz")
        assert answer.status == 503
        assert "disk_full: updates were refused in the last minute, 1 since the start" in answer.text
        table.set(np.arange(8), np.ones((8, DIM), np.float32))


def test_a_server_that_stops_is_alive_and_not_ready(make_daemon):
    """A full disk keeps it from writing its rows, so the stop lasts."""
    daemon = make_daemon(LISTEN, lanes=1)
    disk = Disk(daemon)
    port = port_of(daemon)
    with daemon.connect() as server:
        table = server.create_table("t", DIM)
        rows = 8 * MIB // (DIM * 4)
        for first in range(0, rows, 1024):
            table.set(np.arange(first, first + 1024), np.ones((1024, DIM), np.float32))
        disk.fill()
    daemon._process.send_signal(signal.SIGTERM)
    answer = await_true(lambda: (a := get(port, "/readyz")).status == 503 and "stopping" in a.text and a, "it stops")
    assert answer.text.startswith("the server is stopping\n")
    await_true(lambda: get(port, "/livez").text == "stopping\n", "the control thread has ended")
    assert get(port, "/metrics").status == 503
    disk.empty()
    daemon.await_end(0)
    with pytest.raises(ConnectionRefusedError):
        get(port, "/livez")


SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000  # waits for any thread


class Held:
    """One thread of a daemon, which does not run meanwhile."""

    def __init__(self, tid: int) -> None:
        self.tid, self.libc = tid, ctypes.CDLL(None, use_errno=True)

    def ptrace(self, request: int) -> None:
        arguments = [ctypes.c_long(request), ctypes.c_long(self.tid), ctypes.c_void_p(0), ctypes.c_void_p(0)]
        self.libc.ptrace.restype = ctypes.c_long
        if self.libc.ptrace(*arguments) != 0:
            pytest.skip(f"threads cannot be held here: {os.strerror(ctypes.get_errno())}")

    def __enter__(self) -> Held:
        self.ptrace(SEIZE)
        self.ptrace(INTERRUPT)
        assert os.waitpid(self.tid, WALL)[0] == self.tid
        return self

    def __exit__(self, *_: object) -> None:
        self.ptrace(DETACH)


def test_a_hung_server_is_not_alive_and_all_readers_hear_so_at_once(http_daemon: Daemon):
    """The control thread, which is the process's first, does not run. One reader waits for it, and no other does."""
    port = port_of(http_daemon)
    with Held(http_daemon.pid):
        began = time.monotonic()
        first = get(port, "/livez")
        waited = time.monotonic() - began
        began = time.monotonic()
        answers = [get(port, path) for path in ("/livez", "/readyz", "/metrics", "/status.json", "/livez")]
        assert time.monotonic() - began < 4 * waited, "five readers that each waited would take five times as long"
    for answer in (first, *answers):
        assert (answer.status, answer.text) == (503, "the control thread does not answer\n")
    await_true(lambda: get(port, "/livez").status == 200, "the server is alive again")
    assert get(port, "/readyz").status == 200


def test_refused_updates_of_replay_tables_are_a_reason(make_daemon):
    """The first checkpoint of a start fails, as there is a file in the place of its folder."""
    daemon = make_daemon(LISTEN | {"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    with daemon.connect() as server:
        server.create_table("t", DIM).set(np.arange(100), np.ones((100, DIM), np.float32))
    daemon.stop()
    place = daemon.folder / "rows/checkpoints"
    shutil.rmtree(place, ignore_errors=True)
    place.touch()
    daemon.start()
    answer = get(port_of(daemon), "/readyz")
    assert (answer.status, answer.text) == (
        503, "replay_refused: updates of replay tables wait for a first checkpoint that succeeds\n",
    )  # fmt: skip
    assert scrape(daemon)["replay_refused", ""] == 1
    said = subprocess.run(
        [CLI, "--address", daemon.socket, "-o", "json", "status"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "replay_refused" in [warning["name"] for warning in json.loads(said.stdout)["warnings"]]
    place.unlink()
