# SPDX-License-Identifier: Apache-2.0
"""`embtier apply` moves tables to where a plan wants them while clients work, in an order that fits. However it ends, each table is
whole in its old or its new home, and a further run goes on. An older plan, or a second one at the same time, changes nothing."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, LANES, SANITIZED

import embtier

DIM, ROWS = 24, 5000
TABLES = ["a", "b", "c", "d", "e"]
LIMIT_S = 60
SLABS = {"dram": 2, "pmem": 3}  # the arrays of as many tables fit
SLAB = 2 << 20
SLOWLY = 0.008  # MiB of rows a second: a minute for a table, so that it can be met on its way
IDS = np.arange(ROWS)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    dram, pmem = (2 * SLABS[tier] for tier in ("dram", "pmem"))
    daemon.configure(
        {
            "cache": {
                "tiers": [
                    daemon.dram(LANES) | {"bytes": f"{4 * LANES + dram}MiB", "array_bytes": f"{dram}MiB"},
                    daemon.pmem(LANES) | {"bytes": f"{2 * LANES + pmem}MiB", "array_bytes": f"{pmem}MiB"},
                ]
            }
        }
    )
    daemon.start()
    with daemon.connect() as server:
        for name in TABLES:
            server.create_table(name, DIM, ROWS, optimizer="sgd").set(IDS, np.full((ROWS, DIM), ord(name)))
    return daemon


def parts_of(home: str) -> list[dict]:
    """The parts of a table. "dram:100" has its 100 hottest rows there, and the rest in the cache; more parts come before these."""
    names = [part.partition(":") for part in home.split("+")]
    if names[-1][1]:
        names.append(("cache", "", ""))
    parts, left = [], ROWS
    for name, _, count in names:
        rows = int(count or left)
        left -= rows
        part = {"rows": rows, "lookup_share": 1 / len(names), "time_s": 1e-6, "reads_per_s": 0, "writes_bytes_per_day": 0}
        if name == "cache":
            parts.append({"home": "cache", **part, "hit_rates": [0.5, 0.25], "cache_bytes": [0, 0]})
        else:
            where = {"home": "hbm"} if name == "hbm" else {"home": "array", "tier": name}
            parts.append({**where, **part, "bytes": rows * (DIM * 4 + 16 * (len(names) > 1))})
    return parts


def text_of(homes: dict[str, str], generation: int, **changes) -> str:
    """A plan's file, as JSON, which is YAML too."""
    parts = {name: parts_of(home) for name, home in homes.items()}
    used = dict.fromkeys(("hbm", "dram", "pmem", "cache"), 0)
    for part in itertools.chain(*parts.values()):
        used[part.get("tier", part["home"])] += part.get("bytes", 0)
    gpus = int(used["hbm"] > 0)
    one = {"bandwidth_bytes_per_s": 1e9, "read_bytes": 0, "time_s": 0, "cache_bytes": 0, "capacity_bytes": 1 << 40}
    memories = [{"name": "hbm", "gpu": 0, **one, "array_bytes": used["hbm"]}] * gpus
    memories += [{"name": tier, **one, "array_bytes": used[tier]} for tier in ("dram", "pmem")]
    memories += [{"name": "ssd", **one, "array_bytes": ROWS * (DIM + 1) * 12 * len(homes)}]
    plan = {
        "format": "embtier-plan", "version": 1, "generation": generation, "samples_per_s": 1000, "samples_per_batch": 100,
        "time_s": 1e-3, "gpu_count": gpus, "table_count": len(homes), "memories": memories,
        "tables": [
            {"name": name, "rows": ROWS, "dim": DIM, "dtype": "f32", "optimizer": "sgd", "read_bytes": 1000, "parts": parts[name]}
            | ({"gpu": 0} if gpus else {}) | changes
            for name in homes
        ],
    }  # fmt: skip
    return json.dumps(plan)


def write(folder: Path, homes: dict[str, str], generation: int = 1, **changes) -> Path:
    path = folder / f"{generation}-{len(list(folder.glob('*.plan')))}.plan"
    path.write_text(text_of(homes, generation, **changes))
    return path


def command(daemon, *arguments: str | Path) -> list[str]:
    # Without a limit of the client's own, as a busy server may say nothing for long.
    return [str(CLI), "-s", daemon.socket, "-t", "0", *map(str, arguments)]


