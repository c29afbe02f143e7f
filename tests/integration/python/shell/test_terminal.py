# SPDX-License-Identifier: Apache-2.0
"""`embtier` prints no colours, but in `top`, whatever the terminal and NO_COLOR say, and moves no cursor where that is impossible.
The bars of long work are in `test_progress_bar.py`, below `files/`, and `top` has its tests in `server/top/`."""

from __future__ import annotations

import re

import pytest
from shells import embtier, on_terminal

COLOUR = re.compile(r"\033\[[0-9;:]*m")
CLEAR = "\033[H\033[J"


@pytest.fixture
def commands(daemon, server, tmp_path):
    server.create_table("users", 8, 1000, if_not_exists=True)
    address = ("--address", daemon.socket, "--timeout", "60")
    return [
        (*address, "status"),
        (*address, "stats"),
        (*address, "table", "list"),
        (*address, "checkpoint", "create"),
        (*address, "export", "users", tmp_path / "users"),
        (*address, "table", "drop", "no-such-table", "--yes"),
        ("--help",),
        ("no-such-command",),
    ]


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}], ids=str)
def test_a_terminal_gets_no_colours(commands, environment):
    for command in commands:
        seen = on_terminal(*command, **environment)
        assert len(seen) > 0 and not COLOUR.search(seen), command


def test_where_there_is_no_terminal_no_character_moves_the_cursor(commands):
    for command in commands:
        done = embtier(*map(str, command))
        assert not re.search(r"[\033\r\b]", done.stdout + done.stderr), command


def test_a_terminal_without_a_cursor_gets_lines_alone(daemon, commands):
    for command in commands:
        seen = on_terminal(*command, TERM="dumb")
        assert len(seen) > 0 and not re.search(r"[\033\b]|\r(?!\n)", seen), command  # a terminal makes \r\n of \n


def test_watched_figures_replace_each_other_on_a_terminal_with_a_cursor(daemon):
    watch = ("--address", daemon.socket, "--timeout", "60", "stats", "--watch", "0.1")
    assert on_terminal(*watch, until=lambda seen: seen.count(CLEAR) == 3).startswith(CLEAR)
    seen = on_terminal(*watch, until=lambda seen: seen.count("cache_hit_rows") >= 3, TERM="dumb")
    assert "\033" not in seen
