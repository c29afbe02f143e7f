# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is of one point between requests, over all tables and lanes. After SIGKILL at any moment rows go back to exactly
that point."""

from __future__ import annotations

import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np
import pytest
from checkpointed import GONE, check_nothing_is_left_over, ids_of, numbers_of, the_number
from daemons import LANES, LONG, SANITIZED
from stores import checkpoint_under_load, settings, with_tables, write_all

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

KILLS = int(os.environ.get("EMBTIER_TEST_KILLS", 3 if SANITIZED else 200 if LONG else 6))

# Seconds between two requests of a client. Without a rest, clients take a sanitizer's processor for most of a minute.
REST = 0.05 if SANITIZED else 0.0


# ---- One point between requests ----

WRITERS = 3
ROWS = 200  # of each writer in each table, 4 KiB each, or 1 KiB
DIM = 256 if SANITIZED else 1024
PUSHED = 400 * LANES
PUSHED_DIM = 64
OTHERS = (8000 if SANITIZED else 4000) * LANES  # rows of a cached table, more than the cache holds: those that are set leave it all the time


@dataclass
class Counters:
    """The requests that each client has sent, and those that were acknowledged."""

    sent: list[int] = field(default_factory=lambda: [0] * (WRITERS + 1))
    acknowledged: list[int] = field(default_factory=lambda: [0] * (WRITERS + 1))
    failures: list[BaseException] = field(default_factory=list)
    rest: float = REST  # of each client between two requests


def run_until_it_dies(daemon, counters, client) -> None:
    """Client @client sends one request after another. The last client but one pushes, the last one uses other rows."""
    try:
        with daemon.connect() as server:
            work = set_rows if client < WRITERS else push_rows if client == WRITERS else use_others
            for _ in work(server, counters, client):
                if client <= WRITERS:
                    counters.acknowledged[client] += 1
                time.sleep(counters.rest)
    except GONE:
        pass
    except BaseException as error:  # passed on to the test's thread
        counters.failures.append(error)


def set_rows(server, counters, client):
    tables = [server.open_table("replay"), server.open_table("async")]
    with server.batch([(table, ROWS) for table in tables]) as batch:
        for part in range(2):
            batch.ids(part)[:] = np.arange(ROWS) + client * ROWS
        while True:
            counters.sent[client] += 1
            for part in range(2):
                batch.rows(part)[:] = counters.sent[client]
            yield batch.set()


def push_rows(server, counters, client):
    tables = [server.open_table("pushed_replay"), server.open_table("pushed_async")]
    with server.push_batch([(table, PUSHED) for table in tables]) as batch:
        for part in range(2):
            batch.ids(part)[:] = np.arange(PUSHED)
        while True:
            counters.sent[client] += 1
            for part in range(2):
                batch.gradients(part)[:] = 1
            yield batch.push(1.0, counters.sent[client])


def use_others(server, _counters, client):
    rng, table = np.random.default_rng(client), server.open_table("others")
    with server.batch([(table, 200)]) as batch:
        while True:
            batch.ids(0)[:] = rng.integers(OTHERS, size=200)
            yield batch.get()
            batch.ids(0)[:] = rng.permutation(OTHERS)[:200]
            yield batch.set()
            time.sleep(0.02)  # these are to leave the cache, not to keep the drive busy


def weight_after(steps: int, eps: float) -> float:
    """Adagrad with gradients of 1 and a rate of 1."""
    return float(-np.sum(1 / (np.sqrt(np.arange(1, steps + 1)) + eps)))


def numbers_in(server, names) -> list[list[int]]:
    """For each table in @names, the number in each client's rows: [[replay], [async]]."""
    found = []
    for name in names:
        table, pushed = server.open_table(name), server.open_table(f"pushed_{name}")
        numbers = [the_number(table.get(np.arange(ROWS) + client * ROWS)) for client in range(WRITERS)]
        weights, state = pushed.get_with_state(np.arange(PUSHED))
        numbers.append(the_number(state))
        assert (weights == weights[0, 0]).all()
        spec = next(spec for spec in server.tables() if spec.name == pushed.name)
        assert weights[0, 0] == pytest.approx(weight_after(numbers[-1], spec.eps), rel=1e-4, abs=1e-6)
        found.append(numbers)
    return found


def evicted_dirty_rows(daemon) -> float:
    return sum(daemon.metrics()["cache_evicted_dirty_rows"].values())


