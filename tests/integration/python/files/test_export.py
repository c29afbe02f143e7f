# SPDX-License-Identifier: Apache-2.0
"""A table comes back from its export to the bit, and other programs can read the files. An export is whole or does not exist,
whatever happens to the client that makes it."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE, Daemon, under_load
from transfers import (
    LONG, SANITIZED, as_made, cli_json, command, contents, folder_names, kill_after, memory_bytes, moments_of_kills,
    read_export, read_safetensors, start_cli, train,
)  # fmt: skip

import embtier
from embtier import _library

pytestmark = pytest.mark.usefixtures("random_homes")

KILLS = 60 if LONG else 6
ROWS = 1000
IDS = np.concatenate([np.arange(0, 900, 3), [999]]).astype(np.uint64)  # of trained rows
ALL_IDS = np.arange(ROWS, dtype=np.uint64)
EIGHT_BYTES = np.array([2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)


def create(server: embtier.Server, name: str, **options) -> embtier.Table:
    words = {"rows": ROWS, "optimizer": "adam", "init": ("uniform", -1, 1), "seed": 11} | options
    return server.create_table(name, 5, **words)


@pytest.mark.parametrize(
    ("struct", "mirror"),
    [
        ("embtier_export_options", _library.ExportOptions),
        ("embtier_exported", _library.ExportedInfo),
        ("embtier_import_options", _library.ImportOptions),
        ("embtier_imported", _library.ImportedInfo),
    ],
)
def test_structs_are_those_of_the_c_header(struct, mirror):
    header = "".join(file.read_text() for file in (TREE / "client/include").glob("*.h"))
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", header, re.MULTILINE | re.DOTALL)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    assert re.findall(r"(\w+)(?:\[.*\])?;", body) == [name for name, _ in mirror._fields_]
    limit = re.search(r"define EMBTIER_TABLE_NAME_MAX (\d+)", (TREE / "base/embtier_types.h").read_text())[1]
    assert int(limit) == _library.TABLE_NAME_MAX


# ---- There and back ----


@pytest.mark.parametrize("parts", ["one", "many"])
@pytest.mark.parametrize("format", ["safetensors", "npy"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_table_comes_back_as_it_was(server, name, tmp_path, dtype, format, parts):
    table = create(server, name, dtype=dtype)
    fresh = create(server, f"{name}.fresh", dtype=dtype)
    train(server, table, 1, IDS)
    rows, state = contents(table, ALL_IDS)
    zeros = contents(fresh, ALL_IDS)[1]
    assert zeros != state
    for with_state, all_rows in itertools.product((False, True), repeat=2):
        path, copy = tmp_path / f"{with_state}-{all_rows}", f"{name}.{with_state}.{all_rows}"
        made = server.export_table(
            table, path, state=with_state, all_rows=all_rows, format=format,
            file_bytes=None if parts == "one" else 2000,
        )  # fmt: skip
        assert made.rows == (ROWS if all_rows else len(IDS))
        assert (made.parts == 1) if parts == "one" else (made.parts > 2)
        files = [file for file in path.iterdir() if file.name != "table.json"]
        assert made.bytes == sum(file.stat().st_size for file in files)
        assert len(files) == made.parts * ((1 + with_state + (not all_rows)) if format == "npy" else 1)
        found = server.import_table(path, copy)
        assert (found.name, found.rows) == (copy, made.rows) and 0 < found.bytes < made.bytes
        copied = server.open_table(copy)
        assert as_made(copied.spec) == as_made(table.spec)
        assert contents(copied, ALL_IDS) == (rows, state if with_state else zeros)
        train(server, copied, 2, IDS)  # the copy can be used as any other table
        server.drop_table(copy)


@pytest.mark.parametrize("optimizer", ["none", "sgd", "adagrad", "rowwise_adagrad", "rmsprop"])
@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_state_of_any_optimizer_comes_back(server, name, tmp_path, optimizer, format):
    table = create(server, name, optimizer=optimizer, dtype="f16", durability="sync")
    if optimizer == "none":
        table.set(IDS, np.random.default_rng(1).uniform(-1, 1, (len(IDS), 5)))
    else:
        train(server, table, 1, IDS)
    server.export_table(name, tmp_path / "export", state=True, format=format)
    assert ("state" in read_export(tmp_path / "export")) == (table.state_numbers > 0)
    server.import_table(str(tmp_path / "export"), f"{name}.copy")
    copy = server.open_table(f"{name}.copy")
    assert contents(copy, ALL_IDS) == contents(table, ALL_IDS)
    assert as_made(copy.spec) == as_made(table.spec)


def test_show_says_the_same_of_both(daemon, server, name, tmp_path):
    table = create(
        server, name, eps=1e-6, beta2=0.98, clip_norm=2.5, rounding="nearest", allow_nonfinite=True, dtype="bf16",
        init=("normal", 0.1, 1 / 3), seed=2**64 - 1, durability="async",
    )  # fmt: skip
    train(server, table, 1, IDS)
    server.export_table(table, tmp_path / "export", state=True)
    server.import_table(tmp_path / "export", f"{name}.copy")
    shown = [cli_json(daemon, "--timeout", "60", "table", "show", one) for one in (name, f"{name}.copy")]
    assert {key for key in shown[0] if shown[0][key] != shown[1].get(key)} <= {
        "name", "id", "table_id", "home", "tier", "flush_bytes", "compaction_bytes",
    }, shown  # fmt: skip


def test_state_may_be_left_out_and_durability_changed(server, name, tmp_path):
    table = create(server, name)
    train(server, table, 1, IDS)
    server.export_table(table, tmp_path / "export", state=True)
    server.import_table(tmp_path / "export", f"{name}.none", state=False)
    bare = server.open_table(f"{name}.none").get_with_state(ALL_IDS)
    assert (bare[0] == table.get(ALL_IDS)).all() and (bare[1] == 0).all()
    for durability in ("replay", "async", "sync"):
        server.import_table(tmp_path / "export", f"{name}.{durability}", durability=durability)
        copy = server.open_table(f"{name}.{durability}")
        assert as_made(copy.spec) == as_made(table.spec, durability=durability)
        assert contents(copy, ALL_IDS) == contents(table, ALL_IDS)


@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_an_unbounded_table_comes_back(server, name, tmp_path, format):
    table = create(server, name, rows=None)
    ids = np.concatenate([IDS, EIGHT_BYTES])
    train(server, table, 1, ids)
    server.export_table(table, tmp_path / "export", state=True, format=format, file_bytes=3000)
    found = read_export(tmp_path / "export")["ids"]
    assert found.dtype == np.uint64 and found.tolist() == ids.tolist()
    server.import_table(tmp_path / "export", f"{name}.copy")
    copy = server.open_table(f"{name}.copy")
    ids = np.concatenate([ALL_IDS, EIGHT_BYTES])
    assert copy.rows is None and contents(copy, ids) == contents(table, ids)
    with pytest.raises(embtier.InvalidError, match="unbounded"):
        server.export_table(table, tmp_path / "all", all_rows=True)
    assert folder_names(tmp_path) == {"export"}


@pytest.mark.parametrize("rows", [ROWS, None])
@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_a_table_without_rows_comes_back(server, name, tmp_path, rows, format):
    table = create(server, name, rows=rows)
    made = server.export_table(table, tmp_path / "export", state=True, format=format)
    assert (made.rows, made.parts) == (0, 1)
    assert {key: value.shape for key, value in read_export(tmp_path / "export").items()} == {
        "weight": (0, 5), "state": (0, table.state_numbers), "ids": (0,),
    }  # fmt: skip
    assert server.import_table(tmp_path / "export", f"{name}.copy").rows == 0
    assert contents(server.open_table(f"{name}.copy"), ALL_IDS) == contents(table, ALL_IDS)


def test_without_a_name_it_has_that_of_the_export(server, name, tmp_path):
    table = create(server, name)
    train(server, table, 1, IDS)
    before = contents(table, ALL_IDS)
    server.export_table(table, tmp_path / "export", state=True)
    with pytest.raises(embtier.ExistsError, match=f"'{name}'"):
        server.import_table(tmp_path / "export")
    server.drop_table(name)
    assert server.import_table(tmp_path / "export").name == name
    assert contents(server.open_table(name), ALL_IDS) == before


def test_what_was_imported_outlives_a_crash(own_daemon, tmp_path):
    with own_daemon.connect() as server:
        table = create(server, "t")
        train(server, table, 1, IDS)
        before = contents(table, ALL_IDS)
        server.export_table(table, tmp_path / "export", state=True)
        server.import_table(tmp_path / "export", "copy")
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert contents(server.open_table("copy"), ALL_IDS) == before


# ---- The moment of an export ----


def test_it_is_of_the_checkpoint_asked_for(server, name, tmp_path):
    table = create(server, name)
    train(server, table, 1, IDS)
    then, checkpoint = contents(table, ALL_IDS), server.checkpoint(step=17).id
    train(server, table, 2, ALL_IDS[:500])
    newest, second = contents(table, ALL_IDS), server.checkpoint().id
    train(server, table, 3, ALL_IDS)
    now = contents(table, ALL_IDS)
    wanted = {checkpoint: then, "newest": newest, None: now}
    made = {
        asked: server.export_table(table, tmp_path / f"{asked}", checkpoint=asked, state=True) for asked in wanted
    }
    assert (made[checkpoint].checkpoint, made["newest"].checkpoint) == (checkpoint, second)
    assert made[None].checkpoint > second
    for asked in wanted:
        manifest = json.loads((tmp_path / f"{asked}/table.json").read_text())
        assert manifest["step"] == ("17" if asked == checkpoint else None)
        server.import_table(tmp_path / f"{asked}", f"{name}.{asked}")
        assert contents(server.open_table(f"{name}.{asked}"), ALL_IDS) == wanted[asked]
    assert contents(table, ALL_IDS) == now


def test_each_request_is_in_it_wholly_or_not_at_all(daemon, server, name, tmp_path):
    rows = 8000 if SANITIZED else 20_000
    table = server.create_table(name, 16, rows)
    table.set(np.arange(rows), np.zeros((1, 16)))
    stop, failures, sent = threading.Event(), [], [0]

    def write() -> None:
        try:
            with daemon.connect() as own:
                mine = own.open_table(name)
                while not stop.is_set():
                    sent[0] += 1
                    mine.set(np.arange(rows), np.full((rows, 16), sent[0], np.float32))
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        found, deadline = [], time.monotonic() + 60
        while sent[0] < 2 and not failures:  # until the first request is done
            assert time.monotonic() < deadline
            time.sleep(0.005)
        for turn in range(4):
            before = sent[0]
            under_load(server.export_table, table, tmp_path / str(turn), file_bytes=100_000)
            exported = read_export(tmp_path / str(turn))
            assert exported["ids"].tolist() == list(range(rows))
            assert len(np.unique(exported["weight"])) == 1, "several requests are in it"
            found.append(int(exported["weight"][0, 0]))
            assert before - 1 <= found[-1] <= sent[0]
    finally:
        stop.set()
        thread.join()
    assert not failures and found == sorted(found) and found[-1] > 0


def test_progress_is_told_of_rows(server, name, tmp_path):
    create(server, name)
    reports: list[tuple[int, int, str]] = []
    server.export_table(name, tmp_path / "export", all_rows=True, progress=lambda *report: reports.append(report))
    assert reports[-1] == (ROWS, ROWS, "rows") and all(0 <= done <= total for done, total, _ in reports)
    reports.clear()
    server.import_table(tmp_path / "export", f"{name}.copy", progress=lambda *report: reports.append(report))
    assert (ROWS, ROWS, "rows") in reports and all(0 <= done <= total for done, total, _ in reports)


def test_a_table_may_be_dropped_meanwhile(daemon, server, name, tmp_path):
    table = create(server, name)
    train(server, table, 1, IDS)
    before, dropped = contents(table, ALL_IDS), []
    with daemon.connect() as other:

        def drop(_done: int, _total: int, unit: str) -> None:
            if not dropped and unit == "rows" and any(tmp_path.rglob("*.safetensors*")):  # in a checkpoint
                dropped.append(other.drop_table(name))

        server.export_table(table, tmp_path / "export", state=True, file_bytes=2000, progress=drop)
    assert dropped
    server.import_table(tmp_path / "export", f"{name}.copy")
    assert contents(server.open_table(f"{name}.copy"), ALL_IDS) == before


def test_it_takes_from_the_arena_what_is_left_and_gives_it_back(daemon, server, name, tmp_path):
    table = create(server, name, rows=20000)
    ids = np.arange(20000)
    with daemon.connect(arena_bytes=32 << 10) as small:
        with pytest.raises(embtier.ArenaFullError), small.batch([(small.open_table(name), 5000)]):
            pass
        for turn in range(3):
            small.export_table(name, tmp_path / str(turn), state=True, all_rows=True)
            small.import_table(tmp_path / str(turn), f"{name}.{turn}")
        with small.batch([(small.open_table(name), 100)]) as batch:
            batch.ids(0)[:] = np.arange(100)
            assert batch.get().rows(0).shape == (100, 5)
            small.export_table(name, tmp_path / "beside")
    assert contents(server.open_table(f"{name}.2"), ids) == contents(table, ids)
    with daemon.connect(arena_bytes=0) as none:
        with pytest.raises(embtier.InvalidError, match="without an arena"):
            none.export_table(name, tmp_path / "none")
        with pytest.raises(embtier.InvalidError, match="without an arena"):
            none.import_table(tmp_path / "0", f"{name}.none")
    assert not (tmp_path / "none").exists() and not (tmp_path / "none.partial").exists()


# ---- Other readers ----


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("all_rows", [False, True], ids=["written", "all"])
def test_numpy_and_safetensors_read_the_files(server, name, tmp_path, dtype, all_rows):
    table = create(server, name, dtype=dtype)
    train(server, table, 1, IDS)
    ids = ALL_IDS if all_rows else IDS
    rows, state = table.get_with_state(ids)
    for format in ("npy", "safetensors"):
        server.export_table(table, tmp_path / format, state=True, all_rows=all_rows, format=format)
        tensors = read_export(tmp_path / format)
        assert set(tensors) == {"weight", "state"} | (set() if all_rows else {"ids"})
        assert (tensors["weight"].dtype, tensors["state"].dtype) == (table.numpy_dtype, np.float32)
        assert tensors["weight"].tobytes() == rows.tobytes() and tensors["weight"].shape == rows.shape
        assert tensors["state"].tobytes() == state.tobytes() and tensors["state"].shape == state.shape
        if not all_rows:
            assert tensors["ids"].dtype == np.int64 and (tensors["ids"] == ids).all()
    file = tmp_path / f"safetensors/{name}-00001.safetensors"
    assert set(read_safetensors(file)) == set(tensors)


def test_the_package_safetensors_reads_them(server, name, tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    table = create(server, name)
    train(server, table, 1, IDS)
    server.export_table(table, tmp_path / "export", state=True)
    tensors = package.load_file(tmp_path / f"export/{name}-00001.safetensors")
    rows, state = table.get_with_state(IDS)
    assert (tensors["ids"] == IDS).all() and (tensors["weight"] == rows).all() and (tensors["state"] == state).all()


def test_the_files_say_of_what_they_are(server, name, tmp_path):
    create(server, name)
    made = server.export_table(name, tmp_path / "export", all_rows=True, file_bytes=5000)
    first = 0
    for part in range(1, made.parts + 1):
        raw = (tmp_path / f"export/{name}-{part:05}.safetensors").read_bytes()
        header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
        assert header["__metadata__"] == {
            "embtier.table": name, "embtier.checkpoint": str(made.checkpoint), "embtier.first_id": str(first),
        }  # fmt: skip
        first += header["weight"]["shape"][0]
    assert first == ROWS


# ---- Refusals ----


def test_what_is_there_stays_as_it_is(server, name, tmp_path):
    create(server, name)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for path in ("file", "folder", "folder/", "link"):
        with pytest.raises(embtier.ExistsError, match="already exists"):
            server.export_table(name, f"{tmp_path}/{path}")
    assert folder_names(tmp_path) == {"file", "folder", "link"} and not folder_names(tmp_path / "folder")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_cannot_be_exported_is_told_and_nothing_is_left(server, name, tmp_path):
    table = create(server, name)
    checkpoint = server.checkpoint().id
    create(server, f"{name}.later")
    path = tmp_path / "export"
    with pytest.raises(embtier.NotFoundError, match="missing"):
        server.export_table(table, tmp_path / "missing/export")
    for missing, options in ((f"{name}.none", {}), (f"{name}.later", {"checkpoint": checkpoint})):
        with pytest.raises(embtier.NoTableError, match=f"'{missing}'"):
            server.export_table(missing, path, **options)
    with pytest.raises(embtier.NotFoundError, match=str(checkpoint + 1000)):
        server.export_table(table, path, checkpoint=checkpoint + 1000)
    for wrong in ("", "a b", "../t", "x" * 2000):
        with pytest.raises(embtier.InvalidError):
            server.export_table(wrong, path)
    with pytest.raises(embtier.Error):
        server.export_table(table, "")
    assert not folder_names(tmp_path)
    server.export_table(table, f"{path}//")
    assert folder_names(tmp_path) == {"export"}


def test_wrong_arguments_are_told_before_anything_is_asked(server, name, tmp_path):
    create(server, name)
    path, before = tmp_path / "export", len(server.checkpoints())
    for wrong in (0, -1, 2**64 - 1, 2**64):
        with pytest.raises(ValueError, match="checkpoint must be from 1"):
            server.export_table(name, path, checkpoint=wrong)
    with pytest.raises(ValueError, match="'newest' or None"):
        server.export_table(name, path, checkpoint="oldest")
    with pytest.raises(ValueError, match="format must be one of safetensors, npy"):
        server.export_table(name, path, format="csv")
    for wrong in (0, -1, 2**64):
        with pytest.raises(ValueError, match="file_bytes must be from 1"):
            server.export_table(name, path, file_bytes=wrong)
    with pytest.raises(TypeError):
        server.export_table(name, path, file_bytes=1.5)
    with pytest.raises(ValueError, match="zero byte"):
        server.export_table(name, f"{path}\0x")
    with pytest.raises(TypeError):
        server.export_table(name, 7)
    assert not folder_names(tmp_path) and len(server.checkpoints()) == before


def test_a_second_export_to_the_same_path_leaves_the_first_alone(daemon, server, name, tmp_path):
    table = create(server, name, rows=20000)
    found = []
    with daemon.connect() as other:

        def meanwhile(done: int, _: int, unit: str) -> None:
            if unit == "rows" and done > 0:
                try:
                    other.export_table(name, tmp_path / "export")
                    found.append(None)
                except embtier.Error as error:
                    found.append(error)

        made = server.export_table(
            table, tmp_path / "export", all_rows=True, file_bytes=10000, progress=meanwhile
        )
    assert found and all(isinstance(error, embtier.LockedError) for error in found), found
    assert len(folder_names(tmp_path / "export")) == made.parts + 1
    server.import_table(tmp_path / "export", f"{name}.copy")
    ids = np.arange(20000)
    assert contents(server.open_table(f"{name}.copy"), ids) == contents(table, ids)


def test_more_files_than_can_be_imported_are_refused(server, name, tmp_path):
    most = 16384
    table = server.create_table(name, 1, most + 1)
    with pytest.raises(ValueError, match=f"at most {most} files"):
        server.export_table(name, tmp_path / "export", all_rows=True, file_bytes=1)
    assert not folder_names(tmp_path)
    if not LONG:
        return
    table.set(np.arange(most + 1), np.ones((most + 1, 1)))
    with pytest.raises(ValueError, match=f"at most {most} files"):
        server.export_table(name, tmp_path / "none", file_bytes=1)
    made = server.export_table(name, tmp_path / "export", state=True, file_bytes=24)
    assert made.parts > most / 2
    server.import_table(tmp_path / "export", f"{name}.copy")


def test_checkpoints_made_for_exports_do_not_add_up(own_daemon, tmp_path):
    """This holds even where the server makes no periodic checkpoints, after which it would delete old ones."""
    own_daemon.stop()
    with (own_daemon.folder / "embtierd.yaml").open("a") as config:
        config.write("checkpoints: {interval_seconds: 0}\n")
    own_daemon.start()
    with own_daemon.connect() as server:
        server.create_table("rows", 4, 100)
        server.checkpoint()
        for turn in range(12):
            server.export_table("rows", tmp_path / f"export{turn}")
        made = server.checkpoints()
        assert sum(checkpoint.automatic for checkpoint in made) == 8
        assert sum(not checkpoint.automatic for checkpoint in made) == 1, "a user's stays"


def test_no_export_has_the_name_of_an_unfinished_one(server, name, tmp_path):
    """A later export to `export` would take such a folder for its own leftover."""
    create(server, name)
    for path in (tmp_path / "export.partial", f"{tmp_path}/export.partial/"):
        with pytest.raises(embtier.InvalidError, match="unfinished"):
            server.export_table(name, path)
    assert folder_names(tmp_path) == set()


def test_a_full_disk_leaves_nothing_behind(daemon, server, name, tmp_path):
    table = create(server, name, rows=100_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    program = textwrap.dedent("""
        import os, sys
        sys.path.insert(0, sys.argv[1])
        import embtier
        with embtier.connect(sys.argv[2], timeout=60) as server:
            for options in ({}, {"format": "npy"}, {"file_bytes": 100_000}):
                try:
                    server.export_table(sys.argv[3], sys.argv[4] + "/export", all_rows=True, state=True, **options)
                except embtier.NoSpaceError as error:
                    print(type(error).__name__, os.listdir(sys.argv[4]))
            print(server.export_table(sys.argv[3], sys.argv[5], all_rows=True).rows)
    """)
    script = f'mount -t tmpfs -o size=2m none {disk} && exec "$0" "$@"'
    wrapper = ["unshare", "-Urm", "sh", "-c", script]
    if subprocess.run([*wrapper, "true"], capture_output=True, timeout=60, check=False).returncode != 0:
        pytest.skip("no tmpfs of our own here")
    said = subprocess.run(
        [*wrapper, sys.executable, "-c", program, TREE / "client/python", daemon.socket, name, disk,
         tmp_path / "elsewhere"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [*["NoSpaceError []"] * 3, str(table.rows)]


@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_files_need_room_for_their_rows_only_and_one_too_long_is_an_error(daemon, server, name, tmp_path, format):
    train(server, server.create_table(name, 5, optimizer="adam", seed=11), 1, IDS)

    def export(limit_bytes: int, path: Path) -> subprocess.CompletedProcess[str]:
        limits = (resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        arguments = ("export", name, path, "--state", "--format", format, "--file-bytes", "9000000TiB")
        return subprocess.run(
            command(daemon, *arguments), capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(*limits),  # noqa: PLW1509
        )  # fmt: skip

    done = export(256 << 20, tmp_path / "export")
    assert done.returncode == 0, done.stderr
    assert len(read_export(tmp_path / "export")["weight"]) == len(IDS)
    done = export(1000, tmp_path / "short")
    assert done.returncode == 1 and "File too large" in done.stderr, done
    assert folder_names(tmp_path) == {"export"}


# ---- Killed ----


def await_no_transfers(server: embtier.Server) -> None:
    """The server may still be ending the transfers of killed clients, whose memory counts."""
    deadline = time.monotonic() + 60
    while server.status()["metrics"]["transfer_bytes"] > 0:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def check_whole(server: embtier.Server, path, name: str) -> None:
    """Checks an export by importing it, which compares every checksum."""
    await_no_transfers(server)
    server.import_table(path, f"{name}.check")
    server.drop_table(f"{name}.check")


def test_an_export_that_is_killed_is_whole_or_not_there(daemon, server, name, tmp_path, rng):
    create(server, name, rows=300_000)
    arguments = ("export", name, tmp_path / "export", "--all-rows", "--state", "--file-bytes", "4MiB")
    began = time.monotonic()
    cli_json(daemon, *arguments)
    whole_s = time.monotonic() - began
    files = folder_names(tmp_path / "export")
    (tmp_path / "export").rename(tmp_path / "wanted")
    killed = 0
    for turn, seconds in enumerate(moments_of_kills(whole_s, KILLS, rng), 1):
        killed += kill_after(start_cli(daemon, *arguments), seconds)
        if (tmp_path / "export").exists():
            assert folder_names(tmp_path / "export") == files
            check_whole(server, tmp_path / "export", name)
            (tmp_path / "export").rename(tmp_path / f"done{turn}")
        assert folder_names(tmp_path) - {"export.partial"} == {
            path.name for path in tmp_path.iterdir() if path.name.startswith(("wanted", "done"))
        }
        if turn >= KILLS and killed > 0:
            break
    await_no_transfers(server)
    cli_json(daemon, *arguments)  # works with all that they have left
    assert folder_names(tmp_path / "export") == files and not (tmp_path / "export.partial").exists()
    check_whole(server, tmp_path / "export", name)


def test_one_that_dies_with_its_connection_leaves_the_server_as_it_was(daemon, server, name, tmp_path):
    create(server, name, rows=300_000)
    program = textwrap.dedent("""
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        import embtier
        def die(done, total, unit):
            if unit == "rows" and done > total / 2:
                os.kill(os.getpid(), signal.SIGKILL)
        server = embtier.connect(sys.argv[2], timeout=60)
        server.export_table(sys.argv[3], sys.argv[4], all_rows=True, progress=die)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, TREE / "client/python", daemon.socket, name, tmp_path / "export"],
        check=False,
    )
    assert done.returncode == -9
    assert folder_names(tmp_path) == {"export.partial"}
    checkpoint = server.checkpoints()[-1].id
    server.checkpoint()
    deadline = time.monotonic() + 60
    while True:  # until nothing reads the dead client's checkpoint any more
        try:
            server.delete_checkpoint(checkpoint)
            break
        except embtier.BusyError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    server.export_table(name, tmp_path / "export", all_rows=True)
    assert folder_names(tmp_path) == {"export"}


