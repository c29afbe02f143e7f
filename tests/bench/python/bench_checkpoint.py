#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of checkpoints for clients that train and look up meanwhile, and their worth after a crash.

checkpoint-stall, checkpoint-update-stall: one server, two clients in processes of their own. One looks up 64 ids at a fixed pace,
even when the request before is late. One long stall thus counts for all the requests that were due in it. The other pushes
gradients of 1,024 rows of the same replay table, and waits a little after each push, as a trainer does. Each figure compares
latencies (99th percentile) while checkpoints are made, one after another, with latencies while none is made, in turn. Between the
turns nothing is measured, while rows become dirty again and compactions end. checkpoint-stall-hits: only the lookups that needed
nothing from SSD, measured from when they were sent. It leaves out the device and the wait for earlier requests.

checkpoint-recovery: seconds from the start of the process until it serves, after SIGKILL and after a clean stop, with the same
updates since the newest checkpoint. After a clean stop the start makes a checkpoint of these updates first.

log-recovery: the same for an async table whose updates are all still in its log when the server is killed. Memory for write
buffers is so large that none is flushed before. A clean stop has written them to files.

checkpoint-new-bytes: bytes that a checkpoint adds to the one before, when 1 % of the rows, spread evenly, were updated in
between.

A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from bench_daemon import BUILD, options
from bench_training import DIM, GATHERS, LEARNING_RATE, THREADS, ZIPF, Setting, draw_ids

import embtier

ROW_BYTES = DIM * 4 + 4  # with the state of rowwise_adagrad
ENTRY_BYTES = 32  # of the cache's index per row, at most
UPDATED_ROWS = 1024  # per request
LOOKED_UP_ROWS = 64

ROWS = 1_000_000  # of the trained table
CACHED_SHARE = 0.9
DIRTIED_SHARE = 0.2  # of the rows, before each turn
SLABS = 1.15  # the cache's bytes per byte of rows and index: classes and maps share the tier
LOOKUP_EVERY_S = 2e-3
REST_S = 10e-3  # the trainer's, between two pushes
WARM_UP_TURNS = 2  # turns' time, before the first turn
SETTLE_S = 0.5
LEAST_TURN_S = 0.2
SHARE = 0.99  # the percentile of latencies

STORED_BYTES = 1e9  # of the store that is started
LEAST_STORED_BYTES = 50e6
STORE_CACHE_BYTES = 16 << 20
CRASH_UPDATES_SHARE = 0.05  # of the rows, since the checkpoint
NEW_UPDATES_SHARE = 0.01
STARTS = 5  # at most, since a start takes a while

LOGGED_BYTES = 300e6  # of rows in the log of an async table
LOGGED_ROW_BYTES = DIM * 4  # without state, which a SET of weights would have to read first
LEAST_LOGGED_BYTES = 5e6
LOGGED_SHARDS = 2
WRITE_BUFFERS_BYTES = 2 << 30  # an eighth of it for each logged database of the shards


# ---- The server ----


