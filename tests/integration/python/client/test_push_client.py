# SPDX-License-Identifier: Apache-2.0
"""The Python client keeps track of tickets, and pushes the gradients it was given."""

from __future__ import annotations

import inspect
import re
import signal

import numpy as np
import pytest
from conftest import TREE

import embtier
from embtier import _batch, _types


def sgd_table(server: embtier.Server, name: str, dim: int = 4, rows: int = 100, **options) -> embtier.Table:
    """A table with rows of ones."""
    return server.create_table(name, dim, rows, optimizer="sgd", init=("constant", 1), **options)


def bags_of(table: embtier.Table, mode: str = "sum", weighted: bool = False) -> embtier.BagBatch:
    """Bag 0 has rows 1 and 2, bag 1 rows 2 and 3; weights are 1, 2, 3, 4."""
    batch = table.server.bag_batch([embtier.Bags(table, 4, 2, mode, weighted)])
    batch.ids(0)[:] = [1, 2, 2, 3]
    batch.offsets(0)[:] = [0, 2, 4]
    if weighted:
        batch.weights(0)[:] = [1, 2, 3, 4]
    return batch


def first_column(table: embtier.Table, *ids: int) -> list[float]:
    rows = table.get(list(ids))
    assert (rows == rows[:, :1]).all()
    return rows[:, 0].tolist()


# ---- Without a ticket ----


def test_operations_have_the_numbers_of_the_c_header():
    header = "".join(file.read_text() for file in (TREE / "client/include").glob("*.h"))
    numbers = dict(re.findall(r"EMBTIER_(\w+) = (\d+),", header.split("enum embtier_op {")[1].split("};")[0]))
    assert {k: int(v) for k, v in numbers.items()} == {k: getattr(_batch, f"_{k}") for k in numbers}


def test_what_is_no_push_is_refused_without_asking_the_server(server, name):
    table = sgd_table(server, name)
    by_rows, by_ticket = server.push_batch([(table, 2), (table, 1)]), bags_of(table)
    for batch in (by_rows, by_ticket):
        for step in (0, -1, 2**53):
            with pytest.raises(ValueError, match=rf"step must be 1 to 2\*\*53 - 1, not {step}"):
                batch.push(0.1, step)
        with pytest.raises(TypeError):
            batch.push(0.1, 1.5)
        with pytest.raises(embtier.InvalidError, match=rf"learning rate nan is not finite \((part 0, )?table '{name}'\)"):
            batch.push(float("nan"), 1)
        with pytest.raises(ValueError, match="one for each of the . parts"):
            batch.push([0.1, 0.2, 0.3], 1)
        with pytest.raises(TypeError):
            batch.rows(0)
        with pytest.raises(TypeError):
            batch.state(0)
        with pytest.raises(embtier.InvalidError, match="is for pu|is for pooled"):
            batch.set()
    with pytest.raises(embtier.InvalidError, match=r"learning rate inf is not finite \(part 1"):
        by_rows.submit_push([0.1, float("inf")], 1)
    with pytest.raises(embtier.InvalidError, match="has no ticket"):
        by_ticket.push(0.1, 1)
    with pytest.raises(embtier.InvalidError, match="has no ticket"):
        by_ticket.skip(0)
    with pytest.raises(IndexError):
        by_ticket.skip(1)
    with pytest.raises(IndexError):
        by_rows.gradients(2)
    by_ticket.release()
    assert by_ticket.ticket == 0
    assert table.writes == 0
    assert first_column(table, 1) == [1]
    assert "weight_gradients" not in inspect.signature(embtier.PushBatch.push).parameters


