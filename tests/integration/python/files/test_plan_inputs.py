# SPDX-License-Identifier: Apache-2.0
"""`embtier plan make` and its inputs: pipes in place of files, files that change, and the outside solver. It needs no server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import EMBTIERD
from transfers import CLI, SANITIZED

FAULTS = EMBTIERD.parents[1] / "tests/faults"
NO_LIMITS = pytest.mark.skipif(SANITIZED, reason="the solver's process has a limit of memory, which sanitizers exceed")
MACHINE = """\
gpus: {count: 4, hbm_bytes: 3MiB, hbm_bandwidth_bytes_per_s: 1600GB}
tiers: [{name: dram, bytes: 6MiB, bandwidth_bytes_per_s: 200GB}]
ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: 1e6}
"""
LIBRARIES = ("libhighs.so", "libhighs.so.1", "libCbcSolver.so.3.1", "libCbcSolver.so.3")  # in the order in which they are tried


def embtier(*arguments: str | Path, cli: Path = CLI, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(cli), *map(str, arguments)], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def done(*arguments: str | Path) -> str:
    result = embtier(*arguments)
    assert result.returncode == 0, result
    return result.stdout


@pytest.fixture(scope="module")
def profile(tmp_path_factory) -> Path:
    """Too many tables for a search of all placements, and too large ones for the bound: an outside solver is asked."""
    folder = tmp_path_factory.mktemp("profile")
    done("trace", "generate", folder / "a.trace", "--tables", 25, "--rows", 4000, "--dim", 32, "--batches", 5, "--bags", 20,
         "--pooling", 4, "--seed", 9)  # fmt: skip
    done("profile", "show", folder / "a.trace", "--save", folder / "a.profile")
    return folder / "a.profile"


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "machine.yaml"
    path.write_text(MACHINE)
    return path


# ---- Files ----


def test_an_input_that_is_no_regular_file_is_refused_at_once(profile, machine, tmp_path):
    path, pipe = tmp_path / "plan", tmp_path / "pipe"
    os.mkfifo(pipe)
    files = ("make", path, "--profile", profile, "--machine", machine)
    for option in ("--profile", "--machine", "--rules", "--previous"):
        for wrong in (pipe, tmp_path):
            result = embtier("plan", *files, option, wrong)
            assert result.returncode == 1 and f"{wrong}: is no regular file" in result.stderr, result
    result = subprocess.run(
        [CLI, "plan", *files, "--profile", "/dev/stdin"], input=profile.read_bytes(), capture_output=True, timeout=120
    )
    assert result.returncode == 1 and b"/dev/stdin: is no regular file" in result.stderr, result
    result = embtier("plan", "what-if", machine, machine, "--profile", profile, "--rules", pipe)
    assert result.returncode == 1 and f"{pipe}: is no regular file" in result.stderr, result
    assert not path.exists()


def while_held(tmp_path: Path, held: Path, change: Callable[[], object], *arguments: str | Path) -> tuple[int, str]:
    """Runs `embtier` and does @change while it waits for the open of @held. Returns its exit status and standard error."""
    trigger = tmp_path / "trigger"
    trigger.touch()
    environment = {
        "LD_PRELOAD": str(FAULTS / "libheld_calls.so"),
        "EMBTIER_FAULT_TRIGGER": str(trigger),
        "EMBTIER_FAULT_PATH": str(held),
    }
    if SANITIZED:
        environment["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0"
    with subprocess.Popen(
        [CLI, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    ) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "trigger.waits").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(process.communicate()[1])
            time.sleep(0.001)
        change()
        trigger.unlink()
        _, said = process.communicate(timeout=120)
    return process.returncode, said


def test_a_file_that_changes_while_it_is_read_is_refused(profile, machine, tmp_path):
    rules, path, new = tmp_path / "rules.yaml", tmp_path / "plan", tmp_path / "new"
    rules.write_text("pin: []\n")
    for changed in (profile, machine):
        mine = tmp_path / "mine"
        shutil.copy(changed, mine)
        files = {"--profile": profile, "--machine": machine, "--rules": rules}
        files = {option: mine if file == changed else file for option, file in files.items()}
        new.write_text(mine.read_text().replace("\n", " \n", 1))
        arguments = [word for pair in files.items() for word in pair]
        code, said = while_held(tmp_path, rules, lambda new=new, mine=mine: new.replace(mine), "plan", "make", path, *arguments,
                                "--solver", "none")  # fmt: skip
        assert code == 1 and f"{mine}: changed while it was read" in said, said
        assert not path.exists()


# ---- The outside solver ----


@pytest.fixture
def solvers(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Makes the environment in which the loader finds these libraries of tests/faults as LIBRARIES."""

    def found(*names: str, way: str = "start") -> dict[str, str]:
        folder = tmp_path / "solvers"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, built in zip(LIBRARIES, names):
            (folder / name).symlink_to(FAULTS / f"lib{built}.so")
        return {"LD_LIBRARY_PATH": str(folder), "EMBTIER_FAKE_SOLVER": way}

    return found