class Daemon:
    """A server on a directory on disk ($TMPDIR), which makes checkpoints only on request."""

    def __init__(self, directory: str, cache_bytes: int, shards: int, memtable_bytes: int) -> None:
        self.socket = f"{directory}/socket"
        self.log = Path(f"{directory}/log")
        self.process: subprocess.Popen | None = None
        os.mkdir(f"{directory}/rows")
        self.command = [
            os.environ.get("EMBTIERD", BUILD / "daemon/embtierd"), "--init", "--config", f"{directory}/embtierd.yaml",
        ]  # fmt: skip
        config = {
            "data": {"directories": [f"{directory}/rows"], "shards_per_directory": shards},
            "rocksdb": {"memtable_bytes": memtable_bytes},
            "lanes": {"count": THREADS},
            "cache": {"tiers": [{"bytes": f"{max(cache_bytes >> 20, 4)}MiB"}]},
            "checkpoints": {"interval_seconds": 0},
            "socket": {"path": self.socket},
        }
        Path(self.command[-1]).write_text(json.dumps(config))

    def start(self) -> float:
        """Returns the seconds until it serves."""
        begin = time.perf_counter()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(self.command, stderr=log)
        while True:
            with suppress(embtier.UnreachableError):
                self.connect(arena_bytes=0).close()
                return time.perf_counter() - begin
            if self.process.poll() is not None:
                sys.exit(f"bench_checkpoint: embtierd ended: {self.log.read_text()}")
            time.sleep(0.002)

    def connect(self, arena_bytes: int = 64 << 20) -> embtier.Server:
        return embtier.connect(self.socket, arena_bytes=arena_bytes, timeout=0)

    def end(self, how: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def logged(self, message: str, number: str) -> float:
        """Returns a number from a line of this run's log."""
        found = re.search(rf'msg="?{message}.*? {number}=(\d+)', self.log.read_text())
        if not found:
            sys.exit(f"bench_checkpoint: the log has no '{message}' with {number}: {self.log.read_text()}")
        return float(found[1])


@contextmanager
def daemon(cache_bytes: int, shards: int = 4, memtable_bytes: int = 128 << 20) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        made = Daemon(directory, cache_bytes, shards, memtable_bytes)
        try:
            yield made
        finally:
            made.end(signal.SIGKILL)  # no client needs the rows any more


def make_table(server: embtier.Server, rows: int) -> embtier.Table:
    """Makes a table with all its rows on SSD."""
    return server.create_table(
        "rows", DIM, rows, optimizer="rowwise_adagrad", init=("uniform", -0.1, 0.1), eager=True
    )


def set_some(server: embtier.Server, rows: int, share: float, random: np.random.Generator) -> None:
    """SETs @share of the table's rows, drawn evenly, each once."""
    drawn = random.choice(rows, round(rows * share), replace=False)
    with server.batch([(server.open_table("rows"), UPDATED_ROWS)]) as batch:
        for first in range(0, len(drawn), UPDATED_ROWS):
            some = drawn[first : first + UPDATED_ROWS]
            batch.set_count(0, len(some))
            batch.ids(0)[:] = some
            batch.rows(0)[:] = first
            batch.set()


# ---- Clients ----


def lookup(server: embtier.Server, table: embtier.Table) -> tuple[int, Callable[[np.ndarray], int]]:
    """Returns the number of ids per request, and a function that makes one and returns how many rows were cached."""
    batch = server.batch([(table, LOOKED_UP_ROWS)])

    def request(ids: np.ndarray) -> int:
        batch.ids(0)[:] = ids
        return batch.get().hit_rows

    return LOOKED_UP_ROWS, request


def update(server: embtier.Server, table: embtier.Table) -> tuple[int, Callable[[np.ndarray], int]]:
    batch = server.push_batch([(table, UPDATED_ROWS)])
    batch.gradients(0)[:] = np.random.default_rng(5).standard_normal((UPDATED_ROWS, DIM)) * 1e-3
    step = 0

    def request(ids: np.ndarray) -> int:
        nonlocal step
        step += 1
        batch.ids(0)[:] = ids
        return batch.push(LEARNING_RATE, step).hit_rows

    return UPDATED_ROWS, request


COLUMNS = DUE, SENT, ENDED, HIT_ROWS = range(4)  # of the figures that a client sends for each request


def run_client(pipe: Connection, socket: str, rows: int, make: Callable, seed: int) -> None:
    """Makes requests. When asked through @pipe, sends the figures of each request since the last time: when it was due, sent and
    ended, and how many rows hit. None ends the client."""
    pipe.recv()  # until the table exists
    setting = Setting("", 1, rows, "zipf", 1 << 14)
    with embtier.connect(socket, arena_bytes=16 << 20, timeout=0) as server:
        count, request = make(server, server.open_table("rows"))
        drawn = draw_ids(setting, np.random.default_rng(seed))
        batches = drawn[: len(drawn) // count * count].reshape(-1, count)
        seen = array("d")
        due = time.perf_counter()
        at = 0
        while True:
            if pipe.poll():
                if pipe.recv() is None:
                    return
                pipe.send(np.array(seen).reshape(-1, len(COLUMNS)))
                seen = array("d")
                due = time.perf_counter()
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
                due = time.perf_counter()  # a late wake-up by the machine is not the server's fault
            sent = time.perf_counter()
            hit_rows = request(batches[at % len(batches)])
            at += 1
            end = time.perf_counter()
            seen.extend((due, sent, end, hit_rows))
            due = due + LOOKUP_EVERY_S if make is lookup else end + REST_S


class Client:
    def __init__(self, socket: str, rows: int, make: Callable, seed: int) -> None:
        # Forked, so it must come before any connection.
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, socket, rows, make, seed)
        self.process = context.Process(target=run_client, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def begin(self) -> None:
        self.pipe.send("begin")

    def seen(self, begin: float, end: float) -> np.ndarray:
        """[n, COLUMNS]: the requests that were due or in flight between @begin and @end."""
        self.pipe.send("seen")
        try:
            all_of_them = self.pipe.recv()
        except EOFError:
            sys.exit("bench_checkpoint: a client ended, see above")
        return all_of_them[(all_of_them[:, ENDED] >= begin) & (all_of_them[:, DUE] < end)]

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self.pipe.send(None)
        self.process.join()


# ---- Figures ----


def report(
    name: str, unit: str, ours: list[float], reference: list[float], bar: float | None = None, **more: object
) -> None:
    """Prints one figure, for which lower is better."""
    ratios = np.array(ours) / np.array(reference)
    ratio = float(np.median(ratios))
    figure = {
        "name": name,
        "unit": unit,
        "better": "lower",
        "ours": float(np.median(ours)),
        "reference": float(np.median(reference)),
        "ratio": ratio,
        "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
        "n": len(ours),
        **more,
    }
    if bar is not None:
        figure |= {"bar": bar, "met": ratio <= bar}
    print(json.dumps(figure), flush=True)


def say(text: str) -> None:
    print(f"bench_checkpoint: {text}", file=sys.stderr, flush=True)


# ---- checkpoint-stall, checkpoint-update-stall ----


@dataclass
class Latencies:
    """Latencies in milliseconds, of all turns of one side."""

    turns: list[float] = field(default_factory=list)  # the percentile of each turn
    every: list[np.ndarray] = field(default_factory=list)

    def add(self, seen: np.ndarray, since: int) -> None:
        latencies = (seen[:, ENDED] - seen[:, since]) * 1e3
        self.turns.append(float(np.quantile(latencies, SHARE)))
        self.every.append(latencies)

    def facts(self, side: str) -> dict[str, float]:
        latencies = np.concatenate(self.every)
        return {
            f"{side}_median_ms": float(np.median(latencies)),
            f"{side}_longest_ms": float(latencies.max()),
            f"{side}_requests": len(latencies),
        }


class Stall:
    KINDS = ("lookups", "hits", "updates")

    def __init__(
        self, server: embtier.Server, rows: int, clients: dict[str, Client], seconds: float
    ) -> None:
        self.server = server
        self.rows = rows
        self.random = np.random.default_rng(7)
        self.clients = clients
        self.seconds = max(seconds, LEAST_TURN_S)
        self.made: list[embtier.Checkpoint] = []
        self.dirty_shares: list[float] = []  # of the cached rows, at the beginning of each turn with checkpoints
        self.asked_rows = self.hit_rows = 0  # of lookups
        self.cached_share = 0.0  # of the table's rows
        self.latencies = {(kind, made): Latencies() for kind in self.KINDS for made in (True, False)}

    def turn(self, makes: bool) -> None:
        set_some(self.server, self.rows, DIRTIED_SHARE, self.random)
        time.sleep(min(SETTLE_S, self.seconds))
        if makes:
            metrics = self.server.status()["metrics"]
            dirty, cached = (sum(metrics[f"cache_{what}"].values()) for what in ("dirty_rows", "rows"))
            self.dirty_shares.append(dirty / cached)
            self.cached_share = cached / self.rows
        begin = time.perf_counter()
        while makes and time.perf_counter() - begin < self.seconds:
            self.made.append(self.server.checkpoint(keep=2))
        time.sleep(max(0.0, begin + self.seconds - time.perf_counter()))
        end = time.perf_counter()
        seen = {kind: client.seen(begin, end) for kind, client in self.clients.items()}
        seen["hits"] = seen["lookups"][seen["lookups"][:, HIT_ROWS] == LOOKED_UP_ROWS]
        self.asked_rows += LOOKED_UP_ROWS * len(seen["lookups"])
        self.hit_rows += int(seen["lookups"][:, HIT_ROWS].sum())
        for kind, of_kind in seen.items():
            if len(of_kind):
                self.latencies[kind, makes].add(of_kind, SENT if kind == "hits" else DUE)
            else:
                say(f"no {kind} in {end - begin:.3f} s")

    def forget(self) -> None:
        """Drops the figures of the first turns, which do not count."""
        self.made.clear()
        self.dirty_shares.clear()
        self.asked_rows = self.hit_rows = 0
        for key in self.latencies:
            self.latencies[key] = Latencies()

    def report(self, name: str, kind: str, what: str, bar: float | None) -> None:
        ours, reference = self.latencies[kind, True], self.latencies[kind, False]
        if len(ours.turns) != len(reference.turns) or not ours.turns:
            say(f"{name}: the run is too short")
            return
        dirty = float(np.median(self.dirty_shares))
        report(
            name, "ms", ours.turns, reference.turns, bar,
            reference_name=f"the same with no checkpoint under way, {SHARE:.0%} of {what}",
            reference_options=f"both: {THREADS} lane(s), {self.rows:,} rows of {ROW_BYTES} bytes, "
            f"{self.cached_share:.0%} cached, Zipf {ZIPF}; GET of {LOOKED_UP_ROWS} every "
            f"{LOOKUP_EVERY_S * 1e3:g} ms, push of {UPDATED_ROWS:,} {REST_S * 1e3:g} ms after the last; ours: one checkpoint after another, "
            f"{len(self.made)} in {self.seconds:g} s turns, {dirty:.0%} of the cache dirty before",
            limit="cores and the device: flush and compaction take both",
            checkpoints=len(self.made),
            longest_pause_ms=max(checkpoint.pause for checkpoint in self.made) * 1e3,
            held_rows=sum(checkpoint.held_rows for checkpoint in self.made),
            dirty_share=dirty,
            hit_rate=self.hit_rows / self.asked_rows,
            **ours.facts("ours"), **reference.facts("reference"),
        )  # fmt: skip

    def say(self) -> None:
        pauses = [checkpoint.pause * 1e3 for checkpoint in self.made]
        spent = [checkpoint.spent for checkpoint in self.made]
        held = [checkpoint.held_rows for checkpoint in self.made]
        say(
            f"{len(self.made)} checkpoints: pause {np.median(pauses):.2f} ms, longest {max(pauses):.2f} ms; "
            f"spent {np.median(spent):.2f} s, longest {max(spent):.2f} s; held_rows {sum(held):,}, "
            f"most {max(held):,}; {np.median(self.dirty_shares):.0%} of the cache dirty before"
        )
        for kind in self.KINDS:
            for makes, side in ((True, "with"), (False, "without")):
                if not (every := self.latencies[kind, makes].every):
                    continue
                latencies = np.concatenate(every)
                parts = ", ".join(
                    f"{name} {np.quantile(latencies, share):.3f} ms"
                    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1))
                )
                say(f"{kind} {side}: {parts}, {len(latencies):,} requests")


