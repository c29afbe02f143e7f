#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of the server for each idle client over TCP: its own, and the kernel's for it.

connections-hello has clients that have said hello without a region, as `embtier status` does. Those of connections-silent have said
nothing yet. A turn is a new server: its memory before and after all clients have come, divided by them. The kernel's memory is the
growth of its objects (/proc/slabinfo), less those of the clients' ends, which are on this machine too. Without the right to read it
only the server's own memory counts, and the figure says so. There are as many clients as the limit of descriptors has room for, at
most 10,000. A figure is one JSON object on a line, as tests/bench/lib/bench.h has it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench_daemon import Listening, embtier, listening, options

CLIENTS, CLIENTS_LEAST = 10_000, 2_000
# As config/config_descriptors.c counts: each session, with two clients over RPC that have none, and the rest of the server.
SESSION_DESCRIPTORS, OTHER_DESCRIPTORS = 11, 500
BAR_BYTES = (64 if "EMBTIER_BENCH_TLS" in os.environ else 32) << 10
TURNS = 3
SLABS = Path("/proc/slabinfo")
NAMES = {"hello": "that have said hello", "silent": "that have said nothing"}


def client_count(scale: float) -> int:
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    wanted = max(CLIENTS_LEAST, round(CLIENTS * scale))
    return min(wanted, (limit - OTHER_DESCRIPTORS) // SESSION_DESCRIPTORS)


# ---- Clients ----


def say_hello(server: Listening) -> Callable[[], None]:
    return embtier.connect(server.address, arena_bytes=0).close


def place_of(server: Listening) -> tuple[str, int]:
    host, port = server.address.partition("://")[2].partition("?")[0].rsplit(":", 1)
    return host, int(port)


def say_nothing(server: Listening) -> Callable[[], None]:
    client = socket.create_connection(place_of(server))
    if server.address.startswith("tls:"):  # after its handshake
        trusted = ssl.create_default_context(cafile=server.address.partition("?ca=")[2])
        client = trusted.wrap_socket(client, server_hostname=place_of(server)[0])
    return client.close


def descriptors(server: Listening) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def await_clients(server: Listening, before: int, count: int) -> None:
    """Waits until the server has at least a descriptor more for each, and no longer gets more."""
    deadline = time.monotonic() + 60
    there, since = descriptors(server), time.monotonic()
    while there < before + count or time.monotonic() - since < 0.2:
        if time.monotonic() > deadline:
            sys.exit(f"bench_connections: the server has {there - before} descriptors more, and should have {count} clients")
        time.sleep(0.01)
        if (now := descriptors(server)) != there:
            there, since = now, time.monotonic()


# ---- Memory ----


def own_bytes(server: Listening) -> int:
    """Pages that the server has written, and the tables that map them."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "VmPTE"))


def objects() -> dict[str, tuple[int, int]]:
    """The kernel's objects of each kind: how many, and their bytes."""
    fields = [line.split() for line in SLABS.read_text().splitlines()[2:]]
    return {each[0]: (int(each[1]), int(each[3])) for each in fields}


def kernel_bytes(before: dict[str, tuple[int, int]], count: int) -> float:
    """Growth for each of @count, in the kinds of which every third at least has one; other programs make a few of the others."""
    grown = ((now - before.get(kind, (0, 0))[0], each) for kind, (now, each) in objects().items())
    return sum(more * each for more, each in grown if more > count / 3) / count


def client_end_bytes(count: int) -> float:
    """The kernel's memory for a client's end of a connection, which is half of one to a socket of this program."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener, contextlib.ExitStack() as ends:
        before = objects()
        for _ in range(count // 2):
            ends.enter_context(socket.create_connection(listener.getsockname()))
            ends.enter_context(listener.accept()[0])
        return kernel_bytes(before, count // 2) / 2


def take_turn(connect: Callable[[Listening], Callable[[], None]], count: int, sees_kernel: bool) -> tuple[float, float]:
    """Returns the bytes of each client: the server's own, and the kernel's."""
    limits = {"max_sessions": count + 8, "max_user_sessions": count + 4}
    config = {"cache": {"tiers": [{"bytes": "16MiB"}]}, "socket": limits}
    with listening(config) as server, contextlib.ExitStack() as ends:
        descriptors_before = descriptors(server)
        own_before, objects_before = own_bytes(server), objects() if sees_kernel else {}
        for _ in range(count):
            ends.callback(connect(server))
        await_clients(server, descriptors_before, count)
        own = own_bytes(server) - own_before
        kernel = kernel_bytes(objects_before, count) if sees_kernel else 0
    return own / count, kernel - client_end_bytes(count) if sees_kernel else 0


def report(kind: str, count: int, turns: list[tuple[float, float]], without_kernel: str) -> None:
    totals = [own + kernel for own, kernel in turns]
    ratios = sorted(total / BAR_BYTES for total in totals)
    print(
        json.dumps(
            {
                "name": f"connections-{kind}",
                "unit": " B/client",
                "better": "lower",
                "ours": statistics.median(totals),
                "reference": BAR_BYTES,
                "reference_name": f"{BAR_BYTES >> 10} KiB a client",
                "reference_options": f"{count:,} clients {NAMES[kind]}" + without_kernel,
                "ratio": ratios[-1],  # the worst
                "ratio_quartiles": [ratios[len(ratios) // 4], ratios[len(ratios) * 3 // 4]],
                "n": len(turns),
                "bar": 1,
                "met": ratios[-1] <= 1,
                "server_bytes": statistics.median(own for own, _ in turns),
                "kernel_bytes": statistics.median(kernel for _, kernel in turns),
                "limit": "the kernel's sockets: the client's, and the pair to the control thread",
            }
        ),
        flush=True,
    )


def main() -> None:
    given = options(__doc__, ["connections"], TURNS)
    count = client_count(given.scale)
    sees_kernel = os.access(SLABS, os.R_OK)
    without_kernel = "" if sees_kernel else f"; without the kernel's memory, as {SLABS} cannot be read"
    print(f"bench_connections: {count:,} clients{without_kernel}", file=sys.stderr)
    for kind, connect in (("hello", say_hello), ("silent", say_nothing)):
        turns = [take_turn(connect, count, sees_kernel) for _ in range(min(given.turns, TURNS))]
        report(kind, count, turns, without_kernel)


if __name__ == "__main__":
    main()
