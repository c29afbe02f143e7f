# SPDX-License-Identifier: Apache-2.0
"""A data directory whose disk is not mounted stays as it is, and a first start still makes a store."""

from __future__ import annotations

import os

import numpy as np
import pytest
from stores import rewrite_summed


@pytest.fixture
def daemon(make_daemon):
    """A daemon with two empty data directories, which starts without --init unless a test says so."""
    daemon = make_daemon()
    daemon.disks = [daemon.folder / "rows", daemon.folder / "more"]
    daemon.disks[1].mkdir()
    daemon.configure({"data": {"directories": [str(disk) for disk in daemon.disks]}})
    daemon.options = []
    return daemon


def unmount(disk):
    """Leaves the empty directory on which the disk was mounted."""
    away = disk.with_name(disk.name + ".away")
    disk.rename(away)
    disk.mkdir()
    return lambda: (disk.rmdir(), away.rename(disk))


def must_be_empty(*disks) -> None:
    assert [os.listdir(disk) for disk in disks] == [[]] * len(disks)


def fill(daemon) -> None:
    with daemon.connect() as server:
        server.create_table("rows", 4).set(np.arange(100), np.full((100, 4), 7.0))


def must_have_rows(daemon) -> None:
    with daemon.connect() as server:
        assert (server.open_table("rows").get(np.arange(100)) == 7).all()


def test_a_new_store_is_made_in_named_directories_only_when_told_to(daemon):
    why = daemon.fail_to_start()
    assert str(daemon.disks[0]) in why and "mounted" in why and "--init" in why
    must_be_empty(*daemon.disks)
    daemon.start("--init")
    fill(daemon)
    daemon.stop()
    for arguments in ([], ["--init"]):  # --init changes nothing where there is a store
        daemon.start(*arguments)
        must_have_rows(daemon)
        daemon.stop()


def test_disks_that_are_not_mounted_do_not_become_a_new_store(daemon):
    daemon.start("--init")
    fill(daemon)
    daemon.stop()
    mounts = [unmount(disk) for disk in daemon.disks]
    assert "mounted" in daemon.fail_to_start()
    must_be_empty(*daemon.disks)
    for mount in mounts:
        mount()
    daemon.start()
    must_have_rows(daemon)
    daemon.stop()


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("arguments", [[], ["--init"]])
def test_one_disk_of_a_store_is_never_made_anew(daemon, missing, arguments):
    daemon.start("--init")
    fill(daemon)
    daemon.stop()
    mount = unmount(daemon.disks[missing])
    why = daemon.fail_to_start(*arguments)
    assert str(daemon.disks[missing]) in why and "mounted" in why
    must_be_empty(daemon.disks[missing])
    mount()
    daemon.start()
    must_have_rows(daemon)
    daemon.stop()


def test_a_store_that_was_half_made_is_gone_on_with_where_no_disk_is_missing(daemon):
    daemon.start("--init")
    daemon.stop()
    for disk in daemon.disks:
        rewrite_summed(disk / "embtier.json", state="making")
    mount = unmount(daemon.disks[1])
    assert "mounted" in daemon.fail_to_start()
    must_be_empty(daemon.disks[1])
    mount()
    daemon.start()
    fill(daemon)
    daemon.stop()


def test_the_default_directory_is_made_without_being_told_to(make_daemon, tmp_path):
    daemon = make_daemon()
    del daemon.config["data"]["directories"]
    daemon.configure({})
    daemon.options = []
    daemon.environment["STATE_DIRECTORY"] = str(tmp_path / "state/embtier")
    daemon.start()
    fill(daemon)
    daemon.restart()
    must_have_rows(daemon)
    daemon.stop()
    assert (tmp_path / "state/embtier/embtier.json").exists()


def test_a_check_of_a_configuration_does_not_ask_for_a_store(daemon):
    daemon.launch("--check")
    daemon.await_end(0)
    must_be_empty(*daemon.disks)