def fill_cache(server: embtier.Server, table: embtier.Table, rows: int) -> None:
    for first in range(0, rows, 50_000):
        with server.batch([(table, min(50_000, rows - first))]) as batch:
            batch.ids(0)[:] = np.arange(first, first + batch.count(0))
            batch.get()


def run_stall(names: list[str], turns: int, seconds: float, scale: float) -> None:
    rows = max(100_000, round(ROWS * scale))
    cache_bytes = int(CACHED_SHARE * rows * (ROW_BYTES + ENTRY_BYTES) * SLABS)
    with daemon(cache_bytes) as process:
        clients = {
            "lookups": Client(process.socket, rows, lookup, 1),
            "updates": Client(process.socket, rows, update, 2),
        }
        process.start()
        with process.connect() as server:
            fill_cache(server, make_table(server, rows), rows)
            for client in clients.values():
                client.begin()
            for client in clients.values():
                client.seen(0, 0)  # an answer means that it has drawn its ids
            stall = Stall(server, rows, clients, seconds)
            time.sleep(WARM_UP_TURNS * stall.seconds)
            for turn in range(turns + 1):
                for makes in (turn % 2 == 0, turn % 2 == 1):
                    stall.turn(makes)
                if turn == 0:
                    stall.forget()
            if "checkpoint-stall" in names:
                stall.report("checkpoint-stall", "lookups", "GETs' latencies since they were due", 2)
                stall.report("checkpoint-stall-hits", "hits", "latencies of GETs that hit", None)
            if "checkpoint-update-stall" in names:
                stall.report("checkpoint-update-stall", "updates", "pushes' latencies", None)
            stall.say()
            for client in clients.values():
                client.end()


