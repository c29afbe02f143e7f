# SPDX-License-Identifier: Apache-2.0
"""Tables move from home to home while clients work. No client notices, no update is lost, and a move that ends early, by whatever
cause, leaves the table whole in one of its two homes."""

from __future__ import annotations

import json
import subprocess
import threading
import time

import numpy as np
import pytest
from daemons import CLI, LANES

import embtier

from test_homes import DIM, HOMES, ROWS, tiers, train

LIMIT_S = 60
IDS = np.arange(ROWS)
SLOWLY = 8_000  # bytes a second: a minute for a table, so that a test on a busy machine still ends the move
AWAY = {"cache": ("array", "dram"), "array": ("cache", None)}


@pytest.fixture
def daemon(make_daemon):
    """A daemon whose tiers keep 8 MiB each for arrays."""
    daemon = make_daemon()
    daemon.configure(tiers(daemon, 8, 8))
    daemon.start()
    return daemon


class Thread(threading.Thread):
    """A thread whose error the test gets."""

    def __init__(self, function) -> None:
        super().__init__(daemon=True)
        self.function, self.error, self.result = function, None, None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:
            self.error = error

    def end(self):
        self.join(4 * LIMIT_S)  # all of its work
        assert not self.is_alive(), "still running"
        if self.error is not None:
            raise self.error
        return self.result


def await_that(is_so) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # @is_so may start a process


def jobs(daemon) -> list[dict]:
    listed = subprocess.run([CLI, "-s", daemon.socket, "-t", "0", "-o", "json", "jobs"], capture_output=True, check=True, timeout=LIMIT_S)
    return json.loads(listed.stdout)


def some_moved(daemon) -> bool:
    return any(job["kind"] == "table move" and job["done"] and job["done"] >= ROWS // 50 for job in jobs(daemon))


def move(daemon, name, home, tier=None, **options) -> int:
    with daemon.connect(timeout=LIMIT_S) as server:
        return server.move_table(name, home, tier, **options)


def slow_move(daemon, name, home, tier=None) -> Thread:
    """Begins a move, and returns when some of its rows have moved."""
    thread = Thread(lambda: move(daemon, name, home, tier, rate=SLOWLY))
    await_that(lambda: some_moved(daemon) or not thread.is_alive())
    assert thread.is_alive(), thread.error
    return thread


class Mover:
    """Moves tables round all homes until it is told to end."""

    def __init__(self, daemon, *names) -> None:
        self.daemon, self.names, self.moves, self.is_over = daemon, names, 0, False
        self.thread = Thread(self._move)

    def _move(self) -> None:
        with self.daemon.connect(timeout=LIMIT_S) as server:
            while not self.is_over:
                for name in self.names:
                    home, tier = HOMES[(self.moves + 1) % len(HOMES)]
                    server.move_table(name, home, tier, rate=0 if self.moves % 2 else 4 << 20)
                self.moves += 1

    def end(self) -> None:
        self.is_over = True
        self.thread.end()


def home_of(server, name) -> tuple[str, str | None]:
    (spec,) = [spec for spec in server.tables() if spec.name == name]
    return spec.home, spec.tier


@pytest.mark.parametrize("lanes", sorted({1, LANES}))
@pytest.mark.parametrize(
    ("optimizer", "dtype", "durability"), [("adam", "f32", "replay"), ("rowwise_adagrad", "f16", "async"), ("sgd", "f32", "sync")]
)
def test_a_table_that_moves_has_the_same_bits(make_daemon, lanes, optimizer, dtype, durability):
    daemon = make_daemon(lanes=lanes)
    daemon.configure(tiers(daemon, 8, 8, lanes))
    daemon.start()
    options = {"optimizer": optimizer, "dtype": dtype, "durability": durability, "init": ("uniform", -1, 1), "seed": 3}
    results = []
    with daemon.connect() as server:
        server.create_table("moves", DIM, ROWS, **options)
        server.create_table("stays", DIM, ROWS, **options)
        mover = Mover(daemon, "moves")
        while mover.moves < 7 and mover.thread.is_alive():
            results.append(train(server, "moves", np.random.default_rng(len(results)), steps=6))
        mover.end()
        for number, result in enumerate(results):
            assert train(server, "stays", np.random.default_rng(number), steps=6) == result, f"round {number}"


def test_no_update_of_any_client_is_lost_and_every_read_is_right(daemon):
    clients = 3
    with daemon.connect() as server:
        for name in ("one", "other"):
            server.create_table(name, DIM, ROWS, optimizer="sgd")
    mover = Mover(daemon, "one", "other")

    def work(number: int) -> int:
        rng, wrong = np.random.default_rng(number), 0
        mine = IDS[number::clients]
        wanted = {name: np.zeros(len(mine)) for name in ("one", "other")}
        with daemon.connect(timeout=LIMIT_S) as server:
            tables = {name: server.open_table(name) for name in wanted}
            step = 0
            while (mover.moves < 9 or step < 6) and mover.thread.is_alive():
                step += 1
                name = ("one", "other")[step % 2]
                places = rng.choice(len(mine), 300, replace=False)
                if step % 3:
                    wanted[name][places] = step
                    tables[name].set(mine[places], np.full((300, DIM), step))
                else:  # the learning rate and the gradients are such that each row becomes less by one
                    wanted[name][places] -= 1
                    with server.push_batch([(tables[name], 300)]) as batch:
                        batch.ids(0)[:] = mine[places]
                        batch.gradients(0)[:] = 1
                        batch.push(lr=1, step=step)
                places = rng.choice(len(mine), 600, replace=False)
                wrong += int((tables[name].get(mine[places]) != wanted[name][places, None]).sum())
                with server.prefetch_batch([(tables[name], 50)]) as batch:
                    batch.ids(0)[:] = mine[places[:50]]
                    batch.prefetch()
            for name, table in tables.items():
                wrong += int((table.get(mine) != wanted[name][:, None]).sum())
        assert step > 5
        return wrong

    workers = [Thread(lambda number=number: work(number)) for number in range(clients)]
    assert [worker.end() for worker in workers] == [0] * clients
    mover.end()


@pytest.mark.parametrize("start", ["cache", "array"])
def test_a_checkpoint_during_a_move_has_the_rows_of_its_moment(daemon, start):
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, home=start)
        table.set(IDS, np.full((ROWS, DIM), 1))
        thread = slow_move(daemon, "rows", *AWAY[start])
        table.set(IDS[::2], np.full((len(IDS[::2]), DIM), 2))
        writer = Thread(lambda: server_checkpoint(daemon))
        for number in range(20):
            table.set(IDS[::3], np.full((len(IDS[::3]), DIM), 10 + number))
        made = writer.end()
        table.set(IDS, np.full((ROWS, DIM), 99))
        server.restore_checkpoint(made.id, ["rows"], name="then")
        rows = server.open_table("then").get(IDS)
        assert (rows == rows[:, :1]).all()
        others = rows[IDS % 3 != 0][:, 0]
        assert np.array_equal(others, np.where(IDS[IDS % 3 != 0] % 2 == 0, 2, 1))
        thirds = set(rows[::3, 0].tolist())
        assert len(thirds) == 1 or thirds <= {1, 2}, "not of one moment"
        assert thread.is_alive(), "the move was still under way"
    daemon.kill()
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("then").get(IDS) == rows).all()
        assert (server.open_table("rows").get(IDS) == 99).all(), "the restore made a checkpoint, too"
        assert home_of(server, "rows")[0] == start


