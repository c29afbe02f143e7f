# SPDX-License-Identifier: Apache-2.0
"""A program's rows, or a Parquet file, become a table. If anything is wrong there is no table."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Daemon
from transfers import is_free, refused

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

DIM = 6


def numbers(count: int, dim: int = DIM, dtype: str = "<f4") -> np.ndarray:
    return np.random.default_rng(count).uniform(-1, 1, (count, dim)).astype(dtype)


# ---- Pieces ----


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_pieces_of_any_size_become_a_table(server, name, dtype):
    """One piece is larger than the 8 MiB of memory that take it."""
    count, dim = 20_000, 256  # few rows, as each takes time
    rows = numbers(count, dim, "<f2" if dtype == "f16" else "<f4")
    if dtype == "bf16":
        rows = (rows.view("<u4") >> 16).astype("<u2")
    ids = np.random.default_rng(2).permutation(count)
    bounds = [0, 1, 1, 1000, 19_000, count]
    pieces = ((ids[a:b], rows[a:b]) for a, b in zip(bounds, bounds[1:]))
    said: list[str] = []
    made = server.load_table(
        name, dim, pieces, count, dtype=dtype, optimizer="adagrad", eps=1e-3, progress=lambda *one: said.append(one[2])
    )
    assert made == embtier.Imported(name, count, count * dim * rows.itemsize)
    table = server.open_table(name)
    assert (table.rows, table.spec.optimizer, table.spec.eps, table.dtype) == (count, "adagrad", 1e-3, dtype)
    assert (table.get(ids) == rows).all()


def test_rows_come_with_state_and_the_others_have_their_first_values(server, name):
    state = numbers(3, 2 * DIM)
    pieces = [([5, 7], 2, state[:2]), (np.array([9, 5]), numbers(2), state[2])]
    server.load_table(name, DIM, pieces, state=True, optimizer="adam", init=("constant", 3))
    table = server.open_table(name)
    rows, found = table.get_with_state([5, 7, 9, 8])
    assert table.rows is None
    assert (rows == np.stack([numbers(2)[1], np.full(DIM, 2), numbers(2)[0], np.full(DIM, 3)]).astype("<f4")).all()
    assert (found == np.stack([state[2], state[1], state[2], np.zeros(2 * DIM)]).astype("<f4")).all()


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no pieces": (5, TypeError, "pieces must give"),
    "rows alone": ([np.ones((2, DIM))], TypeError, r"one of the pieces must be \(ids, rows\)"),
    "with a state": ([([1], 1, 1)], TypeError, r"one of the pieces must be \(ids, rows\)"),
    "a negative id": ([([1], 1), ([-1], 1)], ValueError, "-1"),
    "an id too high": ([([1], 1), ([50], 1)], embtier.IdRangeError, "has rows 0 to 49, not 50"),
    "another dim": ([([1], np.ones(DIM + 1))], ValueError, r"the shape of rows is \(7,\); table '.*' needs \(1, 6\), or"),
    "another count": ([([1, 2], np.ones((3, DIM)))], ValueError, r"the shape of rows is \(3, 6\); table '.*' needs \(2, 6\), or"),
    "a number too large": ([([1], 1e300)], ValueError, "rows"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_piece_makes_no_table(server, name, kind):
    pieces, error, says = WRONG[kind]
    with refused(server, error, says, name):
        server.load_table(name, DIM, pieces, 50)


def test_an_error_of_the_caller_s_makes_no_table_and_the_next_call_works(server, name):
    def pieces():
        yield [1], 1
        assert server.open_table(f"{name}_other").get([1]).any()  # the connection can do other things meanwhile
        raise RuntimeError("theirs")

    server.create_table(f"{name}_other", DIM, init=("constant", 1))
    with refused(server, RuntimeError, "theirs", name):
        server.load_table(name, DIM, pieces())
    server.load_table(name, DIM, [([1], 1)])
    with refused(server, embtier.ExistsError, "already exists", name):
        server.load_table(name, DIM, [([1], 2)])
    assert (server.open_table(name).get([1]) == 1).all()


def test_a_connection_closed_meanwhile_makes_no_table(daemon: Daemon, server, name):
    mine = daemon.connect()

    def pieces():
        yield [1], 1
        mine.close()
        yield [2], 1

    with pytest.raises(RuntimeError, match="closed"):
        mine.load_table(name, DIM, pieces())
    deadline = time.monotonic() + 60
    while True:  # until the server has noticed that the client is gone; the list of tables may lack it before its name is free
        with contextlib.suppress(embtier.ExistsError):
            if is_free(server, name):
                break
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("interrupts")
def test_ctrl_c_between_pieces_makes_no_table(server, name):
    def pieces():
        for i in range(1_000_000):
            if i == 100:
                signalled.set()
            yield [i], 1

    signalled = threading.Event()

    def interrupt() -> None:
        signalled.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with refused(server, KeyboardInterrupt, "", name):
        server.load_table(name, DIM, pieces())
    thread.join()
    server.load_table(name, DIM, [([1], 1)])


# ---- Parquet ----


@pytest.fixture
def write(tmp_path):
    """Writes columns, given as lists with their types in pyarrow's words, to a file."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def write(**columns: Any) -> Path:
        table = arrow.table({name: arrow.array(values, kind) for name, (values, kind) in columns.items()})
        parquet.write_table(table, tmp_path / "rows", row_group_size=100)
        return tmp_path / "rows"

    write.arrow = arrow
    return write


