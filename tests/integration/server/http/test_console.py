# SPDX-License-Identifier: Apache-2.0
"""The page for people: it needs nothing from elsewhere, and a browser shows on it what the server says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from daemons import Daemon
from readers import await_true, get, port_of

ROWS, DIM = 300, 8


def test_the_page_needs_nothing_from_elsewhere(http_daemon: Daemon):
    answer = get(port_of(http_daemon), "/")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert re.findall(r"https?://[^\"'` ]*", answer.text) == ["http://www.w3.org/2000/svg"]  # a name, which nothing loads
    assert not re.search(r"\s(?:src|href)=|@import|url\(|innerHTML", answer.text)
    assert 'lang="en"' in answer.text and "prefers-color-scheme: dark" in answer.text and 'name="viewport"' in answer.text


def test_history_is_that_of_the_figures(http_daemon: Daemon):
    port = port_of(http_daemon)

    def history() -> dict:
        return json.loads(get(port, "/history.json").text)

    first = await_true(lambda: (h := history())["uptime_ms"] and h, "there is a point")
    assert first["series"]["set_rows"][0] == 0
    with http_daemon.connect() as server:
        table = server.create_table("t", DIM)
        table.set(np.arange(ROWS), np.ones((ROWS, DIM), np.float32))
        table.get(np.arange(ROWS))
        had = len(history()["uptime_ms"])  # a point in the middle of the above has a part of it
        now = await_true(lambda: len((h := history())["uptime_ms"]) > had and h, "there is another")
    assert {len(values) for values in now["series"].values()} == {len(now["uptime_ms"])}
    assert now["uptime_ms"] == sorted(now["uptime_ms"]) and now["now_ms"] >= now["uptime_ms"][-1]
    last = {name: values[-1] for name, values in now["series"].items()}
    assert (last["set_rows"], last["get_rows"], last["lookup_rows"], last["ssd_rows"]) == (ROWS, ROWS, ROWS, 0)
    assert last["sessions"] == 1 and last["resident_bytes"] > 0


def test_a_browser_shows_figures(http_daemon: Daemon, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("no chromium here")
    with http_daemon.connect() as server:
        table = server.create_table("shown_on_the_page", DIM)
        table.set(np.arange(ROWS), np.ones((ROWS, DIM), np.float32))
    said = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path}/browser", "--virtual-time-budget=4000", "--dump-dom", f"http://127.0.0.1:{port_of(http_daemon)}/",
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    errors = [line for line in said.stderr.splitlines() if "CONSOLE" in line]
    assert not errors, errors
    assert re.search(r'<p id="health"[^>]*class="good"[^>]*>ready</p>', said.stdout)
    assert ">shown_on_the_page</td>" in said.stdout and ">300</td>" in said.stdout
    assert said.stdout.count("<svg") == 4
