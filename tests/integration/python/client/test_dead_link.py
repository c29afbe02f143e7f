# SPDX-License-Identifier: Apache-2.0
"""A link that dies without a word is noticed on both sides. It takes half a minute of waiting for the system's timers, and next to
no work."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import EMBTIERD

HERE = Path(__file__).resolve().parent
NETWORK = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]


def test_both_sides_notice_a_dead_link():
    can = subprocess.run([*NETWORK, "sh", "-c", "ip link add v0 type veth peer name v1 && nsenter -t $$ -n true"], capture_output=True, text=True)
    if can.returncode != 0:
        pytest.skip(f"no network of the test's own here: {can.stderr.strip()}")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="embtier-") as folder:
        environment = os.environ | {"PYTHONPATH": ":".join(one for one in sys.path if one)}
        command = [*NETWORK, sys.executable, HERE / "dead_link.py", EMBTIERD, folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr + (Path(folder) / "log").read_text()
        assert done.stdout.splitlines() == [
            "request: disconnected", "sessions: 1", "idle client: disconnected", "rows: [[0.0, 0.0, 0.0, 0.0]]",
        ]  # fmt: skip
