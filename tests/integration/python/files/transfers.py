# SPDX-License-Identifier: Apache-2.0
"""Shared helpers for tests of exports and imports: tables to compare, files as other programs write and read them, and `embtier`
as a process."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import EMBTIERD, Daemon

import embtier

CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
SANITIZED = b"__asan_init" in EMBTIERD.read_bytes() or b"__tsan_init" in EMBTIERD.read_bytes()
LONG = os.environ.get("EMBTIER_TEST_LONG") == "1"

DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "I64": "<i8", "U64": "<u8", "I32": "<i4"}


# ---- Tables ----


def as_made(spec: embtier.TableSpec, **changes) -> embtier.TableSpec:
    """Without what an import gives the new table: its id, name and home."""
    return dataclasses.replace(spec, **{"table_id": 0, "name": "", "home": "cache", "tier": None, **changes})


def train(server: embtier.Server, table: embtier.Table, step: int, ids: np.ndarray) -> None:
    """Gives rows and state numbers that no other step gives."""
    with server.push_batch([(table, len(ids))]) as batch:
        batch.ids(0)[:] = ids
        batch.gradients(0)[:] = np.random.default_rng(step).uniform(-1, 1, (len(ids), table.dim))
        batch.push(0.5, step)


def contents(table: embtier.Table, ids: np.ndarray) -> tuple[bytes, bytes]:
    rows, state = table.get_with_state(ids)
    return rows.tobytes(), state.tobytes()


def spec_of(server: embtier.Server, name: str) -> embtier.TableSpec | None:
    return next((spec for spec in server.tables() if spec.name == name), None)


def is_free(server: embtier.Server, name: str) -> bool:
    """True if the name is free, which the list of tables alone does not show."""
    if spec_of(server, name):
        return False
    server.create_table(name, 2, 10)
    server.drop_table(name)
    return True


@contextlib.contextmanager
def refused(server: embtier.Server, error: type[Exception], match: str, name: str) -> Iterator[None]:
    """The block must fail and make nothing: no table, and @name is as free as before."""
    before = server.tables()
    with pytest.raises(error, match=match):
        yield
    assert server.tables() == before
    assert any(spec.name == name for spec in before) or is_free(server, name)


def next_table_id(server: embtier.Server, name: str) -> int:
    """The id of the next table. Ids count up, so a table that was begun in between, and taken back, shows."""
    made = server.create_table(f"{name}.next", 2, 10)
    server.drop_table(made.name)
    return made.spec.table_id


# ---- Files ----


def safetensors_bytes(tensors: dict[str, tuple[str, np.ndarray]], metadata: dict[str, str] | None = None) -> bytes:
    """@tensors: name: (word for the dtype, numbers)."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, (dtype, numbers) in tensors.items():
        raw = np.ascontiguousarray(numbers, DTYPES[dtype]).tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": list(numbers.shape), "data_offsets": offsets}
        data += raw
    return with_header(json.dumps(header).encode(), data)


def with_header(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors, ends = {}, [0]
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = tensor["data_offsets"]
        assert begin == ends[-1] and (8 + length + begin) % np.dtype(DTYPES[tensor["dtype"]]).itemsize == 0
        numbers = np.frombuffer(raw[8 + length + begin : 8 + length + end], DTYPES[tensor["dtype"]])
        tensors[name] = numbers.reshape(tensor["shape"])
        ends.append(end)
    assert ends[-1] == len(raw) - 8 - length, "the data are all of the rest"
    return tensors


def read_export(folder: Path) -> dict[str, np.ndarray]:
    """The tensors of all parts, read as a program does that knows NumPy or safetensors."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "table.json")
    parts: dict[str, list[np.ndarray]] = {}
    for name in names:
        if name.endswith(".npy"):
            parts.setdefault(name.split(".")[-2], []).append(np.load(folder / name, allow_pickle=False))
        else:
            for tensor, numbers in read_safetensors(folder / name).items():
                parts.setdefault(tensor, []).append(numbers)
    return {tensor: np.concatenate(numbers) for tensor, numbers in parts.items()}


def folder_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- Processes ----


def command(daemon: Daemon, *arguments: str | Path) -> list[str]:
    return [str(CLI), "-s", daemon.socket, *map(str, arguments)]


def run_cli(daemon: Daemon, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(daemon, *arguments), capture_output=True, text=True, check=False)


def cli_json(daemon: Daemon, *arguments: str | Path) -> dict:
    done = run_cli(daemon, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def start_cli(daemon: Daemon, *arguments: str | Path) -> subprocess.Popen:
    return subprocess.Popen(
        command(daemon, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def run_on_terminal(
    daemon: Daemon, *arguments: str | Path, stream: str = "stderr", interrupt_at: str | None = None
) -> tuple[int, str, str]:
    """Returns the exit status, the bytes on a terminal that is only @stream, and the other stream's output. When the terminal
    shows @interrupt_at, an interrupt comes. `env` resets its default, since a shell's background jobs and their children ignore
    it."""
    words = ["env", "--default-signal=INT", *command(daemon, *arguments)]
    ours, its = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: its}
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, text=True, **streams)
    os.close(its)
    seen = b""
    with contextlib.suppress(OSError):  # a terminal ends with EIO
        while more := os.read(ours, 65536):
            seen += more
            if interrupt_at is not None and interrupt_at.encode() in seen:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    os.close(ours)
    stdout, stderr = process.communicate()
    return process.returncode, seen.decode(), stderr if stream == "stdout" else stdout


def screen(seen: str) -> list[str]:
    """The text left on a terminal that knows only three things: CR, LF and clearing the rest of a line."""
    lines, column = [""], 0
    for word in re.findall(r"\r|\n|\033\[K|[^\r\n\033]+", seen):
        if word == "\r":
            column = 0
        elif word == "\n":
            lines.append("")
        elif word == "\033[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column] + word + lines[-1][column + len(word) :]
            column += len(word)
    return lines


def moments_of_kills(whole_s: float, count: int, rng: random.Random) -> Iterator[float]:
    """Seconds after which to kill. One lies in each of @count parts of the whole; then come ever earlier ones, since @whole_s may
    have been measured too long."""
    for part in range(count):
        yield whole_s * (part + rng.random()) / count
    for turn in itertools.count(1):
        yield whole_s * rng.random() / 2**turn


def kill_after(process: subprocess.Popen, seconds: float) -> bool:
    """Sends SIGKILL after @seconds. True if the process had not ended before."""
    time.sleep(seconds)
    process.kill()
    process.communicate()
    return process.returncode < 0


def memory_bytes(pid: int, kind: str) -> int:
    """The process's memory. @kind is the kernel's name: RssAnon is without shared memory, such as an arena; VmRSS is all. 0 if
    the process is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{kind}:"):
                return int(line.split()[1]) << 10
    return 0
