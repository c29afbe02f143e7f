# SPDX-License-Identifier: Apache-2.0
"""`embtier top` on a terminal: keys, order, size, restarts, and the end."""

from __future__ import annotations

import os
import re
import signal

import pytest
from daemons import CLI
from screens import Screen

TABLES = 40


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    daemon.start()
    return daemon


@pytest.fixture
def screen(daemon):
    made: list[Screen] = []

    def make(*arguments: str, **how) -> Screen:
        made.append(Screen("-s", daemon.socket, "top", "--delay", "0.2", *arguments, **how))
        return made[-1]

    if b"newterm" not in CLI.read_bytes():
        pytest.skip("built without ncurses")
    yield make
    for one in made:
        one.close()


def panel_of(lines: list[str]) -> list[str]:
    """The titles and rows below the bar of panels; none before it is drawn."""
    bar = next((i for i, line in enumerate(lines) if line.startswith(" 1 requests")), len(lines))
    return [line for line in lines[bar + 1 : -1] if line]


def with_title(title: str):
    return lambda lines: any(line.lstrip().startswith(title) for line in lines)


def test_keys_choose_panels_and_q_leaves_the_terminal_as_it_was(screen):
    one = screen()

    def is_whole(lines: list[str]) -> bool:
        """The session that found the server ready may be counted in the first frames, and a frame may be drawn in part."""
        return (
            re.match(r"embtierd \S+, up .*: ok, 1 session", lines[0]) is not None
            and lines[-1].startswith("1-6 panel")
            and [row.split()[0] for row in panel_of(lines)[1:]] == ["get", "pool", "set", "push", "prefetch"]
        )

    one.wait(is_whole)
    for key, title in [("2", "SERVED BY"), ("3", "CAUSE"), ("4", "DATABASE"), ("5", "SESSION"), ("6", "TABLE"),
                       ("\t", "OPERATION"), ("\x1b[Z", "TABLE"), ("1", "OPERATION")]:  # fmt: skip
        one.press(key)
        one.wait(with_title(title))
    one.press("h")
    one.wait_for("another panel")
    one.press("x")
    one.wait(with_title("OPERATION"))
    one.press("?")
    one.wait_for("Shift-Tab")
    one.press(" ")
    one.wait(with_title("OPERATION"))
    one.press("q")
    one.ends(0)


def test_the_first_frame_has_no_rates(screen):
    """They would be those of the milliseconds between two samples. The second frame comes after the test."""
    one = screen("--delay", "86400")
    lines = one.wait(with_title("OPERATION"))
    assert lines[1] == "requests -/s; rows looked up -/s, set -/s, pushed -/s"
    one.press("2")
    lines = one.wait(with_title("SERVED BY"))
    assert lines[1] == "requests -/s; rows looked up -/s, set -/s, pushed -/s"
    one.press("q")
    one.ends(0)


def test_tables_are_sorted_reversed_and_scrolled(daemon, screen):
    with daemon.connect() as server:
        for i in range(TABLES):
            server.create_table(f"t{i:02}", rows=100 + i, dim=4)
    one = screen("--panel", "tables")
    one.wait_for("by LOOKUPS/S")

    def names(lines: list[str]) -> list[str]:
        return [row.split()[0] for row in panel_of(lines)[1:]]

    def are_sorted(lines: list[str]) -> bool:
        return "by TABLE" in one.text and names(lines) == [f"t{i:02}" for i in range(len(names(lines)))] and 10 < len(names(lines)) < TABLES

    one.press("<")
    one.wait(are_sorted)
    one.press("r")
    one.wait(lambda lines: "reversed" in one.text and names(lines)[0] == "t39")
    one.press("r")
    one.wait(lambda lines: names(lines)[0] == "t00")
    one.press("\x1bOB")
    one.wait(lambda lines: names(lines)[0] == "t01")
    one.press("\x1b[6~")
    one.wait(lambda lines: names(lines)[0] > "t10")
    one.press("\x1b[5~\x1bOA")
    one.wait(lambda lines: names(lines)[0] == "t00")
    one.press("\x1bOF")
    one.wait(lambda lines: names(lines)[-1] == "t39")
    one.press("\x1bOH")
    one.wait(lambda lines: names(lines)[0] == "t00")
    one.press(">" * 6)  # by rows, the largest first
    one.wait(lambda lines: "by ROWS" in one.text and names(lines)[0] == "t39")
    one.press(">>>>")  # there are no more columns
    one.wait(lambda lines: "by BYTES" in one.text)