def test_a_server_that_dies_meanwhile_leaves_nothing(own_daemon: Daemon, tmp_path):
    with own_daemon.connect() as server:
        create(server, "t", rows=300_000)
        killed = []

        def kill(done: int, total: int, unit: str) -> None:
            if not killed and unit == "rows" and done > total / 3:
                killed.append(done)
                own_daemon.kill()

        with pytest.raises(embtier.DisconnectedError):
            server.export_table("t", tmp_path / "export", all_rows=True, progress=kill)
    assert not (tmp_path / "export").exists() and not (tmp_path / "export.partial").exists()
    own_daemon.start()
    with own_daemon.connect() as server:
        server.export_table("t", tmp_path / "export", all_rows=True)


# ---- Memory ----

FEW_ROWS = 150_000  # of 64 numbers: 38 MB
TIMES = 4
# Allowed of the 115 MB by which the larger table exceeds the smaller: reading ahead has a limit, which small files do not reach.
SLACK_BYTES = 50_000_000


def peak_of(process: subprocess.Popen, daemon: Daemon) -> tuple[int, int] | None:
    """The largest memory until @process ends: its own, with all that it maps, and the daemon's anonymous memory. None if this
    process, on a busy machine, looked too seldom."""
    peaks, looked, longest_s = [0, 0], time.monotonic(), 0.0
    while process.poll() is None:
        longest_s, looked = max(longest_s, time.monotonic() - looked), time.monotonic()
        peaks[0] = max(peaks[0], memory_bytes(process.pid, "VmRSS"))
        peaks[1] = max(peaks[1], memory_bytes(daemon.pid, "RssAnon"))
        time.sleep(0.005)
    assert process.returncode == 0, process.stderr.read()
    process.stderr.close()
    return (peaks[0], peaks[1]) if longest_s < 0.1 else None


