# SPDX-License-Identifier: Apache-2.0
"""Serves all Python tests; pytest runs from the top of the tree. A passed test's files are removed, since hundreds of
tests with a daemon each would fill a disk. A failed test's files stay in pytest's folder of the run, and then the
folders of daemons that a whole file shares stay too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = (yield).get_result()
    if report.failed:
        item.stash[_FAILED] = True
    if report.when == "teardown" and not item.stash.get(_FAILED, False) and "tmp_path" in item.funcargs:
        shutil.rmtree(item.funcargs["tmp_path"], ignore_errors=True)


@pytest.hookimpl(trylast=True)  # after all daemons have ended
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    folder = getattr(session.config._tmp_path_factory, "_basetemp", None)  # the public accessor would make a new one
    if folder is not None and exitstatus == 0 and not session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)
