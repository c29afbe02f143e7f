# SPDX-License-Identifier: Apache-2.0
"""Knobs are for administrators, over each transport."""

from __future__ import annotations

import json
import subprocess

import pytest
from accessed import TRANSPORTS, Guarded, token_file
from daemons import CLI


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    daemon.add("trainer", "train")
    daemon.start()
    yield daemon
    daemon.stop()
    daemon.end()


def run_as(daemon: Guarded, name: str, transport: str, *words: str) -> subprocess.CompletedProcess[str]:
    address = daemon.address(transport)
    command = [CLI, "--timeout", "60", "--address", address, "-o", "json", *words]
    with token_file(daemon.folder, daemon.tokens[name]):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_administrator_sets_knobs_and_others_do_not(guarded):
    old = "600"
    for number, transport in enumerate(TRANSPORTS):
        value = str(100 + number)
        done = run_as(guarded, "boss", transport, "knob", "set", "lanes.group_seconds", value)
        assert done.returncode == 0, done
        assert json.loads(done.stdout) | {"applied": True, "file": None} == {
            "name": "lanes.group_seconds", "old": old, "asked": value, "value": value, "applied": True, "file": None,
        }  # fmt: skip
        for words in (("knob", "set", "lanes.group_seconds", "7"), ("knob", "list"), ("config", "show"), ("config", "diff")):
            done = run_as(guarded, "trainer", transport, *words)
            assert done.returncode == 1 and "needs role admin" in done.stderr, done
        old = value
    done = run_as(guarded, "boss", "shm", "config", "show")
    assert not any(token in done.stdout for token in guarded.tokens.values())
