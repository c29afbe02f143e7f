# SPDX-License-Identifier: Apache-2.0
"""`embtier data`: directories are added to a running server and removed from it while clients read and write."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from control_requests import KINDS
from daemons import Daemon
from raw_client import RawClient, field
from stores import CLI, MOVE_LIMIT_S, run_cli, was_busy

TREE = Path(__file__).resolve().parents[4]

ROWS, DIM, SHARDS = 3000, 16, 4
IDS = np.arange(ROWS)
MODES = ("replay", "async", "sync")


def rows_of(version: int) -> np.ndarray:
    return np.repeat((IDS + version * ROWS).astype(np.float32)[:, None], DIM, axis=1)


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    daemon = make_daemon({"data": {"shards_per_directory": SHARDS}})
    daemon.start()
    with daemon.connect() as server:
        for mode in MODES:
            server.create_table(mode, DIM, durability=mode).set(IDS, rows_of(0))
    return daemon


def data(daemon: Daemon, *arguments: str) -> dict:
    """Gives a command again that ends because the server has too much else to do."""
    rate = [] if arguments[0] == "list" else ["--rate", "0"]
    until = time.monotonic() + MOVE_LIMIT_S
    while (done := run_cli(daemon, "-o", "json", "data", *arguments, *rate, limit_s=MOVE_LIMIT_S)).returncode:
        assert was_busy(done) and time.monotonic() < until, done.stderr
    return json.loads(done.stdout)


def paths(shown: dict) -> list[str]:
    return [directory["path"] for directory in shown["directories"]]


def check_rows(daemon: Daemon, version: int) -> None:
    with daemon.connect() as server:
        for mode in MODES:
            np.testing.assert_array_equal(server.open_table(mode).get(IDS), rows_of(version))


def write(daemon: Daemon, version: int) -> None:
    with daemon.connect() as server:
        for mode in MODES:
            server.open_table(mode).set(IDS, rows_of(version))


def test_a_directory_is_added_and_the_first_start_need_not_know(daemon: Daemon):
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    assert paths(data(daemon, "list")) == [first]
    shown = data(daemon, "add", second)
    assert daemon.logged("a data directory has been added to the store")
    assert paths(shown) == [first, second] and shown["order"] is None
    assert [directory["shards"] for directory in shown["directories"]] == [SHARDS, SHARDS]
    assert [directory["buckets"] for directory in shown["directories"]] == [8192, 8192]
    assert len({directory["device"] for directory in shown["directories"]}) == 1
    check_rows(daemon, 0)
    write(daemon, 1)
    daemon.restart()
    assert daemon.logged("data.directories lacks a data directory that was added to the store; it is opened all the same. "
                         "Add it to data.directories")
    check_rows(daemon, 1)
    daemon.configure({"data": {"directories": [first, second]}})
    before = len(daemon.log.read_text().splitlines())
    daemon.restart()
    assert "data.directories lacks" not in "".join(daemon.log.read_text().splitlines(keepends=True)[before:])
    check_rows(daemon, 1)
    told = run_cli(daemon, "data", "list").stdout
    assert first in told and second in told and "shared" in told and "50.0 %" in told


def test_descriptors_are_shared_out_among_directories_that_the_file_lacks(daemon: Daemon):
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    data(daemon, "add", second)
    daemon.stop()
    for named in ([first], [first, second]):
        daemon.configure({"data": {"directories": named}})
        daemon.launch(wrapper=("prlimit", "--nofile=1024:1024"))
        daemon.await_ready()
        daemon.stop()
    lacking, naming = daemon.logged("fewer clients than the default")
    assert (lacking["max_sessions"], lacking["table_files"]) == (naming["max_sessions"], naming["table_files"])


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_drive_of_a_removed_directory_can_be_taken_away(daemon: Daemon, how: str):
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    data(daemon, "add", second)
    with daemon.connect() as server:
        kept = server.checkpoint().id
    refused = run_cli(daemon, "data", "remove", second)
    assert refused.returncode == 1 and f"checkpoint {kept}, which a user made" in refused.stderr
    assert paths(data(daemon, "remove", second, "--delete-checkpoints")) == [first]
    with daemon.connect() as server:
        assert kept not in {info.id for info in server.checkpoints()}
    write(daemon, 1)
    with daemon.connect() as server:
        id = server.checkpoint().id
        server.verify_checkpoint(id)
    getattr(daemon, how)()
    shutil.rmtree(second)
    daemon.configure({"data": {"directories": [first, second]}})
    daemon.start()
    assert daemon.logged("a data directory that was removed from the store is ignored; take it out of data.directories")
    check_rows(daemon, 1)
    daemon.stop()
    daemon.configure({"data": {"directories": [first]}})
    daemon.start("--restore", str(id))
    check_rows(daemon, 1)


def test_a_removal_waits_for_a_checkpoint_that_is_being_exported(daemon: Daemon):
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    data(daemon, "add", second)
    with daemon.connect() as server:
        kept = server.checkpoint().id
    shown: list[dict] = []
    thread = threading.Thread(target=lambda: shown.append(data(daemon, "remove", second, "--delete-checkpoints")))
    with RawClient(daemon.path) as exporter:
        exporter.send(KINDS["scan_open"].number, field(1, kept) + field(2, "sync"))
        assert 12 in exporter.receive_last()
        thread.start()
        until = time.monotonic() + 60
        while not daemon.logged("the removal of a data directory waits for a checkpoint that is in use"):
            assert thread.is_alive() and time.monotonic() < until, daemon.log.read_text()
            time.sleep(0.02)
    thread.join()
    assert [paths(each) for each in shown] == [[first]]
    with daemon.connect() as server:
        assert kept not in {info.id for info in server.checkpoints()}
    check_rows(daemon, 0)


def test_clients_read_and_write_meanwhile(daemon: Daemon):
    ends, failures, version = threading.Event(), [], {}

    def work(mode: str) -> None:
        try:
            with daemon.connect() as server:
                table = server.open_table(mode)
                while not ends.is_set():
                    table.set(IDS, rows_of(version.get(mode, 0) + 1))
                    version[mode] = version.get(mode, 0) + 1
                    np.testing.assert_array_equal(table.get(IDS), rows_of(version[mode]))
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(mode,)) for mode in MODES]
    for thread in threads:
        thread.start()
    try:
        data(daemon, "add", f"{daemon.folder}/more")
        data(daemon, "remove", f"{daemon.folder}/more", "--delete-checkpoints")
    finally:
        ends.set()
        for thread in threads:
            thread.join()
    assert not failures
    daemon.restart()
    with daemon.connect() as server:
        for mode in MODES:
            np.testing.assert_array_equal(server.open_table(mode).get(IDS), rows_of(version[mode]))


def test_a_directory_on_another_file_system_is_told(daemon: Daemon, tmp_path: Path):
    here = os.stat(tmp_path).st_dev
    others = [path for path in ("/dev/shm", "/tmp", "/var/tmp") if os.access(path, os.W_OK) and os.stat(path).st_dev != here]
    if not others:
        pytest.skip("all folders for temporary files are on one file system")
    with tempfile.TemporaryDirectory(dir=others[0]) as other:
        shown = data(daemon, "add", f"{other}/rows")
        assert len({directory["device"] for directory in shown["directories"]}) == 2
        assert run_cli(daemon, "data", "list").stdout.count("its own") == 2
        check_rows(daemon, 0)
        daemon.stop()


def await_order(daemon: Daemon) -> dict:
    until = time.monotonic() + 60
    while not ((shown := data(daemon, "list"))["order"] and shown["order"]["total"]):
        assert time.monotonic() < until, shown
        time.sleep(0.02)
    return shown["order"]


def test_an_order_is_cancelled_and_a_start_goes_on_with_one(daemon: Daemon):
    second = f"{daemon.folder}/more"

    def begin() -> threading.Thread:
        thread = threading.Thread(target=lambda: run_cli(daemon, "data", "add", second, "--rate", "0.001", limit_s=MOVE_LIMIT_S))
        thread.start()
        return thread

    thread = begin()
    order = await_order(daemon)
    assert (order["what"], order["path"], order["runs"]) == ("add", second, True)
    for words in (["reshard", "--shards", "3"], ["data", "add", f"{daemon.folder}/third"], ["data", "remove", second]):
        refused = run_cli(daemon, *words)
        assert refused.returncode == 1 and "a data directory is being added or removed" in refused.stderr, refused.stderr
    job = next(job for job in json.loads(run_cli(daemon, "-o", "json", "jobs").stdout) if job["kind"] == "reshard")
    cancelled = run_cli(daemon, "jobs", "cancel", str(job["id"]))
    assert cancelled.returncode == 0
    assert cancelled.stdout == f"job {job['id']} stops soon, and rows stay where they are by then, those that it moved in their new shards\n"
    thread.join()
    assert data(daemon, "list")["order"] is None
    check_rows(daemon, 0)
    thread = begin()
    await_order(daemon)
    with daemon.connect() as server:
        server.checkpoint()  # what a crash goes back to
    daemon.kill()
    thread.join()
    daemon.start()
    assert await_order(daemon)["what"] == "add"
    job = next(job for job in json.loads(run_cli(daemon, "-o", "json", "jobs").stdout) if job["kind"] == "reshard")
    assert run_cli(daemon, "jobs", "cancel", str(job["id"])).returncode == 0
    assert [directory["buckets"] for directory in data(daemon, "add", second)["directories"]] == [8192, 8192]
    check_rows(daemon, 0)


def test_a_directory_that_is_leaving_is_not_asked_for(daemon: Daemon):
    """The start goes on with its removal, and the file lacks it already."""
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    data(daemon, "add", second)
    removing = threading.Thread(target=lambda: run_cli(daemon, "data", "remove", second, "--rate", "0.001", limit_s=MOVE_LIMIT_S))
    removing.start()
    assert await_order(daemon)["what"] == "remove"
    daemon.configure({"data": {"directories": [first]}})
    daemon.restart()
    removing.join()
    assert daemon.logged("a data directory that is being removed is opened until its rows have moved; data.directories rightly lacks it")
    assert not daemon.logged("data.directories lacks a data directory")
    check_rows(daemon, 0)


def test_mistakes_are_told_and_change_nothing(daemon: Daemon):
    folder = Path(daemon.folder)
    (folder / "full").mkdir()
    (folder / "full/letter").write_text("dear")
    (folder / "locked").mkdir(mode=0)
    cases = [
        ("add", "rows", 2, "is relative"),
        ("add", str(folder / "rows"), 1, "already data directory 0"),
        ("add", str(folder / "rows/inside"), 1, "one in the other"),
        ("add", str(folder), 1, "one in the other"),
        ("add", str(folder / "full"), 1, "not empty"),
        ("add", str(folder / "full/letter"), 1, "no directory"),
        ("add", str(folder / "none/new"), 1, "No such file"),
        ("remove", "rows", 2, "is relative"),
        ("remove", str(folder / "rows"), 1, "only data directory"),
        ("remove", str(folder / "full"), 1, "no data directory of this store"),
    ]
    if os.geteuid() != 0:
        cases.append(("add", str(folder / "locked"), 1, "let the server's user read and write it"))
    for word, path, code, words in cases:
        done = run_cli(daemon, "data", word, path)
        assert done.returncode == code and words in done.stderr, (word, path, done.stderr)
        assert done.stderr.count("\n") <= 2
    shown = data(daemon, "list")
    assert paths(shown) == [str(folder / "rows")] and shown["order"] is None
    assert not (folder / "rows/reshard.json").exists() and not (folder / "rows/directories.json").exists()
    assert not (folder / "rows/inside").exists() and sorted(p.name for p in (folder / "full").iterdir()) == ["letter"]
    check_rows(daemon, 0)


def test_lanes_are_in_the_way_of_a_removal_only_if_the_file_sets_them(make_daemon):
    daemon = make_daemon(lanes=2)
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    os.mkdir(second)
    daemon.configure({"data": {"directories": [first, second], "shards_per_directory": 1}})
    daemon.start()
    with daemon.connect() as server:
        for mode in MODES:
            server.create_table(mode, DIM, durability=mode).set(IDS, rows_of(0))
    refused = run_cli(daemon, "data", "remove", second)
    assert refused.returncode == 1 and "lanes.count is 2, so the next start would be refused" in refused.stderr
    del daemon.config["lanes"]["count"]
    daemon.configure({})
    assert paths(data(daemon, "remove", second)) == [first]
    shutil.move(second, f"{daemon.folder}/away")
    for named in ([first, second], [first]):
        daemon.configure({"data": {"directories": named}})
        daemon.restart()
        check_rows(daemon, 0)


def test_no_directory_is_added_that_the_next_start_has_no_descriptors_for(make_daemon):
    """Few shards have rows, but a start counts data.shards_per_directory."""
    daemon = make_daemon({"data": {"shards_per_directory": 8}}, lanes=1)
    daemon.start()
    assert run_cli(daemon, "reshard", "--shards", "1", "--rate", "0", limit_s=MOVE_LIMIT_S).returncode == 0
    daemon.stop()
    daemon.launch(wrapper=("prlimit", "--nofile=800:800"))
    daemon.await_ready()
    refused = run_cli(daemon, "data", "add", f"{daemon.folder}/more")
    assert refused.returncode == 1 and "file descriptors are needed" in refused.stderr, refused.stderr
    assert not Path(f"{daemon.folder}/more").exists()
    os.symlink("rows", f"{daemon.folder}/other-name")
    for name in ("rows", "rows/", "other-name"):
        given_again = run_cli(daemon, "data", "add", f"{daemon.folder}/{name}")
        assert given_again.returncode == 1 and "is already data directory 0" in given_again.stderr, given_again.stderr


def test_a_store_is_made_of_one_whose_directories_changed(daemon: Daemon, make_daemon):
    data(daemon, "add", f"{daemon.folder}/more")
    with daemon.connect() as server:
        server.checkpoint()
    daemon.stop()
    other = make_daemon()
    other.start("--restore-from", f"{daemon.folder}/rows,{daemon.folder}/more")
    check_rows(other, 0)


def back_up(daemon: Daemon, backup: Path) -> list[str]:
    """Runs the recipe of docs/operations.md for the directories that are in force, and returns the copies."""
    recipe = (TREE / "docs/operations.md").read_text().split("## Backups")[1].split("```sh\n")[1].split("```")[0]
    directories = paths(data(daemon, "list"))
    lines = recipe.splitlines()
    create = next(i for i, line in enumerate(lines) if line.startswith("embtier checkpoint create"))
    delete = next(i for i, line in enumerate(lines) if line.startswith("embtier checkpoint delete"))
    made = run_cli(daemon, "-o", "json", "checkpoint", "create", limit_s=MOVE_LIMIT_S)
    assert made.returncode == 0, made.stderr
    id = json.loads(made.stdout)["id"]
    program = " ".join(map(shlex.quote, (str(CLI), "-s", daemon.socket)))
    words = {"/mnt/nvme0/embtier /mnt/nvme1/embtier": shlex.join(directories), "/backup/new": str(backup),
             "000017": f"{id:06d}", "17": str(id)}
    body = "\n".join(lines[create + 1 : delete])
    assert all(word in body for word in words), body
    # In one pass, because the paths of a test may have a 17 of their own.
    body = re.sub("|".join(words), lambda word: words[word[0]], body)
    script = f'set -eu\nembtier() {{ {program} "$@"; }}\n{body}'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=MOVE_LIMIT_S)
    assert done.returncode == 0, done.stderr
    return [f"{backup}{directory}" for directory in directories]


def check_copy(make_daemon, copies: list[str], version: int) -> None:
    other = make_daemon()
    other.start("--restore-from", ",".join(reversed(copies)))
    check_rows(other, version)
    other.stop()


def test_the_documented_backup_can_be_restored_after_directories_changed(daemon: Daemon, make_daemon, tmp_path: Path):
    second = f"{daemon.folder}/more"
    data(daemon, "add", second)
    two = back_up(daemon, tmp_path / "two")
    assert len(two) == 2 and all(sorted(os.listdir(copy)) == ["checkpoints", "embtier.json"] for copy in two)
    check_copy(make_daemon, two, 0)
    other = make_daemon()
    assert "has files in data directory 1 of its store, which is not named" in other.fail_to_start("--restore-from", two[0])
    assert "the first data directory of the store" in other.fail_to_start("--restore-from", two[1])
    write(daemon, 1)
    data(daemon, "remove", second, "--delete-checkpoints")
    one = back_up(daemon, tmp_path / "one")
    assert len(one) == 1
    check_copy(make_daemon, one, 1)


def test_a_backup_from_before_an_addition_needs_the_old_directories_only(daemon: Daemon, make_daemon, tmp_path: Path):
    """So it does if its copy was made after the addition, with the new directory's embtier.json."""
    second = f"{daemon.folder}/more"
    with daemon.connect() as server:
        id = server.checkpoint().id
    write(daemon, 1)
    data(daemon, "add", second)
    copies = [tmp_path / "first", tmp_path / "second"]
    for copy, directory in zip(copies, (f"{daemon.folder}/rows", second), strict=True):
        copy.mkdir()
        shutil.copy(f"{directory}/embtier.json", copy)
    shutil.copytree(f"{daemon.folder}/rows/checkpoints/{id:06d}", copies[0] / f"checkpoints/{id:06d}")
    check_copy(make_daemon, [str(copies[0])], 0)
    check_copy(make_daemon, [str(copy) for copy in copies], 0)


