# SPDX-License-Identifier: Apache-2.0
"""Foreign text (names, metadata, paths, a file, a client's name) cannot harm a terminal or forge a line of the log. No error
message is as long as the text it quotes."""

from __future__ import annotations

import json
import os
import subprocess

import embtier
import pytest
from daemons import CLI, EMBTIERD, log_fields
from raw_client import RawClient, field
from stores import run_cli

# A new line, terminal sequences in two forms, DEL, the other direction of writing, and invisible characters.
HOSTILE = "a\nlevel=error\x1b[2J\x9b2J\x7f\u202e\u2066\u200b\u2028\ufeff\U000e0041z"
LONG = "x" * 100_000
MOST_BYTES = 2048  # of an error with its usage


def is_plain(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def check_refused(done: subprocess.CompletedProcess, what: object) -> None:
    assert done.returncode in (1, 2, 3), what
    assert is_plain(done.stderr) and is_plain(done.stdout), (what, done.stderr[-500:])
    assert "level=error" not in done.stderr.split("\n")[0:1] and not any(
        line.startswith("level=error") for line in done.stderr.split("\n")
    ), what
    assert len(done.stderr.encode()) < MOST_BYTES, (what, len(done.stderr))


# Commands that take text, in place of {}.
ARGUMENTS = [
    ("{}",), ("table", "{}"), ("table", "show", "{}"), ("table", "drop", "--yes", "{}"), ("table", "list", "{}"),
    ("table", "create", "{}", "--rows", "1", "--dim", "1"),
    ("table", "create", "t", "--rows", "{}"), ("table", "create", "t", "--dim", "{}"),
    ("table", "create", "t", "--dtype", "{}"), ("table", "create", "t", "--optimizer", "{}"),
    ("table", "create", "t", "--init", "{}"), ("table", "create", "t", "--init", "uniform:{}"),
    ("table", "create", "t", "--seed", "{}"), ("table", "create", "t", "--rounding", "{}"),
    ("table", "create", "t", "--durability", "{}"), ("table", "create", "t", "--eps", "{}"),
    ("status", "--watch", "{}"), ("status", "--sort", "{}"), ("stats", "--watch", "{}"), ("stats", "{}"), ("endurance", "--interval", "{}"), ("status", "{}"), ("jobs", "{}"),
    ("jobs", "cancel", "{}"), ("get", "{}", "1"), ("set", "{}", "1=2"), ("get", "rows", "{}"), ("set", "rows", "{}"),
    ("set", "rows", "1={}"), ("set", "rows", "1=2{}"), ("set", "rows", "1=2,{}"), ("set", "rows", "{}=2"),
    ("checkpoint", "create", "--step", "{}"), ("checkpoint", "create", "--keep", "{}"),
    ("checkpoint", "create", "--metadata", "{}"), ("checkpoint", "show", "{}"), ("checkpoint", "verify", "{}"),
    ("checkpoint", "delete", "--yes", "{}"), ("checkpoint", "restore", "{}"), ("checkpoint", "restore", "1", "{}"),
    ("checkpoint", "restore", "1", "rows", "--as", "{}"), ("checkpoint", "restore", "1", "--as", "{}"),
    ("export", "{}", "/nowhere/x"), ("export", "rows", "/nowhere/{}"), ("export", "rows", "x", "--checkpoint", "{}"),
    ("export", "rows", "x", "--format", "{}"), ("export", "rows", "x", "--file-bytes", "{}"),
    ("import", "/nowhere/{}"), ("import", "{}", "--as", "{}"), ("import", "/dev/null", "--tensor", "{}"),
    ("import", "/dev/null", "--ids", "{}"), ("config", "check", "/nowhere/{}"), ("config", "keys", "{}"),
    ("--{}",), ("-Z{}",), ("-o", "{}"), ("-t", "{}", "status"), ("--output={}", "status"), ("--help={}",),
    ("table", "list", "--{}"), ("table", "list", "-Z{}"), ("table", "list", "--help={}"), ("-s", "/nowhere/{}", "status"),
]  # fmt: skip


@pytest.mark.parametrize("form", ARGUMENTS, ids=" ".join)
def test_what_is_quoted_of_the_command_line_is_plain_and_short(embtierd, form):
    for text in (HOSTILE, LONG, HOSTILE.encode()[:-1].decode(errors="ignore") + "\udc9b\udcff"):
        check_refused(run_cli(embtierd, *(part.replace("{}", text) for part in form)), (form, text[:20]))


@pytest.fixture(scope="module")
def embtierd(tmp_path_factory):
    from daemons import Daemon

    daemon = Daemon(tmp_path_factory.mktemp("plain") / "daemon")
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 2)
    yield daemon
    daemon.end()


