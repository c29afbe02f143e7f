# SPDX-License-Identifier: Apache-2.0
"""The Python client keeps its promises about tables, batches, views, errors, threads and processes."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import os
import pickle
import re
import signal
import threading
import time

import numpy as np
import pytest
from conftest import TREE

import embtier
from embtier import _types

# ---- Words ----


def test_words_are_those_of_the_c_headers():
    header = (TREE / "base/embtier_types.h").read_text()

    def text(name: str) -> str:
        return header.split(f"#define {name}(X)")[1].split("\n\n")[0]

    def table(name: str) -> dict[str, int]:
        return {word: int(n) for n, word in re.findall(r'X\(\w+, (\d+), "(\w+)"', text(name))}

    assert table("EMBTIER_DTYPE_TABLE") == _types.DTYPE_NUMBERS
    assert table("EMBTIER_OPTIMIZER_TABLE") == _types.OPTIMIZER_NUMBERS
    assert table("EMBTIER_INIT_TABLE") == _types.INIT_NUMBERS
    assert table("EMBTIER_POOL_TABLE") == _types.POOL_NUMBERS
    assert table("EMBTIER_DURABILITY_TABLE") == _types.DURABILITY_NUMBERS
    assert float(re.search(r"#define EMBTIER_DEFAULT \((.*)\)", header)[1]) == _types.DEFAULT

    fields = dict(re.findall(r"X\((\w+), (\w+), ", text("EMBTIER_HYPERPARAMETER_TABLE")))
    assert tuple(fields.values()) == _types.HYPERPARAMETERS
    own = re.findall(r'"(\w+)", \d+, \d+,[\s\\]*\((.*?)\)', text("EMBTIER_OPTIMIZER_TABLE"))
    has = {word: [fields[name] for name in re.findall(r"EMBTIER_(\w+)", bits)] for word, bits in own}
    for word in has.keys() - {"none"}:
        has[word] += ["weight_decay", "clip_norm"]
    assert {word: tuple(names) for word, names in has.items()} == _types.OPTIMIZER_HYPERPARAMETERS

    parameters = inspect.signature(embtier.Server.create_table).parameters
    assert {k for k in _types.HYPERPARAMETERS if k in parameters} == set(_types.HYPERPARAMETERS)
    assert set(_types.HYPERPARAMETERS) <= {field.name for field in dataclasses.fields(embtier.TableSpec)}


def test_every_error_has_a_class_with_its_number():
    header = (TREE / "base/embtier_err.h").read_text()
    found = {n: int(code) for n, code in re.findall(r"X\((\w+), (\d+), ", header) if n != "OK"}
    classes = [c for c in vars(embtier).values() if isinstance(c, type) and issubclass(c, embtier.Error)]
    assert {c.name: c.code for c in classes if c is not embtier.Error} == found
    assert embtier.NoTableError.code == 8 and issubclass(embtier.IdRangeError, IndexError)


# ---- Tables ----


def test_create_open_list_drop(server, name):
    made = server.create_table(
        name, 16, 1000, dtype="f16", optimizer="adagrad", init=("uniform", -0.5, 0.5), seed=7
    )
    assert (made.rows, made.dim, made.dtype) == (1000, 16, "f16")
    opened = server.open_table(name, dim=16, dtype="f16")
    assert opened.spec == made.spec
    assert opened.spec.init == ("uniform", -0.5, 0.5) and opened.spec.seed == 7
    assert name in [spec.name for spec in server.tables()]
    server.drop_table(name)
    assert name not in [spec.name for spec in server.tables()]
    with pytest.raises(embtier.NoTableError, match=name):
        server.open_table(name)


def hyperparameters(spec: embtier.TableSpec) -> list[float | None]:
    return [getattr(spec, k) for k in _types.HYPERPARAMETERS]


def test_hyperparameters_not_given_are_the_optimizer_s_defaults(server, name):
    expected = {
        "none": [None] * 7,
        "sgd": [None, None, None, None, None, 0, 0],
        "adagrad": [1e-10, None, None, None, None, 0, 0],
        "rowwise_adagrad": [1e-10, None, None, None, None, 0, 0],
        "rmsprop": [1e-8, 0.99, None, None, None, 0, 0],
        "adam": [1e-8, None, 0.9, 0.999, None, 0, 0],
        "momentum": [None, None, None, None, 0.9, 0, 0],
        "adamw": [1e-8, None, 0.9, 0.999, None, 0.01, 0],
        "sparse_adam": [1e-8, None, 0.9, 0.999, None, 0, 0],
    }
    made = {k: server.create_table(f"{name}_{k}", 4, optimizer=k).spec for k in _types.OPTIMIZER_NUMBERS}
    assert {k: hyperparameters(spec) for k, spec in made.items()} == expected
    assert {(spec.rounding, spec.allow_nonfinite) for spec in made.values()} == {("stochastic", False)}


def test_hyperparameters_stay_with_their_table_also_over_a_restart(own_daemon):
    with own_daemon.connect() as server:
        made = {
            "adam": server.create_table(
                "adam", 4, optimizer="adam", eps=1 / 3, beta1=0, beta2=0.1, weight_decay=0.2, clip_norm=0.3
            ).spec,
            "rmsprop": server.create_table(
                "rmsprop", 4, dtype="bf16", optimizer="rmsprop", alpha=1, rounding="nearest"
            ).spec,
            "sgd": server.create_table("sgd", 4, optimizer="sgd", allow_nonfinite=True, durability="sync").spec,
            "momentum": server.create_table("momentum", 4, optimizer="momentum", momentum=0.5).spec,
        }
        assert hyperparameters(made["adam"]) == [1 / 3, None, 0, 0.1, None, 0.2, 0.3]
        assert hyperparameters(made["rmsprop"]) == [1e-8, 1, None, None, None, 0, 0]
        assert made["momentum"].momentum == 0.5
        assert made["rmsprop"].rounding == "nearest" and not made["rmsprop"].allow_nonfinite
        assert made["sgd"].rounding == "stochastic" and made["sgd"].allow_nonfinite
        assert [made[k].durability for k in ("adam", "sgd")] == ["replay", "sync"]
        assert {spec.name: spec for spec in server.tables()} == made
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert {k: server.open_table(k).spec for k in made} == made


def test_bad_hyperparameters_are_refused_with_the_reason(server, name):
    def refused(match: str, optimizer: str, **options) -> None:
        with pytest.raises(embtier.InvalidError, match=match):
            server.create_table(name, 4, optimizer=optimizer, **options)

    refused("eps 1.5 is out of range, allowed: 0 to 1$", "adagrad", eps=1.5)
    refused("eps -1 is out of range", "adagrad", eps=-1)
    refused("beta1 1 is out of range, allowed: 0 to 0.9999999$", "adam", beta1=1)
    refused("clip_norm must be a finite number", "sgd", clip_norm=float("inf"))
    refused("weight_decay must be a finite number", "sgd", weight_decay=float("nan"))
    refused("optimizer sgd has no eps; it has weight_decay, clip_norm$", "sgd", eps=1e-8)
    refused("optimizer adagrad has no beta2; it has eps, weight_decay, clip_norm$", "adagrad", beta2=0.9)
    refused("optimizer none has no clip_norm; it has no hyperparameters$", "none", clip_norm=1)
    with pytest.raises(ValueError, match="rounding must be one of stochastic, nearest, not 'up'"):
        server.create_table(name, 4, rounding="up")
    with pytest.raises(ValueError, match="durability must be one of replay, async, sync, not 'none'"):
        server.create_table(name, 4, durability="none")
    assert name not in [spec.name for spec in server.tables()]


def test_a_table_that_is_there_is_fine_with_the_same_hyperparameters_only(server, name):
    options = {"optimizer": "adam", "eps": 1e-6, "weight_decay": 0.1, "if_not_exists": True}
    made = server.create_table(name, 4, **options)
    assert server.create_table(name, 4, **options, beta1=0.9, alpha=0).spec == made.spec
    others = {"beta1": 0.8, "clip_norm": 1, "rounding": "nearest", "allow_nonfinite": True, "durability": "async"}
    for other in ({key: value} for key, value in others.items()):
        with pytest.raises(embtier.MismatchError, match=r"optimizer adam \(eps 1e-06, beta1 0.9, "):
            server.create_table(name, 4, **options, **other)


def test_bad_tables_are_refused_with_the_reason(server, name):
    server.create_table(name, 8, 10)
    with pytest.raises(embtier.ExistsError):
        server.create_table(name, 8, 10)
    server.create_table(name, 8, 10, if_not_exists=True)
    with pytest.raises(embtier.MismatchError):
        server.create_table(name, 9, 10, if_not_exists=True)
    with pytest.raises(embtier.MismatchError):
        server.open_table(name, dim=9)
    with pytest.raises(embtier.InvalidError):
        server.create_table("bad/name", 8)
    for dim in (0, 8193):
        with pytest.raises(embtier.InvalidError):
            server.create_table(name + "_dim", dim)
    with pytest.raises(ValueError, match="unbounded"):
        server.create_table(name + "_rows", 8, 0)
    with pytest.raises(ValueError, match="dtype"):
        server.create_table(name + "_dtype", 8, dtype="f64")
    with pytest.raises(ValueError, match="parameters"):
        server.create_table(name + "_init", 8, init=("uniform", 1))


def test_eager_creation_tells_its_progress(server, name):
    seen = []
    server.create_table(
        name, 64, 50_000, init=("constant", 2), eager=True, progress=lambda *now: seen.append(now)
    )
    assert all(done <= total for done, total, _ in seen)
    assert (server.open_table(name).get([0, 49_999]) == 2).all()


# ---- Rows ----


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_rows_come_back_as_they_were_set(server, name, dtype):
    table = server.create_table(name, 5, dtype=dtype, init=("constant", 1))
    rows = np.arange(15).reshape(3, 5).astype(table.numpy_dtype)
    table.set([3, 2**64 - 1, 1], rows)
    assert table.get([1, 3, 9]).dtype == table.numpy_dtype
    np.testing.assert_array_equal(table.get([1, 3, 9]), [rows[2], rows[0], np.ones(5)])
    np.testing.assert_array_equal(table.get(2**64 - 1), rows[1])
    assert table.get(np.zeros((2, 3), np.uint8)).shape == (2, 3, 5)


def test_bf16_rows_are_bits(server, name):
    table = server.create_table(name, 4, dtype="bf16", init=("constant", 1))
    assert (table.get([0]) == 0x3F80).all()
    with pytest.raises(TypeError, match="uint16"):
        table.set([0], np.ones((1, 4), np.float32))
    table.set([0], np.full((1, 4), 0x4000, np.uint16))
    import embtier.torch

    with server.batch([(table, 1)]) as batch:
        batch.ids(0)[:] = 0
        rows = embtier.torch.rows(batch.get(), 0)
    assert rows.dtype.is_floating_point and (rows.float() == 2).all()


def test_nan_and_inf_are_stored_as_given(server, name):
    table = server.create_table(name, 3)
    bits = np.array([[0x7FC01234, 0x7F800000, 0xFF800000]], np.uint32)
    table.set([5], bits.view(np.float32))
    np.testing.assert_array_equal(table.get([5]).view(np.uint32), bits)


@pytest.mark.parametrize(
    ("dtype", "bad"),
    [("f32", 1e39), ("f32", -1e300), ("f32", np.longdouble("1e400")), ("f32", 2**128), ("f16", 1e6), ("f16", 70000),
     ("f16", np.float32(-65520)), ("f16", np.int64(2**63 - 1))],
)  # fmt: skip
def test_a_finite_number_that_does_not_fit_is_refused_with_its_place(server, name, dtype, bad):
    table = server.create_table(name, 3, dtype=dtype, optimizer="adagrad", init=("constant", 7))
    rows = np.zeros((2, 3), np.asarray(bad).dtype if not isinstance(bad, int) else float)
    rows[1, 2] = bad
    with pytest.raises(ValueError, match=r"rows: .* at position \(1, 2\) does not fit in float"):
        table.set([4, 5], rows)
    with pytest.raises(ValueError, match=r"state: 1e.39 at position \(0, 1\) does not fit in float32"):
        table.set([4], np.ones(3), state=[[0, 1e39, 0]])
    with server.batch([(table, 2)], state=True) as batch:
        batch.rows(0)[:] = 1
        batch.state(0)[:] = 1
        with pytest.raises(ValueError, match=r"at position \(1, 2\) does not fit in float"):
            batch.rows(0)[:] = rows
        with pytest.raises(ValueError, match="1e.39 does not fit in float32"):
            batch.state(0)[1] = 1e39
        assert (batch.rows(0) == 1).all() and (batch.state(0) == 1).all()
    assert (table.get([4, 5]) == 7).all()
    for given in (np.inf, -np.inf, np.nan, np.float32(6e4)):
        table.set([4], np.full((1, 3), given))
        np.testing.assert_array_equal(table.get([4]), np.full((1, 3), given, table.numpy_dtype))
    assert type(table.get([4])) is np.ndarray and {type(a) for a in table.get_with_state([4])} == {np.ndarray}


def test_gradients_and_weights_that_do_not_fit_are_refused_where_they_are_assigned(server, name):
    table = server.create_table(name, 2, optimizer="sgd", allow_nonfinite=True)
    with server.push_batch([(table, 1)]) as batch:
        with pytest.raises(ValueError, match="does not fit in float32"):
            batch.gradients(0)[:] = [[0, -1e39]]
        with pytest.raises(embtier.InvalidError, match="learning rate 1e.39 is not finite in f32"):
            batch.push(1e39, 1)
        batch.gradients(0)[:] = np.inf
    with server.bag_batch([embtier.Bags(table, 1, 1, weighted=True)]) as bags:
        with pytest.raises(ValueError, match="does not fit in float32"):
            bags.weights(0)[0] = 1e39
        bags.weights(0)[0] = np.inf


def test_last_of_a_repeated_id_wins(server, name):
    table = server.create_table(name, 2)
    table.set([4, 4, 4], [[1, 1], [2, 2], [3, 3]])
    assert (table.get([4]) == 3).all()


def test_a_batch_spans_tables_and_a_table_may_be_in_several_parts(server, name):
    a = server.create_table(name + "_a", 2, init=("constant", 1))
    b = server.create_table(name + "_b", 3, dtype="f16", init=("constant", 2))
    with server.batch([(a, 2), (b, 1), (a, 0), (a, 3)]) as batch:
        for part in range(len(batch)):
            batch.ids(part)[:] = np.arange(batch.count(part))
        batch.get()
        assert [batch.rows(p).shape for p in range(4)] == [(2, 2), (1, 3), (0, 2), (3, 2)]
        assert (batch.rows(3) == 1).all() and (batch.rows(1) == 2).all()
        batch.get()
        assert batch.hit_rows == 6


def test_requests_in_flight_take_effect_in_order(server, name):
    table = server.create_table(name, 4)
    batches = []
    for value in range(8):
        batch = server.batch([(table, 100)])
        batch.ids(0)[:] = np.arange(100)
        batch.rows(0)[:] = value
        batch.submit_set()
        batches.append(batch)
    with server.batch([(table, 100)]) as last:
        last.ids(0)[:] = np.arange(100)
        last.submit_get()
        last.wait(60)
        assert (last.rows(0) == 7).all()
    for batch in batches:
        while not batch.poll():
            pass
        assert batch.poll()
        batch.free()


def test_set_count_shortens_a_part(server, name):
    table = server.create_table(name, 4, init=("constant", 1))
    with server.batch([(table, 10)]) as batch:
        batch.rows(0)[:] = 9
        batch.set_count(0, 3)
        batch.ids(0)[:] = [1, 2, 3]
        assert (batch.get().rows(0) == 1).all() and batch.rows(0).shape == (3, 4)
        batch.set_count(0, 10)
        assert (batch.rows(0)[3:] == 9).all()
        with pytest.raises(ValueError):
            batch.set_count(0, 11)


def test_more_than_max_in_flight_is_busy_but_get_waits_for_its_turn(own_daemon, name):
    with own_daemon.connect(max_in_flight=2) as server:
        table = server.create_table(name, 8)
        batches = [server.batch([(table, 20_000)]) for _ in range(8)]
        for batch in batches:
            batch.ids(0)[:] = np.arange(20_000)
        own_daemon.freeze()
        for batch in batches[:2]:
            batch.submit_get()
        with pytest.raises(embtier.BusyError):
            batches[2].submit_get()
        own_daemon.signal(signal.SIGCONT)
        for batch in batches[2:]:
            batch.get()
        for batch in batches[:2]:
            batch.wait()


# ---- Ids ----


@pytest.mark.parametrize("ids", [[-1], np.array([3, -2]), np.int8(-1), [2**64], -5])
def test_negative_and_too_large_ids_are_value_errors(server, name, ids):
    table = server.create_table(name, 2)
    with pytest.raises(ValueError):
        table.get(ids)
    with pytest.raises(ValueError):
        table.set(ids, np.zeros(2))
    with server.batch([(table, 8)]) as batch, pytest.raises(ValueError):
        batch.ids(0)[: np.size(ids)] = ids


@pytest.mark.parametrize("ids", [[1.0], np.array([1.5]), ["1"], [True], [[1, 2], [3]], None])
def test_ids_that_are_no_integers_are_type_errors(server, name, ids):
    table = server.create_table(name, 2)
    with pytest.raises(TypeError):
        table.get(ids)


def test_id_out_of_range_names_the_id_and_changes_nothing(server, name):
    table = server.create_table(name, 2, 100)
    with pytest.raises(embtier.IdRangeError, match="100") as caught:
        table.set([1, 100], np.ones((2, 2)))
    assert caught.value.code == 9
    assert (table.get([1]) == 0).all()


def test_an_empty_request_is_answered(server, name):
    table = server.create_table(name, 2)
    assert table.get([]).shape == (0, 2)


def test_too_many_ids_and_a_small_arena_are_refused(daemon, name):
    with daemon.connect(arena_bytes=1 << 20) as server:
        table = server.create_table(name, 64)
        with pytest.raises(embtier.ArenaFullError):
            server.batch([(table, 10_000)])
        with pytest.raises((embtier.TooLargeError, embtier.ArenaFullError)):
            server.batch([(table, 100_000_000)])
        assert table.get([1]).shape == (1, 64)


def test_room_comes_back_when_batches_go(daemon, name):
    with daemon.connect(arena_bytes=1 << 20) as server:
        table = server.create_table(name, 64)
        for _ in range(20):
            server.batch([(table, 2_000)])
        batch = server.batch([(table, 2_000)])
        rows = batch.rows(0)
        batch.free()
        with pytest.raises(embtier.ArenaFullError):
            server.batch([(table, 3_000)])
        del rows
        server.batch([(table, 3_000)])


# ---- Views ----


def test_views_are_the_shared_memory_itself(server, name):
    table = server.create_table(name, 2)
    with server.batch([(table, 3)]) as batch:
        one, other = batch.rows(0), batch.rows(0)
        one[:] = 5
        assert (other == 5).all() and not one.flags.owndata
        assert batch.ids(0).ctypes.data % 8 == 0 and one.ctypes.data % 64 == 0


def test_views_outlive_batch_connection_and_server(own_daemon, name):
    server = own_daemon.connect()
    table = server.create_table(name, 1024)
    batch = server.batch([(table, 1000)])
    batch.ids(0)[:] = np.arange(1000)
    rows = batch.get().rows(0)[10:20]
    rows[:] = 3
    batch.free()
    server.close()
    del batch, table
    assert shared_bytes(own_daemon) > 0
    own_daemon.kill()
    gc.collect()
    rows += 1
    assert (rows == 4).all()


def shared_bytes(daemon) -> int:
    with daemon.connect(arena_bytes=0) as server:
        return server.status()["metrics"]["session_arena_bytes"]


def test_a_closed_connection_ends_its_session(own_daemon, name):
    with own_daemon.connect() as server:
        table = server.create_table(name, 4)
        table.get([1])
        assert shared_bytes(own_daemon) > 0
    assert server.closed
    deadline = time.monotonic() + 60
    while shared_bytes(own_daemon):
        assert time.monotonic() < deadline
    with pytest.raises(RuntimeError, match="closed"):
        table.get([1])
    server.close()


def test_a_freed_batch_says_so(server, name):
    batch = server.batch([(server.create_table(name, 2), 1)])
    batch.free()
    batch.free()
    with pytest.raises(RuntimeError, match="freed"):
        batch.get()
    with pytest.raises(RuntimeError, match="freed"):
        batch.rows(0)


# ---- Threads, processes, copies ----


def test_two_threads_on_one_connection_are_told(server, name):
    table = server.create_table(name, 512)
    errors: list[Exception] = []
    deadline = time.monotonic() + 60

    def work() -> None:
        try:
            while not errors and time.monotonic() < deadline:
                table.get(np.arange(2000))
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors and "one connection per thread" in str(errors[0])
    assert table.get([1]).shape == (1, 512)


def test_each_thread_with_its_own_connection_works(daemon, name):
    with daemon.connect() as server:
        server.create_table(name, 16)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            with daemon.connect() as server:
                table = server.open_table(name)
                ids = np.arange(first, first + 100)
                for value in range(30):
                    table.set(ids, np.full(16, value + first))
                    assert (table.get(ids) == value + first).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i * 100,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_child_is_told_and_harms_nothing(server, name):
    table = server.create_table(name, 4, init=("constant", 1))
    batch = server.batch([(table, 1)])
    child = os.fork()
    if not child:
        status = 1
        try:
            table.get([1])
        except RuntimeError as error:
            batch.free()
            del batch, table
            server.close()
            gc.collect()
            status = 0 if "fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert (batch.get().rows(0) == 1).all()


def test_connections_are_neither_pickled_nor_copied(server, name):
    table = server.create_table(name, 4)
    for one in (server, table, server.batch([(table, 1)])):
        with pytest.raises(TypeError):
            pickle.dumps(one)
        with pytest.raises(TypeError):
            copy.deepcopy(one)


# ---- A server that goes away ----


def test_no_server_is_unreachable(tmp_path):
    with pytest.raises(embtier.UnreachableError, match="nothing"):
        embtier.connect(tmp_path / "nothing")
    assert issubclass(embtier.UnreachableError, ConnectionError)


def test_calls_fail_when_the_server_dies_and_work_after_reconnecting(own_daemon, name):
    server = own_daemon.connect()
    table = server.create_table(name, 4, init=("constant", 1))
    batch = server.batch([(table, 2)])
    batch.ids(0)[:] = [7, 8]
    rows = batch.get().rows(0)
    own_daemon.stop()
    with pytest.raises(embtier.DisconnectedError):
        batch.get()
    with pytest.raises(embtier.Error):
        server.reconnect()
    own_daemon.start()
    server.reconnect()
    rows[:] = 6
    batch.set()
    assert (table.get([7, 8]) == 6).all() and (batch.get().rows(0) == 6).all()


def test_a_pending_request_fails_within_a_second_of_the_server_s_death(own_daemon, name):
    for turn in range(5):
        server = own_daemon.connect()
        batch = server.batch([(server.create_table(name, 4, if_not_exists=True), 1)])
        own_daemon.freeze()
        batch.submit_get()
        assert not batch.poll()
        own_daemon.kill()
        began = time.monotonic()
        with pytest.raises(embtier.DisconnectedError):
            batch.wait(60)
        seconds = time.monotonic() - began
        with pytest.raises(embtier.DisconnectedError):
            server.batch([(batch.table(0), 1)]).get()
        if seconds < 1.5:
            return
        own_daemon.start()  # again, since on a busy machine the client may have slept through that second
    pytest.fail(f"{seconds:.1f} s, and no less in the four tries before")


@pytest.mark.usefixtures("interrupts")
def test_waiting_ends_by_timeout_and_by_ctrl_c_and_the_request_goes_on(own_daemon, name):
    server = own_daemon.connect()
    table = server.create_table(name, 4, init=("constant", 1))
    batch = server.batch([(table, 1)])
    own_daemon.freeze()
    batch.submit_get()
    with pytest.raises(embtier.TimeoutError):
        batch.wait(0.05)
    with pytest.raises(embtier.BusyError):
        batch.free()
    with pytest.raises(embtier.BusyError):
        batch.get()
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()  # started in here, since on a busy machine it may end before the wait begins
        batch.wait()
    own_daemon.signal(signal.SIGCONT)
    batch.wait()
    assert (batch.rows(0) == 1).all()


def test_a_batch_dropped_in_flight_is_freed_when_it_is_done(own_daemon, name):
    server = own_daemon.connect(arena_bytes=1 << 20)
    table = server.create_table(name, 64)
    own_daemon.freeze()
    server.batch([(table, 2_000)]).submit_get()
    with pytest.raises(embtier.ArenaFullError):
        server.batch([(table, 2_500)])
    own_daemon.signal(signal.SIGCONT)
    deadline = time.monotonic() + 60
    while True:
        try:
            server.batch([(table, 2_500)])
            break
        except embtier.ArenaFullError:
            assert time.monotonic() < deadline


def test_rows_outlive_the_server(own_daemon, name):
    ids = np.random.default_rng(1).integers(0, 2**63, 20_000)
    rows = np.random.default_rng(2).standard_normal((20_000, 128)).astype(np.float32)
    with own_daemon.connect() as server:
        table = server.create_table(name, 128)
        for i in range(0, 20_000, 5_000):
            table.set(ids[i : i + 5_000], rows[i : i + 5_000])
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server:
        table = server.open_table(name)
        for i in range(0, 20_000, 5_000):
            np.testing.assert_array_equal(table.get(ids[i : i + 5_000]), rows[i : i + 5_000])


def test_status_counts(server, name):
    table = server.create_table(name, 4, init=("normal", 0, 1))
    before = server.status()["metrics"]
    table.get(np.arange(10))
    after = server.status()["metrics"]
    assert after["rows_initialised"] - before["rows_initialised"] == 10
    assert sum(after["lookup_rows"].values()) - sum(before["lookup_rows"].values()) == 10
    assert {"dram", "pmem"} <= after["cache_rows"].keys()
    assert server.status()["version"] == embtier.__version__


def test_status_tells_how_long_requests_take(server, name):
    def gets() -> dict[str, int | float]:
        found = [latency for latency in server.status()["latencies"] if latency["op"] == "get"]
        for latency in found:
            assert latency["requests"] == sum(latency["counts"])
            assert len(latency["counts"]) == len(latency["bounds"]) + 1
            assert latency["bounds"] == sorted(latency["bounds"])
        return {key: sum(latency[key] for latency in found) for key in ("requests", "seconds")}

    table = server.create_table(name, 4)
    before, began = gets(), time.monotonic()
    for _ in range(5):
        table.get(np.arange(10))
    after = gets()
    assert after["requests"] == before["requests"] + 5
    assert 0 < after["seconds"] - before["seconds"] < time.monotonic() - began


def test_status_names_what_the_server_was_built_with(server):
    rocksdb, memory = server.status()["libraries"]
    assert re.fullmatch(r"rocksdb \d+\.\d+\.\d+", rocksdb)
    assert memory in ("memkind", "mmap", "malloc")


# ---- Bags ----


def pooled(rows: np.ndarray, mode: str, weights: np.ndarray | None) -> np.ndarray:
    """The bags as the server defines them: added up in the order of the ids, each step rounded to float32."""
    if len(rows) == 0:
        return np.zeros(rows.shape[1], np.float32)
    if mode == "max":
        return rows.max(axis=0)
    total = np.zeros(rows.shape[1], np.float32)
    for i, row in enumerate(rows):
        total = total + (row if weights is None else weights[i] * row)
    return total / np.float32(len(rows)) if mode == "mean" else total


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("mode,weighted", [("sum", False), ("sum", True), ("mean", False), ("mean", True), ("max", False)])
def test_bags_are_pooled_by_the_server(server, name, dtype, mode, weighted):
    rng = np.random.default_rng(3)
    table = server.create_table(name, 24, 5000, dtype=dtype, init=("normal", 0, 1), seed=3)
    with server.batch([(table, 5000)]) as every:
        every.ids(0)[:] = np.arange(5000)
        raw = every.get().rows(0)
        values = (raw.astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else raw.astype(np.float32)
    lengths = rng.integers(0, 9, 700)
    lengths[5] = 6000
    ids = rng.integers(0, 5000, lengths.sum())
    part = embtier.Bags(table, count=len(ids), bag_count=len(lengths), mode=mode, weighted=weighted)
    with server.bag_batch([part]) as batch:
        batch.ids(0)[:] = ids
        batch.offsets(0)[:] = np.concatenate([[0], lengths.cumsum()])
        if weighted:
            batch.weights(0)[:] = weights = rng.normal(size=len(ids)).astype(np.float32)
        bags = batch.lookup().bags(0)
        assert bags.dtype == np.float32 and bags.shape == (700, 24)
        for bag, (first, length) in enumerate(zip(lengths.cumsum() - lengths, lengths)):
            of = slice(first, first + length)
            wanted = pooled(values[ids[of]], mode, weights[of] if weighted else None)
            assert (bags[bag] == wanted).all()
        assert batch.hit_rows > 0
        batch.set_bags(0, 3, 1)
        batch.offsets(0)[:] = [0, 3]
        assert batch.lookup().bags(0).shape == (1, 24)
        with pytest.raises(ValueError, match="room for"):
            batch.set_bags(0, 3, 701)


def test_bags_that_are_not_in_order_are_refused(server, name):
    table = server.create_table(name, 4, 100)
    with server.bag_batch([embtier.Bags(table, 3, 2)]) as batch:
        batch.ids(0)[:] = [1, 2, 3]
        for offsets in ([0, 2, 1], [1, 2, 3], [0, 1, 2], [0, 4, 3]):
            batch.offsets(0)[:] = offsets
            with pytest.raises(embtier.BagRangeError, match=rf"end with the number of ids, 3 \(table '{name}'\)"):
                batch.lookup()
        batch.offsets(0)[:] = [0, 2, 3]
        batch.ids(0)[:] = [1, 2, 100]
        with pytest.raises(embtier.IdRangeError, match="100"):
            batch.lookup()
        with pytest.raises(ValueError, match="for pooled lookups"):
            batch.get()
        with pytest.raises(ValueError, match="without weights"):
            batch.weights(0)
        with pytest.raises(TypeError):
            batch.rows(0)
    with pytest.raises(ValueError, match="no weights"):
        server.bag_batch([embtier.Bags(table, 3, 2, mode="max", weighted=True)])
    with pytest.raises(ValueError, match="mode"):
        server.bag_batch([embtier.Bags(table, 3, 2, mode="median")])