# ---- checkpoint-recovery, checkpoint-new-bytes, log-recovery ----


class Store:
    """A store with almost all rows on SSD only."""

    def __init__(self, process: Daemon, scale: float) -> None:
        self.process = process
        self.rows = round(max(LEAST_STORED_BYTES, STORED_BYTES * scale) / ROW_BYTES)
        self.random = np.random.default_rng(11)
        process.start()
        with process.connect() as server:
            make_table(server, self.rows)
            server.checkpoint()

    @property
    def gb(self) -> float:
        return self.rows * ROW_BYTES / 1e9

    def new_bytes(self) -> tuple[float, float]:
        with self.process.connect() as server:
            set_some(server, self.rows, NEW_UPDATES_SHARE, self.random)
            made = server.checkpoint(keep=2)
        return made.new_bytes, made.bytes

    def start_after(self, how: signal.Signals) -> float:
        """Updates rows, ends the server by signal @how, and starts it. Returns the seconds of the start."""
        with self.process.connect() as server:
            server.checkpoint(keep=2)
            set_some(server, self.rows, CRASH_UPDATES_SHARE, self.random)
        self.process.end(how)
        return self.process.start()


def report_new_bytes(store: Store, turns: int) -> None:
    pairs = [store.new_bytes() for _ in range(turns)]
    report(
        "checkpoint-new-bytes", "B", [new for new, _ in pairs], [every for _, every in pairs],
        reference_name="a full copy: the bytes of all of the checkpoint's files",
        reference_options=f"{store.rows:,} rows of {ROW_BYTES} bytes; {NEW_UPDATES_SHARE:.0%} of them, drawn "
        "evenly, SET before each checkpoint",
        limit="files that compaction rewrote in between are new",
    )  # fmt: skip