def peaks_of_a_table(daemon: Daemon, folder: Path, rows: int, name: str) -> dict[str, tuple[int, int]]:
    """For each turn, the largest memory of its client and of the server. The turns export all rows, import them, and export rows
    that were written."""
    with daemon.connect() as server:
        server.create_table(name, 64, rows, init=("uniform", -1, 1))
    there, written, copy = folder / f"{name}.all", folder / f"{name}.written", f"{name}.copy"
    turns = {
        "export": ("export", name, there, "--all-rows"),
        "import": ("import", there, "--as", copy),
        "export of rows on SSD": ("export", copy, written, "--format", "npy"),
    }
    peaks: dict[str, tuple[int, int]] = {}
    for what, arguments in turns.items():
        for _ in range(10):
            if (found := peak_of(start_cli(daemon, *arguments), daemon)) is not None or SANITIZED:
                peaks[what] = found or (0, 0)
                break
            if arguments[0] == "import":
                cli_json(daemon, "table", "drop", copy)
            else:
                shutil.rmtree(arguments[2])
        else:
            pytest.skip("too busy a machine to see peaks of memory")
    for path in (there, written):
        assert sum(file.stat().st_size for file in path.iterdir()) > rows * 256
        shutil.rmtree(path)
    with daemon.connect() as server:
        server.drop_table(name)
        server.drop_table(copy)
    return peaks