def server_checkpoint(daemon):
    with daemon.connect(timeout=LIMIT_S) as server:
        return server.checkpoint()


@pytest.mark.parametrize("start", ["cache", "array"])
@pytest.mark.parametrize("durability", ["replay", "async"])
def test_a_restart_keeps_the_home_and_one_during_a_move_the_old_one(daemon, start, durability):
    away = AWAY[start]
    with daemon.connect() as server:
        for name in ("moved", "moving"):
            table = server.create_table(name, DIM, ROWS, home=start, durability=durability)
            table.set(IDS, np.arange(ROWS * DIM).reshape(ROWS, DIM))
        assert server.move_table("moved", *away) > 0
        slow_move(daemon, "moving", *away)
        server.open_table("moving").set(IDS[:100], np.full((100, DIM), 5))
    daemon.stop()
    daemon.start()
    rows = np.arange(ROWS * DIM).reshape(ROWS, DIM)
    with daemon.connect() as server:
        assert home_of(server, "moved") == away
        assert home_of(server, "moving")[0] == start
        assert (server.open_table("moved").get(IDS) == rows).all()
        rows[:100] = 5
        assert (server.open_table("moving").get(IDS) == rows).all()


@pytest.mark.parametrize("start", ["cache", "array"])
@pytest.mark.parametrize("end", ["cancel", "client", "drop"])
def test_a_move_that_ends_early_leaves_the_table_where_it_was(daemon, start, end):
    free = daemon.metrics()["array_free_bytes"]
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, home=start)
        before = daemon.metrics()["array_free_bytes"]
        table.set(IDS, np.arange(ROWS * DIM).reshape(ROWS, DIM))
        (home, tier) = AWAY[start]
        command = [CLI, "-s", daemon.socket, "table", "move", "rows", "--home", home, "--rate", str(SLOWLY / 2**20)]
        client = subprocess.Popen([*command, *(["--tier", tier] if tier else [])], stderr=subprocess.PIPE, text=True)
        await_that(lambda: some_moved(daemon))
        table.set(IDS[:50], np.full((50, DIM), 3))
        if end == "cancel":
            job = jobs(daemon)[0]
            subprocess.run([CLI, "-s", daemon.socket, "jobs", "cancel", str(job["id"])], check=True, timeout=LIMIT_S)
        elif end == "client":
            client.kill()
        else:
            server.drop_table("rows")
        await_that(lambda: not jobs(daemon))
        text = client.communicate(timeout=LIMIT_S)[1]
        if end == "drop":
            assert "a drop of the table waits" in text
            assert server.tables() == []
            assert daemon.metrics()["array_free_bytes"] == free
            return
        assert end == "client" or f"table 'rows' keeps its home {start}: it was cancelled" in text
        rows = np.arange(ROWS * DIM).reshape(ROWS, DIM)
        rows[:50] = 3
        assert (table.get(IDS) == rows).all()
        assert home_of(server, "rows")[0] == start
        assert daemon.metrics()["array_free_bytes"] == before
        assert server.move_table("rows", home, tier) > 0
        assert (table.get(IDS) == rows).all()
        assert home_of(server, "rows") == (home, tier)


