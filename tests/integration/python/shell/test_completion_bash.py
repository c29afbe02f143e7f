# SPDX-License-Identifier: Apache-2.0
"""A bash that is not interactive runs the script of `embtier completion bash`. It offers the commands and options that the help
has, values that the program allows, files, and the tables of a running server."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from shells import CLI, bash, bash_completes, common_help, commands, embtier, lines_of_options, own_help

COMMANDS = commands()
# Prints the options of the command $2, with their values as the script has them.
OPTIONS = 'source <("$1" completion bash); _embtier_describe "$2"; printf "%s\\n" "${options[@]}"'


def test_commands_are_those_of_the_help():
    assert sorted(bash_completes("embtier ")) == sorted({command.split()[0] for command in COMMANDS})
    for group in {command.split()[0] for command in COMMANDS if " " in command}:
        words = [command.split()[1] for command in COMMANDS if command.startswith(group + " ")]
        assert sorted(bash_completes(f"embtier {group} ")) == sorted(words)
    assert bash_completes("embtier ta") == ["table"]
    assert bash_completes("embtier -o json --timeout 3 table m") == ["move"]
    assert bash_completes("embtier --timeout=3 table m") == ["move"]
    assert bash_completes("embtier jobs c") == ["cancel"]
    assert bash_completes("embtier no-command ") == []


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_those_of_the_help(command):
    """The script has those that getopt accepts."""
    common = lines_of_options(common_help())
    offered = bash_completes(f"embtier {command} -")
    assert len(offered) == len(set(offered))
    documented = {"-a", "--address", "-s", "--socket", "-o", "--output", "-t", "--timeout", "-h", "--help", "-V", "--version"}
    assert common == documented <= set(offered)
    own, text = set(offered) - common, own_help(command).partition("\n\n")[2]
    assert lines_of_options(text) - common <= own, "the help has an option that getopt does not accept"
    mentioned = set(re.findall(r"--[a-z0-9-]+", text))
    assert {option for option in own if option.startswith("--")} <= mentioned, "an option is not in the help"
    # The letter may stand in another command's help, which this one refers to.
    letters = {option for option in own if not option.startswith("--")}
    assert letters <= set().union(*(lines_of_options(own_help(other)) for other in COMMANDS)), "a letter is not in the help"


def is_taken(command: str, option: str, value: str) -> bool:
    done = embtier("--address", "/nowhere", *command.split(), option, value)
    return option.lstrip("-") not in done.stderr.partition("Try ")[0] or "is missing" in done.stderr


# Options whose values are checked only when all files were read.
LATER = {("plan make", "--optimizer"), ("plan what-if", "--optimizer")}


def test_words_for_values_are_those_that_the_program_allows():
    seen = set()
    for command in COMMANDS:
        for option, _, value in (one.partition("=") for one in bash(OPTIONS, CLI, command)):
            if value in ("", "@any", "@file", "@folder", "@table") or not option.startswith("--"):
                continue
            words = value.split("|")
            refusal = embtier(*command.split(), option, "no-such-value").stderr
            allowed = re.search(r"allowed: (.*)", refusal)
            if allowed and (command, option) not in LATER:  # other words are in capitals, as in "uniform:LOW,HIGH"
                said = re.findall(r"(?:^|, )([a-z0-9_-]+:?)(?=[A-Z,]|$)", allowed[1])
                assert words == said or (words == ["unbounded"] and "unbounded" in said), (command, refusal)
            for word in words:
                assert word.endswith(":") or is_taken(command, option, word), (command, option, word)
            assert not is_taken(command, option, "no-such-value") or (command, option) in LATER
            seen.add(option)
    assert seen == {"--dtype", "--optimizer", "--init", "--rounding", "--durability", "--home", "--rows", "--format", "--solver",
                    "--locality", "--like", "--sort"}  # fmt: skip


def test_values_of_options():
    assert bash_completes("embtier -o ") == ["text", "json"]
    assert bash_completes("embtier --output=j") == ["json"]
    assert bash_completes("embtier table create users --home ") == ["cache", "array"]
    assert bash_completes("embtier table move users --home=") == ["cache", "array", "split"]
    assert bash_completes("embtier table create --dtype=b") == ["bf16"]
    assert "rowwise_adagrad" in bash_completes("embtier table create users --rows 7 --optimizer ")
    assert bash_completes("embtier table create users --init u") == ["uniform:"]
    assert bash_completes("embtier table create users --seed ") == []
    assert bash_completes("embtier completion ") == ["bash", "zsh"]


def test_files_and_folders(tmp_path):
    (tmp_path / "run.plan").touch()
    (tmp_path / "runs").mkdir()
    for line in ("apply ", "plan diff a.plan ", "plan make new.plan --profile ", "keys show a.crt b.crt ", "import ", "-a "):
        assert sorted(bash_completes(f"embtier {line}{tmp_path}/ru")) == [f"{tmp_path}/run.plan", f"{tmp_path}/runs"], line
    assert bash_completes(f"embtier keys ca {tmp_path}/ru") == [f"{tmp_path}/runs"]
    assert sorted(bash_completes("embtier plan make --machine=ru", cwd=tmp_path)) == ["run.plan", "runs"]
    assert bash_completes("embtier table create ru", cwd=tmp_path) == []
    assert bash_completes("embtier plan diff a.plan b.plan ru", cwd=tmp_path) == []
    assert bash_completes("embtier apply -- -", cwd=tmp_path) == [], "behind -- there are no options"


def test_tables_of_a_running_server(daemon, server):
    for table in ("users", "users.before", "items"):
        server.create_table(table, 2, 10)
    address = daemon.socket
    assert sorted(bash_completes(f"embtier -a {address} table show ")) == ["items", "users", "users.before"]
    assert sorted(bash_completes(f"embtier --address={address} table drop us")) == ["users", "users.before"]
    assert bash_completes(f"embtier get -s unix+rpc:{address}.rpc i") == ["items"]
    assert bash_completes(f"embtier get -s {address} items ") == [], "ids follow a table"
    named = {**os.environ, "EMBTIER_SOCKET": str(address)}
    assert sorted(bash_completes("embtier checkpoint restore 7 users us", env=named)) == ["users", "users.before"]
    assert bash_completes("embtier export i", env=named) == ["items"]


def test_without_a_server_there_are_no_tables_and_no_words(tmp_path):
    assert bash_completes(f"embtier -s {tmp_path}/none table show ") == []  # bash() expects silence


def test_a_word_of_the_line_is_not_run(tmp_path):
    for address in (f"$(touch${{IFS}}{tmp_path}/run)", f"`touch {tmp_path}/run`", f";touch {tmp_path}/run"):
        bash_completes(f"embtier -s {address.replace(' ', '')} table show ")
        bash_completes(f"embtier table show {address.replace(' ', '')}")
    assert list(tmp_path.iterdir()) == []


def test_the_script_has_no_mistake_that_shellcheck_finds(tmp_path):
    script = tmp_path / "embtier"
    script.write_text(embtier("completion", "bash").stdout)
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout


def test_the_build_installs_what_the_program_prints():
    scripts = CLI.parent / "cli/completion"
    if not scripts.exists():
        pytest.skip("the program is not in a folder of the build")
    assert (scripts / "embtier").read_text() == embtier("completion", "bash").stdout
    assert (scripts / "_embtier").read_text() == embtier("completion", "zsh").stdout


def test_other_shells_are_refused():
    done = embtier("completion", "fish")
    assert done.returncode == 2 and done.stderr.startswith("embtier completion: shell fish: allowed: bash, zsh\n")
    assert embtier("completion").returncode == 2