def test_a_copy_after_the_removal_of_a_directory_that_the_store_was_made_with(make_daemon, tmp_path: Path):
    daemon = make_daemon()
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    os.mkdir(second)
    daemon.configure({"data": {"directories": [first, second], "shards_per_directory": 2}})
    daemon.start()
    with daemon.connect() as server:
        for mode in MODES:
            server.create_table(mode, DIM, durability=mode).set(IDS, rows_of(0))
    data(daemon, "remove", second)
    check_copy(make_daemon, back_up(daemon, tmp_path / "one"), 0)


def test_endurance_counts_what_is_written_to_an_added_directory(daemon: Daemon):
    """All data lie on one file system, which may be in memory, so the sum tells."""

    def written() -> tuple[float, float]:
        metrics = daemon.metrics()
        return metrics["server_history_bytes"], sum(metrics["store_written_bytes"].values())

    def check_history() -> float:
        until = time.monotonic() + 60
        while not (pair := written())[0] == pytest.approx(pair[1], rel=0.02):
            assert time.monotonic() < until, pair
            time.sleep(0.2)
        return pair[0]

    data(daemon, "add", f"{daemon.folder}/more")
    before = check_history()
    for version in range(1, 5):
        write(daemon, version)
    with daemon.connect() as server:
        server.checkpoint()
    assert check_history() > before
    data(daemon, "remove", f"{daemon.folder}/more", "--delete-checkpoints")
    assert check_history() > before


