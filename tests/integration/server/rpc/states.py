# SPDX-License-Identifier: Apache-2.0
"""States in which a client over a network may die. Each function of STATES brings a new connection there and returns what must
live as long as the client. As a program it forks clients that kill themselves there: STATE KIND HOST PORT TIMES."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from control_requests import ADAM, request
from doors import DIM, KINDS, MIB, TABLE, await_bytes, open_table, rows_request
from plain_client import CALL, DONE, GET, POOL, READ, SET, SUBMIT, WRITE, Client, fields_of, frame, message

BUSY, PREFETCH, TICKET = 12, 6, 2
SLOTS = 16

Connect = Callable[[], socket.socket]


def call_frame(kind: str, values: dict) -> bytes:
    return frame(CALL, 0, request(kind, values)[4:])


def call(client: Client, kind: str, values: dict) -> dict:
    """Calls again as long as the server is busy: the client before may not have ended yet."""
    deadline = time.monotonic() + 60
    client.send(call_frame(kind, values))
    while True:
        _, _, reply, _ = client.receive()
        if is_busy(reply) and time.monotonic() < deadline:
            time.sleep(0.01)
            client.send(call_frame(kind, values))
        elif reply.get(2):  # the last one
            assert 3 not in reply, reply
            return reply


def is_busy(reply: dict) -> bool:
    return 3 in reply and fields_of(reply[3])[1] == BUSY


HELLO = call_frame("hello", {"protocol_min": 1, "protocol_max": 1, "arena_bytes": MIB, "slot_count": 4, "client": "mortal"})


def raw(connect: Connect, sent: bytes = b"") -> Client:
    client = Client(connect())
    client.send(sent)
    return client


def session(connect: Connect) -> Client:
    client = Client(connect())
    client.hello(8 * MIB, SLOTS)
    return client


def requests(connect: Connect, op: int, count: int, cut: int | None = None) -> Client:
    """As many requests as there are slots, the last one cut off."""
    client = session(connect)
    body, payload = rows_request(client, op, count, os.getpid() % 50 * 1000)
    last = frame(SUBMIT, SLOTS - 1, body, payload)
    client.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(SLOTS - 1)) + last[:cut])
    return client


def half_a_payload(connect: Connect) -> Client:
    client = session(connect)
    body, payload = rows_request(client, SET, 1000)
    client.send(frame(SUBMIT, 0, body, payload)[: -len(payload) // 2])
    return client


def answers_go_out(connect: Connect) -> Client:
    """The first bytes of the answers have come."""
    client = requests(connect, GET, 4000)
    await_bytes(client.socket)
    return client


def parts_go_out(connect: Connect) -> Client:
    client = session(connect)
    client.send(frame(READ, 1, message({1: [64, 7 * MIB] * 8})))
    await_bytes(client.socket)
    return client


def half_a_write(connect: Connect) -> Client:
    client = session(connect)
    client.send(frame(WRITE, 1, message({1: [64, MIB]}), bytes(MIB))[: MIB // 2])
    return client


def an_export(connect: Connect) -> Client:
    client = session(connect)
    call(client, "scan_open", {"checkpoint": 0, "table": TABLE, "with_state": True, "all_rows": True})
    call(client, "scan_next", {"offset": 4096, "bytes": MIB})
    client.send(call_frame("scan_next", {"offset": 4096, "bytes": MIB}))
    return client


def an_import(connect: Connect) -> Client:
    client = session(connect)
    spec = {key: value for key, value in ADAM.items() if key not in ("uuid", "step")} | {"name": f"of-{time.time_ns()}", "rows": 1000}
    call(client, "load_open", {"spec": spec, "with_state": False, "row_count": 0})
    rows = struct.pack("<2Q", 1, 2) + bytes(48) + bytes(32)
    client.send(frame(WRITE, 1, message({1: [4096, len(rows)]}), rows))
    call(client, "load_rows", {"offset": 4096, "bytes": len(rows), "rows": 2, "rows_at": 64})
    client.send(call_frame("load_rows", {"offset": 4096, "bytes": len(rows), "rows": 2, "rows_at": 64}))
    return client


def submit(client: Client, number: int, fields: dict, segment: bytes, more: bytes, wanted: list[int]) -> dict:
    body = message({**fields, 3: 1, 4: 64, 9: [64, len(segment), 256, len(more)], 10: wanted})
    client.send(frame(SUBMIT, number, body, segment + more))
    kind, _, done, _ = client.receive()
    assert kind == DONE and done.get(1, 0) == 0, done
    return done


def tickets_and_prefetches(connect: Connect) -> Client:
    client = session(connect)
    table, ids = open_table(client), struct.pack("<2Q", 5, 7)
    offsets = struct.pack("<2I", 0, 2)
    for number in range(0, 8, 2):
        pool = struct.pack("<QQQQQIII12x", table, 256, 512, 272, 0, 2, 1, 1)
        assert submit(client, number, {1: POOL, 2: TICKET}, pool, ids + offsets, [512, 4 * DIM])[7]
        prefetch = struct.pack("<QQ24xI20x", table, 256, 2)
        assert submit(client, number + 1, {1: PREFETCH}, prefetch, ids, [])[7]
    return client


def a_group(connect: Connect) -> Client:
    client = session(connect)
    call(client, "group_join", {"name": f"group-{time.time_ns()}", "size": 2, "member": 0, "step": 0})
    return client


STATES: dict[str, Callable[[Connect], Client]] = {
    "connected": raw,
    "half a head": lambda connect: raw(connect, HELLO[:20]),
    "half a hello": lambda connect: raw(connect, HELLO[:-3]),
    "a hello": lambda connect: raw(connect, HELLO),
    "a session": session,
    "half a payload": half_a_payload,
    "gets in lanes": lambda connect: requests(connect, GET, 1000, 60),
    "sets in lanes": lambda connect: requests(connect, SET, 500, -1),
    "answers going out": answers_go_out,
    "parts going out": parts_go_out,
    "half a write": half_a_write,
    "an export": an_export,
    "an import": an_import,
    "tickets and prefetches": tickets_and_prefetches,
    "a group": a_group,
}


def main(state: str, kind: str, host: str, port: str, times: str) -> None:
    for _ in range(int(times)):
        child = os.fork()
        if child == 0:
            try:
                held = STATES[state](lambda: KINDS[kind]((host, int(port))))
                os.kill(os.getpid(), signal.SIGKILL)
                del held
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(f"a child ended by itself: {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