@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps freed memory for a while, to detect its use")
def test_memory_does_not_grow_with_the_table(own_daemon, tmp_path):
    with own_daemon.connect() as server:  # the server then has the memory that it keeps: buffers of all shards, and malloc()'s
        server.create_table("warm", 64, FEW_ROWS, init=("uniform", -1, 1))
        server.export_table("warm", tmp_path / "warm", all_rows=True)
        for turn in range(8):
            server.import_table(tmp_path / "warm", f"warm{turn}")
            server.drop_table(f"warm{turn}")
    few = peaks_of_a_table(own_daemon, tmp_path, FEW_ROWS, "few")
    many = peaks_of_a_table(own_daemon, tmp_path, TIMES * FEW_ROWS, "many")
    for turn in few:
        (client, server), (client_of_many, server_of_many) = few[turn], many[turn]
        print(
            f"{turn}: client {client >> 20} and {client_of_many >> 20} MiB, "
            f"server {server >> 20} and {server_of_many >> 20} MiB"
        )
        assert 0 < client < 50_000_000 and 0 < client_of_many <= client + SLACK_BYTES / 10, turn
        assert server_of_many <= server + SLACK_BYTES, turn


# ---- Existing folders ----

INNER = "unfinished.embtier-export"


def tree_of(folder: Path) -> dict[str, str | int]:
    """For each path in the folder, the file's text or its kind."""
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else path.lstat().st_mode
        for path in sorted(folder.rglob("*"))
    }


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")


