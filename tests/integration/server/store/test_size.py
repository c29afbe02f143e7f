# SPDX-License-Identifier: Apache-2.0
"""`embtier size` tells within 5 % what a server with these tables then takes of its disk and of memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, SANITIZED, Daemon

WITHIN = 0.05
MB = 1_000_000
TABLE_BYTES = (4 if SANITIZED else 20) * MB
BATCH = 8000
NUMBERS = {"f16": np.float16, "bf16": np.uint16}  # of which a bf16 table takes the bits


def size(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=60, check=False)


def disk_bytes(daemon: Daemon) -> int:
    """The blocks of all files in the data directories, without the logs: RocksDB's info logs, and its logs of rows."""
    files = [file for folder in daemon.config["data"]["directories"] for file in Path(folder).rglob("*") if file.is_file()]
    return sum(file.stat().st_blocks * 512 for file in files if not file.name.startswith("LOG") and file.suffix != ".log")


def resident_bytes(daemon: Daemon) -> int:
    """Without shared memory, which is that of clients' arenas."""
    lines = Path(f"/proc/{daemon.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssFile"))


SHAPES = {
    "dim-16": [{"name": "t", "dim": 16}],
    "dim-64-with-state": [{"name": "t", "dim": 64, "optimizer": "adagrad"}],
    "dim-128-half-in-an-array": [{"name": "t", "dim": 128, "dtype": "f16", "home": "array"}],
    "all-kinds": [
        {"name": "a", "dim": 16, "dtype": "bf16", "optimizer": "rowwise_adagrad"},
        {"name": "b", "dim": 128, "optimizer": "adam", "home": "array"},
        {"name": "c", "dim": 64, "durability": "async"},
        {"name": "d", "dim": 2048},
    ],
    "blob": [{"name": "t", "dim": 32}],
}


