# SPDX-License-Identifier: Apache-2.0
"""A finite row stays finite, whatever is pushed. A push that would make a number NaN or infinite is refused whole, and changes no
row. The error names the same place for any number of lanes, and the next good push is applied."""

from __future__ import annotations

import contextlib
import random
import time

import numpy as np
import pytest
from daemons import LANES, SANITIZED

import embtier

ROWS, DIM = 600, 4
OPTIMIZERS = ("sgd", "adagrad", "rowwise_adagrad", "rmsprop", "adam", "momentum", "adamw", "sparse_adam")
if SANITIZED:  # one for each size of state: none, a number for the row, one and two for each of its numbers
    OPTIMIZERS = ("sgd", "rowwise_adagrad", "momentum", "adam")
UNDIVIDED = ("sgd", "momentum")  # these divide their gradients by nothing
LARGEST = {"f32": np.finfo(np.float32).max, "f16": np.float32(65504), "bf16": np.float32(3.3895314e38)}


@pytest.fixture
def server(daemon):
    with daemon.connect() as server:
        yield server


def bits_of(dtype: str, numbers) -> np.ndarray:
    """Numbers as :meth:`Table.set` takes them. For bf16 they must be exact."""
    numbers = np.asarray(numbers, np.float32)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else numbers


def numbers_of(table: embtier.Table, rows: np.ndarray) -> np.ndarray:
    return (rows.astype(np.uint32) << 16).view(np.float32) if table.dtype == "bf16" else rows.astype(np.float32)


def contents(table: embtier.Table) -> tuple[np.ndarray, np.ndarray]:
    return table.get_with_state(np.arange(table.rows))


def assert_finite(table: embtier.Table) -> None:
    rows, state = contents(table)
    assert np.isfinite(numbers_of(table, rows)).all() and np.isfinite(state).all()


@contextlib.contextmanager
def nothing_changes(*tables: embtier.Table):
    before = [array.tobytes() for table in tables for array in contents(table)]
    yield
    assert [array.tobytes() for table in tables for array in contents(table)] == before


def push(table: embtier.Table, ids, gradients, lr=0.1, step=1, coalesce=False) -> None:
    with table.server.push_batch([(table, len(ids))]) as batch:
        batch.ids(0)[:] = ids
        batch.gradients(0)[:] = np.broadcast_to(np.asarray(gradients, np.float32).reshape(-1, 1), (len(ids), DIM))
        if coalesce:
            batch.coalesce()
        batch.push(lr, step)


def assert_refused(table: embtier.Table, ids, gradients, place: str, **options) -> None:
    said = rf"{table.name}.*NaN or infinite.*the id at {place} .*nothing was applied$"
    with nothing_changes(table), pytest.raises(embtier.NonfiniteError, match=said):
        push(table, ids, gradients, **options)


def assert_learns(table: embtier.Table, ids) -> None:
    """A good push is applied to each of the @ids, and to no other row."""
    before = contents(table)[0].copy()
    push(table, ids, 0.5, step=7)
    changed = (contents(table)[0] != before).any(axis=1)
    assert sorted(np.flatnonzero(changed)) == sorted(set(ids))
    assert_finite(table)