# Contents of `partial`: lines of Python over p, the folder, and i, the one inside.
OTHERS = {
    "names_like_ours": 'put(p, "notes.txt", "model-00001-of-00002.safetensors", "my-12345.ids.npy", "table.json")',
    "only_names_of_ours": 'put(p, "my-00001.safetensors", "table.json")',
    "a_folder": '(p / "folder").mkdir()',
    "beside_ours": 'put(i, "t-00001.safetensors"); put(p, "notes.txt")',
    "in_ours": 'put(i, "t-00001.safetensors", "t-1.safetensors")',
    "a_folder_in_ours": '(i / "t-00001.safetensors").mkdir(parents=True)',
    "a_link_in_ours": 'i.mkdir(); (i / "t-00001.safetensors").symlink_to("/etc/passwd")',
    "a_file_like_the_inner": f'put(p, "{INNER}")',
    "a_link_like_the_inner": 'i.symlink_to(p)',
    "another_users": "os.chown(p, 12345, -1)",
    "another_users_file": 'put(i, "t-00001.safetensors"); os.chown(i / "t-00001.safetensors", 12345, -1)',
    "a_file": 'p.rmdir(); p.write_text("mine")',
    "a_link": 'p.rmdir(); put(p.parent / "elsewhere", "t-00001.safetensors"); p.symlink_to("elsewhere")',
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_a_folder_of_others_stays_as_it_is(server, name, tmp_path, kind):
    if "another_users" in kind and os.geteuid() != 0:
        pytest.skip("needs root, for files of another user")
    create(server, name)
    partial = tmp_path / "export.partial"
    partial.mkdir()
    exec(OTHERS[kind], {"p": partial, "i": partial / INNER, "put": put, "os": os})  # noqa: S102  (the lines above)
    before = tree_of(tmp_path)
    with pytest.raises(embtier.ExistsError, match=f"{partial} already exists"):
        server.export_table(name, tmp_path / "export")
    assert tree_of(tmp_path) == before
    server.export_table(name, tmp_path / "other")


@pytest.mark.parametrize("left", [[], [INNER], ["t-00001.safetensors", "t-2-00007.weight.npy", "table.json"]])
def test_what_an_export_that_was_killed_left_makes_room(server, name, tmp_path, left):
    create(server, name)
    partial = tmp_path / "export.partial"
    (partial / INNER if left else partial).mkdir(parents=True)
    put(partial / INNER, *(file for file in left if file != INNER))
    server.export_table(name, tmp_path / "export", all_rows=True)
    assert folder_names(tmp_path) == {"export"}
    assert folder_names(tmp_path / "export") == {f"{name}-00001.safetensors", "table.json"}


def test_a_folder_that_cannot_be_read_is_told_before_anything_is_done(daemon, server, name, tmp_path):
    """The export's new name in that folder could not be made safe."""
    create(server, name)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o300)
    before = server.checkpoints()
    as_others = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    done = subprocess.run(
        [*(as_others if os.geteuid() == 0 else []), *command(daemon, "export", name, closed / "export")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    closed.chmod(0o700)
    assert done.returncode == 1 and f"folder {closed}/: Permission denied" in done.stderr, done.stderr
    assert folder_names(closed) == set() and server.checkpoints() == before
