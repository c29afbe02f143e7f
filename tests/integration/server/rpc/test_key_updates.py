# SPDX-License-Identifier: Apache-2.0
"""A client over TLS may ask for new keys as often as it likes: the server keeps no memory of it, and serves it and others."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import os
import socket
import struct
from collections.abc import Iterator

import pytest
from daemons import SANITIZED
from doors import CA, FREED_BYTES, MIB, Door, open_table, over_tcp
from plain_client import Client

UPDATES = 1_000 if SANITIZED else 10_000
LIMIT_S = 60
VERIFY_PEER, REQUESTED = 1, 1  # SSL_VERIFY_PEER, SSL_KEY_UPDATE_REQUESTED


@pytest.fixture(scope="module", params=["tls"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def libssl() -> ctypes.CDLL:
    made = ctypes.CDLL(ctypes.util.find_library("ssl"))
    for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(made, name).restype = ctypes.c_void_p
    return made


class Updating:
    """A TLS client by OpenSSL itself, as Python's module has no updates of keys. A Client can use it as its socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._lib, self._socket = libssl(), over_tcp(address)
        self._socket.settimeout(None)  # OpenSSL is to wait, and to fail if the server never goes on
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", LIMIT_S, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._context = ctypes.c_void_p(self._lib.SSL_CTX_new(ctypes.c_void_p(self._lib.TLS_client_method())))
        assert self._lib.SSL_CTX_load_verify_file(self._context, os.fsencode(os.environ[CA])) == 1
        self._lib.SSL_CTX_set_verify(self._context, VERIFY_PEER, None)
        self._ssl = ctypes.c_void_p(self._lib.SSL_new(self._context))
        assert self._lib.SSL_set_fd(self._ssl, self._socket.fileno()) == 1
        assert self._lib.SSL_connect(self._ssl) == 1

    def settimeout(self, seconds: float) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        assert self._lib.SSL_write(self._ssl, data, len(data)) == len(data)

    def recv(self, count: int) -> bytes:
        buffer = ctypes.create_string_buffer(count)
        got = self._lib.SSL_read(self._ssl, buffer, count)
        return buffer.raw[: max(got, 0)]

    def update_keys(self) -> None:
        """Sends new keys, and asks for the server's."""
        assert self._lib.SSL_key_update(self._ssl, REQUESTED) == 1
        assert self._lib.SSL_do_handshake(self._ssl) == 1

    def close(self) -> None:
        self._lib.SSL_free(self._ssl)
        self._lib.SSL_CTX_free(self._context)
        self._socket.close()


@pytest.fixture
def client(door: Door) -> Iterator[Client]:
    with contextlib.closing(Client(Updating(door.address))) as made:
        made.hello()
        yield made


@pytest.mark.parametrize("each", [100, UPDATES], ids=["answers between", "one answer"])
def test_10_000_updates_of_keys_leave_nothing(door: Door, client: Client, each: int):
    """A client that reads nothing meanwhile has the server wait with its own new keys."""
    table = open_table(client)

    def update() -> None:
        for turn in range(1, UPDATES + 1):
            client.socket.update_keys()
            if turn % each == 0:
                assert open_table(client) == table

    with door.serves_others():
        door.must_stop_growing(update, FREED_BYTES or MIB)
    door.must_serve()
