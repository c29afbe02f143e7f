# SPDX-License-Identifier: Apache-2.0
"""A prefetch of the Python client keeps rows in the server's cache until it is released, or until a push that names it is
done."""

from __future__ import annotations

import gc
import signal

import numpy as np
import pytest
from prefetching import ROWS, TIER_ROWS, await_pinned, hits, make_table, pinned_rows, press

import embtier

COUNT = 1000
IDS = np.arange(COUNT)


def prefetched(table: embtier.Table, ids: np.ndarray = IDS) -> embtier.PrefetchBatch:
    batch = table.server.prefetch_batch([(table, len(ids))])
    batch.ids(0)[:] = ids
    return batch.prefetch()


def bags_of(table: embtier.Table) -> embtier.BagBatch:
    """A looked-up batch of one bag, with all of IDS."""
    batch = table.server.bag_batch([embtier.Bags(table, COUNT, 1)])
    batch.ids(0)[:] = IDS
    batch.offsets(0)[:] = [0, COUNT]
    batch.lookup(ticket=True)
    batch.gradients(0)[:] = 1
    return batch


def gradients_of(table: embtier.Table) -> embtier.PushBatch:
    batch = table.server.push_batch([(table, COUNT)])
    batch.ids(0)[:] = IDS
    batch.gradients(0)[:] = 1
    return batch


PUSHES = {"by_ticket": bags_of, "by_rows": gradients_of}


def test_prefetched_rows_are_hits_whatever_is_read_meanwhile(server, name):
    table = make_table(server, name)
    table.get(IDS)
    press(table)
    assert hits(table, IDS) < COUNT // 2  # rows that are only read do not stay
    press(table)
    with prefetched(table) as ahead:
        assert ahead.hit_rows < COUNT // 2
        await_pinned(server, COUNT)
        press(table)
        assert hits(table, IDS) == COUNT
        ahead.ids(0)[:] = 0  # the server has its own copy by now
        assert ahead.ticket > 0
        ahead.release()
        assert ahead.ticket == 0
        await_pinned(server, 0)
        press(table)
        assert hits(table, IDS) < COUNT // 2
        ahead.release()


def test_a_row_is_pinned_as_long_as_a_prefetch_has_it(server, name):
    table = make_table(server, name)
    twice = server.prefetch_batch([(table, 10), (table, 10), (table, 0)])
    twice.ids(0)[:] = twice.ids(1)[:] = [1, 2, 3, 4, 5] * 2
    assert twice.prefetch() is twice
    await_pinned(server, 5)
    other = prefetched(table, np.arange(3, 9))
    await_pinned(server, 8)
    twice.release()
    await_pinned(server, 6)
    twice.set_count(0, 1)
    twice.set_count(1, 0)
    twice.ids(0)[:] = 3
    twice.prefetch()
    other.release()
    await_pinned(server, 1)
    twice.release()
    await_pinned(server, 0)


def test_a_batch_has_its_prefetch_until_it_is_released(daemon, server, name):
    table = make_table(server, name)
    with server.prefetch_batch([(table, COUNT)]) as batch:
        batch.ids(0)[:] = IDS
        assert batch.ticket == 0
        batch.release()
        batch.submit_prefetch()
        while not batch.poll():
            pass
        first = batch.ticket
        assert first > 0
        for again in (batch.prefetch, batch.submit_prefetch, lambda: batch.set_count(0, 1)):
            with pytest.raises(embtier.InvalidError, match="release it first"):
                again()
        batch.release()
        daemon.freeze()
        try:
            batch.submit_prefetch()
            with pytest.raises(embtier.BusyError):
                batch.submit_prefetch()
        finally:
            daemon.signal(signal.SIGCONT)
        batch.release()  # waits for the prefetch
        assert batch.ticket == 0
        batch.prefetch()
        assert batch.ticket not in (0, first)
        for wrong in (batch.rows, batch.state):
            with pytest.raises(TypeError):
                wrong(0)
        for wrong in (batch.get, batch.set):
            with pytest.raises(embtier.InvalidError, match="it is for prefetches"):
                wrong()
        assert table.writes == 0
        await_pinned(server, COUNT)
    await_pinned(server, 0)  # leaving the block released the pins


