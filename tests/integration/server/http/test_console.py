# SPDX-License-Identifier: Apache-2.0
"""The page for people: it needs nothing from elsewhere, and a browser shows on it what the server says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from browser import Browser
from daemons import CLI, Daemon
from readers import LISTEN, await_true, get, port_of

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
    assert re.search(r'<p id="health"[^>]*class="good"[^>]*>ok, ready</p>', said.stdout)
    assert ">shown_on_the_page</td>" in said.stdout and ">300</td>" in said.stdout
    assert said.stdout.count("<svg") == 4


LONG_NAME = "a_table_whose_name_is_long_" + "x" * 90
# Names the parts of the page that are wider than the screen.
TOO_WIDE = """[...document.querySelectorAll("body, section, table, tr, td, li, svg")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0 || one.getBoundingClientRect().right > innerWidth + 1)
    .map((one) => one.tagName + " " + (one.id || one.textContent.slice(0, 40)))"""
# The least contrast of a text with what lies behind it (WCAG 2: at least 4.5).
CONTRAST = """(() => {
    const light = (color) => color.match(/[\\d.]+/g).slice(0, 3).map((c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    const behind = (one) => { while (/, 0\\)$/.test(getComputedStyle(one).backgroundColor)) one = one.parentElement; return getComputedStyle(one).backgroundColor; };
    return Math.min(...[...document.querySelectorAll("p, td, th, h1, h2, strong, #warnings p")].filter((one) => one.textContent).map((one) => {
        const pair = [light(getComputedStyle(one).color), light(behind(one))];
        return (Math.max(...pair) + .05) / (Math.min(...pair) + .05);
    }));
})()"""


@pytest.fixture
def browser(tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("no chromium here")
    browser = Browser(chromium, tmp_path / "browser")
    yield browser
    browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_a_phone_and_a_screen(http_daemon: Daemon, browser: Browser, width: int, scheme: str):
    """All that `status` and `top` show is there, and no part is wider than the screen."""
    subprocess.run([CLI, "-s", http_daemon.socket, "compaction", "pause"], check=True, capture_output=True)
    with http_daemon.connect(client_name="secret-client") as server:
        table = server.create_table(LONG_NAME, DIM)
        table.set(np.arange(ROWS), np.ones((ROWS, DIM), np.float32))
        table.get(np.arange(ROWS))
        browser.show(f"http://127.0.0.1:{port_of(http_daemon)}/", width, scheme)
        await_true(lambda: browser.evaluate("document.querySelectorAll('svg').length") == 4, "charts are drawn")
        await_true(lambda: LONG_NAME in (browser.evaluate("document.body.innerText") or ""), "the table is shown")
        text = browser.evaluate("document.body.innerText")
        for words in ("ok, ready", "plan", "set", "shm", "shard-0000/replay", "compactions have read", "compactions still take"):
            assert words in text, words
        assert "secret-client" not in text
        for part in ("latencies", "shards", "clients", "tiers", "tables"):
            assert browser.evaluate(f"document.querySelectorAll('#{part} tr').length") >= 2, part
        assert browser.evaluate(TOO_WIDE) == []
        assert browser.evaluate(CONTRAST) >= 4.5
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        for _ in range(3):  # titles that sort, by keyboard
            browser.evaluate("document.querySelector('#tables th button').focus()")
            for kind in ("keyDown", "keyUp"):
                browser.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
        assert browser.evaluate("document.querySelector('#tables th').getAttribute('aria-sort')") in ("ascending", "descending")


def test_a_broken_rule_is_shown_with_its_advice(make_daemon, browser: Browser):
    daemon = make_daemon(LISTEN)
    users = daemon.folder / "access.yaml"
    users.write_text(json.dumps({"users": [{"name": "me", "role": "admin", "unix_users": [os.geteuid()]}]}))
    users.chmod(0o600)
    daemon.configure({"access": {"file": str(users)}})
    daemon.start()
    users.write_text("users: 7\n")
    subprocess.run([CLI, "-s", daemon.socket, "keys", "reload"], check=False, capture_output=True)
    (warning,) = await_true(lambda: json.loads(get(port_of(daemon), "/status.json").text)["warnings"], "a rule is broken")
    assert warning["name"] == "reload_failed" and warning["health"] == "warning"
    browser.show(f"http://127.0.0.1:{port_of(daemon)}/", 390, "light")
    shown = await_true(
        lambda: browser.evaluate("[...document.querySelectorAll('#warnings li')].map((one) => one.innerText)"), "the rule is shown"
    )
    assert len(shown) == 1 and all(warning[part] in shown[0] for part in ("name", "why", "advice", "health"))
    assert browser.evaluate("document.getElementById('health').className") == "warn"
