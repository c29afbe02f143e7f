# SPDX-License-Identifier: Apache-2.0
"""States in which a client over a network may die. Each function of STATES brings a new connection there and returns what must
live as long as the client. As a program it forks clients that kill themselves there: STATE KIND TIMES PATH, or
HOST and PORT."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from control_requests import ADAM, request
from doors import DIM, KINDS, MIB, TABLE, Address, await_bytes, bare, client_hello, open_table, rows_request
from plain_client import CALL, DONE, ERROR, GET, HELLO_REPLY, POOL, READ, SET, SUBMIT, WRITE, Client, fields_of, frame, message
from plain_client import HELLO as HELLO_FIELD

BUSY, PUSH, PREFETCH, TICKET = 12, 4, 6, 2
SLOTS = 16
RESTORED = "restored-"


@dataclass(frozen=True)
class Connect:
    """Makes connections to a server."""

    kind: str
    address: Address

    def __call__(self) -> socket.socket:
        return KINDS[self.kind](self.address)



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


def half_a_handshake(connect: Connect) -> Client:
    """With TLS, the server has sent its certificate."""
    client = Client(bare(connect.address))
    if connect.kind == "tls":
        client.send(client_hello(connect.address))
        await_bytes(client.socket)
    return client


def refused(connect: Connect) -> Client:
    """A client of another version. It has its answer, and stays a stranger."""
    client = raw(connect, call_frame("hello", {"protocol_min": 8, "protocol_max": 9, "client": "later"}))
    assert ERROR in client.receive()[2]
    return client


def session(connect: Connect) -> Client:
    client = Client(connect())
    client.hello(8 * MIB, SLOTS)
    return client


def a_further_connection(connect: Connect) -> Client:
    """It has begun a request that waits for one on the first connection."""
    first, further = Client(connect()), Client(connect())
    granted = first.hello(8 * MIB, SLOTS)
    further.call(HELLO_FIELD, {1: 1, 2: 1, 490: message({1: granted[3], 2: granted[480]})}, HELLO_REPLY)
    body, payload = rows_request(first, GET, 100)
    further.send(frame(SUBMIT, 1, body, payload))
    further.first = first  # lives as long
    return further


def fill(client: Client, body: bytes, payload: bytes, cut: int | None) -> Client:
    """Sends as many requests as there are slots, the last one cut off."""
    last = frame(SUBMIT, SLOTS - 1, body, payload)
    client.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(SLOTS - 1)) + last[:cut])
    return client


def requests(connect: Connect, op: int, count: int, cut: int | None = None) -> Client:
    client = session(connect)
    return fill(client, *rows_request(client, op, count, os.getpid() % 50 * 1000), cut)


def pools(connect: Connect, bags: int, cut: int | None = None) -> Client:
    """Lookups with tickets, of four rows a bag."""
    client = session(connect)
    count = 4 * bags
    ids, offsets = struct.pack(f"<{count}Q", *range(count)), struct.pack(f"<{bags + 1}I", *range(0, count + 1, 4))
    offsets_at = 256 + len(ids)
    bags_at = (offsets_at + len(offsets) + 63) // 64 * 64
    segment = struct.pack("<QQQQQIII12x", open_table(client), 256, bags_at, offsets_at, 0, count, bags, 1)
    sent = [64, len(segment), 256, len(ids) + len(offsets)]
    body = message({1: POOL, 2: TICKET, 3: 1, 4: 64, 9: sent, 10: [bags_at, bags * DIM * 4]})
    return fill(client, body, segment + ids + offsets, cut)


def pushes(connect: Connect, count: int, cut: int | None = None) -> Client:
    """By ids, with a gradient each."""
    client = session(connect)
    ids = struct.pack(f"<{count}Q", *range(2000, 2000 + count))
    segment = struct.pack("<QQQQdIIIIQ", open_table(client), 256, 256 + len(ids), 0, 0.0, count, DIM, 0, 0, 0)
    payload = segment + ids + bytes(count * DIM * 4)
    return fill(client, message({1: PUSH, 3: 1, 4: 64, 5: 1, 9: [64, len(segment), 256, len(payload) - len(segment)]}), payload, cut)


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


def begun(client: Client, kind: str, values: dict) -> Client:
    """The server has the call when it answers the frame behind it, or the call."""
    client.send(call_frame(kind, values) + frame(READ, 0, message({1: [64, 8]})))
    await_bytes(client.socket)
    return client


def a_checkpoint(connect: Connect) -> Client:
    return begun(session(connect), "checkpoint_create", {"automatic": True})  # the server keeps the newest of these


def a_restore(connect: Connect) -> Client:
    """The table stays, if it could be made."""
    return begun(session(connect), "checkpoint_restore", {"id": 1, "tables": [TABLE], "name": f"{RESTORED}{time.time_ns()}"})


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
    "half a handshake": half_a_handshake,
    "half a head": lambda connect: raw(connect, HELLO[:20]),
    "half a hello": lambda connect: raw(connect, HELLO[:-3]),
    "a hello": lambda connect: raw(connect, HELLO),
    "a hello that is refused": refused,
    "a session": session,
    "a further connection": a_further_connection,
    "half a payload": half_a_payload,
    "gets in lanes": lambda connect: requests(connect, GET, 1000, 60),
    "sets in lanes": lambda connect: requests(connect, SET, 500, -1),
    "pools in lanes": lambda connect: pools(connect, 100, -1),
    "pushes in lanes": lambda connect: pushes(connect, 500, -1),
    "answers going out": answers_go_out,
    "parts going out": parts_go_out,
    "half a write": half_a_write,
    "an export": an_export,
    "an import": an_import,
    "a checkpoint": a_checkpoint,
    "a restore": a_restore,
    "tickets and prefetches": tickets_and_prefetches,
    "a group": a_group,
}


def main(state: str, kind: str, times: str, at: str, port: str | None = None) -> None:
    connect = Connect(kind, at if port is None else (at, int(port)))
    for _ in range(int(times)):
        child = os.fork()
        if child == 0:
            try:
                held = STATES[state](connect)
                os.kill(os.getpid(), signal.SIGKILL)
                del held
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(f"a child ended by itself: {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
