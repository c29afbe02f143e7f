# SPDX-License-Identifier: Apache-2.0
"""`embtier plan check` compares a plan with the server while clients play a trace: within its bars for the trace that the plan was
made from, beyond them for another one. It names tables that are not as planned, and compares nothing that too little was counted
for."""

from __future__ import annotations

import functools
import json
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, LANES

import embtier

DIM, ROWS, BATCH = 64, 60_000, 2048
TABLES = ["array", "steep", "flat"]
SKEWS = {"array": 0.9, "steep": 1.05, "flat": 0.6}
LIMIT_S = 60
MIB = 1 << 20
TABLE_BYTES = 16 * MIB  # of an array: whole slabs
OVERHEAD_MIB = 4  # of the cache: its index, and slabs that are not full
CACHE_MIB, ARRAY_MIB = 20, 20
# Times and bytes depend on the machine that runs the test; hit rates and reads on the trace alone.
ANY = ["--time-percent", "1e9", "--written-percent", "1e9"]


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    dram = daemon.dram(LANES) | {"bytes": f"{CACHE_MIB + ARRAY_MIB}MiB", "array_bytes": f"{ARRAY_MIB}MiB"}
    daemon.configure({"cache": {"tiers": [dram]}})
    daemon.start()
    with daemon.connect() as server:
        for name in TABLES:
            server.create_table(name, DIM, ROWS, optimizer="sgd")
    return daemon


@functools.cache
def trace_of(skew: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, ROWS + 1) ** skew
    return rng.permutation(ROWS)[rng.choice(ROWS, (400, BATCH), p=chances / chances.sum())]


class Player:
    """A client that plays a trace over and over: the same lookups each time, of all tables."""

    def __init__(self, daemon, skews: dict[str, float], seed: int = 1) -> None:
        self.ids = {name: trace_of(skews[name], seed + number) for number, name in enumerate(sorted(skews))}
        self.daemon, self.stop, self.rounds, self.errors = daemon, threading.Event(), 0, []
        self.thread = threading.Thread(target=self.play)

    def play(self) -> None:
        try:
            with self.daemon.connect(timeout=LIMIT_S) as server:
                tables = [(server.open_table(name), self.ids[name]) for name in self.ids]
                while not self.stop.is_set():
                    for table, ids in tables:
                        table.get(ids[self.rounds % len(ids)])
                    self.rounds += 1
        except embtier.EmbtierError as error:
            self.errors.append(error)

    def await_rounds(self, rounds: int) -> None:
        until = self.rounds + rounds
        pause = threading.Event()
        for _ in range(4 * LIMIT_S * 100):  # a sanitizer on a busy machine needs minutes for some hundred rounds
            if self.rounds >= until or self.errors:
                break
            pause.wait(0.01)
        assert not self.errors and self.rounds >= until

    def __enter__(self) -> Player:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop.set()
        self.thread.join()
        assert not self.errors


