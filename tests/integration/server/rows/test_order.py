# SPDX-License-Identifier: Apache-2.0
"""Requests in flight take effect in order. tests/integration/test_random_walk.c tests more of this, at random.

The cache is far smaller than the rows, and pipelines are deep. So at the same time there are rows in DRAM, in PMEM, on their way
to SSD, being read, and waited for."""

from __future__ import annotations

import numpy as np
import pytest
from daemons import LANES, SANITIZED

import embtier


@pytest.fixture
def tiny(make_daemon):
    daemon = make_daemon(
        {"lanes": {"write_queue_bytes": "1MiB"}, "rocksdb": {"memtable_bytes": "8MiB"}}
    )
    return daemon


# A row more than the cache holds is enough to ask. Sanitizers get fewer rows and fewer rounds.
@pytest.mark.parametrize("optimizer", ["none", "adam"])
@pytest.mark.parametrize("fits", [True, False], ids=["cached", "missing"])
def test_set_and_get_of_the_same_rows_in_one_pipeline_take_effect_in_order(tiny, rng, optimizer, fits):
    """SET, GET, SET, GET … without waiting. Each GET sees the SET before it, whether rows are cached or must be read (with an
    optimizer, for a SET too)."""
    tiny.start()
    count, dim, depth = 400, 64, 32
    narrow, wide = (26_000, 10_000) if SANITIZED else (40_000, 20_000)
    rows = 400 if fits else (narrow if optimizer == "none" else wide) * LANES  # more than the cache holds
    with tiny.connect(max_in_flight=depth, arena_bytes=64 << 20) as server:
        table = server.create_table("rows", dim, rows, optimizer=optimizer)
        for first in range(0, rows, 400):
            table.set(np.arange(first, first + 400), np.full((400, dim), -1))
        batches = [server.batch([(table, count)]) for _ in range(depth)]
        for round_ in range(6 if SANITIZED else 12):
            ids = np.array(rng.sample(range(rows), count // 2))
            expected = []
            for i, batch in enumerate(batches):
                # Each row twice, in another order: within a SET the last one wins.
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


@pytest.mark.parametrize("fits", [True, False], ids=["cached", "missing"])
def test_requests_with_state_and_without_in_one_pipeline_take_effect_in_order(tiny, rng, fits):
    """As above, but every second SET is of weights alone and keeps the state. Every second GET is of weights alone, too."""
    tiny.start()
    count, dim, depth = 400, 33, 32
    rows = 400 if fits else 30_000 * LANES  # more than the cache holds
    with tiny.connect(max_in_flight=depth, arena_bytes=64 << 20) as server:
        table = server.create_table("rows", dim, rows, dtype="f16", optimizer="adagrad")
        states = np.zeros(rows, np.float32)
        weights = np.zeros(rows, np.float16)
        batches = [server.batch([(table, count)], state=i // 2 % 2 == 0) for i in range(depth)]
        for round_ in range(20 if SANITIZED else 40):
            some = np.array(rng.sample(range(rows), count // 2))
            expected = []
            for i, batch in enumerate(batches):
                ids = np.concatenate([some, some])[rng.sample(range(count), count)]
                has_state = i // 2 % 2 == 0
                batch.ids(0)[:] = ids
                if (i + round_) % 4 in (1, 2):
                    batch.rows(0)[:] = np.nan
                    if has_state:
                        batch.state(0)[:] = np.nan
                    batch.submit_get()
                    expected.append((weights[ids], states[ids] if has_state else None))
                    continue
                new = np.array([rng.randrange(2048) for _ in ids])
                batch.rows(0)[:] = new[:, None]
                weights[ids] = new  # for equal ids the last one wins, in NumPy too
                if has_state:
                    batch.state(0)[:] = -new[:, None] / 3
                    states[ids] = -new / 3
                batch.submit_set()
                expected.append(None)
            for batch, wanted in zip(batches, expected):
                batch.wait()
                if wanted is None:
                    continue
                assert (batch.rows(0) == wanted[0][:, None]).all(), f"round {round_}"
                if wanted[1] is not None:
                    assert (batch.state(0) == wanted[1][:, None]).all(), f"round {round_}"
        for first in range(0, rows, 400):
            found, state = table.get_with_state(np.arange(first, first + 400))
            assert (found == weights[first : first + 400, None]).all()
            assert (state == states[first : first + 400, None]).all()
    tiny.stop()


def test_requests_of_one_session_are_in_order_though_others_wait_for_the_same_rows(tiny):
    """Two sessions work on the same missing rows. Each session sees its own values in order, and every GET sees a whole row that
    some SET wrote."""
    tiny.start()
    dim, count = 32, 300
    rounds, rows = (30, 26_000 * LANES) if SANITIZED else (60, 60_000 * LANES)
    with tiny.connect() as first, tiny.connect() as second:
        table = first.create_table("shared", dim, rows, optimizer="adagrad")
        for at in range(0, rows, 2000):
            table.set(np.arange(at, at + 2000), np.zeros((2000, dim)))
        sessions = []
        for number, server in enumerate((first, second)):
            own = server.open_table("shared")
            sessions.append((number, server, own, [server.batch([(own, count)]) for _ in range(8)]))
        for round_ in range(rounds):
            ids = (np.arange(count) * 197 + round_ * 313) % rows  # all distinct
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


def test_a_dropped_and_remade_table_has_first_values_again_though_its_rows_were_in_every_place(tiny):
    """Old rows were cached in both tiers, queued, on SSD, or being read by another session. None comes back."""
    tiny.start()
    with tiny.connect() as server, tiny.connect() as other:
        for round_ in range(2 if SANITIZED else 5):
            table = server.create_table("again", 64, 30_000, init=("constant", round_), optimizer="adagrad")
            for at in range(0, 30_000, 3000):
                table.set(np.arange(at, at + 3000), np.full((3000, 64), 99))
            reading = other.open_table("again")
            batch = other.batch([(reading, 3000)])
            batch.ids(0)[:] = np.arange(3000)
            batch.submit_get()
            server.drop_table("again")
            try:
                batch.wait(60)
                assert (batch.rows(0) == 99).all()
            except (embtier.DroppedError, embtier.NoTableError):
                pass
            batch.free()
            again = server.create_table("again", 64, 30_000, init=("constant", -round_), optimizer="adagrad")
            for at in range(0, 30_000, 3000):
                assert (again.get(np.arange(at, at + 3000)) == -round_).all()
            server.drop_table("again")
    tiny.stop()
