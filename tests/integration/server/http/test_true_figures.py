# SPDX-License-Identifier: Apache-2.0
"""Figures are true: requests, rows, hits and bytes that a client counts are those of `/metrics` and of `embtier stats`."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import numpy as np
import pytest
from daemons import CLI, Daemon
from readers import get, latencies, port_of, samples

DIM, ROWS, CALLS = 16, 4000, 60
ROW_BYTES = DIM * 4


@dataclasses.dataclass
class Counted:
    """The client's own count."""

    requests: int = 0
    get_rows: int = 0
    set_rows: int = 0
    updated_bytes: int = 0
    initial_rows: int = 0
    calls: dict[str, int] = dataclasses.field(default_factory=lambda: {"get": 0, "set": 0})


def work(server, seed: int) -> Counted:
    """Random GETs and SETs of one table: a row is read for the first time once."""
    rng, counted, seen = np.random.default_rng(seed), Counted(), set()
    table = server.create_table("t", DIM, ROWS)
    for _ in range(CALLS):
        ids = rng.choice(ROWS, size=int(rng.integers(1, 300)), replace=False)
        op = "set" if rng.random() < 0.4 else "get"
        if op == "set":
            table.set(ids, np.ones((len(ids), DIM), np.float32))
            counted.set_rows += len(ids)
            counted.updated_bytes += len(ids) * ROW_BYTES
        else:
            table.get(ids)
            counted.get_rows += len(ids)
            counted.initial_rows += len(set(ids.tolist()) - seen)
        seen |= set(ids.tolist())
        counted.requests += 1
        counted.calls[op] += 1
    return counted


def stats_of(daemon: Daemon) -> dict:
    said = subprocess.run(
        [CLI, "--address", daemon.socket, "-o", "json", "stats"], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(said.stdout)


def test_figures_are_what_the_client_counted(http_daemon: Daemon):
    with http_daemon.connect() as server:
        counted = work(server, 1)
        text = get(port_of(http_daemon), "/metrics").text
        stats, http = stats_of(http_daemon), samples(text)
    metrics = stats["metrics"]
    for name, label, expected in (
        ("requests", "", counted.requests),
        ("request_rows", "get", counted.get_rows),
        ("request_rows", "set", counted.set_rows),
        ("request_rows", "push", 0),
        ("updated_bytes", "", counted.updated_bytes),
        ("failed_rows", "", 0),
        ("lookup_rows", "initial", counted.initial_rows),
        ("lookup_rows", "ssd", 0),
    ):
        assert (metrics[name][label] if label else metrics[name]) == expected, name
        assert http[f"{name}_total", label] == expected, name
    assert sum(metrics["lookup_rows"].values()) == counted.get_rows  # each row has one source
    assert sum(value for (name, _), value in http.items() if name == "lookup_rows_total") == counted.get_rows
    assert http["table_lookup_rows_total", "t"] == counted.get_rows
    assert http["table_updated_rows_total", "t"] == counted.set_rows
    assert http["table_missed_rows_total", "t"] >= counted.initial_rows
    assert {op: latency.count for (op, _), latency in latencies(text).items()} == counted.calls
    assert {line["op"]: line["requests"] for line in stats["latencies"]} == counted.calls


def test_hit_rates_are_those_of_the_client(http_daemon: Daemon):
    """A client knows which of its rows memory served: each batch has their number."""
    with http_daemon.connect() as server:
        table = server.create_table("t", DIM, ROWS)
        table.set(np.arange(0, ROWS, 2), np.ones((ROWS // 2, DIM), np.float32))
        before = stats_of(http_daemon)["metrics"]["lookup_rows"]
        hits = asked = 0
        with server.batch([(table, ROWS)]) as batch:
            batch.ids(0)[:] = np.arange(ROWS)
            for _ in range(3):
                batch.get()
                hits, asked = hits + batch.hit_rows, asked + ROWS
        after = stats_of(http_daemon)["metrics"]["lookup_rows"]
        shown = stats_of(http_daemon)["hit_rates"]
        text = subprocess.run([CLI, "-s", http_daemon.socket, "stats"], capture_output=True, text=True, check=True, timeout=60).stdout
        (line,) = [line.split() for line in text.splitlines() if line.split()[:2] == ["hit", "rate"]]
    # Rows that were set are no lookups.
    assert sum(shown.values()) == pytest.approx(sum(after[tier] for tier in shown) / sum(after.values()))
    assert line[2:] == [f"{100 * shown[tier]:.2f}%" for tier in shown]
    served = {source: after[source] - before[source] for source in after}
    assert sum(served.values()) == asked
    assert hits == asked - served["initial"] - served["ssd"] == asked - ROWS // 2


def test_a_table_has_columns_for_its_own_rows_alone(http_daemon: Daemon):
    with http_daemon.connect() as server:
        server.checkpoint()
    text = subprocess.run([CLI, "-s", http_daemon.socket, "stats"], capture_output=True, text=True, check=True, timeout=60).stdout
    lines = [line.split() for line in text.splitlines()]
    at = lines.index(["checkpoints", "1", "0"])
    assert lines[at - 1] == ["by", "outcome", "made", "failed"]