# ---- What overflows ----


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_sum_that_overflows_is_refused_as_it_is_by_coalesce(server, name, optimizer, dtype):
    table = server.create_table(name, DIM, ROWS, dtype=dtype, optimizer=optimizer)
    ids = [5, 3, 7, 3, 9]
    assert_refused(table, ids, [1, 3e38, 1, 3e38, 1], "1")
    assert_refused(table, ids, [1, -3e38, 1, -3e38, 1], "1", lr=0.0)
    with nothing_changes(table), pytest.raises(embtier.NonfiniteError, match="NaN or infinity"):
        push(table, ids, [1, 3e38, 1, 3e38, 1], coalesce=True)
    assert_learns(table, ids)


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("clip_norm", [0, 1.0])
def test_a_square_that_overflows_does_not_end_learning(server, name, optimizer, dtype, clip_norm):
    table = server.create_table(name, DIM, ROWS, dtype=dtype, optimizer=optimizer, clip_norm=clip_norm)
    for step, gradient in enumerate((1e20, -1e20, 3e38)):
        try:
            push(table, [1, 2, 3], [1, gradient, 1], step=1 + step, lr=0.001)
        except embtier.NonfiniteError:
            # The other optimizers divide the step by the gradient, whose square saturates.
            assert clip_norm == 0 and (optimizer in UNDIVIDED or (dtype == "f16" and gradient == 3e38))
        assert_finite(table)
    table.set([2], bits_of(dtype, np.zeros((1, DIM))))
    before = contents(table)[0].copy()
    for step in range(3, 200):  # Adam forgets a huge moment
        push(table, [2], 1e19 if optimizer not in UNDIVIDED else 1e-3, step=1 + step, lr=0.01)
    assert (contents(table)[0][2] != before[2]).all()
    assert_finite(table)


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_greatest_number_is_the_last(server, name, dtype, rounding, sign):
    """A result that rounds to a finite number is applied, any other is refused. Stochastic rounding does not take bf16 up to
    infinity, and there f16 is rounded to nearest."""
    largest = sign * LARGEST[dtype]
    half = {"f32": 2.0**103, "f16": 16, "bf16": 2.0**119}[dtype]
    if dtype == "bf16" and rounding == "stochastic":
        half = 2.0**120
    table = server.create_table(name, DIM, ROWS, dtype=dtype, optimizer="sgd", rounding=rounding)
    ids = np.arange(ROWS)
    table.set(ids, np.broadcast_to(bits_of(dtype, np.full((1, DIM), largest)), (ROWS, DIM)))
    for step in range(1, 9):
        push(table, ids, -sign * half * 0.99, lr=1, step=step)
        assert (np.abs(numbers_of(table, contents(table)[0])) == LARGEST[dtype]).all()
    push(table, ids[1:], -sign * half * 0.5, lr=1)
    assert_refused(table, ids[::-1], -sign * half * 1.01, str(ROWS - 1), lr=1)
    mixed = np.full(ROWS, sign * half * 1.0)
    mixed[[17, 5, 300]] *= -1.01
    assert_refused(table, ids, mixed, "5", lr=1)
    push(table, ids, sign * half * 8, lr=1)
    assert_finite(table)


RUINOUS = {
    "rate": ({"optimizer": "sgd"}, {"gradient": 10, "lr": 3e38}),
    "negative_rate": ({"optimizer": "sgd"}, {"gradient": 10, "lr": -3e38}),
    "decay": ({"optimizer": "sgd", "weight_decay": 1e30}, {"gradient": 0, "lr": 1, "weight": 1e10}),
    "decay_of_f16": ({"optimizer": "sgd", "weight_decay": 1e30, "dtype": "f16"}, {"gradient": 0, "weight": 1}),
    "decay_of_adagrad": ({"optimizer": "adagrad", "weight_decay": 1e30}, {"gradient": 1, "weight": 1e10}),
    "rate_of_adagrad": ({"optimizer": "adagrad"}, {"gradient": 1, "lr": 3.4e38, "times": 3}),
    "rate_of_rowwise": ({"optimizer": "rowwise_adagrad"}, {"gradient": 1, "lr": 3.4e38, "times": 3}),
    "rate_of_rmsprop": ({"optimizer": "rmsprop"}, {"gradient": 1, "lr": 3e38}),
    "rate_of_adam": ({"optimizer": "adam"}, {"gradient": 1, "lr": 3e38, "weight": -3.3e38}),
    "eps_of_adagrad": ({"optimizer": "adagrad", "eps": 1e-45}, {"gradient": 1e-23, "lr": 1e20}),
    "state_of_adam": ({"optimizer": "adam", "dtype": "f16"}, {"gradient": 0, "state": [1e38] * DIM + [0] * DIM}),
    "f16_rate": ({"optimizer": "adagrad", "dtype": "f16"}, {"gradient": 1, "lr": 1e6}),
    "bf16_rate": ({"optimizer": "rmsprop", "dtype": "bf16"}, {"gradient": 1, "lr": 3e38}),
    "f16_gradient": ({"optimizer": "sgd", "dtype": "f16"}, {"gradient": 1e6, "lr": 1}),
    "bf16_gradient": ({"optimizer": "sgd", "dtype": "bf16"}, {"gradient": 3.4e38, "lr": 2}),
}


