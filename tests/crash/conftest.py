# SPDX-License-Identifier: Apache-2.0
"""Tests of breakage and of the state it leaves: killed processes, power losses, disks that refuse, flipped bits. Fixtures and
daemons are those of the server's tests.

By default each test runs in its short form. EMBTIER_TEST_LONG=1 (tools/check --long) runs the long forms. The head of each file
says how many cases each form has, and which variable sets the number. Every run prints its seed, and EMBTIER_TEST_SEED=… repeats
it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SERVER = Path(__file__).resolve().parent.parent / "integration/server"
_spec = importlib.util.spec_from_file_location("server_conftest", _SERVER / "conftest.py")
_conftest = importlib.util.module_from_spec(_spec)
sys.modules["server_conftest"] = _conftest
_spec.loader.exec_module(_conftest)  # also defines the fixture `daemons`
sys.path.append(str(_SERVER / "placement"))  # for the helpers in test_apply.py

make_daemon, own_daemon, name, rng = _conftest.make_daemon, _conftest.own_daemon, _conftest.name, _conftest.rng
random_homes = _conftest.random_homes