def listed(daemon: Daemon) -> list[tuple[str, str]]:
    """The directories that `config show` has, each with its source."""
    keys = json.loads(run_cli(daemon, "-o", "json", "config", "show").stdout)["keys"]
    return [(key["value"], key["source"]) for key in keys if key["name"].startswith("data.directories")]


def differences(daemon: Daemon) -> list[dict]:
    """Those that `config diff` finds between the running server and its file."""
    return json.loads(run_cli(daemon, "-o", "json", "config", "diff").stdout)["differences"]


def test_the_configuration_in_force_has_the_directories_in_force(daemon: Daemon):
    first, second = f"{daemon.folder}/rows", f"{daemon.folder}/more"
    assert listed(daemon) == [(first, "file")] and differences(daemon) == []
    data(daemon, "add", second)
    lacks = [{"name": "data.directories[1]", "running": second, "file": None}]
    for _ in range(2):
        assert listed(daemon) == [(first, "file"), (second, "set")] and differences(daemon) == lacks
        assert run_cli(daemon, "config", "diff").returncode == 1
        refused = run_cli(daemon, "knob", "set", "data.directories[1]", "/elsewhere", "--persist")
        assert refused.returncode == 1 and "change it in the file by hand" in refused.stderr, refused.stderr
        daemon.restart()
    assert run_cli(daemon, "knob", "set", "checkpoints.keep", "5").returncode == 0  # other knobs are set as before
    daemon.configure({"data": {"directories": [first, second]}, "checkpoints": {"keep": 5}})
    assert differences(daemon) == []
    data(daemon, "remove", second, "--delete-checkpoints")
    assert listed(daemon) == [(first, "file")]
    assert differences(daemon) == [{"name": "data.directories[1]", "running": None, "file": second}]
    for command in (("get", "data.directories[1]"), ("set", "data.directories[1]", "/elsewhere")):
        gone = run_cli(daemon, "knob", *command)
        assert gone.returncode == 1 and "there is no knob `data.directories[1]`" in gone.stderr, gone.stderr
