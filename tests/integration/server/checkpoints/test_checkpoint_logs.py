# SPDX-License-Identifier: Apache-2.0
"""The logs of a checkpoint, which every reader of it must load into memory, are short."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import numpy as np
from stores import checkpoint_under_load

MIB = 1 << 20


def fill(server, name: str, rows: int, durability: str) -> None:
    table = server.create_table(name, 64, durability=durability)
    for first in range(0, rows, 10_000):
        ids = np.arange(first, min(first + 10_000, rows))
        table.set(ids, values(ids))


def values(ids: np.ndarray) -> np.ndarray:
    return np.repeat(ids[:, None] % 1000, 64, axis=1)


def sizes(folder: Path, ending: str) -> list[int]:
    return [file.stat().st_size for file in folder.rglob(f"logged/*.{ending}")]


def log_bytes(daemon) -> int:
    found = 0
    for file in Path(f"{daemon.folder}/rows").glob("shard-*/logged/*.log"):
        with contextlib.suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def test_logs_of_a_checkpoint_are_short_whatever_was_logged(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}, "rocksdb": {"memtable_bytes": "256MiB"}})
    daemon.start()
    failures: list[BaseException] = []

    def go_on() -> None:  # sets 5 MiB in all
        try:
            with daemon.connect() as server:
                table = server.open_table("t")
                ids = np.arange(1000)
                for _ in range(20):
                    table.set(ids, values(ids))
                    time.sleep(0.02)
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    with daemon.connect() as server:
        fill(server, "t", 150_000, "async")
        assert log_bytes(daemon) > 35 * MIB
        thread = threading.Thread(target=go_on)
        thread.start()
        checkpoint = checkpoint_under_load(server)
        thread.join()
        assert not failures, failures
        folder = Path(f"{daemon.folder}/rows/checkpoints/{checkpoint.id:06}")
        assert sum(sizes(folder, "log")) < 12 * MIB
        assert sum(sizes(folder, "sst")) > 20 * MIB
        server.restore_checkpoint(checkpoint.id, ["t"], name="copy")
        ids = np.arange(150_000)[::7]
        assert (server.open_table("copy").get(ids) == ids[:, None] % 1000).all()
        assert not daemon.logged("a flush before the checkpoint failed; the checkpoint's logs stay long")
    deadline = time.monotonic() + 60
    while log_bytes(daemon) >= 20 * MIB:  # a log is removed some time after its rows were flushed
        assert time.monotonic() < deadline
        time.sleep(0.1)
    daemon.kill()  # flushed rows need no recovery
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("t").get(ids) == ids[:, None] % 1000).all()


def test_short_logs_are_left_as_they_are(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    with daemon.connect() as server:
        for name in ("a", "b", "c"):
            fill(server, name, 1000, "sync")
            checkpoint = server.checkpoint()
        folder = Path(f"{daemon.folder}/rows/checkpoints/{checkpoint.id:06}")
        assert sizes(folder, "sst") == []
        assert sum(sizes(folder, "log")) > 3 * 1000 * 256
