# SPDX-License-Identifier: Apache-2.0
"""When damage stops a start, the message names the checkpoint that helps, and restoring it works."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import Daemon
from stores import all_rows, check_rows, directories, fill


def without(pattern: str) -> Callable[[Daemon], None]:
    def damage(daemon: Daemon) -> None:
        directory = Path(daemon.config["data"]["directories"][0])
        path = sorted(directory.glob(pattern))[-1]
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return damage


DAMAGE = {
    "catalog": without("catalog.json"),
    "current": without("shard-*/replay/CURRENT"),
    "logged_current": without("shard-*/logged/CURRENT"),
    "table_file": without("shard-*/replay/*.sst"),
    "shard": without("shard-*"),
}


@pytest.fixture
def store(make_daemon, rng) -> tuple[Daemon, dict]:
    """A running daemon with two checkpoints, the first with a step, and the rows of the second."""
    daemon = make_daemon()
    daemon.configure({"checkpoints": {"interval_seconds": 0}} | directories(daemon, 2, 2))
    daemon.start()
    with daemon.connect() as server:
        server.checkpoint(step=41)
        fill(server, rng.randrange(2**32))
        server.checkpoint(step=42)
        return daemon, all_rows(server)


@pytest.mark.parametrize("what", DAMAGE)
def test_after_a_clean_stop_the_newest_checkpoint_gets_over_any_damage(store, what):
    daemon, wanted = store
    daemon.stop()
    DAMAGE[what](daemon)
    said = daemon.fail_to_start()
    assert ("missing" if what != "table_file" else ".sst") in said
    assert "(`embtierd --restore 2` restores all tables from the newest checkpoint, of step 42, and loses" in said
    assert "; if it has the damaged file, too, try an older one: 1)" in said
    daemon.start("--restore", "2")
    with daemon.connect() as server:
        check_rows(server, wanted)
    daemon.restart()
    with daemon.connect() as server:
        check_rows(server, wanted)


@pytest.mark.parametrize("what", ["catalog", "logged_current", "shard"])
def test_after_a_crash_so_does_damage_of_what_a_crash_does_not_put_back(store, what):
    daemon, wanted = store
    daemon.kill()
    DAMAGE[what](daemon)
    assert "`embtierd --restore " in daemon.fail_to_start()
    daemon.start("--restore", "2")
    with daemon.connect() as server:
        check_rows(server, wanted)


def test_a_checkpoint_that_cannot_be_read_is_not_advised(store):
    daemon, _ = store
    daemon.stop()
    DAMAGE["catalog"](daemon)
    records = sorted(Path(daemon.config["data"]["directories"][0]).glob("checkpoints/*/checkpoint.json"))
    records[1].unlink()
    said = daemon.fail_to_start()
    assert "`embtierd --restore 1`" in said
    assert "older one" not in said
    records[0].unlink()
    assert "--restore" not in daemon.fail_to_start()


def test_a_start_from_a_missing_checkpoint_is_told_which_there_are(make_daemon):
    daemon, other = make_daemon(), make_daemon()
    rows = daemon.config["data"]["directories"][0]
    assert f"there is no checkpoint 77: the store in {rows} is new" in daemon.fail_to_start("--restore", "77")
    asked = [(daemon, ("--restore", "77")), (other, ("--restore", "77", "--restore-from", rows))]
    for count, listed in (1, "there is only 1"), (3, "there are 3 (step 2), 2 (step 1), 1"), (
        12,
        "the newest are 12 (step 11), 11 (step 10), 10 (step 9), 9 (step 8), 8 (step 7), 7 (step 6), 6 (step 5), "
        "5 (step 4), 4 (step 3), 3 (step 2)",
    ):
        daemon.start()
        with daemon.connect() as server:
            while (made := len(server.checkpoints())) < count:
                server.checkpoint(step=made or None)
        daemon.stop()
        for asking, arguments in asked:
            said = asking.fail_to_start(*arguments)
            assert said == f"there is no checkpoint 77 of the store in {rows}: {listed}"
    (Path(rows) / "checkpoints/000012/checkpoint.json").unlink()
    assert "the newest are 12 (cannot be read), 11" in daemon.fail_to_start("--restore", "77")