def test_a_narrow_screen_shows_how_far_compactions_are(screen):
    one = screen("--panel", "shards", columns=80)
    lines = one.wait(lambda lines: any("shard-0000" in line or "..." in line for line in panel_of(lines)[1:]))
    assert re.split(r" {2,}", panel_of(lines)[0])[:6] == ["DATABASE", "BEHIND", "READ", "LEFT", "STATE", "URGENT"]


def test_a_new_size_is_used_at_once_and_a_tiny_one_is_refused(screen):
    one = screen()
    one.wait(with_title("OPERATION"))
    for lines, columns in [(40, 130), (10, 44)]:
        one.resize(lines, columns)
        one.wait(lambda shown, last=lines - 1: shown[last].startswith("1-6 panel") and any("OPERATION" in line for line in shown))
    one.resize(5, 30)
    one.wait(lambda shown: shown[0] == "the terminal has 30x5: at leas" and not any(shown[1:]))
    one.resize(24, 80)
    one.wait(with_title("OPERATION"))
    one.press("q")
    one.ends(0)


def test_pause_stops_the_clock(screen):
    one = screen()
    one.wait(with_title("OPERATION"))
    one.press("p")
    stopped = one.wait_for("paused: p goes on")
    one.press("6")
    one.wait(with_title("TABLE"))
    one.press("1")
    assert one.wait(with_title("OPERATION"))[:4] == stopped[:4]
    one.press("p")
    one.wait(lambda lines: lines[0] != stopped[0] and lines[-1].startswith("1-6"))


def test_a_restarted_server_is_waited_for(daemon, screen):
    one = screen()
    one.wait(with_title("OPERATION"))
    daemon.stop()
    one.wait_for("no connection, trying again")
    one.press("2")
    one.wait(with_title("SERVED BY"))
    daemon.start()
    one.wait(lambda lines: lines[-1].startswith("1-6 panel"))
    daemon.stop()
    one.wait_for("no connection, trying again")
    one.press("q")
    one.ends(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(screen, number):
    one = screen()
    one.wait(with_title("OPERATION"))
    if number == signal.SIGINT:
        one.press("\x03")
    else:
        os.kill(one.process.pid, number)
    one.ends(-number)


def test_colours_only_where_they_are_wanted(daemon, screen, make_daemon):
    one = screen(NO_COLOR="1")
    one.wait(with_title("OPERATION"))
    daemon.stop()
    one.wait_for("no connection")
    one.press("q")
    one.ends(0)
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", one.raw)
    daemon.start()
    two = screen()
    two.wait(with_title("OPERATION"))
    daemon.stop()
    two.wait_for("no connection")
    two.press("q")
    two.ends(0)
    assert re.search(rb"\x1b\[[0-9;]*31m", two.raw)


@pytest.mark.parametrize(("kind", "words"), [("dumb", "no terminal that can be drawn on"), ("no-such-terminal", "infocmp")])
def test_a_terminal_that_cannot_be_drawn_on_is_told(screen, kind, words):
    one = screen(TERM=kind, columns=200)
    one.process.wait(60)
    one.read()
    assert one.process.returncode == 1
    assert words in one.text and "--batch" in one.text and b"\x1b" not in one.raw


def test_foreign_names_cannot_move_the_cursor(daemon, screen):
    with daemon.connect(client_name="evil\x1b[2J\x07name"):
        one = screen("--panel", "clients", columns=160)
        one.wait_for("u001b[2J")
        one.press("q")
        one.ends(0)
    assert b"\x07" not in one.raw
