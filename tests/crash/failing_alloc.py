# SPDX-License-Identifier: Apache-2.0
"""The test's side of tests/faults/failing_alloc.c: chooses the allocation that fails, and counts allocations."""

from __future__ import annotations

import collections
import mmap
import os
import struct
import subprocess
import time

from daemons import EMBTIERD, Daemon

FAIL_AT, CALLS, FAILED, FAILED_SITE, LIVE, LIVE_BYTES, DUMP, USED, SITE_COUNT, SITES = range(0, 80, 8)
FILE_BYTES = 4096


class Allocations:
    """Allocations of @daemon's own code, from its next start on."""

    def __init__(self, daemon: Daemon) -> None:
        path = daemon.folder / "allocations"
        path.write_bytes(bytes(FILE_BYTES))
        daemon.with_fault("failing_alloc", EMBTIER_FAULT_CONTROL=str(path))
        file = os.open(path, os.O_RDWR)
        self._words = mmap.mmap(file, FILE_BYTES)
        os.close(file)

    def _get(self, at: int) -> int:
        return struct.unpack_from("<Q", self._words, at)[0]

    def _set(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self._words, at, value)

    def forget(self) -> None:
        """Before a start: clears the figures that an earlier process left in the file."""
        self._words[:] = bytes(FILE_BYTES)

    def fail(self, n: int) -> None:
        """Makes the @n-th allocation from now on fail, once. With 0 none fails, but they are counted."""
        self._set(FAIL_AT, 0)
        for at in (CALLS, FAILED, FAILED_SITE):
            self._set(at, 0)
        self._set(FAIL_AT, n)

    def end(self) -> bool:
        """Lets allocations succeed again. True if one failed."""
        self._set(FAIL_AT, 0)
        return self._get(FAILED) > 0

    @property
    def calls(self) -> int:
        return self._get(CALLS)

    @property
    def live(self) -> int:
        return self._get(LIVE)

    @property
    def failed_site(self) -> str:
        return source_lines([self._get(FAILED_SITE)])[0]

    def live_sites(self, ask) -> collections.Counter:
        """The sites of all live allocations, counted; @ask makes the daemon allocate something."""
        self._dump(ask)
        return self._sites()

    def left(self) -> str:
        """The allocations that the process had not freed at its end; "" if there are none."""
        return f"{self.live} left after {self.failed_site}: {dict(self._sites())}" if self.live else ""

    def _sites(self) -> collections.Counter:
        count = min(self._get(SITE_COUNT), (FILE_BYTES - SITES) // 8)
        return collections.Counter(source_lines(struct.unpack_from(f"<{count}Q", self._words, SITES)))

    def used_bytes(self, ask) -> int:
        """The bytes that the whole process has allocated, libraries included; free memory that the allocator keeps is not
        counted."""
        self._dump(ask)
        return self._get(USED)

    def _dump(self, ask) -> None:
        self._set(DUMP, 1)
        deadline = time.monotonic() + 60
        while self._get(DUMP):
            ask()
            assert time.monotonic() < deadline

    def settled_live(self) -> int:
        """The live allocations, once their number has settled. Memory of earlier requests may be freed after their answers, as
        that of sessions whose clients have gone. On a busy machine this takes a while."""
        live, since = self.live, time.monotonic()
        while time.monotonic() - since < 0.3:
            time.sleep(0.01)
            if self.live != live:
                live, since = self.live, time.monotonic()
        return live

    def await_at_most(self, wanted: int, seconds: float = 60) -> int:
        """Waits until at most @wanted are live. Fewer are right too: the number that seemed settled may have been read too
        early."""
        deadline = time.monotonic() + seconds
        while (live := self.live) > wanted and time.monotonic() < deadline:
            time.sleep(0.001)
        return live


def source_lines(sites) -> list[str]:
    """Functions and lines if the program has debug information, else offsets."""
    offsets = [hex(max(site, 1) - 1) for site in sites]
    command = ["addr2line", "-f", "-s", "-e", str(EMBTIERD), *offsets]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return offsets
    return [f"{offset} {lines[2 * i]} {lines[2 * i + 1]}" for i, offset in enumerate(offsets)]
