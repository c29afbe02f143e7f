# SPDX-License-Identifier: Apache-2.0
"""A session over several connections: its requests take all of them, and all end together."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from plain_client import DONE, ERROR, GET, HELLO, HELLO_REPLY, LIMIT_S, REFUSED, SET, SUBMIT, TABLE_OPEN, Client, frame, message
from test_protocol import create
from test_reconnect import Proxy, port_of, tcp_server
from test_rpc import addresses_of, serving

import embtier

MIB = 1 << 20


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def address(daemon) -> str:
    return f"{daemon.path}.rpc"


@pytest.fixture
def clients(address) -> Iterator[list[Client]]:
    made = [Client(address) for _ in range(3)]
    yield made
    for client in made:
        client.close()


def join(client: Client, session: dict, wanted: int = HELLO_REPLY) -> dict:
    return client.call(HELLO, {1: 1, 2: 1, 490: message({1: session[3], 2: session[480]})}, wanted)


def sessions(daemon) -> int:
    with daemon.connect(arena_bytes=0) as server:
        return server.status()["metrics"]["sessions"]


# ---- As the page says ----


def test_a_second_connection_in_plain_python_carries_requests(clients, name):
    first, second, third = clients
    session = first.hello()
    assert session[490] == 16
    assert 490 not in third.hello(arena_bytes=0)  # a session without a region has one connection
    table = create(first, name)
    joined = join(second, session)
    assert (joined[3], joined[4], joined[5]) == (session[3], session[4], session[5])
    assert 480 not in joined  # the session has its secret
    segment, ids, rows = struct.pack("<QQQII", table[1], 128, 192, 2, 0), struct.pack("<2Q", 5, 7), struct.pack("<8f", *range(8))
    # Request 1 comes first, on the second connection, and waits for request 0.
    get = message({1: GET, 3: 1, 4: 1024, 9: [1024, 32], 10: [2048, 32]})
    second.send(frame(SUBMIT, 1, get, struct.pack("<QQQII", table[1], 128, 2048, 2, 0)))
    first.send(frame(SUBMIT, 0, message({1: SET, 3: 1, 4: 64, 9: [64, 32, 128, 16, 192, 32]}), segment + ids + rows))
    kind, number, done, _ = first.receive()
    assert (kind, number, done.get(1, 0)) == (DONE, 0, 0)
    kind, number, done, payload = second.receive()
    assert (kind, number, done.get(1, 0), payload) == (DONE, 1, 0, rows)


def test_calls_go_over_the_first_connection(clients, name):
    first, second, _ = clients
    session = first.hello()
    create(first, name)
    join(second, session)
    error = second.call(TABLE_OPEN, {1: name}, ERROR)
    assert "first connection" in error[2].decode()


def test_a_slot_stays_with_its_connection(clients):
    first, second, _ = clients
    session = first.hello()
    join(second, session)
    body = message({1: GET, 3: 1, 4: 64, 10: [64, 32]})
    first.send(frame(SUBMIT, 0, body))
    assert first.receive()[0] == DONE
    for number in range(1, 4):
        second.send(frame(SUBMIT, number, body))
        assert second.receive()[0] == DONE
    second.send(frame(SUBMIT, 4, body))
    kind, number, error, _ = second.receive()
    assert (kind, number) == (REFUSED, 4)
    assert "another connection than request 0" in error[2].decode()
    assert first.is_closed()


# ---- Connections that no session takes ----


def test_a_session_takes_no_stranger(clients):
    first, second, third = clients
    session = first.hello()
    number, secret = session[3], session[480]
    wrong = bytes([secret[0] ^ 1]) + secret[1:]
    for key in ((number, wrong), (number, b""), (number, secret[:31]), (number, secret + b"x"), (number + 1000, secret), (0, secret)):
        assert "no session of this client" in join(second, {3: key[0], 480: key[1]}, ERROR)[2].decode()
    join(second, session)  # it may say hello again
    # The second connection has no session, and so no secret.
    for nearby in range(max(0, number - 3), number + 4):
        assert "no session of this client" in join(third, {3: nearby, 480: bytes(32)}, ERROR)[2].decode()


def test_a_session_without_a_region_takes_no_connection(clients):
    first, second, _ = clients
    session = first.hello(arena_bytes=0)
    assert "no session of this client" in join(second, session, ERROR)[2].decode()


def test_there_are_sixteen_connections_at_most(address):
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(contextlib.closing(Client(address))) for _ in range(17)]
        session = made[0].hello()
        for client in made[1:16]:
            join(client, session)
        assert "has 16 connections" in join(made[16], session, ERROR)[2].decode()


def test_each_connection_counts_as_a_session(own_daemon):
    made = [Client(f"{own_daemon.path}.rpc") for _ in range(3)]
    session = made[0].hello()
    for client in made[1:]:
        join(client, session)
    until(lambda: sessions(own_daemon) == 4)  # and the one that asks; that of the daemon's start may end later
    made[0].close()
    until(lambda: sessions(own_daemon) == 1)
    for client in made:
        client.close()


# ---- The end of one is the end of all ----

HEAD = frame(SUBMIT, 1, message({1: GET, 3: 1, 4: 64, 9: [64, 32]}), bytes(32))


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("sent", [b"", HEAD[:10], HEAD[:40], HEAD[:-5], HEAD], ids=["idle", "head", "message", "payload", "request"])
def test_all_connections_end_with_one(daemon, address, lost, sent):
    """Also in the middle of a frame, and while a request waits for one that never comes."""
    before = sessions(daemon)
    made = [Client(address) for _ in range(3)]
    session = made[0].hello()
    for client in made[1:]:
        join(client, session)
    made[lost].send(sent)
    made[2].send(frame(SUBMIT, 2, message({1: GET, 3: 1, 4: 64, 10: [64, 32]})))
    made[lost].close()
    for client in made:
        if client is not made[lost]:
            assert client.is_closed()
            client.close()
    until(lambda: sessions(daemon) <= before)


def test_a_connection_that_is_older_than_its_session_ends_with_it(own_daemon):
    older, first = (Client(f"{own_daemon.path}.rpc") for _ in range(2))
    join(older, first.hello())
    older.close()
    assert first.is_closed()
    first.close()
    time.sleep(0.1)  # another client would have the server look again; too short a time finds nothing
    own_daemon.stop()


def test_no_connection_holds_the_region_of_a_session_that_is_over(own_daemon):
    """An answer that nobody reads would, and then the region would count in no account."""
    first, second = (Client(f"{own_daemon.path}.rpc") for _ in range(2))
    most = 48 * MIB
    session = first.hello(arena_bytes=most + MIB)
    table = create(first, "t")
    join(second, session)
    segment = struct.pack("<QQQII", table[1], 128, 192, 2, 0)
    first.send(frame(SUBMIT, 0, message({1: GET, 3: 1, 4: 64, 9: [64, 32], 10: [192, 32]}), segment))
    assert first.receive()[0] == DONE
    second.send(frame(SUBMIT, 1, message({1: GET, 3: 1, 4: 64, 9: [64, 32], 10: [192, most]}), segment))
    taken = len(second.read(32))  # the answer has begun
    first.close()
    with own_daemon.connect(arena_bytes=0) as server:
        until(lambda: server.status()["metrics"]["session_arena_bytes"] == 0)
    with contextlib.suppress(ConnectionError):
        while more := len(second.socket.recv(MIB)):
            taken += more
    assert taken < most / 2
    second.close()


def test_a_mistake_on_one_connection_ends_all(clients):
    first, second, third = clients
    session = first.hello()
    join(second, session)
    join(third, session)
    second.send(b"no frame" * 8)
    assert second.receive()[0] == REFUSED
    assert all(client.is_closed() for client in clients)


# ---- libembtier ----


def use(server: embtier.Server, name: str) -> None:
    table = server.create_table(name, dim=8, rows=10000, optimizer="sgd", init=("constant", 1))
    batches = [server.batch([(table, 500)]) for _ in range(7)]
    for turn in range(30):
        for i, batch in enumerate(batches):
            batch.ids(0)[:] = np.arange(500) + 500 * i
            batch.rows(0)[:] = turn * 100 + i
            batch.submit_set()
        for batch in batches:
            batch.wait()
        for batch in batches:
            batch.rows(0)[:] = -1
            batch.submit_get()
        for i, batch in enumerate(batches):
            batch.wait()
            assert (batch.rows(0) == turn * 100 + i).all()


@pytest.fixture(params=["auto", "off"], ids=["io_uring", "epoll"])
def io_uring(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_requests_take_all_connections(tmp_path, io_uring, name, count):
    rpc = f'  listen: ["tcp://127.0.0.1:0"]\n  threads: 2\n  io_uring: {io_uring}\n'
    with serving(tmp_path, rpc) as (_, log):
        address = addresses_of(log)[0]
        with embtier.connect(f"{address}?connections={count}", arena_bytes=8 * MIB, timeout=LIMIT_S) as server:
            assert server.status()["metrics"]["sessions"] == count
            use(server, name)
            server.reconnect()
            until(lambda: server.status()["metrics"]["sessions"] == count)  # the old one counts until its memory is freed
        with embtier.connect(address, arena_bytes=0, timeout=LIMIT_S) as server:
            until(lambda: server.status()["metrics"]["sessions"] == 1)


class Spoiler(Proxy):
    """Has the server refuse what the second connection sends, and passes that on before the end of the first one."""

    def __init__(self, server_port: int) -> None:
        self.spoils = False
        self.has_ended = threading.Event()
        super().__init__(server_port)

    def _pass_on(self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket) -> None:
        if not self.spoils:
            super()._pass_on(pair, source, sink)
        elif source is pair[0]:
            assert pair is self._pairs[1]
            sink.sendall(b"no frame" * 8 if source.recv(65536) else b"")
        else:
            client, server = self._pairs[1]
            with contextlib.suppress(ConnectionError):
                while data := server.recv(65536):
                    client.sendall(data)
            for pair in list(self._pairs):
                self._cut(pair)
            self.has_ended.set()


@pytest.mark.parametrize("way", ["wait", "call"])
def test_the_reason_of_a_further_connection_is_told(tmp_path, way):
    with tcp_server(tmp_path) as (_, address):
        proxy = Spoiler(port_of(address))
        with embtier.connect(f"tcp://127.0.0.1:{proxy.port}?connections=2", arena_bytes=MIB, timeout=LIMIT_S) as server:
            table = server.create_table("t", dim=8, rows=100, optimizer="sgd")
            table.get([1])
            batch = server.batch([(table, 1)])
            batch.ids(0)[:] = 1
            proxy.spoils = True
            batch.submit_get()
            if way == "call":
                assert proxy.has_ended.wait(LIMIT_S)
            with pytest.raises(embtier.DisconnectedError, match="the server refused a frame: "):
                batch.wait() if way == "wait" else server.status()
        proxy.end()


def test_a_client_of_control_messages_has_one_connection(daemon):
    with embtier.connect(f"unix+rpc:{daemon.path}.rpc?connections=4", arena_bytes=0, timeout=LIMIT_S) as server:
        with daemon.connect(arena_bytes=0) as other:
            until(lambda: other.status()["metrics"]["sessions"] == 2)  # those of earlier tests may end later
        assert server.status()


@pytest.mark.parametrize("wrong", ["0", "17", "", "x", "1x", "-1", "001", "4294967297"])
def test_a_wrong_number_of_connections_is_refused(wrong):
    with pytest.raises(embtier.InvalidError, match="connections="):
        embtier.connect(f"tcp://127.0.0.1:1?connections={wrong}", timeout=1)