REFUSALS = {
    "no such table": (("none", "array"), embtier.NoTableError, "there is no table 'none'"),
    "no such home": (("rows", "hbm"), ValueError, "home"),
    "unbounded": (("unbounded", "array"), embtier.InvalidError, "needs a table with a number of rows"),
    "too large": (("large", "array"), embtier.TooLargeError, r"needs \d+MiB as an array; tier 'dram' keeps 8MiB for arrays"),
    "no such tier": (("rows", "array", "hbm"), embtier.InvalidError, "there is no tier 'hbm', only dram, pmem"),
    "no room": (("rows", "array", "pmem"), MemoryError, "of the 8MiB that tier 'pmem' keeps for arrays, 0B are free"),
    "a tier, but no array": (("rows", "cache", "dram"), embtier.InvalidError, "home cache has no tier of its own"),
}  # fmt: skip


def test_what_cannot_move_is_refused_and_stays_as_it_is(daemon):
    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS).set(IDS, np.full((ROWS, DIM), 1))
        server.create_table("unbounded", DIM)
        server.create_table("large", DIM, 1_000_000)
        server.create_table("other", 64, 30_000, home="array", tier="pmem")
        server.create_table("moving", DIM, ROWS).set(IDS, np.full((ROWS, DIM), 1))
        free = daemon.metrics()["array_free_bytes"]
        for arguments, error, message in REFUSALS.values():
            with pytest.raises(error, match=message):
                server.move_table(*arguments)
        assert daemon.metrics()["array_free_bytes"] == free
        thread = slow_move(daemon, "moving", "array", "dram")
        with pytest.raises(embtier.BusyError, match="table 'moving' is being moved already"):
            server.move_table("moving", "cache")
        assert {spec.home for spec in server.tables() if spec.name != "other"} == {"cache"}
        assert thread.is_alive()
        subprocess.run([CLI, "-s", daemon.socket, "jobs", "cancel", str(jobs(daemon)[0]["id"])], check=True, timeout=LIMIT_S)
        with pytest.raises(embtier.CancelledError):
            thread.end()
        assert server.move_table("rows", "cache") == 0, "it is there"


def test_the_command_shows_where_the_table_is(daemon):
    def embtier_(*arguments) -> str:
        done = subprocess.run(
            [CLI, "-s", daemon.socket, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stderr}"

    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS).set(IDS, np.full((ROWS, DIM), 1))
    moved = embtier_("table", "move", "rows", "--home", "array")
    assert moved == "moved table 'rows' to home array in tier dram: 5,000 rows were in memory\n"
    assert embtier_("table", "move", "rows", "--home", "array") == "table 'rows' has home array in tier dram already\n"
    assert json.loads(embtier_("-o", "json", "table", "move", "rows", "--home", "array", "--tier", "pmem")) == {
        "table": "rows", "home": "array", "tier": "pmem", "rows": ROWS, "was_there": False,
    }  # fmt: skip
    for arguments in ((), ("--home", "hbm"), ("--home", "cache", "--rate", "0"), ("--home", "cache", "--rate", "-1")):
        assert embtier_("table", "move", "rows", *arguments).startswith("2: embtier table move: --")
