#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The gain of a plan on this machine, its predictions beside measured figures, and the rate of clients while tables move.

The tables are the 26 of MLPerf's recommendation benchmark, of a fiftieth of their rows; a tenth of these fit into DRAM. The machine
is measured by tools/describe-machine, for predict with the server's lookups. The profile is of a trace with other ids of the same
popularity.

real-gain: rows of GETs and bags of pooled lookups a second, as planned, beside a second server with the same bytes of DRAM that has
all tables behind the cache. They take turns with the same batches, whose ids are new. -warm: the same few batches over and over, so
that all rows are in DRAM. -split: a plan that may cut tables.

predict: `embtier plan check` while a client trains, for ten minutes (--seconds). Each figure is a measured one beside the plan's.

apply-live: 8 clients read and write 8 tables, all of which fit into the cache. A plan moves half of them into arrays, and the next
one moves them back, again and again. Reported is the clients' rate meanwhile beside that before. Each row that is read is compared
with the last number that its client wrote.

A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TypeVar

import numpy as np
from bench_daemon import ROOT, embtier, options
from bench_training import DIM
from placement_daemon import MIB, ROW_BYTES, Daemon, Mixture, daemon

BAGS = 512  # of a table and batch
DRAM_SHARE = 10  # the rows have so many times the bytes of DRAM
WARM_LOOKUPS = 10  # for each row that DRAM has room for
TRACE_LOOKUPS = 60
TURN_S = 2.0
GAIN_PARTS = 2  # of a turn: a drive of other people's, too, changes its pace within seconds
WARM_BATCHES = 8
CHECK_S = 600.0
OVERHEAD_BYTES = 8 * MIB  # of the cache: its index, and slabs that are not full

T = TypeVar("T")


def figure(name: str, unit: str, ours: float, reference: float, reference_name: str, **more: object) -> None:
    ratio = ours / reference if reference else 1.0
    whole = {
        "name": name, "unit": unit, "better": "higher", "ours": ours, "reference": reference, "reference_name": reference_name,
        "ratio": ratio, "ratio_quartiles": [ratio, ratio], "n": 1,
    } | more  # fmt: skip
    if "bar" in whole:
        whole["met"] = whole["ratio"] >= whole["bar"]
    print(json.dumps(whole), flush=True)


# ---- Clients of the mixture ----


class Trainer:
    """Looks batches up, with GETs or pooled, and may train on them."""

    def __init__(self, mixture: Mixture, server: embtier.Server, seed: int) -> None:
        self.mixture, self.random, self.step = mixture, np.random.default_rng(seed), 0
        tables = [server.open_table(name) for name in mixture.names]
        self.rows = server.batch(list(zip(tables, mixture.counts)))
        self.bags = server.bag_batch([embtier.Bags(table, count, mixture.bags) for table, count in zip(tables, mixture.counts)])
        for i in range(len(tables)):
            self.bags.offsets(i)[:] = mixture.offsets(i)

    def get(self, ids: list[np.ndarray]) -> float:
        """Returns the seconds of the request."""
        for i, of_table in enumerate(ids):
            self.rows.ids(i)[:] = of_table
        began = time.perf_counter()
        self.rows.get()
        return time.perf_counter() - began

    def look_up(self, ids: list[np.ndarray], trains: bool = False) -> float:
        """The same for a pooled lookup. @trains: and for the push after it."""
        for i, of_table in enumerate(ids):
            self.bags.ids(i)[:] = of_table
        began = time.perf_counter()
        self.bags.lookup(ticket=trains)
        if trains:
            self.step += 1
            for i in range(len(ids)):
                self.bags.gradients(i)[:] = 1e-4
            self.bags.push(0.01, self.step)
        return time.perf_counter() - began

    def train(self, batches: int) -> None:
        for _ in range(batches):
            self.look_up(self.mixture.draw(self.random), trains=True)

    def train_until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            self.train(1)


def while_training(trainer: Trainer, work: Callable[[], T], missing: T) -> T:
    """Returns the result of @work, which runs while the server is trained on. @missing: the result if @work raises SystemExit, whose
    message is lost with the thread."""
    results = [missing]
    thread = Thread(target=lambda: results.append(work()))
    thread.start()
    trainer.train_until(lambda: not thread.is_alive())
    thread.join()
    return results[-1]


def batches_for(mixture: Mixture, lookups: float) -> int:
    return max(20, round(lookups * mixture.bytes / ROW_BYTES / DRAM_SHARE / mixture.lookups))


