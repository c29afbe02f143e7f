# SPDX-License-Identifier: Apache-2.0
"""`embtier plan make`: from a generated trace to a plan. It needs no server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import TREE
from transfers import CLI, SANITIZED, run_on_terminal

MACHINE = """\
gpus: {count: 2, hbm_bytes: 8MiB, hbm_bandwidth_bytes_per_s: 1600GB}
tiers:
  - {name: dram, bytes: 24MiB, bandwidth_bytes_per_s: 200GB}
  - {name: pmem, bytes: 16MiB, bandwidth_bytes_per_s: 30GB}
ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: 1e6}
"""
ROWS, DIM, TABLES = 30000, 32, 6
FEW = 4  # tables, where the search takes long and their number is not the question


def embtier(*arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(CLI), *map(str, arguments)], capture_output=True, text=True, timeout=240)


def done(*arguments: str | Path) -> str:
    result = embtier(*arguments)
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def profile_of(folder: Path, tables: int) -> Path:
    done("trace", "generate", folder / "a.trace", "--tables", tables, "--rows", ROWS, "--dim", DIM, "--batches", 20, "--bags", 100,
         "--pooling", 4, "--seed", 9)  # fmt: skip
    done("profile", "show", folder / "a.trace", "--save", folder / "a.profile")
    return folder / "a.profile"


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Path:
    return profile_of(tmp_path_factory.mktemp("profile"), TABLES)


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    return profile_of(tmp_path_factory.mktemp("few"), FEW)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINE)
    return path


def make(path: Path, profile: Path, machine: Path, *more: str | Path) -> subprocess.CompletedProcess:
    return embtier("-o", "json", "plan", "make", path, "--profile", profile, "--machine", machine, "--solver", "none", *more)


def made(path: Path, profile: Path, machine: Path, *more: str | Path) -> dict:
    result = make(path, profile, machine, *more)
    lines = [line for line in result.stderr.splitlines() if "have cliffs" not in line or "--row-wise" not in more]
    assert result.returncode == 0 and lines == [], result
    assert json.loads(done("-o", "json", "plan", "show", path)) == json.loads(result.stdout)
    return json.loads(result.stdout)


def refused(code: int, path: Path, *arguments: str | Path) -> str:
    """The message; no plan was written."""
    result = make(path, *arguments)
    assert result.returncode == code and result.stdout == "" and not path.exists(), result
    return result.stderr


def memory(plan: dict, name: str, gpu: int | None = None) -> dict:
    return next(one for one in plan["memories"] if one["name"] == name and one["gpu"] == gpu)


def test_a_plan_uses_each_memory_within_its_bytes(profile, machine, tmp_path):
    plan = made(tmp_path / "a.plan", profile, machine, "--optimizer", "sgd,t5=adam")
    assert plan["generation"] == 1 and plan["gpu_count"] == 2 and plan["samples_per_batch"] == 100
    assert [one["name"] for one in plan["inputs"]] == ["profile", "machine", "options", "solver none"]
    assert [(one["name"], one["rows"], one["optimizer"]) for one in plan["tables"]] == [
        (f"t{i}", ROWS, "adam" if i == 5 else "sgd") for i in range(TABLES)
    ]
    assert {part["home"] for table in plan["tables"] for part in table["parts"]} >= {"hbm", "array"}
    for one in plan["memories"]:
        assert one["array_bytes"] + one["cache_bytes"] <= one["capacity_bytes"]
    for name in ("dram", "pmem"):  # the cache has what arrays leave
        assert memory(plan, name)["array_bytes"] + memory(plan, name)["cache_bytes"] == memory(plan, name)["capacity_bytes"]
    assert memory(plan, "ssd")["array_bytes"] == ROWS * DIM * 4 * (TABLES + 2)  # adam has two numbers per weight more
    times = [sum(table["time_s"] for table in plan["tables"] if table["gpu"] == gpu) for gpu in range(2)]
    assert plan["time_s"] == pytest.approx(max(times), rel=1e-9)
    assert 0 < plan["bound_s"] <= plan["time_s"]
    assert all(table["reason"] for table in plan["tables"])


def test_the_same_inputs_give_the_same_bytes(few, machine, tmp_path):
    for name in ("a", "b"):
        made(tmp_path / name, few, machine, "--optimizer", "adam")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_more_dram_never_makes_a_slower_plan(few, machine, tmp_path):
    times = []
    for i, dram in enumerate(("1MiB", "8MiB", "64MiB", "1GiB")):
        machine.write_text(MACHINE.replace("24MiB", dram).replace("hbm_bytes: 8MiB", "hbm_bytes: 1MiB"))
        times.append(made(tmp_path / str(i), few, machine, "--optimizer", "adam")["time_s"])
    assert times == sorted(times, reverse=True) and times[0] > 2 * times[-1]


def test_a_plan_is_for_a_server_that_has_long_run_or_for_a_cache_that_starts_empty(few, machine, tmp_path):
    """The first lookups of a trace hit in a cache that is full already. From empty, hit rates are those that `profile show` predicts."""
    rules, sizes = tmp_path / "rules.yaml", (1 << 20, 1 << 20)
    machine.write_text("\n".join(line for line in MACHINE.replace("24MiB", "1MiB").replace("16MiB", "1MiB").splitlines()[1:]))
    rules.write_text(json.dumps({"pin": [{"table": f"t{i}", "memory": "cache"} for i in range(FEW)]}))
    rates = {}
    for more in ((), ("--from-empty",)):
        plan = made(tmp_path / f"plan{more}", few, machine, "--optimizer", "sgd", "--rules", rules, *more)
        rates[more] = {table["name"]: table["parts"][0]["hit_rates"] for table in plan["tables"]}
    shown = json.loads(done("-o", "json", "profile", "show", few, "--optimizer", "sgd", "--cache", ",".join(map(str, sizes))))
    for table in shown["tables"]:
        assert rates["--from-empty",][table["name"]] == pytest.approx(table["hit_rates"], abs=1e-6)
        assert sum(rates[()][table["name"]]) > sum(table["hit_rates"]) + 0.03


def test_rules_and_the_plan_in_force(profile, machine, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("pin: [{table: t1, memory: pmem, gpu: 1}]\nforbid: [{table: t2, memory: hbm}]\n")
    old = made(tmp_path / "old", profile, machine, "--rules", rules)
    assert old["tables"][1]["parts"][0]["memory"] == "pmem" and old["tables"][1]["gpu"] == 1
    assert old["tables"][2]["parts"][0]["home"] != "hbm"
    rules.write_text("moved_bytes_max: 0\n")
    kept = made(tmp_path / "kept", profile, machine, "--rules", rules, "--previous", tmp_path / "old")
    assert kept["generation"] == 2
    assert json.loads(done("-o", "json", "plan", "diff", tmp_path / "old", tmp_path / "kept"))["bytes_moved"] == 0
    result = make(tmp_path / "missing", profile, machine, "--rules", rules)
    assert result.returncode == 1 and "moved_bytes_max: there is no plan in force" in result.stderr
    rules.write_text("least_gain: 1\n")  # no plan is that much faster
    result = make(tmp_path / "stays", profile, machine, "--rules", rules, "--previous", tmp_path / "old")
    assert result.returncode == 0 and "the plan in force stays: no other plan was found that is faster by 100%" in result.stderr, result
    assert json.loads(done("-o", "json", "plan", "diff", tmp_path / "old", tmp_path / "stays"))["bytes_moved"] == 0
    moved = made(tmp_path / "moved", profile, machine, "--previous", tmp_path / "old")
    assert moved["time_s"] <= kept["time_s"]
    assert [one["name"] for one in kept["inputs"]] == ["profile", "machine", "rules", "previous", "options", "solver none"]


TIGHT = """\
gpus: {count: 2, hbm_bytes: 4MiB, hbm_bandwidth_bytes_per_s: 1600GB}
tiers: [{name: dram, bytes: 6MiB, bandwidth_bytes_per_s: 200GB}]
ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: 1e6}
"""
ADAM = ("--optimizer", "adam")  # rows of three times the bytes


@pytest.fixture(scope="module")
def cut(few, tmp_path_factory) -> Path:
    """A row-wise plan for the tight machine."""
    folder = tmp_path_factory.mktemp("cut")
    (folder / "machine.yaml").write_text(TIGHT)
    made(folder / "cut", few, folder / "machine.yaml", "--row-wise", *ADAM)
    return folder / "cut"


def shown(path: Path) -> dict:
    return json.loads(done("-o", "json", "plan", "show", path))


def test_tables_are_split_by_hotness(few, machine, cut, tmp_path):
    machine.write_text(TIGHT)
    whole, plan = made(tmp_path / "whole", few, machine, *ADAM), shown(cut)
    assert 0 < plan["bound_s"] <= plan["time_s"] < whole["time_s"]
    split = [table for table in plan["tables"] if len(table["parts"]) > 1]
    assert split and all(len(table["parts"]) == 1 for table in whole["tables"])
    for table in split:
        assert table["reason"].startswith("split by hotness: ")
        assert sum(part["rows"] for part in table["parts"]) == ROWS
        for part in table["parts"][:-1]:  # with remap, in whole slabs
            assert part["bytes"] >= part["rows"] * (DIM * 4 * 3 + 16) and part["bytes"] % (2 << 20) == 0
        shares = [part["lookup_share"] / part["rows"] for part in table["parts"]]
        assert shares == sorted(shares, reverse=True)  # the hottest rows come first
    text = done("plan", "show", cut, "--table", split[0]["name"])
    assert len(text.splitlines()) == 5 + len(split[0]["parts"])
    diff = json.loads(done("-o", "json", "plan", "diff", tmp_path / "whole", cut))
    assert diff["bytes_moved"] > 0 and {table["change"] for table in diff["tables"]} == {"moved"}


def test_tables_that_may_not_be_split(few, machine, tmp_path):
    machine.write_text(TIGHT)
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"unsplit: [{', '.join(f't{i}' for i in range(FEW))}]\n")
    result = make(tmp_path / "a", few, machine, "--row-wise", *ADAM, "--rules", rules)
    assert result.returncode == 0 and "no table is cut: no cut makes a better plan than whole tables" in result.stderr
    assert all(table["unsplit"] and len(table["parts"]) == 1 for table in json.loads(result.stdout)["tables"])
    rules.write_text("unsplit: [t1]\n")
    plan = made(tmp_path / "b", few, machine, "--row-wise", *ADAM, "--rules", rules)
    assert len(plan["tables"][1]["parts"]) == 1 and any(len(table["parts"]) > 1 for table in plan["tables"])
    # Two parts of it, written by hand, are a mistake.
    number = next(i for i, table in enumerate(plan["tables"]) if len(table["parts"]) > 1)
    text = (tmp_path / "b").read_text().replace(f'name: "t{number}"\n', f'name: "t{number}"\n    unsplit: true\n')
    (tmp_path / "c").write_text(text)
    result = embtier("plan", "show", tmp_path / "c")
    line = 2 + next(i for i, one in enumerate(text.splitlines()) if f'"t{number}"' in one)
    assert re.search(rf"c:(\d+): tables\[{number}\].parts: \d parts; allowed: 1, as unsplit", result.stderr), result
    assert int(re.search(r"c:(\d+):", result.stderr)[1]) > line


def test_cuts_from_the_profile_of_a_server_are_warned_of(few, machine, tmp_path):
    """Only its optimizers tell it from a trace's."""
    machine.write_text(TIGHT)
    served = tmp_path / "served.profile"
    served.write_text(few.read_text().replace('"lookups":', '"optimizer":"adam","lookups":').replace('"optimizer":"adam",', "", 1))
    cut, whole = make(tmp_path / "a", served, machine, "--row-wise"), make(tmp_path / "b", served, machine)
    assert cut.returncode == 0 and "`embtier apply` splits tables only with the trace of the plan's profile" in cut.stderr, cut
    assert whole.returncode == 0 and "trace" not in whole.stderr, whole
    assert "trace" not in make(tmp_path / "c", few, machine, "--row-wise", *ADAM).stderr


