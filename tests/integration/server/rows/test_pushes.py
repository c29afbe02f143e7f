# SPDX-License-Identifier: Apache-2.0
"""Pushes take effect in order, whatever their shape. A bad push is refused and changes no row. The memory of tickets becomes free
again, whichever client had them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from daemons import LANES, LONG, SANITIZED, TREE
from raw_client import PUSH, RELEASE, RawClient
from training import Reference, Step

import embtier

ROWS, DIM = 1000, 4


def sgd_table(server: embtier.Server, name: str, **options) -> embtier.Table:
    """Rows of zeros: with a learning rate of -1 they become the sum of the pushed gradients."""
    return server.create_table(name, **{"dim": DIM, "rows": ROWS, "optimizer": "sgd", **options})


def bags_of(*parts, lengths=None, mode="sum", weighted=False) -> embtier.BagBatch:
    """@parts: (table, ids). One bag each, or bags of these @lengths; weights are ones."""
    batch = parts[0][0].server.bag_batch([
        embtier.Bags(table, len(ids), 1 if lengths is None else len(lengths), mode, weighted)
        for table, ids in parts
    ])  # fmt: skip
    for part, (_, ids) in enumerate(parts):
        batch.ids(part)[:] = ids
        batch.offsets(part)[:] = np.concatenate([[0], np.cumsum([len(ids)] if lengths is None else lengths)])
        if weighted:
            batch.weights(part)[:] = 1
    return batch


def gradients_of(table: embtier.Table, ids) -> embtier.PushBatch:
    """A batch with gradients of ones."""
    batch = table.server.push_batch([(table, len(ids))])
    batch.ids(0)[:] = ids
    batch.gradients(0)[:] = 1
    return batch


def all_bytes(*tables: embtier.Table) -> list[bytes]:
    return [array.tobytes() for t in tables for array in t.get_with_state(np.arange(t.rows))]


@contextlib.contextmanager
def nothing_changes(*tables: embtier.Table):
    before = all_bytes(*tables)
    yield
    assert all_bytes(*tables) == before


@pytest.fixture
def server(daemon):
    with daemon.connect() as server:
        yield server


# ---- Order ----


def test_two_sessions_push_by_turns_and_each_sees_what_the_other_did(daemon, name):
    with daemon.connect() as first, daemon.connect() as second:
        tables = [sgd_table(first, name), second.open_table(name)]
        ids = np.arange(300)
        batches = [bags_of((table, ids)) for table in tables]
        pushed = 0
        for turn in range(40):
            one, other = batches if turn % 2 else batches[::-1]
            for batch in (one, other):  # both tickets have the same rows
                batch.lookup(ticket=True)
                assert (batch.bags(0) == pushed * len(ids)).all()
            for batch in (one, other):
                batch.gradients(0)[:] = 1
            one.push(-1, turn + 1)
            pushed += 1
            assert (other.table(0).get(ids) == pushed).all()
            other.push(-1, turn + 1)
            pushed += 1
            assert (one.table(0).get(ids) == pushed).all()


@pytest.mark.parametrize("fits", [True, False], ids=["cached", "missing"])
def test_pushes_lookups_and_gets_in_one_pipeline_take_effect_in_order(make_daemon, rng, fits):
    """No request waits for another's answer. Each sees exactly the pushes before it, whether rows are cached or must be read."""
    daemon = make_daemon({"lanes": {"write_queue_bytes": "1MiB"}, "rocksdb": {"memtable_bytes": "8MiB"}})
    daemon.start()
    count, dim = 400, 64
    rows = count if fits else (22_000 if SANITIZED else 30_000) * LANES  # more than the cache holds
    with daemon.connect() as server:
        table = server.create_table("rows", dim, rows, optimizer="rowwise_adagrad", eps=1e-30)
        for first in range(0, rows, 2000):
            ids = np.arange(first, min(rows, first + 2000))
            table.set(ids, ids[:, None] % 64, 1)
        by_ticket = bags_of((table, np.arange(count)), lengths=[1] * count)
        lookups = [bags_of((table, np.arange(count)), lengths=[1] * count) for _ in range(3)]
        gets = [server.batch([(table, count)], state=True) for _ in range(3)]
        by_rows = [gradients_of(table, np.arange(count)) for _ in range(2)]
        sets = server.batch([(table, count)], state=True)
        for round_ in range(4 if SANITIZED else 8):
            ids = np.array(rng.sample(range(rows), count))
            for batch in (*lookups, *gets, *by_rows, by_ticket, sets):
                batch.ids(0)[:] = ids
            wanted = ids[:, None] % 64
            by_ticket.lookup(ticket=True)
            assert (by_ticket.bags(0) == wanted).all()
            by_ticket.gradients(0)[:] = 2
            by_rows[0].gradients(0)[:] = 5
            by_rows[1].gradients(0)[:] = 0
            gets[0].submit_get()
            by_ticket.submit_push(np.sqrt(5), 1)  # the state is 1 + 4, and the gradient is divided by its root
            lookups[0].submit_lookup()
            gets[1].submit_get()
            by_rows[0].submit_push(-np.sqrt(30), 2)  # the state is 1 + 4 + 25
            lookups[1].submit_lookup()
            by_rows[1].submit_push(1, 3)
            gets[2].submit_get()
            sets.rows(0)[:] = wanted
            sets.state(0)[:] = 1
            sets.submit_set()
            lookups[2].submit_lookup()
            for batch in (*lookups, *gets, *by_rows, by_ticket, sets):
                batch.wait()
            expected = [(wanted, 1), (wanted - 2, 5), (wanted + 3, 30)]
            for i, (values, state) in enumerate(expected):
                assert (abs(gets[i].rows(0) - values) < 1e-4).all(), f"round {round_}"
                assert (gets[i].state(0) == state).all()
            for i, values in enumerate((wanted - 2, wanted + 3, wanted)):
                assert (abs(lookups[i].bags(0) - values) < 1e-4).all(), f"round {round_}"
    daemon.stop()


