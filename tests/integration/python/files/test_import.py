# SPDX-License-Identifier: Apache-2.0
"""Files of other programs become tables, and files that are not tables are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from foreign_files import numbers
from transfers import next_table_id, refused, safetensors_bytes

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

# ---- Files of other programs ----


@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
def test_a_numpy_file_becomes_a_table(server, name, tmp_path, dtype):
    rows = numbers(300, 7, dtype)
    np.save(tmp_path / "rows.npy", rows)
    told = []
    made = server.import_table(tmp_path / "rows.npy", name, progress=lambda *report: told.append(report))
    assert made == embtier.Imported(name, 300, rows.nbytes)
    assert told[:2] == [(0, 300, "rows"), (300, 300, "rows")]  # told first, so that the rows' time does not include the wait
    table = server.open_table(name)
    assert (table.rows, table.dim, table.numpy_dtype, table.spec.optimizer) == (300, 7, np.dtype(dtype), "none")
    assert table.get(np.arange(300)).tobytes() == rows.tobytes()


@pytest.mark.parametrize("id_dtype", [np.int64, np.uint64])
def test_its_rows_may_have_ids_of_another_file(server, name, tmp_path, id_dtype):
    rows, ids = numbers(300, 4), np.random.default_rng(1).permutation(5000)[:300].astype(id_dtype)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "ids.npy", ids)
    server.import_table(tmp_path / "rows.npy", f"{name}.unbounded", ids_path=tmp_path / "ids.npy")
    server.import_table(
        tmp_path / "rows.npy", name, ids_path=str(tmp_path / "ids.npy"), rows=5000, init=("constant", 7),
        optimizer="adagrad", eps=1e-4, seed=3, rounding="nearest", allow_nonfinite=True, durability="sync",
    )  # fmt: skip
    table = server.open_table(name)
    spec = table.spec
    assert (spec.rows, spec.optimizer, spec.eps, spec.seed) == (5000, "adagrad", 1e-4, 3)
    assert (spec.init, spec.rounding, spec.durability) == (("constant", 7), "nearest", "sync")
    assert spec.allow_nonfinite
    assert (table.get(ids.astype(np.uint64)) == rows).all()
    assert (table.get(np.setdiff1d(np.arange(5000), ids)) == 7).all()
    unbounded = server.open_table(f"{name}.unbounded")
    assert unbounded.rows is None and (unbounded.get(ids.astype(np.uint64)) == rows).all()


def test_a_file_that_another_takes_the_place_of_is_not_mixed_with_it(server, name, tmp_path):
    """Another program saves as programs do: it writes a new file beside the old one, and renames it."""
    path, saves = tmp_path / "rows.safetensors", []
    for save in (1, 2):
        state, ids = np.full((100, 4), save, np.float32), np.arange(100) + 1000 * save
        saves.append(tmp_path / str(save))
        saves[-1].write_bytes(safetensors_bytes({"weight": ("F32", state), "state": ("F32", state), "ids": ("I64", ids)}))
    program = "import itertools, os, sys\nfor save in itertools.cycle(sys.argv[2:]):\n" \
        "    os.link(save, sys.argv[1] + '.new'); os.rename(sys.argv[1] + '.new', sys.argv[1])"  # fmt: skip
    os.link(saves[1], path)
    saving = subprocess.Popen([sys.executable, "-c", program, path, *saves])
    try:
        for turn in range(12):
            server.import_table(path, f"{name}.{turn}", optimizer="adagrad", durability="async")
            table = server.open_table(f"{name}.{turn}")
            found = [table.get_with_state(np.arange(100) + 1000 * save) for save in (1, 2)]
            numbers = [sorted({float(row.max()) for row in pair}) for pair in found]
            assert numbers in ([[1], [0]], [[0], [2]]), f"turn {turn}"
        assert saving.poll() is None
    finally:
        saving.kill()
        saving.wait()


def test_more_rows_than_the_file_has_begin_with_their_first_values(server, name, tmp_path):
    np.save(tmp_path / "rows.npy", numbers(10, 4))
    server.import_table(tmp_path / "rows.npy", name, rows=15, init=("constant", 2))
    assert (server.open_table(name).get(np.arange(10, 15)) == 2).all()
    with refused(server, embtier.IdRangeError, "", f"{name}.few"):
        server.import_table(tmp_path / "rows.npy", f"{name}.few", rows=9)


def test_a_safetensors_file_becomes_a_table_with_ids_and_state(server, name, tmp_path):
    rows, state = numbers(200, 6), numbers(200, 12)
    ids = np.random.default_rng(2).integers(2**63, 2**64, 200, dtype=np.uint64)
    tensors = {"state": ("F32", state), "ids": ("U64", ids), "weight": ("F32", rows)}
    (tmp_path / "t").write_bytes(safetensors_bytes(tensors, {"of": "a test"}))
    server.import_table(tmp_path / "t", name, optimizer="adam")
    found = server.open_table(name).get_with_state(ids)
    assert (found[0] == rows).all() and (found[1] == state).all()
    server.import_table(tmp_path / "t", f"{name}.bare", optimizer="adam", state=False)
    found = server.open_table(f"{name}.bare").get_with_state(ids)
    assert (found[0] == rows).all() and (found[1] == 0).all()


def write_model(folder: Path, tensors: dict[str, np.ndarray], index: str = "model.safetensors.index.json") -> None:
    """Writes a model in several files as Hugging Face's libraries do, here with one file for each tensor."""
    folder.mkdir(exist_ok=True)
    files = {}
    for number, (tensor, rows) in enumerate(tensors.items(), 1):
        files[tensor] = f"model-{number:05}-of-{len(tensors):05}.safetensors"
        (folder / files[tensor]).write_bytes(safetensors_bytes({tensor: ("F32", rows)}))
    size = sum(rows.nbytes for rows in tensors.values())
    (folder / index).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": files}))


