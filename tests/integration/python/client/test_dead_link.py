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


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_both_sides_notice_a_dead_link(engine):
    can = subprocess.run([*NETWORK, "true"], capture_output=True, text=True)
    if can.returncode != 0:
        pytest.skip(f"no network of the test's own here: {can.stderr.strip()}")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="embtier-") as folder:
        environment = os.environ | {"PYTHONPATH": ":".join(one for one in sys.path if one)}
        command = [*NETWORK, sys.executable, HERE / "dead_link.py", EMBTIERD, folder, "auto" if engine == "io_uring" else "off"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        log = Path(folder) / "log"
        assert done.returncode == 0, done.stderr + (log.read_text() if log.exists() else "")
        assert done.stdout.splitlines() == [
            "tcp, request: disconnected", "tls, request: disconnected", "sessions: 1",
            "tcp, idle client: disconnected", "tls, idle client: disconnected",
            "tcp, rows: [[0.0, 0.0, 0.0, 0.0]]", "tls, rows: [[0.0, 0.0, 0.0, 0.0]]",
        ]  # fmt: skip