# ---- A plan ----

FILL_IDS = 8192


def read_ids(path: Path) -> np.ndarray:
    """The tensor `ids` of a .safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + length])["ids"]["data_offsets"]
    return np.frombuffer(data[8 + length + begin : 8 + length + end], np.uint64)


def fill_arrays(planned: Daemon, server: embtier.Server, plan: Path, trace: Path) -> None:
    """Looks each row up that the plan has in an array. They would come into memory with their first lookups, the coldest ones late."""
    saved = planned.folder / "hot.safetensors"
    for table in planned.embtier("plan", "show", plan)["tables"]:
        count = sum(part["rows"] for part in table["parts"] if part["home"] == "array")
        ids = np.arange(count, dtype=np.uint64)
        if 0 < count < table["rows"]:
            saved.unlink(missing_ok=True)
            planned.embtier("trace", "hottest", trace, "--table", table["name"], "--rows", str(count), "--save", saved)
            ids = read_ids(saved)
        for some in np.array_split(ids, -(-len(ids) // FILL_IDS)) if count else []:
            server.open_table(table["name"]).get(some)


def store_amplification(made: Daemon, trainer: Trainer, seconds: float) -> float:
    """Trains for so long, and measures the second half: before compactions of all levels have begun, the figure is near 1."""
    until = time.monotonic() + seconds / 2
    trainer.train_until(lambda: time.monotonic() >= until)
    measured = while_training(trainer, lambda: made.embtier("endurance", "--interval", str(max(1, round(seconds / 2)))), {})
    if not measured:
        sys.exit("bench_placement: `embtier endurance` failed, so there is no store amplification")
    return max(measured["store_amplification"] or 1, 1)


def describe_machine(made: Daemon, trainer: Trainer, dram_bytes: int, seconds: float) -> str:
    """@seconds: for which the server's lookups are measured, while it is trained on; 0: memory and drive alone are."""
    command = [ROOT / "tools/describe-machine", "--directory", made.folder, f"--tier=dram={dram_bytes}"]
    if seconds:
        command += ["--socket", made.socket, "--for", str(seconds), "--embtier", made.cli]

    def work() -> str:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    return while_training(trainer, work, "") if seconds else work()


def make_plan(made: Daemon, trainer: Trainer, mixture: Mixture, is_row_wise: bool, seconds: float) -> tuple[Path, Path, int]:
    """Makes a plan from the warm server @made, which has all tables behind the cache. Returns its file, the trace's, and the bytes
    for arrays. @seconds: for which writes are measured; 0 takes those of the warm-up."""
    folder = made.folder
    trace, profile, machine, rules = (folder / name for name in ("run.trace", "run.profile", "machine.yaml", "rules.yaml"))
    plan = folder / ("rows.plan" if is_row_wise else "tables.plan")
    if not profile.exists():
        mixture.write_trace(trace, batches_for(mixture, TRACE_LOOKUPS), seed=2)
        made.embtier("profile", "show", trace, "--optimizer", "sgd", "--save", profile)
        used = int(made.embtier("stats")["metrics"]["cache_used_bytes"]["dram"])
        if seconds:
            amplification = store_amplification(made, trainer, seconds)
        else:
            amplification = max(made.embtier("endurance")["store_amplification"] or 1, 1)
        measured = describe_machine(made, trainer, used, seconds / 4)
        measured = measured.replace("\nlanes: ", "\n# lanes: ")  # the tier has bytes of rows alone
        machine.write_text(f"{measured}  write_amplification: {amplification:.3f}\n")
        rules.write_text(f"cache_least:\n  - {{memory: dram, bytes: {min(4 * MIB, used // 2)}}}\n")
    made.embtier(
        "plan", "make", plan, "--profile", profile, "--machine", machine, "--rules", rules, "--optimizer", "sgd",
        *["--row-wise"] * is_row_wise,
    )  # fmt: skip
    shown = made.embtier("plan", "show", plan)
    return plan, trace, sum(memory["array_bytes"] for memory in shown["memories"] if memory["name"] == "dram")