@pytest.mark.parametrize("make", PUSHES.values(), ids=PUSHES)
def test_a_push_releases_the_prefetch_that_it_names(server, name, make):
    table = make_table(server, name)
    before = table.get(IDS)
    for step in (1, 2):
        with prefetched(table) as ahead:
            await_pinned(server, COUNT)
            batch = make(table)
            batch.push(0.5, step, prefetch=ahead)
            assert ahead.ticket == 0
            await_pinned(server, 0)
    with prefetched(table) as ahead:
        batch = make(table)
        batch.submit_push(0.5, 3, prefetch=ahead)
        assert ahead.ticket == 0
        batch.wait()
        await_pinned(server, 0)
        ahead.prefetch()
    await_pinned(server, 0)
    np.testing.assert_allclose(table.get(IDS), before - 1.5, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", PUSHES.values(), ids=PUSHES)
def test_a_refused_push_leaves_the_prefetch_where_it_was(server, name, make):
    table = make_table(server, name)
    with prefetched(table) as ahead:
        number, batch = ahead.ticket, make(table)
        batch.gradients(0)[:] = np.nan
        with pytest.raises(embtier.NonfiniteError):
            batch.push(0.5, 1, prefetch=ahead)
        assert ahead.ticket == number
        await_pinned(server, COUNT)
        batch.gradients(0)[:] = 1
        batch.push(0.5, 1, prefetch=ahead)
        await_pinned(server, 0)


def test_what_is_no_prefetch_is_refused_without_asking_the_server(daemon, server, name):
    table = make_table(server, name)
    batch, ahead = gradients_of(table), server.prefetch_batch([(table, COUNT)])
    with pytest.raises(embtier.InvalidError, match="has no prefetch"):
        batch.push(0.5, 1, prefetch=ahead)
    with pytest.raises(TypeError, match="must be a PrefetchBatch, not a PushBatch"):
        batch.push(0.5, 1, prefetch=batch)
    ahead.ids(0)[:] = IDS
    daemon.freeze()
    try:
        ahead.submit_prefetch()
        for push in (batch.push, batch.submit_push):
            with pytest.raises(embtier.BusyError, match="in flight"):
                push(0.5, 1, prefetch=ahead)
    finally:
        daemon.signal(signal.SIGCONT)
    ahead.wait()
    with daemon.connect() as second:
        with pytest.raises(embtier.InvalidError, match="another connection"):
            gradients_of(second.open_table(name)).push(0.5, 1, prefetch=ahead)
    ahead.release()
    assert table.writes == 0


def test_prefetches_of_more_than_half_the_first_tier_are_refused_and_pin_nothing(server, name):
    table = make_table(server, name)
    batch = server.prefetch_batch([(table, TIER_ROWS)])
    batch.ids(0)[:] = np.arange(TIER_ROWS)
    says = r"no room in DRAM for a prefetch of \d+ bytes of rows: your user's prefetches may use \d+,"
    with pytest.raises(embtier.PinsFullError, match=says):
        batch.prefetch()
    assert batch.ticket == 0
    await_pinned(server, 0)
    batch.set_count(0, COUNT)
    batch.ids(0)[-1] = ROWS
    with pytest.raises(embtier.IdRangeError, match=f"row id {ROWS} is out of range"):
        batch.prefetch()
    await_pinned(server, 0)
    batch.ids(0)[-1] = 0
    batch.prefetch().release()
    await_pinned(server, 0)


def test_a_batch_that_is_dropped_while_its_push_is_in_flight_is_freed_later(server, name):
    table = make_table(server, name)
    for step in range(1, 20):
        batch, ahead = gradients_of(table), prefetched(table)
        batch.submit_push(0.5, step, prefetch=ahead)
        del ahead
        gc.collect()
        server.status()  # lets the client free whatever it can
        batch.wait()
    await_pinned(server, 0)


def test_prefetches_end_with_their_session(own_daemon, name):
    server = own_daemon.connect()
    table = make_table(server, name)
    ahead = prefetched(table)
    own_daemon.kill()
    own_daemon.start()
    with pytest.raises(embtier.DisconnectedError):
        table.get([1])
    server.reconnect()
    assert ahead.ticket == 0
    assert pinned_rows(server) == 0
    ahead.prefetch()
    with own_daemon.connect() as other:
        await_pinned(other, COUNT)
        server.close()
        del ahead, table, server
        gc.collect()
        await_pinned(other, 0)
