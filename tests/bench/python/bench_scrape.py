#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A scrape of /metrics from a server with 1,000 tables: its time, its bytes, and what it costs lookups.

`scrape` is the time of one answer, on a connection of its own; a turn is the median of some. `scrape-bytes` is the length of the
answer. `scrape-cost` has rows a second of lookups that are all cached, while another process scrapes five times a second, over the
same without it, in turns. A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from bench_daemon import connect, embtier, options, started

TABLES, DIM = 1000, 16
ROWS, BATCH = 100_000, 4096
SCRAPES = 20  # per turn
PAUSE_S = 0.2
BAR_MS, BAR_BYTES, BAR_RATIO = 20, 256 << 10, 0.99
TURNS = 7


def scrape(port: int) -> tuple[float, int]:
    """Returns milliseconds, with those of the connection, and bytes."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    length = len(connection.getresponse().read())
    connection.close()
    return (time.perf_counter() - begin) * 1000, length


def lookups(table: embtier.Table, seconds: float) -> float:
    """Returns rows a second."""
    ids = np.random.default_rng(1).integers(0, ROWS, (64, BATCH), dtype=np.uint64)
    begin, batches = time.perf_counter(), 0
    while (spent := time.perf_counter() - begin) < seconds:
        table.get(ids[batches % len(ids)])
        batches += 1
    return batches * BATCH / spent


def scrape_until_stopped(port: int, ready: Event, stop: Event) -> None:
    ready.set()
    while not stop.wait(PAUSE_S):
        scrape(port)


def lookups_beside_scrapes(table: embtier.Table, port: int, seconds: float) -> float:
    """The reader has a process of its own: a thread would take turns with the lookups at the interpreter."""
    processes = multiprocessing.get_context("spawn")
    ready, stop = processes.Event(), processes.Event()
    reader = processes.Process(target=scrape_until_stopped, args=(port, ready, stop))
    reader.start()
    try:
        assert ready.wait(60), "the reader of /metrics does not begin"
        return lookups(table, seconds)
    finally:
        stop.set()
        reader.join()


def print_figure(name: str, unit: str, ours: float, reference: float, reference_name: str, ratios: list[float], better: str,
                 bar: float) -> None:  # fmt: skip
    ratios = sorted(ratios)
    middle = statistics.median(ratios)
    print(json.dumps({
        "name": name, "unit": unit, "better": better, "ours": ours, "reference": reference, "reference_name": reference_name,
        "reference_options": f"{TABLES:,} tables", "ratio": middle,
        "ratio_quartiles": [ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]], "n": len(ratios), "bar": bar,
        "met": middle <= bar if better == "lower" else middle >= bar,
        "limit": "the thread of HTTP, which formats text" if name != "scrape-cost" else "cores that lanes and reader share",
    }), flush=True)  # fmt: skip


def measure(names: list[str], server: embtier.Server, port: int, turns: int, seconds: float, tables: int) -> None:
    for i in range(tables):
        server.create_table(f"table_{i:04}", DIM).set(np.arange(4), np.zeros((4, DIM), np.float32))
    table = server.create_table("looked_up", DIM)
    for first in range(0, ROWS, BATCH):
        table.set(np.arange(first, first + BATCH), np.zeros((BATCH, DIM), np.float32))
    taken = [[scrape(port) for _ in range(SCRAPES)] for _ in range(turns)]
    if "scrape" in names:
        times = [statistics.median(ms for ms, _ in turn) for turn in taken]
        print_figure("scrape", " ms", statistics.median(times), BAR_MS, "20 ms", [ms / BAR_MS for ms in times], "lower", 1)
    if "scrape-bytes" in names:
        length = max(length for turn in taken for _, length in turn)
        print_figure("scrape-bytes", " B", length, BAR_BYTES, "256 KiB", [length / BAR_BYTES] * turns, "lower", 1)
    if "scrape-cost" in names:
        pairs = [(lookups_beside_scrapes(table, port, seconds), lookups(table, seconds)) for _ in range(turns)]
        print_figure(
            "scrape-cost", " rows/s", statistics.median(ours for ours, _ in pairs), statistics.median(alone for _, alone in pairs),
            "the same without a reader", [ours / alone for ours, alone in pairs], "higher", BAR_RATIO,
        )  # fmt: skip


def main() -> None:
    given = options(__doc__, ["scrape", "scrape-bytes", "scrape-cost"], TURNS)
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        Path(directory, "rows").mkdir()
        config = {
            "data": {"directories": [f"{directory}/rows"], "shards_per_directory": 1},
            "lanes": {"count": 1},
            "cache": {"tiers": [{"bytes": "64MiB"}]},
            "socket": {"path": f"{directory}/socket"},
            "http": {"listen": "127.0.0.1:0"},
        }
        with started(directory, config) as (process, log), connect(process, log, f"{directory}/socket", 16 << 20) as server:
            listening = re.search(r"http://127\.0\.0\.1:(\d+)", Path(directory, "log").read_text())
            assert listening, "embtierd does not say where it listens for HTTP"
            port = int(listening[1])
            tables = max(1, round(TABLES * given.scale))
            measure(given.names, server, port, min(given.turns, TURNS), given.seconds or 1, tables)


if __name__ == "__main__":
    main()
