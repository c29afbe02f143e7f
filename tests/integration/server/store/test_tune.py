# SPDX-License-Identifier: Apache-2.0
"""`embtier tune` measures each layout on a drive, recommends one, and leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from daemons import CLI, SANITIZED

LAYOUTS = ["leveled", "universal", "blob"]
MINUTES = "0.05"
RANGE = {"value", "least", "most"}
WAIT_S = 60


def command(directory: Path, *more: str | Path) -> list[str | Path]:
    """A trial of some thousand rows. Its write buffers are small, so that even so few rows fill levels."""
    config = directory.parent / "tune.yaml"
    config.write_text(json.dumps({"data": {"shards_per_directory": 1}, "rocksdb": {"memtable_bytes": "1MiB"}}))
    return [CLI, *more[:2], "tune", "--directory", directory, "--config", config, "--updates", "1e6", "--minutes", MINUTES, *more[2:]]


def run(*arguments: str | Path, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **changes})


@pytest.fixture
def directory(tmp_path) -> Path:
    path = tmp_path / "drive"
    path.mkdir()
    return path


def test_each_layout_is_measured_and_one_is_recommended(directory):
    result = run(*command(directory, "-o", "json", "--rows", "8000", "--dim", "64", "--cache", "0"))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert set(found) == {"load", "model", "steady", "layouts", "prefer", "present", "recommended", "reason"}
    assert found["load"]["directory"] == str(directory)
    assert set(found["model"]) == {
        "shards", "rows", "row_bytes", "bytes", "scale", "to_scale", "buffer_bytes", "direct_io", "seconds", "rounds", "warm_share",
        "turn_share",
    }  # fmt: skip
    assert found["model"]["row_bytes"] == 256
    assert [one["layout"] for one in found["layouts"]] == LAYOUTS
    for one in found["layouts"]:
        assert set(one) == {"layout", "turns", "write_amplification", "reads_per_second", "space", "bytes_per_update", "bytes_per_day"}
        for name in ("write_amplification", "reads_per_second", "space"):
            assert set(one[name]) == RANGE
            assert 0 <= one[name]["least"] <= one[name]["value"] <= one[name]["most"]
        assert one["turns"] == found["model"]["rounds"] >= 2
        assert one["reads_per_second"]["value"] > 0
        assert one["bytes_per_day"] == pytest.approx(one["bytes_per_update"] * 1e6 * 86400, rel=1e-3)
    assert found["recommended"] in LAYOUTS
    assert found["present"] == "leveled"
    assert list(directory.iterdir()) == []


def test_people_read_a_table_and_a_reason(directory):
    load = ["--rows", "8000", "--row-bytes", "512", "--cache", "0"]
    result = run(*command(directory, "-o", "text", *load, "--layouts", "leveled,blob", "--prefer", "space"))
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["LAYOUT", "leveled", "blob"]
    assert lines[-1].startswith("Recommended: rocksdb.layout: ")
    assert "it takes the least space" in lines[-1] or "no other is better by 5 %" in lines[-1]
    assert "\x1b" not in result.stdout + result.stderr
    assert list(directory.iterdir()) == []


def test_rows_that_fit_into_write_buffers_need_no_other_layout(directory):
    result = run(*command(directory, "-o", "json", "--rows", "100", "--dim", "4", "--cache", "0", "--updates", "1000"))
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["recommended"] == found["present"]
    assert "most updates meet in the write buffers" in found["reason"]


def test_the_tables_are_those_of_the_running_server(make_daemon, directory):
    daemon = make_daemon({}, lanes=1)
    daemon.start()
    with daemon.connect() as server:
        server.create_table("a", 16, rows=3000)
        server.create_table("b", 32, rows=2000, optimizer="rowwise_adagrad")
        server.create_table("logged", 8, rows=5000, durability="async")
        server.create_table("endless", 8)
    result = run(*command(directory, "--address", daemon.socket, "--layouts", "leveled", "-o", "json"))
    assert result.returncode == 0, result.stderr
    load = json.loads(result.stdout)["load"]
    assert [table["rows"] for table in load["tables"]] == [3000, 2000]
    assert load["tables"][0]["row_bytes"] == 64
    assert load["tables"][1]["row_bytes"] > 128
    assert not load["logged"]


def test_a_profile_has_tables_and_their_popularity(directory, tmp_path):
    trace, profile = tmp_path / "zipf.trace", tmp_path / "zipf.profile"
    assert run(CLI, "trace", "generate", trace, "--tables", "2", "--rows", "20000", "--dim", "16", "--zipf", "0.8").returncode == 0
    assert run(CLI, "profile", "show", trace, "--save", profile).returncode == 0
    result = run(*command(directory, "-o", "json", "--profile", profile, "--layouts", "leveled"))
    assert result.returncode == 0, result.stderr
    load = json.loads(result.stdout)["load"]
    assert load["tables"] == [{"rows": 20000, "row_bytes": 64}] * 2
    assert load["zipf"] == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--rows", "0", "--dim", "4"], 2, "--rows 0"),
        (["--rows", "10"], 2, "--dim (or --row-bytes) is missing"),
        (["--dim", "10"], 2, "--rows is missing"),
        (["--rows", "10", "--dim", "4", "--row-bytes", "4"], 2, "give one of them"),
        (["--rows", "10", "--dim", "4", "--layouts", "leveled,flat"], 2, "--layouts leveled,flat: allowed: leveled, universal, blob"),
        (["--rows", "10", "--dim", "4", "--prefer", "speed"], 2, "--prefer speed: allowed: balance, writes, reads, space"),
        (["--rows", "10", "--dim", "4", "--updates", "0"], 2, "--updates 0: allowed"),
        (["--rows", "10", "--dim", "4", "--reads", "100"], 2, "--reads 100: allowed"),
        (["--rows", "10", "--dim", "4", "--zipf", "nan"], 2, "--zipf nan: allowed"),
        (["--rows", "10", "--dim", "4", "--minutes", "0"], 2, "--minutes 0: allowed"),
        (["--rows", "1e3"], 2, "--rows 1e3"),
        (["--rows", "9223372036854775807", "--dim", "4"], 2, "--rows: allowed: 1 to 9007199254740992"),
        (["--rows", "10", "--row-bytes", "98305"], 2, "--row-bytes 98305: allowed: 1 to 96KiB"),
        (["--rows", "10", "--dim", "4", "--profile", "/none"], 2, "--rows and --profile: give one of them"),
        (["--profile", "/none"], 1, "/none"),
        (["--rows", "10", "--dim", "4", "--directory", "/none"], 1, "--directory /none: No such file or directory"),
        (["--rows", "10", "--dim", "4", "--directory", "/etc/passwd"], 1, "--directory /etc/passwd: Not a directory"),
        (["--rows", "10", "--dim", "4", "--directory", "/proc"], 1, "are needed and"),
        (["--rows", "10", "--dim", "4", "--config", "/none.yaml"], 1, "/none.yaml"),
    ],
)
def test_mistakes_are_told(directory, arguments, status, message):
    result = run(*command(directory, "-o", "json", *arguments))
    assert result.returncode == status, result.stderr
    assert message in result.stderr
    assert result.stdout == ""
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_told(directory):
    directory.chmod(0o500)
    result = run(*command(directory, "-o", "json", "--rows", "10", "--dim", "4"))
    assert result.returncode == 1
    assert "no folder can be made in it: Permission denied" in result.stderr


def test_nothing_is_tried_that_would_never_write(directory):
    config = directory.parent / "none.yaml"
    config.write_text(json.dumps({"checkpoints": {"interval_seconds": 0}}))
    result = run(*command(directory, "-o", "json", "--rows", "10", "--dim", "4", "--config", config))
    assert result.returncode == 1
    assert "the cache holds all rows and there are no checkpoints" in result.stderr
    assert list(directory.iterdir()) == []


def checkpoints_every(directory: Path, seconds: int) -> list[str | Path]:
    """Arguments for checkpoints; 0: none."""
    config = directory.parent / "checkpoints.yaml"
    config.write_text(json.dumps({"data": {"shards_per_directory": 1}, "checkpoints": {"interval_seconds": seconds}}))
    return ["--config", config]


def test_a_configuration_that_cannot_be_passed_on_is_told(directory):
    config = os.fsencode(directory.parent) + b"/\xff.yaml"
    Path(os.fsdecode(config)).write_text("{}")
    result = run(*command(directory, "-o", "json", "--rows", "10", "--dim", "4", "--config", os.fsdecode(config)))
    assert result.returncode == 1
    assert "is not UTF-8" in result.stderr
    assert list(directory.iterdir()) == []


def test_a_load_that_nearly_never_writes_is_told(directory):
    load = ["--rows", "8000", "--dim", "64", "--zipf", "10", "--cache", "1MiB"]
    result = run(*command(directory, "-o", "json", *load, *checkpoints_every(directory, 0)))
    assert result.returncode == 1
    assert "nearly no row is written with this --cache and --zipf" in result.stderr
    assert list(directory.iterdir()) == []


def test_checkpoints_with_less_than_one_update_of_the_trial_write_rows(directory):
    """The trial has one of a thousand rows, and the server updates 500 rows between two checkpoints."""
    load = ["--rows", "1000000", "--dim", "1024", "--updates", "500", "--layouts", "leveled"]
    result = run(*command(directory, "-o", "json", *load, *checkpoints_every(directory, 1)))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["layouts"][0]["bytes_per_update"] > 0


def started(directory: Path) -> subprocess.Popen:
    """Begins a long trial, and returns when its databases are there."""
    arguments = command(directory, "-o", "json", "--rows", "100000000", "--dim", "64", "--minutes", "10")
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until = time.monotonic() + WAIT_S
    while not list(directory.glob("embtier-tune-*/leveled/CURRENT")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_trial_leaves_nothing_behind(directory, number, status):
    process = started(directory)
    process.send_signal(number)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == status
    assert "interrupted; nothing is left behind" in errors
    assert list(directory.iterdir()) == []


def test_ctrl_c_of_a_terminal_leaves_nothing_behind(directory):
    """It reaches the trial as well, which ends at once."""
    process = started(directory)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "interrupted; nothing is left behind" in errors
    assert list(directory.iterdir()) == []


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_trial_that_dies_leaves_nothing_behind(directory):
    process = started(directory)
    (trial,) = children_of(process.pid)
    os.kill(trial, signal.SIGKILL)
    _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "signal 9" in errors
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(SANITIZED, reason="sanitizers end it otherwise")
def test_a_trial_ends_with_its_command(directory):
    process = started(directory)
    (trial,) = children_of(process.pid)
    process.kill()
    process.communicate(timeout=WAIT_S)
    until = time.monotonic() + WAIT_S
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        while "layout-trial" in os.readlink(f"/proc/{trial}/exe"):
            assert time.monotonic() < until
            time.sleep(0.05)
