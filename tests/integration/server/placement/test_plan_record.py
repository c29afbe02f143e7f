# SPDX-License-Identifier: Apache-2.0
"""Clients and records from before plans had a number of tables work as before; the number is then unknown."""

from __future__ import annotations

import json
import subprocess

import pytest
from control_requests import KINDS
from daemons import CLI
from raw_client import RawClient, field
from stores import crc32c

GENERATION, HASH = 4, 7


@pytest.fixture
def daemon(own_daemon):
    """Its plan was put in force by a client that does not send the number of tables."""
    with RawClient(own_daemon.path, arena_bytes=0) as client:
        begun = client.call(KINDS["plan_begin"].number, field(1, GENERATION) + field(2, HASH))
        assert 3 not in begun and 3 not in client.call(KINDS["plan_end"].number), begun
    return own_daemon


def stats(daemon, *options: str) -> str:
    return subprocess.run(
        [str(CLI), "-s", str(daemon.socket), "-t", "0", *options, "stats"], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    ).stdout


def check_stats(daemon) -> None:
    plan = json.loads(stats(daemon, "-o", "json"))["plan"]
    assert (plan["generation"], plan["tables"]) == (GENERATION, None) and plan["applied_ms"] > 0
    (line,) = (line for line in stats(daemon).splitlines() if line.startswith("placement plan"))
    assert line.startswith(f"placement plan of generation {GENERATION}, in force since ") and "table" not in line


def test_a_plan_may_begin_without_its_number_of_tables(daemon):
    check_stats(daemon)
    daemon.stop()
    daemon.start()
    check_stats(daemon)


def test_an_older_record_has_no_number_of_tables(daemon):
    daemon.stop()
    (record,) = daemon.folder.rglob("plan.json")
    members = json.loads(record.read_text())
    assert members.pop("tables") == 0
    text = json.dumps(members | {"crc32c": "00000000"})
    record.write_text(text.replace('"00000000"', f'"{crc32c(text.encode()):08x}"', 1))
    daemon.start()
    check_stats(daemon)
