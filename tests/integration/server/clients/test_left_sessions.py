# SPDX-License-Identifier: Apache-2.0
"""A client with shared memory comes back with a new session, and its hello names the old one. The old one's memory may still hold
requests, and its client may write more."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Iterator

import numpy as np
import pytest
from raw_client import GET, SET, RawClient, field

DIM = 4
IDS = [3, 5]
LIMIT_S = 60


@pytest.fixture
def table(own_daemon) -> Iterator[str]:
    with own_daemon.connect() as server:
        server.create_table("kept", DIM, 100).set(np.arange(100), np.zeros((100, DIM)))
    return "kept"


def key_of(client: RawClient) -> bytes:
    return field(1, client.number) + field(2, client.secret)


def submit_set(client: RawClient, table: int, value: float) -> int:
    ids, rows = client.payload + 4096, client.payload + 8192
    client.write(ids, struct.pack("<2Q", *IDS))
    client.write(rows, struct.pack("<f", value) * DIM * 2)
    return client.submit(SET, [(table, ids, rows, 2)])


def value_of(client: RawClient, table: int) -> float:
    ids, rows = client.payload + 4096, client.payload + 8192
    client.write(ids, struct.pack("<2Q", *IDS))
    assert client.request(GET, [(table, ids, rows, 2)]).err == 0
    return struct.unpack("<f", client.read(rows, 4))[0]


def await_answer_or_end(client: RawClient, number: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not client.completion(number) and not client.closed_why:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_request_after_the_comeback_is_not_taken(own_daemon, table):
    with RawClient(own_daemon.path) as old:
        handle = old.handle(table)
        with RawClient(own_daemon.path, replaces=key_of(old)) as client:
            number = submit_set(old, handle, 7.0)
            await_answer_or_end(old, number)
            assert old.completion(number) is None
            assert old.closed_why
            assert value_of(client, handle) == 0


def test_a_stalled_server_takes_nothing_of_the_old_session_once_it_has_answered(own_daemon, table):
    """The old session's requests lie in its memory while the server is stopped, and so does the new hello in its socket."""
    with RawClient(own_daemon.path) as old, RawClient(own_daemon.socket, hello=False) as client:
        handle = old.handle(table)
        os.kill(own_daemon.pid, signal.SIGSTOP)
        first = submit_set(old, handle, 1.0)
        client.send_hello(1 << 20, 8, replaces=key_of(old))
        os.kill(own_daemon.pid, signal.SIGCONT)
        client.take_hello()
        before = value_of(client, handle)
        last = submit_set(old, handle, 2.0)
        await_answer_or_end(old, last)
        assert value_of(client, handle) == before
        # A request that was under way may have left out rows, as its client was gone. It is not answered then.
        assert before == 1.0 or (before == 0.0 and old.completion(first) is None)


def test_the_old_memory_can_be_read_until_its_client_closes(own_daemon, table):
    """A client copies what it needs into the new session's."""
    with RawClient(own_daemon.path) as old:
        old.write(old.payload, b"gradients")
        with RawClient(own_daemon.path, replaces=key_of(old)):
            assert old.closed_why
            assert old.read(old.payload, 9) == b"gradients"
            assert own_daemon.metrics()["sessions"] >= 2


def test_a_session_that_is_named_again_and_one_without_memory(own_daemon, table):
    with RawClient(own_daemon.path, arena_bytes=0) as old:
        key = key_of(old)
        for _ in range(3):
            with RawClient(own_daemon.path, replaces=key) as client:
                assert value_of(client, client.handle(table)) == 0
        with pytest.raises(ConnectionError):
            old.handle(table)


def test_a_wrong_secret_ends_nothing(own_daemon, table):
    with RawClient(own_daemon.path) as old:
        for secret in (b"", bytes(32), old.secret[:-1], old.secret + b"x"):
            with RawClient(own_daemon.path, replaces=field(1, old.number) + field(2, secret)):
                assert not old.closed_why
        assert value_of(old, old.handle(table)) == 0
