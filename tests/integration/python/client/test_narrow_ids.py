# SPDX-License-Identifier: Apache-2.0
"""The client sends ids in as few bytes as they need, to servers that take them so, and the same rows come back."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from plain_client import LIMIT_S, SUBMIT, WRITE, fields_of

import embtier

MIB = 1 << 20
COUNT = 100
NARROW_IDS = b"\x90\x1c\x01"  # the field of HelloReply by which a server takes them
UNKNOWN = b"\xf8\x7c\x01"  # another field, that no client knows


def numbers_of(packed: bytes) -> list[int]:
    numbers, shift, value = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            shift = value = 0
    return numbers


class Listener:
    """Passes the bytes between one client and the server on, and keeps those of the client. @is_old: the server's hello lacks narrow ids."""

    def __init__(self, folder: Path, server_path: str, is_old: bool) -> None:
        self.path = str(folder / "listener")
        self.sent = bytearray()
        self._is_old = is_old
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._listener.settimeout(LIMIT_S)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(server_path)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._listener.accept()
        with client, self._server as server, self._listener:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(MIB)
                    if not data:
                        return
                    if source is client:
                        self.sent += data
                    elif self._is_old and NARROW_IDS in data:
                        data, self._is_old = data.replace(NARROW_IDS, UNKNOWN), False
                    (server if source is client else client).sendall(data)

    def end(self) -> None:
        with contextlib.suppress(OSError):  # the client has ended it
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def requests(self) -> list[dict[str, list[int]]]:
        """Spans and narrow ones of each frame with a payload that was sent before an answer that has come."""
        found, at = [], 0
        while at < len(self.sent):
            kind, _, message_bytes, payload_bytes = struct.unpack_from("<5xB2xIIQ", self.sent, at)
            at += 32
            fields = fields_of(bytes(self.sent[at : at + message_bytes]))
            at += message_bytes + payload_bytes
            if kind in (SUBMIT, WRITE):
                sent, narrow = (9, 11) if kind == SUBMIT else (1, 2)
                found.append({"sent": numbers_of(fields.get(sent, b"")), "narrow": numbers_of(fields.get(narrow, b""))})
        return found


@pytest.fixture(params=[False, True], ids=["narrow", "old"])
def is_old(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def listener(daemon, tmp_path, is_old) -> Iterator[Listener]:
    made = Listener(tmp_path, f"{daemon.path}.rpc", is_old)
    yield made
    made.end()


def get_and_set(server: embtier.Server, table: embtier.Table) -> None:
    ids = np.arange(COUNT, dtype=np.uint64) * 7
    rows = np.arange(COUNT * 4, dtype=np.float32).reshape(COUNT, 4)
    table.set(ids, rows)
    assert (table.get(ids) == rows).all()


def lookup_and_push(server: embtier.Server, table: embtier.Table) -> None:
    bags = server.bag_batch([embtier.Bags(table, COUNT, 1)])
    bags.ids(0)[:] = np.arange(COUNT)
    bags.offsets(0)[:] = [0, COUNT]
    assert (bags.lookup().bags(0) == COUNT).all()
    push = server.push_batch([(table, COUNT)])
    push.ids(0)[:], push.gradients(0)[:] = np.arange(COUNT), 1
    push.push(0.5, 1)
    assert (table.get(np.arange(COUNT)) == 0.5).all()


def prefetch(server: embtier.Server, table: embtier.Table) -> None:
    batch = server.prefetch_batch([(table, COUNT)])
    batch.ids(0)[:] = np.arange(COUNT)
    batch.prefetch().release()


def load(server: embtier.Server, table: embtier.Table) -> None:
    ids = np.arange(COUNT, dtype=np.uint64)
    server.load_table("loaded_" + table.name[:80], 4, [(ids, np.ones((COUNT, 4), np.float32))], rows=1000)


def move(server: embtier.Server, table: embtier.Table) -> None:
    server.move_table(table.name, "split", tier="dram", hot_rows=np.arange(COUNT))


@pytest.mark.parametrize(("use", "times"), [(get_and_set, 2), (lookup_and_push, 3), (prefetch, 1), (load, 1), (move, 1)])
def test_ids_are_narrow_if_the_server_takes_them_so(listener, name, is_old, use: Callable, times: int):
    with embtier.connect(f"unix+rpc:{listener.path}", arena_bytes=4 * MIB, timeout=LIMIT_S) as server:
        use(server, server.create_table(name, dim=4, rows=1000, optimizer="sgd", init=("constant", 1)))
    narrow = [(request["sent"][i // 8 * 2 + 1], i % 8) for request in listener.requests() for i in request["narrow"]]
    assert narrow == ([] if is_old else [(8 * COUNT, 2 if use is get_and_set else 1)] * times)


EDGES = [0, 255, 256, 2**16 - 1, 2**16, 2**24 - 1, 2**24, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
@pytest.mark.parametrize("edge", EDGES)
def test_ids_on_both_sides_of_a_width_are_those_that_were_sent(daemon, name, count, edge):
    """A row that is written under an id as one span has it is read under that id alone."""
    ids = np.arange(5, 5 + count, dtype=np.uint64)
    ids[ids == edge] = 4  # each id is there once
    ids[count // 2] = edge
    rows = np.arange(count * 2, dtype=np.float32).reshape(count, 2)
    with embtier.connect(f"unix+rpc:{daemon.path}.rpc", arena_bytes=MIB, timeout=LIMIT_S) as server:
        table = server.create_table(name, dim=2, rows=None)
        batch = server.batch([(table, count)])
        batch.ids(0)[:], batch.rows(0)[:] = ids, rows
        batch.set()
        batch.rows(0)[:] = -1
        batch.get()
        assert (batch.rows(0) == rows).all() and (batch.ids(0) == ids).all()
    with daemon.connect(arena_bytes=MIB) as server:  # over shared memory, or one at a time
        table = server.open_table(name)
        assert (np.vstack([table.get(ids[i : i + 1]) for i in range(count)]) == rows).all()


@pytest.mark.parametrize("filled", [40, 20], ids=["side by side", "with gaps"])
def test_batches_that_take_turns_between_narrow_and_wide_ids(listener, name, is_old, filled):
    """More turns than a list has spans. Each row comes from the id that its part named."""
    parts = 700
    with embtier.connect(f"unix+rpc:{listener.path}", arena_bytes=64 * MIB, timeout=LIMIT_S) as server:
        table = server.create_table(name, dim=4, rows=None)
        ids = [np.arange(filled, dtype=np.uint64) + np.uint64(i * 100 + [0, 2**32, 2**20][i % 3]) for i in range(parts)]
        batch = server.batch([(table, 40)] * parts)
        for i in range(parts):
            batch.set_count(i, filled)
            batch.ids(i)[:], batch.rows(i)[:] = ids[i], i
        batch.set()
        for i in range(parts):
            batch.rows(i)[:] = -1
        batch.get()
        assert all((batch.rows(i) == i).all() for i in range(parts))
    for request in listener.requests():
        assert len(request["sent"]) <= 2 * 256
        assert bool(request["narrow"]) != is_old
