# SPDX-License-Identifier: Apache-2.0
"""A server makes all tables of another store's checkpoint, whatever the shards, directories, lanes and tiers of both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import EMBTIERD, HELPERS, SANITIZED, Daemon
from stores import DIM, TABLES, all_rows, check_rows, directories, fill, paths, what_is_there


@pytest.fixture
def old(make_daemon, rng) -> tuple[Daemon, dict]:
    """A stopped store of two directories with three shards each, with a checkpoint, and the checkpoint's rows."""
    daemon = make_daemon(lanes=1)
    daemon.configure(directories(daemon, 2, 3))
    daemon.start()
    with daemon.connect() as server:
        fill(server, rng.randrange(2**32))
        wanted = all_rows(server)
        server.checkpoint(step=42)
        for name in TABLES:  # updates that the checkpoint does not have
            table = server.open_table(name)
            table.set(np.arange(100), np.full((100, DIM), 7, dtype=table.numpy_dtype))
    daemon.kill()
    return daemon, wanted


@pytest.mark.parametrize("shape", [(1, 8, 2), (3, 1, 1)])
def test_tables_of_another_store_are_there_to_the_bit(make_daemon, old, shape):
    daemon, wanted = old
    count, shards, lanes = shape
    new = make_daemon(lanes=lanes)
    new.configure(directories(new, count, shards) | {"cache": {"tiers": [new.dram(lanes)]}})
    new.start("--restore", "1", "--restore-from", paths(daemon))
    with new.connect() as server:
        check_rows(server, wanted)
        assert {t.name: t.durability for t in server.tables()} == {n: t[0] for n, t in TABLES.items()}
    new.kill()  # at once, since tables must be safe before any client is served
    new.start()
    with new.connect() as server:
        check_rows(server, wanted)


def test_the_newest_is_taken_when_none_is_named_and_the_other_store_stays_as_it_was(make_daemon, old):
    daemon, wanted = old
    for directory in daemon.config["data"]["directories"]:  # a copy may lack all files that are not asked for
        (Path(directory) / "LOCK").unlink()
    before = what_is_there(daemon)
    new = make_daemon()
    new.start("--restore-from", paths(daemon))
    with new.connect() as server:
        check_rows(server, wanted)
    new.stop()
    assert what_is_there(daemon) == before
    daemon.start()
    with daemon.connect() as server:
        now = all_rows(server)
        assert [c.id for c in server.checkpoints()][0] == 1
    assert (now["replayed"] == wanted["replayed"]).all()
    assert (now["logged"][:100, :DIM] == 7).all()


@pytest.mark.parametrize("durability", ["replay", "async", "sync"])
def test_a_trainers_step_and_metadata_stay_with_its_tables(make_daemon, durability):
    """They stay until a user deletes the checkpoint that has them, whether or not the tables need a checkpoint."""
    metadata = {"dense": "step-5.pt"}
    first, second = make_daemon(), make_daemon({"checkpoints": {"interval_seconds": 0, "keep": 1}})
    first.start()
    with first.connect() as server:
        server.create_table("rows", 8, durability=durability).set([1], np.ones((1, 8)))
        server.checkpoint(step=5, metadata=metadata)
    first.stop()
    second.start("--restore-from", paths(first))
    with second.connect() as server:
        made = server.checkpoints()[-1]
        server.create_table("more", 8)
    for number in range(3):
        with second.connect() as server:
            found = [c for c in server.checkpoints() if c.step is not None]
            assert [(c.id, c.automatic, c.step, c.metadata) for c in found] == [(made.id, False, 5, metadata)]
            assert "rows" in server.checkpoint_info(made.id).tables
            server.open_table("more").set([1], np.full((1, 8), number))
        second.restart()  # a start makes a checkpoint
    with second.connect() as server:
        server.delete_checkpoint(made.id)


def test_without_a_step_logged_tables_need_no_checkpoint(make_daemon):
    first, second = make_daemon(), make_daemon()
    first.start()
    with first.connect() as server:
        server.create_table("rows", 8, durability="async")
        server.checkpoint()
    first.stop()
    second.start("--restore-from", paths(first))
    with second.connect() as server:
        assert [t.name for t in server.tables()] == ["rows"] and server.checkpoints() == []


_AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from raw_client import RawClient, field
os.setgid(65534)
os.setuid(65534)
with RawClient(sys.argv[2]) as client:
    spec = field(1, "theirs") + field(2, 10) + field(3, 4) + field(4, 1) + field(5, 0) + field(6, 0)
    assert client.call(3, field(1, spec)).get(3) is None
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_tables_stay_their_makers_in_another_store(make_daemon):
    first, second = make_daemon({"socket": {"mode": "0666"}}), make_daemon()
    Path(first.path).parent.chmod(0o755)
    first.start()
    subprocess.run([sys.executable, "-c", _AS_NOBODY, HELPERS, first.path], check=True)
    with first.connect() as server:
        server.create_table("ours", 4)
        server.checkpoint()
    first.stop()
    second.start("--restore-from", paths(first))
    for _ in range(2):
        with second.connect() as server:
            users = server.users()
            assert users[65534]["tables"]["used"] == users[os.geteuid()]["tables"]["used"] == 1
            assert server.open_table("theirs").rows == 10
        second.restart()


