# SPDX-License-Identifier: Apache-2.0
"""A client over any transport that can say anything. Needs neither NumPy nor libembtier, so it starts quickly."""

from __future__ import annotations

import mmap
import os
import socket
import ssl
import struct
import zlib

from control_requests import request
from raw_client import ARENA_HEAD, TIMEOUT_S, RawClient, field, fields

CALL, REPLY, SUBMIT, DONE = 1, 2, 3, 4


def rpc_frame(kind: int, number: int, message: bytes, payload: bytes = b"") -> bytes:
    head = struct.pack("<4sBBHIIQI", b"EBT1", 1, kind, 0, number, len(message), len(payload), 0)
    return head + struct.pack("<I", zlib.crc32(head)) + message + payload


class RawAny:
    """A session over any transport, whose client says what it likes."""

    def __init__(self, address: str, token: str | None = None, arena_bytes: int = 1 << 16, slots: int = 8, joins: dict | None = None) -> None:
        self.shm = self.stream = None
        hello = {"protocol_min": 1, "protocol_max": 1, "arena_bytes": arena_bytes, "slot_count": slots, "pages": True}
        if token is not None:
            hello["token"] = token
        if joins is not None:
            hello["joins"] = joins
        if address.startswith(("tcp://", "tls://")):
            place, _, authority = address[len("tcp://") :].partition("?ca=")
            host, _, port = place.rpartition(":")
            self.stream = socket.create_connection((host, int(port)), TIMEOUT_S)
            if authority:
                self.stream = ssl.create_default_context(cafile=authority).wrap_socket(self.stream, server_hostname=host)
        elif address.startswith("unix+rpc:"):
            self.stream = socket.socket(socket.AF_UNIX)
            self.stream.settimeout(TIMEOUT_S)
            self.stream.connect(address.removeprefix("unix+rpc:"))
        else:
            self.shm = RawClient(address, hello=False)
        self.next = 0
        self.greeting = self.call("hello", hello)

    def greeted(self) -> tuple[int, str]:
        """The number and the text of the error that answered the hello, or 0 and ""."""
        return error_of(self.greeting)

    def key(self) -> tuple[int, bytes]:
        """The session's number and secret."""
        hello = fields(self.greeting[5][0])
        return hello[3][0], hello[480][0]

    def __enter__(self) -> RawAny:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.shm:
            self.shm.close()
        else:
            self.stream.close()

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.stream.recv(count - len(data))
            if not more:
                raise ConnectionError("the server has closed")
            data += more
        return data

    def _receive(self) -> tuple[int, dict[int, list], bytes]:
        _, _, kind, _, _, message, payload, _, _ = struct.unpack("<4sBBHIIQII", self._read(32))
        return kind, fields(self._read(message)), self._read(payload)

    def call(self, kind: str, values: dict) -> dict[int, list]:
        """Returns the last reply's fields."""
        body = request(kind, values)[4:]  # without the length, which this stream has elsewhere
        if self.shm:
            self.shm.socket.sendall(struct.pack("<I", len(body)) + body)
            return self.shm.receive_last()
        self.stream.sendall(rpc_frame(CALL, 0, body))
        while True:
            kind_, reply, _ = self._receive()
            if kind_ == REPLY and reply.get(2):
                return reply

    def error(self, kind: str, values: dict) -> tuple[int, str]:
        """Returns the number and the text of the reply's error, or 0 and ""."""
        return error_of(self.call(kind, values))

    def access_row(self, op: int, table: int) -> int:
        """Gets or sets row 1 of a table by its handle. Returns the error."""
        segment, ids, rows = 4096, 8192, 12288
        if self.shm:
            if self.shm.arena is None:
                self._map()
            self.shm.write(ids, struct.pack("<Q", 1))
            return self.shm.request(op, [(table, ids, rows, 1)]).err
        packed = struct.pack("<QQQII", table, ids, rows, 1, 0) + struct.pack("<Q", 1) + bytes(16)
        sent, wanted = [segment, 32, ids, 8, rows, 16], [rows, 16] if op == 1 else []
        message = field(1, op) + field(3, 1) + field(4, segment) + b"".join(
            field(number, b"".join(_varint(n) for n in spans)) for number, spans in ((9, sent), (10, wanted)) if spans
        )
        self.stream.sendall(rpc_frame(SUBMIT, self.next, message, packed))
        self.next += 1
        while True:
            kind, done, _ = self._receive()
            if kind == DONE:
                return done.get(1, [0])[0]

    def _map(self) -> None:
        """Does what the raw client does after its own hello."""
        raw, said = self.shm, fields(self.greeting[5][0])
        raw.slots = said[5][0]
        control, arena, raw.doorbell = raw.descriptors
        raw.control = mmap.mmap(control, os.fstat(control).st_size, prot=mmap.PROT_READ)
        raw.arena = mmap.mmap(arena, os.fstat(arena).st_size)
        raw.arena_bytes, raw.payload = said[4][0], ARENA_HEAD + 64 * raw.slots


def _varint(value: int) -> bytes:
    return field(0, value)[1:]


def error_of(reply: dict[int, list]) -> tuple[int, str]:
    if 3 not in reply:
        return 0, ""
    said = fields(reply[3][0])
    return said[1][0], said.get(2, [b""])[0].decode()
