# SPDX-License-Identifier: Apache-2.0
"""Readers of a daemon's HTTP."""

from __future__ import annotations

import dataclasses
import http.client
import re
import socket
import time
from collections.abc import Callable
from typing import Any

from daemons import EMBTIERD, Daemon

HAS_HTTP = b"this embtierd was built without HTTP" not in EMBTIERD.read_bytes()
LISTEN = {"http": {"listen": "127.0.0.1:0"}}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
LIMIT_S = 60


def await_true(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.02)
    return found


def port_of(daemon: Daemon) -> int:
    """The port at which it listens since its last start."""
    found = [line["address"] for line in daemon.logged("listening") if line["address"].startswith("http://")]
    return int(found[-1].rsplit(":", 1)[1])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


def get(port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode())
    finally:
        connection.close()


_SAMPLE = re.compile(r'([a-z_]+)(?:\{([a-z]+)="([^"]*)"\})? (\S+)')
_LATENCY = re.compile(r'embtier_request_seconds_([a-z]+)\{op="([a-z]+)",transport="([a-z+]+)"(?:,le="([^"]+)")?\} (\S+)')


def samples(text: str) -> dict[tuple[str, str], float]:
    """{(name without embtier_, value of its label or ""): value}. Each may be there once."""
    found = {}
    for line in text.splitlines():
        if line.startswith(("#", "embtier_request_seconds_")):
            continue
        name, _, label, value = _SAMPLE.fullmatch(line).groups()
        key = (name.removeprefix("embtier_"), label or "")
        assert name.startswith("embtier_") and key not in found, line
        found[key] = float(value)
    return found


@dataclasses.dataclass
class Latency:
    sum: float = 0
    count: float = 0
    buckets: dict[float, float] = dataclasses.field(default_factory=dict)


def latencies(text: str) -> dict[tuple[str, str], Latency]:
    """{(operation, transport): its histogram}"""
    found: dict[tuple[str, str], Latency] = {}
    for line in text.splitlines():
        if not line.startswith("embtier_request_seconds_"):
            continue
        kind, op, transport, end, value = _LATENCY.fullmatch(line).groups()
        latency = found.setdefault((op, transport), Latency())
        if kind == "bucket":
            latency.buckets[float(end)] = float(value)
        else:
            setattr(latency, kind, float(value))
    return found


def scrape(daemon: Daemon) -> dict[tuple[str, str], float]:
    answer = get(port_of(daemon), "/metrics")
    assert answer.status == 200, answer
    return samples(answer.text)


def connect(port: int, receive_bytes: int = 0) -> socket.socket:
    stream = socket.socket()
    stream.settimeout(LIMIT_S)
    if receive_bytes:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    stream.connect(("127.0.0.1", port))
    return stream


def rest_of(stream: socket.socket) -> bytes:
    """All until the end of the connection."""
    parts = []
    try:
        while part := stream.recv(1 << 16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)