@pytest.mark.parametrize("how", RUINOUS)
def test_an_update_that_ruins_one_row_of_many_is_refused(server, name, how):
    options, ruin = RUINOUS[how]
    table = server.create_table(name, DIM, ROWS, **options)
    dtype = options.get("dtype", "f32")
    bad = 123
    if "weight" in ruin:
        table.set([bad], bits_of(dtype, np.full((1, DIM), ruin["weight"])))
    if "state" in ruin:
        table.set([bad], bits_of(dtype, np.zeros((1, DIM))), np.array([ruin["state"]]))
    ids = np.arange(ROWS)[::-1]
    gradients = np.zeros(ROWS)
    gradients[ROWS - 1 - bad] = ruin["gradient"]
    lr = ruin.get("lr", 0.1)
    for step in range(1, ruin.get("times", 1)):
        with contextlib.suppress(embtier.NonfiniteError):
            push(table, ids, gradients, lr=lr, step=step)
        assert_finite(table)
    assert_refused(table, ids, gradients, str(ROWS - 1 - bad), lr=lr, step=ruin.get("times", 1))
    table.set([bad], bits_of(dtype, np.zeros((1, DIM))), np.zeros((1, table.state_numbers)))
    if options.get("weight_decay", 0) == 0:
        assert_learns(table, [3, bad, 7])


def test_by_ticket_the_bag_is_told_and_the_ticket_stays(server, name):
    table, other = (server.create_table(f"{name}_{i}", DIM, ROWS, optimizer="adagrad") for i in range(2))
    batch = server.bag_batch([embtier.Bags(other, 2, 1, "mean"), embtier.Bags(table, 4, 3, weighted=True)])
    batch.ids(0)[:] = [8, 9]
    batch.offsets(0)[:] = [0, 2]
    batch.ids(1)[:] = [4, 5, 6, 5]
    batch.offsets(1)[:] = [0, 1, 3, 4]
    batch.weights(1)[:] = [1, 1e30, 1, 1]
    ticket = batch.lookup(ticket=True).ticket
    batch.gradients(0)[:] = batch.gradients(1)[:] = 1e9
    with nothing_changes(table, other):
        for _ in range(2):
            with pytest.raises(embtier.NonfiniteError, match=rf"{name}_0.*of a row in bag 1 would.*\(part 1\)"):
                batch.push(0.1, 1)
            assert batch.ticket == ticket
    batch.gradients(0)[:] = batch.gradients(1)[:] = 1
    batch.push(0.1, 1, weight_gradients=True)
    assert (contents(table)[0] != 0).any(axis=1).sum() == 3 and (contents(other)[0] != 0).any(axis=1).sum() == 2
    assert_finite(table)


@pytest.mark.parametrize("order", [1, -1])
def test_of_many_rows_that_fail_the_lowest_of_the_first_table_is_told(server, name, order):
    """Lanes find them in any order."""
    first, second = (server.create_table(f"{name}_{i}", 32, 20_000, optimizer="sgd") for i in range(2))
    rng = np.random.default_rng(3)
    with server.push_batch([(second, 9000), (first, 9000), (second, 9000)]) as batch:
        for part in range(3):
            batch.ids(part)[:] = rng.permutation(20_000)[:9000]
            batch.gradients(part)[:] = 0
        failing = rng.permutation(9000)[:50][::order]
        batch.gradients(1)[failing] = 3e38
        batch.gradients(2)[failing] = 3e38
        lowest = failing[np.argmin(np.asarray(batch.ids(2))[failing])]
        for _ in range(5):
            with pytest.raises(embtier.NonfiniteError, match=rf"{name}_1.*the id at {lowest} .*\(part 2\)"):
                batch.push(100, 1)
        batch.gradients(2)[:] = 0
        lowest = failing[np.argmin(np.asarray(batch.ids(1))[failing])]
        with pytest.raises(embtier.NonfiniteError, match=rf"{name}_0.*the id at {lowest} .*\(part 1\)"):
            batch.push(100, 1)
    assert not contents(first)[0].any() and not contents(second)[0].any()


