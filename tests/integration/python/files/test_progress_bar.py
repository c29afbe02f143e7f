# SPDX-License-Identifier: Apache-2.0
"""`embtier` shows on a terminal how far exports, imports and verifying are, and leaves nothing of it there. It shows nothing where
there is no terminal. After an interrupt it reports the outcome. `test_progress_bar.c` has the time left, which long work shows."""

from __future__ import annotations

import contextlib
import re
import signal
import time

import numpy as np
import pytest
from transfers import is_free, run_on_terminal, screen, spec_of

import embtier


@pytest.fixture
def shown(daemon, server, name, tmp_path) -> dict[str, tuple]:
    """Calls long enough to report progress: the words of each command, and its output at the end."""
    rows = 100_000
    server.create_table(name, 32, rows, init=("uniform", -1, 1))
    server.export_table(name, tmp_path / "there", all_rows=True)
    server.import_table(tmp_path / "there", f"{name}.2")
    id = server.checkpoint().id
    return {
        "exporting": (("export", name, tmp_path / "export", "--all-rows"), "exported table", "rows"),
        "importing": (("import", tmp_path / "there", "--as", f"{name}.3"), "imported table", "rows"),
        "verifying": (("checkpoint", "verify", str(id)), f"checkpoint {id} is whole", "bytes"),
    }


@pytest.mark.parametrize("what", ["exporting", "importing", "verifying"])
def test_a_terminal_shows_how_far_it_is_and_nothing_of_it_stays(daemon, shown, what):
    arguments, said, unit = shown[what]
    code, seen, stdout = run_on_terminal(daemon, *arguments)
    assert code == 0 and stdout.startswith(said) and stdout.count("\n") == 1
    before, *bars = re.split(r"\r\033\[K", seen)
    assert before == "" and bars.pop() == "", "each is drawn over the one before, and the last one is cleared"
    found = [re.fullmatch(rf"{what} \[(#* *)\] +(\d+)%  [\d,]+ (\w+)(, (\d+[smhd])+ left)?", bar) for bar in bars]
    assert found and all(found), bars
    assert all(len(bar) < 80 and len(one[1]) == 30 for bar, one in zip(bars, found))
    assert all(abs(one[1].count("#") - 0.3 * int(one[2])) < 1.2 for one in found), bars
    assert any(one[3] == unit for one in found), bars
    print(*bars, sep="\n")
    assert screen(seen) == [""]


@pytest.mark.parametrize("what", ["exporting", "importing", "verifying"])
def test_what_is_no_terminal_gets_nothing_of_it(daemon, shown, what):
    arguments, said, _ = shown[what]
    code, seen, stderr = run_on_terminal(daemon, *arguments, stream="stdout")
    assert code == 0 and stderr == ""
    assert seen.startswith(said) and seen.count("\n") == 1 and "\033" not in seen and "#" not in seen


def interrupted(daemon, at, *arguments) -> tuple[str, str]:
    """The terminal's bytes, and its last line in the end. The interrupt comes when the terminal shows @at. On a busy machine the
    command may have ended and removed its handler by then."""
    code, seen, stdout = run_on_terminal(daemon, *arguments, interrupt_at=at)
    assert code in (0, 130, -signal.SIGINT) and (code != 130 or stdout == "")
    return seen, screen(seen)[-2] if code == 130 else ""


def is_given_up(server, name) -> bool:
    """The server looks now and then whether anybody still waits for the table. False if the table was whole before; it is then
    dropped."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(embtier.ExistsError, embtier.BusyError):
            if is_free(server, name):
                return True
        if (spec := spec_of(server, name)) is not None and spec.state == "live":
            server.drop_table(name)
            return False
        time.sleep(0.05)
    raise AssertionError(f"{server.tables()}")


GIVEN_UP = "embtier: interrupted; the server undoes its work and makes no table, "
TURNS = 20  # until the interrupt comes at the right time


def test_rows_that_no_client_wants_any_more_are_given_up(daemon, server, name):
    for _ in range(TURNS):
        _, said = interrupted(daemon, "creating [", "table", "create", name, "-r", "20000000", "-d", "2", "--eager")
        assert said == "" or said.startswith(GIVEN_UP)
        if is_given_up(server, name) and said:
            return
    raise AssertionError


def test_so_is_a_restore(daemon, server, name):
    server.create_table(name, 16, 500_000, eager=True)
    id = server.checkpoint().id
    server.drop_table(name)
    for _ in range(TURNS):
        _, said = interrupted(daemon, "restoring [", "checkpoint", "restore", str(id), name)
        assert said == "" or said.startswith(GIVEN_UP)
        if is_given_up(server, name) and said:
            return
    raise AssertionError


def test_and_an_import_until_the_server_has_all_rows(daemon, server, name, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((500_000, 32), np.float32))
    for _ in range(TURNS):
        seen, said = interrupted(daemon, " 0%", "import", tmp_path / "rows.npy", "--as", name)
        was_given_up = is_given_up(server, name)
        if said == "embtier: interrupted; the import was abandoned, and the table does not exist":
            assert was_given_up and "100%" not in seen
            return
    raise AssertionError


def test_after_which_its_table_may_still_appear(daemon, server, name, tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((100_000, 32), np.float32))
    for _ in range(TURNS):
        _, said = interrupted(daemon, "100%", "import", tmp_path / "rows.npy", "--as", name)
        is_given_up(server, name)
        if said:
            break
    assert said.startswith("embtier: interrupted; the server has all rows, and the table may still appear: see ")


def test_what_went_wrong_is_told_where_the_bar_was(daemon, server, shown, name, tmp_path):
    last = max((tmp_path / "there").glob("*.safetensors"))
    damaged = bytearray(last.read_bytes())
    damaged[-1] ^= 1
    last.write_bytes(damaged)
    code, seen, stdout = run_on_terminal(daemon, *shown["importing"][0])
    assert code == 1 and not stdout and "importing [" in seen
    left = screen(seen)
    assert left[-1] == "" and left[0].startswith("embtier: ") and "checksum differs" in left[0] and len(left) == 2
    assert is_free(server, f"{name}.3")