def test_a_checkpoint_has_each_request_wholly_or_not_at_all(make_daemon):
    daemon = make_daemon()
    daemon.configure(settings(daemon))
    daemon.start()
    with daemon.connect() as server:
        for durability in ("replay", "async"):
            server.create_table(durability, DIM, WRITERS * ROWS, durability=durability)
            server.create_table(
                f"pushed_{durability}", PUSHED_DIM, PUSHED, optimizer="adagrad", durability=durability
            )
        server.create_table("others", DIM)  # unbounded, so it is cached
    counters = Counters()
    threads = [
        threading.Thread(target=run_until_it_dies, args=(daemon, counters, client))
        for client in range(WRITERS + 2)
    ]
    for thread in threads:
        thread.start()
    made = {}
    with daemon.connect() as server:
        deadline = time.monotonic() + 60
        while (min(counters.acknowledged) < 3 or evicted_dirty_rows(daemon) == 0) and not counters.failures:
            assert time.monotonic() < deadline, "rows are to leave the cache meanwhile"
            time.sleep(0.01)
        for _ in range(2 if SANITIZED else 5 if LONG else 3):
            # On a busy machine updates may take so long that there is no moment without one. The checkpoint then cuts some, and
            # says so. In this case clients rest for longer between updates.
            for _ in range(7):
                before = list(counters.acknowledged)
                checkpoint = checkpoint_under_load(server)
                if checkpoint.cut_updates == 0:
                    break
                counters.rest = 4 * counters.rest or 0.02
            assert checkpoint.cut_updates == 0
            made[checkpoint.id] = (before, list(counters.sent))
            time.sleep(0.05)
    daemon.kill()
    for thread in threads:
        thread.join()
    assert not counters.failures

    def check(id, numbers):
        before, after = made[id]
        assert all(low <= n <= high for low, n, high in zip(before, numbers, after)), (before, numbers, after)

    daemon.start()
    with daemon.connect() as server:
        check(max(made), numbers_in(server, ["replay"])[0])
        for client in range(WRITERS):  # of the last request, the logs may have a part
            rows = server.open_table("async").get(np.arange(ROWS) + client * ROWS)
            assert (rows >= counters.acknowledged[client]).all(), "acknowledged, and lost"
            assert (rows <= counters.sent[client]).all() and (rows == rows[:, :1]).all()
        for id in made:
            server.verify_checkpoint(id)
    for id in list(made)[::2]:
        daemon.kill()
        daemon.start("--restore", str(id))
        with daemon.connect() as server:
            replay, kept = numbers_in(server, ["replay", "async"])
        assert replay == kept, "tables of several moments"
        check(id, replay)
    daemon.restart()
    with daemon.connect() as server:
        assert numbers_in(server, ["replay", "async"]) == [replay, kept]


MEMBERS = 2


def step_until_it_dies(daemon, member, done, failures, go, away) -> None:
    """A member of a group: looks rows of two tables up, each in a bag of its own, and pushes by ticket.

    While `go` is not set it is `away`, between two steps; `done` counts its steps.
    """
    try:
        with daemon.connect() as server:
            group = server.join("trainers", MEMBERS, member)
            bags = [embtier.Bags(server.open_table(mode), PUSHED, PUSHED) for mode in ("replay", "async")]
            with server.bag_batch(bags) as batch:
                while True:
                    if not go[member].is_set():
                        away[member].set()
                        if not go[member].wait(60):
                            break
                    for part in range(2):
                        batch.ids(part)[:] = np.arange(PUSHED)
                        batch.offsets(part)[:] = np.arange(PUSHED + 1)
                    batch.lookup(ticket=True)
                    for part in range(2):
                        batch.gradients(part)[:] = 1
                    batch.push(1.0, group.step + 1, group=group)
                    done[member] += 1
                    time.sleep(REST)
    except (*GONE, embtier.GroupBrokenError):
        pass
    except BaseException as error:  # passed on to the test's thread
        failures.append(error)


