# SPDX-License-Identifier: Apache-2.0
"""Do files of others become tables, does whatever is wrong with a file keep the server as it was, and is an
import that is killed a whole table or none? `embtier export` and `embtier import`, too."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE, Daemon
from transfers import (
    LONG, cli_json, contents, folder_names, is_free, kill_after, moments_of_kills, next_table_id, refused, run_cli,
    safetensors_bytes, spec_of, start_cli, train, with_header,
)  # fmt: skip

import embtier

KILLS = 40 if LONG else 5
ROWS = 1000
IDS = np.arange(0, 900, 3, dtype=np.uint64)


def numbers(rows: int, dim: int, dtype: str = "<f4") -> np.ndarray:
    return np.random.default_rng(rows).uniform(-1, 1, (rows, dim)).astype(dtype)


# ---- Files of others ----


@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
def test_a_numpy_file_becomes_a_table(server, name, tmp_path, dtype):
    rows = numbers(300, 7, dtype)
    np.save(tmp_path / "rows.npy", rows)
    told = []
    made = server.import_table(tmp_path / "rows.npy", name, progress=lambda *report: told.append(report))
    assert made == embtier.Imported(name, 300, rows.nbytes)
    assert told[:2] == [(0, 300, "rows"), (300, 300, "rows")]  # so the time it waits is none of it
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
    """As programs save: beside it, and renamed."""
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
    """As Hugging Face's libraries write a model in several files: here one for each tensor."""
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
    with refused(server, embtier.InvalidError, "model.safetensors.index.json: has 3 tensors: say which", name):
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
        ('{"weight_map": {"weight": 3}}', "names no file in its folder"),
        ('{"weight_map": {"weight": "../rows.safetensors"}}', "names no file in its folder"),
        ('{"weight_map": {"weight": "/etc/passwd"}}', "names no file in its folder"),
        ('{"weight_map": {"weight": ".hidden"}}', "names no file in its folder"),
        ('{"weight_map": {"weight": "a\\nb"}}', "names no file in its folder"),
        ('{"weight_map": {"weight": "gone.safetensors"}}', "gone.safetensors"),
        ('{"weight_map": {"weight": "a", "weight": "b"}}', "duplicate"),
        ('{"weight_map": ' + "[" * 100 + "]" * 100 + "}", "holds more than an index"),
        ('{"weight_map": [' + "0," * 1_100_000 + "0]}", "holds more than an index"),
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
    with refused(server, embtier.NotFoundError, "no tensor 'weight', but 2 others of two dimensions", f"{name}.2"):
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


# ---- Files of others that are none ----

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
    "no_rows": (np.ones((0, 5), np.float32), embtier.MismatchError, "does not say how many"),
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
        with refused(server, embtier.InvalidError, "is an export, which says itself", name):
            server.import_table(tmp_path / "export", name, **options)
    for options, match in (
        ({"optimizer": "best"}, "optimizer must be one of"), ({"durability": "most"}, "durability must be one of"),
        ({"rows": 0}, "rows must be at least 1"), ({"tensor": "a\0b"}, "zero byte"), ({"init": "ones"}, "init must"),
    ):  # fmt: skip
        with refused(server, ValueError, match, name):
            server.import_table(path, name, **options)
    with refused(server, embtier.NotFoundError, "none", name):
        server.import_table(tmp_path / "none", name)


# ---- Hostile files ----


def header_of(**tensors) -> bytes:
    return json.dumps(
        {k: {"dtype": d, "shape": s, "data_offsets": o} for k, (d, s, o) in tensors.items()}
    ).encode()