def run(daemon, *arguments: str | Path, code: int | None = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([str(CLI), "-s", daemon.socket, "-t", "0", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S)
    assert code is None or done.returncode == code, done
    return done


def check(daemon, plan: Path, *arguments: str, code: int | None = 0) -> dict:
    return json.loads(run(daemon, "plan", "check", plan, "--json", *arguments, code=code).stdout)


def all_compared(checked: dict) -> bool:
    figures = [line_of(checked, name)[figure] for name in TABLES for figure in ("hit_rate", "time_s")]
    return all(figure["state"] == "compared" for figure in [*figures, line_of(checked, "ssd")["reads_per_s"]])


def check_enough(daemon, plan: Path, *arguments: str) -> dict:
    """A slow machine needs a longer window for as many lookups."""
    for seconds in (3, 6, 12, 24):
        checked = check(daemon, plan, "--for", f"{seconds}s", *arguments, code=None)
        if all_compared(checked):
            break
    return checked


def make_plan(daemon, folder: Path) -> Path:
    """The plan from a profile of the trace; one table is to be an array."""
    machine, rules, profile, plan = (folder / name for name in ("machine.yaml", "rules.yaml", "run.profile", "run.plan"))
    tier = {"name": "dram", "bytes": (CACHE_MIB - OVERHEAD_MIB) * MIB + TABLE_BYTES, "bandwidth_bytes_per_s": 1e10}
    ssd = {"bytes": 1 << 40, "read_bandwidth_bytes_per_s": 1e9}
    machine.write_text(json.dumps({"tiers": [tier], "ssd": ssd}))
    pins = [{"table": name, "memory": "dram" if name == "array" else "cache"} for name in TABLES]
    rules.write_text(json.dumps({"pin": pins}))
    with Player(daemon, SKEWS) as player:
        player.await_rounds(20)
        run(daemon, "profile", "start")
        player.await_rounds(800)
        run(daemon, "profile", "stop", "--save", profile)
    run(daemon, "plan", "make", plan, "--profile", profile, "--machine", machine, "--rules", rules, "--optimizer", "sgd")
    return plan


@pytest.fixture(scope="module")
def plans_made() -> list[bytes]:
    """The plan, once a test has made it: it depends on the trace only, so the servers of all tests can take it."""
    return []


@pytest.fixture
def plan(daemon, tmp_path, plans_made):
    plan = tmp_path / "run.plan"
    if plans_made:
        plan.write_bytes(plans_made[0])
    else:
        plans_made.append(make_plan(daemon, tmp_path).read_bytes())
    run(daemon, "apply", plan)
    return plan


def line_of(checked: dict, name: str) -> dict:
    return next(line for line in checked["tables"] + checked["memories"] if line["name"] == name)


def test_the_trace_of_the_plan_is_within_its_bars(daemon, plan):
    with Player(daemon, SKEWS) as player:
        player.await_rounds(450)  # all of the trace: the array has its rows
        checked = check_enough(daemon, plan, "--hit-points", "8", "--iops-percent", "80", *ANY)
    assert checked["within"] and checked["beyond"] == 0 and checked["misplaced"] == 0
    for name in TABLES:
        line = line_of(checked, name)
        assert line["place"] == "as_planned" and line["hit_rate"]["state"] == line["time_s"]["state"] == "compared"
        assert line["time_s"]["measured"] > 0
    assert line_of(checked, "array")["actual"] == "dram" and line_of(checked, "array")["hit_rate"]["predicted"] == 1
    assert 0.1 < line_of(checked, "flat")["hit_rate"]["measured"] < line_of(checked, "steep")["hit_rate"]["measured"] < 1
    reads = line_of(checked, "ssd")["reads_per_s"]
    assert reads["state"] == "compared" and reads["measured"] > 0
    assert abs(line_of(checked, "dram")["hit_rate"]["measured"] + line_of(checked, "ssd")["hit_rate"]["measured"] - 1) < 0.02


def test_another_trace_is_beyond_the_bars(daemon, plan):
    with daemon.connect() as server:
        server.open_table("array").get(np.arange(ROWS))  # an array reads a row when it is first looked up
    with Player(daemon, dict.fromkeys(TABLES, 0.0)) as player:
        player.await_rounds(50)
        checked = check_enough(daemon, plan, *ANY)
        for seconds in (1, 3, 6, 12, 24):
            shown = run(daemon, "plan", "check", plan, "--for", f"{seconds}s", *ANY, code=None)
            if "pt!" in shown.stdout:
                break
    assert not checked["within"] and line_of(checked, "steep")["hit_rate"]["beyond"]
    assert line_of(checked, "steep")["hit_rate"]["difference"] < -15
    assert not line_of(checked, "array")["hit_rate"]["beyond"]  # whatever is looked up
    assert shown.returncode == 1 and "pt!" in shown.stdout and "beyond 2 points" in shown.stdout


def test_no_traffic_is_told_and_not_compared(daemon, plan):
    done = run(daemon, "plan", "check", plan, "--for", "0.5s", code=2)
    assert "too little traffic to compare anything: 0 lookups" in done.stderr and "too few" in done.stdout
    checked = json.loads(run(daemon, "plan", "check", plan, "--for", "0.5", "--json", code=2).stdout)
    assert checked["compared"] == 0 and not checked["within"]
    assert {line["hit_rate"]["state"] for line in checked["tables"]} == {"too_few"}
    assert line_of(checked, "steep")["hit_rate"]["difference"] is None


def test_tables_that_are_not_as_planned_are_named(daemon, plan):
    run(daemon, "table", "move", "array", "--home", "cache")
    with daemon.connect() as server:
        server.drop_table("flat")
        server.create_table("extra", DIM, ROWS)
    checked = check(daemon, plan, "--for", "0.5s", code=1)
    assert {line["name"]: line["place"] for line in checked["tables"]} == {
        "array": "elsewhere", "steep": "as_planned", "flat": "missing", "extra": "unplanned",
    }  # fmt: skip
    assert "hit_rate" not in line_of(checked, "array") and checked["misplaced"] == 2
    text = run(daemon, "plan", "check", plan, "--for", "0.5s", code=1).stdout
    assert "table array: its home is cache, and the plan's is dram" in text
    assert "table flat: the server does not have it" in text and "table extra: the plan does not have it" in text


def test_failures_have_their_own_exit_status(daemon, plan, tmp_path):
    assert "--for soon" in run(daemon, "plan", "check", plan, "--for", "soon", code=2).stderr
    assert "allowed" in run(daemon, "plan", "check", plan, "--hit-points", "-1", code=2).stderr
    (tmp_path / "no.plan").write_text("format: other\n")
    run(daemon, "plan", "check", tmp_path / "no.plan", code=2)
    run(daemon, "table", "move", "array", "--home", "cache")  # the status would be 1
    with open("/dev/full", "w") as full:
        for options in ([], ["--json"]):
            command = [str(CLI), "-s", daemon.socket, "plan", "check", str(plan), "--for", "0.5s", *options]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 2 and "cannot write the output" in done.stderr, done
    daemon.stop()
    assert "embtier: " in run(daemon, "plan", "check", plan, "--for", "1s", code=2).stderr
