# SPDX-License-Identifier: Apache-2.0
"""`embtier plan make` and its inputs: pipes in place of files, and files that change. It needs no server."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import EMBTIERD
from transfers import CLI, SANITIZED

FAULTS = EMBTIERD.parents[1] / "tests/faults"
MACHINE = """\
gpus: {count: 4, hbm_bytes: 3MiB, hbm_bandwidth_bytes_per_s: 1600GB}
tiers: [{name: dram, bytes: 6MiB, bandwidth_bytes_per_s: 200GB}]
ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: 1e6}
"""


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
            assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
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
