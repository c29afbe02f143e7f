# SPDX-License-Identifier: Apache-2.0
"""Helpers: what bash and zsh make of a line, what the help says of a command, and what a terminal gets of its output."""

from __future__ import annotations

import contextlib
import functools
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from conftest import EMBTIERD

CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier")).resolve()
LIMIT_S = 60


def embtier(*words: str, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, **how)


# ---- The help ----


def commands() -> list[str]:
    listed = embtier("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    return [re.split(r" {2,}", line.strip())[0] for line in listed.splitlines()]


@functools.cache
def own_help(command: str) -> str:
    """Without the options of every command."""
    return embtier(*command.split(), "--help").stdout.partition("Options of every command")[0]


@functools.cache
def common_help() -> str:
    return embtier("--help").stdout.partition("Options of every command")[2].partition("\n\n")[0]


def lines_of_options(text: str) -> set[str]:
    """The options that have a line of their own, or a part of one."""
    lines = re.findall(r"^ +(-(?:.|-[a-z0-9-]+)(?: \S+)?(?:, -(?:.|-[a-z0-9-]+)(?: \S+?)?)*)(?:  |$| [a-z])", text, re.MULTILINE)
    return {word for line in lines for word in re.findall(r"(?:^|, )(--?[a-z0-9A-Z-]+)", line)}


# ---- bash ----

_BASH = """\
source <("$1" completion bash)
COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
[[ $(complete -p embtier) =~ -F\\ ([a-z_]+) ]]
"${BASH_REMATCH[1]}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


def split(word: str) -> list[str]:
    """As bash splits a word of the line; a blank at its end is an empty word that follows."""
    return [part for part in re.split(r"([=:]+)", word) if part] or [""]


def bash(script: str, *words: str | Path, **how) -> list[str]:
    command = ["bash", "--norc", "--noprofile", "-u", "-c", script, "bash", *map(str, words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, **how)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.splitlines()


def bash_completes(line: str, **how) -> list[str]:
    """The words that bash offers at the end of @line, behind its last = or :."""
    first, *others = line.split(" ")
    parts = [part for word in others for part in split(word)]
    if others[-1].endswith(("=", ":")):
        parts.append("")
    return bash(_BASH, CLI, first, *parts, **how)


# ---- zsh ----

_ZSH = """\
PS1= PS2= RPS1=
unsetopt beep autolist automenu
autoload -Uz compinit && compinit -u -d {folder}/dump
compadd()
{{
    local -a found
    if [[ " $* " != *" -"[AOD]" "* ]]; then
        builtin compadd -O found "$@"
        (($#found == 0)) || print -rl -- $found >>{folder}/found
    fi
    builtin compadd "$@"
}}
capture()
{{
    zle complete-word
    BUFFER=
    print -r -- '(end)' >>{folder}/found
}}
zle -N capture
bindkey '^I' capture
print -r -- '(ready)' >>{folder}/found
"""


class Zsh:
    """An interactive zsh on a terminal, with embtier's script in its path of functions."""

    def __init__(self, folder: Path, **environment: str | Path):
        self.folder, self.ours = folder, -1
        self.found = folder / "found"
        (folder / "functions").mkdir()
        (folder / "functions/_embtier").write_text(embtier("completion", "zsh").stdout)
        (folder / "setup").write_text(f"fpath=({folder}/functions $fpath)\n" + _ZSH.format(folder=folder))
        environment = {**os.environ, "TERM": "xterm", "PATH": f"{CLI.parent}:{os.environ['PATH']}", **map_of_text(environment)}
        self.ours, its = pty.openpty()
        self.process = subprocess.Popen(
            ["zsh", "-f", "-i"], stdin=its, stdout=its, stderr=its, cwd=folder, env=environment, start_new_session=True
        )
        os.close(its)
        self.shown = b""
        self._type(f"source {folder}/setup\r", "(ready)")

    def _type(self, text: str, end: str) -> list[str]:
        self.found.unlink(missing_ok=True)
        os.write(self.ours, text.encode())
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.02)[0]:
                self.shown += os.read(self.ours, 65536)
            lines = self.found.read_text().splitlines() if self.found.exists() else []
            if end in lines:
                return lines[: lines.index(end)]
        raise AssertionError(self.shown)

    def completes(self, line: str) -> list[str]:
        return self._type(line + "\t", "(end)")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


def map_of_text(values: dict[str, str | Path]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


# ---- A terminal ----


def on_terminal(*words: str | Path, until: Callable[[str], bool] | None = None, **environment: str) -> str:
    """Runs the command, and returns the bytes that its terminal got. It is ended when these are enough for @until."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", **environment}
    process = subprocess.Popen([CLI, *words], stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=environment)
    os.close(its)
    seen = b""
    deadline = time.monotonic() + LIMIT_S
    with contextlib.suppress(OSError):  # a terminal ends with EIO
        while time.monotonic() < deadline and not (until and until(seen.decode(errors="replace"))):
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 65536)
    assert time.monotonic() < deadline, seen
    if until:
        process.kill()
    os.close(ours)
    process.wait()
    return seen.decode()
