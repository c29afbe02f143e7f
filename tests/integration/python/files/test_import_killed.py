# SPDX-License-Identifier: Apache-2.0
"""An import that is killed leaves a whole table or none."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE, Daemon
from foreign_files import numbers
from transfers import LONG, cli_json, is_free, kill_after, moments_of_kills, spec_of, start_cli

import embtier

KILLS = 40 if LONG else 5
DIM = 80  # long rows, as each takes a sanitizer's time


# ---- Killed ----


def await_settled(server: embtier.Server, name: str) -> bool:
    """Waits until the server has taken back a table that a dead client began. True if the table exists."""
    deadline = time.monotonic() + 60
    while (spec := spec_of(server, name)) and spec.state != "live":
        assert time.monotonic() < deadline, spec
        time.sleep(0.01)
    return spec is not None


def check_outcome(server: embtier.Server, name: str, wanted: np.ndarray) -> bool:
    """The table is right, and is then dropped, or its name is free. True if there was a table."""
    deadline = time.monotonic() + 60
    while not await_settled(server, name):  # the table may be on its way out, or the import's last step under way
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


def make_file(folder: Path, rows: int = 40_000) -> np.ndarray:
    wanted = numbers(rows, DIM)
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
    wanted = make_file(tmp_path, 20_000)
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
        with embtier.connect(sys.argv[2], timeout=60) as server:
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
    """A progress function that kills the daemon when @share of the rows is there: at once, while the client waits for it, or
    @delay_s later, while the client goes on."""

    def __init__(self, daemon: Daemon, share: float, delay_s: float | None) -> None:
        self.share = share
        self.reached: float | None = None  # the time of that moment
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
    make_file(tmp_path, 20_000)
    found = []
    with daemon.connect() as other:

        def meanwhile(_done: int, _total: int, unit: str) -> None:
            if unit != "rows":  # reported late: the table may exist by now
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
    assert (server.open_table(name).get([19_999]) == numbers(20_000, DIM)[-1]).all()
