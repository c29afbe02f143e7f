# SPDX-License-Identifier: Apache-2.0
"""The optimizer's state goes with its row when asked for, and stays as it is when not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import embtier
from embtier import _types

COUNT = 50


def numbers_of(optimizer: str, dim: int) -> int:
    per_weight = {"adagrad": 1, "rmsprop": 1, "momentum": 1, "adam": 2, "adamw": 2, "sparse_adam": 2}
    return 1 if optimizer == "rowwise_adagrad" else per_weight.get(optimizer, 0) * dim


def some_rows(table: embtier.Table, rng: np.random.Generator, count: int = COUNT) -> np.ndarray:
    return rng.integers(0, 1000, (count, table.dim)).astype(table.numpy_dtype)


def some_state(table: embtier.Table, rng: np.random.Generator, count: int = COUNT) -> np.ndarray:
    return rng.standard_normal((count, table.state_numbers)).astype(np.float32)


def assert_found(table: embtier.Table, ids: np.ndarray, rows: np.ndarray, state: np.ndarray) -> None:
    found, found_state = table.get_with_state(ids)
    assert found.dtype == table.numpy_dtype and found_state.dtype == np.float32
    np.testing.assert_array_equal(found, rows)
    np.testing.assert_array_equal(found_state, state)
    np.testing.assert_array_equal(table.get(ids), rows)


@pytest.mark.parametrize("dtype", _types.DTYPE_NUMBERS)
@pytest.mark.parametrize("optimizer", _types.OPTIMIZER_NUMBERS)
def test_whole_rows_come_back_and_weights_alone_keep_the_state(server, name, optimizer, dtype):
    rng = np.random.default_rng(1)
    for dim in (1, 3, 16, 65):
        table = server.create_table(
            f"{name}_{dim}", dim, dtype=dtype, optimizer=optimizer, init=("constant", 0.5)
        )
        assert table.state_numbers == table.spec.state_numbers == numbers_of(optimizer, dim)
        ids = rng.permutation(1000)[:COUNT]
        first = table.get(ids)
        assert_found(table, ids, first, np.zeros((COUNT, table.state_numbers)))
        rows, state = some_rows(table, rng), some_state(table, rng)
        table.set(ids, rows, state)
        assert_found(table, ids, rows, state)
        rows = some_rows(table, rng)
        table.set(ids, rows)
        assert_found(table, ids, rows, state)
        rows, state = some_rows(table, rng), some_state(table, rng)
        table.set(ids, rows, state)
        assert_found(table, ids, rows, state)
        others = np.arange(1000, 1000 + COUNT)  # never read before
        table.set(others, rows, state)
        assert_found(table, others, rows, state)
        assert_found(table, ids, rows, state)


def test_views_are_of_the_shared_rows_also_where_the_state_is_not_aligned(server, name):
    table = server.create_table(name, 3, dtype="f16", optimizer="adam")
    with server.batch([(table, 5)], state=True) as batch:
        batch.ids(0)[:] = range(5)
        rows, state = batch.rows(0), batch.state(0)
        assert rows.shape == (5, 3) and rows.strides == (30, 2)
        assert state.shape == (5, 6) and state.strides == (30, 4) and state.dtype == np.float32
        assert state.ctypes.data == rows.ctypes.data + 6 and not state.flags.aligned
        rows[:] = np.arange(15).reshape(5, 3)
        state[:] = np.arange(30).reshape(5, 6) / 7
        batch.set()
        rows[:] = 0
        state += 1
        batch.get()
        assert (rows == np.arange(15).reshape(5, 3)).all()
        assert (state == (np.arange(30).reshape(5, 6) / 7).astype(np.float32)).all()
        batch.set_count(0, 2)
        assert batch.state(0).shape == (2, 6) and batch.rows(0).shape == (2, 3)
    assert state[4, 5] == np.float32(29 / 7)  # the view keeps its memory alive


def test_a_batch_of_many_tables_has_the_state_of_each(server, name):
    rng = np.random.default_rng(2)
    optimizers = list(_types.OPTIMIZER_NUMBERS)
    kinds = list(itertools.product(optimizers, _types.DTYPE_NUMBERS))
    tables = [server.create_table(f"{name}_{o}_{d}", 5, dtype=d, optimizer=o) for o, d in kinds]
    with server.batch([(table, COUNT) for table in tables], state=True) as batch:
        wanted = [(some_rows(table, rng), some_state(table, rng)) for table in tables]
        for part, (rows, state) in enumerate(wanted):
            batch.ids(part)[:] = np.arange(COUNT) * 3
            batch.rows(part)[:] = rows
            batch.state(part)[:] = state
            assert batch.state(part).shape == (COUNT, numbers_of(kinds[part][0], 5))
        batch.set()
        for part in range(len(batch)):
            batch.rows(part)[:] = 0
            batch.state(part)[:] = 0
        batch.get()
        for part, (rows, state) in enumerate(wanted):
            np.testing.assert_array_equal(batch.rows(part), rows)
            np.testing.assert_array_equal(batch.state(part), state)
    for table, (rows, state) in zip(tables, wanted):
        assert_found(table, np.arange(COUNT) * 3, rows, state)


def test_the_last_of_an_id_wins_with_its_state(server, name):
    table = server.create_table(name, 2, optimizer="adagrad")
    for _ in range(2):  # first not cached, then cached
        table.set([7, 8, 7], [[1, 1], [2, 2], [3, 3]], [[10, 10], [20, 20], [30, 30]])
        assert_found(table, np.array([7, 8]), np.array([[3, 3], [2, 2]]), np.array([[30, 30], [20, 20]]))


def test_state_broadcasts_and_comes_in_the_shape_of_the_ids(server, name):
    table = server.create_table(name, 2, optimizer="adam")
    table.set([[1, 2], [3, 4]], 5, [1, 2, 3, 4])
    rows, state = table.get_with_state([[1, 2], [3, 4]])
    assert rows.shape == (2, 2, 2) and (rows == 5).all()
    assert state.shape == (2, 2, 4) and (state == [1, 2, 3, 4]).all()
    rows, state = table.get_with_state([])
    assert rows.shape == (0, 2) and state.shape == (0, 4)
    table.set([], np.zeros((0, 2)), np.zeros((0, 4)))
    fault = rf"the shape of state is \(3,\); table '{name}' needs \(1, 4\), or an array that broadcasts to it"
    with pytest.raises(ValueError, match=fault):
        table.set([1], 5, [1, 2, 3])
    with pytest.raises(ValueError, match=rf"the shape of rows is \(1, 15\); table '{name}' needs \(1, 2\), or"):
        table.set([1], np.ones((1, 15)))
    with pytest.raises(TypeError, match="state must be numbers"):
        table.set([1], 5, ["one"])
    assert_found(table, np.array([1]), np.array([[5, 5]]), np.array([[1, 2, 3, 4]]))


def test_any_bits_of_state_are_kept(server, name):
    table = server.create_table(name, 1, dtype="f16", optimizer="adam")
    bits = np.array([[0x7F800001, 0xFFFFFFFF], [0x80000000, 1], [0x7F800000, 0xFF800000]], np.uint32)
    table.set([1, 2, 3], 0, bits.view(np.float32))
    assert (table.get_with_state([1, 2, 3])[1].view(np.uint32) == bits).all()


def test_a_batch_without_state_says_so(server, name):
    table = server.create_table(name, 2, optimizer="adam")
    with server.batch([(table, 1)]) as batch, pytest.raises(ValueError, match="made without state"):
        batch.state(0)
    with server.bag_batch([embtier.Bags(table, 1, 1)]) as bags, pytest.raises(TypeError, match="not state"):
        bags.state(0)
    with server.batch([(table, 1)], state=True) as batch, pytest.raises(IndexError):
        batch.state(1)


def test_an_id_out_of_range_leaves_state_as_it_was(server, name):
    table = server.create_table(name, 2, 10, optimizer="adagrad")
    table.set([1], 1, 1)
    with pytest.raises(embtier.IdRangeError):
        table.set([1, 10], 2, 2)
    assert_found(table, np.array([1]), np.array([[1, 1]]), np.array([[1, 1]]))


def test_pooled_lookups_see_weights_that_were_set_with_state(server, name):
    table = server.create_table(name, 3, dtype="f16", optimizer="adam")
    table.set([1, 2], [[1, 2, 3], [10, 20, 30]], 1e30)
    with server.bag_batch([embtier.Bags(table, 2, 1)]) as bags:
        bags.ids(0)[:] = [1, 2]
        bags.offsets(0)[:] = [0, 2]
        assert (bags.lookup().bags(0) == [[11, 22, 33]]).all()


def test_state_outlives_a_stop_and_a_reconnect(own_daemon):
    rng = np.random.default_rng(3)
    ids = np.arange(5000)
    with own_daemon.connect() as server:
        table = server.create_table("t", 31, dtype="bf16", optimizer="rmsprop")
        rows, state = some_rows(table, rng, 5000), some_state(table, rng, 5000)
        table.set(ids, rows, state)
        rows[::2] = 0x3F80
        table.set(ids[::2], rows[::2])
        with server.batch([(table, 100)], state=True) as batch:
            batch.ids(0)[:] = ids[:100]
            own_daemon.stop()
            own_daemon.start()
            server.reconnect()
            batch.get()
            np.testing.assert_array_equal(batch.rows(0), rows[:100])
            np.testing.assert_array_equal(batch.state(0), state[:100])
        assert_found(table, ids, rows, state)


def test_torch_has_the_weights_of_a_batch_with_state(server, name):
    torch = pytest.importorskip("torch")
    import embtier.torch

    for dtype in _types.DTYPE_NUMBERS:
        table = server.create_table(f"{name}_{dtype}", 3, dtype=dtype, optimizer="adam")
        with server.batch([(table, 4)], state=True) as batch:
            batch.ids(0)[:] = range(4)
            embtier.torch.rows(batch, 0).copy_(torch.arange(12).reshape(4, 3))
            batch.state(0)[:] = 9
            batch.set().get()
            assert (embtier.torch.rows(batch, 0) == torch.arange(12).reshape(4, 3)).all()
            assert (batch.state(0) == 9).all()


def test_more_rows_than_fit_into_the_arena_go_in_pieces(daemon, name):
    rng = np.random.default_rng(5)
    with daemon.connect(arena_bytes=1 << 20) as server:
        table = server.create_table(name, 64, 20000, optimizer="adagrad")
        ids, rows = rng.permutation(20000)[:9999], rng.standard_normal((9999, 64)).astype(np.float32)
        table.set(ids, rows)  # 2.5 MB, more than the arena has
        np.testing.assert_array_equal(table.get(ids), rows)
        state = rng.random((9999, 64)).astype(np.float32)
        table.set(ids.reshape(3333, 3), rows.reshape(3333, 3, 64) + 1, state.reshape(3333, 3, 64))
        found, found_state = table.get_with_state(ids)
        np.testing.assert_array_equal(found, rows + 1)
        np.testing.assert_array_equal(found_state, state)
        table.set(np.concatenate([ids, ids]), np.concatenate([rows, -rows]))  # of equal ids the last one wins
        np.testing.assert_array_equal(table.get(ids), -rows)
        assert table.get([]).shape == (0, 64)