@pytest.mark.parametrize("dtype", _types.DTYPE_NUMBERS)
def test_gradients_are_float32_whatever_the_table_s_dtype(server, name, dtype):
    table = server.create_table(name, 5, dtype=dtype, optimizer="sgd")
    batch = server.push_batch([(table, 3), (table, 0), (table, 2)])
    assert len(batch) == 3 and batch.count(0) == 3
    assert batch.gradients(0).dtype == np.float32 and batch.gradients(0).shape == (3, 5)
    assert batch.gradients(1).shape == (0, 5)
    batch.gradients(0)[:] = 7
    batch.gradients(2)[:] = 8
    batch.ids(0)[:] = batch.ids(2)[0] = 2**64 - 1
    assert (batch.gradients(0) == 7).all() and (batch.gradients(2) == 8).all()
    batch.set_count(0, 2)
    assert batch.gradients(0).shape == (2, 5)
    with pytest.raises(ValueError, match="room for 0 to 3"):
        batch.set_count(0, 4)

    bags = server.bag_batch([embtier.Bags(table, 3, 2)])
    assert bags.gradients(0).dtype == np.float32 and bags.gradients(0).shape == (2, 5)
    assert np.shares_memory(bags.gradients(0), bags.bags(0))


# ---- Tickets ----


def test_a_batch_has_its_ticket_until_it_is_pushed_or_released(server, name):
    table = sgd_table(server, name)
    with bags_of(table) as batch:
        assert batch.lookup().ticket == 0
        assert batch.lookup(ticket=True) is batch
        first = batch.ticket
        assert first > 0
        for lookup in (batch.lookup, batch.submit_lookup):
            for wanted in (False, True):
                with pytest.raises(embtier.InvalidError, match="push or release it first"):
                    lookup(ticket=wanted)
        with pytest.raises(embtier.InvalidError, match="a ticket for the bags it looked up"):
            batch.set_bags(0, 4, 2)
        batch.gradients(0)[:] = 1
        assert batch.push(0.5, 1) is batch
        assert batch.ticket == 0
        with pytest.raises(embtier.InvalidError, match="has no ticket"):
            batch.push(0.5, 1)
        batch.set_bags(0, 4, 2)
        assert batch.lookup(ticket=True).ticket not in (0, first)
        batch.release()
        assert batch.ticket == 0
        batch.release()
        batch.lookup()
    assert first_column(table, 1, 2, 3, 4) == [0.5, 0, 0.5, 1]


def test_a_ticket_is_for_what_was_looked_up(server, name):
    """Ids and weights may be changed before the push."""
    table = sgd_table(server, name)
    batch = bags_of(table, weighted=True).lookup(ticket=True)
    batch.ids(0)[:] = 99
    batch.weights(0)[:] = -1
    batch.gradients(0)[:] = [[0.25], [0.5]]
    batch.push(1, 1)
    assert first_column(table, 1, 2, 3, 99) == [0.75, 1 - 0.5 - 1.5, -1, 1]


def test_a_refused_push_leaves_the_batch_its_ticket(server, name):
    table = sgd_table(server, name)
    batch = bags_of(table).lookup(ticket=True)
    ticket = batch.ticket
    for bad in (np.nan, -np.inf):
        batch.gradients(0)[:] = 1
        batch.gradients(0)[1, 3] = bad
        with pytest.raises(embtier.NonfiniteError, match=rf"table '{name}' .* the gradient of bag 1 has one$"):
            batch.push(1, 1)
        assert batch.ticket == ticket
    assert first_column(table, 1, 2, 3) == [1, 1, 1]
    batch.gradients(0)[:] = 1
    batch.push(1, 1)
    assert first_column(table, 1, 2, 3) == [0, -1, 0]
    assert batch.ticket == 0


def test_nothing_is_told_of_a_ticket_while_a_request_is_in_flight(own_daemon, name):
    server = own_daemon.connect()
    batch = bags_of(sgd_table(server, name))
    own_daemon.freeze()
    batch.submit_lookup(ticket=True)
    assert batch.ticket == 0
    for call in (batch.release, lambda: batch.push(1, 1), lambda: batch.skip(0), lambda: batch.set_bags(0, 4, 2)):
        with pytest.raises(embtier.BusyError):
            call()
    own_daemon.signal(signal.SIGCONT)
    batch.wait()
    assert batch.ticket > 0
    batch.gradients(0)[:] = 1
    batch.submit_push(1, 1)
    batch.wait()
    assert batch.ticket == 0
    assert first_column(batch.table(0), 1, 2, 3) == [0, -1, 0]