def test_a_step_of_a_group_is_in_it_wholly_and_one_that_waits_for_a_member_holds_nothing_up(make_daemon):
    daemon = make_daemon()
    daemon.configure(settings(daemon))
    daemon.start()
    with daemon.connect() as server:
        for mode in ("replay", "async"):
            server.create_table(mode, PUSHED_DIM, PUSHED, optimizer="adagrad", durability=mode)
    done, failures, made = [0] * MEMBERS, [], {}
    go, away = ([threading.Event() for _ in range(MEMBERS)] for _ in range(2))
    threads = [
        threading.Thread(target=step_until_it_dies, args=(daemon, member, done, failures, go, away))
        for member in range(MEMBERS)
    ]
    for event in go:
        event.set()
    for thread in threads:
        thread.start()
    try:
        with daemon.connect() as server:
            for turn in range(5):
                wanted = max(done) + 3
                while min(done) < wanted and not failures:
                    time.sleep(0.005)
                if turn == 4:  # the first member pushes a step, and the second does not come to it
                    go[1].clear()
                    assert away[1].wait(60)
                    time.sleep(0.3)
                before = min(done)
                checkpoint = checkpoint_under_load(server)
                made[checkpoint.id] = (before, max(done) + 1)
            assert threads[1].is_alive(), "it waited until the other one was gone"
    finally:
        daemon.kill()
        go[1].set()
        for thread in threads:
            thread.join()
    assert not failures
    for id in list(made)[::2]:
        daemon.start("--restore", str(id))
        found = []
        with daemon.connect() as server:
            for mode in ("replay", "async"):
                weights, state = server.open_table(mode).get_with_state(np.arange(PUSHED))
                steps = the_number(state) / MEMBERS**2
                assert (weights == weights[0, 0]).all()
                assert weights[0, 0] == pytest.approx(weight_after(int(steps), 0), rel=1e-4, abs=1e-6)
                found.append(steps)
        assert found[0] == found[1] and made[id][0] <= found[0] <= made[id][1], (found, made)
        daemon.kill()


# ---- SIGKILL while checkpoints are made ----

STEPPED_ROWS = 1000 if SANITIZED else 3000
STEPPED = {"set_narrow": (5, "adam"), "set_wide": (300, "none"), "pushed": (16, "adagrad")}


class Stepper:
    """Changes random rows of some tables, makes a checkpoint, and so on. It knows the rows of each checkpoint."""

    def __init__(self) -> None:
        self.now = {name: np.zeros(STEPPED_ROWS) for name in STEPPED}
        self.at_step = {0: self.copy()}
        self.step = self.completed = 0
        self.failures: list[BaseException] = []

    def copy(self) -> dict[str, np.ndarray]:
        return {name: numbers.copy() for name, numbers in self.now.items()}

    def change(self, server, rng) -> None:
        for name in STEPPED:
            ids = rng.permutation(STEPPED_ROWS)[: rng.integers(1, STEPPED_ROWS)]
            table = server.open_table(name)
            if name == "pushed":
                self.now[name][ids] += 1
                with server.push_batch([(table, len(ids))]) as batch:
                    batch.ids(0)[:] = ids
                    batch.gradients(0)[:] = 1
                    batch.push(1.0, 1)
            else:
                self.now[name][ids] = self.step
                rows = np.full((len(ids), table.dim), self.step)
                state = np.full((len(ids), table.state_numbers), self.step) if table.state_numbers else None
                table.set(ids, rows, state)

    def run_until_it_dies(self, daemon, seed) -> None:
        rng = np.random.default_rng(seed)
        try:
            with daemon.connect() as server:
                while True:
                    step = self.step + 1
                    self.step = step
                    self.change(server, rng)
                    self.at_step[step] = self.copy()
                    checkpoint_under_load(server, step=step, keep=2)
                    self.completed = step
                    self.change(server, rng)  # these are in no checkpoint yet
        except GONE:
            pass
        except BaseException as error:
            self.failures.append(error)

    def check(self, server) -> None:
        """Checks the rows, and goes on from there."""
        checkpoints = server.checkpoints()
        step = checkpoints[-1].step if checkpoints else 0
        assert self.completed <= step <= self.step, "a complete one is lost"
        for name, wanted in self.at_step[step].items():
            table = server.open_table(name)
            rows, state = table.get_with_state(np.arange(STEPPED_ROWS))
            if name == "pushed":
                assert (state == wanted[:, None]).all()
                weights = np.array([weight_after(int(n), 1e-10) for n in range(int(wanted.max()) + 1)])
                wanted = weights[wanted.astype(int)]
                assert np.allclose(rows, wanted[:, None], rtol=1e-3)
                continue
            wrong = np.flatnonzero((rows != wanted[:, None]).any(axis=1))
            assert wrong.size == 0, f"{name}, step {step}: {wrong[:5]}: {rows[wrong[:5], 0]}"
            assert state.size == 0 or (state == wanted[:, None]).all()
        self.now = {name: numbers.copy() for name, numbers in self.at_step[step].items()}
        self.step = self.completed = step
        self.at_step = {step: self.copy()}


