# SPDX-License-Identifier: Apache-2.0
"""`embtier top --batch`: rates are what clients did between two frames."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from daemons import CLI

PANELS = ["requests", "tiers", "ssd", "shards", "clients", "tables"]


class Frames:
    """A running `embtier top --batch` with JSON."""

    def __init__(self, daemon, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [CLI, "-s", daemon.socket, "-o", "json", "top", "--batch", "--delay", "0.1", *arguments], stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *ignored) -> None:
        self.process.kill()
        self.process.communicate()

    def next(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def until(self, is_so) -> dict:
        """One of the next 600 frames, a tenth of a second apart, is so."""
        return next(frame for frame in (self.next() for _ in range(600)) if is_so(frame))


def top(daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, "-s", daemon.socket, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon()
    daemon.start()
    return daemon


def named(rows: list[dict], value: object) -> dict:
    return next(row for row in rows if next(iter(row.values())) == value)


def test_first_frame_has_no_rates_and_the_sum_of_the_others_is_the_work(daemon):
    rows, dim = 500, 8
    with daemon.connect() as server, Frames(daemon) as frames:
        table = server.create_table("t", rows=rows, dim=dim)
        ids = np.arange(rows)
        first = frames.until(lambda frame: frame["tables"])
        assert frames.next()["health"] == "ok"

        def work(turn: int) -> tuple[dict[str, float], dict[str, float]]:
            """The sums of rates while a client works: those of metrics, and those of tables."""
            table.set(ids, np.ones((rows, dim)))
            for _ in range(3):
                table.get(ids)
            sums, sums_of_tables = {"get": 0.0, "set": 0.0, "bytes": 0.0}, {"get": 0.0, "bytes": 0.0, "set": 0.0}

            def add(frame: dict) -> bool:
                s = frame["interval_s"]
                get, put, one = named(frame["requests"], "get"), named(frame["requests"], "set"), named(frame["tables"], "t")
                if get["rows_per_s"]:
                    assert 0 < get["median_s"] <= get["p99_s"] < 60
                else:
                    assert get["median_s"] is None
                sums["get"] += get["rows_per_s"] * s
                sums["bytes"] += put["bytes_per_s"] * s
                sums["set"] += put["rows_per_s"] * s
                sums_of_tables["bytes"] += get["bytes_per_s"] * s
                sums_of_tables["get"] += one["lookup_rows_per_s"] * s
                sums_of_tables["set"] += one["updated_rows_per_s"] * s
                return get["rows"] == 3 * rows * turn and one["lookup_rows_per_s"] == 0 and sums_of_tables["get"] > 0

            frames.until(add)
            return sums, sums_of_tables

        for turn in range(1, 31):
            sums, sums_of_tables = work(turn)
            # Metrics have times of their own, to the millisecond. Those of tables are taken a moment later, which a busy machine makes
            # longer than the interval.
            assert sums == pytest.approx({"get": 3 * rows, "set": rows, "bytes": rows * dim * 4}, rel=0.01)
            if sums_of_tables == pytest.approx({"get": 3 * rows, "set": rows, "bytes": 3 * rows * dim * 4}, rel=0.5):
                break
        else:
            pytest.fail(f"rates of tables are not those of the work: {sums_of_tables}")
        client = next(client for client in frames.next()["clients"] if client["client"] != "embtier")
        assert client["requests_per_s"] == 0 and client["arena_bytes"] > 0
    assert first["interval_s"] is None or first["interval_s"] > 0
    with Frames(daemon, "-n", "1") as frames:
        only = frames.next()
        assert only["interval_s"] is None and only["requests_per_s"] is None
        assert all(row["rows_per_s"] is None for panel in ("requests", "tiers", "ssd", "clients") for row in only[panel])
        assert only["tables"][0]["lookup_rows_per_s"] is None and only["tables"][0]["rows"] == rows
        assert frames.process.wait(60) == 0 and frames.process.stdout.read() == ""


def test_every_part_of_a_server_has_rows(daemon):
    result = top(daemon, "-o", "json", "top", "-b", "-n", "1")
    frame = json.loads(result.stdout)
    assert result.returncode == 0 and set(PANELS) < set(frame)
    assert [row["operation"] for row in frame["requests"]] == ["get", "pool", "set", "push", "prefetch"]
    assert {"dram", "pmem", "arrays", "SSD"} <= {row["source"] for row in frame["tiers"]}
    assert {"reads", "all writes", "flush", "compaction", "log"} <= {row["cause"] for row in frame["ssd"]}
    assert len(frame["shards"]) == 2 * len({row["path"].rsplit("/", 1)[0] for row in frame["shards"]}) > 0
    assert "embtier" in {row["client"] for row in frame["clients"]}
    with Frames(daemon) as frames:  # the session that found the server ready may be counted for a while
        frames.until(lambda frame: {row["client"] for row in frame["clients"]} == {"embtier"})


def test_text_has_all_panels_or_the_one_that_is_wanted(daemon):
    result = top(daemon, "top", "--batch", "-n", "2", "-d", "0.1")
    assert result.returncode == 0 and "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert [line for line in lines if line in PANELS] == PANELS * 2
    assert sum(line.startswith("embtierd ") for line in lines) == 2
    only = top(daemon, "top", "--batch", "-n", "1", "--panel", "shards").stdout.splitlines()
    assert [line for line in only if line in PANELS] == ["shards"]


def test_json_has_the_panel_that_is_wanted(daemon):
    frame = json.loads(top(daemon, "-o", "json", "top", "--batch", "-n", "1", "--panel", "shards").stdout)
    assert frame["shards"] and frame["health"] == "ok" and set(frame) & set(PANELS) == {"shards"}


def test_foreign_names_cannot_reach_the_terminal(daemon):
    with daemon.connect(client_name="naïve\x1b[2J\n\x9bname") as server:
        text = top(daemon, "top", "--batch", "-n", "1").stdout
        client = [line for line in text.splitlines() if "naïve" in line]
    assert len(client) == 1 and "u001b[2J" in client[0] and "name" in client[0]
    assert all(character.isprintable() or character == "\n" for character in text)


def test_batch_outlives_a_restarted_server_and_has_no_rate_across_it(daemon):
    with Frames(daemon) as frames:
        frames.until(lambda frame: frame["interval_s"] is not None)
        daemon.stop()
        lost = frames.until(lambda frame: frame["health"] is None)
        assert set(lost) == {"health", "error"} and lost["error"]
        daemon.start()
        back = frames.until(lambda frame: frame["health"] is not None)
        assert back["interval_s"] is None and back["tables"] == []
        assert frames.next()["interval_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 1, "no terminal"),
        (["-n", "3"], 2, "--frames needs --batch"),
        (["-b", "-n", "0"], 2, "from 1 on"),
        (["-b", "--delay", "0"], 2, "0.1 to 86400"),
        (["-b", "--panel", "lanes"], 2, "allowed: requests"),
        (["-b", "more"], 2, "unexpected argument"),
    ],
)
def test_mistakes_are_named(daemon, arguments, code, words):
    result = top(daemon, "top", *arguments)
    assert (result.returncode, result.stdout) == (code, "")
    assert words in result.stderr
    if not arguments:
        assert "embtier status" in result.stderr and "--batch" in result.stderr
        assert top(daemon, "-o", "json", "top").returncode == 2


def test_no_server_is_an_error_of_the_start(tmp_path):
    result = subprocess.run([CLI, "-s", tmp_path / "none", "top", "-b"], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 3 and result.stdout == ""
