# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of users, and what users may see of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from accessed import Guarded, token_file
from daemons import EMBTIERD

CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    yield daemon
    daemon.end()


def run(guarded: Guarded, user: str, transport: str, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Runs a command as a user. Returns what it has printed to both streams."""
    with token_file(guarded.folder, guarded.tokens[user]):
        command = [str(CLI), "--socket", guarded.address(transport), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done
    return done.stdout, done.stderr


@pytest.mark.parametrize("transport", ["shm", "tls"])
def test_a_checkpoint_names_its_user(guarded, transport):
    guarded.start()
    with guarded.connect_as("boss", transport) as server:
        made = server.checkpoint(step=5)
        assert (made.user, made.uid) == ("boss", None if transport == "tls" else os.geteuid())
    guarded.restart()
    shown, _ = run(guarded, "boss", "shm", "checkpoint", "list")
    assert "boss" in shown and "UID" not in shown and "4294967295" not in shown, shown
    shown, _ = run(guarded, "boss", "shm", "checkpoint", "show", str(made.id))
    assert "user       boss\n" in shown, shown
    shown, _ = run(guarded, "boss", "shm", "-o", "json", "checkpoint", "list")
    assert [(one["user"], one["uid"]) for one in json.loads(shown) if one["id"] == made.id] == [("boss", made.uid)]
    assert {line["user"] for line in guarded.logged("checkpoint made") if line["by"] == "user"} == {"boss"}
    assert "4294967295" not in guarded.log.read_text()
