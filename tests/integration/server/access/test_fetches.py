# SPDX-License-Identifier: Apache-2.0
"""A connection over TLS makes the server look no algorithm of OpenSSL up: each time takes locks, which OpenSSL 3.0 has too few of."""

from __future__ import annotations

import mmap
import struct

import numpy as np
import pytest
from accessed import Guarded

CONNECTIONS = 10


class Fetches:
    """The control of tests/faults/counted_fetches.c."""

    def __init__(self, daemon: Guarded) -> None:
        path = daemon.folder / "fetches"
        path.write_bytes(bytes(4096))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 4096)
        daemon.with_fault("counted_fetches", EMBTIER_FAULT_CONTROL=str(path))

    def counts(self) -> tuple[int, int]:
        """Lookups by the server's own code, and by OpenSSL's."""
        return struct.unpack_from("<QQ", self._memory)


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    yield daemon
    daemon.end()


def work(guarded: Guarded) -> None:
    with guarded.connect_as("boss", "tls") as server:
        table = server.open_table("rows")
        table.set(np.arange(10), np.ones((10, 4)))
        assert table.get(np.arange(10)).sum() == 40


def test_a_connection_fetches_no_algorithm(guarded):
    fetches = Fetches(guarded)
    guarded.start()
    with guarded.connect_as("boss", "tls") as server:
        server.create_table("rows", 4)
    work(guarded)
    own, library = fetches.counts()
    assert own > 0 and library > 0  # the context's suites and the hash of tokens were fetched, so calls are counted
    for _ in range(CONNECTIONS):
        work(guarded)
    own_then, library_then = fetches.counts()
    assert own_then == own
    assert library_then > library  # OpenSSL's own code does, in each handshake