def test_a_model_in_several_files_has_an_index(server, name, tmp_path):
    tensors = {"encoder.embed.weight": numbers(300, 7), "encoder.bias": numbers(7, 1), "head.weight": numbers(20, 3)}
    write_model(tmp_path / "model", tensors)
    for tensor in ("encoder.embed.weight", "head.weight"):
        server.import_table(tmp_path / "model", f"{name}.{tensor}", tensor=tensor, optimizer="adagrad")
        table = server.open_table(f"{name}.{tensor}")
        assert (table.get(np.arange(table.rows)) == tensors[tensor]).all() and table.spec.optimizer == "adagrad"
    write_model(tmp_path / "one", {"weight": numbers(5, 2)}, "m.safetensors.index.json")
    server.import_table(tmp_path / "one", f"{name}.one")
    assert (server.open_table(f"{name}.one").get(range(5)) == numbers(5, 2)).all()
    with refused(server, embtier.InvalidError, "model.safetensors.index.json: has 3 tensors: name one", name):
        server.import_table(tmp_path / "model", name)
    with refused(server, embtier.NotFoundError, "has no tensor 'tail'", name):
        server.import_table(tmp_path / "model", name, tensor="tail")
    with refused(server, embtier.InvalidError, "needs a name", name):
        server.import_table(tmp_path / "one")
    (tmp_path / "one" / "second.safetensors.index.json").write_text("{}")
    with refused(server, embtier.InvalidError, "has several files NAME.safetensors.index.json", name):
        server.import_table(tmp_path / "one", name)


@pytest.mark.parametrize(
    "index, said",
    [
        ("", ":1: "),
        ("[1]", "has no weight_map"),
        ('{"weight_map": []}', "has no weight_map"),
        ('{"weight_map": {"weight": 3}}', "file that is not in its folder"),
        ('{"weight_map": {"weight": "../rows.safetensors"}}', "file that is not in its folder"),
        ('{"weight_map": {"weight": "/etc/passwd"}}', "file that is not in its folder"),
        ('{"weight_map": {"weight": ".hidden"}}', "file that is not in its folder"),
        ('{"weight_map": {"weight": "a\\nb"}}', "file that is not in its folder"),
        ('{"weight_map": {"weight": "gone.safetensors"}}', "gone.safetensors"),
        ('{"weight_map": {"weight": "a", "weight": "b"}}', "duplicate"),
        ('{"weight_map": ' + "[" * 100 + "]" * 100 + "}", "has more entries than an index"),
        ('{"weight_map": [' + "0," * 1_100_000 + "0]}", "has more entries than an index"),
    ],
    ids=range(12),
)
def test_an_index_that_is_wrong_is_refused(server, name, tmp_path, index, said):
    (tmp_path / "model.safetensors.index.json").write_text(index)
    (tmp_path.parent / "rows.safetensors").write_bytes(safetensors_bytes({"weight": ("F32", numbers(5, 2))}))
    with refused(server, embtier.NotFoundError if said.startswith("gone") else embtier.CorruptError, said, name):
        server.import_table(tmp_path, name)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_of_several_tensors_the_one_named_is_taken(server, name, tmp_path, dtype):
    users = np.arange(80).reshape(20, 4) if dtype == "BF16" else numbers(20, 4)
    tensors = {"users": (dtype, users), "items": ("F32", numbers(10, 3)), "bias": ("F64", numbers(4, 1)[:, 0])}
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    server.import_table(tmp_path / "model.safetensors", name, tensor="users")
    table = server.open_table(name)
    assert (table.dtype, table.rows, table.dim) == (dtype.lower(), 20, 4)
    assert (table.get(np.arange(20)) == users.astype(table.numpy_dtype)).all()
    with refused(server, embtier.NotFoundError, "no tensor 'weight', but 2 other two-dimensional tensors", f"{name}.2"):
        server.import_table(tmp_path / "model.safetensors", f"{name}.2")
    with refused(server, embtier.NotFoundError, "no tensor 'user'$", f"{name}.2"):
        server.import_table(tmp_path / "model.safetensors", f"{name}.2", tensor="user")
    with refused(server, embtier.MismatchError, r"bias has the shape \[4\]", f"{name}.2"):
        server.import_table(tmp_path / "model.safetensors", f"{name}.2", tensor="bias")


