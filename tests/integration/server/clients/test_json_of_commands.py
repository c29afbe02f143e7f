# SPDX-License-Identifier: Apache-2.0
"""Every command of the table prints JSON with `-o json`, but those that are named here with a reason."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from daemons import CLI, Daemon

DOCS = Path(__file__).resolve().parents[4] / "docs"
MACHINE = DOCS / "machine.yaml"
# The order matters: later commands work on what earlier ones made. {} is a folder of the test.
CALLS = {
    "table create": "t --rows 1000 --dim 4", "table list": "", "table show": "t", "table move": "t --home array",
    "set": "t 7=1,2,3,4", "get": "t 7", "status": "", "stats": "", "clients": "", "top": "--batch --frames 2 --delay 0.1",
    "endurance": "", "checkpoint create": "", "checkpoint list": "", "checkpoint show": "1", "checkpoint verify": "1",
    "checkpoint restore": "1 t --as restored", "checkpoint delete": "1 --yes", "compaction status": "", "compaction pause": "",
    "compaction resume": "", "compaction schedule": "00:00-24:00", "compaction run": "", "data list": "", "jobs": "", "export": "t {}/export",
    "import": "{}/export --as imported", "table drop": "imported --yes", "config check": "", "config keys": "", "config show": "",
    "config diff": "", "knob list": "", "knob get": "log.level", "knob set": "log.level info", "size": "--rows 1000 --dim 4",
    "doctor": "", "keys ca": "{}/keys", "keys server": "{}/keys localhost", "keys client": "{}/keys me", "keys token": "{}/token",
    "keys hash": "{}/token", "keys show": "{}/token", "profile start": "", "profile stop": "",
    "trace generate": "{}/trace --tables 2 --rows 100 --dim 4 --batches 5 --bags 2", "trace hottest": "{}/trace --table t0",
    "profile show": "{}/trace --save {}/profile", "plan make": "{}/plan --profile {}/profile --machine {machine}",
    "plan show": "{}/plan", "plan diff": "{}/plan {}/plan", "plan what-if": "{machine} --profile {}/profile",
    "support-bundle": "--file {}/bundle.tar.gz",
}  # fmt: skip
# Tested where they have what they need.
ELSEWHERE = {
    "clients end": "a session that is to be ended: access/test_sessions.py",
    "jobs cancel": "a job that waits: rows/test_moves.py",
    "reshard": "rows that move: store/test_reshard.py",
    "data add": "a directory: store/test_data_directories.py",
    "data remove": "a directory: store/test_data_directories.py",
    "endurance forecast": "a profile of traffic: store/test_forecast.py",
    "keys reload": "an access file: access/test_reload_command.py",
    "apply": "a plan for the server's tables: placement/test_apply.py",
    "plan check": "a plan in force and traffic: placement/test_plan_check.py",
    "tune": "a directory on a disk, and minutes: store/test_tune.py",
    "profile record": "traffic for some seconds: python/files/test_served_profile.py",
    "profile save": "a profile of traffic: python/files/test_served_profile.py",
}
NO_JSON = {"completion": "prints a script"}


# Keys of which the help says that they are there at times only.
AT_TIMES = {"get": {"state"}, "checkpoint list": {"tables"}, "support-bundle": {"hidden_secrets", "bytes", "missing"}}


class Keys:
    """The keys that a help names: `{name, tables: [{rows, dim}]}`. A name in capitals, or `...`, stands for any key."""

    def __init__(self, text: str, at: int) -> None:
        self.keys: dict[str, Keys | None] = {}
        end = at + 1
        while text[end] != "}":
            name = re.compile(r"[\s,]*(\w+|\.\.\.)").match(text, end)
            assert name, text[at:]
            end, inner = name.end(), None
            while text[end] not in ",}":
                if text[end] == "{":
                    inner = Keys(text, end)
                    end = inner.end
                elif text[end] == "[":
                    listed = re.compile(r"\[\s*(?=\{)").match(text, end)
                    inner = Keys(text, listed.end()) if listed else None
                    end = text.index("]", inner.end if inner else end) + 1
                else:
                    end += 1
            self.keys[name[1]] = inner
        self.end = end + 1

    def check(self, value: object, path: str, at_times: set[str]) -> None:
        if isinstance(value, list):
            for one in value:
                self.check(one, path, at_times)
        elif isinstance(value, dict) and not any(key.isupper() or key == "..." for key in self.keys):
            assert value.keys() - at_times == self.keys.keys() - at_times, path
            for key, inner in self.keys.items():
                if inner and key in value:
                    inner.check(value[key], f"{path}.{key}", at_times)


def keys_of(words: str) -> Keys | None:
    """The first form that the help of a command names, or that of the command it refers to. None: it names other kinds."""
    text = subprocess.run([CLI, *words.split(), "--help"], check=True, capture_output=True, text=True).stdout
    told = re.search(r"[Ww]ith -o json\b|also with -o json", text)
    assert told, f"the help of {words} has no word on JSON"
    refers = re.search(r"as\s+(an\s+item\s+of\s+|for\s+)?`(?:embtier\s+)?([a-z\s]+)`", text[told.start() :])
    at = text.find("{", told.end())
    if at >= 0 and (not refers or at < told.start() + refers.start()):
        return Keys(text, at)
    whole = keys_of(" ".join(refers[2].split())) if refers else None
    if whole and (refers[1] or "").startswith("an"):
        return next(inner for inner in whole.keys.values() if inner or len(whole.keys) > 1)
    return whole


def test_the_help_of_every_command_tells_the_keys_of_its_json():
    for words in {*CALLS, *ELSEWHERE}:
        keys_of(words)


def table_of_commands() -> list[str]:
    text = subprocess.run([CLI, "--help"], check=True, capture_output=True, text=True).stdout
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0]
    return [re.split(r" {2,}", line.strip())[0] for line in listed.splitlines()]


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon({"cache": {"tiers": [Daemon.dram()]}})
    daemon.start()
    return daemon


def test_every_command_is_called_or_named():
    table, named = set(table_of_commands()), {*CALLS, *ELSEWHERE, *NO_JSON}
    assert not table - named, "a new command: call it here with -o json, or name the test that does"
    assert not named - table


def called_as(words: str, arguments: str, folder: Path) -> list[str]:
    return [*words.split(), *arguments.replace("{machine}", str(MACHINE)).replace("{}", str(folder)).split()]


@pytest.fixture
def socket_folder():
    """A short path: a socket's may have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="embtier-", dir="/tmp") as folder:
        yield Path(folder)


