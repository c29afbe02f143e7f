# SPDX-License-Identifier: Apache-2.0
"""A checkpoint may be damaged, of a newer format, of another machine, or not a checkpoint. Every reader refuses it, names the
fault, and changes nothing: no table, no row, no file."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, Daemon
from stores import DIM, TABLES, all_rows, check_rows, crc32c, cut, damaged, directories, fill, flip, paths, run_cli
from stores import what_is_there as files_of

import embtier

# ---- Kinds of damage ----


def forged(old: str, new: str) -> Callable[[Path], None]:
    """A record with @new for @old, and with a matching checksum (checkpoint_record.h)."""

    def forge(path: Path) -> None:
        first, _, rest = path.read_text().partition("\n")
        assert first == f"crc32c {crc32c(rest[:-1].encode()):08x}", "made as the server makes it"
        assert rest.count(old) == 1
        rest = rest.replace(old, new)
        path.write_text(f"crc32c {crc32c(rest[:-1].encode()):08x}\n{rest}")

    return forge


def flip_in_a_row(path: Path) -> None:
    """Rows come first in a table file, and those of the oldest table before others."""
    flip(path, 100)


@dataclass(frozen=True)
class Bad:
    """@said: the message of readers of the whole checkpoint. @said_of_rows: that of readers of tables' rows, if it differs.
    @file: a pattern below the checkpoint's folder in a data directory; the last such file that is not empty is damaged."""

    said: str
    error: type[Exception] = embtier.CorruptError
    said_of_rows: str | None = None
    file: str | None = "checkpoint.json"
    how: Callable[[Path], None] | None = None  # None: the file is removed
    id: int = 1
    table: str = "gone"  # a table of the checkpoint with rows in that file

    @property
    def is_found_before_the_name(self) -> bool:
        return self.file in (None, "checkpoint.json")


SST, LOG, MANIFEST = "shard-*/replay/*.sst", "shard-*/logged/*.log", "shard-*/replay/MANIFEST-*"
SHORT = r"{file}: has \d+ bytes instead of \d+"
MISMATCH = "block checksum mismatch: .* in {file}"

BAD = {
    "newer_format": Bad(
        "{file}: format version 3, this program reads up to 2: a newer embtierd made it: start that one", embtier.VersionError,
        how=forged('"format_version":1,', '"format_version":3,'),
    ),
    "other_byte_order": Bad(
        "{file}: made on a big-endian machine, this one is little-endian", embtier.UnsupportedError,
        how=forged('"byte_order":"little"', '"byte_order":"big"'),
    ),
    "record_cut_short": Bad("{file}: cut short", how=cut),
    "record_flipped": Bad("{file}: damaged", how=flip),
    "sst_missing": Bad("{file}: missing", file=SST),
    "sst_cut_short": Bad(SHORT, file=SST, how=cut),
    "sst_flipped": Bad("{file}: damaged: its checksum is", file=SST, how=flip_in_a_row, said_of_rows=MISMATCH),
    "manifest_missing": Bad("{file}: missing", file=MANIFEST),
    "log_cut_short": Bad(SHORT, file=LOG, how=cut, table="gone_logged"),
    "record_missing": Bad("{file}: missing; without it the folder is useless"),
    "folder_of_others": Bad("/000777/checkpoint.json: missing; without it", file=None, id=777),
    "no_folder": Bad("there is no checkpoint 99", embtier.NotFoundError, file=None, id=99),
}  # fmt: skip


def file_of(daemon: Daemon, bad: Bad) -> Path:
    found = [
        path
        for directory in daemon.config["data"]["directories"]
        for path in sorted(Path(directory).glob(f"checkpoints/{bad.id:06d}/{bad.file}"))
        if path.stat().st_size > 0
    ]
    return found[-1]


@contextlib.contextmanager
def spoilt(daemon: Daemon, bad: Bad) -> Iterator[Path | None]:
    """Damages a file, and gives its path, if there is one to damage."""
    if bad.file is not None:
        path = file_of(daemon, bad)
        with damaged(path, bad.how):
            yield path
    elif bad.id == 777:
        folder = Path(daemon.config["data"]["directories"][0]) / "checkpoints/000777"
        (folder / "shard-0000").mkdir(parents=True)
        (folder / "notes.txt").write_text("of a user")
        try:
            yield None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        yield None