def report_recovery(store: Store, turns: int) -> None:
    ours, reference, spent, starts = [], [], [], []
    for turn in range(turns):
        for crashes in (turn % 2 == 0, turn % 2 == 1):
            seconds = store.start_after(signal.SIGKILL if crashes else signal.SIGTERM)
            (ours if crashes else reference).append(seconds)
            if crashes:
                spent.append(store.process.logged("the last run did not end cleanly: replay", "spent_ms"))
                starts.append(store.process.logged("ready", "start_ms"))
    per_gb = float(np.median(ours)) / store.gb
    report(
        "checkpoint-recovery", "s", ours, reference,
        reference_name="the start after a clean stop, which makes a checkpoint",
        reference_options=f"both: {store.rows:,} rows of {ROW_BYTES} bytes, "
        f"{CRASH_UPDATES_SHARE:.0%} of them SET since the checkpoint; ours: SIGKILL, {per_gb:.2f} s/GB",
        limit="opening the databases",
        seconds_per_gb=per_gb,
        stored_gb=store.gb,
        spent_ms=float(np.median(spent)),
        start_ms=float(np.median(starts)),
    )  # fmt: skip
    say(
        f"after SIGKILL {np.median(ours):.3f} s ({min(ours):.3f} to {max(ours):.3f}), {per_gb:.2f} s/GB of "
        f"{store.gb:.2f} GB; by the server's log going back took {np.median(spent):g} ms (spent_ms) of "
        f"{np.median(starts):g} (start_ms); after a clean stop {np.median(reference):.3f} s"
    )


