# SPDX-License-Identifier: Apache-2.0
"""An import makes the table that was asked for, even where one file could be taken for another, or says why not."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from transfers import cli_json, refused, run_cli, safetensors_bytes, train

import embtier

ROWS = 300
IDS = np.arange(0, ROWS, 2, dtype=np.uint64)


@pytest.fixture
def file(tmp_path):
    """A file of ten rows."""
    np.save(tmp_path / "rows.npy", np.arange(40, dtype=np.float32).reshape(10, 4))
    return tmp_path / "rows.npy"


def test_unbounded_is_another_answer_than_none(daemon, server, name, file):
    for rows, made in ((None, 10), (10, 10), (2**64 - 2, 2**64 - 2), ("unbounded", None)):
        server.import_table(file, f"{name}.{rows}", rows=rows)
        table = server.open_table(f"{name}.{rows}")
        assert table.rows == made and (table.get(np.arange(10)) == np.load(file)).all()
    assert (server.open_table(f"{name}.unbounded").get([2**64 - 1]) == 0).all()
    for options, made in (((), 10), (("--rows", "12"), 12), (("--rows", "unbounded"), None)):
        for more in ((), ("--optimizer", "sgd")):
            copy = f"{name}.cli{len(options)}{made}{len(more)}"
            cli_json(daemon, "import", file, "--as", copy, *options, *more)
            assert server.open_table(copy).rows == made
    np.save(file, np.empty((0, 4), np.float32))
    server.import_table(file, f"{name}.empty", rows="unbounded")
    assert server.open_table(f"{name}.empty").rows is None
    for wrong in (0, -1, 2**64 - 1, "many"):
        with refused(server, ValueError, "rows must be", name):
            server.import_table(file, name, rows=wrong)


def test_ids_and_a_number_of_rows_are_as_asked_for(server, name, file, tmp_path):
    np.save(tmp_path / "ids.npy", np.arange(10) * 3)
    for rows, made in ((None, None), (28, 28), ("unbounded", None)):
        server.import_table(file, f"{name}.{rows}", ids_path=tmp_path / "ids.npy", rows=rows)
        assert server.open_table(f"{name}.{rows}").rows == made


def test_a_file_of_more_rows_than_the_table_is_refused_before_a_row_is_read(daemon, server, name, file):
    reports = []
    with refused(server, embtier.IdRangeError, f"^{file}: has 10 rows, which do not fit into a table of 5$", name):
        server.import_table(file, name, rows=5, progress=lambda *report: reports.append(report))
    assert not reports
    done = run_cli(daemon, "import", file, "--as", name, "--rows", "9")
    assert done.returncode == 1 and "has 10 rows, which do not fit into a table of 9" in done.stderr


def test_a_numpy_file_has_no_tensor_to_name(daemon, server, name, file):
    for tensor in ("nosuch", "weight"):
        with refused(server, embtier.NotFoundError, f"has no tensor '{tensor}': a .npy file holds one unnamed array", name):
            server.import_table(file, name, tensor=tensor)
    done = run_cli(daemon, "import", file, "--as", name, "--tensor", "nosuch")
    assert done.returncode == 1 and "has no tensor 'nosuch'" in done.stderr


# ---- One file of an export ----


@pytest.fixture
def table(server, name):
    table = server.create_table(name, 4, ROWS, optimizer="adagrad", init=("uniform", -1, 1))
    train(server, table, 1, IDS)
    return table


@pytest.mark.parametrize("all_rows", [False, True], ids=["written", "all"])
@pytest.mark.parametrize("file_bytes", [None, 2000], ids=["one", "many"])
def test_a_numpy_file_of_an_export_is_none_by_itself(server, name, table, tmp_path, monkeypatch, all_rows, file_bytes):
    export = tmp_path / "export"
    server.export_table(table, export, state=True, all_rows=all_rows, format="npy", file_bytes=file_bytes)
    reason = f"is one file of an export of table '{name}': import its folder"
    for file in export.glob("*.npy"):
        with refused(server, embtier.InvalidError, f"^{file} {reason}, {export}, or give|shape", f"{name}.2"):
            server.import_table(file, f"{name}.2")
    monkeypatch.chdir(export)
    first = f"{name}-00001.weight.npy"
    with refused(server, embtier.InvalidError, f"^{first} {reason}, ., or give", f"{name}.2"):
        server.import_table(first, f"{name}.2")
    if not all_rows:  # a caller that says which ids the rows have may import them
        server.import_table(first, f"{name}.3", ids_path=f"{name}-00001.ids.npy")
        ids = np.load(f"{name}-00001.ids.npy").astype(np.uint64)
        assert (server.open_table(f"{name}.3").get(ids) == table.get(ids)).all()
    shutil.copy(first, tmp_path / "mine.npy")
    server.import_table(tmp_path / "mine.npy", f"{name}.4")


def test_a_table_json_of_something_else_is_no_matter(server, name, table, file):
    manifest = file.parent / "table.json"
    for turn, text in enumerate((b"", b"not JSON", b"{}", b'{"format": "of others", "version": 7}')):
        manifest.write_bytes(text)
        server.import_table(file, f"{name}.{turn}")
    manifest.unlink()
    manifest.mkdir()
    server.import_table(file, f"{name}.folder")
    manifest.rmdir()
    server.export_table(table, file.parent / "export", format="npy")
    newer = json.loads((file.parent / "export/table.json").read_text())
    manifest.write_text(json.dumps(newer))
    server.import_table(file, f"{name}.beside")  # this manifest names other files
    manifest.write_text(json.dumps(newer | {"format_version": 99}))
    with refused(server, embtier.VersionError, "version 99", f"{name}.2"):
        server.import_table(file, f"{name}.2")


def test_a_later_safetensors_file_of_an_export_is_none_by_itself(daemon, server, name, table, tmp_path):
    made = server.export_table(table, tmp_path / "export", all_rows=True, file_bytes=2000)
    files = sorted((tmp_path / "export").glob("*.safetensors"))
    assert len(files) == made.parts > 2
    for number, file in enumerate(files):
        if number > 0:
            with refused(server, embtier.InvalidError, rf"^{file} .*its rows begin at id \d+: import its", f"{name}.2"):
                server.import_table(file, f"{name}.2", tensor="weight")
            done = run_cli(daemon, "import", file, "--as", f"{name}.2", "--tensor", "weight")
            assert done.returncode == 1 and "its rows begin at id" in done.stderr
    server.import_table(files[0], f"{name}.first", tensor="weight")
    first = server.open_table(f"{name}.first")
    assert (first.get(np.arange(first.rows)) == table.get(np.arange(first.rows))).all()
    np.save(tmp_path / "ids.npy", np.arange(first.rows, 2 * first.rows))
    server.import_table(files[1], f"{name}.second", tensor="weight", ids_path=tmp_path / "ids.npy")
    ids = np.arange(first.rows, 2 * first.rows)
    assert (server.open_table(f"{name}.second").get(ids) == table.get(ids)).all()


def test_one_with_ids_may_be_named(server, name, table, tmp_path):
    server.export_table(table, tmp_path / "export", file_bytes=2000)
    file = sorted((tmp_path / "export").glob("*.safetensors"))[1]
    with refused(server, embtier.InvalidError, "import its folder, or name the tensor", f"{name}.2"):
        server.import_table(file, f"{name}.2")
    server.import_table(file, f"{name}.2", tensor="weight")
    ids = IDS[server.open_table(f"{name}.2").get(IDS).any(axis=1)]
    assert 0 < len(ids) < len(IDS) and (server.open_table(f"{name}.2").get(ids) == table.get(ids)).all()


def test_messages_show_no_control_characters_of_a_file(daemon, server, name, tmp_path):
    """Control characters above 0x7f do not show either: 0x9b begins a sequence as ESC [ does."""
    weights = {"weight": ("F32", np.ones((2, 2)))}
    hostile = "\x9b2J\x1b[2J\u0085\x7f\xc9"
    for metadata in ({"embtier.table": hostile}, {"embtier.first_id": hostile}):
        (tmp_path / "t").write_bytes(safetensors_bytes(weights, metadata))
        options = ("--tensor", "weight") if "embtier.first_id" in metadata else ()
        done = run_cli(daemon, "import", tmp_path / "t", "--as", name, *options)
        assert done.returncode == 1 and "is one file of an export" in done.stderr
        assert done.stderr[:-1].isprintable(), repr(done.stderr)
    done = run_cli(daemon, "import", tmp_path / hostile, "--as", name)
    assert done.returncode == 1 and done.stderr[:-1].isprintable() and "\xc9" in done.stderr, repr(done.stderr)