# ---- Stores ----


@dataclass(frozen=True)
class Stored:
    """A store that no server has open, and its rows."""

    folder: Path
    changes: dict
    rows: dict[str, np.ndarray]

    def copy_for(self, daemon: Daemon) -> None:
        """Copies the store. Files with two names keep both."""
        folders = [Path(directory) for directory in self.changes["data"]["directories"]]
        subprocess.run(["cp", "-a", *folders, daemon.folder], check=True)
        there = [str(daemon.folder / folder.name) for folder in folders]
        daemon.configure(self.changes | {"data": self.changes["data"] | {"directories": there}})


def closed(daemon: Daemon, make: Callable[[embtier.Server], None]) -> Stored:
    try:
        daemon.start()
        with daemon.connect() as server:
            make(server)
            rows = all_rows(server)
        daemon.stop()
    finally:
        daemon.end()
    changes = {section: values for section, values in daemon.config.items() if section not in ("socket", "rpc")}
    return Stored(daemon.folder, changes | {"socket": {}}, rows)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A store with two checkpoints. The first one, of step 42, has two tables that no longer exist."""

    def make(server: embtier.Server) -> None:
        for name, durability in (("gone", "replay"), ("gone_logged", "async")):
            table = server.create_table(name, DIM, 1000, durability=durability, optimizer="adagrad")
            table.set(np.arange(1000), np.full((1000, DIM), 3), np.full((1000, DIM), 0.5))
        fill(server, 7)
        server.checkpoint(step=42)
        for name in ("gone", "gone_logged"):
            server.drop_table(name)
        for ids in (np.arange(100), np.arange(300)):
            for name in TABLES:
                table = server.open_table(name)
                table.set(ids, np.full((len(ids), DIM), len(ids) // 100, dtype=table.numpy_dtype))
            if len(ids) == 100:
                server.checkpoint()

    daemon = Daemon(tmp_path_factory.mktemp("stored"))
    daemon.configure(directories(daemon, 2, max(2, LANES)) | {"checkpoints": {"interval_seconds": 0}})
    return closed(daemon, make)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Another store, with a table of its own."""

    def make(server: embtier.Server) -> None:
        server.create_table("own", DIM, 100, optimizer="adagrad").set(np.arange(50), np.ones((50, DIM)))

    daemon = Daemon(tmp_path_factory.mktemp("target"))
    daemon.configure(directories(daemon, 1, max(2, LANES)))
    return closed(daemon, make)


def check_serving(daemon: Daemon, rows: dict[str, np.ndarray]) -> None:
    with daemon.connect() as server:
        check_rows(server, rows)
        table = server.create_table("scratch", 2, 10, optimizer="sgd")
        table.set([3], [[1, 2]])
        assert table.get([3]).tolist() == [[1, 2]]
        server.drop_table("scratch")
        check_rows(server, rows)


def check_said(said: str, words: str, file: Path | None) -> None:
    wanted = words.format(file=re.escape(str(file)))
    assert re.search(wanted, said), f"{said!r} should say {wanted!r}"


# ---- At a start ----


@pytest.mark.parametrize("kind", BAD)
def test_restore_at_a_start_refuses_it_and_changes_no_file(make_daemon, stored, kind):
    bad, daemon = BAD[kind], make_daemon()
    stored.copy_for(daemon)
    with spoilt(daemon, bad) as file:
        before = files_of(daemon, without=("LOCK", "LOG", "reserve"))
        said = daemon.fail_to_start("--restore", str(bad.id))
        check_said(said, bad.said, file)
        if kind in ("record_cut_short", "record_flipped", "record_missing"):
            assert ": take another one, the newest first: 2" in said
        assert files_of(daemon, without=("LOCK", "LOG", "reserve")) == before
        daemon.start()  # it does not need that checkpoint
        check_serving(daemon, stored.rows)


