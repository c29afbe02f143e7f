# SPDX-License-Identifier: Apache-2.0
"""A start with --restore restores all tables from the checkpoint that it names, or changes nothing."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
from checkpointed import ids_of, numbers_of
from daemons import EMBTIERD
from stores import MODES, with_tables, write_all


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_restore_puts_all_tables_back_to_an_older_checkpoint(make_daemon, end):
    daemon = make_daemon()
    with with_tables(daemon) as server:
        server.create_table("dropped", 8, optimizer="adam", durability="async").set(
            np.arange(3000), np.full((3000, 8), 5), np.full((3000, 16), 0.5)
        )
        write_all(server, 1)
        first = server.checkpoint(step=77).id
        write_all(server, 2)
        server.drop_table("dropped")
        server.create_table("new", 8).set([1], np.ones((1, 8)))
        second = server.checkpoint().id
        write_all(server, 3)
    getattr(daemon, end)()

    def check(number, old):
        with daemon.connect() as server:
            assert sorted(s.name for s in server.tables()) == sorted([*MODES, "dropped" if old else "new"])
            assert numbers_of(server) == [number] * 3
            if old:
                weights, state = server.open_table("dropped").get_with_state(np.arange(3000))
                assert (weights == 5).all() and (state == 0.5).all()
            else:
                assert server.open_table("new").get([1]).tolist() == [[1] * 8]
            assert {first, second} <= set(ids_of(server))

    daemon.start("--restore", str(first))
    check(1, True)
    said = daemon.logged("the requested checkpoint")
    assert said[-1]["checkpoint"] == str(first) and said[-1]["step"] == "77"
    daemon.kill()  # a crash must not go back to the newer checkpoint
    daemon.start()
    check(1, True)
    with daemon.connect() as server:  # names of tables that were removed are free
        table = server.create_table("new", 8, init=("constant", 4))
        assert (table.get([1]) == 4).all()
        server.drop_table("new")
    daemon.restart()
    check(1, True)
    daemon.stop()
    daemon.start("--restore", str(second))  # forward again
    check(2, False)
    with daemon.connect() as server:
        write_all(server, 4)
    daemon.restart()
    check(4, False)


@pytest.mark.parametrize("by", ["user", "server"])
def test_the_checkpoint_of_what_was_restored_is_as_the_one_it_was_restored_from(make_daemon, by):
    """A trainer finds its step and metadata in that checkpoint, however many checkpoints the server makes later."""
    metadata = {"dense": "step-5.pt"}
    daemon = make_daemon()
    with with_tables(daemon) as server:
        write_all(server, 1)
        if by == "user":
            server.checkpoint(step=5, metadata=metadata)
        write_all(server, 2)
    daemon.restart({"checkpoints": {"keep": 1}})
    with daemon.connect() as server:
        wanted = server.checkpoints()[0]
        assert wanted.automatic == (by == "server")
        write_all(server, 3)
    daemon.stop()
    daemon.start("--restore", str(wanted.id))
    with daemon.connect() as server:
        made = server.checkpoints()[-1]
        assert made.id > wanted.id
        assert (made.automatic, made.step, made.metadata) == (wanted.automatic, wanted.step, wanted.metadata)
        write_all(server, 4)
    for number in (5, 6):
        daemon.restart()  # a start makes a checkpoint
        with daemon.connect() as server:
            write_all(server, number)
            assert (made.id in ids_of(server)) == (by == "user")


def test_restore_of_a_damaged_checkpoint_is_refused_and_changes_nothing(make_daemon):
    """Wherever the damage is, the data that would have been replaced are still there."""
    daemon = make_daemon()
    with with_tables(daemon) as server:
        write_all(server, 1)
        server.checkpoint()
        write_all(server, 2)
    daemon.stop()
    files = sorted((daemon.folder / "rows" / "checkpoints" / "000001").rglob("*.sst"))
    for path in (files[0], files[-1]):
        content = path.read_bytes()
        # Not in place, since the database may use the same file.
        path.unlink()
        path.write_bytes(content[:1000] + bytes([content[1000] ^ 1]) + content[1001:])
        assert path.name in daemon.fail_to_start("--restore", "1")
        path.write_bytes(content)
    daemon.start()
    with daemon.connect() as server:
        assert numbers_of(server) == [2] * 3
    daemon.stop()
    daemon.start("--restore", "1")
    with daemon.connect() as server:
        assert numbers_of(server) == [1] * 3


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_restore_of_an_unknown_checkpoint_is_refused_and_changes_nothing(make_daemon, end):
    daemon = make_daemon()
    with with_tables(daemon) as server:
        write_all(server, 1)
        server.checkpoint()
        write_all(server, 2)
    getattr(daemon, end)()
    assert "no checkpoint 999" in daemon.fail_to_start("--restore", "999")
    daemon.start()
    with daemon.connect() as server:
        assert numbers_of(server) == ([2] * 3 if end == "stop" else [1, 2, 2])


def test_restore_of_a_new_store_is_refused(make_daemon):
    daemon = make_daemon()
    assert "no checkpoint 1" in daemon.fail_to_start("--restore", "1")
    daemon.start()


@pytest.mark.parametrize("text", ["x", "0", "-1", "1x", " 1", "", "18446744073709551616"])
def test_restore_takes_numbers_of_checkpoints_only(text):
    done = subprocess.run([EMBTIERD, "--restore", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and f"--restore {text}: the number of a checkpoint" in done.stderr
