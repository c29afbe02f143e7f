# SPDX-License-Identifier: Apache-2.0
"""Shared helpers for tests of stores and their checkpoints: tables of all kinds with all of their rows, the files of data
directories, and ways to damage one."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Container, Iterator
from pathlib import Path

import numpy as np
from daemons import CLI, LANES, Daemon, under_load

import embtier


# ---- Tables ----

ROWS = 4000
DIM = 12

# name: (durability, optimizer, dtype)
TABLES = {
    "replayed": ("replay", "adam", "f32"),
    "logged": ("async", "rowwise_adagrad", "bf16"),
    "synced": ("sync", "none", "f16"),
}


def fill(server, seed: int) -> None:
    """Makes TABLES, and writes and trains half of their rows."""
    rng = np.random.default_rng(seed)
    for name, (durability, optimizer, dtype) in TABLES.items():
        table = server.create_table(
            name, DIM, ROWS, durability=durability, optimizer=optimizer, dtype=dtype, init=("uniform", -1, 1), seed=5
        )
        ids = rng.permutation(ROWS)[: ROWS // 2]
        rows = rng.integers(-8, 8, (ids.size, DIM)).astype(np.float32)
        table.set(ids, (rows.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else rows)
        if optimizer != "none":
            with server.push_batch([(table, 500)]) as batch:
                batch.ids(0)[:] = ids[:500]
                batch.gradients(0)[:] = rng.standard_normal((500, DIM))
                batch.push(lr=0.1, step=1)


def all_rows(server) -> dict[str, np.ndarray]:
    """The rows of every table, with the optimizer's state."""
    rows = {}
    for info in server.tables():
        table = server.open_table(info.name)
        parts = table.get_with_state(np.arange(info.rows))
        rows[info.name] = np.concatenate([np.asarray(p, np.float32).reshape(info.rows, -1) for p in parts], axis=1)
    return rows


def check_rows(server, wanted: dict[str, np.ndarray]) -> None:
    """Exactly these tables exist, with these rows and their state."""
    got = all_rows(server)
    assert got.keys() == wanted.keys()
    for name, rows in wanted.items():
        assert got[name].tobytes() == rows.tobytes(), name


# Other tables: each has the name of its durability, and all of its rows hold one number.
MODES = ("replay", "async", "sync")


def write_all(server, number) -> None:
    for mode in MODES:
        server.open_table(mode).set(np.arange(3000), np.full((3000, 8), number))


def with_tables(daemon) -> embtier.Server:
    daemon.configure(settings(daemon))
    daemon.start()
    server = daemon.connect()
    for mode in MODES:
        server.create_table(mode, 8, durability=mode)
    return server


# ---- Files ----


def directories(daemon: Daemon, count: int, shards: int) -> dict:
    folders = [daemon.folder / f"disk-{i}" for i in range(count)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return {"data": {"directories": [str(f) for f in folders], "shards_per_directory": shards}}


def paths(daemon: Daemon) -> str:
    """For --restore-from; not in the server's own order."""
    return ",".join(reversed(daemon.config["data"]["directories"]))


def folders_of(daemon, *below: str) -> list[Path]:
    """The folders of checkpoints, complete or not, in all data directories; or the paths @below in them."""
    return [
        path
        for directory in daemon.config["data"]["directories"]
        for path in sorted(Path(directory).glob("/".join(["checkpoints", "[0-9]*", *below])))
    ]


def what_is_there(daemon: Daemon, without: Container[str] = ()) -> dict[str, tuple[int, int]]:
    """Every file and folder of the daemon's data, with its size and time of change, except for names in @without."""
    found = {}
    for directory in daemon.config["data"]["directories"]:
        for path in Path(directory).rglob("*"):
            if path.name not in without:
                found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns)
    return found


def crc32c(data: bytes) -> int:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    sum = 0xFFFFFFFF
    for byte in data:
        sum = sum >> 8 ^ table[(sum ^ byte) & 0xFF]
    return sum ^ 0xFFFFFFFF


def rewrite_summed(path: Path, **changes) -> None:
    """Changes members of a JSON file that has a checksum, and the checksum to match (summed_json.h)."""
    members = json.loads(path.read_text()) | changes | {"crc32c": "00000000"}
    text = json.dumps(members, indent=2)
    path.write_text(text.replace("00000000", f"{crc32c(text.encode()):08x}", 1))


# ---- Checkpoints ----


def settings(daemon, **sections) -> dict:
    """No checkpoints except the test's, and a cache so small that rows leave it all the time."""
    return {
        "checkpoints": {"interval_seconds": 0},
        "cache": {"tiers": [daemon.dram(LANES, 4)]},
        "rocksdb": {"memtable_bytes": "2MiB"},
        **sections,
    }


def checkpoint_under_load(server, **options):
    return under_load(server.checkpoint, **options)


def is_whole(daemon, checkpoint: int) -> bool:
    """True if the daemon's log says that the checkpoint has all rows of an update, or none. On a busy machine there may be no moment
    without an update, and the checkpoint then cuts some. A daemon that is killed may not get round to saying it."""
    made = [one["cut_updates"] for one in daemon.logged("checkpoint made") if one["id"] == str(checkpoint)]
    return made == ["0"]


# ---- Damage ----


def flip(path: Path, at: int | None = None) -> None:
    """Flips a bit of the byte @at, or of the middle one."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@contextlib.contextmanager
def damaged(path: Path, how: Callable[[Path], None] | None) -> Iterator[None]:
    """Damages the file, or removes it if @how is None. The server may use a table file under another name too; only the
    checkpoint's is damaged."""
    aside = Path(f"{path.parent}.{path.name}.aside")  # beside its folder, on the same file system
    path.rename(aside)
    try:
        if how is not None:
            path.write_bytes(aside.read_bytes())
            how(path)
        yield
    finally:
        aside.replace(path)


# ---- Processes ----


def run_cli(daemon: Daemon, *arguments: str, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(CLI), "-s", daemon.socket, "--timeout", "60", *arguments], capture_output=True, text=True, check=False, timeout=limit_s
    )


# ---- Moves of rows to other shards ----

MOVE_LIMIT_S = 600  # a busy machine takes long
_UNREACHABLE = 3  # exit status
_GONE = ("the server closed the connection", "connection to embtierd lost", "shutting down")
_BUSY = ("already move", "has not ended yet", "is being added or removed", "no checkpoint: ", "compaction is behind", "flushes take too long")


def run_move(daemon: Daemon, shards: int) -> subprocess.CompletedProcess[str]:
    return run_cli(daemon, "-o", "json", "reshard", "--shards", str(shards), "--rate", "0", limit_s=MOVE_LIMIT_S)


def has_lost_server(move: subprocess.CompletedProcess[str]) -> bool:
    """True if a move's command failed because the server died or stops."""
    return move.returncode == _UNREACHABLE or (move.returncode != 0 and any(words in move.stderr for words in _GONE))


def was_busy(move: subprocess.CompletedProcess[str]) -> bool:
    """True if a move's command failed because another one runs, or because the server had too much else to do. It may succeed later."""
    return move.returncode != 0 and any(words in move.stderr for words in _BUSY)