def test_tickets_end_with_their_session(own_daemon, name):
    server = own_daemon.connect()
    batch = bags_of(sgd_table(server, name)).lookup(ticket=True)
    own_daemon.stop()
    with pytest.raises(embtier.DisconnectedError):
        batch.push(1, 1)
    own_daemon.start()
    server.reconnect()
    assert batch.ticket == 0
    with pytest.raises(embtier.NoTicketError, match="ticket ended with its session"):
        batch.push(1, 1)
    batch.lookup(ticket=True)
    batch.gradients(0)[:] = 1
    batch.push(1, 1)
    assert first_column(batch.table(0), 1, 2, 3) == [0, -1, 0]


def test_a_batch_freed_with_its_ticket_does_no_harm(server, name):
    table = sgd_table(server, name)
    for _ in range(5):
        with bags_of(table) as batch:
            batch.lookup(ticket=True)
    assert first_column(table, 1, 2, 3) == [1, 1, 1]


# ---- Pushes ----


def test_a_mean_shares_its_gradient_out(server, name):
    table = sgd_table(server, name)
    batch = bags_of(table, "mean").lookup(ticket=True)
    batch.gradients(0)[:] = [[0.5], [1]]
    batch.push(1, 1)
    assert first_column(table, 1, 2, 3) == [0.75, 0.25, 0.5]


def test_skipped_parts_keep_their_rows_until_the_next_lookup(server, name):
    tables = [sgd_table(server, f"{name}_{i}") for i in range(2)]
    batch = server.bag_batch([embtier.Bags(table, 1, 1) for table in tables])
    for part in range(2):
        batch.ids(part)[:] = 7
        batch.offsets(part)[:] = [0, 1]
    batch.lookup(ticket=True)
    batch.gradients(0)[:] = batch.gradients(1)[:] = 0.5
    batch.skip(0)
    batch.skip(1)
    batch.skip(1, False)
    batch.push(1, 1)
    assert [first_column(table, 7) for table in tables] == [[1], [0.5]]
    batch.lookup(ticket=True)
    batch.gradients(0)[:] = batch.gradients(1)[:] = 0.5
    batch.push(1, 2)
    assert [first_column(table, 7) for table in tables] == [[0.5], [0]]


def test_each_part_may_have_its_learning_rate(server, name):
    tables = [sgd_table(server, f"{name}_{i}") for i in range(3)]
    batch = server.push_batch([(table, 1) for table in tables])
    for part in range(3):
        batch.ids(part)[:] = 7
        batch.gradients(part)[:] = 1
    for step, rates in enumerate(([0.5, 1, 0.25], np.array([0.5, 0, 0.25], np.float32)), 1):
        batch.push(rates, step)
    batch.push(np.float64(-1), 3)
    assert [first_column(table, 7) for table in tables] == [[1], [1], [1.5]]


def test_gradients_of_weights_come_when_asked_for(server, name):
    table = server.create_table(name, 2, 10, optimizer="sgd")
    table.set([1, 2, 3], [[1, 2], [3, 4], [5, 6]])
    batch = bags_of(table, weighted=True).lookup(ticket=True)
    gradients = np.array([[1, 10], [2, -1]], np.float32)
    batch.gradients(0)[:] = gradients
    batch.push(0, 1)
    assert batch.weights(0).tolist() == [1, 2, 3, 4]
    batch.lookup(ticket=True)
    batch.gradients(0)[:] = gradients
    batch.push(0, 2, weight_gradients=True)
    assert batch.weights(0).tolist() == [21, 43, 2, 4]
    batch.lookup(ticket=True)
    batch.skip(0)
    batch.push(0, 3, weight_gradients=True)
    assert batch.weights(0).tolist() == [0, 0, 0, 0]


