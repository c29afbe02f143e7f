# SPDX-License-Identifier: Apache-2.0
"""`embtier status` shows what a client counted, on one screen, and warns when a rule of health is broken, and no longer."""

from __future__ import annotations

import json
import os
import re
import subprocess

import numpy as np
import pytest
from daemons import CLI, TREE, Daemon
from stores import run_cli

DIM, ROWS, TABLES = 16, 500, 12
SCREEN = (23, 80)  # without the prompt's line


def status(daemon: Daemon, *options: str) -> dict:
    return json.loads(run_cli(daemon, "-o", "json", "status", *options).stdout)


def screen(daemon: Daemon, *options: str) -> list[str]:
    return run_cli(daemon, "status", *options).stdout.splitlines()


def only(found: list[dict], name: str) -> dict:
    (item,) = (item for item in found if item["name"] == name)
    return item


def source_rows(shown: dict, *sources: str) -> int:
    return sum(shown["lookups"]["served_by"][source] for source in sources)


def test_rows_hits_and_bytes_are_those_that_a_client_counted(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    ids = np.arange(ROWS)
    values = np.ones((ROWS, DIM), np.float32)
    with daemon.connect(arena_bytes=1 << 20) as server:
        tables = [server.create_table(f"t{i:02}", DIM, ROWS) for i in range(TABLES)]
        tables[0].get(ids)  # never written: each row is made
        shown = status(daemon)
        assert (shown["lookups"]["rows"], source_rows(shown, "initial")) == (ROWS, ROWS)
        assert shown["checkpoint"] == {"id": None, "age_s": None, "interval_s": 0}
        tables[1].set(ids, values)
        for _ in range(3):
            tables[1].get(ids)
        shown = status(daemon)
        assert (shown["lookups"]["rows"], shown["set_rows"], shown["pushed_rows"]) == (4 * ROWS, ROWS, 0)
        assert source_rows(shown, "dram", "pmem", "write_queue", "ssd") == 3 * ROWS
        assert only(shown["tiers"], "dram")["hit_rate"] == pytest.approx(source_rows(shown, "dram") / (4 * ROWS))
        for name, lookups, updates in (("t00", ROWS, 0), ("t01", 3 * ROWS, ROWS), ("t02", 0, 0)):
            table = only(shown["tables"], name)
            assert (table["lookup_rows"], table["updated_rows"]) == (lookups, updates), table
            assert (table["rows"], table["dim"], table["bytes"]) == (ROWS, DIM, ROWS * DIM * 4), table
        assert only(shown["tables"], "t01")["missed_lookup_rows"] == 0
        assert [table["name"] for table in shown["tables"][:3]] == ["t01", "t00", "t02"]  # by traffic
        assert sum(tier["dirty_rows"] for tier in shown["tiers"]) == ROWS
        assert shown["clients"]["sessions"] == 2 and 1 << 20 <= shown["clients"]["arena_bytes"] < 2 << 20
        assert daemon.metrics()["checkpoint_unsaved_bytes"] == ROWS * DIM * 4
        made = server.checkpoint()
        assert status(daemon)["checkpoint"]["id"] == made.id
        assert daemon.metrics()["checkpoint_unsaved_bytes"] == daemon.metrics()["checkpoint_failures_in_row"] == 0
    daemon.stop()
    daemon.start()
    with daemon.connect() as server:
        server.open_table("t01").get(ids)
        shown = status(daemon)
        assert (shown["lookups"]["rows"], source_rows(shown, "ssd")) == (ROWS, ROWS)
        assert only(shown["tables"], "t01")["missed_lookup_rows"] == ROWS
        assert shown["checkpoint"]["id"] >= made.id and shown["checkpoint"]["age_s"] >= 0
        files = sum(file.stat().st_size for file in daemon.folder.rglob("rows/**/*.sst") if "checkpoints" not in file.parts)
        assert 0 < shown["ssd"]["stored_bytes"] <= files
        stats = json.loads(run_cli(daemon, "-o", "json", "stats").stdout)["metrics"]
        assert shown["ssd"]["stored_bytes"] == stats["store_stored_bytes"]


def test_it_fits_one_screen_and_shows_the_tables_with_most_traffic(own_daemon):
    with own_daemon.connect() as server:
        tables = [server.create_table(f"{i:02}" + "n" * 60, DIM, ROWS) for i in range(TABLES)]
        for i, table in enumerate(tables):
            table.get(np.arange(10 * (i + 1)))
        lines = screen(own_daemon)
        assert len(lines) <= SCREEN[0] and max(map(len, lines)) <= SCREEN[1], lines
        assert re.fullmatch(r"embtierd \S+, up \d+s: (ok|warning)", lines[0]), lines[0]
        begin = next(i for i, line in enumerate(lines) if line.startswith("10 OF 12 TABLES "))
        listed = lines[begin + 1 :]
        assert [line[:2] for line in listed] == [f"{i:02}" for i in reversed(range(2, TABLES))]
        assert [line.split()[4:6] for line in listed[:1]] == [["KiB", "120"]]
        everything = screen(own_daemon, "--all")
        assert all(any(line.startswith(table.name + " ") for line in everything) for table in tables)
        server.create_table("large", DIM, 10 * ROWS)
        assert status(own_daemon, "--sort", "size")["tables"][0]["name"] == "large"
        assert status(own_daemon)["tables"][0]["name"] == tables[-1].name


def test_a_failed_reload_is_warned_of_until_one_succeeds(make_daemon):
    daemon = make_daemon()
    access = daemon.folder / "access.yaml"

    def write(text: str) -> None:
        access.write_text(text)
        access.chmod(0o600)

    me = json.dumps({"users": [{"name": "me", "role": "admin", "unix_users": [os.geteuid()]}]})
    write(me)
    daemon.configure({"access": {"file": str(access)}})
    daemon.start()
    assert not any(warning["name"] == "reload_failed" for warning in status(daemon)["warnings"])
    write("users: 7\n")
    assert run_cli(daemon, "keys", "reload").returncode == 1
    shown = status(daemon)
    assert only(shown["warnings"], "reload_failed")["health"] == shown["health"] == "warning"
    lines = screen(daemon)
    assert lines[0].endswith(": warning") and lines[1].startswith("warning  reload_failed: "), lines
    assert "`embtier keys reload`" in " ".join(lines[2:4])
    write(me)
    assert run_cli(daemon, "keys", "reload").returncode == 0
    assert not any(warning["name"] == "reload_failed" for warning in status(daemon)["warnings"])


def test_the_page_for_operators_has_the_rules():
    """The table of docs/operations.md equals that of --help, which is the code's own."""
    page = (TREE / "docs/operations.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (warning|bad) \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    text = subprocess.run([CLI, "status", "--help"], capture_output=True, text=True, check=True).stdout
    rules = re.findall(r"^  (\w+) +(warning|bad) +(\S.*)\n +> (.*)$", text, re.MULTILINE)
    assert len(rules) > 10
    assert [(name, health, re.sub("`", "", condition), advice) for name, health, condition, advice in rows] == rules