def test_the_only_one_of_two_dimensions_needs_no_name(server, name, tmp_path):
    rows = numbers(20, 4)
    tensors = {"bias": ("F32", rows[:, 0]), "emb.users": ("F32", rows)}
    (tmp_path / "model").write_bytes(safetensors_bytes(tensors))
    server.import_table(tmp_path / "model", name)
    assert (server.open_table(name).get(np.arange(20)) == rows).all()


def test_of_one_id_the_last_row_counts(server, name, tmp_path):
    np.save(tmp_path / "rows.npy", numbers(4, 2))
    np.save(tmp_path / "ids.npy", np.array([5, 6, 5, 5]))
    server.import_table(tmp_path / "rows.npy", name, ids_path=tmp_path / "ids.npy")
    assert (server.open_table(name).get([6, 5]) == numbers(4, 2)[[1, 3]]).all()


def test_torch_and_numpy_know_an_imported_model(server, name, tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Embedding(50, 8).weight.detach().numpy()
    np.save(tmp_path / "w.npy", weight)
    server.import_table(tmp_path / "w.npy", name, optimizer="sgd")
    assert (server.open_table(name).get(np.arange(50)) == weight).all()


# ---- Files of other programs that are not tables ----

WRONG_ARRAYS = {
    "float64": (numbers(5, 2, "<f8"), embtier.MismatchError, "dtype F64; a table's is F32, F16 or BF16"),
    "integers": (np.ones((5, 2), np.uint16), embtier.MismatchError, "dtype U16"),
    "big_endian": (numbers(5, 2, ">f4"), embtier.UnsupportedError, "big-endian"),
    "1-D": (numbers(5, 2)[:, 0], embtier.MismatchError, r"shape \[5\]; a table's is \[rows, dim\]"),
    "3-D": (numbers(6, 2).reshape(3, 2, 2), embtier.MismatchError, r"shape \[3, 2, 2\]"),
    "0-D": (np.float32(1), embtier.MismatchError, r"shape \[\]"),
    "no_numbers": (np.ones((5, 0), np.float32), embtier.MismatchError, r"shape \[5, 0\]"),
    "too_wide": (np.ones((1, 8193), np.float32), embtier.MismatchError, "dim 1 to 8192"),
    "fortran": (np.asfortranarray(numbers(5, 2)), embtier.UnsupportedError, "ascontiguousarray"),
    "no_rows": (np.ones((0, 5), np.float32), embtier.MismatchError, "must be given"),
}


@pytest.mark.parametrize("kind", WRONG_ARRAYS)
def test_an_array_that_is_no_table_is_refused(server, name, tmp_path, kind):
    array, error, match = WRONG_ARRAYS[kind]
    np.save(tmp_path / "rows.npy", array)
    with refused(server, error, match, name):
        server.import_table(tmp_path / "rows.npy", name)
    if kind == "no_rows":
        server.import_table(tmp_path / "rows.npy", name, rows=3)
        assert server.open_table(name).rows == 3


WRONG_IDS = {
    "too_few": (np.arange(4), embtier.MismatchError, r"ids has the shape \[4\], which should be \[5\]"),
    "too_many": (np.arange(6), embtier.MismatchError, r"\[6\]"),
    "2-D": (np.arange(5)[:, None], embtier.MismatchError, r"\[5, 1\]"),
    "float": (np.arange(5.0), embtier.MismatchError, "F64, which does not fit ids, which are I64 or U64"),
    "int32": (np.arange(5, dtype=np.int32), embtier.MismatchError, "I32"),
    "negative": (np.array([0, 1, -7, 3, 4]), embtier.IdRangeError, "id -7 of row 2 is negative"),
}


@pytest.mark.parametrize("kind", WRONG_IDS)
def test_ids_that_are_none_are_refused(server, name, tmp_path, kind):
    ids, error, match = WRONG_IDS[kind]
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    np.save(tmp_path / "ids.npy", ids)
    for rows in (None, 100):
        with refused(server, error, match, name):
            server.import_table(tmp_path / "rows.npy", name, ids_path=tmp_path / "ids.npy", rows=rows)


def test_ids_and_state_that_do_not_fit_are_refused(server, name, tmp_path):
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    np.save(tmp_path / "ids.npy", np.array([0, 1, 100, 3, 4]))
    with refused(server, embtier.IdRangeError, "100", name):
        server.import_table(tmp_path / "rows.npy", name, ids_path=tmp_path / "ids.npy", rows=100)
    with refused(server, embtier.NotFoundError, "none.npy", name):
        server.import_table(tmp_path / "rows.npy", name, ids_path=tmp_path / "none.npy")
    tensors = {"weight": ("F32", numbers(5, 2)), "state": ("F32", numbers(5, 3))}
    (tmp_path / "t").write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, r"state has the shape \[5, 3\], which should be \[5, 4\]", name):
        server.import_table(tmp_path / "t", name, optimizer="adam")
    with refused(server, embtier.MismatchError, "optimizer, none, keeps none", name):
        server.import_table(tmp_path / "t", name)
    tensors["state"] = ("F16", numbers(5, 4))
    (tmp_path / "t").write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, "F16, which does not fit state", name):
        server.import_table(tmp_path / "t", name, optimizer="adam")