def made(path: Path, profile: Path, machine: Path, *more: str, **environment: str) -> tuple[dict[str, str], str]:
    """The hashes of a plan's inputs, and standard error."""
    result = embtier("-o", "json", "plan", "make", path, "--profile", profile, "--machine", machine, *more, **environment)
    assert result.returncode == 0, result
    return {one["name"]: one["hash"] for one in json.loads(result.stdout)["inputs"]}, result.stderr


@pytest.fixture(scope="module")
def own(profile, machine, tmp_path_factory) -> Path:
    """A plan for which no solver was asked."""
    path = tmp_path_factory.mktemp("own") / "plan"
    hashes, said = made(path, profile, machine, "--solver", "none")
    assert list(hashes) == ["profile", "machine", "options", "solver none"] and said == ""
    return path


def inputs(path: Path) -> dict[str, str]:
    return {one["name"]: one["hash"] for one in json.loads(done("-o", "json", "plan", "show", path))["inputs"]}


@NO_LIMITS
def test_a_plan_names_the_solver_that_answered(profile, machine, own, tmp_path, solvers):
    none = inputs(own)
    highs, said = made(tmp_path / "highs", profile, machine, **solvers("fake_highs"))
    assert list(highs)[-1] == "solver HiGHS 1.0.7, 1 answer, not taken" and "its answer is no better" in said
    cbc, said = made(tmp_path / "cbc", profile, machine, **solvers("fake_highs", "fake_highs_without_run", "fake_cbc", way="version"))
    assert list(cbc)[-1] == "solver CBC 2.0.3, 1 answer, not taken"
    assert "CBC 2.0.3 was asked instead of other solvers: libhighs.so: HiGHS has version 2" in said
    assert "libhighs.so.1: HiGHS has no function Highs_run" in said
    assert len({list(hashes.values())[-1] for hashes in (none, highs, cbc)}) == 3
    assert all(list(hashes.values())[:-1] == list(none.values())[:-1] for hashes in (highs, cbc))


@NO_LIMITS
def test_a_solver_that_does_not_answer_is_none(profile, machine, own, tmp_path, solvers):
    _, said = made(tmp_path / "plan", profile, machine, **solvers(*["fake_highs"] * 4, way="version"))
    assert "the outside solver did not help: the solver failed: libhighs.so: HiGHS has version 2; allowed: 1; libhighs.so.1: " in said
    assert (tmp_path / "plan").read_bytes() == own.read_bytes()


@pytest.fixture
def real(solvers) -> Callable[[str], dict[str, str]]:
    """Makes the environment in which `embtier` finds this solver of the machine, and no other one."""

    def found(solver: str) -> dict[str, str]:
        if solver == "CBC":
            if not any(is_loaded(name) for name in LIBRARIES[2:]):
                pytest.skip("CBC is not installed (Debian 12: coinor-libcbc3; later: coinor-libcbc3.1)")
            refused = solvers("fake_highs", "fake_highs_without_run", way="version")
            return refused if any(is_loaded(name) for name in LIBRARIES[:2]) else {}
        if "EMBTIER_TEST_HIGHS" in os.environ:
            return {"LD_LIBRARY_PATH": os.environ["EMBTIER_TEST_HIGHS"]}
        if not any(is_loaded(name) for name in LIBRARIES[:2]):
            pytest.skip("HiGHS is not installed (Debian 13: libhighs1), and EMBTIER_TEST_HIGHS does not name its folder")
        return {}

    return found


def is_loaded(library: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL('{library}')"], capture_output=True).returncode == 0


@NO_LIMITS
@pytest.mark.parametrize("solver", ["CBC", "HiGHS"])
def test_a_real_solver_is_found_and_its_plan_is_no_worse(profile, machine, own, tmp_path, real, solver):
    path = tmp_path / "plan"
    hashes, said = made(path, profile, machine, **real(solver))
    name = list(hashes)[-1]
    assert re.fullmatch(rf"solver {solver} \d+\.\d+\.\d+, [1-9] answers?, (taken|not taken)", name), (name, said)
    assert name.endswith("not taken") == ("the outside solver did not help: its answer is no better" in said), (name, said)
    ours, its = (json.loads(done("-o", "json", "plan", "show", one)) for one in (own, path))
    assert its["bound_s"] <= its["time_s"] <= ours["time_s"]


@pytest.mark.skipif(Path("/usr/local/libexec/embtier/embtier-solve").exists(), reason="embtier-solve is installed")
def test_a_missing_program_is_told(profile, machine, own, tmp_path):
    alone = tmp_path / "alone/embtier"
    alone.parent.mkdir()
    shutil.copy(CLI, alone)
    result = embtier("plan", "make", tmp_path / "plan", "--profile", profile, "--machine", machine, cli=alone,
                     LD_LIBRARY_PATH=str(CLI.parents[1] / "client"))  # fmt: skip
    assert result.returncode == 0 and "the outside solver did not help: the solver's program " in result.stderr, result
    assert "embtier-solve cannot be run" in result.stderr
    assert (tmp_path / "plan").read_bytes() == own.read_bytes()