def test_the_man_page_names_the_commands_that_need_no_server(tmp_path, socket_folder):
    """Those that succeed without one. A command that needs one says so by its exit status, but `top --batch` shows that it is gone."""
    page = (DOCS / "man" / "embtier.1.in").read_text().partition("The commands\n")[2].partition("\nneed no server.")[0]
    named = re.findall(r"^\.(?:Cm|Pq but Cm) ([a-z -]+?)\s*[,)]*$", page, re.MULTILINE)
    but = re.findall(r"^\.Pq but Cm ([a-z -]+?)\s*,?$", page, re.MULTILINE)
    for words, arguments in CALLS.items():
        called = [CLI, "-s", socket_folder / "none", *called_as(words, arguments, tmp_path)]
        done = subprocess.run(called, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
        is_named = any(f"{words} ".startswith(f"{name} ") for name in named) and words not in but
        assert words == "top" or is_named == (done.returncode != 3), (words, done)
    assert {"tune", "completion"} < set(named) and but == ["keys reload"]


class Mute:
    """Accepts connections, and says nothing."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(path))
        self.socket.listen(64)
        self.clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            self.clients.append(self.socket.accept()[0])


PATIENT = (
    "reshard --shards 2", "data add /none", "data remove /none", "compaction run", "compaction run --full", "table drop t --yes",
    "checkpoint create", "checkpoint verify 1", "checkpoint restore 1", "export t {}/t", "table move t --home cache",
)  # fmt: skip


def test_work_that_shows_its_progress_waits_for_a_silent_server(tmp_path, socket_folder):
    """Another command gives up after its ten seconds, and was begun later."""
    path = socket_folder / "mute"
    mute = Mute(path)
    begun = [subprocess.Popen([CLI, "-s", path, *words.replace("{}", str(tmp_path)).split()], stdin=subprocess.DEVNULL) for words in PATIENT]
    try:
        until = time.monotonic() + 60
        while len(mute.clients) < len(PATIENT):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert subprocess.run([CLI, "-s", path, "reshard"], timeout=60, check=False, capture_output=True).returncode == 1
        assert [words for words, one in zip(PATIENT, begun) if one.poll() is not None] == []
    finally:
        for one in begun:
            one.kill()
            one.wait()


def test_every_command_prints_json_where_it_is_wanted(daemon, tmp_path):
    for words, arguments in CALLS.items():
        called = called_as(words, arguments, tmp_path)
        done = subprocess.run(
            [CLI, "-s", daemon.socket, "-o", "json", *called], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode in ((0, 1) if words in ("doctor", "config diff") else (0,)), (words, done)
        texts = done.stdout.splitlines() if words == "top" else [done.stdout]
        try:
            values = [json.loads(text) for text in texts]
        except json.JSONDecodeError:
            pytest.fail(f"no JSON of embtier {' '.join(called)}: {done.stdout[:500]!r}")
        assert values and all(isinstance(value, (dict, list)) for value in values), (words, done.stdout)
        keys = keys_of(words)
        if keys:
            keys.check(values, words, AT_TIMES.get(words, set()))


def test_the_keys_of_the_configuration_are_those_of_the_lines(daemon):
    text = subprocess.run([CLI, "config", "keys"], check=True, capture_output=True, text=True).stdout
    keys = json.loads(subprocess.run([CLI, "-o", "json", "config", "keys"], check=True, capture_output=True, text=True).stdout)["keys"]
    names = ("name", "allowed", "default", "text", "changes")
    assert [[key[name] for name in names] for key in keys] == [line.split("\t") for line in text.splitlines()]
    knobs = json.loads(subprocess.run([CLI, "-s", daemon.socket, "-o", "json", "knob", "list"], check=True, capture_output=True, text=True).stdout)
    shown = {re.sub(r"\[\d+\]", "[]", knob["name"]).removesuffix("[]") for knob in knobs["knobs"]}
    assert shown <= {key["name"] for key in keys}


def test_an_error_is_a_line_on_standard_error(daemon):
    """As without `-o json`; the exit status tells what failed."""
    for words, status in (("table show none", 1), ("knob get none", 1), ("table show", 2)):
        done = subprocess.run([CLI, "-s", daemon.socket, "-o", "json", *words.split()], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (status, "") and done.stderr.startswith("embtier"), done