def test_after_sigkill_while_checkpoints_are_made_rows_are_those_of_the_newest(make_daemon, rng):
    daemon = make_daemon()
    directories = [f"{daemon.folder}/rows", f"{daemon.folder}/more"]
    for directory in directories:
        os.makedirs(directory, exist_ok=True)
    daemon.configure(settings(daemon, data={"directories": directories, "shards_per_directory": 4}))
    daemon.start()
    with daemon.connect() as server:
        for name, (dim, optimizer) in STEPPED.items():
            server.create_table(name, dim, STEPPED_ROWS, optimizer=optimizer)
    stepper = Stepper()
    steps = 0
    for kill in range(KILLS):
        before = stepper.completed
        thread = threading.Thread(target=stepper.run_until_it_dies, args=(daemon, rng.randrange(2**32)))
        thread.start()
        time.sleep(rng.uniform(0, 2.0 if SANITIZED else 1.2))
        while kill == KILLS - 1 and steps == 0 and stepper.completed == before and thread.is_alive():
            time.sleep(0.01)  # all kills so far came before a checkpoint was complete
        daemon.kill()
        thread.join()
        assert not stepper.failures, f"kill {kill}"
        daemon.start()
        with daemon.connect() as server:
            stepper.check(server)
            check_nothing_is_left_over(daemon, server)
            steps += stepper.completed - before
            if ids := ids_of(server):
                server.verify_checkpoint(ids[-1])
    assert steps > 0


def test_a_restore_killed_at_any_moment_is_done_wholly_or_not_at_all(make_daemon, rng):
    daemon = make_daemon()
    daemon.configure(settings(daemon))
    daemon.start()
    with daemon.connect() as server:
        tables = [server.create_table(mode, 16, 2000, durability=mode) for mode in ("replay", "async", "sync")]
        for table in tables:
            table.set(np.arange(2000), np.full((2000, 16), 1))
        first = server.checkpoint().id

    def numbers():
        with daemon.connect() as server:
            return [the_number(server.open_table(t).get(np.arange(2000))) for t in ("replay", "async", "sync")]

    done = 0
    for turn in range(8 if LONG else 3 if SANITIZED else 5):
        with daemon.connect() as server:
            for name in ("replay", "async", "sync"):
                server.open_table(name).set(np.arange(2000), np.full((2000, 16), turn + 2))
        daemon.stop()
        daemon.launch("--restore", str(first))
        time.sleep(rng.uniform(0, 0.6) ** 3)  # often soon
        daemon.kill()
        daemon.start()
        found = numbers()
        assert found in ([1] * 3, [turn + 2] * 3), turn
        done += found == [1] * 3
        daemon.kill()  # the result must stay
        daemon.start()
        assert numbers() == found
    daemon.stop()
    daemon.start("--restore", str(first))
    assert numbers() == [1] * 3
    print(f"{done} restores were done")


def test_what_a_crash_without_a_checkpoint_puts_aside_stays(make_daemon):
    """The rows put aside first stay even after a second crash: those written between the two are worth less."""
    daemon = make_daemon()
    daemon.configure(settings(daemon))

    def aside() -> dict[str, int]:
        return {str(path): path.stat().st_ino for path in (daemon.folder / "rows").glob("shard-*/replay.lost")}

    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 8, 100, durability="replay").set(np.arange(100), np.ones((100, 8)))
    daemon.kill()
    assert not aside()
    daemon.start()
    first = aside()
    daemon.kill()
    for checkpoint in (daemon.folder / "rows/checkpoints").glob("*"):
        shutil.rmtree(checkpoint)
    daemon.start()
    assert len(daemon.logged("there is no checkpoint")) == 2
    assert aside() == first and first


