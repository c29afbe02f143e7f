# SPDX-License-Identifier: Apache-2.0
"""A client that can say anything: frames by hand, shared memory by offset. libembtier would refuse much of it before sending.
Layout: proto/ops.h, proto/shm_ring.h, proto/control.proto."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence

GET, SET, PUSH, RELEASE = 1, 2, 4, 5
NO_SEGMENT = 2**32 - 1
CONTROL_HEAD, ARENA_HEAD = 128, 128
TIMEOUT_S = 60


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes | str | float) -> bytes:
    """One protobuf field."""
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def fields(data: bytes) -> dict[int, list]:
    """The fields of a protobuf message, by number."""
    at, found = 0, {}

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            (value,) = struct.unpack_from("<d", data, at)
            at += 8
        else:
            assert key & 7 == 2
            count = varint()
            value = data[at : at + count]
            at += count
        found.setdefault(key >> 3, []).append(value)
    return found


def frame(payload: bytes) -> bytes:
    return struct.pack("<I", len(payload)) + payload


class Completion:
    def __init__(self, data: bytes) -> None:
        (self.sequence, self.err, self.segment, _, self.value, self.limit, self.hit_rows, self.ticket) = (
            struct.unpack("<IIIIQQQQ", data[:48])
        )

    def __repr__(self) -> str:
        return f"<err {self.err} segment {self.segment} value {self.value} limit {self.limit}>"


class RawClient:
    """A session, to be used as a context manager. Leaving it closes the socket."""

    def __init__(self, path: str, arena_bytes: int = 1 << 20, slots: int = 8, hello: bool = True, replaces: bytes = b"") -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(path)
        self.received = b""
        self.descriptors: list[int] = []
        self.control = self.arena = None
        self.next = 0
        if hello:
            self.hello(arena_bytes, slots, replaces=replaces)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for memory in (self.control, self.arena):
            if memory is not None:
                memory.close()
        for fd in self.descriptors:
            os.close(fd)
        self.control = self.arena = None
        self.descriptors = []
        self.socket.close()

    # ---- Control messages ----

    def send(self, body: int, payload: bytes, request_id: int = 1) -> None:
        self.socket.sendall(frame(field(1, request_id) + field(body, payload)))

    def receive(self) -> dict[int, list]:
        """Returns the next reply's fields. Raises ConnectionError at the end."""
        while True:
            if len(self.received) >= 4:
                (count,) = struct.unpack_from("<I", self.received)
                if len(self.received) >= 4 + count:
                    payload = self.received[4 : 4 + count]
                    self.received = self.received[4 + count :]
                    return fields(payload)
            data, descriptors, _, _ = socket.recv_fds(self.socket, 65536, 8)
            self.descriptors += descriptors
            if not data:
                raise ConnectionError("the server has closed")
            self.received += data

    def call(self, body: int, payload: bytes = b"", request_id: int = 1) -> dict[int, list]:
        """Sends a request, and returns the last reply's fields; {3: …} is an error."""
        self.send(body, payload, request_id)
        return self.receive_last()

    def receive_last(self) -> dict[int, list]:
        """The last reply to a request. On a slow machine progress messages come before it."""
        while True:
            reply = self.receive()
            if reply.get(2):
                return reply

    def send_hello(self, arena_bytes: int, slots: int, pages: bool = True, replaces: bytes = b"") -> None:
        """@replaces: a SessionKey."""
        self.send(
            2,
            field(1, 1) + field(2, 1) + field(3, arena_bytes) + field(4, slots) + field(5, "raw")
            + field(380, pages) + (field(480, replaces) if replaces else b""),
        )  # fmt: skip

    def take_hello(self) -> None:
        reply = self.receive_last()
        assert 5 in reply, reply
        said = fields(reply[5][0])
        self.number, self.secret = said[3][0], said[480][0]
        if 4 not in said:
            return
        self.slots = said[5][0]
        control, arena, self.doorbell = self.descriptors
        self.control = mmap.mmap(control, os.fstat(control).st_size, prot=mmap.PROT_READ)
        self.arena = mmap.mmap(arena, os.fstat(arena).st_size)
        self.arena_bytes = said[4][0]
        self.payload = ARENA_HEAD + 64 * self.slots
        assert len(self.arena) == self.arena_bytes

    def hello(self, arena_bytes: int, slots: int, pages: bool = True, replaces: bytes = b"") -> None:
        self.send_hello(arena_bytes, slots, pages, replaces)
        self.take_hello()

    def handle(self, table: str) -> int:
        return fields(self.call(4, field(1, table))[6][0])[1][0]

    def drop(self, table: str) -> dict[int, list]:
        return self.call(6, field(1, table))

    # ---- Requests ----

    def write(self, offset: int, data: bytes) -> None:
        self.arena[offset : offset + len(data)] = data

    def read(self, offset: int, count: int) -> bytes:
        return self.arena[offset : offset + count]

    def set_tail(self, tail: int) -> None:
        # In one write: struct.pack_into() may put zeros there first, or go byte by byte, while the lane looks.
        with memoryview(self.arena) as arena, arena[:4] as first, first.cast("I") as word:
            word[0] = tail % 2**32
        os.write(self.doorbell, struct.pack("<Q", 1))  # whether the lane asks for it or not

    def submit(
        self,
        op: int,
        segments: Sequence[tuple[int, ...]],
        *,
        flags: int = 0,
        segments_offset: int | None = None,
        segment_count: int | None = None,
        step: int = 0,
        ticket: int = 0,
    ) -> int:
        """Publishes a request and returns its number. A segment is (table, ids offset, rows offset, id
        count) and, if given, flags. The segments are put at the payload's start."""
        if segments_offset is None:
            segments_offset = self.payload
            packed = b"".join(struct.pack("<QQQII", *s, *(0,) * (5 - len(s))) for s in segments)
            self.write(segments_offset, packed)
        count = len(segments) if segment_count is None else segment_count
        number = self.next
        slot = ARENA_HEAD + 64 * (number % self.slots)
        self.write(slot, struct.pack("<IIIIQQQ24x", op, flags, count, 0, segments_offset, step, ticket))
        self.next = (number + 1) % 2**32
        self.set_tail(self.next)
        return number

    def completion(self, number: int) -> Completion | None:
        at = CONTROL_HEAD + 64 * (number % self.slots)
        if struct.unpack_from("@I", self.control, at)[0] != (number + 1) % 2**32:
            return None
        return Completion(self.control[at : at + 64])  # read after its sequence, so it is complete

    @property
    def closed_why(self) -> int:
        return struct.unpack_from("<I", self.control, 68)[0]

    def wait(self, number: int) -> Completion:
        deadline = time.monotonic() + TIMEOUT_S
        while (completion := self.completion(number)) is None:
            if self.closed_why:
                raise ConnectionError(f"the session was ended: error {self.closed_why}")
            assert time.monotonic() < deadline, "no answer"
            time.sleep(0.0005)
        return completion

    def request(self, op: int, segments: Sequence[tuple[int, ...]], **options) -> Completion:
        return self.wait(self.submit(op, segments, **options))
