# SPDX-License-Identifier: Apache-2.0
"""`embtier export` and `embtier import` do as the library does."""

from __future__ import annotations

import numpy as np
import pytest
from foreign_files import IDS, ROWS, numbers
from transfers import cli_json, contents, folder_names, is_free, run_cli, safetensors_bytes, train

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
        (("export", f"{name}.none", tmp_path), "already exists"),
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
