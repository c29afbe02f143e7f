# SPDX-License-Identifier: Apache-2.0
"""A client that is written from docs/protocol.md alone, without libembtier and protobuf. It can also send what no client should."""

from __future__ import annotations

import socket
import ssl
import struct
import zlib

CALL, REPLY, SUBMIT, DONE, WRITE, DATA, READ, REFUSED = range(1, 9)
GET, SET, POOL, PUSH, RELEASE, PREFETCH = range(1, 7)
HELLO, TABLE_CREATE, TABLE_OPEN = 2, 3, 4  # numbers of bodies in a Request, control.proto
ERROR, HELLO_REPLY, TABLE_INFO = 3, 5, 6  # … in a Reply
UNSUPPORTED, PROTOCOL, VERSION, TOO_LARGE, ID_RANGE = "UNSUPPORTED", "PROTOCOL", "VERSION", "TOO_LARGE", "ID_RANGE"
LIMIT_S = 60


# ---- Protocol Buffers, as far as they are needed ----


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def message(fields: dict[int, int | bytes | str | list[int]]) -> bytes:
    """Numbers, texts, messages, and packed lists of numbers."""
    out = b""
    for number, value in fields.items():
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
            continue
        if isinstance(value, list):
            value = b"".join(map(varint, value))
        data = value.encode() if isinstance(value, str) else value
        out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def fields_of(data: bytes) -> dict[int, int | bytes]:
    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    fields, at = {}, 0
    while at < len(data):
        key = take()
        kind = key & 7
        size = {0: 0, 1: 8, 2: -1, 5: 4}[kind]
        if kind == 0:
            fields[key >> 3] = take()
            continue
        size = take() if size < 0 else size
        fields[key >> 3] = data[at : at + size]
        at += size
    return fields


# ---- Frames ----


def head(kind: int, number: int, message_bytes: int, payload_bytes: int, version: int = 1, magic: bytes = b"EBT1") -> bytes:
    front = struct.pack("<4sBBHIIQI", magic, version, kind, 0, number, message_bytes, payload_bytes, 0)
    return front + struct.pack("<I", zlib.crc32(front))


def frame(kind: int, number: int, body: bytes, payload: bytes = b"") -> bytes:
    return head(kind, number, len(body), len(payload)) + body + payload


def low_bytes(ids: bytes, width: int) -> bytes:
    """The lowest bytes of each 64-bit id."""
    return ids if width == 8 else b"".join(ids[at : at + width] for at in range(0, len(ids), 8))


class Client:
    """One connection: to the Unix stream at a path, or over a stream that is connected already."""

    def __init__(self, at: str | socket.socket) -> None:
        self.socket = socket.socket(socket.AF_UNIX) if isinstance(at, str) else at
        self.socket.settimeout(LIMIT_S)
        if isinstance(at, str):
            self.socket.connect(at)
        self.region = bytearray(65536)
        self.next = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return bytes(data)

    def receive(self) -> tuple[int, int, dict, bytes]:
        data = self.read(32)
        magic, version, kind, zero, number, message_bytes, payload_bytes, zero_too, crc = struct.unpack("<4sBBHIIQII", data)
        assert (magic, version, zero, zero_too, crc) == (b"EBT1", 1, 0, 0, zlib.crc32(data[:28]))
        return kind, number, fields_of(self.read(message_bytes)), self.read(payload_bytes)

    def call(self, body: int, fields: dict, wanted: int) -> dict:
        self.send(frame(CALL, 0, message({1: 7, body: message(fields)})))
        while True:
            kind, _, reply, payload = self.receive()
            assert (kind, reply[1], payload) == (REPLY, 7, b"")
            if reply.get(2):  # the last one
                assert wanted in reply, reply
                return fields_of(reply[wanted])

    def hello(self, arena_bytes: int = 65536, slots: int = 4, more: dict | None = None) -> dict:
        return self.call(HELLO, {1: 1, 2: 1, 3: arena_bytes, 4: slots, 5: "a test", 380: 1} | (more or {}), HELLO_REPLY)

    def payload(self, sent: list[int], narrow: dict[int, int]) -> bytes:
        spans = [bytes(self.region[at : at + count]) for at, count in zip(sent[::2], sent[1::2])]
        return b"".join(low_bytes(span, narrow.get(i, 8)) for i, span in enumerate(spans))

    def submit(self, fields: dict, sent: list[int], wanted: list[int], narrow: dict[int, int] | None = None) -> dict:
        """@narrow: the bytes of each id of those spans."""
        narrow = narrow or {}
        lists = {9: sent, 10: wanted, 11: [8 * span + width for span, width in narrow.items()]}
        self.send(frame(SUBMIT, self.next, message(fields | lists), self.payload(sent, narrow)))
        kind, number, done, payload = self.receive()
        assert (kind, number) == (DONE, self.next)
        self.next += 1
        for at, count in zip(wanted[::2], wanted[1::2]) if payload else ():
            self.region[at : at + count], payload = payload[:count], payload[count:]
        assert payload == b""
        return done

    def is_closed(self) -> bool:
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionResetError, ssl.SSLEOFError):  # TLS says the last one of some resets
            return True
        except ssl.SSLError as error:
            return error.reason == "UNEXPECTED_EOF_WHILE_READING"

    def is_ended(self) -> bool:
        """As above, and over TLS with close_notify: a connection that the server merely drops raises an error."""
        try:
            while True:
                self.receive()
        except EOFError:
            return True

    def close(self) -> None:
        self.socket.close()