def run_store(names: list[str], turns: int, scale: float) -> None:
    with daemon(STORE_CACHE_BYTES) as process:
        store = Store(process, scale)
        if "checkpoint-recovery" in names:
            report_recovery(store, min(turns, STARTS))
        if "checkpoint-new-bytes" in names:
            report_new_bytes(store, turns)


def run_log(turns: int, scale: float) -> None:
    rows = round(max(LEAST_LOGGED_BYTES, LOGGED_BYTES * scale) / LOGGED_ROW_BYTES)
    random = np.random.default_rng(13)
    ours, reference, spent, log_bytes = [], [], [], []
    with daemon(STORE_CACHE_BYTES, LOGGED_SHARDS, WRITE_BUFFERS_BYTES) as process:
        process.start()
        with process.connect() as server:
            server.create_table("rows", DIM, rows, durability="async")
        for turn in range(turns):
            for crashes in (turn % 2 == 0, turn % 2 == 1):
                with process.connect() as server:
                    set_some(server, rows, 1, random)
                process.end(signal.SIGKILL if crashes else signal.SIGTERM)
                (ours if crashes else reference).append(process.start())
                if crashes:
                    spent.append(process.logged("logs of async and sync tables were read", "spent_ms"))
                    log_bytes.append(process.logged("logs of async and sync tables were read", "bytes"))
    log_gb = float(np.median(log_bytes)) / 1e9
    per_gb = float(np.median(np.array(ours) / np.array(log_bytes))) * 1e9
    report(
        "log-recovery", "s", ours, reference,
        reference_name="the start after a clean stop, which makes a checkpoint",
        reference_options=f"both: an async table of {rows:,} rows of {LOGGED_ROW_BYTES} bytes in {LOGGED_SHARDS} shards, each "
        f"row SET once since the last start; ours: SIGKILL, {log_gb:.3g} GB of log, {per_gb:.2f} s/GB",
        limit="RocksDB puts each row of the log into a sorted memtable, one database after the other",
        seconds_per_gb=per_gb,
        log_gb=log_gb,
        spent_ms=float(np.median(spent)),
    )  # fmt: skip
    say(
        f"after SIGKILL {np.median(ours):.3f} s ({min(ours):.3f} to {max(ours):.3f}), {per_gb:.2f} s/GB of {log_gb:.3g} "
        f"GB of log; by the server's log reading it took {np.median(spent):g} ms (spent_ms); after a clean stop "
        f"{np.median(reference):.3f} s"
    )


def main() -> None:
    stalls = ["checkpoint-stall", "checkpoint-update-stall"]
    stores = ["checkpoint-recovery", "checkpoint-new-bytes"]
    given = options(__doc__, stalls + stores + ["log-recovery"], 9)
    if set(given.names) & set(stalls):
        run_stall(given.names, given.turns, given.seconds or 1, given.scale)
    if set(given.names) & set(stores):
        run_store(given.names, given.turns, given.scale)
    if "log-recovery" in given.names:
        run_log(min(given.turns, STARTS), given.scale)


if __name__ == "__main__":
    main()
