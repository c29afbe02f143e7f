# SPDX-License-Identifier: Apache-2.0
"""Shows progress on standard error: on a terminal a bar with the remaining time, else a line now and then."""

from __future__ import annotations

import sys
import time

WIDTH = 30
REDRAW_S = 0.1
LINES = 10  # in all, without a terminal


class ProgressBar:
    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self._terminal = sys.stderr.isatty()
        self._started = time.monotonic()
        self._drawn = 0.0
        self._lines = 0

    def show(self, done: int, text: str) -> None:
        """Shows that @done of the total are done, and @text."""
        now = time.monotonic()
        share = done / self.total
        left_s = (now - self._started) * (1 / share - 1) if share else 0.0
        if self._terminal:
            if done < self.total and now - self._drawn < REDRAW_S:
                return
            bar = ("#" * round(WIDTH * share)).ljust(WIDTH, ".")
            end = "\n" if done == self.total else ""
            line = f"\r{self.title} [{bar}] {share:4.0%}, {left_s:3.0f} s left, {text}\x1b[K{end}"
            print(line, end="", file=sys.stderr, flush=True)
        elif share * LINES >= self._lines:
            line = f"{self.title} {done:>{len(str(self.total))}}/{self.total}, {left_s:3.0f} s left, {text}"
            print(line, file=sys.stderr, flush=True)
            self._lines = int(share * LINES) + 1
        self._drawn = now