def test_no_cut_is_advised_where_none_helps(few, machine, tmp_path):
    machine.write_text(MACHINE.replace("count: 2, hbm_bytes: 8MiB", "count: 4, hbm_bytes: 4096"))
    assert ": split it" in make(tmp_path / "a", few, machine).stdout
    result = make(tmp_path / "b", few, machine, "--row-wise")
    assert "no table is cut: no cut makes a better plan than whole tables" in result.stderr
    assert ": split it" not in result.stdout and "sets the time" in result.stdout


def test_row_wise_plans_within_limits_of_moves(few, machine, cut, tmp_path):
    machine.write_text(TIGHT.replace("4MiB", "12MiB"))
    rules = tmp_path / "rules.yaml"
    times = []
    for i, limit in enumerate(("0", "1MiB", "1GiB")):
        rules.write_text(f"moved_bytes_max: {limit}\n")
        plan = make(tmp_path / str(i), few, machine, "--row-wise", *ADAM, "--rules", rules, "--previous", cut)
        assert plan.returncode == 0, plan
        times.append(json.loads(plan.stdout)["time_s"])
        moved = json.loads(done("-o", "json", "plan", "diff", cut, tmp_path / str(i)))["bytes_moved"]
        assert moved <= (0, 1 << 20, 1 << 30)[i]
    assert times == sorted(times, reverse=True) and times[0] > times[-1]
    whole = make(tmp_path / "whole", few, machine, *ADAM, "--previous", cut)
    assert "the plan in force splits tables, and a plan without --row-wise splits none: that one predicts " in whole.stderr