@pytest.mark.parametrize("kind", ["list", "large", "fixed", "f16"])
def test_a_parquet_file_becomes_a_table(server, name, write, kind):
    arrow = write.arrow
    rows = numbers(1000, DIM, "<f2" if kind == "f16" else "<f4")
    of = arrow.float16() if kind == "f16" else arrow.float32()
    kinds = {"list": arrow.list_(of), "large": arrow.large_list(of)}
    ids = np.random.default_rng(1).permutation(5000)[:1000]
    said = []
    path = write(vector=(list(rows), kinds.get(kind, arrow.list_(of, DIM))), id=(ids, arrow.int64()), age=(ids, arrow.int32()))
    made = server.import_table(path, name, optimizer="adagrad", durability="async", progress=lambda *one: said.append(one))
    table = server.open_table(name)
    assert made == embtier.Imported(name, 1000, rows.nbytes) and said[0] == (0, 1000, "rows")
    assert (table.rows, table.dim, table.dtype) == (None, DIM, "f16" if kind == "f16" else "f32")
    assert (table.spec.optimizer, table.spec.durability) == ("adagrad", "async")
    assert (table.get(ids) == rows).all()


def test_its_columns_are_chosen_by_name(server, name, write):
    arrow = write.arrow
    a, b = numbers(10), numbers(11)[:10]
    vectors = arrow.list_(arrow.float32())
    path = write(a=(list(a), vectors), b=(list(b), vectors), number=(range(90, 100), arrow.uint64()))
    with pytest.warns(UserWarning, match=r"rows are numbered .* columns \['number'\] are not used: name the column of ids with ids_column=") as told:
        server.import_table(path, name, tensor="b")  # no column is called id, so these are rows 0, 1, ...
    assert told[0].filename == __file__
    assert server.open_table(name).rows == 10 and (server.open_table(name).get(range(10)) == b).all()
    server.import_table(path, f"{name}_a", tensor="a", ids_column="number", rows=100)
    assert server.open_table(f"{name}_a").rows == 100 and (server.open_table(f"{name}_a").get(range(90, 100)) == a).all()
    for wrong, error, says in (
        ({}, ValueError, r"columns \['a', 'b'\] are each a list of float32 or float16 numbers: say by tensor= which one"),
        ({"tensor": "c"}, LookupError, "has no column 'c'; it has"),
        ({"tensor": "number"}, ValueError, "column 'number' is uint64, not a list"),
        ({"tensor": "a", "ids_column": "b"}, ValueError, "column 'b' is .*, not an integer"),
        ({"tensor": "a", "ids_path": "x"}, ValueError, "ids_column"),
        ({"tensor": "a", "rows": 5}, embtier.IdRangeError, "has rows 0 to 4, not"),
        ({"tensor": "a", "rows": "all"}, ValueError, "'unbounded'"),
    ):
        with refused(server, error, says, f"{name}_wrong"):
            server.import_table(path, f"{name}_wrong", **wrong)
    with pytest.raises(ValueError, match="name is missing"):
        server.import_table(path, tensor="a")


@pytest.mark.parametrize(
    "vectors", [[[1, 2], [3]], [[1, 2], None], [[1, None], [1, 2]], [None, [1, 2]], [], [None]], ids=range(6)
)
def test_vectors_of_one_length_are_needed(server, name, write, vectors):
    path = write(v=(vectors, write.arrow.list_(write.arrow.float32())))
    with refused(server, ValueError, "column 'v' has (a|no) vector", name):
        server.import_table(path, name)


def test_a_missing_or_negative_id_is_refused(server, name, write):
    arrow = write.arrow
    for ids, says in (([1, None], "an id that is missing"), ([1, -1], "-1")):
        path = write(v=([[1.0], [2.0]], arrow.list_(arrow.float32())), id=(ids, arrow.int64()))
        with refused(server, ValueError, says, name):
            server.import_table(path, name)


def test_vectors_of_doubles_say_what_to_do(server, name, write):
    arrow = write.arrow
    path = write(v=([[1.0], [2.0]], arrow.list_(arrow.float64())))
    for options in ({}, {"tensor": "v"}):
        with refused(server, ValueError, r"double>.*convert other numbers first, with table\.cast\(\)", name):
            server.import_table(path, name, **options)


def test_other_files_have_no_columns(server, name, tmp_path):
    np.save(tmp_path / "rows.npy", numbers(3))
    with refused(server, ValueError, "is not a Parquet file, so it has no columns", name):
        server.import_table(tmp_path / "rows.npy", name, ids_column="id")


def test_without_pyarrow_it_says_what_is_missing(server, name, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "rows").write_bytes(b"PAR1....PAR1")
    with refused(server, ImportError, "is a Parquet file, for which the package pyarrow is needed", name):
        server.import_table(tmp_path / "rows", name)