# The part of 256 MiB for arrays. The rest is the cache, which is too small for the rows of the first two.
ARRAY_MIB = {"dim-16": 248, "dim-64-with-state": 240, "dim-128-half-in-an-array": 96, "all-kinds": 96, "blob": 96}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_takes_what_was_worked_out(make_daemon, tmp_path, shape):
    tables = [table | {"rows": TABLE_BYTES // len(SHAPES[shape]) // (table["dim"] * 4)} for table in SHAPES[shape]]
    daemon = make_daemon({"cache": {"tiers": [{"name": "dram", "kind": "dram", "bytes": "256MiB", "array_bytes": f"{ARRAY_MIB[shape]}MiB"}]}}, lanes=2)
    if shape == "blob":
        daemon.configure({"rocksdb": {"layout": "blob"}})
    file = tmp_path / "tables.json"
    file.write_text(json.dumps(tables))
    result = size("-o", "json", "size", "--config", daemon.folder / "embtierd.yaml", "--tables", file)
    assert result.returncode == 0, result.stderr
    expected = json.loads(result.stdout)
    assert expected["fits"] and expected["lacks"] == []

    daemon.start()
    started = resident_bytes(daemon)
    with daemon.connect() as server:
        for table in tables:
            handle = server.create_table(**table)
            for first in range(0, table["rows"], BATCH):
                ids = np.arange(first, min(first + BATCH, table["rows"]))
                handle.set(ids, np.full((len(ids), table["dim"]), 1, dtype=NUMBERS.get(table.get("dtype"), np.float32)))
            for first in range(0, table["rows"], BATCH):
                handle.get(np.arange(first, min(first + BATCH, table["rows"])))
        loaded = resident_bytes(daemon)
        listed = json.loads(size("-s", daemon.socket, "-o", "json", "table", "list").stdout)
    assert {one["name"]: one["row_bytes"] for one in expected["tables"]} == {
        one["name"]: one["weight_bytes"] + one["state_bytes"] for one in listed
    }
    subprocess.run([CLI, "-s", daemon.socket, "-t", "0", "compaction", "run"], check=True, capture_output=True)
    daemon.stop()  # which writes all rows
    assert disk_bytes(daemon) == pytest.approx(expected["ssd"]["bytes"], rel=WITHIN)
    files = list(Path(daemon.config["data"]["directories"][0]).rglob("*"))
    rows_on_disk = sum(file.stat().st_size for file in files if file.suffix in (".sst", ".blob"))
    assert (shape == "blob") == any(file.suffix == ".blob" for file in files)
    assert rows_on_disk == pytest.approx(expected["ssd"]["row_bytes"], rel=WITHIN)
    if not SANITIZED:  # sanitizers take more
        assert started == pytest.approx(expected["memory"]["start_bytes"], rel=WITHIN)
        assert loaded == pytest.approx(expected["memory"]["loaded_bytes"], rel=WITHIN)


def test_sums_are_of_the_figures_before_them_and_copies_count():
    one = json.loads(size("-o", "json", "size", "ads", "--rows", "100000", "--dim", "64").stdout)
    ten = json.loads(size("-o", "json", "size", "ads", "--rows", "100000", "--dim", "64", "--copies", "10").stdout)
    assert [table["name"] for table in ten["tables"]] == [f"ads-{i}" for i in range(1, 11)]
    assert ten["ssd"]["row_bytes"] == 10 * one["ssd"]["row_bytes"]
    assert one["ssd"]["bytes"] == sum(one["ssd"][key] for key in ("row_bytes", "database_bytes", "reserve_bytes"))
    memory = one["memory"]
    assert memory["start_bytes"] == sum(memory[key] for key in ("tier_bytes", "request_bytes", "lane_bytes", "program_bytes"))
    assert memory["loaded_bytes"] == memory["start_bytes"] + sum(
        memory[key] for key in ("memtable_bytes", "metadata_bytes", "lane_heap_bytes")
    )


def test_what_is_too_small_is_named(make_daemon, tmp_path):
    daemon = make_daemon({"cache": {"tiers": [{"name": "dram", "kind": "dram", "bytes": "64MiB", "array_bytes": "16MiB"}]}})
    config = daemon.folder / "embtierd.yaml"
    shape = ("--rows", "1000000", "--dim", "64", "--home", "array")
    result = size("size", "big", "--config", config, *shape)
    assert result.returncode == 1 and "too small: table big: no tier has" in result.stdout
    assert "array, no room" in result.stdout
    named = json.loads(size("-o", "json", "size", "--config", config, *shape, "--tier", "dram").stdout)
    assert not named["fits"] and "tier dram keeps 16MiB for arrays" in named["lacks"][0]
    long = size("size", "--config", config, "--rows", "1000000000000", "--dim", "64", "--home", "array")
    assert long.returncode == 1 and "no array can have so many rows" in long.stdout
    full = size("size", "--config", config, "--rows", "100000000000000", "--dim", "64")
    assert full.returncode == 1 and "too small: SSD" in full.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "there are no tables"),
        (["--rows", "10"], 2, "--dim is missing"),
        (["--dim", "10"], 2, "--rows is missing"),
        (["--rows", "unbounded", "--dim", "4"], 1, "rows are unbounded"),
        (["--rows", "10", "--dim", "4", "--copies", "0"], 2, "allowed: 1 to"),
        (["--rows", "1000000000000000000", "--dim", "4"], 1, "more than 10^18 bytes"),
        (["--rows", "unbounded", "--dim", "4"], 1, "table 'table': its rows"),
        (["a/b", "--rows", "10", "--dim", "4"], 1, "a table's name is"),
        (["--tables", "/nonexistent"], 1, "/nonexistent: cannot be opened: No such file or directory"),
        (["--tables", "/dev"], 1, "/dev: cannot be read: Is a directory"),
        (["--tables", "/dev/null"], 1, "/dev/null:1: "),
    ],
)
def test_mistakes_are_named(arguments, code, words):
    result = size("size", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "a JSON list of tables is needed"),
        ('[{"name": "a", "dim": 4}]', "table 1: rows is missing or wrong"),
        ('[{"name": "a", "rows": 5, "dim": 4}, {"name": "b", "rows": "unbounded", "dim": 4}]', "table 2: rows is missing or wrong"),
        ('[{"name": "a", "rows": 5, "dim": 4, "dtype": "f64"}]', "table 1: dtype is missing or wrong"),
        ('[{"name": "a\\u001b[2J", "rows": 5, "dim": 4}]', "a table's name is"),
        ('[{"name": "a", "rows": 5, "dim": 4, "home": "split"}]', "home split is not worked out"),
        ('[{"name": "a", "rows": 5, ', ":1: "),
    ],
)
def test_bad_files_of_tables_are_told(tmp_path, text, words):
    file = tmp_path / "tables.json"
    file.write_text(text)
    result = size("size", "--tables", file)
    assert (result.returncode, result.stdout) == (1, "")
    assert words in result.stderr and "\x1b" not in result.stderr


def test_a_list_of_a_servers_tables_can_be_taken(make_daemon, tmp_path):
    daemon = make_daemon()
    daemon.start()
    with daemon.connect() as server:
        server.create_table("users", rows=1000, dim=16, optimizer="adagrad")
    file = tmp_path / "tables.json"
    file.write_text(size("-s", daemon.socket, "-o", "json", "table", "list").stdout)
    result = json.loads(size("-o", "json", "size", "--tables", file).stdout)
    assert [(table["name"], table["row_bytes"]) for table in result["tables"]] == [("users", 128)]
