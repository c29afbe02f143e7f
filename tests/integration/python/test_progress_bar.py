# SPDX-License-Identifier: Apache-2.0
"""Does `embtier` show on a terminal how long exports, imports and verifying will take, leave nothing of it there,
and show nothing of it where there is no terminal?"""

from __future__ import annotations

import re

import pytest
from transfers import is_free, run_on_terminal, screen


@pytest.fixture
def shown(daemon, server, name, tmp_path) -> dict[str, tuple]:
    """What takes so long that its progress is told: the words of each command, and what it says at its end."""
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
def test_a_terminal_shows_how_long_it_will_take_and_nothing_of_it_stays(daemon, shown, what):
    arguments, said, unit = shown[what]
    code, seen, stdout = run_on_terminal(daemon, *arguments)
    assert code == 0 and stdout.startswith(said) and stdout.count("\n") == 1
    before, *bars = re.split(r"\r\033\[K", seen)
    assert before == "" and bars.pop() == "", "each is drawn over the one before, and the last one is cleared"
    found = [re.fullmatch(rf"{what} \[(#* *)\] +(\d+)%  [\d,]+ (\w+)(, (\d+[smhd])+ left)?", bar) for bar in bars]
    assert found and all(found), bars
    assert all(len(bar) < 80 and len(one[1]) == 30 for bar, one in zip(bars, found))
    assert all(abs(one[1].count("#") - 0.3 * int(one[2])) < 1.2 for one in found), bars
    own = [one for one in found if one[3] == unit]
    assert any(one[4] for one in own), bars
    # The first of a stage has nothing to go by.
    assert all(one[4] for one in own[1:] if 0 < int(one[2]) < 100), bars
    print(*bars, sep="\n")
    assert screen(seen) == [""]


@pytest.mark.parametrize("what", ["exporting", "importing", "verifying"])
def test_what_is_no_terminal_gets_nothing_of_it(daemon, shown, what):
    arguments, said, _ = shown[what]
    code, seen, stderr = run_on_terminal(daemon, *arguments, stream="stdout")
    assert code == 0 and stderr == ""
    assert seen.startswith(said) and seen.count("\n") == 1 and "\033" not in seen and "#" not in seen


def test_what_went_wrong_is_told_where_the_bar_was(daemon, server, shown, name, tmp_path):
    last = max((tmp_path / "there").glob("*.safetensors"))
    damaged = bytearray(last.read_bytes())
    damaged[-1] ^= 1
    last.write_bytes(damaged)
    code, seen, stdout = run_on_terminal(daemon, *shown["importing"][0])
    assert code == 1 and not stdout and "importing [" in seen and " left" in seen
    left = screen(seen)
    assert left[-1] == "" and left[0].startswith("embtier: ") and "checksum is another" in left[0] and len(left) == 2
    assert is_free(server, f"{name}.3")
