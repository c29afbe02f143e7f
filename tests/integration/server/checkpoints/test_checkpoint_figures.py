# SPDX-License-Identifier: Apache-2.0
"""The figures of checkpoints are true: the one to which a crash went back, the pause of updates, the held rows, and the new
bytes."""

from __future__ import annotations

import json
import re
import threading
import time

import numpy as np
import pytest
from daemons import LANES
from stores import checkpoint_under_load, folders_of, run_cli, settings, with_tables, write_all

DIM = 256  # 1 KiB a row
PAUSE_S = 0.25  # the longest pause of updates; one of several tries keeps within it
TRIES = 30  # on a busy machine any thread may be late


def shown(daemon, id: int) -> tuple[dict, str]:
    """The output of `embtier checkpoint show`, as JSON and as text."""
    done = [run_cli(daemon, "checkpoint", "show", str(id), *more) for more in (("-o", "json"), ())]
    assert all(one.returncode == 0 for one in done), done
    return json.loads(done[0].stdout), done[1].stdout


def test_after_a_crash_the_log_says_to_which_step_it_went_back_and_how_long_that_took(make_daemon):
    daemon = make_daemon()
    back, read = "did not end cleanly: replay tables are as they were", "logs of async and sync tables were read"
    with with_tables(daemon) as server:
        write_all(server, 1)
        made = time.monotonic()
        with_step = server.checkpoint(step=77).id
        write_all(server, 2)
    assert not daemon.logged(back) and not daemon.logged(read)
    for turn, (id, step) in enumerate([(with_step, "77"), (None, "none")]):
        if id is None:
            with daemon.connect() as server:
                write_all(server, 3)
                made = time.monotonic()
                id = server.checkpoint().id
                write_all(server, 4)
        daemon.kill()
        began = time.monotonic()
        daemon.start()
        start_ms = (time.monotonic() - began) * 1e3
        assert len(daemon.logged(back)) == len(daemon.logged(read)) == turn + 1
        said = daemon.logged(back)[-1]
        assert (said["level"], said["checkpoint"], said["step"]) == ("warn", str(id), step)
        assert 0 <= int(said["made_seconds_ago"]) <= time.monotonic() - made + 2
        assert 0 <= int(said["spent_ms"]) <= start_ms
        said = daemon.logged(read)[-1]
        assert said["level"] == "info" and int(said["bytes"]) > 3000 * 8 * 4, "both tables' last rows are in logs"
        assert 0 <= int(said["spent_ms"]) <= start_ms
    daemon.restart()  # a clean stop is no crash
    assert len(daemon.logged(back)) == len(daemon.logged(read)) == 2