GOOD = '{"weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}'
HOSTILE = {
    "empty": b"",
    "short": b"\x02",
    "text": b"id,weight\n0,0.5\n1,0.25\n",
    "huge_length": struct.pack("<Q", 2**63) + b"{}",
    "all_ones_length": struct.pack("<Q", 2**64 - 1) + b"{}",
    "length_beyond_the_end": struct.pack("<Q", 1000) + b"{}",
    "no_json": with_header(b"{weight}", bytes(16)),
    "no_object": with_header(b"[1, 2]", bytes(16)),
    "deep": with_header(b'{"a":' + b"[" * 100_000, b""),
    "no_utf8": with_header(b'{"\xff": 1}', bytes(16)),
    "overlap": with_header(header_of(weight=("F32", [2, 2], [0, 16]), a=("F32", [2], [8, 16])), bytes(16)),
    "hole": with_header(header_of(weight=("F32", [2, 2], [0, 16]), a=("F32", [1], [20, 24])), bytes(24)),
    "hole_in_front": with_header(header_of(weight=("F32", [2, 2], [4, 20])), bytes(20)),
    "more_behind": with_header(header_of(weight=("F32", [2, 2], [0, 16])), bytes(17)),
    "backwards": with_header(header_of(weight=("F32", [2, 2], [16, 0])), bytes(16)),
    "negative": with_header(header_of(weight=("F32", [-2, -2], [0, 16])), bytes(16)),
    "overflow": with_header(header_of(weight=("F32", [2**62, 2**62 + 1], [0, 16])), bytes(16)),
    "other_bytes": with_header(header_of(weight=("F32", [2, 3], [0, 16])), bytes(16)),
    "unknown_dtype": with_header(header_of(weight=("F99", [2, 2], [0, 16])), bytes(16)),
    "dtype_no_text": with_header(header_of(weight=(7, [2, 2], [0, 16])), bytes(16)),
    "twice": with_header(f"{GOOD}, {GOOD[1:]}}}".encode(), bytes(16)),
    "truncated": with_header(f"{GOOD}}}".encode(), bytes(15)),
    "npy_header_cut": b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'",
    "npy_no_dict": b"\x93NUMPY\x01\x00\x04\x00abc\n",
    "npy_huge_header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "npy_objects": b"\x93NUMPY\x01\x00\x40\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }".ljust(63)
    + b"\n",
    "npy_truncated": None,
    "zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_is_wrong_changes_nothing(server, name, tmp_path, kind):
    path = tmp_path / "file"
    if kind == "npy_truncated":
        np.save(tmp_path / "whole.npy", numbers(5, 2))
        path.write_bytes((tmp_path / "whole.npy").read_bytes()[:-1])
    else:
        path.write_bytes(HOSTILE[kind])
    unsupported = kind in ("unknown_dtype", "npy_objects", "zip")
    expected = embtier.UnsupportedError if unsupported else (embtier.InvalidError, embtier.TooLargeError)
    with refused(server, expected, f"^{path}", name):
        server.import_table(path, name)
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    with refused(server, expected, f"^{path}", name):
        server.import_table(tmp_path / "rows.npy", name, ids_path=path)


