# SPDX-License-Identifier: Apache-2.0
"""Makes a server's input and output fail where a test says; the other half is tests/faults/failing_io.c."""

from __future__ import annotations

import errno
import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path

# In the order of failing_io.c.
CALLS = [
    "open", "read", "stream", "write", "sync", "resize", "allocate", "rename", "link", "unlink", "mkdir", "rmdir",
    "list", "stat",
]  # fmt: skip
KINDS = ["log", "table", "manifest", "current", "json", "seal", "checkpoint", "info", "folder", "shelf", "other"]
SHORT = -1

_HEAD = struct.Struct("=IIIiIIII")
_COUNTS = struct.Struct(f"={len(CALLS) * len(KINDS)}Q")

# The errors of each call, and whether all later calls fail too. Only writes can be cut short for ever, and no call can be
# interrupted for ever: a correct caller would never stop retrying. EINTR "from then on" is therefore a thousand calls in a row,
# after which calls succeed.
ONCE, ON = False, True
_EIO = [("EIO", ONCE), ("EIO", ON)]
_ERRORS = [*_EIO, ("ENOSPC", ONCE), ("ENOSPC", ON), ("EDQUOT", ON)]
_INTERRUPTED = [("EINTR", ONCE), ("EINTR", ON)]
FAULTS = {
    "open": [*_ERRORS, *_INTERRUPTED],
    "read": [*_EIO, ("SHORT", ONCE), *_INTERRUPTED],
    "stream": [*_EIO, *_INTERRUPTED],
    "write": [*_ERRORS, ("SHORT", ONCE), ("SHORT", ON), *_INTERRUPTED],
    "sync": [*_ERRORS, *_INTERRUPTED],
    "resize": [*_ERRORS, *_INTERRUPTED],
    "allocate": [*_ERRORS, *_INTERRUPTED],
    # Local disks do not interrupt these calls today, but some remote ones do. Once is enough.
    "rename": [*_ERRORS, ("EINTR", ONCE)],
    "link": [*_ERRORS, ("EINTR", ONCE)],
    "mkdir": [*_ERRORS, ("EINTR", ONCE)],
    "unlink": [*_EIO, ("EINTR", ONCE)],
    "rmdir": [*_EIO, ("EINTR", ONCE)],
    "list": [*_EIO, ("EINTR", ONCE)],
    "stat": [*_EIO, ("EINTR", ONCE)],
}


@dataclass(frozen=True)
class Fault:
    """@at: the number of the call, counted per call and kind of file, from 1. @on: all later calls fail too; with EINTR only a
    thousand, since a correct caller retries until it is not interrupted."""

    call: str
    kind: str
    error: str
    on: bool
    at: int

    def __str__(self) -> str:
        return f"{self.call}-{self.kind}-{self.error}-{'from' if self.on else 'at'}-{self.at}"

    @staticmethod
    def parse(text: str) -> Fault:
        call, kind, error, on, at = re.fullmatch(r"(\w+)-(\w+)-(\w+)-(from|at)-(\d+)", text).groups()
        return Fault(call, kind, error, on == "from", int(at))


def faults_of(call: str) -> list[tuple[str, bool]]:
    return FAULTS[call]


class Control:
    """The fault and the counts, in memory shared with the server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_HEAD.size + _COUNTS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def arm(self, fault: Fault) -> None:
        error = SHORT if fault.error == "SHORT" else getattr(errno, fault.error)
        head = [0, CALLS.index(fault.call), KINDS.index(fault.kind), error, fault.at, fault.on, 0, 0]
        self._map[: _HEAD.size] = _HEAD.pack(*head)
        self._map[:4] = struct.pack("=I", 1)

    def disarm(self) -> int:
        """Ends the fault. Returns the number of calls that failed."""
        self._map[:4] = struct.pack("=I", 0)
        return _HEAD.unpack(self._map[: _HEAD.size])[-1]

    @property
    def failed(self) -> int:
        return _HEAD.unpack(self._map[: _HEAD.size])[-1]

    def counts(self) -> dict[tuple[str, str], int]:
        """The calls so far, for each call and kind of file."""
        counts = iter(_COUNTS.unpack(self._map[_HEAD.size :]))
        return {(call, kind): next(counts) for call in CALLS for kind in KINDS}
