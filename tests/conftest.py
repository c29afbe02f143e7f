# SPDX-License-Identifier: Apache-2.0
"""For all tests in Python, run from the top of the tree: what a test wrote goes when it passed, since hundreds of
tests with a daemon each would fill a disk. What a failed one wrote stays, in pytest's folder of the run."""

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
        shutil.rmtree(item.funcargs["tmp_path"], ignore_errors=True)  # gone with the last test


@pytest.fixture(scope="session", autouse=True)
def folders_of_modules(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module's daemon has a folder that none of its tests owns: they go with the last test, unless one failed."""
    yield
    if not request.session.testsfailed:
        shutil.rmtree(tmp_path_factory.getbasetemp())