def test_many_sessions_push_to_the_same_rows_at_once_and_none_is_lost(daemon, name):
    """Gradients are small integers, so that sums are the same in any order."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(daemon.connect(arena_bytes=4 << 20)) for _ in range(8)]
        table = sgd_table(servers[0], name)
        batches = [gradients_of(server.open_table(name), np.arange(0, ROWS, 2)) for server in servers]
        for number in range(1, 51):
            for batch in batches:
                batch.submit_push(-1, number)
            for batch in batches:
                batch.wait()
        assert (table.get(np.arange(ROWS)) == np.where(np.arange(ROWS) % 2, 0, 400)[:, None]).all()


def test_sessions_short_of_memory_lose_no_push_and_none_has_effect_twice(make_daemon, rng):
    """Threads look up bags of any size with a ticket. Then they push, release the ticket, let it expire, or are refused. The rows
    must have all pushes, and nothing else."""
    daemon = make_daemon({"lanes": {"request_bytes": "1MiB", "ticket_bytes": "1MiB", "ticket_seconds": 1}})
    daemon.start()
    rows, turns = 20_000 if SANITIZED else 50_000, 10 if SANITIZED else 30 if LONG else 16
    totals, failures = [], []

    def train(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        pushed = np.zeros(rows)
        try:
            with daemon.connect(arena_bytes=8 << 20) as server:
                table = server.open_table("t")
                for turn in range(turns):
                    ids = numbers.integers(0, rows, numbers.integers(1, 30_000))
                    lengths = numbers.multinomial(len(ids), [1 / 20] * 20)
                    with bags_of((table, ids), lengths=lengths) as batch:
                        while batch.ticket == 0:
                            try:
                                batch.lookup(ticket=True)
                            except embtier.TicketsFullError:
                                time.sleep(0.005)  # else four threads do little but ask
                        batch.gradients(0)[:] = 1
                        if turn % 8 == 1:
                            continue  # the ticket expires
                        if turn % 8 == 2:
                            with contextlib.suppress(embtier.TicketExpiredError):
                                batch.release()
                            continue
                        if turn % 8 == 3:
                            batch.gradients(0)[-1, -1] = np.nan
                        with contextlib.suppress(embtier.NonfiniteError, embtier.TicketExpiredError):
                            batch.push(-1, 1)
                            pushed += np.bincount(ids, minlength=rows)
            totals.append(pushed)
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    with daemon.connect() as server:
        table = sgd_table(server, "t", rows=rows)
        threads = [threading.Thread(target=train, args=(rng.randrange(2**32),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert sum(totals).max() > 0
        assert (table.get(np.arange(rows)) == sum(totals)[:, None]).all()


# ---- Shapes ----


def test_no_bags_at_all_and_bags_without_ids_change_nothing(server, name):
    table = sgd_table(server, name, optimizer="adam", weight_decay=0.1, init=("constant", 1))
    with nothing_changes(table):
        server.bag_batch([]).lookup(ticket=True).push(0.1, 1)
        server.push_batch([]).push(0.1, 1)
        gradients_of(table, []).push(0.1, 1)
        for mode in ("sum", "mean", "max"):
            for lengths in ([], [0], [0] * 10_000):
                batch = bags_of((table, []), (table, []), lengths=lengths, mode=mode).lookup(ticket=True)
                assert batch.ticket and not batch.bags(0).any()
                batch.gradients(0)[:] = batch.gradients(1)[:] = 1
                batch.push(0.1, 1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_a_bag_of_65_536_ids_gets_what_small_ones_get(server, name, mode):
    count = 4096 if SANITIZED else 65_536
    table = sgd_table(server, name, dim=3, rows=2 * count)
    table.set([count], 1)
    share = {"sum": 1, "mean": 1 / count, "max": 0}[mode]
    for step, (ids, times) in enumerate([(np.arange(count), 1), (np.full(count, 7), count)]):
        batch = bags_of((table, ids), mode=mode).lookup(ticket=True)
        before = table.get(np.arange(2 * count))
        batch.gradients(0)[:] = 2
        batch.push(-1, step + 1)
        wanted = before.copy()
        wanted[np.unique(ids)] += np.float32(2 * share * times)
        if mode == "max":  # all are equal, so the first one wins
            wanted[ids[0]] += 2
        assert (table.get(np.arange(2 * count)) == wanted).all()


def test_ids_to_the_last_of_an_unbounded_table_are_pushed_to(server, name):
    table = sgd_table(server, name, rows=None, optimizer="adagrad", dtype="bf16")
    ids = np.array([2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 2**32, 2**32 - 1, 0, 2**64 - 1], np.uint64)
    batch = bags_of((table, ids), lengths=[1] * 8).lookup(ticket=True)
    batch.gradients(0)[:] = 1
    batch.push(-1, 1)
    gradients_of(table, ids).push(-1, 2)
    rows, state = table.get_with_state(ids)
    assert (state == np.array([8, 2, 2, 2, 2, 2, 2, 8])[:, None]).all()
    assert (rows != 0).all() and (rows[0] == rows[7]).all()
    assert not any(array.any() for array in table.get_with_state([2**64 - 3, 1]))


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("dim", [1, 2, 7, 8191, 8192])
def test_rows_of_any_length_follow_the_formula(server, name, dim, dtype):
    rng = np.random.default_rng(6)
    tables = [
        server.create_table(
            f"{name}_{optimizer}", dim, 40, dtype=dtype, optimizer=optimizer, init=("uniform", 0.5, 1),
            rounding="nearest", clip_norm=0.05, weight_decay=2**-7,
        )
        for optimizer in ("sgd", "adam", "rowwise_adagrad")
    ]  # fmt: skip
    steps = [Step.random(rng, 40, dim) for _ in tables]
    batch = bags_of(*((t, s.ids) for t, s in zip(tables, steps)), lengths=np.diff(steps[0].offsets))
    references = [Reference(table, "sum") for table in tables]
    for part, (reference, step) in enumerate(zip(references, steps)):
        batch.offsets(part)[:] = step.offsets
    batch.lookup(ticket=True)
    for part, (reference, step) in enumerate(zip(references, steps)):
        batch.gradients(part)[:] = step.gradients
        reference.look_up(step)
        reference.push(step, 0.01, 1)
    batch.push(0.01, 1)
    for reference in references:
        reference.compare(rtol=1e-5 if dtype == "f32" else 2e-3)


def test_300_tables_are_trained_in_one_batch(server, name):
    """Some tables have several parts; every third part is skipped."""
    tables = [sgd_table(server, f"{name}_{i}", dim=1 + i % 9, rows=50) for i in range(300)]
    parts = tables + tables[::2]
    batch = bags_of(*((table, [3, 4, 4]) for table in parts), lengths=[1, 2])
    for step in (1, 2):
        batch.lookup(ticket=True)
        for part in range(len(parts)):
            batch.gradients(part)[:] = [[1], [part + 1]]
            batch.skip(part, part % 3 == 0)
        batch.push(-1, step)
    for i, table in enumerate(tables):
        pushed = [part for part in (i, 300 + i // 2 if i % 2 == 0 else 0) if part % 3]
        wanted = [0, len(pushed), sum(2 * (part + 1) for part in pushed)]
        assert (table.get([2, 3, 4]) == 2 * np.array(wanted)[:, None]).all(), table.name


def test_gradients_of_weights_are_of_the_rows_before_the_push_also_where_these_are_read(make_daemon):
    daemon = make_daemon()
    daemon.start()
    rows, dim, count = (16_000 if SANITIZED else 20_000) * LANES, 64, 5000  # more than the cache holds
    with daemon.connect() as server:
        table = server.create_table("rows", dim, rows, optimizer="adagrad")
        for first in range(0, rows, 4000):
            ids = np.arange(first, first + 4000)
            table.set(ids, ids[:, None] % 512)
        ids = np.random.default_rng(7).integers(0, rows, count)
        batch = bags_of((table, ids), (table, ids), lengths=[5] * (count // 5), mode="mean", weighted=True)
        batch.lookup(ticket=True)
        gradients = np.arange(count // 5) % 7
        batch.gradients(0)[:] = gradients[:, None]
        batch.skip(1)
        batch.push(1, 1, weight_gradients=True)
        wanted = (ids % 512) * np.repeat(gradients, 5) * dim / 5
        np.testing.assert_allclose(batch.weights(0), wanted, rtol=1e-6)
        assert not batch.weights(1).any()


# ---- Bad input ----


@pytest.mark.parametrize(
    "offsets, wrong",
    [
        ([1, 2, 3, 4], "offset 0 of bags is 1"),
        ([0, 3, 2, 4], "offset 2 of bags is 2"),
        ([0, 2, 3, 3], "offset 3 of bags is 3"),
        ([0, 2, 3, 5], "offset 3 of bags is 5"),
        ([0, 2, 2**32 - 1, 4], r"offset \d of bags is"),
    ],
)
def test_offsets_that_are_no_bags_give_no_ticket(server, name, offsets, wrong):
    table = sgd_table(server, name)
    batch = bags_of((table, [1, 2, 3, 4]), (table, [1, 2, 3, 4]), lengths=[1, 2, 1])
    batch.offsets(1)[:] = offsets
    with nothing_changes(table):
        with pytest.raises(embtier.BagRangeError, match=rf"{wrong}.*\(part 1, table '{name}'\)"):
            batch.lookup(ticket=True)
        assert batch.ticket == 0
        with pytest.raises(embtier.InvalidError, match="has no ticket"):
            batch.push(-1, 1)


@pytest.mark.parametrize("at", [0, 0.5, 1], ids=["first", "middle", "last"])
def test_one_id_out_of_range_among_many_refuses_all(server, name, at):
    """Lookups are refused too, although their earlier rows have been asked for by then. Their memory is free again."""
    rows = 12_000 if SANITIZED else 40_000
    table = sgd_table(server, name, rows=rows)
    ids = np.arange(rows)
    ids[int(at * (rows - 1))] = rows
    with nothing_changes(table):
        by_rows, by_ticket = gradients_of(table, ids), bags_of((table, ids))
        for _ in range(2 if SANITIZED else 50):
            for request in (lambda: by_rows.push(-1, 1), lambda: by_ticket.lookup(ticket=True)):
                with pytest.raises(embtier.IdRangeError, match=rf"row id {rows} .* table '{name}' has {rows} rows"):
                    request()
            assert by_ticket.ticket == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_not_finite_refuses_all_unless_the_table_takes_it(server, name, bad):
    rows = 20_000 if SANITIZED else 100_000
    table = sgd_table(server, name, rows=rows)
    lax = sgd_table(server, f"{name}_lax", allow_nonfinite=True)
    ids = np.arange(rows)
    with nothing_changes(table, lax):
        batch = server.bag_batch([embtier.Bags(lax, 1, 1), embtier.Bags(table, rows, rows)])
        batch.ids(0)[:], batch.ids(1)[:] = 5, ids
        batch.offsets(0)[:], batch.offsets(1)[:] = [0, 1], np.arange(rows + 1)
        batch.lookup(ticket=True)
        batch.gradients(0)[:] = batch.gradients(1)[:] = 1
        batch.gradients(1)[rows - 1, 3] = bad
        with pytest.raises(embtier.NonfiniteError, match=rf"table '{name}'.*the gradient of bag {rows - 1} has one \(part 1\)"):
            batch.push(-1, 1)
        batch.release()
        by_rows = gradients_of(table, ids)
        by_rows.gradients(0)[rows - 1235, 0] = bad
        with pytest.raises(embtier.NonfiniteError, match=rf"the gradient of the id at {rows - 1235} has one$"):
            by_rows.push(-1, 1)
    batch = gradients_of(lax, [5, 6])
    batch.gradients(0)[0, 2] = bad
    batch.push(-1, 1)
    assert (~np.isfinite(lax.get([5, 6])) == [[False, False, True, False], [False] * 4]).all()


def test_a_table_without_an_optimizer_refuses_the_push_for_all_tables(server, name):
    table = sgd_table(server, name)
    plain = server.create_table(f"{name}_plain", DIM, ROWS)
    batch = bags_of((table, [1, 2]), (plain, [1, 2])).lookup(ticket=True)
    batch.gradients(0)[:] = batch.gradients(1)[:] = 1
    ticket = batch.ticket
    with nothing_changes(table, plain):
        for skipped in (False, True):
            batch.skip(1, skipped)
            with pytest.raises(embtier.UnsupportedError, match=rf"'{name}_plain' has no optimizer .*\(part 1\)"):
                batch.push(-1, 1)
        assert batch.ticket == ticket
        batch.release()
        by_rows = server.push_batch([(table, 1), (plain, 0)])
        by_rows.ids(0)[:] = 1
        by_rows.gradients(0)[:] = 1
        with pytest.raises(embtier.UnsupportedError, match=rf"'{name}_plain' has no optimizer"):
            by_rows.push(-1, 1)


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "made_again"])
def test_a_table_dropped_after_the_lookup_refuses_the_push_for_all_tables(server, name, again):
    table, gone = sgd_table(server, name), sgd_table(server, f"{name}_gone")
    batch = bags_of((table, [1, 2]), (gone, [1, 2])).lookup(ticket=True)
    batch.gradients(0)[:] = batch.gradients(1)[:] = 1
    server.drop_table(gone.name)
    tables = [table, sgd_table(server, gone.name)] if again else [table]
    with nothing_changes(*tables):
        with pytest.raises((embtier.DroppedError, embtier.NoTableError), match=rf"'{gone.name}'.*\(part 1\)"):
            batch.push(-1, 1)
        batch.release()
    batch = bags_of(*((t, [1, 2]) for t in tables)).lookup(ticket=True)
    batch.gradients(0)[:] = 1
    batch.push(-1, 1)
    assert (table.get([1, 2, 3]) == [[1], [1], [0]]).all()


def test_rates_and_steps_that_are_none_are_refused_without_a_change(server, name):
    table, other = sgd_table(server, name), sgd_table(server, f"{name}_other")
    batch = bags_of((table, [1]), (other, [1]), (table, [2])).lookup(ticket=True)
    for part in range(3):
        batch.gradients(part)[:] = 1
    ticket = batch.ticket
    with nothing_changes(table, other):
        for bad in (float("nan"), float("inf"), [1, float("-inf"), 1]):
            with pytest.raises(embtier.InvalidError, match="learning rate -?(nan|inf) is not finite"):
                batch.push(bad, 1)
        with pytest.raises(embtier.InvalidError, match=rf"learning rate.*table '{name}' \(part 2\)"):
            batch.push([1, 1, 2], 1)
        for step in (0, -1, 2**53):
            with pytest.raises(ValueError, match="step must be 1 to"):
                batch.push(1, step)
        with pytest.raises(ValueError, match="one for each of the 3 parts"):
            batch.push([1, 1], 1)
        assert batch.ticket == ticket
    batch.push([-1, -2, -1], 2**53 - 1)
    assert (table.get([1, 2]) == 1).all() and (other.get([1]) == 2).all()


def test_a_ticket_is_not_for_maxima_and_sums_of_one_table(server, name):
    table = sgd_table(server, name)
    batch = server.bag_batch([embtier.Bags(table, 1, 1, "sum"), embtier.Bags(table, 1, 1, "max")])
    for part in range(2):
        batch.ids(part)[:] = 1
        batch.offsets(part)[:] = [0, 1]
    batch.lookup()
    with pytest.raises(embtier.UnsupportedError, match=rf"'{name}' must be maxima, or none \(part 1\)"):
        batch.lookup(ticket=True)
    assert batch.ticket == 0


# ---- Tickets ----


def test_a_ticket_of_another_session_or_a_used_one_is_refused(daemon, server, name):
    """The raw client sends them, since libembtier knows whose tickets it has."""
    table = sgd_table(server, name)
    held = bags_of((table, [1])).lookup(ticket=True)
    with RawClient(daemon.path) as thief, nothing_changes(table):
        for op in (PUSH, RELEASE):
            for ticket in (held.ticket, held.ticket + 1, 2**64 - 1, 1):
                done = thief.request(op, [], ticket=ticket, step=1)
                assert (done.err, done.value) == (embtier.NoTicketError.code, ticket)
    held.gradients(0)[:] = 1
    held.push(-1, 1)
    assert (table.get([1]) == 1).all()
    with pytest.raises(embtier.InvalidError, match="has no ticket"):
        held.push(-1, 1)
    assert (table.get([1]) == 1).all()


def test_a_ticket_waits_while_many_others_come_and_go(server, name):
    table = sgd_table(server, name)
    held = bags_of((table, [1])).lookup(ticket=True)
    other = bags_of((table, [2]))
    for step in range(1, 2501):
        other.lookup(ticket=True)
        assert other.ticket != held.ticket
        other.gradients(0)[:] = 1
        other.push(-1, step)
    held.gradients(0)[:] = 1
    held.push(-1, 1)
    assert (table.get([1, 2]) == [[1], [2500]]).all()


def test_a_client_has_1024_tickets_at_most(server, name):
    table = sgd_table(server, name)
    batches = [bags_of((table, [1])).lookup(ticket=True) for _ in range(1024)]
    assert len({batch.ticket for batch in batches}) == 1024
    more = bags_of((table, [1]))
    with pytest.raises(embtier.TicketsFullError, match="a client may hold at most 1024 tickets; push or release some first"):
        more.lookup(ticket=True)
    batches[500].release()
    more.lookup(ticket=True)
    for batch in (*batches, more):
        if batch.ticket:
            batch.gradients(0)[:] = 1
            batch.push(-1, 1)
    assert (table.get([1]) == 1024).all()


TICKET_IDS = 10_000


def fill(table: embtier.Table, says: str = "lanes.ticket_bytes") -> list[embtier.BagBatch]:
    """Takes tickets until there is no memory for another one."""
    batches = []
    with pytest.raises(embtier.TicketsFullError, match=says):
        for _ in range(1000):
            batches.append(bags_of((table, np.arange(TICKET_IDS))))
            batches[-1].lookup(ticket=True)
    return batches[:-1]


def fill_again(table: embtier.Table, wanted: int) -> list[embtier.BagBatch]:
    """Fills the memory again, with retries: a released ticket's memory is free only when its caster is done with it."""
    deadline = time.monotonic() + 60
    while len(batches := fill(table)) < wanted and time.monotonic() < deadline:
        for batch in batches:
            batch.release()
        time.sleep(0.05)
    return batches


