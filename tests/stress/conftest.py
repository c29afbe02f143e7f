# SPDX-License-Identifier: Apache-2.0
"""Tests of long lives and tight memory. Fixtures are those of tests/crash, whose helpers are used too. EMBTIER_TEST_LONG=1 runs
the long forms, ten minutes each."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_CRASH = Path(__file__).resolve().parent.parent / "crash"
sys.path.insert(0, str(_CRASH))
_spec = importlib.util.spec_from_file_location("crash_conftest", _CRASH / "conftest.py")
_conftest = importlib.util.module_from_spec(_spec)
sys.modules["crash_conftest"] = _conftest
_spec.loader.exec_module(_conftest)

make_daemon, own_daemon, name, rng = _conftest.make_daemon, _conftest.own_daemon, _conftest.name, _conftest.rng