def test_wrong_options_are_refused(server, name, tmp_path):
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    server.create_table(f"{name}.taken", 2, 10, optimizer="sgd")
    server.export_table(f"{name}.taken", tmp_path / "export", all_rows=True)
    path = tmp_path / "rows.npy"
    with refused(server, embtier.InvalidError, "needs a name", name):
        server.import_table(path)
    with refused(server, embtier.ExistsError, f"'{name}.taken'", f"{name}.taken"):
        server.import_table(path, f"{name}.taken")
    for wrong in ("", "a b", "../t", "x" * 2000):
        with refused(server, embtier.InvalidError, "", name):
            server.import_table(path, wrong)
    with refused(server, embtier.InvalidError, "optimizer sgd has no eps", name):
        server.import_table(path, name, optimizer="sgd", eps=1e-3)
    for options in ({"rows": 10}, {"optimizer": "sgd"}, {"seed": 0}, {"tensor": "weight"}, {"ids_path": path}):
        with refused(server, embtier.InvalidError, "is an export, which describes its own table", name):
            server.import_table(tmp_path / "export", name, **options)
    for options, match in (
        ({"optimizer": "best"}, "optimizer must be one of"), ({"durability": "most"}, "durability must be one of"),
        ({"rows": 0}, "rows must be at least 1"), ({"tensor": "a\0b"}, "zero byte"), ({"init": "ones"}, "init must"),
    ):  # fmt: skip
        with refused(server, ValueError, match, name):
            server.import_table(path, name, **options)
    with refused(server, embtier.NotFoundError, "none", name):
        server.import_table(tmp_path / "none", name)


@pytest.mark.parametrize("kind", ["float64", "1-D", "3-D", "too_wide"])
def test_those_of_others_files_too(server, name, tmp_path, kind):
    """Shapes and dtypes are checked before a table is begun."""
    array, error, match = WRONG_ARRAYS[kind]
    np.save(tmp_path / "rows.npy", array)
    before, reports = next_table_id(server, name), []
    with pytest.raises(error, match=match):
        server.import_table(tmp_path / "rows.npy", name, progress=lambda *report: reports.append(report))
    assert reports == [] and next_table_id(server, name) == before + 1