def test_how_long_an_update_under_way_held_the_others_up_is_told(make_daemon):
    """A read from SSD takes a second longer, and a push that waits for it is under way when the checkpoint begins. The server
    tries several times, and in each try others' updates pause only for a short time."""
    daemon = make_daemon()
    trigger = daemon.folder / "slow"
    daemon.configure(settings(daemon))
    daemon.with_fault("slow_reads", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_READ_MS="1000")
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 8, 100 * TRIES, optimizer="sgd").set(np.arange(100 * TRIES), np.ones((100 * TRIES, 8)))
    daemon.restart()
    ended, cut = [], 0

    def push(id: int) -> None:
        with daemon.connect() as own, own.push_batch([(own.open_table("rows"), 1)]) as batch:
            batch.ids(0)[:] = [id]
            batch.gradients(0)[:] = 1
            trigger.touch()
            batch.push(1.0, 1)
            ended.append(time.monotonic())

    with daemon.connect() as server:
        for id in range(5, 100 * TRIES, 100):  # if the test is too late, it takes another row, not read before
            ended.clear()
            thread = threading.Thread(target=push, args=(id,))
            thread.start()
            try:
                while thread.is_alive() and server.status()["metrics"]["reading_rows"] == 0:
                    time.sleep(0.01)
                began = time.monotonic()
                made = checkpoint_under_load(server)
                spent = time.monotonic() - began
            finally:
                thread.join()
            trigger.unlink()
            waited = ended[0] - began  # the time for which the checkpoint waited for the push
            print(f"waited {waited:.3f} s, pause {made.pause:.3f} s in {made.tries} tries, spent {spent:.3f} s")
            assert made.pause <= spent
            cut += made.cut_updates  # a thread came very late
            if 0 < waited / 2 <= spent and made.tries > 1 and made.pause <= PAUSE_S and made.cut_updates == 0:
                break
        assert 0 < waited / 2 <= spent and made.tries > 1 and made.pause <= PAUSE_S
        assert made.cut_updates == 0
        for _ in range(TRIES):
            quick = server.checkpoint()
            if quick.pause < made.pause and quick.tries == 1:
                break
        assert 0 <= quick.pause < made.pause and quick.tries == 1
        server.restore_checkpoint(made.id, ["rows"], name="then")
        assert server.open_table("then").get([id + 1, id])[:, 0].tolist() == [1, 0], "what was waited for is in it"
        again = server.checkpoint_info(made.id)
        assert (again.pause, again.tries, again.cut_updates) == (made.pause, made.tries, 0)
        metrics = server.status()["metrics"]
        assert metrics["checkpoint_tries"] >= made.tries + quick.tries and metrics["checkpoint_cut_updates"] == cut
        assert metrics["checkpoint_longest_pause_seconds"] >= made.pause
        assert metrics["checkpoint_pause_seconds"] == pytest.approx(server.checkpoints()[-1].pause, abs=1e-6)
    pause_us = round(made.pause * 1e6)
    assert str(pause_us) in [said["pause_us"] for said in daemon.logged("checkpoint made")]
    as_json, text = shown(daemon, made.id)
    assert as_json["pause_us"] == pause_us
    as_text = f"{made.pause * 1e3:.4g} ms" if pause_us < 1e6 else f"{made.pause:.4g} s"
    assert f"\npause      {as_text}\ntries      {made.tries}\ncut        0\n" in text
    assert (as_json["tries"], as_json["cut_updates"]) == (made.tries, 0)