def test_what_is_wrong_is_said_and_nothing_is_made(make_daemon, old):
    daemon, _ = old
    new = make_daemon()
    first, second = daemon.config["data"]["directories"]

    def why(*arguments: str) -> str:
        return new.fail_to_start("--restore-from", *arguments)

    third = make_daemon()
    third.start()
    third.stop()
    others = third.config["data"]["directories"][0]
    assert why(first) == (
        f"--restore-from: {first}/checkpoints/000001 has files in data directory 1 of its store, which is not named: "
        "name all that have files of this checkpoint"
    )
    assert why(second) == (
        f"--restore-from: the first data directory of the store of {second} is not named, which lists the files of "
        "checkpoints: name it too"
    )
    assert why(f"{first},{second}/../disk-0") == (
        f"--restore-from: {first} and {second}/../disk-0 are the same directory"
    )
    assert why(f"{first},{others}") == f"--restore-from: {first} and {others} belong to different stores"
    assert "no data directory of a store" in why(str(daemon.folder))
    assert "No such file" in why("/nowhere") or "no data directory" in why("/nowhere")
    assert "there is no checkpoint 99" in why(paths(daemon), "--restore", "99")
    identity = Path(second) / "embtier.json"
    identity.rename(f"{identity}.kept")
    os.mkfifo(identity)  # no process writes to it, and the start must not wait for that
    assert "not a file that embtier has written" in why(paths(daemon))
    Path(f"{identity}.kept").rename(identity)
    daemon.start()
    assert "in use by process" in why(paths(daemon))
    daemon.stop()
    for directory in new.config["data"]["directories"]:  # else a later start without the option would serve no tables
        assert not (Path(directory) / "embtier.json").exists()
    new.start()
    with new.connect() as server:
        assert server.tables() == []
        server.create_table("logged", 3, 10)
    new.stop()
    tiers = len(new.logged("tier reserved"))
    said = why(paths(daemon))
    assert "table 'logged' already exists" in said and "--restore-from makes all tables" in said
    assert "another name" not in said
    assert len(new.logged("tier reserved")) == tiers, "it was found before the tiers, which may take minutes"
    new.start()
    with new.connect() as server:
        assert [t.name for t in server.tables()] == ["logged"]


def test_a_copy_made_as_the_manual_says_while_the_server_runs_is_a_backup(make_daemon, old, tmp_path):
    daemon, wanted = old
    daemon.configure({"checkpoints": {"keep": 1, "interval_seconds": 0}})
    daemon.start("--restore", "1")
    with daemon.connect() as server:
        made = server.checkpoint()
        for step in range(3):
            for name in TABLES:
                table = server.open_table(name)
                table.set(np.arange(1000), np.full((1000, DIM), step, dtype=table.numpy_dtype))
            server.checkpoint(keep=9)
            daemon.stop()
            daemon.start()  # a start makes a checkpoint
            server.reconnect()
            if step == 1:
                server.verify_checkpoint(made.id)
                copies = [tmp_path / f"copy-{i}" for i in range(2)]
                for copy, directory in zip(copies, daemon.config["data"]["directories"], strict=True):
                    (copy / "checkpoints").mkdir(parents=True)
                    subprocess.run(["cp", f"{directory}/embtier.json", copy], check=True)
                    subprocess.run(
                        ["cp", "-R", f"{directory}/checkpoints/{made.id:06d}", copy / "checkpoints"], check=True
                    )
        server.delete_checkpoint(made.id)
    new = make_daemon()
    new.start("--restore-from", ",".join(map(str, copies)))
    with new.connect() as server:
        check_rows(server, wanted)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,", "--restore-from a,: a directory is missing before or after a comma"),
        (",a", "--restore-from ,a: a directory is missing before or after a comma"),
        ("a,,b", "--restore-from a,,b: a directory is missing before or after a comma"),
        ("", "--restore-from : a directory is missing"),
        (",".join(["a"] * 1000), "--restore-from: 1000 directories, a store has at most"),
    ],
)
def test_what_is_wrong_with_the_list_is_said(text, said):
    done = subprocess.run([EMBTIERD, "--restore-from", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr


def test_killed_in_the_middle_it_leaves_nothing_and_can_be_done_again(make_daemon, old, rng):
    daemon, wanted = old
    new = make_daemon()
    for _ in range(2 if SANITIZED else 5):
        new.launch("--restore-from", paths(daemon))
        time.sleep(rng.uniform(0.02, 0.4))
        new.kill()
        new.start()
        with new.connect() as server:
            there = {t.name for t in server.tables()}
            assert there in (set(), set(TABLES))
            got = all_rows(server)
            for name in there:
                assert (got[name] == wanted[name]).all(), name
                server.drop_table(name)
        new.stop()
    new.start("--restore-from", paths(daemon))
    with new.connect() as server:
        check_rows(server, wanted)


def test_a_signal_ends_it_and_is_not_forgotten(make_daemon, old, rng):
    daemon, wanted = old
    new = make_daemon()
    for _ in range(3 if SANITIZED else 6):
        new.launch("--restore-from", paths(daemon))
        time.sleep(rng.uniform(0.02, 0.25))
        os.kill(new.pid, signal.SIGTERM)
        # The server may have been ready, not ready, or not yet handling signals.
        assert new.await_any_end() in (0, 1, -signal.SIGTERM)
        new.start()
        with new.connect() as server:
            there = {t.name for t in server.tables()}
            assert there in (set(), set(TABLES))
            for name in there:
                assert (all_rows(server)[name] == wanted[name]).all(), name
                server.drop_table(name)
        new.stop()
