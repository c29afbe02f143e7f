# SPDX-License-Identifier: Apache-2.0
"""The commands about knobs, as users call them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable

from daemons import CLI, Daemon


def run(daemon: Daemon, *words: str, address: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [CLI, "--timeout", "60", "--address", address or str(daemon.socket), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def answer(daemon: Daemon, *words: str, status: int = 0, address: str | None = None) -> dict:
    done = run(daemon, "-o", "json", *words, address=address)
    assert done.returncode == status, done
    return json.loads(done.stdout)


def set_knob(daemon: Daemon, name: str, value: str, *more: str, address: str | None = None) -> dict:
    """Sets it, and returns what the server has in force then."""
    changed = answer(daemon, "knob", "set", name, value, *more, address=address)
    assert changed["name"] == name
    assert answer(daemon, "knob", "get", name)["value"] == changed["value"]
    return changed


def refused(daemon: Daemon, *words: str) -> str:
    done = run(daemon, *words)
    assert done.returncode == 1 and not done.stdout, done
    return done.stderr


def differences(daemon: Daemon, *files: str) -> dict[str, tuple[str | None, str | None]]:
    done = run(daemon, "-o", "json", "config", "diff", *files)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["same"] else 1), done
    assert found["same"] == (not found["differences"])
    return {one["name"]: (one["running"], one["file"]) for one in found["differences"]}


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
