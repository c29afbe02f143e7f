# SPDX-License-Identifier: Apache-2.0
"""`embtier keys` on a disk that is full or broken: whichever call fails, the files are all there or none is, and a pair that is
replaced is whole. All cases are short: each call, each error."""

from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from daemons import EMBTIERD
from failing_io import Control, Fault, faults_of

CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
FAULTS = EMBTIERD.parents[1] / "tests/faults"
CALLS = ("open", "write", "sync", "rename", "link", "mkdir")
KINDS = ("other", "folder")


class Keys:
    """A CA in a folder whose calls may fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "keys"
        self.control = Control(folder / "control")
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(FAULTS / "libfailing_io.so"),
            "EMBTIER_FAULT_FOLDER": str(self.folder),
            "EMBTIER_FAULT_CONTROL": str(self.control.path),
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        }

    def run(self, *words) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CLI, "keys", *map(str, words)], env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def must_run(self, *words) -> None:
        done = self.run(*words)
        assert done.returncode == 0, done

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()} if self.folder.exists() else {}

    def calls(self, *words) -> dict[tuple[str, str], int]:
        """The calls of a run that succeeds."""
        before = self.control.counts()
        self.must_run(*words)
        return {key: count - before[key] for key, count in self.control.counts().items() if key[0] in CALLS and key[1] in KINDS}

    def faults(self, *words) -> list[Fault]:
        """Every fault that the run can meet."""
        return [
            Fault(call, kind, error, on, at)
            for (call, kind), count in self.calls(*words).items()
            for at in range(1, count + 1)
            for error, on in faults_of(call)
        ]


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


def must_say_why(done: subprocess.CompletedProcess[str], fault: Fault) -> None:
    assert done.returncode == 1 and done.stdout == "", (fault, done)
    assert re.match(r"embtier: .+", done.stderr), (fault, done)
    assert fault.error == "SHORT" or os.strerror(getattr(errno, fault.error)) in done.stderr, (fault, done)


NEW = {"ca": ("ca",), "server": ("server", "localhost"), "client": ("client", "a"), "token": ()}


def words_of(keys: Keys, command: str) -> tuple:
    return ("token", keys.folder / "token") if command == "token" else (command, keys.folder, *NEW[command][1:])


@pytest.mark.parametrize("command", NEW)
def test_new_files_are_all_there_or_none_is(keys, command):
    words = words_of(keys, command)
    if command in ("server", "client"):
        keys.must_run("ca", keys.folder)
    before = keys.files()

    def clean() -> None:
        for name in set(keys.files()) - set(before):
            (keys.folder / name).unlink()
        if not before:
            keys.folder.rmdir()

    faults = keys.faults(*words)
    clean()
    failed = 0
    for fault in faults:
        keys.control.arm(fault)
        done = keys.run(*words)
        met = keys.control.disarm()
        if done.returncode == 0:  # a call was repeated, or a short write went on
            clean()
            continue
        assert met > 0, (fault, done)
        must_say_why(done, fault)
        assert keys.files() == before and keys.folder.exists() == bool(before), fault
        failed += 1
    assert failed > 20, failed
    keys.must_run(*words)


def test_a_pair_that_is_replaced_is_whole_or_the_message_says_so(keys):
    keys.must_run("ca", keys.folder)
    words = ("server", keys.folder, "localhost", "--force")
    keys.must_run(*words)
    before = keys.files()
    failed = halves = 0
    for fault in keys.faults(*words):
        before = keys.files()
        keys.control.arm(fault)
        done = keys.run(*words)
        keys.control.disarm()
        after = keys.files()
        assert set(after) == set(before), fault
        assert stat.S_IMODE((keys.folder / "server.key").stat().st_mode) == 0o600, fault
        if done.returncode == 0:
            continue
        failed += 1
        must_say_why(done, fault)
        if after == before:
            continue
        halves += 1
        assert after["server.key"] != before["server.key"], fault
        assert "server.key may be replaced already: repeat the command" in done.stderr, (fault, done)
        keys.must_run(*words)
    assert failed > 20 and halves > 0, (failed, halves)