@pytest.fixture(params=["replay", "async"])
def cold(make_daemon, request):
    """A table of more rows than the cache holds; the first rows have left the cache."""
    daemon = make_daemon({"lanes": {"write_queue_bytes": "1MiB"}, "rocksdb": {"memtable_bytes": "8MiB"}})
    daemon.start()
    rows, dim = (16_000 if SANITIZED else 30_000) * LANES, 64
    with daemon.connect() as server:
        table = server.create_table("rows", dim, rows, optimizer="adagrad", durability=request.param)
        for ids in np.array_split(np.arange(rows), rows // 2000):
            numbers = np.repeat(ids[:, None] % 64, dim, axis=1).astype(np.float32)
            numbers[ids == 7] = 3.4e38
            table.set(ids, numbers, np.ones((1, dim)))
        yield table


def test_rows_that_are_not_cached_are_read_for_it(cold):
    with cold.server.push_batch([(cold, 6000)]) as batch:
        batch.gradients(0)[:] = -1
        for first in (cold.rows - 6000, cold.rows // 2):
            batch.ids(0)[:] = np.arange(first, first + 6000)
            batch.push(1e38, 1)
            assert (cold.get(batch.ids(0)) > 1e37).all()
        batch.ids(0)[:] = ids = np.arange(6000)
        with pytest.raises(embtier.NonfiniteError, match="the id at 7 would"):
            batch.push(1e38, 1)
        assert (np.delete(cold.get(ids), 7, axis=0) == np.delete(ids, 7)[:, None] % 64).all()
        batch.ids(0)[7] = 6007
        batch.push(1e38, 1)
        assert (np.delete(cold.get(ids), 7, axis=0) > 1e37).all() and (cold.get([7]) == np.float32(3.4e38)).all()


def test_rows_that_are_not_finite_and_tables_that_allow_it_are_as_before(server, name):
    table = server.create_table(name, DIM, ROWS, optimizer="sgd")
    table.set([4], np.array([[np.inf, np.nan, 1, 2]]))
    push(table, [4, 5], 1, lr=1)
    np.testing.assert_array_equal(table.get([4, 5]), [[np.inf, np.nan, 0, 1], [-1] * 4])
    push(table, [4, 5], [3e38, 1], lr=-2)
    np.testing.assert_array_equal(table.get([4, 5]), [[np.inf, np.nan, np.inf, np.inf], [1] * 4])
    free = server.create_table(f"{name}_free", DIM, ROWS, optimizer="sgd", allow_nonfinite=True)
    push(free, [3, 3, 4], [3e38, 3e38, 1], lr=1)
    np.testing.assert_array_equal(free.get([3, 4]), [[-np.inf] * 4, [-1] * 4])


# ---- At random ----


def extreme(rng: np.random.Generator, shape) -> np.ndarray:
    """Finite numbers of all sizes, often those at the ends."""
    bits = rng.integers(0, 2**32, shape, np.uint32)
    bits[(bits >> 23) & 0xFF == 0xFF] ^= 1 << 30
    ends = np.array([0, 1, -1, 3.4028235e38, -3.4028235e38, 1e20, -1e20, 65504, -65504, 1e-45, 1e-23, 16, 1e38], "f4")
    usual = rng.normal(0, 1, shape).astype(np.float32)
    kind = rng.integers(0, 3, shape)
    return np.where(kind == 0, bits.view(np.float32), np.where(kind == 1, rng.choice(ends, shape), usual))


def fit(dtype: str, numbers: np.ndarray) -> np.ndarray:
    return np.clip(numbers, -LARGEST[dtype], LARGEST[dtype])


@pytest.mark.parametrize("dtype", LARGEST)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_no_push_at_random_makes_a_row_anything_but_finite(server, name, optimizer, dtype):
    rng = np.random.default_rng(len(optimizer) * 10 + len(dtype))
    refused = applied = 0
    for turn in range(2 if SANITIZED else 4):
        decay, clip = rng.choice([0, 0, 1e-4, 1e30]), rng.choice([0, 0, 1, 1e-30, 1e30])
        eps = {} if optimizer in UNDIVIDED else {"eps": rng.choice([1e-45, 1e-30, 1e-8, 1])}
        table = server.create_table(
            f"{name}_{turn}", DIM, 50, dtype=dtype, optimizer=optimizer, weight_decay=decay, clip_norm=clip, **eps,
            rounding=rng.choice(["nearest", "stochastic"]),
        )  # fmt: skip
        for step in range(1, 26):
            ids = rng.integers(0, 50, rng.integers(1, 60))
            if rng.integers(0, 4) == 0:
                some = np.unique(ids)
                table.set(some, bits_of(dtype, fit(dtype, extreme(rng, (len(some), DIM)))),
                          extreme(rng, (len(some), table.state_numbers)))  # fmt: skip
                assert_finite(table)
            before = [a.tobytes() for a in contents(table)]
            gradients = extreme(rng, len(ids)) if rng.integers(0, 3) else rng.normal(0, 1, len(ids))
            try:
                push(table, ids, gradients, lr=rng.choice([0.01, 1, 1e6, 1e30, -1e38]), step=step)
                applied += 1
            except embtier.NonfiniteError:
                refused += 1
                assert [a.tobytes() for a in contents(table)] == before
            assert_finite(table)
    assert refused and applied


def test_a_row_that_another_session_changes_after_its_trial_saturates(daemon, name):
    """In one of many tries, the SET of a row comes between the row's trial and its update."""
    rows, until = 8000, time.monotonic() + 60
    delays = random.Random(5)
    with daemon.connect() as one, daemon.connect() as other:
        table = one.create_table(name, DIM, rows, optimizer="sgd")
        theirs = other.open_table(name)
        with one.batch([(table, rows)]) as zeros, one.push_batch([(table, rows)]) as batch:
            zeros.ids(0)[:] = batch.ids(0)[:] = np.arange(rows)
            batch.gradients(0)[:] = -1
            while True:
                zeros.rows(0)[:] = 0
                zeros.set()
                batch.submit_push(2e38, 1)
                time.sleep(delays.choice((0, 1e-4, 5e-4, 1e-3, 3e-3)))
                row = delays.randrange(rows)
                theirs.set([row], np.full((1, DIM), 3.4e38))
                with contextlib.suppress(embtier.NonfiniteError):
                    batch.wait(60)
                found = table.get(np.arange(rows))
                assert np.isfinite(found).all()
                if (found[row] == LARGEST["f32"]).all():
                    break
                assert time.monotonic() < until, "no SET came between"


# ---- Groups ----


def test_what_members_add_up_to_is_tried_and_refused_to_all_of_them(daemon, name):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(daemon.connect()) for _ in range(3)]
        tables = [servers[0].create_table(name, DIM, ROWS, optimizer="adagrad")]
        tables += [server.open_table(name) for server in servers[1:]]
        groups = [server.join(name, 3, member) for member, server in enumerate(servers)]
        batches = [stack.enter_context(server.push_batch([(t, 3)])) for server, t in zip(servers, tables)]

        def step(gradients, lr=0.1):
            for batch, group, gradient in zip(batches, groups, gradients):
                batch.ids(0)[:] = [11, 5, 400]
                batch.gradients(0)[:] = np.array([[1], [gradient], [1]], np.float32)
                batch.submit_push(lr, group.step + 1, group=group)
            errors = []
            for batch in batches:
                try:
                    batch.wait(60)
                except embtier.Error as error:
                    errors.append(error)
            return errors

        for bad in ((3e38, 0, 3e38), (3e38, 3e38, 0), (2e38, 1e38, 3e38)):
            with nothing_changes(tables[0]):
                errors = step(bad)
                assert [type(error) for error in errors] == [embtier.NonfiniteError] * 3
                assert all(f"'{name}' refuses updates" in str(e) and "row id 5 in step 1" in str(e) for e in errors)
            assert {group.step for group in groups} == {0}
        assert step((1, 2, 3)) == []
        assert {group.step for group in groups} == {1}
        assert (contents(tables[0])[0] != 0).any(axis=1).sum() == 3
        assert step((0, 3e38, -3e38)) == [], "in this order they are finite"
        assert_finite(tables[0])