@contextmanager
def reference_server(mixture: Mixture) -> Iterator[tuple[Daemon, Trainer]]:
    """All tables behind the cache, which is warm."""
    with daemon(mixture.bytes // DRAM_SHARE + OVERHEAD_BYTES) as made:
        made.start()
        with made.connect() as server:
            mixture.create(server)
            trainer = Trainer(mixture, server, seed=1)
            trainer.train(batches_for(mixture, WARM_LOOKUPS))
            yield made, trainer


@contextmanager
def planned_server(
    made: Daemon, reference: Trainer, mixture: Mixture, is_row_wise: bool, seconds: float
) -> Iterator[tuple[Daemon, Path, Trainer]]:
    """A second server, with the same bytes of DRAM and the tables as planned. It is warm."""
    plan, trace, array_bytes = make_plan(made, reference, mixture, is_row_wise, seconds)
    with daemon(made.tier_bytes) as planned:
        planned.start(array_bytes)
        with planned.connect() as server:
            mixture.create(server)
            planned.embtier("apply", plan, "--trace", trace)
            fill_arrays(planned, server, plan, trace)
            trainer = Trainer(mixture, server, seed=1)
            trainer.train(batches_for(mixture, WARM_LOOKUPS))
            yield planned, plan, trainer


# ---- real-gain ----


class Side:
    """One of both servers, with its rates and its misses."""

    def __init__(self, server: Daemon, request: Callable[[list[np.ndarray]], float]) -> None:
        self.server, self.request = server, request
        self.rates, self.batches, self.read_before = [], 0, self.rows_read()

    def rows_read(self) -> int:
        return int(self.server.embtier("stats")["metrics"]["store_rows_read"])

    def run(self, drawn: Batches, amount: int, seconds: float) -> None:
        spent, done = 0.0, 0
        while spent < seconds:
            spent += self.request(drawn[done])
            done += 1
        self.rates.append(amount * done / spent)
        self.batches += done

    def miss_share(self, lookups: int) -> float:
        return (self.rows_read() - self.read_before) / (lookups * self.batches)


class Batches:
    """Batches, the same for both servers: each has new ids, or there are WARM_BATCHES, over and over."""

    def __init__(self, draw: Callable[[], list[np.ndarray]], are_new: bool) -> None:
        self.draw, self.are_new, self.drawn = draw, are_new, []

    def __getitem__(self, i: int) -> list[np.ndarray]:
        if not self.are_new:
            i %= WARM_BATCHES
        while len(self.drawn) <= i:
            self.drawn.append(self.draw())
        return self.drawn[i]


def report_gain(name: str, unit: str, pairs: list[tuple[float, float]], mixture: Mixture, limit: str) -> None:
    ratios = [ours / theirs for ours, theirs in pairs]
    figure(
        name, unit, statistics.median(ours for ours, _ in pairs), statistics.median(theirs for _, theirs in pairs),
        "all tables behind the cache, the same bytes of DRAM",
        reference_options=f"{len(mixture.rows)} tables of {sum(mixture.rows):,} rows, {DRAM_SHARE} times DRAM, {mixture.bags} bags a table",
        ratio=statistics.median(ratios), ratio_quartiles=np.quantile(ratios, [0.25, 0.75]).tolist(), n=len(pairs), bar=1.0, limit=limit,
    )  # fmt: skip


def real_gain(mixture: Mixture, made: Daemon, reference: Trainer, planned: Daemon, trainer: Trainer, given: argparse.Namespace, end: str) -> None:
    seconds = min(given.seconds or TURN_S, TURN_S) / GAIN_PARTS
    fresh = np.random.default_rng(3)
    kinds = [("rows", " rows/s", mixture.lookups, "get"), ("bags", " bags/s", mixture.bags * len(mixture.rows), "look_up")]
    for (name, unit, amount, request), are_new in itertools.product(kinds, (True, False)):
        sides = [Side(server, getattr(client, request)) for server, client in ((planned, trainer), (made, reference))]
        drawn = Batches(lambda: mixture.draw(fresh), are_new)
        for turn in range(given.turns * GAIN_PARTS):
            if are_new:
                drawn = Batches(lambda: mixture.draw(fresh), are_new)
            for side in sides if turn % 2 == 0 else sides[::-1]:
                side.run(drawn, amount, seconds)
        misses = [100 * side.miss_share(mixture.lookups) for side in sides]
        limit = f"reads of SSD: {misses[0]:.2f} % of the lookups as planned, {misses[1]:.2f} % beside"
        report_gain(f"real-gain-{name}{end}{'' if are_new else '-warm'}", unit, list(zip(sides[0].rates, sides[1].rates)), mixture, limit)


# ---- predict ----


def predict(planned: Daemon, plan: Path, trainer: Trainer, seconds: float) -> None:
    result = while_training(trainer, lambda: planned.embtier("plan", "check", plan, "--for", f"{seconds}s", codes=(0, 1, 2)), {})
    if not result:
        print(f"bench_placement: no figure: {seconds:g} s are too short", file=sys.stderr)
        return
    print(json.dumps(result), file=sys.stderr)
    lines = {line["name"]: line for line in result["memories"]}
    for name, unit, memory, kind, bar, factor in (
        ("predict-hits", " %", "dram", "hit_rate", 0.02, 100),
        ("predict-time-dram", " us", "dram", "time_s", 0.15, 1e6),
        ("predict-time-ssd", " us", "ssd", "time_s", 0.15, 1e6),
        ("predict-reads", " blocks/s", "ssd", "reads_per_s", 0.15, 1),
        ("predict-written", " B/h", "ssd", "written_bytes_per_hour", 0.10, 1),
    ):
        got = lines[memory][kind]
        compared = [line for line in result["tables"] if line.get(kind, {}).get("state") == "compared"]
        beyond = [line["name"] for line in compared if line[kind]["beyond"]]
        if got["state"] == "compared":
            figure(
                name, unit, factor * got["measured"], factor * got["predicted"], "the plan's prediction",
                reference_options=f"{seconds:g} s, {result['lookups']:,} lookups", tolerance=bar,
                met=not got["beyond"] and (kind != "hit_rate" or not beyond),
                limit=f"{len(beyond)} of {len(compared)} tables are beyond: {', '.join(beyond)}",
            )  # fmt: skip
        else:
            print(f"bench_placement: {name}: {got['state']}", file=sys.stderr)


# ---- apply-live ----

CLIENTS = 8
LIVE_TABLES, LIVE_ROWS = 8, 100_000
LIVE_IDS = 2048
CHECKED = 10_000_000  # rows that are read and compared
HOMES = [{"home": "array", "tier": "dram"}, {"home": "cache"}]


def run_client(socket: str, number: int, rows: int, counts: np.ndarray, is_over: object) -> None:
    """Reads and writes rows of its own: ids that leave @number when divided by the clients. Columns of a row are all its version.
    @counts: rows read or written, rows compared, and rows that were wrong."""
    random = np.random.default_rng(number)
    ids = np.arange(number, rows, CLIENTS, dtype=np.uint64)
    versions = np.zeros((LIVE_TABLES, len(ids)), np.float32)
    count = min(LIVE_IDS, len(ids))
    with embtier.connect(socket, arena_bytes=32 * MIB, timeout=0) as server:
        tables = [server.open_table(f"t{i}") for i in range(LIVE_TABLES)]
        batches = [server.batch([(table, count)]) for table in tables]
        while not is_over.value:
            i = int(random.integers(LIVE_TABLES))
            at = random.choice(len(ids), count, replace=False)
            batches[i].ids(0)[:] = ids[at]
            if random.random() < 0.25:
                versions[i, at] += 1
                batches[i].rows(0)[:] = versions[i, at][:, None]
                batches[i].set()
            else:
                got = batches[i].get().rows(0)
                counts[1] += count
                counts[2] += int((got != versions[i, at][:, None]).any(axis=1).sum())
            counts[0] += count


def live_plan(folder: Path, rows: int, generation: int) -> Path:
    """A plan by hand. In every other generation the first half of the tables has arrays, and else none."""
    path = folder / f"{generation}.plan"
    tables = []
    for i in range(LIVE_TABLES):
        has_array = i < LIVE_TABLES // 2 and generation % 2 == 0
        part = {"rows": rows, "lookup_share": 1.0, "time_s": 1e-6, "reads_per_s": 0, "writes_bytes_per_day": 0} | HOMES[not has_array]
        part |= {"bytes": rows * ROW_BYTES} if has_array else {"hit_rates": [0.5], "cache_bytes": [0]}
        tables.append(
            {"name": f"t{i}", "rows": rows, "dim": DIM, "dtype": "f32", "optimizer": "none", "read_bytes": 1000, "parts": [part]}
        )
    one = {"bandwidth_bytes_per_s": 1e9, "read_bytes": 0, "time_s": 0, "cache_bytes": 0, "capacity_bytes": 1 << 40}
    whole = rows * ROW_BYTES * LIVE_TABLES
    arrays = sum(part.get("bytes", 0) for table in tables for part in table["parts"])
    plan = {
        "format": "embtier-plan", "version": 1, "generation": generation, "samples_per_s": 1000, "samples_per_batch": 100,
        "time_s": 1e-3, "gpu_count": 0, "table_count": LIVE_TABLES,
        "memories": [{"name": "dram", **one, "array_bytes": arrays}, {"name": "ssd", **one, "array_bytes": whole}], "tables": tables,
    }  # fmt: skip
    path.write_text(json.dumps(plan))
    return path


def apply_live(given: argparse.Namespace) -> None:
    rows = max(4000, round(LIVE_ROWS * given.scale))
    arrays = (LIVE_TABLES // 2) * (rows * (ROW_BYTES + 8) + 4 * MIB)
    context = multiprocessing.get_context("fork")
    counts = np.frombuffer(context.RawArray("Q", 3 * CLIENTS), np.uint64).reshape(CLIENTS, 3)
    is_over = context.Value("b", 0)
    with daemon(arrays + round(LIVE_TABLES * rows * ROW_BYTES * 1.35) + OVERHEAD_BYTES) as made:
        made.start(arrays)
        with made.connect() as server:
            for i in range(LIVE_TABLES):
                table = server.create_table(f"t{i}", DIM, rows, init="zeros", eager=True)
                for ids in np.array_split(np.arange(rows), max(1, rows // 8192)):
                    table.get(ids)
        clients = [
            context.Process(target=run_client, args=(made.socket, n, rows, counts[n], is_over), daemon=True) for n in range(CLIENTS)
        ]
        for client in clients:
            client.start()

        def done() -> float:
            if not all(client.is_alive() for client in clients):
                sys.exit("bench_placement: a client ended; its message is above")
            return float(counts[:, 0].sum())

        pairs, moved, planned, generation = [], 0, 0, 1
        made.embtier("apply", live_plan(made.folder, rows, generation))
        time.sleep(TURN_S)
        while len(pairs) < given.turns or counts[:, 1].sum() < CHECKED * given.scale:
            generation += 1
            plan = live_plan(made.folder, rows, generation)
            first, began = done(), time.perf_counter()
            time.sleep(TURN_S)
            rest = (done() - first) / (time.perf_counter() - began)
            first, began = done(), time.perf_counter()
            said = made.embtier("apply", plan)
            applied = (done() - first) / (time.perf_counter() - began)
            moved, planned = moved + said["moved_rows"] * ROW_BYTES, planned + said["bytes"]
            pairs.append((applied, rest))
        is_over.value = 1
        for client in clients:
            client.join()
    ratios = [ours / theirs for ours, theirs in pairs]
    _, compared, wrong = (int(total) for total in counts.sum(axis=0))
    share = moved / planned
    ratio = statistics.median(ratios)
    figure(
        "apply-live", " rows/s", statistics.median(ours for ours, _ in pairs), statistics.median(theirs for _, theirs in pairs),
        "the same clients while no table moves",
        reference_options=f"{CLIENTS} clients, {LIVE_TABLES} tables of {rows:,} rows; a quarter of the requests are SETs",
        ratio=ratio, ratio_quartiles=np.quantile(ratios, [0.25, 0.75]).tolist(), n=len(pairs), bar=0.8,
        met=ratio >= 0.8 and wrong == 0 and share <= 1.1,
        limit=f"{wrong} of {compared:,} compared rows wrong; moved {share:.3f} of the planned bytes, {moved / MIB:,.0f} MiB",
    )  # fmt: skip


def main() -> None:
    given = options(__doc__, ["real-gain", "real-gain-split", "predict", "apply-live"], 9)
    mixture = Mixture(given.scale, max(4, round(BAGS * given.scale)))
    check_s = (given.seconds or CHECK_S * min(given.scale, 1)) if "predict" in given.names else 0
    if {"real-gain", "real-gain-split", "predict"} & {*given.names}:
        with reference_server(mixture) as (made, reference):
            for is_row_wise, gain in ((False, "real-gain"), (True, "real-gain-split")):
                if gain not in given.names and (is_row_wise or "predict" not in given.names):
                    continue
                with planned_server(made, reference, mixture, is_row_wise, check_s) as (planned, plan, trainer):
                    if gain in given.names:
                        real_gain(mixture, made, reference, planned, trainer, given, "-split" * is_row_wise)
                    if "predict" in given.names and not is_row_wise:
                        predict(planned, plan, trainer, check_s)
    if "apply-live" in given.names:
        apply_live(given)


if __name__ == "__main__":
    main()
