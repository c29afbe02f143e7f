# SPDX-License-Identifier: Apache-2.0
"""What breaks, and what is left then: processes that are killed, power that fails, disks that refuse, bits that
turn over. Fixtures and daemons are those of the server's tests.

Short forms are for every day. EMBTIER_TEST_LONG=1 (tools/check --long) takes the long ones; how many of
each, the head of each file says, and by which variable that can be told. Every run prints its seed, and EMBTIER_TEST_SEED=… takes it again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SERVER = Path(__file__).resolve().parent.parent / "integration/server"
_spec = importlib.util.spec_from_file_location("server_conftest", _SERVER / "conftest.py")
_conftest = importlib.util.module_from_spec(_spec)
sys.modules["server_conftest"] = _conftest
_spec.loader.exec_module(_conftest)  # which makes `daemons` known too

make_daemon, own_daemon, name, rng = _conftest.make_daemon, _conftest.own_daemon, _conftest.name, _conftest.rng
random_homes = _conftest.random_homes