def test_what_is_quoted_of_standard_input_is_plain_and_short(embtierd):
    for command in ("get", "set"):
        for text in (HOSTILE.replace("\n", ""), "x" * 50_000_000, "1=" + "y" * 50_000_000, "0" * 50_000_000 + "1=2"):
            done = subprocess.run(
                [CLI, "-s", embtierd.socket, "--timeout", "60", command, "rows", "-"],
                input=text, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            check_refused(done, (command, text[:20]))


def test_what_the_server_s_program_quotes_is_plain_and_short():
    for option in (["{}"], ["--{}"], ["-{}"], ["--restore", "{}"], ["--restore-from", "{},"], ["--log-level", "{}"],
                   ["--config", "/nowhere/{}"], ["--check={}"], ["--check", "--config", "/nowhere/{}"]):  # fmt: skip
        for text in (HOSTILE, LONG):
            done = subprocess.run(
                [EMBTIERD, *(part.replace("{}", text) for part in option)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            check_refused(done, (option, text[:20]))


def test_what_is_quoted_of_a_configuration_is_plain_and_short(tmp_path):
    for text in (HOSTILE, LONG):
        for config in (
            {text: 1}, {"log": {text: 1}}, {"log": {"level": text}}, {"data": {"directories": [text, text]}},
            {"rocksdb": {"options": f"{text}=1"}}, {"rocksdb": {"options": f"compression={text}"}},
            {"cache": {"tiers": [{"kind": "dram", "bytes": "64MiB", "name": text}]}}, {"socket": {"path": text}},
        ):  # fmt: skip
            path = tmp_path / "config.yaml"
            path.write_text(json.dumps(config))
            done = subprocess.run(
                [CLI, "config", "check", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
            check_refused(done, config)
    (tmp_path / HOSTILE).write_text("log: {level: info}")
    done = subprocess.run([CLI, "config", "check", tmp_path / HOSTILE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and is_plain(done.stdout) and done.stdout.count("\n") == 1, done


def test_metadata_is_data_but_is_escaped_where_it_is_shown(embtierd):
    with embtierd.connect() as server:
        made = server.checkpoint(metadata=[HOSTILE, {HOSTILE: "ä"}])
        raw = json.dumps(["\x9b2J\u202e\ufeff", "ä"], ensure_ascii=False, separators=(",", ":"))
        with RawClient(embtierd.path, arena_bytes=0) as client:  # the raw client escapes nothing
            assert 3 not in client.call(9, field(2, raw))
        newest = max(server.checkpoints(), key=lambda one: one.id)
        assert newest.metadata == json.loads(raw)
        assert server.checkpoint_info(made.id).metadata == [HOSTILE, {HOSTILE: "ä"}]
    for id, wanted in ((newest.id, json.loads(raw)), (made.id, [HOSTILE, {HOSTILE: "ä"}])):
        shown = run_cli(embtierd, "checkpoint", "show", str(id))
        assert shown.returncode == 0 and is_plain(shown.stdout), shown.stdout
        (line,) = (line for line in shown.stdout.split("\n") if line.startswith("metadata "))
        assert json.loads(line.split(None, 1)[1]) == wanted  # still the same JSON
        as_json = run_cli(embtierd, "-o", "json", "checkpoint", "show", str(id))
        assert as_json.stdout.isascii() and is_plain(as_json.stdout), as_json.stdout
        assert json.loads(as_json.stdout)["metadata"] == wanted


@pytest.mark.parametrize("character", ["\x1b", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028"])
def test_names_with_characters_that_harm_are_refused(embtierd, character):
    name = f"n{character}"
    with embtierd.connect() as server:
        id = server.checkpoint().id
        for call in (
            lambda: server.create_table(name, 2),
            lambda: server.join(name, size=1, member=0),
            lambda: server.restore_checkpoint(id, ["rows"], name=name),
        ):
            with pytest.raises(embtier.InvalidError) as caught:
                call()
            assert str(caught.value).isprintable()
    with embtierd.connect() as server:
        for call in (lambda: server.open_table(name), lambda: server.drop_table(name)):
            with pytest.raises(embtier.Error) as caught:
                call()
            assert str(caught.value).isprintable()


def test_no_client_forges_a_line_of_the_log(make_daemon):
    daemon = make_daemon({"log": {"level": "debug"}})
    daemon.start()
    embtier.connect(daemon.socket, client_name=HOSTILE, timeout=60).close()
    with RawClient(daemon.path, arena_bytes=0, hello=False) as client:
        client.call(2, field(1, 1) + field(2, 1) + field(5, "\x9b2J\u202e\u2028"))
    for name in ("\u202e\x9b", "\n"):
        with RawClient(daemon.path, arena_bytes=0) as client:
            client.send(4, field(1, name))
            try:
                client.receive()
            except ConnectionError:
                pass
    daemon.stop()
    text = daemon.log.read_bytes()
    assert is_plain(text.decode()), text
    lines = text.decode().splitlines()
    assert len(lines) == text.count(b"\n")
    clients = [log_fields(line).get("client", "") for line in lines]
    assert any("level=error" in one for one in clients) and any("u009b2J" in one for one in clients), clients


def test_a_path_that_is_not_utf_8_is_told_in_json(embtierd, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\x1b"
    done = subprocess.run(
        [CLI, "-s", embtierd.socket, "-o", "json", "export", "rows", path], capture_output=True, timeout=300
    )
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["path"].endswith("/\\xff\\u001b")
    done = subprocess.run([CLI, "-s", embtierd.socket, "export", "rows", path + b"2"], capture_output=True, timeout=300)
    assert done.returncode == 0 and is_plain(done.stdout.decode()), done