def test_limits_are_errors_or_warnings(profile, machine, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("target_samples_per_s: 1e14\n")
    message = refused(1, tmp_path / "a", profile, machine, "--rules", rules)
    assert re.search(r"s are needed at 1e\+14 samples/s; allowed: 1e-12, .* no plan takes less than", message), message
    assert f"{rules}:1: target_samples_per_s: seconds that a batch may take" in message
    rules.write_text("target_samples_per_s: 1e14\nlimits: {target: warning, read_iops: warning}\n")
    result = make(tmp_path / "a", profile, machine, "--rules", rules)
    assert result.returncode == 0 and result.stderr.startswith(f"embtier: warning: {rules}:1: target_samples_per_s: "), result
    machine.write_text(MACHINE.replace("24MiB", "1MiB").replace("16MiB", "1MiB").replace("8MiB", "4096").replace("1e6", "10"))
    rules.write_text("target_samples_per_s: 1e4\nlimits: {target: warning}\n")
    message = refused(1, tmp_path / "b", profile, machine, "--rules", rules)
    assert f"{machine}:5: ssd.read_iops: blocks read from SSD: " in message, message


def test_mistakes_are_named(profile, machine, tmp_path):
    path = tmp_path / "a"
    usage = embtier("plan", "make", path, "--profile", profile)
    assert usage.returncode == 2 and "--machine is missing" in usage.stderr
    for option, text, words in (
        ("--optimizer", "adma", "no optimizer 'adma'"),
        ("--optimizer", "adam,users=sgd", "the profile has no table 'users'"),
        ("--rules", tmp_path / "none.yaml", "none.yaml: cannot be opened"),
        ("--previous", machine, f"{machine}:"),
    ):
        assert words in refused(1, path, profile, machine, option, text)
    for text in ("0", "-1", "nan", "1e13"):
        assert "--samples-per-batch" in refused(2, path, profile, machine, "--samples-per-batch", text)
    assert "allowed: auto, none" in refused(2, path, profile, machine, "--solver", "best")
    rules = tmp_path / "rules.yaml"
    rules.write_text("\npin:\n  - {table: t9, memory: hbm}\n")
    assert f"{rules}:3: pin[0].table: there is no table `t9`" in refused(1, path, profile, machine, "--rules", rules)
    machine.write_text(MACHINE.replace("bytes: 24MiB", "bytes: -24MiB"))
    assert f"{machine}:3: tiers[0].bytes: `-24MiB` is not possible" in refused(1, path, profile, machine)
    assert "CORRUPT" not in refused(1, path, machine, machine)
    machine.write_text(MACHINE.replace("bytes: 1TB", "bytes: 1MB"))
    message = refused(1, path, profile, machine)
    assert re.search(r"take [\d.]+MiB of SSD, and ssd.bytes are 976.56KiB: [\d.]+MiB are missing", message)
    assert f"{machine}:5: ssd.bytes: the tables take" in message


def test_missing_bytes_are_named_with_the_keys_of_the_machine(profile, machine, tmp_path):
    rules, path = tmp_path / "rules.yaml", tmp_path / "a"
    rules.write_text("forbid:\n" + "".join(f"  - {{table: t{i}, memory: cache}}\n" for i in range(TABLES)))
    machine.write_text(MACHINE.replace("hbm_bytes: 8MiB", "hbm_bytes: 4096").replace("16MiB", "8192").replace("24MiB", "8192"))
    assert f"{machine}:1: gpus.hbm_bytes: table 't" in refused(1, path, profile, machine, "--rules", rules)
    machine.write_text(MACHINE.replace("8MiB", "5MiB").replace("16MiB", "7MiB").replace("24MiB", "9MiB"))
    for more in ((), ("--row-wise",)):
        message = refused(1, path, profile, machine, "--rules", rules, *more)
        assert f"{machine}:1: gpus.hbm_bytes, 3: tiers[0].bytes, 4: tiers[1].bytes: " in message, message
    rules.write_text("\nmoved_bytes_max: 0\n")
    assert f"{rules}:2: moved_bytes_max: there is no plan in force" in refused(1, path, profile, machine, "--rules", rules)


def test_what_if_names_the_cheapest_machine(profile, machine, tmp_path):
    small, large, unpriced = (tmp_path / name for name in ("small.yaml", "large.yaml", "unpriced.yaml"))
    text = """
tiers: [{name: dram, bytes: SIZE, bandwidth_bytes_per_s: 200GB, cost_per_gb: 5, power_w_per_gb: 1}]
ssd: {bytes: 1GB, read_bandwidth_bytes_per_s: 6GB, cost_per_gb: 1, power_w_per_gb: 0.5}
"""
    small.write_text(text.replace("SIZE", "4MB"))
    large.write_text(text.replace("SIZE", "1GB"))
    unpriced.write_text(text.replace("SIZE", "1GB").replace(", cost_per_gb: 5", ""))
    machines = (small, unpriced, large)
    arguments = ("plan", "what-if", *machines, "--profile", profile, "--optimizer", "adam")
    shown = json.loads(done("-o", "json", *arguments, "--target", "1e6", "--as-they-are"))
    rows = shown["plans"]
    assert [one["machine"] for one in rows] == [str(one) for one in machines] and shown["cheapest"] == 2
    assert [one["reaches"] for one in rows] == [False, True, True] and [one["cost"] for one in rows] == [1.02, None, 6]
    assert [one["power_w"] for one in rows] == [0.504, 1.5, 1.5]
    assert rows[0]["why"].startswith("target: ") and rows[0]["samples_per_s"] < 1e6 < rows[2]["samples_per_s"]
    changes = json.loads(done("-o", "json", *arguments, "--target", "1e6"))["plans"]
    assert [one["change"] for one in changes] == ["", "dram x2", "ssd x2"] * 3
    assert changes[0]["samples_per_s"] < changes[2]["samples_per_s"]
    assert f"\n\ncheapest that reaches the target: {large}\n" in done(*arguments, "--target", "1e6", "--as-they-are")
    assert "\n\nnone reaches the target\n" in done(*arguments, "--target", "1e12", "--as-they-are")
    assert "\n\ncheapest that can be planned: " in done(*arguments, "--as-they-are")
    assert embtier("plan", "what-if", "--profile", profile).returncode == 2


def test_what_if_cuts_tables_too(few, machine):
    machine.write_text(TIGHT)
    arguments = ("-o", "json", "plan", "what-if", machine, "--profile", few, *ADAM, "--as-they-are")
    whole, cut = (json.loads(done(*arguments, *more))["plans"][0] for more in ((), ("--row-wise",)))
    assert cut["samples_per_s"] > 1.01 * whole["samples_per_s"]


def test_what_if_has_no_plan_in_force(few, machine, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("moved_bytes_max: 0\n")
    arguments = ("-o", "json", "plan", "what-if", machine, "--profile", few, "--as-they-are")
    without, limited = (json.loads(done(*arguments, *more))["plans"] for more in ((), ("--rules", rules)))
    assert limited == without and limited[0]["reaches"]


def test_a_plan_is_never_replaced(profile, machine, tmp_path):
    path = tmp_path / "a"
    path.write_text("mine")
    result = make(path, profile, machine)
    assert result.returncode == 1 and "already exists" in result.stderr and path.read_text() == "mine"


def test_the_machine_that_is_shipped(profile, tmp_path):
    plan = made(tmp_path / "a", profile, TREE / "docs/machine.yaml")
    assert plan["gpu_count"] == 8 and all(table["parts"][0]["home"] == "hbm" for table in plan["tables"])


def test_the_machines_with_other_memories_that_are_shipped(profile):
    machines = [TREE / "docs" / name for name in ("machine.yaml", "machine-pmem.yaml", "machine-optane.yaml")]
    shown = json.loads(done("-o", "json", "plan", "what-if", *machines, "--profile", profile))
    changes = ["", "dram x2", "ssd x2"]
    assert [row["change"] for row in shown["plans"]] == [*changes, "", "dram x2", "pmem x2", "ssd x2", *changes]
    assert all(row["reaches"] for row in shown["plans"])
    help_text = done("plan", "what-if", "--help")
    assert all(f"docs/{path.name}" in help_text for path in machines)


@pytest.mark.skipif(SANITIZED, reason="the solver's process has a limit of memory, which sanitizers exceed")
def test_an_outside_solver_changes_nothing_for_the_worse(profile, machine, tmp_path):
    own = made(tmp_path / "own", profile, machine, "--optimizer", "adam")
    result = embtier("-o", "json", "plan", "make", tmp_path / "auto", "--profile", profile, "--machine", machine, "--optimizer", "adam")
    assert result.returncode == 0 and json.loads(result.stdout)["time_s"] <= own["time_s"], result


def test_progress_is_shown(profile, machine, tmp_path, daemon):
    code, seen, _ = run_on_terminal(daemon, "plan", "make", tmp_path / "a", "--profile", profile, "--machine", machine)
    assert code == 0 and re.search(r"planning.*placements", seen), seen
