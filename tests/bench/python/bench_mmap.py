#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training steps through the server, compared with PyTorch with its tables in a file mapped into memory.

The steps are those of bench_steps.py, with prefetch. PyTorch does the same arithmetic on rows of a mapped file: it sums bags,
adds up the gradients of each row, and applies row-wise Adagrad. The kernel reads pages as they are touched, and writes them back
when it needs memory. Each side, trainer and server together, is in a memory control group of its own with the same limit. Where
none can be made there is no figure. The two sides take turns of some steps. A figure is one JSON object on a line, as
tests/bench/lib/bench.h has it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from bench_daemon import options
from bench_steps import AHEAD, BAGS, STEPS, Trainer
from bench_training import DIM, GATHERS, LEARNING_RATE, THREADS, Setting, draw_ids, server

MIB = 1 << 20
TABLES, ROWS = 10, 2_000_000
LIMIT = 1280 * MIB  # a quarter of the tables; a trainer takes some 400 MiB of it
CACHE = 320 * MIB
READERS = 16  # per lane: devices want many reads at a time
BAR = 5.0
WARM_UP_TURNS = 6  # until the caches of both sides have the popular rows
EPS = 1e-8


class Mapped:
    """PyTorch's side: one file with the tables' rows, one table after another, and another file with their state."""

    def __init__(self, setting: Setting, folder: str) -> None:
        self.setting = setting
        self.random = np.random.default_rng(3)
        rows = setting.tables * setting.rows
        self.weights = self.map(f"{folder}/weights", rows * DIM).view(rows, DIM)
        self.state = self.map(f"{folder}/state", rows)
        width = DIM * setting.tables
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.offsets = torch.arange(0, setting.ids, GATHERS)

    @staticmethod
    def map(path: str, count: int) -> torch.Tensor:
        """Maps a new file. Writes it through, so that no page is a hole, and turns off read-ahead."""
        with open(path, "w+b") as file:
            for begin in range(0, count, MIB):
                file.write(np.full(min(MIB, count - begin), 0.05, np.float32).tobytes())
            file.flush()
            os.fsync(file.fileno())
            memory = mmap.mmap(file.fileno(), count * 4)
        memory.madvise(mmap.MADV_RANDOM)
        return torch.frombuffer(memory, dtype=torch.float32)

    def batches(self) -> Iterator[list[np.ndarray]]:
        while True:
            yield [draw_ids(self.setting, self.random) for _ in range(self.setting.tables)]

    def train(self, ids: list[np.ndarray]) -> None:
        places = [torch.from_numpy(of_table + i * self.setting.rows) for i, of_table in enumerate(ids)]
        with torch.no_grad():
            bags = [
                torch.nn.functional.embedding_bag(at, self.weights, self.offsets, mode="sum")
                for at in places
            ]
        inputs = torch.cat(bags, dim=1).requires_grad_()
        self.mlp(inputs).square().mean().backward()
        assert inputs.grad is not None
        for at, gradient in zip(places, torch.split(inputs.grad, DIM, dim=1)):
            rows, which = torch.unique(at, return_inverse=True)
            sums = torch.zeros(len(rows), DIM).index_add_(0, which, gradient.repeat_interleave(GATHERS, 0))
            state = self.state[rows] + sums.square().mean(1)
            self.state[rows] = state
            self.weights.index_add_(0, rows, sums / (state.sqrt() + EPS)[:, None], alpha=-LEARNING_RATE)

    def turn(self, drawn: Iterator[list[np.ndarray]]) -> float:
        """Returns the seconds of a step."""
        batches = [next(drawn) for _ in range(STEPS)]
        begin = time.perf_counter()
        for ids in batches:
            self.train(ids)
        return (time.perf_counter() - begin) / STEPS


def serve_turns(turn: Callable[[], float]) -> None:
    """Runs a turn for each line of standard input, and answers with its seconds of a step."""
    print("ready", flush=True)
    for _ in sys.stdin:
        print(turn(), flush=True)


def run_side(side: str, setting: Setting, folder: str) -> None:
    torch.set_num_threads(THREADS)
    if side == "mapped":
        mapped = Mapped(setting, folder)
        drawn = mapped.batches()
        serve_turns(lambda: mapped.turn(drawn))
        return
    budgets = {
        "lanes": {"count": THREADS, "readers_per_lane": READERS, "ticket_bytes": "32MiB", "request_bytes": "32MiB"},
        "rocksdb": {"memtable_bytes": "64MiB", "metadata_cache_bytes": "64MiB"},
        "socket": {"max_arena_bytes": "128MiB", "max_batch_rows": 1 << 20},
    }
    with server(setting, CACHE, budgets, 128 * MIB) as connection:
        trainer = Trainer(setting, connection)
        drawn = trainer.batches()
        serve_turns(lambda: trainer.turn(True, drawn))