def test_expired_tickets_are_refused_and_their_memory_is_free(make_daemon):
    seconds = 20 if SANITIZED else 10
    daemon = make_daemon({"lanes": {"ticket_seconds": seconds, "ticket_bytes": "2MiB"}})
    daemon.start()
    with daemon.connect() as server:
        table = sgd_table(server, "t", rows=TICKET_IDS)
        used, batch, *others = fill(table)
        used.gradients(0)[:] = batch.gradients(0)[:] = 1
        used.push(-1, 1)
        daemon.await_metric("expired_tickets", len(others) + 1, seconds + 60)
        with nothing_changes(table):
            says = f"ticket {batch.ticket} has expired: the server keeps tickets for {seconds}000 ms"
            with pytest.raises(embtier.TicketExpiredError, match=says):
                batch.push(-1, 2)
            assert batch.ticket == 0
        assert server.status()["metrics"]["expired_tickets"] == len(others) + 1
        assert len(fill(table)) == len(others) + 2
        with pytest.raises(embtier.TicketExpiredError):
            others[0].release()
        assert (table.get([1]) == 1).all()


def test_when_the_memory_for_tickets_is_used_up_a_lookup_is_told_so_at_once(make_daemon):
    daemon = make_daemon({"lanes": {"ticket_bytes": "1MiB"}})
    daemon.start()
    with daemon.connect(arena_bytes=64 << 20) as server:
        table = sgd_table(server, "t", rows=TICKET_IDS)
        with nothing_changes(table):
            before = time.monotonic()
            batches = fill(table)
            assert len(batches) > 1 and time.monotonic() - before < 60, "an expired one was waited for"
            says = r"no room for a ticket of \d+ bytes.*lanes\.ticket_bytes"
            with pytest.raises(embtier.TicketsFullError, match=says):
                bags_of((table, np.arange(TICKET_IDS))).lookup(ticket=True)
            bags_of((table, np.arange(TICKET_IDS))).lookup()  # a lookup without a ticket needs no room
            huge = gradients_of(table, np.arange(TICKET_IDS).repeat(100))
            with pytest.raises(embtier.TicketsFullError, match=r"no room for a push by rows of \d+ bytes"):
                huge.push(-1, 1)
        for batch in batches:
            batch.gradients(0)[:] = 1
            batch.push(-1, 1)
        assert (table.get([0, TICKET_IDS - 1]) == len(batches)).all()
        for batch in fill(table):  # as many as before
            batch.release()
        assert len(fill_again(table, len(batches))) == len(batches)


_CLIENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
import embtier
server = embtier.connect(sys.argv[2])
table = server.open_table("t")
count, wanted = int(sys.argv[3]), int(sys.argv[4])
batches, full = [], False
deadline = time.monotonic() + 60
while not full or (len(batches) < wanted and time.monotonic() < deadline):  # those released may not yet be free
    batch = server.bag_batch([embtier.Bags(table, count, 1)])
    batch.ids(0)[:] = np.arange(count)
    batch.offsets(0)[:] = [0, count]
    try:
        batch.lookup(ticket=True)
        batches.append(batch)
        full = False
    except embtier.TicketsFullError:
        full = True
        time.sleep(0.01)
print(len(batches), flush=True)
sys.stdin.readline()
for batch in batches:
    batch.gradients(0)[:] = 1
batches[0].submit_push(-1, 1)
sys.stdin.read()
"""


def test_tickets_of_a_killed_client_are_free_again(make_daemon):
    daemon = make_daemon({"lanes": {"ticket_bytes": "1MiB"}})
    daemon.start()
    with daemon.connect() as server:
        table = sgd_table(server, "t", rows=TICKET_IDS)
        alone = fill(table)
        for batch in alone:
            batch.release()
        for _ in range(3):
            client = subprocess.Popen(
                [sys.executable, "-c", _CLIENT, str(TREE / "client/python"), daemon.socket, str(TICKET_IDS),
                 str(len(alone))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            try:
                assert int(client.stdout.readline()) == len(alone)
                beside = fill(table)
                assert len(beside) < len(alone)
                for batch in beside:
                    batch.release()
                client.stdin.write(b"\n")
                client.stdin.flush()
            finally:
                client.send_signal(signal.SIGKILL)
                client.communicate()
            daemon.await_metric("sessions", 2)  # this one, and that of the metric's request
            batches = fill_again(table, len(alone))
            assert len(batches) == len(alone)
            for batch in batches:
                batch.release()


_PUSHER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import embtier
server = embtier.connect(sys.argv[2])
table = server.open_table(sys.argv[3])
batch = server.push_batch([(table, table.rows)])
batch.ids(0)[:] = np.random.default_rng(1).permutation(table.rows)
batch.gradients(0)[:] = 1
batch.submit_push(-1, 1)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", ["stop", "death"])
def test_a_push_amid_which_the_server_stops_or_the_client_dies_changes_all_rows_or_none(make_daemon, ending):
    """A client that trains on cannot know whether the push was applied, but never finds half a step."""
    daemon = make_daemon()
    daemon.start()
    rows, rounds = 20_000 if SANITIZED else 50_000, 3 if SANITIZED else 6 if LONG else 4
    with daemon.connect() as server:
        for i in range(rounds):
            sgd_table(server, f"t{i}", rows=rows, dim=32)
    for i in range(rounds):
        client = subprocess.Popen(
            [sys.executable, "-c", _PUSHER, str(TREE / "client/python"), daemon.socket, f"t{i}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        client.stdout.readline()
        time.sleep(0.01 * i)
        if ending == "stop":
            daemon.restart()
        client.kill()
        client.communicate()
        daemon.await_metric("sessions", 1)
        with daemon.connect() as server:
            table = server.open_table(f"t{i}")
            found = np.concatenate([table.get(ids) for ids in np.array_split(np.arange(rows), 4)])
        assert (found == found[0, 0]).all(), f"{found.mean():.2f} of the rows"
