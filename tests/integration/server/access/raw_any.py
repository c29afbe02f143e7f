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

# Where a request for one row of four numbers lies in the region.
SEGMENT, IDS, BAG_OFFSETS, ROWS, GRADIENTS = 4096, 8192, 8256, 12288, 12352


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
        return self.call_bytes(request(kind, values)[4:])  # without the length, which other streams have elsewhere

    def call_bytes(self, body: bytes) -> dict[int, list]:
        """The same for a Request that is encoded already."""
        if self.shm:
            self.shm.socket.sendall(struct.pack("<I", len(body)) + body)
            return self.shm.receive_last()
        self.stream.sendall(rpc_frame(CALL, 0, body))
        while True:
            kind, reply, _ = self._receive()
            if kind == REPLY and reply.get(2):
                return reply

    def error(self, kind: str, values: dict) -> tuple[int, str]:
        """Returns the number and the text of the reply's error, or 0 and ""."""
        return error_of(self.call(kind, values))

    def access_row(self, op: int, table: int) -> int:
        """Gets or sets row 1 of a table by its handle. Returns the error."""
        return self.submit(op, struct.pack("<QQQII", table, IDS, ROWS, 1, 0))[0]

    def submit(self, op: int, segment: bytes = b"", flags: int = 0, step: int = 0, ticket: int = 0) -> tuple[int, int]:
        """Asks for an operation on row 1 of a table, whose weights are 1 and whose gradients are 0. Returns the error and the ticket."""
        ones = struct.pack("<4f", 1, 1, 1, 1)
        places = {IDS: struct.pack("<Q", 1), BAG_OFFSETS: struct.pack("<2I", 0, 1), ROWS: ones, GRADIENTS: bytes(16)}
        if segment:
            places[SEGMENT] = segment
        at, count = (SEGMENT, 1) if segment else (0, 0)
        if self.shm:
            if self.shm.arena is None:
                self._map()
            for place, data in places.items():
                self.shm.write(place, data)
            done = self.shm.request(op, [], flags=flags, segments_offset=at, segment_count=count, step=step, ticket=ticket)
            return done.err, done.ticket
        spans = b"".join(_varint(place) + _varint(len(data)) for place, data in places.items())
        numbers = {1: op, 2: flags, 3: count, 4: at, 5: step, 6: ticket}
        message = b"".join(field(number, value) for number, value in numbers.items()) + field(9, spans)
        message += field(10, _varint(ROWS) + _varint(16))
        self.stream.sendall(rpc_frame(SUBMIT, self.next, message, b"".join(places.values())))
        self.next += 1
        while True:
            kind, done, _ = self._receive()
            if kind == DONE:
                return done.get(1, [0])[0], done.get(7, [0])[0]

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
