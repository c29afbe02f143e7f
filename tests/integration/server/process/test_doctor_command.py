# SPDX-License-Identifier: Apache-2.0
"""`embtier doctor` on this machine, whatever it is: all that is asserted holds on each. The findings themselves are tested on recorded
machines (tests/unit/tools/doctor)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from daemons import CLI, Daemon

STATES = ["good", "note", "warn", "bad"]
MACHINE = {
    "config", "kernel", "io_uring", "huge_pages.transparent", "huge_pages.pool", "memory.available", "memory.control_group",
    "limits.descriptors", "limits.file_length", "limits.locked_memory", "numa", "clock.synchronised", "clock.source",
}
BENEATH = {"file_system", "device", "direct_io", "space", "shared_device"}


def doctor(*arguments: str | Path, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*wrapper, CLI, *arguments], capture_output=True, text=True, timeout=60, check=False)


def found(*arguments: str | Path, **how) -> tuple[int, dict[str, dict]]:
    result = doctor("-o", "json", "doctor", *arguments, **how)
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert set(report) == {"findings", "worst"}
    for finding in report["findings"]:
        assert set(finding) == {"name", "state", "value", "text", "advice"}
        assert (finding["advice"] is None) == (finding["state"] == "good"), finding
        assert finding["text"], finding
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert len(findings) == len(report["findings"])
    worst = max((finding["state"] for finding in report["findings"]), key=STATES.index)
    assert report["worst"] == worst
    assert result.returncode == (1 if worst == "bad" else 0)
    return result.returncode, findings


@pytest.fixture
def config(tmp_path: Path):
    """Writes the configuration of a small server with these data directories, and returns its path."""

    def write(*directories: Path, **changes) -> Path:
        values = Daemon(tmp_path).config
        values["data"]["directories"] = [str(directory) for directory in directories]
        values["data"]["shards_per_directory"] = values["lanes"]["count"]
        path = tmp_path / "doctor.yaml"
        path.write_text(json.dumps(values | changes))
        return path

    return write


def test_two_directories_are_looked_at_and_nothing_is_left(config, tmp_path):
    directories = tmp_path / "a", tmp_path / "b"
    for directory in directories:
        directory.mkdir()
    path = config(*directories)
    before = sorted(os.listdir(tmp_path))
    _, findings = found("--config", path)
    assert MACHINE <= set(findings)
    for number in (0, 1):
        key = f"data.directories[{number}]"
        assert findings[key]["state"] == "good" and findings[key]["value"] == str(directories[number])
        assert {f"{key}.{name}" for name in BENEATH} <= set(findings)
        room = os.statvfs(directories[number])
        assert 0 < findings[f"{key}.space"]["value"] <= room.f_blocks * room.f_frsize
        assert os.listdir(directories[number]) == []
    shared = findings["data.directories[1].shared_device"]
    assert shared["state"] == "warn" and shared["value"] == "data.directories[0]"
    assert sorted(os.listdir(tmp_path)) == before


def test_measured_values_are_those_of_this_machine():
    _, findings = found()
    assert findings["kernel"]["value"] == os.uname().release
    hard = subprocess.run(["sh", "-c", "ulimit -Hn"], capture_output=True, text=True, check=True).stdout.strip()
    assert hard == "unlimited" or findings["limits.descriptors"]["value"] == int(hard)
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if modes.exists():
        assert f"[{findings['huge_pages.transparent']['value']}]" in modes.read_text()
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source.exists():
        assert findings["clock.source"]["value"] == source.read_text().strip()


def test_a_missing_directory_is_bad_and_the_text_says_what_to_do(config, tmp_path):
    (tmp_path / "a").mkdir()
    path = config(tmp_path / "a", tmp_path / "missing")
    code, findings = found("--config", path)
    assert code == 1
    assert findings["data.directories[0]"]["state"] == "good"
    assert findings["data.directories[1]"]["state"] == "bad"
    assert "data.directories[1].space" not in findings
    result = doctor("doctor", "--config", path)
    assert result.returncode == 1 and result.stderr == ""
    lines = result.stdout.splitlines()
    line = next(number for number, text in enumerate(lines) if text.startswith("bad   data.directories[1] "))
    assert "No such file or directory" in lines[line]
    assert "> mount its disk; or make it" in lines[line + 1]
    assert lines[-1].endswith(" bad") and not lines[-1].endswith(" 0 bad")
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("text", [None, "data: [", "no_such_key: 1\n"])
def test_a_configuration_that_cannot_be_used_is_bad_and_the_machine_is_looked_at(tmp_path, text):
    path = tmp_path / "bad.yaml"
    if text is not None:
        path.write_text(text)
    code, findings = found("-c", path)
    assert code == 1
    assert findings["config"]["state"] == "bad"
    assert "bad.yaml" in findings["config"]["text"]
    assert MACHINE <= set(findings)
    assert not any(name.startswith("data.") for name in findings)


def test_few_descriptors_are_bad_or_mean_fewer_sessions(config, tmp_path):
    (tmp_path / "a").mkdir()
    path = config(tmp_path / "a", socket={"path": f"{tmp_path}/socket"})
    _, findings = found("--config", path, wrapper=("prlimit", "--nofile=1200:1200"))
    assert findings["limits.descriptors"]["state"] == "warn"
    assert "instead of 1024" in findings["limits.descriptors"]["text"]
    code, findings = found("--config", path, wrapper=("prlimit", "--nofile=90:90"))
    assert code == 1
    assert "file descriptors are needed" in findings["config"]["text"]


def test_help_names_each_check_and_wrong_usage_is_told():
    result = doctor("doctor", "--help")
    assert result.returncode == 0
    for name in ("config", "io_uring", "data.directories[N]", "cache.tiers[N]", "clock"):
        assert f"\n  {name}  " in result.stdout
    assert doctor("doctor", "extra").returncode == 2
    assert doctor("doctor", "--config").returncode == 2
    assert doctor("doctor", "--no-such-option").returncode == 2
