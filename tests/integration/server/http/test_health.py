# SPDX-License-Identifier: Apache-2.0
"""`/livez` and `/readyz` tell what the server does, and why it is not ready."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from daemons import Daemon
from readers import LISTEN, await_true, free_port, get, port_of, scrape

DIM, MIB = 64, 1 << 20
DISK_MIB = 96
SHARDS = 24  # these take a while to be made


def test_a_server_is_alive_and_ready(http_daemon: Daemon):
    port = port_of(http_daemon)
    for path, text in (("/livez", "serving\n"), ("/readyz", "ready\n")):
        answer = get(port, path)
        assert (answer.status, answer.text) == (200, text)
        assert answer.headers["cache-control"] == "no-store"
        head = get(port, path, method="HEAD")
        assert (head.status, head.text, head.headers["content-length"]) == (200, "", str(len(text)))


def test_a_server_that_starts_is_alive_and_not_ready(make_daemon):
    port = free_port()
    daemon = make_daemon({"http": {"listen": f"127.0.0.1:{port}"}, "data": {"shards_per_directory": SHARDS}})
    daemon.launch()
    seen: dict[str, set] = {"/livez": set(), "/readyz": set(), "/metrics": set()}

    def is_ready() -> bool:
        for path, answers in seen.items():
            with contextlib.suppress(ConnectionRefusedError):
                answer = get(port, path)
                answers.add((answer.status, answer.text if answer.status == 503 or path == "/livez" else ""))
        return (200, "") in seen["/readyz"]

    await_true(is_ready, "the server is ready")
    assert (200, "starting\n") in seen["/livez"] and (503, "the server is starting\n") in seen["/readyz"]
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
    assert "SSD has no room for rows" in answer.text
    assert scrape(daemon)["ready", ""] == 0
    assert get(port, "/livez").status == 200  # a restart would not help
    disk.empty()
    await_true(lambda: get(port, "/readyz").status == 200, "the server is ready again")


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