def apply(daemon, *arguments: str | Path) -> dict:
    done = subprocess.run(command(daemon, "-o", "json", "apply", *arguments), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(daemon, *arguments: str | Path, code: int = 1) -> str:
    done = subprocess.run(command(daemon, "apply", *arguments), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == code and done.stdout == "", done
    return done.stderr


def write_lines(folder: Path, homes: dict[str, str], generation: int = 1, **changes) -> list[Path]:
    """The plan with a line for each key of a table, in JSON and in YAML."""
    plan = json.loads(text_of(homes, generation, **changes))
    lines = [f"{key}: {json.dumps(value)}" for key, value in plan.items() if key != "tables"] + ["tables:"]
    for table in plan["tables"]:
        lines += [f"  {' ' if i else '-'} {key}: {json.dumps(value)}" for i, (key, value) in enumerate(table.items())]
    paths = [write(folder, homes, generation), write(folder, homes, generation)]
    paths[0].write_text(json.dumps(plan, indent=1))
    paths[1].write_text("\n".join(lines) + "\n")
    return paths


def edit(paths: list[Path], old: str, new: str) -> list[Path]:
    for path in paths:
        text = re.sub(old, new, path.read_text())
        assert text != path.read_text(), path
        path.write_text(text)
    return paths


def place(plan: Path, key: str, value: object) -> str:
    """The head of a message about a key: file, line and key. The first line that gives it this value is the line."""
    wanted = re.compile(rf'\b{key.split(".")[-1]}"?: {json.dumps(value)}')
    line = next(i for i, text in enumerate(plan.read_text().split("\n"), 1) if wanted.search(text))
    return f"{plan}:{line}: {key}: "


def write_trace(folder: Path, hot: dict[str, Iterable[int]], others: Iterable[int] = IDS) -> Path:
    """A trace in which the rows @hot are looked up more often than the @others."""
    path = folder / f"{len(list(folder.glob('*.trace')))}.trace"
    with embtier.TraceWriter(path, [embtier.TraceTable(name, DIM, rows=ROWS) for name in hot]) as trace:
        for name, ids in hot.items():
            trace.add(name, np.concatenate([np.repeat(list(ids), 3), list(others)]).astype(np.uint64))
        trace.next_batch()
    return path


def homes_of(daemon) -> dict[str, str]:
    """By table, as in parts_of()."""
    with daemon.connect(timeout=LIMIT_S) as server:
        return {spec.name: f"{spec.tier}:{spec.hot_rows}" if spec.home == "split" else spec.tier or spec.home for spec in server.tables()}


def check_rows(daemon) -> None:
    with daemon.connect(timeout=LIMIT_S) as server:
        for name in TABLES:
            assert (server.open_table(name).get(IDS) == ord(name)).all(), name


def await_that(is_so) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def moves_of(daemon) -> list[dict]:
    listed = subprocess.run(command(daemon, "-o", "json", "jobs"), capture_output=True, check=True, timeout=LIMIT_S)
    return [job for job in json.loads(listed.stdout) if job["kind"] == "table move"]


def moving(daemon) -> list[str]:
    """The tables of which some rows have moved."""
    return [job["what"] for job in moves_of(daemon) if job["done"] > 0]


def cancel_a_move(daemon) -> None:
    """Cancels the move that runs. The next one may have taken its place in the meantime."""

    def is_cancelled(job: dict) -> bool:
        return subprocess.run(command(daemon, "jobs", "cancel", str(job["id"])), capture_output=True, timeout=LIMIT_S).returncode == 0

    await_that(lambda: any(is_cancelled(job) for job in moves_of(daemon)))


def begin_slowly(daemon, plan: Path) -> subprocess.Popen:
    """Applies a plan so slowly that a table is on its way."""
    process = subprocess.Popen(
        command(daemon, "apply", plan, "--rate", str(SLOWLY)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    await_that(lambda: moving(daemon) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process


FIRST = {"a": "dram", "b": "dram", "c": "pmem", "d": "pmem", "e": "cache"}
SECOND = {"a": "pmem", "b": "cache", "c": "dram", "d": "dram", "e": "pmem"}
# With both, all tiers are full.
FULL = [{"a": "dram", "b": "dram", "c": "pmem", "d": "pmem", "e": "pmem"}, {"a": "pmem", "b": "pmem", "c": "dram", "d": "dram", "e": "pmem"}]


# Tables become splits and end being splits, in each tier and in each order.
CUT = [
    {"a": "dram:2000", "b": "dram", "c": "pmem:2400", "d": "cache", "e": "pmem:100"},
    {"a": "pmem", "b": "pmem:1500", "c": "dram:2000", "d": "dram:1", "e": "cache"},
]


def test_a_dry_run_shows_all_and_changes_nothing(daemon, tmp_path):
    plan = write(tmp_path, FIRST)
    shown = apply(daemon, plan, "--dry-run")
    assert not shown["applied"] and shown["generation"] == 1 and shown["same"] == 1 and shown["unplanned"] == 0
    assert {move["table"]: move["to"]["tier"] for move in shown["moves"]} == {k: v for k, v in FIRST.items() if v != "cache"}
    assert all(move["from"] == {"home": "cache", "tier": None} for move in shown["moves"])
    assert all(move["bytes"] == ROWS * DIM * 4 and move["array_bytes"] == SLAB for move in shown["moves"])
    text = subprocess.run(command(daemon, "apply", plan, "--dry-run", "--rate", "1"), capture_output=True, text=True, check=True).stdout
    assert "nothing was moved; tables to move: 4, at most" in text and "at 1.0 MiB/s" in text
    assert text.endswith("\n") and "\\n" not in text  # it is one line after the other
    assert set(homes_of(daemon).values()) == {"cache"}


@pytest.mark.parametrize("plans", [FULL, CUT], ids=["full", "cut"])
def test_plans_one_after_the_other_while_clients_push(daemon, tmp_path, plans):
    """Tables of full tiers change places, or are cut by hotness. No push is lost, and each row is there at all times."""
    trace = write_trace(tmp_path, {name: range(i, ROWS, 2) for i, name in enumerate(TABLES)})
    pushes, is_over, errors = dict.fromkeys(TABLES, 0), threading.Event(), []

    def work(name: str, seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            with daemon.connect(timeout=LIMIT_S) as server:
                table = server.open_table(name)
                while not is_over.is_set():
                    with server.push_batch([(table, ROWS)]) as batch:
                        batch.ids(0)[:] = rng.permutation(ROWS)
                        batch.gradients(0)[:] = -1
                        batch.push(lr=1.0, step=pushes[name] + 1)
                    pushes[name] += 1
                    assert (table.get(rng.integers(ROWS, size=500)) == ord(name) + pushes[name]).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name, i)) for i, name in enumerate(TABLES)]
    for thread in threads:
        thread.start()
    try:
        await_that(lambda: min(pushes.values()) > 0 or errors)
        for generation in range(1, 4 if SANITIZED else 7):
            before, wanted = dict(pushes), plans[generation % 2]
            done = apply(daemon, write(tmp_path, wanted, generation), "--rate", "100000", "--trace", trace)
            assert done["applied"] and homes_of(daemon) == wanted
            if generation > 1 and plans is FULL:
                assert done["detours"] > 0 and len(done["moves"]) == 4 and done["same"] == 1
            await_that(lambda: all(pushes[name] > before[name] for name in TABLES) or errors)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert not errors, errors
    daemon.restart()
    assert homes_of(daemon) == wanted
    with daemon.connect() as server:
        for name in TABLES:
            assert (server.open_table(name).get(IDS) == ord(name) + pushes[name]).all(), name


def test_an_older_plan_or_another_of_the_same_generation_is_refused(daemon, tmp_path):
    plan = write(tmp_path, FIRST, 5)
    assert apply(daemon, plan)["applied"]
    again = apply(daemon, plan)  # a repeated run has nothing to do
    assert again["applied"] and again["moves"] == [] and again["same"] == 5 and again["bytes"] == 0
    spaced = tmp_path / "spaced.plan"
    spaced.write_text("# a comment\n" + plan.read_text().replace(", ", ",   "))
    assert apply(daemon, spaced)["applied"], "the same plan in other words"
    for wait in (lambda: None, daemon.restart):
        wait()
        for plan, options in itertools.product(write_lines(tmp_path, SECOND, 4), ((), ("--dry-run",))):
            message = place(plan, "generation", 4) + "the plan has generation 4, and the one in force has 5"
            assert message in refused(daemon, plan, *options)
        for plan in write_lines(tmp_path, SECOND, 5):
            assert place(plan, "generation", 5) + "another plan of generation 5 is in force" in refused(daemon, plan)
        assert homes_of(daemon) == FIRST


def test_the_stats_have_the_plan_in_force(daemon, tmp_path):
    def stats(*options: str) -> str:
        return subprocess.run(command(daemon, *options, "stats"), stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True).stdout

    none = {"generation": 0, "tables": None, "applied_ms": None, "applying_pid": None, "applying_generation": None}
    assert "\nno placement plan is in force\n" in stats() and json.loads(stats("-o", "json"))["plan"] == none
    begin_ms = time.time() * 1000 - 1000
    apply(daemon, write(tmp_path, {"a": "dram", "b": "pmem", "c": "cache"}, 4))
    plan = json.loads(stats("-o", "json"))["plan"]
    assert begin_ms < plan["applied_ms"] < time.time() * 1000 + 1000
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(plan["applied_ms"] / 1000))
    line = f"placement plan of generation 4, in force since {since}, of 3 tables"
    assert f"\n{line}\n" in stats()
    process = begin_slowly(daemon, write(tmp_path, SECOND, 5))
    assert f"\n{line}; process {process.pid} applies generation 5\n" in stats()
    assert json.loads(stats("-o", "json"))["plan"] == plan | {"applying_pid": process.pid, "applying_generation": 5}
    process.kill()
    process.communicate(timeout=LIMIT_S)
    daemon.kill()
    daemon.start()
    assert json.loads(stats("-o", "json"))["plan"] == plan | {"tables": 3}, "plan.json has it"
    assert f"\n{line}\n" in stats()


def test_a_second_run_at_the_same_time_is_refused(daemon, tmp_path):
    first = begin_slowly(daemon, write(tmp_path, FIRST))
    assert f"process {first.pid} is applying the plan of generation 1" in refused(daemon, write(tmp_path, SECOND, 2))
    first.kill()  # its claim goes with it
    first.communicate()
    assert apply(daemon, write(tmp_path, SECOND, 2))["applied"]
    assert homes_of(daemon) == SECOND
    check_rows(daemon)


@pytest.mark.parametrize("end", ["interrupt", "cancel", "crash", "stop", "drop"])
def test_a_run_that_ends_early_leaves_whole_tables_and_can_go_on(daemon, tmp_path, end):
    plan = write(tmp_path, {name: home for name, home in FIRST.items() if name != "d"})
    process = begin_slowly(daemon, plan)
    on_its_way = moving(daemon)
    if end == "interrupt":
        process.send_signal(signal.SIGINT)
    elif end == "cancel":
        cancel_a_move(daemon)
    elif end == "crash":
        daemon.kill()
    elif end == "stop":
        daemon.stop()
    else:
        with daemon.connect(timeout=LIMIT_S) as server:
            server.drop_table("d")  # it is not in the plan, and is not in the way
        process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode != 0 and error.startswith(("embtier: ", "\nembtier: ")), error
    if end in ("crash", "stop"):
        daemon.start()
    else:
        await_that(lambda: not moving(daemon))
    found = homes_of(daemon)
    assert all(found[name] in ("cache", FIRST[name]) for name in found)
    assert all(found[name] == "cache" for name in on_its_way), "it went back"
    if end != "crash" and end != "drop":  # a crash takes the rows back to the newest checkpoint
        check_rows(daemon)
    done = apply(daemon, plan)
    assert done["applied"]
    assert {name: home for name, home in homes_of(daemon).items() if name != "d"} == {k: v for k, v in FIRST.items() if k != "d"}


@pytest.mark.parametrize("end", ["cancel", "kill"])
def test_a_table_that_gave_way_goes_back_when_the_run_ends(daemon, tmp_path, end):
    """Tables of full tiers change places, so one of them leaves for the cache first."""
    apply(daemon, write(tmp_path, FULL[0]))
    plan = write(tmp_path, FULL[1], 2)
    process = subprocess.Popen(
        command(daemon, "apply", plan, "--rate", "0.06"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    await_that(lambda: "cache" in homes_of(daemon).values() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    if end == "cancel":
        cancel_a_move(daemon)
    else:
        process.kill()
    _, error = process.communicate(timeout=LIMIT_S)
    found = homes_of(daemon)
    if end == "cancel":
        assert "it was cancelled" in error, error
        # A table has no way back if another one has its place by now.
        left = [name for name in found if found[name] not in (FULL[0][name], FULL[1][name])]
        assert not left or (len(left) == 1 and f"in the cache: 1 ({left[0]})" in error and FULL[1]["c"] == found["c"]), (found, error)
    else:  # nobody is there to take it back
        assert all(found[name] in (FULL[0][name], FULL[1][name], "cache") for name in found), found
    check_rows(daemon)
    assert apply(daemon, plan)["applied"] and homes_of(daemon) == FULL[1]  # at once, while the move of a killed run turns back
    check_rows(daemon)


def test_a_greatest_generation_has_a_way_out(daemon, tmp_path):
    apply(daemon, write(tmp_path, FIRST, 2**63 - 1))
    (record,) = daemon.folder.rglob("plan.json")
    for options in ((), ("--dry-run",)):
        assert f"the one in force has {2**63 - 1}" in refused(daemon, write(tmp_path, SECOND, 5), *options)
    assert f"stop the server and remove {record}" in refused(daemon, write(tmp_path, SECOND, 5))
    daemon.stop()
    record.unlink()
    daemon.start()
    assert apply(daemon, write(tmp_path, SECOND, 5))["applied"] and homes_of(daemon) == SECOND


def test_a_trace_of_another_table_is_refused_before_any_moves(daemon, tmp_path):
    plan = write(tmp_path, {"a": "dram", "b": "pmem:100"})
    for rows, dim, key in ((ROWS, DIM + 1, "dim"), (ROWS - 1, DIM, "rows"), (None, DIM, "rows")):
        trace = tmp_path / f"{rows}-{dim}.trace"
        with embtier.TraceWriter(trace, [embtier.TraceTable("b", dim, rows=rows)]) as file:
            file.add("b", np.arange(50, dtype=np.uint64))
            file.next_batch()
        for options in ((), ("--dry-run",)):
            assert f"table 'b' has other {key} in {trace}" in refused(daemon, plan, "--trace", trace, *options)
    assert "/none" in refused(daemon, plan, "--dry-run", "--trace", "/none")
    assert set(homes_of(daemon).values()) == {"cache"}


def test_a_plan_that_counts_on_a_larger_cache_is_told(daemon, tmp_path):
    text = json.loads(text_of(FIRST, 1))
    next(memory for memory in text["memories"] if memory["name"] == "pmem")["cache_bytes"] = 10**9
    plan = tmp_path / "large.plan"
    plan.write_text(json.dumps(text))
    done = subprocess.run(command(daemon, "apply", plan), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0 and "warning: the plan counts on 953.7 MiB of cache in tier 'pmem'" in done.stderr, done
    assert "dram" not in done.stderr and homes_of(daemon) == FIRST


def test_plans_that_are_not_for_this_server(daemon, tmp_path):
    def check(key: str, value: object, message: str, plans: list[Path]) -> None:
        for plan, options in itertools.product(plans, ((), ("--dry-run",))):
            error = refused(daemon, plan, *options)
            assert place(plan, key, value) in error and message in error, error
            assert set(homes_of(daemon).values()) == {"cache"}

    def plans(homes: dict[str, str], **changes) -> list[Path]:
        return write_lines(tmp_path, homes, 1, **changes)

    check("tables[5].name", "x", ": the server has no table 'x'", plans(FIRST | {"x": "cache"}))
    a = {"a": "cache"}
    check("tables[0].dim", 25, ": table 'a' has dim 25 in the plan, and 24 on the server", plans(a, dim=25))
    check("tables[0].dtype", "f16", ": table 'a' has dtype f16 in the plan, and f32 on the server", plans(a, dtype="f16"))
    adam = plans(a, optimizer="adam")
    check("tables[0].optimizer", "adam", ": table 'a' has optimizer adam in the plan, and sgd on the server", adam)
    check("tables[0].optimizer", "adam", "make a new one, with `embtier plan make --optimizer sgd`", adam)
    cxl = edit(plans({"a": "dram"}), '"dram"', '"cxl"')
    check("tables[0].parts[0].tier", "cxl", ": table 'a' is to be in tier 'cxl', which the server does not have", cxl)
    three = plans({"a": "dram", "b": "dram", "c": "dram"})
    needed = f"array_bytes to 6MiB, with bytes of at least {6 + 4 * LANES}MiB as the row cache needs {4 * LANES}MiB,"
    check("memories[0].array_bytes", 3 * ROWS * DIM * 4, needed, three)
    small = edit(plans({"a": "dram"}), f'("capacity_bytes": ){1 << 40}(?=[^}}]*"array_bytes": [1-9])', r"\g<1>4096")
    check("memories[0].capacity_bytes", 4096, f": 4096 (4KiB) does not hold {ROWS * DIM * 4}", small)
    check("tables[0].parts[0].home", "hbm", ": table 'a' is to be in the memory of GPU 0", plans({"a": "hbm", "b": "cache"}))
    eight = edit(plans({"a": "dram"}, gpu=7), '(gpu_count"?: )0', r"\g<1>8")
    check("gpu_count", 8, ": the plan is for 8 GPUs, and the server has none", eight)
    torn = tmp_path / "torn.plan"
    torn.write_text(text_of(FIRST, 1)[:-20])
    assert str(torn) in refused(daemon, torn)
    assert "PLAN is missing" in refused(daemon, code=2)
    assert "--rate 0: allowed: a number of MiB" in refused(daemon, torn, "--rate", "0", code=2)
    done = apply(daemon, write(tmp_path, {"a": "hbm", "b": "dram", "c": "dram"}), "--without-gpu")
    assert homes_of(daemon) == {"a": "pmem", "b": "dram", "c": "dram", "d": "cache", "e": "cache"}
    assert done["unplanned"] == 2
    check_rows(daemon)


def test_arrays_that_the_plan_does_not_mention_are_named(daemon, tmp_path):
    apply(daemon, write(tmp_path, {"a": "dram", "c": "pmem"}))
    error = refused(daemon, write(tmp_path, {"b": "dram", "d": "dram"}, 2))
    assert "they would take 6MiB, 2MiB more: raise cache.tiers[0].array_bytes to 6MiB" in error
    assert error.rstrip().endswith("arrays that the plan does not mention take 2MiB of that: 'a' (2MiB)"), error
    assert homes_of(daemon)["b"] == "cache", "nothing was moved"


def test_ranges_become_splits_with_the_hot_rows_of_a_trace(daemon, tmp_path):
    homes = {"a": "dram:1000", "b": "dram", "c": "pmem:500", "d": "cache", "e": "cache"}
    hot = {"a": range(1000, 2000), "c": range(500)}
    plan = write(tmp_path, homes)
    message = refused(daemon, plan)
    assert "table 'a' is to have its 1000 hottest rows in tier 'dram': add --trace FILE" in message
    shown = apply(daemon, plan, "--dry-run")
    moves = {move["table"]: move for move in shown["moves"]}
    assert moves["a"]["to"] == {"home": "split", "tier": "dram", "hot_rows": 1000} and "hot_rows" not in moves["b"]["to"]
    assert [moves[name]["rows"] for name in "abc"] == [1000, ROWS, 500] and moves["a"]["bytes"] == 1000 * DIM * 4
    text = subprocess.run(command(daemon, "apply", plan, "--dry-run"), capture_output=True, text=True, check=True).stdout
    assert "dram + cache" in text and "pmem + cache" in text
    assert "tables that are cut by hotness need --trace FILE" in text
    assert "--trace" in refused(daemon, plan, "--trace", code=2)
    assert "table 'c'" in refused(daemon, plan, "--trace", write_trace(tmp_path, {"a": hot["a"]}))
    empty = write_trace(tmp_path, {"a": [], "c": hot["c"]}, others=[])
    assert f"{empty} has no lookup of table 'a'" in refused(daemon, plan, "--trace", empty)
    assert set(homes_of(daemon).values()) == {"cache"}

    trace = write_trace(tmp_path, hot)
    done = apply(daemon, plan, "--trace", trace)
    assert done["applied"] and done["detours"] == 0 and len(done["moves"]) == 3 and homes_of(daemon) == homes
    check_rows(daemon)
    with daemon.connect(timeout=LIMIT_S) as server:
        for name, ids in hot.items():  # others would be refused
            assert server.move_table(name, "split", tier=homes[name].partition(":")[0], hot_rows=ids) == 0
    again = apply(daemon, plan, "--trace", trace)
    assert again["applied"] and again["moves"] == [] and again["same"] == 5 and again["bytes"] == 0
    text = subprocess.run(command(daemon, "apply", plan, "--dry-run"), capture_output=True, text=True, check=True).stdout
    assert "is a split of as many hot rows already" in text

    # Other hot rows of the same number, another number, and fewer than the plan has.
    other = {"a": range(3000, 4000), "c": range(500)}
    done = apply(daemon, write(tmp_path, homes, 2), "--trace", write_trace(tmp_path, other))
    assert [move["table"] for move in done["moves"]] == ["a"] and done["detours"] == 1 and homes_of(daemon) == homes
    with daemon.connect(timeout=LIMIT_S) as server:
        assert server.move_table("a", "split", tier="dram", hot_rows=other["a"]) == 0
    homes = homes | {"a": "pmem:700", "c": "pmem:600"}
    few = write_trace(tmp_path, {"a": range(700), "c": range(40)}, range(90))
    third = write(tmp_path, homes, 3)
    dry = subprocess.run(command(daemon, "apply", third, "--dry-run", "--trace", few), capture_output=True, text=True, check=True)
    assert f"table 'c': {few} has 90 different rows, and the plan wants 600 in tier 'pmem': is it the trace" in dry.stderr
    assert "table 'a'" not in dry.stderr
    done = apply(daemon, third, "--trace", few)
    assert done["detours"] == 2 and homes_of(daemon) == homes | {"a": "pmem:700", "c": "pmem:90"}
    check_rows(daemon)
    daemon.restart()
    assert homes_of(daemon) == homes | {"c": "pmem:90"}
    done = apply(daemon, write(tmp_path, dict.fromkeys(TABLES, "cache"), 4))  # needs no trace
    assert done["applied"] and set(homes_of(daemon).values()) == {"cache"}
    check_rows(daemon)


def test_ranges_in_two_tiers_and_in_gpu_memory(daemon, tmp_path):
    trace = write_trace(tmp_path, {"a": range(3000)})
    for plan in write_lines(tmp_path, {"a": "dram:1000+pmem:1000"}):
        line = next(i for i, text in enumerate(plan.read_text().split("\n"), 1) if "parts" in text)
        message = f"{plan}:{line}: tables[0].parts: table 'a' has 2 ranges in arrays, but a server has hot rows in one tier"
        assert message in refused(daemon, plan, "--trace", trace)
    gpu = write(tmp_path, {"a": "hbm:1000+pmem:500"})
    assert "table 'a' is to be in the memory of GPU 0" in refused(daemon, gpu, "--trace", trace)
    done = apply(daemon, gpu, "--trace", trace, "--without-gpu")  # both ranges, in the fastest tier with room
    assert done["applied"] and homes_of(daemon)["a"] == "dram:1500"
    check_rows(daemon)


def test_apply_during_checkpoints(daemon, tmp_path):
    is_over, made, errors = threading.Event(), [], []

    def checkpoints() -> None:
        try:
            with daemon.connect(timeout=LIMIT_S) as server:
                while not is_over.is_set():  # one user may have some hundred of them
                    made.append(server.checkpoint(keep=3).id)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=checkpoints)
    thread.start()
    try:
        for generation in range(1, 5):
            done = len(made)
            wanted = FIRST if generation % 2 else SECOND
            assert apply(daemon, write(tmp_path, wanted, generation))["applied"] and homes_of(daemon) == wanted
            await_that(lambda: len(made) > done or errors)
    finally:
        is_over.set()
        thread.join()
    assert not errors, errors
    check_rows(daemon)
    daemon.kill()
    daemon.start()
    assert homes_of(daemon) == wanted
    check_rows(daemon)


def test_a_dry_run_gives_up_a_silent_server(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        plan = write(tmp_path, FIRST)
        done = subprocess.run(
            [str(CLI), "-s", tmp_path / "s", "apply", plan, "--dry-run"], capture_output=True, text=True, timeout=LIMIT_S
        )
    assert done.returncode == 1 and "no answer from the server within 10000 ms" in done.stderr, done


def test_a_damaged_record_of_the_plan_is_told(daemon, tmp_path):
    apply(daemon, write(tmp_path, FIRST))
    daemon.stop()
    (record,) = [path for path in daemon.folder.rglob("plan.json")]
    text = record.read_text()
    record.write_text(text.replace('"generation": "0', '"generation": "1'))
    said = daemon.fail_to_start()
    assert f"{record}: damaged: its checksum is" in said and "remove the file; then no plan is in force" in said
    record.write_text(text)
    daemon.start()
    assert homes_of(daemon) == FIRST
    os.sync()
