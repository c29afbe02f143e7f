# SPDX-License-Identifier: Apache-2.0
"""Do requests in flight take effect in order, and is every row, at any time, what a model says?

The cache is far smaller than the rows, and pipelines are deep, so that rows are in DRAM, in PMEM, on
their way to SSD, being read, and waited for, at the same time."""

from __future__ import annotations

import time

import numpy as np
import pytest
from daemons import LANES, LONG

import embtier

WALK_S, WALK_LONGEST_S = 30 if LONG else 12, 150


@pytest.fixture
def tiny(make_daemon):
    daemon = make_daemon(
        {"lanes": {"write_queue_bytes": "1MiB"}, "rocksdb": {"memtable_bytes": "8MiB"}}
    )
    return daemon


@pytest.mark.parametrize("optimizer", ["none", "adam"])
@pytest.mark.parametrize("fits", [True, False], ids=["cached", "missing"])
def test_set_and_get_of_the_same_rows_in_one_pipeline_take_effect_in_order(tiny, rng, optimizer, fits):
    """SET, GET, SET, GET … without waiting: each GET sees the SET before it, whether the rows are
    cached or have to be read (with an optimizer, for a SET too)."""
    tiny.start()
    count, dim, depth = 400, 64, 32
    rows = 400 if fits else 40_000 * LANES  # more than fit
    with tiny.connect(max_in_flight=depth, arena_bytes=64 << 20) as server:
        table = server.create_table("rows", dim, rows, optimizer=optimizer)
        for first in range(0, rows, 400):
            table.set(np.arange(first, first + 400), np.full((400, dim), -1))
        batches = [server.batch([(table, count)]) for _ in range(depth)]
        for round_ in range(12):
            ids = np.array(rng.sample(range(rows), count // 2))
            expected = []
            for i, batch in enumerate(batches):
                # Each row twice, in another order: of a SET the last one wins.
                order = np.array(rng.sample(range(count), count))
                both = np.concatenate([ids, ids])[order]
                batch.ids(0)[:] = both
                if i % 2 == 0:
                    values = rng.random() + np.arange(count)
                    batch.rows(0)[:] = values[:, None]
                    last = dict(zip(both.tolist(), values.astype(np.float32)))
                    batch.submit_set()
                    expected.append(None)
                else:
                    batch.rows(0)[:] = np.nan
                    batch.submit_get()
                    expected.append(np.array([last[id_] for id_ in both.tolist()]))
            for batch, wanted in zip(batches, expected):
                batch.wait()
                if wanted is not None:
                    assert (batch.rows(0) == wanted[:, None]).all(), f"round {round_}"
    tiny.stop()


def test_requests_of_one_session_are_in_order_though_others_wait_for_the_same_rows(tiny):
    """Two sessions work on the same missing rows; each one's own values come in order, and every GET
    sees a whole row that some SET wrote."""
    tiny.start()
    dim, count, rounds, rows = 32, 300, 60, 60_000 * LANES
    with tiny.connect() as first, tiny.connect() as second:
        table = first.create_table("shared", dim, rows, optimizer="adagrad")
        for at in range(0, rows, 2000):
            table.set(np.arange(at, at + 2000), np.zeros((2000, dim)))
        sessions = []
        for number, server in enumerate((first, second)):
            own = server.open_table("shared")
            sessions.append((number, server, own, [server.batch([(own, count)]) for _ in range(8)]))
        for round_ in range(rounds):
            ids = (np.arange(count) * 197 + round_ * 313) % rows  # distinct
            for number, _, _, batches in sessions:
                for i, batch in enumerate(batches):
                    batch.ids(0)[:] = ids
                    if i % 2 == 0:
                        batch.rows(0)[:] = number * 1000 + i + 1
                        batch.submit_set()
                    else:
                        batch.submit_get()
            for number, _, _, batches in sessions:
                for i, batch in enumerate(batches):
                    batch.wait()
                    if i % 2 == 0:
                        continue
                    got = batch.rows(0)
                    assert (got == got[:, :1]).all(), "a torn row"
                    own = got[:, 0] // 1000 == number
                    assert (got[own, 0] % 1000 == i).all(), "not the SET just before it"
    tiny.stop()


class Model:
    """What the rows of one table must be: a first value each, read once, and what was set since."""

    def __init__(self, name: str, dim: int, dtype: str, rows: int, **options) -> None:
        self.name, self.dim, self.dtype, self.rows = name, dim, dtype, rows
        self.options = options
        self.bits = np.uint32 if dtype == "f32" else np.uint16
        self.values: dict[int, bytes] = {}

    def create(self, server):
        return server.create_table(self.name, self.dim, self.rows, dtype=self.dtype, **self.options)


class Walk:
    """Random steps against models; see the test."""

    DIMS = (1, 3, 16, 100, 700, 3000)

    def __init__(self, daemon, rng) -> None:
        self.daemon, self.rng = daemon, rng
        self.models: dict[str, Model] = {}
        self.first: dict[tuple, bytes] = {}  # a first value never changes, for the walk's life
        self.made = 0
        self.counts: dict[str, int] = {}
        self.sources: set[str] = set()

    def note_sources(self) -> None:
        """From where rows have been served since the last start."""
        metrics = self.daemon.metrics()
        assert metrics["failed_rows"] == 0 and metrics["write_error"] == 0
        self.sources |= {source for source, rows in metrics["lookup_rows"].items() if rows}
        if metrics["shared_reads"]:
            self.sources.add("a read under way")

    def connect(self) -> None:
        self.server = self.daemon.connect(arena_bytes=96 << 20, max_in_flight=16, timeout=60)
        self.tables = {name: self.server.open_table(name) for name in self.models}

    def create(self) -> None:
        rng = self.rng
        dim = rng.choice(self.DIMS)
        init = rng.choice(["zeros", ("constant", 2.5), ("uniform", -1.0, 1.0), ("normal", 0.0, 1.0)])
        model = Model(
            f"t{self.made % 7}_{self.made}", dim, rng.choice(["f32", "f16", "bf16"]),
            max(50, rng.choice([40_000, 400_000, 4_000_000]) // dim),
            optimizer=rng.choice(["none", "none", "adagrad", "rowwise_adagrad", "adam"]),
            init=init, seed=rng.randrange(4),
        )  # fmt: skip
        self.made += 1
        self.models[model.name] = model
        self.tables[model.name] = model.create(self.server)

    def drop(self) -> None:
        name = self.rng.choice(list(self.models))
        del self.models[name], self.tables[name]
        self.server.drop_table(name)

    def part(self) -> tuple[Model, np.ndarray]:
        rng = self.rng
        model = self.models[rng.choice(list(self.models))]
        most = max(2, min(model.rows, 60_000 // model.dim, 1500))
        count = rng.randint(1, most)
        if rng.random() < 0.5:  # few rows, often, and more than once
            ids = [int(model.rows * rng.random() ** 6) for _ in range(count)]
        else:
            ids = [rng.randrange(model.rows) for _ in range(count)]
        return model, np.array(ids, dtype=np.uint64)

    def pipeline(self) -> None:
        """Several requests in flight, checked in the order they were submitted."""
        rng = self.rng
        requests = []
        for _ in range(rng.randint(1, 12)):
            parts = [self.part() for _ in range(rng.randint(1, 3))]
            if requests and rng.random() < 0.6:  # the same rows again
                parts = [(model, ids[rng.randrange(len(ids)) :]) for model, ids, _ in requests[-1][1]]
            batch = self.server.batch([(self.tables[m.name], len(ids)) for m, ids in parts])
            is_set = rng.random() < 0.5
            wanted = []
            for p, (model, ids) in enumerate(parts):
                batch.ids(p)[:] = ids
                rows = batch.rows(p).view(model.bits)
                if is_set:
                    rows[:] = np.frombuffer(rng.randbytes(rows.nbytes), dtype=model.bits).reshape(rows.shape)
                    for id_, row in zip(ids.tolist(), rows):
                        model.values[id_] = row.tobytes()
                    wanted.append((model, ids, None))
                else:
                    expected = [model.values.get(id_) for id_ in ids.tolist()]
                    wanted.append((model, ids, expected))
            batch.submit_set() if is_set else batch.submit_get()
            requests.append((batch, wanted))
        for batch, wanted in requests:
            batch.wait()
            for p, (model, ids, expected) in enumerate(wanted):
                if expected is None:
                    continue
                for id_, want, row in zip(ids.tolist(), expected, batch.rows(p).view(model.bits)):
                    got = row.tobytes()
                    if want is not None:
                        assert got == want, f"{model.name}: row {id_}"
                    else:
                        self.check_first(model, id_, got)
            batch.free()

    def check_first(self, model: Model, id_: int, got: bytes) -> None:
        key = (model.dim, model.dtype, str(model.options["init"]), model.options["seed"], id_)
        assert self.first.setdefault(key, got) == got, f"{model.name}: row {id_}: another first value"

    def check_all(self) -> None:
        for name, model in self.models.items():
            known = list(model.values)
            step = max(1, 100_000 // model.dim)
            for at in range(0, len(known), step):
                some = known[at : at + step]
                with self.server.batch([(self.tables[name], len(some))]) as batch:
                    batch.ids(0)[:] = np.array(some, dtype=np.uint64)
                    batch.get()
                    for id_, row in zip(some, batch.rows(0).view(model.bits)):
                        assert row.tobytes() == model.values[id_], f"{name}: row {id_}"

    def restart(self) -> None:
        rng = self.rng
        self.note_sources()
        self.server.close()
        lanes = rng.choice([1, 2, LANES])
        self.daemon.restart({
            "lanes": {"count": lanes},
            "cache": {"tiers": [self.daemon.dram(lanes), self.daemon.pmem(lanes)]},
        })  # fmt: skip
        self.connect()

    def step(self) -> None:
        if len(self.models) < 2:
            kind = "create"
        else:
            kind = self.rng.choices(
                ["pipeline", "create", "drop", "restart", "check_all"], [100, 3, 3, 1, 1]
            )[0]
            if kind == "create" and len(self.models) > 8:
                kind = "drop"
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, kind)()


def test_a_random_walk_agrees_with_a_model(tiny, rng):
    """Pipelines of GET and SET over tables of several row lengths, with and without optimizer state,
    that come and go, and restarts with other lanes; cache of 4 MiB DRAM and 2 MiB PMEM a lane."""
    tiny.start()
    walk = Walk(tiny, rng)
    walk.connect()
    began = time.monotonic()
    places = {"dram", "pmem", "write_queue", "ssd", "initial", "a read under way"}
    try:
        while walk.sources != places or time.monotonic() < began + WALK_S:
            assert time.monotonic() < began + WALK_LONGEST_S, f"been only to {walk.sources}"
            walk.step()
            if time.monotonic() > began + WALK_S:
                walk.note_sources()
        walk.check_all()
        walk.restart()
        walk.check_all()
    finally:
        print(walk.counts)
        walk.server.close()
    tiny.stop()
    assert not tiny.logged("cannot be")


def test_a_dropped_and_remade_table_has_first_values_again_though_its_rows_were_in_every_place(tiny):
    """Cached in both tiers, queued, on SSD, being read by another session: none comes back."""
    tiny.start()
    with tiny.connect() as server, tiny.connect() as other:
        for round_ in range(5):
            table = server.create_table("again", 64, 30_000, init=("constant", round_), optimizer="adagrad")
            for at in range(0, 30_000, 3000):
                table.set(np.arange(at, at + 3000), np.full((3000, 64), 99))
            reading = other.open_table("again")
            batch = other.batch([(reading, 3000)])
            batch.ids(0)[:] = np.arange(3000)
            batch.submit_get()
            server.drop_table("again")
            try:
                batch.wait(10)
                assert (batch.rows(0) == 99).all()
            except (embtier.DroppedError, embtier.NoTableError):
                pass
            batch.free()
            again = server.create_table("again", 64, 30_000, init=("constant", -round_), optimizer="adagrad")
            for at in range(0, 30_000, 3000):
                assert (again.get(np.arange(at, at + 3000)) == -round_).all()
            server.drop_table("again")
    tiny.stop()
