# SPDX-License-Identifier: Apache-2.0
"""A zsh on a terminal completes lines with the script of `embtier completion zsh`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from shells import Zsh, bash_completes, commands

pytestmark = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")


@pytest.fixture
def zsh(tmp_path: Path) -> Iterator[Zsh]:
    shell = Zsh(tmp_path)
    yield shell
    shell.close()


def test_commands_and_options_are_those_of_bash(zsh):
    lines = ["", *dict.fromkeys(f"{command.split()[0]} " for command in commands() if " " in command)]
    for line in lines:
        assert sorted(zsh.completes(f"embtier {line}")) == sorted(bash_completes(f"embtier {line}")), line
    for command in commands():
        offered = {word.rstrip("=") for word in zsh.completes(f"embtier {command} -")}
        assert offered == set(bash_completes(f"embtier {command} -")), command
    assert zsh.completes("embtier -o json --timeout=3 table m") == ["move"]
    assert all(word.startswith("-") for word in zsh.completes("embtier no-command "))


def test_values_of_options(zsh):
    assert zsh.completes("embtier -o ") == ["text", "json"]
    assert zsh.completes("embtier --output=j") == ["json"]
    assert zsh.completes("embtier table create users --home ") == ["cache", "array"]
    assert zsh.completes("embtier table move users --home=") == ["cache", "array", "split"]
    assert zsh.completes("embtier table create users --init u") == ["uniform:"]
    assert zsh.completes("embtier table create users --seed ") == []
    assert zsh.completes("embtier completion ") == ["bash", "zsh"]
    assert "--san" in zsh.completes("embtier keys client keys trainer --san DNS:a --s"), "it may be given several times"
    assert zsh.completes("embtier keys client keys trainer --days 3 --d") == []


def test_files_and_folders(zsh, tmp_path):
    (tmp_path / "run.plan").touch()
    (tmp_path / "runs").mkdir()
    for line in ("apply ", "plan diff a.plan ", "plan make new.plan --profile ", "keys show a.crt b.crt ", "-s "):
        assert {"run.plan", "runs"} <= set(zsh.completes(f"embtier {line}ru")), line
    found = zsh.completes("embtier keys ca ru")
    assert "runs" in found and "run.plan" not in found
    assert zsh.completes("embtier table create ru") == []


def test_tables_of_a_running_server(daemon, server, tmp_path):
    for table in ("users", "users.before", "items"):
        server.create_table(table, 2, 10)
    shell = Zsh(tmp_path, EMBTIER_SOCKET="/nowhere")
    try:
        assert sorted(shell.completes(f"embtier -a {daemon.socket} table show ")) == ["items", "users", "users.before"]
        assert sorted(shell.completes(f"embtier table drop --address={daemon.socket} us")) == ["users", "users.before"]
        assert shell.completes(f"embtier get -s unix+rpc:{daemon.socket}.rpc i") == ["items"]
        assert shell.completes("embtier table show ") == [], "no server"
        assert b"no embtierd" not in shell.shown
    finally:
        shell.close()