# ---- control groups ----


class Group:
    """A control group whose processes may have @limit bytes of memory, pages of files included. Where the kernel counts swap,
    they get no swap on top."""

    def __init__(self, name: str, limit: int) -> None:
        old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        self.folder = (old if old.is_dir() else new) / f"embtier-bench-{os.getpid()}-{name}"
        if not old.is_dir() and "memory" not in (new / "cgroup.subtree_control").read_text().split():
            (new / "cgroup.subtree_control").write_text("+memory")
        self.folder.mkdir()
        try:
            if old.is_dir():
                self.write_limits("memory.limit_in_bytes", limit, "memory.memsw.limit_in_bytes", limit)  # memory and swap
            else:
                self.write_limits("memory.max", limit, "memory.swap.max", 0)
        except BaseException:
            self.end()
            raise

    def write_limits(self, of_memory: str, limit: int, of_swap: str, swap_limit: int) -> None:
        (self.folder / of_memory).write_text(str(limit))
        if os.access(self.folder / of_swap, os.W_OK):
            (self.folder / of_swap).write_text(str(swap_limit))

    def enter(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def end(self) -> None:
        for _ in range(600):  # its processes are killed, but do not vanish at once
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


class Side:
    def __init__(self, name: str, limit: int, scale: float, folder: str) -> None:
        self.group = Group(name, limit)
        try:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--side", name, folder, str(scale)], text=True, preexec_fn=self.group.enter,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            self.answer("ready")
        except BaseException:
            self.end()
            raise

    def answer(self, expected: str = "") -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        if not line or (expected and line != expected):
            raise SystemExit("bench_mmap: a side ended")
        return line

    def turn(self) -> float:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.answer())

    def end(self) -> None:
        if hasattr(self, "process"):
            assert self.process.stdin
            self.process.stdin.close()
            self.process.wait()
        self.group.end()


def setting_of(scale: float) -> Setting:
    return Setting(
        "rm1", max(1, round(TABLES * scale)), max(20_000, round(ROWS * scale)), "zipf", max(8, round(BAGS * scale))
    )


def report(setting: Setting, pairs: list[tuple[float, float]], limit: int) -> None:
    ratios = [theirs / ours for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    print(
        json.dumps(
            {
                "name": "step-vs-mmap",
                "unit": " samples/s",
                "better": "higher",
                "ours": setting.bags / statistics.median(pair[0] for pair in pairs),
                "reference": setting.bags / statistics.median(pair[1] for pair in pairs),
                "reference_name": "PyTorch, tables in a mapped file",
                "reference_options": f"{setting.tables} tables of {setting.rows:,} rows, {limit // MIB} MiB for each side, {READERS} readers, "
                f"{setting.bags} samples of {GATHERS} ids a table, MADV_RANDOM, {THREADS} thread(s)",
                "ratio": ratio,
                "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
                "n": len(pairs),
                "bar": BAR,
                "met": ratio >= BAR,
                "limit": f"reads of the device, which prefetch asks for {AHEAD} batches ahead, and page faults one by one",
            }
        ),
        flush=True,
    )


def file_system(folder: str) -> str:
    return subprocess.run(["stat", "-f", "-c", "%T", folder], check=True, capture_output=True, text=True).stdout.strip()


def no_figure(reason: str) -> None:
    print(f"bench_mmap: no figure: {reason}", file=sys.stderr)


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        run_side(sys.argv[2], setting_of(float(sys.argv[4])), sys.argv[3])
        return
    given = options(__doc__, ["step-vs-mmap"], 9)
    setting = setting_of(given.scale)
    print(f"bench_mmap: {setting}, {LIMIT // MIB} MiB for each side", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as folder, contextlib.ExitStack() as ends:
        if (kind := file_system(folder)) in ("tmpfs", "ramfs"):  # pages of files there are never written back
            no_figure(f"{folder} is in memory ({kind}); set TMPDIR to a folder on a disk")
            return
        sides = []
        for name in ("ours", "mapped"):
            try:
                side = Side(name, LIMIT, given.scale, folder)
            except (OSError, subprocess.SubprocessError) as error:  # SubprocessError: the process cannot enter it
                no_figure(f"no memory control group can be made or entered here: {error}")
                return
            ends.callback(side.end)
            sides.append(side)
        ours, mapped = sides
        for _ in range(WARM_UP_TURNS):
            ours.turn(), mapped.turn()
        report(setting, [(ours.turn(), mapped.turn()) for _ in range(given.turns)], LIMIT)


if __name__ == "__main__":
    main()
