# SPDX-License-Identifier: Apache-2.0
"""`embtier top` on a terminal of its own, whose screen is read by pyte."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable

import pyte
from daemons import CLI

LIMIT_S = 60


class Screen:
    def __init__(self, *arguments: str, lines: int = 24, columns: int = 80, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [CLI, *arguments], stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True,
            env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._screen.resize(lines, columns)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.02) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """Returns the lines of the screen as soon as they are so."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            self.read()
            if is_so(self.lines):
                return self.lines
            assert self.process.poll() is None, self.text
            assert time.monotonic() < deadline, self.text

    def wait_for(self, words: str) -> list[str]:
        return self.wait(lambda lines: any(words in line for line in lines))

    def ends(self, code: int) -> None:
        """The program ends, or has ended, and left the terminal as it was: modes, cursor and screen."""
        deadline = time.monotonic() + LIMIT_S
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, self.text
        self.read(0)
        assert self.process.returncode == code, self.text
        assert termios.tcgetattr(self.slave) == self.before
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l") == 1
        assert self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