@pytest.mark.parametrize("kind", BAD)
def test_restore_from_another_store_refuses_it_and_changes_neither(make_daemon, stored, target, kind):
    bad, old, new = BAD[kind], make_daemon(), make_daemon()
    stored.copy_for(old)
    target.copy_for(new)
    with spoilt(old, bad) as file:
        before = files_of(old)
        said = new.fail_to_start("--restore-from", paths(old), "--restore", str(bad.id))
        check_said(said, bad.said_of_rows or bad.said, file)
        assert files_of(old) == before
        new.start()
        check_serving(new, target.rows)


# ---- In a running server ----


@pytest.fixture(scope="module")
def running(stored, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One server for all cases; after all of them, and a restart, its rows must be as before."""
    daemon = Daemon(tmp_path_factory.mktemp("running"))
    stored.copy_for(daemon)
    daemon.start()
    try:
        yield daemon
        daemon.restart()
        check_serving(daemon, stored.rows)
        daemon.stop()
    finally:
        daemon.end()


@contextlib.contextmanager
def refused(daemon: Daemon, error: type[Exception], words: str, file: Path | None) -> Iterator[embtier.Server]:
    with daemon.connect() as server:
        before = server.tables()
        with pytest.raises(error) as raised:
            yield server
        check_said(str(raised.value), words, file)
        assert server.tables() == before


@pytest.mark.parametrize("kind", BAD)
def test_restore_under_a_new_name_refuses_it_and_makes_no_table(running, stored, kind):
    bad = BAD[kind]
    words = bad.said_of_rows or bad.said
    with spoilt(running, bad) as file:
        with refused(running, bad.error, words, file) as server:
            server.restore_checkpoint(bad.id, [bad.table], name="then")
        # The first table is whole, and its rows are read before the damage of the second is found.
        tables = sorted(["gone", "gone_logged"], key=lambda table: table == bad.table)
        with refused(running, bad.error, words, file) as server:
            server.restore_checkpoint(bad.id, tables)
        check_serving(running, stored.rows)


@pytest.mark.parametrize("kind", BAD)
def test_restore_over_a_live_table_refuses_it_and_leaves_its_rows(running, stored, kind):
    bad = BAD[kind]
    error, words = bad.error, bad.said
    with spoilt(running, bad) as file:
        if not bad.is_found_before_the_name:
            error, words = embtier.ExistsError, "table '(replayed|logged)' already exists: drop it first"
        for tables in (["replayed"], ["logged"], ["gone", "gone_logged", "replayed"], None):
            with refused(running, error, words, file) as server:
                server.restore_checkpoint(bad.id, tables)
        check_serving(running, stored.rows)


@pytest.mark.parametrize("kind", BAD)
def test_verify_tells_it_and_the_server_goes_on(running, stored, kind):
    bad = BAD[kind]
    with spoilt(running, bad) as file:
        done = run_cli(running, "checkpoint", "verify", str(bad.id))
        assert done.returncode == 1 and not done.stdout
        check_said(done.stderr, bad.said, file)
        with refused(running, bad.error, bad.said, file) as server:
            server.verify_checkpoint(bad.id)
        check_serving(running, stored.rows)
        assert run_cli(running, "checkpoint", "verify", "2").stdout == "checkpoint 2 is whole\n"
    if bad.id == 1:
        assert run_cli(running, "checkpoint", "verify", "1").stdout == "checkpoint 1 is whole\n"


def test_without_damage_all_of_them_take_it(make_daemon, stored, target):
    """Without damage all of these must work, or the refusals above prove nothing."""
    old, new = make_daemon(), make_daemon()
    stored.copy_for(old)
    target.copy_for(new)
    new.start("--restore-from", paths(old), "--restore", "1")
    names = {*TABLES, "gone", "gone_logged"}
    with new.connect() as server:
        assert {info.name for info in server.tables()} == {*names, "own"}
        then = all_rows(server)
    old.start("--restore", "1")
    with old.connect() as server:
        check_rows(server, {name: then[name] for name in names})
        server.restore_checkpoint(1, ["gone"], name="then")
        assert (all_rows(server)["then"] == then["gone"]).all()
        assert (then["gone"] != 0).all() and (then["replayed"] != stored.rows["replayed"]).any()