def test_a_slow_set_holds_no_client_up_and_is_cut_between_rows(make_daemon):
    """The SET waits for rows on SSD whose reads never end, while others' updates and a checkpoint go on."""
    daemon = make_daemon()
    trigger = daemon.folder / "slow"
    daemon.configure(settings(daemon))
    daemon.with_fault(
        "slow_reads", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_READ_MS="3600000", EMBTIER_FAULT_THREAD="reader"
    )
    daemon.start()
    rows = 20_000
    with daemon.connect() as server:
        slow = server.create_table("slow", 8, rows, optimizer="rowwise_adagrad")
        server.create_table("quick", 8, 1000).set(np.arange(1000), np.ones((1000, 8)))
        slow.set(np.arange(rows), np.ones((rows, 8)))
    daemon.restart()
    stop, gaps, failures = threading.Event(), [], []

    def write() -> None:
        try:
            with daemon.connect() as own:
                table = own.open_table("quick")
                before = time.monotonic()
                while not stop.is_set():
                    table.set(np.arange(1000), np.full((1000, 8), len(gaps)))
                    now = time.monotonic()
                    gaps.append(now - before)
                    before = now
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    with daemon.connect() as server, daemon.connect(arena_bytes=4 << 20) as hog:
        cached = 100
        table = hog.open_table("slow")
        table.get(np.arange(cached))
        trigger.touch()
        batch = hog.batch([(table, rows)])
        batch.ids(0)[:] = np.arange(rows)
        batch.rows(0)[:] = 2
        batch.submit_set()
        deadline = time.monotonic() + 60
        while not batch.poll() and server.status()["metrics"]["reading_rows"] == 0:  # over RPC, poll() sends what is left to send
            assert time.monotonic() < deadline
            time.sleep(0.01)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            while not gaps and not failures:  # until updates go on
                time.sleep(0.01)
            pauses = []
            for _ in range(TRIES // 3):
                made = server.checkpoint()
                pauses.append(made.pause)
                assert made.cut_updates >= 1 and made.tries > 1  # where the others take long too, one of them is cut as well
                if made.pause <= PAUSE_S and made.cut_updates == 1:
                    break
        finally:
            stop.set()
            writer.join()
        assert not failures and made.pause <= PAUSE_S and made.cut_updates == 1, pauses
        print(f"longest gap {max(gaps):.3f} s, {len(gaps)} updates, pauses {pauses}, {made.tries} tries")
        assert not batch.poll()
        daemon.kill()
    trigger.unlink()
    daemon.start()
    with daemon.connect() as server:
        got = server.open_table("slow").get(np.arange(rows))
        assert (got == got[:, :1]).all(), "each row is whole"
        assert (got[:cached] == 2).all() and (got[-1] == 1).all(), "some are as before, some as after"


def test_how_often_an_update_found_no_room_meanwhile_is_told(make_daemon):
    """Rows written during the checkpoint exceed the cache, so they wait for its end."""
    daemon = make_daemon()
    daemon.configure(settings(daemon))
    daemon.start()
    rows = 16_000 * LANES  # four times the cache
    stop, failures = threading.Event(), []
    with daemon.connect() as server:
        server.create_table("rows", DIM, rows)

    def write() -> None:
        try:
            with daemon.connect() as own:
                table = own.open_table("rows")
                number = 0
                while not stop.is_set():
                    number += 1
                    for first in range(0, rows, 4000):
                        table.set(np.arange(first, first + 4000), np.full((1, DIM), number))
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with daemon.connect() as server:
            tries, deadline = 0, time.monotonic() + 60
            while (made := checkpoint_under_load(server, keep=3)).held_rows == 0:
                tries += 1
                assert time.monotonic() < deadline and not failures
                time.sleep(0.1)
    finally:
        stop.set()
        thread.join()
    assert not failures
    with daemon.connect() as server:
        assert server.checkpoint_info(made.id).held_rows == made.held_rows
        assert {one.id: one.held_rows for one in server.checkpoints()}[made.id] == made.held_rows
        quiet = server.checkpoint()
        assert quiet.held_rows == 0
    print(f"{made.held_rows} rows were held, after {tries} tries")
    assert daemon.metrics()["checkpoint_held_rows"] >= made.held_rows
    assert str(made.held_rows) in [said["held_rows"] for said in daemon.logged("checkpoint made")]
    for one in (made, quiet):
        as_json, text = shown(daemon, one.id)
        assert as_json["held_rows"] == one.held_rows
        assert f"\nheld rows  {one.held_rows:,}\n" in text


def test_its_bytes_and_the_new_ones_are_those_of_its_files(make_daemon):
    daemon = make_daemon()
    with with_tables(daemon) as server:
        write_all(server, 1)
        server.checkpoint()
        server.open_table("replay").set([7], np.full((1, 8), 2))
        made = server.checkpoint()
        files = {
            checkpoint: {
                path.stat().st_ino: path.stat().st_size
                for path in folders_of(daemon, "shard-*", "*", "*")
                if f"checkpoints/{checkpoint.id:06d}/" in str(path)
            }
            for checkpoint in (made, server.checkpoints()[0])
        }
        mine, before = files.values()
        assert made.bytes == sum(mine.values())
        assert made.new_bytes == sum(size for file, size in mine.items() if file not in before)
        assert 0 < made.new_bytes < made.bytes, "some are shared"
    as_json, text = shown(daemon, made.id)
    assert (as_json["bytes"], as_json["new_bytes"]) == (made.bytes, made.new_bytes)
    assert all(re.search(rf"(?m)^{word} +[1-9][0-9.]* ([KMG]i)?B$", text) for word in ("bytes", "new bytes")), text