def test_what_a_clean_stop_left_is_safe_before_there_is_a_checkpoint_of_it(make_daemon):
    """A start that cannot make a checkpoint, here since a file stands where its folder should be, must change nothing. A later
    crash would otherwise go back to before the clean stop."""
    daemon = make_daemon()
    daemon.configure(settings(daemon) | {"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    with daemon.connect() as server:
        for kind in ("replay", "async"):
            server.create_table(kind, 8, 100, durability=kind, optimizer="sgd").set(np.arange(100), np.ones((100, 8)))
    daemon.stop()
    place = daemon.folder / "rows/checkpoints"
    shutil.rmtree(place, ignore_errors=True)
    place.touch()
    for _ in range(2):
        daemon.start()
        assert daemon.logged("the first checkpoint of this start failed")
        with daemon.connect() as server:
            replay = server.open_table("replay")
            assert (replay.get(np.arange(100)) == 1).all()
            with pytest.raises(embtier.Error):
                replay.set([1], np.full((1, 8), 2))
            with server.push_batch([(replay, 1)]) as batch, pytest.raises(embtier.Error):
                batch.ids(0)[:] = 1
                batch.push(1.0, 1)
            with pytest.raises(embtier.Error):
                server.create_table("eager", 8, 1000, eager=True)
            server.open_table("async").set([1], np.full((1, 8), 3))
            assert (replay.get(np.arange(100)) == 1).all()
        daemon.kill()
    daemon.start()
    place.unlink()
    with daemon.connect() as server:
        replay = server.open_table("replay")
        deadline = time.monotonic() + 60
        while True:
            try:
                replay.set([1], np.full((1, 8), 2))
                break
            except embtier.Error:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert (server.open_table("async").get([1]) == 3).all()
    daemon.kill()
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("replay").get(np.arange(100)) == 1).all()


def test_what_a_restore_made_that_was_cut_short_before_it_was_written_down_goes(make_daemon):
    daemon = make_daemon()
    daemon.start()
    daemon.stop()
    for database in ("replay", "logged"):
        left = daemon.folder / f"rows/shard-0003/{database}.new"
        left.mkdir()
        (left / "000012.sst").write_text("a second name of a file that takes space")
    daemon.start()
    assert not list((daemon.folder / "rows").glob("shard-*/*.new"))


# ---- Tables that come and go ----


def test_after_a_crash_new_tables_are_there_without_rows_and_dropped_ones_stay_away(make_daemon):
    daemon = make_daemon()
    daemon.configure(settings(daemon))
    daemon.start()
    ids = np.arange(3000)
    with daemon.connect() as server:
        server.create_table("kept", 8).set(ids, np.full((3000, 8), 1))
        server.create_table("dropped", 8, optimizer="adam").set(ids, np.full((3000, 8), 2))
        server.create_table("made_again", 8).set(ids, np.full((3000, 8), 3))
        server.checkpoint()
        server.drop_table("dropped")
        server.drop_table("made_again")
        server.create_table("made_again", 8, init=("constant", 4)).set(ids, np.full((3000, 8), 5))
        server.create_table("new", 8, init=("constant", 6)).set(ids, np.full((3000, 8), 7))
        server.create_table("new_async", 8, durability="async").set(ids, np.full((3000, 8), 8))
        server.open_table("kept").set(ids, np.full((3000, 8), 9))
    daemon.kill()
    for end in (daemon.kill, daemon.kill, daemon.stop):
        daemon.start()
        with daemon.connect() as server:
            assert sorted(s.name for s in server.tables()) == ["kept", "made_again", "new", "new_async"]
            assert all(spec.state == "live" for spec in server.tables())
            for name, number in {"kept": 1, "made_again": 4, "new": 6, "new_async": 8}.items():
                assert the_number(server.open_table(name).get(ids)) == number, name
            with pytest.raises(embtier.NoTableError):
                server.open_table("dropped")
            again = server.create_table("dropped", 8, init=("constant", 10), optimizer="adam")
            weights, state = again.get_with_state(ids)
            assert (weights == 10).all() and not state.any()
            server.drop_table("dropped")
        end()


# ---- The server's own checkpoints ----


def test_the_server_makes_one_now_and_then_if_something_has_changed_and_keeps_some(make_daemon):
    daemon = make_daemon()
    with with_tables(daemon) as server:
        write_all(server, 1)
        users = server.checkpoint().id
        write_all(server, 2)
    daemon.restart({"checkpoints": {"interval_seconds": 1, "keep": 2}})
    with daemon.connect() as server:
        at_start = server.checkpoints()[-1]
        assert at_start.automatic and at_start.id > users, "a crash goes back to the clean stop"
        deadline = time.monotonic() + 60
        number = 2
        while (newest := server.checkpoints()[-1]).id < at_start.id + 3:
            assert time.monotonic() < deadline
            number += 1
            write_all(server, number)
            time.sleep(0.2)
        assert newest.automatic
        written, deadline = datetime.now(timezone.utc), time.monotonic() + 60
        written = written.replace(microsecond=written.microsecond // 1000 * 1000)
        while server.checkpoints()[-1].created < written:  # until one has the last number
            assert time.monotonic() < deadline
            write_all(server, number)  # else nothing might have changed since the newest
            time.sleep(0.1)
        last, deadline = [], time.monotonic() + 60
        while (found := ids_of(server)) != last or len(found) != 3:  # one may be in the making, another due, an old one to go
            assert time.monotonic() < deadline, f"nothing has changed since, and there are {last}, then {found}"
            last = found
            time.sleep(2.5)
        assert users in last
    daemon.kill()
    daemon.start()
    with daemon.connect() as server:
        assert numbers_of(server) == [number] * 3
