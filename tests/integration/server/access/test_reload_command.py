# SPDX-License-Identifier: Apache-2.0
"""`embtier keys reload` has the server read its files again, and says what came of it."""

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
    daemon.add("trainer", "train")
    daemon.start()
    yield daemon
    daemon.stop()
    daemon.end()


def reload_as(daemon: Guarded, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [CLI, "--timeout", "60", "--socket", daemon.address("shm"), "keys", "reload", *more]
    with token_file(daemon.folder, daemon.tokens[name]):
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_users_of_the_new_file_are_counted(guarded):
    assert reload_as(guarded, "boss").stdout == "reloaded; the access file has 2 users\n"
    guarded.add("newcomer", "read")
    assert json.loads(reload_as(guarded, "boss", "-o", "json").stdout) == {"users": 3}
    with guarded.connect_as("newcomer") as newcomer:
        assert newcomer.user() == "newcomer"


def test_a_wrong_file_is_told_and_changes_nothing(guarded):
    guarded.write("users: none")
    done = reload_as(guarded, "boss")
    assert done.returncode == 1 and "access.yaml" in done.stderr, done
    with guarded.connect_as("trainer") as trainer:
        assert trainer.user() == "trainer"


def test_only_an_admin_reloads(guarded):
    done = reload_as(guarded, "trainer")
    assert done.returncode == 1 and "needs role admin" in done.stderr, done
