# SPDX-License-Identifier: Apache-2.0
"""After SIGKILL at any moment, every row is as its table's durability promises."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
from daemons import LONG, SANITIZED
from stores import is_whole

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

ROWS = 6000
# For each of the two halves: replay tables here, logged tables below.
KILLS = int(os.environ.get("EMBTIER_TEST_KILLS", 500 if LONG else 15))

# name: (dim, optimizer); all columns of a row hold the same number, its version
TABLES = {"narrow": (3, "none"), "wide": (300, "none"), "stateful": (40, "adam")}


@dataclass
class Batch:
    """Rows that one request set. All moments are of the same clock."""

    ids: np.ndarray
    numbers: np.ndarray
    sent: float
    acknowledged: float = float("inf")


def write_until_it_dies(daemon, name, seed, versions, batches):
    """Sets random rows to growing versions. versions[id] is the greatest one that was ever sent."""
    rng = np.random.default_rng(seed)
    try:
        with daemon.connect() as server:
            table = server.open_table(name)
            with server.batch([(table, 500)]) as batch:
                while True:
                    ids = rng.integers(0, ROWS, 500)
                    versions[ids] += 1
                    batch.ids(0)[:] = ids
                    batch.rows(0)[:] = versions[ids][:, None]
                    batches.append(Batch(ids, versions[ids], time.monotonic()))
                    batch.set()
                    batches[-1].acknowledged = time.monotonic()
                    batch.get()
                    assert (batch.rows(0) == versions[ids][:, None]).all()
    except (embtier.DisconnectedError, embtier.UnreachableError):
        pass


def rows_of(daemon, name):
    """The version of each row. All rows must be whole."""
    with daemon.connect() as server:
        got = server.open_table(name).get(np.arange(ROWS))
    assert (got == got[:, :1]).all(), f"{name}: rows torn: {np.flatnonzero((got != got[:, :1]).any(1))[:9]}"
    return got[:, 0]


def check(daemon, expected):
    for name, wanted in expected.items():
        got = rows_of(daemon, name)
        wrong = np.flatnonzero(got != wanted)
        assert wrong.size == 0, f"{name}: rows {wrong[:9]} are {got[wrong[:9]]}, not {wanted[wrong[:9]]}"


def check_one_instant(daemon, expected, batches):
    """Each table must hold @expected and the first batches of its own list, and the cuts must be at one instant for all tables.
    Updates @expected to these rows. Returns the number of batches per table."""
    there = {}
    for name, rows in expected.items():
        got = rows_of(daemon, name)
        for count in range(len(batches[name]) + 1):
            if (got == rows).all():
                there[name] = count
                break
            if count < len(batches[name]):
                rows[batches[name][count].ids] = batches[name][count].numbers
        assert name in there, f"{name}: as after none of its {len(batches[name])} batches"
    newest = max(
        (batches[name][count - 1].sent for name, count in there.items() if count), default=0
    )
    for name, count in there.items():
        missing = batches[name][count : count + 1]
        assert not missing or missing[0].acknowledged > newest, f"{name}: not of one instant: {there}"
    return sum(there.values())


def newest_checkpoint(daemon):
    """The newest complete checkpoint; 0 if there is none."""
    return max(
        (
            int(path.parent.name)
            for path in (daemon.folder / "rows/checkpoints").glob("*/checkpoint.json")
            if not (path.parent / "draft").exists()
        ),
        default=0,
    )


def checkpoint_gone_back_to(daemon):
    return int(daemon.logged("the last run did not end cleanly")[-1].get("checkpoint", 0))


def test_after_sigkill_under_load_replay_tables_are_as_in_the_newest_checkpoint(make_daemon, rng):
    """Before the first checkpoint, rows have their initial values. A clean stop loses nothing, and no later crash goes back to
    before it. When the server makes checkpoints meanwhile, all tables are as at one instant."""
    daemon = make_daemon()
    options = random_options(daemon, rng)
    daemon.configure(options)
    daemon.start()
    with daemon.connect() as server:
        for name, (dim, optimizer) in TABLES.items():
            server.create_table(name, dim, ROWS, optimizer=optimizer)
    versions = {name: np.zeros(ROWS, dtype=np.int64) for name in TABLES}
    expected = {name: np.zeros(ROWS) for name in TABLES}
    kept = kills_with_checkpoints = 0
    for kill in range(KILLS):
        batches = {name: [] for name in TABLES}
        threads = [
            threading.Thread(
                target=write_until_it_dies,
                args=(daemon, name, rng.randrange(2**32), versions[name], batches[name]),
            )
            for name in TABLES
        ]
        for thread in threads:
            thread.start()
        makes_checkpoints = options["checkpoints"]["interval_seconds"] == 1
        time.sleep(rng.uniform(0.5, 3) if makes_checkpoints else rng.uniform(0, 0.3))
        daemon.kill()
        for thread in threads:
            thread.join()
        newest = newest_checkpoint(daemon)
        options = random_options(daemon, rng)
        daemon.configure(options)
        daemon.start()
        assert checkpoint_gone_back_to(daemon) == newest
        if makes_checkpoints and newest and not is_whole(daemon, newest):  # on a very busy machine
            expected.update({name: rows_of(daemon, name) for name in expected})
        elif makes_checkpoints:
            kept += check_one_instant(daemon, expected, batches)
            kills_with_checkpoints += 1
        else:
            check(daemon, expected)
        if kill % 3 == 2:
            with daemon.connect() as server:
                for name, (dim, _) in TABLES.items():
                    expected[name] = rng.randrange(2**20) + np.arange(ROWS)
                    for ids in np.array_split(np.arange(ROWS), 4):
                        rows = np.repeat(expected[name][ids, None], dim, axis=1)
                        server.open_table(name).set(ids, rows)
                if kill % 2:
                    server.checkpoint()
            if not kill % 2:  # the next start makes one
                options = random_options(daemon, rng)
                daemon.restart(options)
                check(daemon, expected)
    print(f"{kept} batches in checkpoints of the server's own, of {kills_with_checkpoints} kills")
    assert len(daemon.logged("the last run did not end cleanly")) == KILLS
    daemon.restart()
    assert len(daemon.logged("the last run did not end cleanly")) == KILLS
    check(daemon, expected)


# ---- Logged tables ----

LOGGED_KILLS = int(os.environ.get("EMBTIER_TEST_KILLS", 6 if SANITIZED else 500 if LONG else 15))

# name: (dim, optimizer, durability); rows as above, but those of push_* hold the number of their pushes
LOGGED_TABLES = {
    "set_async": (5, "none", "async"),
    "set_sync": (64, "none", "sync"),
    "kept_async": (300, "adam", "async"),  # SETs that keep the optimizer's state
    "push_async": (16, "sgd", "async"),
    "push_sync": (3, "sgd", "sync"),
}


class Oracle:
    """For each row, the last number sent and the last acknowledged."""

    def __init__(self) -> None:
        self.sent = np.zeros(ROWS, dtype=np.int64)
        self.acknowledged = np.zeros(ROWS, dtype=np.int64)


def is_any_acknowledged(oracles):
    return any(oracle.acknowledged.any() for oracle in oracles.values())


def update_until_it_dies(daemon, name, seed, oracle):
    rng = np.random.default_rng(seed)
    try:
        with daemon.connect() as server:
            table = server.open_table(name)
            if name.startswith("push"):
                with server.push_batch([(table, 500)]) as batch:
                    while True:
                        ids = rng.permutation(ROWS)[:500]
                        oracle.sent[ids] += 1
                        batch.ids(0)[:] = ids
                        batch.gradients(0)[:] = -1
                        batch.push(1.0, 1)
                        oracle.acknowledged[ids] += 1
            with server.batch([(table, 500)]) as batch:
                while True:
                    ids = rng.permutation(ROWS)[:500]
                    oracle.sent[ids] += 1
                    batch.ids(0)[:] = ids
                    batch.rows(0)[:] = oracle.sent[ids][:, None]
                    batch.set()
                    oracle.acknowledged[ids] = oracle.sent[ids]
    except (embtier.DisconnectedError, embtier.UnreachableError):
        pass


def check_logged(daemon, name, oracle):
    """No acknowledged update is lost, and every row holds a number that was sent. Takes the present rows as the new state."""
    with daemon.connect() as server:
        got = server.open_table(name).get(np.arange(ROWS))
    assert (got == got[:, :1]).all(), f"{name}: rows torn: {np.flatnonzero((got != got[:, :1]).any(1))[:9]}"
    lost = np.flatnonzero(got[:, 0] < oracle.acknowledged)
    assert lost.size == 0, f"{name}: rows {lost[:9]} are {got[lost[:9], 0]}, not {oracle.acknowledged[lost[:9]]}"
    assert (got[:, 0] <= oracle.sent).all(), name
    oracle.sent[:] = oracle.acknowledged[:] = got[:, 0]


def random_options(daemon, rng):
    lanes = rng.randint(1, 3)
    return {
        "lanes": {"count": lanes, "write_queue_bytes": rng.choice(["1MiB", "8MiB"])},
        "cache": {
            "map_percent": rng.choice([0, 20]),
            "tiers": [daemon.dram(lanes, rng.choice([4, 16])), daemon.pmem(lanes)],
        },
        "checkpoints": {"interval_seconds": rng.choice([1, 600, 600])},
        "rocksdb": {
            "memtable_bytes": rng.choice(["2MiB", "16MiB"]),
            "direct_io": rng.choice(["auto", "off"]),
            "io_uring": rng.choice(["auto", "off"]),
        },
    }


def test_after_sigkill_logged_tables_have_all_that_was_acknowledged(make_daemon, rng):
    daemon = make_daemon()
    daemon.configure(random_options(daemon, rng))
    daemon.start()
    oracles = {name: Oracle() for name in LOGGED_TABLES}
    with daemon.connect() as server:
        for name, (dim, optimizer, durability) in LOGGED_TABLES.items():
            server.create_table(name, dim, ROWS, optimizer=optimizer, durability=durability)
    for kill in range(LOGGED_KILLS):
        threads = [
            threading.Thread(
                target=update_until_it_dies, args=(daemon, name, rng.randrange(2**32), oracles[name])
            )
            for name in LOGGED_TABLES
        ]
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0, 0.4))
        if kill == LOGGED_KILLS - 1:  # all earlier kills may have come too soon
            while not is_any_acknowledged(oracles) and any(thread.is_alive() for thread in threads):
                time.sleep(0.01)
        daemon.kill()
        for thread in threads:
            thread.join()
        daemon.configure(random_options(daemon, rng))
        daemon.start()
        for name in LOGGED_TABLES:
            check_logged(daemon, name, oracles[name])
    assert is_any_acknowledged(oracles)
    daemon.restart()
    for name in LOGGED_TABLES:
        check_logged(daemon, name, oracles[name])


def test_sigkill_during_start_and_stop_harms_nothing(make_daemon, rng):
    """Rows that a clean stop has written stay, however often a start, or a stop with nothing to write, is killed."""
    daemon = make_daemon()
    daemon.start()
    expected = np.arange(ROWS * 16, dtype=np.float32).reshape(ROWS, 16)
    with daemon.connect() as server:
        server.create_table("kept", 16, ROWS).set(np.arange(ROWS), expected)
    daemon.stop()
    for i in range(40 if LONG else 12):
        daemon.launch()
        if i % 2:
            daemon.await_ready()
            daemon._process.terminate()
        time.sleep(rng.uniform(0, 0.12))
        daemon.kill()
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("kept").get(np.arange(ROWS)) == expected).all()
    daemon.stop()


HALF_ROWS = 50_000_000  # more than can be written until the kill, however late that comes


@pytest.mark.parametrize("moment", ["create", "drop"])
def test_a_table_killed_half_made_or_half_dropped_is_gone_and_the_log_says_so(make_daemon, moment):
    daemon = make_daemon()
    daemon.start()
    progress = []

    def work():
        try:
            with daemon.connect(timeout=60) as server:
                if moment == "drop":
                    server.create_table("half", 32, 200_000, eager=True)
                    begun.set()
                    server.drop_table("half")
                else:
                    server.create_table(
                        "half", 32, HALF_ROWS, eager=True,
                        progress=lambda *told: (progress.append(told), begun.set()),
                    )  # fmt: skip
        except embtier.Error:
            pass
        finally:
            begun.set()

    begun = threading.Event()
    with daemon.connect() as server:
        server.create_table("whole", 8).set([1], [[1] * 8])
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    if moment == "drop":
        deadline = time.monotonic() + 60
        with daemon.connect(arena_bytes=0) as server:
            while all(spec.state == "live" for spec in server.tables() if spec.name == "half"):
                if "half" not in [spec.name for spec in server.tables()]:
                    break
                assert time.monotonic() < deadline
    daemon.kill()
    thread.join()
    if moment == "create":
        assert progress and all(0 <= done <= total == HALF_ROWS for done, total, _ in progress)
        assert {unit for _, _, unit in progress} == {"rows"}
    daemon.start()
    said = [fields for fields in daemon.logged("half created or half dropped") if fields["table"] == "half"]
    if moment == "create":
        assert len(said) == 1
    with daemon.connect() as server:
        assert [spec.name for spec in server.tables()] == ["whole"]
        again = server.create_table("half", 32, 200_000, init=("constant", 4))
        assert (again.get(np.arange(0, 200_000, 13)) == 4).all()
    daemon.stop()


def test_an_eager_table_is_written_whole_and_survives(own_daemon):
    rows = 50_000
    progress = []
    with own_daemon.connect(timeout=60) as server:
        table = server.create_table(
            "eager", 16, rows, init=("uniform", 0, 1), seed=3, eager=True,
            progress=lambda *told: progress.append(told),
        )  # fmt: skip
        lazy = server.create_table("lazy", 16, rows, init=("uniform", 0, 1), seed=3)
        written = own_daemon.metrics()["store_rows_written"]
        assert written >= rows
        expected = lazy.get(np.arange(rows))
        assert (table.get(np.arange(rows)) == expected).all()
        metrics = own_daemon.metrics()
        assert metrics["store_rows_absent"] == rows, "only the lazy table's rows were not there"
    own_daemon.restart()
    with own_daemon.connect() as server:
        table = server.open_table("eager")
        assert table.spec.eager and (table.get(np.arange(rows)) == expected).all()


def test_a_client_behind_the_long_work_of_another_does_not_give_up(own_daemon):
    """A client's timeout is about silence: the server says that it is alive. One user may have three tables filled at a time, so
    the fourth waits."""
    failed = {}
    longs = [f"long{i}" for i in range(3)]
    begun = {name: threading.Event() for name in [*longs, "behind"]}

    def create(name, timeout, rows):
        try:
            with own_daemon.connect(timeout=timeout) as server:
                server.create_table(name, 1, rows, eager=True, progress=lambda *_: begun[name].set())
        except embtier.Error as error:
            failed[name] = error

    first = [threading.Thread(target=create, args=(name, 60, 10**8)) for name in longs]
    for thread in first:
        thread.start()
    assert all(begun[name].wait(60) for name in longs)
    second = threading.Thread(target=create, args=("behind", 20, 10))  # a sign of life each second may be late
    second.start()
    second.join(25)
    assert second.is_alive(), failed
    own_daemon.stop()
    for thread in first:
        thread.join()
    second.join()
    assert not isinstance(failed["behind"], embtier.TimeoutError)


def test_a_stop_during_an_eager_creation_ends_soon_and_drops_the_half_made_table(own_daemon):
    failed = []

    def create():
        try:
            with own_daemon.connect(timeout=60) as server:
                server.create_table("half", 64, 50_000_000, eager=True, progress=lambda *_: begun.set())
        except embtier.Error as error:
            failed.append(error)

    begun = threading.Event()
    thread = threading.Thread(target=create)
    thread.start()
    assert begun.wait(60), failed
    began = time.monotonic()
    own_daemon.stop()
    assert time.monotonic() - began < 90
    thread.join()
    assert failed
    own_daemon.start()
    assert own_daemon.logged("half created or half dropped")
    with own_daemon.connect() as server:
        assert server.tables() == []