def test_a_push_by_rows_adds_up_what_an_id_gets(server, name):
    table = sgd_table(server, name)
    batch = server.push_batch([(table, 4), (table, 1)])
    batch.ids(0)[:] = [5, 6, 5, 7]
    batch.ids(1)[:] = [7]
    batch.gradients(0)[:] = [[0.25], [0.5], [0.125], [1]]
    batch.gradients(1)[:] = 2
    assert batch.push(1, 1) is batch
    assert first_column(table, 5, 6, 7, 8) == [0.625, 0.5, -2, 1]
    batch.set_count(0, 1)
    batch.set_count(1, 0)
    batch.submit_push(2, 2)
    batch.wait()
    assert first_column(table, 5, 6, 7) == [0.125, 0.5, -2]


def test_a_refused_push_by_rows_says_where(server, name):
    table, plain = sgd_table(server, name), server.create_table(f"{name}_none", 4, 10)
    batch = server.push_batch([(table, 3)])
    batch.ids(0)[:] = [1, 2, 3]
    batch.gradients(0)[:] = 1
    batch.gradients(0)[2, 0] = np.inf
    with pytest.raises(embtier.NonfiniteError, match=r"the gradient of the id at 2 has one$"):
        batch.push(1, 1)
    batch.gradients(0)[:] = 1
    batch.ids(0)[1] = 100
    with pytest.raises(embtier.IdRangeError, match="row id 100 is out of range"):
        batch.push(1, 1)
    assert first_column(table, 1, 2, 3) == [1, 1, 1]
    batch = server.push_batch([(table, 0), (plain, 1)])
    batch.ids(1)[:] = 0
    with pytest.raises(embtier.UnsupportedError, match=rf"table '{name}_none' has no optimizer .*\(part 1\)"):
        batch.push(1, 1)


def test_tables_pushed_to_count_as_written(server, name):
    table, other = sgd_table(server, name), sgd_table(server, f"{name}_other")
    batch = bags_of(table).lookup(ticket=True)
    assert (table.writes, other.writes) == (0, 0)
    batch.gradients(0)[:] = 0
    batch.push(1, 1)
    assert (table.writes, other.writes) == (1, 0)
    rows = server.push_batch([(other, 1)])
    rows.ids(0)[:] = 1
    rows.gradients(0)[:] = 0
    rows.submit_push(1, 1)
    rows.wait()
    assert (table.writes, other.writes) == (1, 1)


def test_weights_that_are_not_finite_are_told(server):
    table = server.create_table("t", dim=4, rows=10, optimizer="sgd")
    with server.bag_batch([embtier.Bags(table, 2, 1, weighted=True)]) as batch:
        batch.ids(0)[:] = [1, 2]
        batch.offsets(0)[:] = [0, 2]
        batch.weights(0)[:] = [np.nan, 1]
        batch.lookup(ticket=True)
        batch.gradients(0)[:] = 0
        with pytest.raises(embtier.NonfiniteError, match="a weight of a sample is NaN"):
            batch.push(0.1, 1)
        batch.release()
    assert np.isfinite(table.get([1, 2])).all()


def test_a_row_gets_so_many_gradients_in_one_push(server, name):
    dim, most = 8192, 2**27 // 8192
    table = sgd_table(server, name, dim, 3)
    for count, offsets in [(most + 1, [0, 1, most + 1]), (most, [0, most, most])]:
        batch = server.bag_batch([embtier.Bags(table, count, 2)])
        batch.ids(0)[:] = 1
        batch.offsets(0)[:] = offsets
        batch.lookup(ticket=True)
        batch.gradients(0)[:] = 2.0**-20
        if count > most:
            message = f"a row of table '{name}' gets {count} gradients in this push, more than the {most} that"
            with pytest.raises(embtier.TooLargeError, match=re.escape(message)):
                batch.push(1, 1)
            assert first_column(table, 1) == [1]
            batch.release()  # it still has its ticket
        else:
            batch.push(1, 1)
    assert first_column(table, 0, 1, 2) == [1, 1 - most * 2.0**-20, 1]