def test_what_is_no_file_does_not_hold_it_up(server, name, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    with refused(server, embtier.InvalidError, "not a regular file", name):
        server.import_table(tmp_path / "fifo", name)
    with refused(server, embtier.InvalidError, "not a regular file", name):
        server.import_table("/dev/zero", name)
    for path in (tmp_path / "fifo", tmp_path):
        with refused(server, embtier.InvalidError, "not a regular file|is a directory", name):
            server.import_table(tmp_path / "rows.npy", name, ids_path=path)
    with refused(server, embtier.NotFoundError, "the folder is no export", name):
        server.import_table(tmp_path, name)


# ---- Exports that are not what they were ----


@pytest.fixture
def export(server, name, tmp_path) -> Path:
    """Of three parts with rows of 100 each, with state."""
    table = server.create_table(name, 5, ROWS, optimizer="adagrad", init=("uniform", -1, 1))
    train(server, table, 1, IDS)
    made = server.export_table(table, tmp_path / "export", state=True, file_bytes=100 * (20 + 20 + 8))
    assert (made.rows, made.parts) == (300, 3)
    return tmp_path / "export"


def part(export: Path, number: int) -> Path:
    return sorted(export.glob("*.safetensors"))[number - 1]


def test_a_flipped_bit_is_found_wherever_it_is(server, name, export, rng):
    for number in (1, 2, 3):
        whole = part(export, number).read_bytes()
        data = 8 + int.from_bytes(whole[:8], "little")
        for at in {data, len(whole) - 1, *(rng.randrange(data, len(whole)) for _ in range(20 if LONG else 3))}:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << rng.randrange(8)
            part(export, number).write_bytes(damaged)
            # An id that is out of range tells itself before the checksum does.
            errors, match = (embtier.CorruptError, embtier.IdRangeError), "checksum is another|negative|has rows 0 to"
            with refused(server, errors, match, f"{name}.2"):
                server.import_table(export, f"{name}.2")
        for _ in range(20 if LONG else 3):  # in the header: refused, or no matter
            damaged = bytearray(whole)
            damaged[rng.randrange(data)] ^= 1 << rng.randrange(8)
            part(export, number).write_bytes(damaged)
            try:
                server.import_table(export, f"{name}.3")
            except embtier.Error:
                assert is_free(server, f"{name}.3")
            else:
                ids = np.arange(ROWS)
                assert contents(server.open_table(f"{name}.3"), ids) == contents(server.open_table(name), ids)
                server.drop_table(f"{name}.3")
        part(export, number).write_bytes(whole)
    server.import_table(export, f"{name}.4")


def test_parts_that_are_not_what_they_were_are_refused(server, name, export):
    first, second, third = (part(export, number) for number in (1, 2, 3))
    raw = [path.read_bytes() for path in (first, second, third)]
    first.write_bytes(raw[1])
    second.write_bytes(raw[0])
    with refused(server, embtier.CorruptError, f"{first}.*checksum is another", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    first.write_bytes(raw[0])
    second.write_bytes(raw[1])
    third.write_bytes(raw[2][:-1])
    with refused(server, embtier.InvalidError, f"^{third}", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.unlink()
    with refused(server, embtier.NotFoundError, f"^{third}", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    os.mkfifo(third)
    with refused(server, embtier.InvalidError, f"{third}.*not a regular file", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.unlink()
    third.write_bytes(safetensors_bytes({"weight": ("F32", numbers(100, 5))}))
    with refused(server, embtier.NotFoundError, f"{third}: has no tensor 'state'", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    tensors = {"weight": ("F16", numbers(100, 5)), "state": ("F32", numbers(100, 5)), "ids": ("I64", IDS[:100])}
    third.write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, f"{third}: weight is of dtype F16", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    tensors = {"weight": ("F32", numbers(99, 5)), "state": ("F32", numbers(99, 5)), "ids": ("I64", IDS[:99])}
    third.write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, rf"{third}: weight has the shape \[99, 5\]", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.write_bytes(raw[2])
    server.import_table(export, f"{name}.2")


WRONG_PARTS = {
    "dtype": ({"weight": ("F16", numbers(100, 5))}, "weight is of dtype F16"),
    "state_dtype": ({"state": ("F64", numbers(100, 5))}, "state is of dtype F64"),
    "ids_dtype": ({"ids": ("I32", IDS[200:])}, "ids is of dtype I32"),
    "rows": ({"weight": ("F32", numbers(99, 5))}, r"weight has the shape \[99, 5\]"),
    "dim": ({"weight": ("F32", numbers(100, 4))}, r"weight has the shape \[100, 4\]"),
    "state": ({"state": ("F32", numbers(100, 4))}, r"state has the shape \[100, 4\]"),
    "ids": ({"ids": ("I64", IDS[:99])}, r"ids has the shape \[99\]"),
}


@pytest.mark.parametrize("kind", WRONG_PARTS)
def test_shapes_and_dtypes_of_all_parts_are_checked_before_a_table_is_begun(server, name, export, kind):
    changes, match = WRONG_PARTS[kind]
    whole = {"weight": ("F32", numbers(100, 5)), "state": ("F32", numbers(100, 5)), "ids": ("I64", IDS[200:])}
    third = part(export, 3)
    before = next_table_id(server, name)

    def fails(error: type[Exception], match: str) -> list[tuple]:
        reports = []
        with pytest.raises(error, match=f"^{third}: {match}"):
            server.import_table(export, f"{name}.2", progress=lambda *report: reports.append(report))
        return reports

    third.write_bytes(safetensors_bytes(whole | changes))
    assert fails(embtier.MismatchError, match) == []
    assert next_table_id(server, name) == before + 1
    # What only its bytes tell is found later, and has cost an id: so the one above could have been seen.
    third.write_bytes(safetensors_bytes(whole))
    assert fails(embtier.CorruptError, "weight is not what was exported") != []
    assert next_table_id(server, name) == before + 3


@pytest.mark.parametrize("kind", ["float64", "1-D", "3-D", "too_wide"])
def test_those_of_others_files_too(server, name, tmp_path, kind):
    array, error, match = WRONG_ARRAYS[kind]
    np.save(tmp_path / "rows.npy", array)
    before, reports = next_table_id(server, name), []
    with pytest.raises(error, match=match):
        server.import_table(tmp_path / "rows.npy", name, progress=lambda *report: reports.append(report))
    assert reports == [] and next_table_id(server, name) == before + 1


def changed(manifest: dict, change: str) -> None:
    """In place, as @change says: a line of Python over m, the manifest, and p, its parts."""
    exec(change, {"m": manifest, "p": manifest["parts"]})  # noqa: S102  (the lines are below)


CORRUPT_MANIFESTS = {
    "more_rows": 'm["rows"] = "301"',
    "fewer_rows": 'm["rows"] = "299"',
    "rows_missing": 'del m["rows"]',
    "rows_negative": 'p[0]["rows"] = -1',
    "rows_that_wrap": 'p[0]["rows"] = str(2**64 - 200); m["rows"] = "0"',
    "part_missing": 'p.pop()',
    "part_twice": 'p.append(p[0])',
    "part_no_object": 'p[0] = "x"',
    "no_parts": 'del m["parts"]',
    "parts_no_list": 'm["parts"] = {}',
    "parent": 'p[0]["tensors"]["weight"]["file"] = "../export/x.safetensors"',
    "slash": 'p[0]["tensors"]["weight"]["file"] = "/etc/passwd"',
    "below": 'p[0]["tensors"]["weight"]["file"] = "a/b"',
    "dots": 'p[0]["tensors"]["weight"]["file"] = ".."',
    "dot": 'p[0]["tensors"]["weight"]["file"] = "."',
    "empty_name": 'p[0]["tensors"]["weight"]["file"] = ""',
    "long_name": 'p[0]["tensors"]["weight"]["file"] = "x" * 300',
    "sum_missing": 'del p[0]["tensors"]["weight"]["xxh3"]',
    "sum_short": 'p[0]["tensors"]["weight"]["xxh3"] = "12"',
    "tensor_missing": 'del p[0]["tensors"]["ids"]',
    "files_unknown": 'm["files"] = "csv"',
    "which_unknown": 'm["which_rows"] = "some"',
    "all_of_some": 'm["which_rows"] = "all"',
    "table_missing": 'del m["table"]',
    "table_dim": 'm["table"]["dim"] = 0',
    "table_name": 'm["table"]["name"] = "../x"',
    "table_optimizer": 'm["table"]["optimizer"] = "best"',
    "other_format": 'm["format"] = "something else"',
    "no_format": 'del m["format"]',
    "format_version_text": 'm["format_version"] = "1"',
}


@pytest.mark.parametrize("kind", CORRUPT_MANIFESTS)
def test_a_manifest_that_is_wrong_changes_nothing(server, name, export, kind):
    file = export / "table.json"
    manifest = json.loads(file.read_text())
    changed(manifest, CORRUPT_MANIFESTS[kind])
    file.write_text(json.dumps(manifest))
    with refused(server, embtier.CorruptError, f"^{file}", f"{name}.2"):
        server.import_table(export, f"{name}.2")


def test_a_manifest_that_is_cut_or_none_changes_nothing(server, name, export, rng):
    file = export / "table.json"
    whole = file.read_bytes()
    for length in {0, 1, len(whole) - 2, *(rng.randrange(len(whole) - 1) for _ in range(10))}:
        file.write_bytes(whole[:length])
        with pytest.raises(embtier.CorruptError, match=f"^{file}"):
            server.import_table(export, f"{name}.2")
    for text in (b"not JSON", b"[]", b"{}", b"null", b"\xff\xfe", whole + b"x", b"[" * 100_000, whole[:20] + b"\0"):
        file.write_bytes(text)
        with refused(server, embtier.CorruptError, f"^{file}", f"{name}.2"):
            server.import_table(export, f"{name}.2")
    for _ in range(200 if LONG else 20):  # a byte, whatever comes of it
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.randrange(256)
        file.write_bytes(damaged)
        try:
            server.import_table(export, f"{name}.3")
        except embtier.Error:
            assert not spec_of(server, f"{name}.3")
        else:
            server.drop_table(f"{name}.3")
    file.unlink()
    with refused(server, embtier.NotFoundError, "the folder is no export", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    os.mkfifo(file)
    with refused(server, embtier.CorruptError, "not a file", f"{name}.2"):
        server.import_table(export, f"{name}.2")


def test_a_newer_version_is_told(server, name, export):
    file = export / "table.json"
    for key in ("format_version", "table_version"):
        whole = file.read_text()
        manifest = json.loads(whole)
        manifest[key] += 1
        file.write_text(json.dumps(manifest))
        with refused(server, embtier.VersionError, f"version {manifest[key]}.*reads up to", f"{name}.2"):
            server.import_table(export, f"{name}.2")
        file.write_text(whole)


# ---- Killed ----


def await_settled(server: embtier.Server, name: str) -> bool:
    """Is there a table? It has taken back what it began for a client that is gone."""
    deadline = time.monotonic() + 30
    while (spec := spec_of(server, name)) and spec.state != "live":
        assert time.monotonic() < deadline, spec
        time.sleep(0.01)
    return spec is not None


def check_outcome(server: embtier.Server, name: str, wanted: np.ndarray) -> bool:
    """The table is right, and dropped then, or its name is free. Was there one?"""
    deadline = time.monotonic() + 60
    while not await_settled(server, name):  # or it is on its way out, or its last step is under way
        with contextlib.suppress(embtier.ExistsError):
            if is_free(server, name):
                return False
        assert time.monotonic() < deadline
        time.sleep(0.01)
    table = server.open_table(name)
    for first in range(0, len(wanted), 20000):
        rows = wanted[first : first + 20000]
        assert (table.get(np.arange(first, first + len(rows))) == rows).all()
    server.drop_table(name)
    return True


def make_file(folder: Path, rows: int = 200_000) -> np.ndarray:
    wanted = numbers(rows, 32)
    np.save(folder / "rows.npy", wanted)
    return wanted


def test_a_client_that_is_killed_leaves_a_whole_table_or_none(daemon, server, name, tmp_path, rng):
    wanted = make_file(tmp_path)
    arguments = ("import", tmp_path / "rows.npy", "--as", name)
    began = time.monotonic()
    cli_json(daemon, *arguments)
    whole_s = time.monotonic() - began
    assert check_outcome(server, name, wanted)
    outcomes = []
    for seconds in moments_of_kills(whole_s, KILLS, rng):
        killed = kill_after(start_cli(daemon, *arguments), seconds)
        outcomes.append((killed, check_outcome(server, name, wanted)))
        if len(outcomes) >= KILLS and any(killed for killed, _ in outcomes):
            break
    print(outcomes)
    assert (False, False) not in outcomes


@pytest.mark.parametrize("calls_at_the_end", [1, 2, 3])
def test_one_that_dies_at_its_end_does_too(daemon, server, name, tmp_path, calls_at_the_end):
    wanted = make_file(tmp_path, 50_000)
    program = textwrap.dedent("""
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        import embtier
        left = int(sys.argv[5])
        def die(done, total, unit):
            global left
            left -= done == total or unit != "rows" or left < int(sys.argv[5])
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        with embtier.connect(sys.argv[2]) as server:
            server.import_table(sys.argv[3], sys.argv[4], progress=die)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, TREE / "client/python", daemon.socket, tmp_path / "rows.npy", name,
         str(calls_at_the_end)], check=False,
    )  # fmt: skip
    assert done.returncode in (0, -9)
    was_made = check_outcome(server, name, wanted)
    assert was_made or done.returncode == -9


class Killer:
    """A progress function that ends the daemon once @share of the rows is there: at once, while the client waits for
    it, or @delay_s later, while it goes on."""

    def __init__(self, daemon: Daemon, share: float, delay_s: float | None) -> None:
        self.share = share
        self.reached: float | None = None  # when
        self._timer = threading.Timer(delay_s or 0, daemon.kill)
        self._is_at_once = delay_s is None

    def __call__(self, done: int, total: int, unit: str) -> None:
        if self.reached is None and unit == "rows" and done >= self.share * total:
            self.reached = time.monotonic()
            self._timer.start()
            if self._is_at_once:
                self._timer.join()

    def await_it(self) -> None:
        self._timer.join()


@pytest.mark.parametrize("moment", ["middle", "end"])
def test_a_server_that_is_killed_has_a_whole_table_or_none(own_daemon: Daemon, tmp_path, moment, rng):
    wanted = make_file(tmp_path)
    reached: list[float] = []
    with own_daemon.connect() as server:
        kept = server.create_table("kept", 4, 100, durability="sync")
        kept.set([1], np.ones((1, 4)))
        server.import_table(tmp_path / "rows.npy", "t", progress=lambda *_: reached.append(time.monotonic()))
        end_s = time.monotonic() - reached[(len(reached) - 1) // 2]
        assert check_outcome(server, "t", wanted)
    outcomes = []
    turns = KILLS - 1 if moment == "end" else KILLS // 2
    for turn in range(turns):
        share, delay_s = rng.uniform(0.1, 0.9), None
        if moment == "end" and turn > 0:
            share, delay_s = 1, (turn - 1) / (turns - 2) * 3 * end_s
        elif moment == "end":
            share = 1
        killer = Killer(own_daemon, share, delay_s)
        with own_daemon.connect() as server:
            try:
                server.import_table(tmp_path / "rows.npy", "t", progress=killer)
                said = True
            except (embtier.DisconnectedError, embtier.UnreachableError):
                said = False
        killer.await_it()
        own_daemon.start()
        with own_daemon.connect() as server:
            made = check_outcome(server, "t", wanted)
            assert (server.open_table("kept").get([1]) == 1).all()
        outcomes.append((said, made))
        assert made or not said, "it was said to be safe"
    print(f"{end_s:.3f} s", outcomes)
    assert any(not made for _, made in outcomes)


def test_a_name_is_taken_while_it_is_imported(daemon, server, name, tmp_path):
    make_file(tmp_path, 50_000)
    found = []
    with daemon.connect() as other:

        def meanwhile(_done: int, _total: int, unit: str) -> None:
            if unit != "rows":  # told late: the table may be there by now
                return
            for call in (
                lambda: other.open_table(name), lambda: other.create_table(name, 2, 10),
                lambda: other.import_table(tmp_path / "rows.npy", name), lambda: other.drop_table(name),
            ):  # fmt: skip
                try:
                    call()
                    found.append(None)
                except embtier.Error as error:
                    found.append(type(error))

        server.import_table(tmp_path / "rows.npy", name, progress=meanwhile)
    assert found and None not in found, found
    assert (server.open_table(name).get([49_999]) == numbers(50_000, 32)[-1]).all()


# ---- On the command line ----


def test_the_command_line_takes_a_table_there_and_back(daemon, server, name, tmp_path):
    table = server.create_table(name, 5, ROWS, optimizer="adagrad", init=("uniform", -1, 1))
    train(server, table, 1, IDS)
    checkpoint = server.checkpoint().id
    said = cli_json(daemon, "export", name, tmp_path / "1", "--state", "--checkpoint", str(checkpoint))
    assert {key: said[key] for key in ("table", "path", "parts")} == {
        "table": name, "path": str(tmp_path / "1"), "parts": 1,
    }  # fmt: skip
    assert (int(said["rows"]), int(said["checkpoint"])) == (300, checkpoint) and int(said["bytes"]) > 300 * 48
    said = cli_json(
        daemon, "export", name, tmp_path / "2", "--all-rows", "--format", "npy", "--file-bytes", "10KiB",
        "--checkpoint", "newest",
    )  # fmt: skip
    assert said["parts"] > 1 and (tmp_path / f"2/{name}-00001.weight.npy").exists()
    said = cli_json(daemon, "import", tmp_path / "1", "--as", f"{name}.2", "--durability", "sync")
    assert said["table"] == f"{name}.2" and int(said["rows"]) == 300 and said["path"] == str(tmp_path / "1")
    copy = server.open_table(f"{name}.2")
    assert copy.spec.durability == "sync" and contents(copy, np.arange(ROWS)) == contents(table, np.arange(ROWS))
    cli_json(daemon, "import", tmp_path / "1", "--as", f"{name}.3", "--no-state")
    assert (server.open_table(f"{name}.3").get_with_state(IDS)[1] == 0).all()
    done = run_cli(daemon, "export", name, tmp_path / "3")
    assert done.returncode == 0 and done.stdout.startswith(f"exported table '{name}' as of checkpoint ")
    done = run_cli(daemon, "import", tmp_path / "3", "--as", f"{name}.4")
    assert done.returncode == 0 and done.stdout.startswith(f"imported table '{name}.4': 300 rows, ")


def test_the_command_line_imports_files_of_others(daemon, server, name, tmp_path):
    rows, ids = numbers(50, 4), np.arange(50) * 3
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "ids.npy", ids)
    tensors = {"users": ("F32", rows), "items": ("F32", rows)}
    (tmp_path / "t").write_bytes(safetensors_bytes(tensors))
    options = ("--optimizer", "adam", "--eps", "1e-6", "--init", "constant:2", "--seed", "7", "--rounding", "nearest")
    cli_json(
        daemon, "import", tmp_path / "rows.npy", "--as", name, "--ids", tmp_path / "ids.npy", "--rows", "200",
        "--allow-nonfinite", *options,
    )  # fmt: skip
    table = server.open_table(name)
    assert (table.spec.optimizer, table.spec.eps, table.rows, table.spec.seed) == ("adam", 1e-6, 200, 7)
    assert (table.get(ids) == rows).all() and (table.get([1]) == 2).all()
    cli_json(daemon, "import", tmp_path / "t", "--as", f"{name}.2", "--tensor", "items")
    assert (server.open_table(f"{name}.2").get(np.arange(50)) == rows).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export"], "TABLE and PATH are missing"),
        (["export", "t"], "PATH is missing"),
        (["export", "t", "p", "q"], "more than a TABLE and a PATH"),
        (["export", "t", "p", "--checkpoint", "0"], "--checkpoint 0: allowed: newest, or a number from 1 on"),
        (["export", "t", "p", "--checkpoint", "old"], "--checkpoint old"),
        (["export", "t", "p", "--format", "csv"], "--format csv: allowed: safetensors, npy"),
        (["export", "t", "p", "--file-bytes", "0"], "--file-bytes 0: allowed"),
        (["export", "t", "p", "--file-bytes", "many"], "--file-bytes many: allowed"),
        (["export", "t", "p", "--tensor", "x"], "tensor"),
        (["import"], "PATH is missing"),
        (["import", "p", "q"], "more than one PATH"),
        (["import", "p", "--rows", "0"], "--rows 0: allowed"),
        (["import", "p", "--optimizer", "best"], "--optimizer best: allowed"),
        (["import", "p", "--durability", "most"], "--durability most: allowed"),
        (["import", "p", "--dim", "4"], "dim"),
        (["import", "p", "--as"], "as"),
    ],
    ids=" ".join,
)
def test_wrong_words_end_with_status_2(daemon, arguments, said):
    done = run_cli(daemon, *arguments)
    assert done.returncode == 2 and said in done.stderr and not done.stdout


def test_what_the_server_refuses_ends_with_status_1(daemon, server, name, tmp_path):
    for arguments, said in (
        (("export", f"{name}.none", tmp_path / "x"), f"'{name}.none'"),
        (("export", f"{name}.none", tmp_path), "is there already"),
        (("import", tmp_path / "none", "--as", name), "none"),
        (("import", tmp_path, "--as", name), "no export"),
    ):
        done = run_cli(daemon, *arguments)
        assert done.returncode == 1 and said in done.stderr and not done.stdout, (arguments, done)
    assert not folder_names(tmp_path) and is_free(server, name)


def test_help_says_what_there_is(daemon):
    said = run_cli(daemon, "export", "--help")
    assert said.returncode == 0
    for word in ("--checkpoint", "--state", "--all-rows", "--format", "--file-bytes"):
        assert word in said.stdout
    said = run_cli(daemon, "import", "--help")
    assert said.returncode == 0
    for word in ("--as", "--no-state", "--durability", "--tensor", "--ids", "--rows", "--optimizer"):
        assert word in said.stdout
