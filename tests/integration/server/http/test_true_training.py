# SPDX-License-Identifier: Apache-2.0
"""Figures are true for training too: pooled lookups, pushes, prefetches and a second tier are compared with a client's own count."""

from __future__ import annotations

import collections
import dataclasses
import json
import subprocess
import time
from collections.abc import Callable

import numpy as np
import pytest
from daemons import CLI, Daemon
from readers import LISTEN, get, latencies, port_of, samples

import embtier

DIM, ROWS, STEPS = 16, 3000, 25
ROW_BYTES = DIM * 4
BAGS, IDS, PINNED = 20, 120, 40


@dataclasses.dataclass
class Counted:
    """The client's own count."""

    looked_up: int = 0
    hits: int = 0  # as batches of lookups say
    pushed: int = 0
    prefetched: int = 0
    looked_up_ids: set[int] = dataclasses.field(default_factory=set)
    pushed_ids: set[int] = dataclasses.field(default_factory=set)
    ids: set[int] = dataclasses.field(default_factory=set)  # of all requests
    calls: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def call(self, op: str, function: Callable[[], object]) -> None:
        begin = time.monotonic()
        function()
        self.seconds[op] += time.monotonic() - begin
        self.calls[op] += 1

    def push(self, function: Callable[[], object], ids: np.ndarray) -> None:
        """A push updates each of its rows once, however often it has the row's id."""
        self.call("push", function)
        distinct = set(ids.tolist())
        self.pushed += len(distinct)
        self.pushed_ids |= distinct
        self.ids |= distinct


def shown(daemon: Daemon, command: str) -> dict:
    asked = [CLI, "--address", daemon.socket, "-o", "json", command]
    return json.loads(subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout)


def train_bags(server, table, rng: np.random.Generator, counted: Counted) -> None:
    with server.bag_batch([embtier.Bags(table, IDS, BAGS, "sum", False)]) as batch:
        for step in range(1, STEPS + 1):
            ids = rng.integers(0, ROWS, IDS)  # some several times
            batch.ids(0)[:] = ids
            batch.offsets(0)[:] = np.linspace(0, IDS, BAGS + 1).astype(np.uint64)
            counted.call("pool", lambda: batch.lookup(ticket=True))
            counted.looked_up += IDS
            counted.hits += batch.hit_rows
            counted.looked_up_ids |= set(ids.tolist())
            batch.gradients(0)[:] = 0.5
            counted.push(lambda step=step: batch.push(0.1, step), ids)


def prefetch(daemon: Daemon, server, table, counted: Counted) -> None:
    """Half of the ids of each prefetch are those of the one before."""
    with server.prefetch_batch([(table, PINNED)]) as ahead:
        for turn in range(5):
            ids = np.arange(turn * PINNED // 2, turn * PINNED // 2 + PINNED)
            ahead.ids(0)[:] = ids
            counted.call("prefetch", ahead.prefetch)
            counted.prefetched += PINNED
            assert ahead.hit_rows == len(counted.ids & set(ids.tolist()))
            counted.ids |= set(ids.tolist())
            assert daemon.metrics()["cache_pinned_rows"] == PINNED
            counted.call("release", ahead.release)
    assert daemon.metrics()["cache_pinned_rows"] == 0


def push_rows(server, table, rng: np.random.Generator, counted: Counted) -> None:
    with server.push_batch([(table, IDS)]) as batch:
        for turn in range(4):
            ids = rng.integers(0, ROWS, IDS)
            batch.ids(0)[:] = ids
            batch.gradients(0)[:] = 1
            counted.push(lambda turn=turn: batch.push(0.1, STEPS + 1 + turn), ids)


def test_training_is_counted_as_the_client_does(http_daemon: Daemon):
    rng, counted = np.random.default_rng(5), Counted()
    with http_daemon.connect() as server:
        table = server.create_table("t", DIM, ROWS, optimizer="sgd")
        train_bags(server, table, rng, counted)
        prefetch(http_daemon, server, table, counted)
        push_rows(server, table, rng, counted)
        text = get(port_of(http_daemon), "/metrics").text
        stats, status, http = shown(http_daemon, "stats"), shown(http_daemon, "status"), samples(text)
    metrics = stats["metrics"]
    for name, label, expected in (
        ("requests", "", counted.calls.total()),
        ("request_rows", "get", counted.looked_up),
        ("request_rows", "push", counted.pushed),
        ("request_rows", "prefetch", counted.prefetched),
        ("request_rows", "set", 0),
        ("updated_bytes", "", counted.pushed * ROW_BYTES),
        ("lookup_rows", "ssd", 0),
        ("lookup_rows", "initial", counted.looked_up - counted.hits),
        ("rows_initialised", "", len(counted.ids)),
        ("failed_rows", "", 0),
    ):
        assert (metrics[name][label] if label else metrics[name]) == expected, name
        assert http[f"{name}_total", label] == expected, name
    assert sum(metrics["lookup_rows"].values()) == counted.looked_up
    assert sum(metrics["cache_rows"].values()) == len(counted.ids)
    assert sum(metrics["cache_used_bytes"].values()) == len(counted.ids) * ROW_BYTES
    assert sum(metrics["cache_dirty_rows"].values()) == len(counted.pushed_ids)
    assert http["table_lookup_rows_total", "t"] == counted.looked_up
    assert http["table_missed_rows_total", "t"] == len(counted.looked_up_ids)
    assert http["table_updated_rows_total", "t"] == counted.pushed

    (table_shown,) = status["tables"]
    assert (table_shown["lookup_rows"], table_shown["updated_rows"]) == (counted.looked_up, counted.pushed)
    assert status["pushed_rows"] == counted.pushed and status["lookups"]["rows"] == counted.looked_up
    assert sum(tier["hit_rate"] for tier in status["tiers"]) == pytest.approx(counted.hits / counted.looked_up)
    expect_latencies(counted, stats, text)


def expect_latencies(counted: Counted, stats: dict, text: str) -> None:
    """A request's time at the server is a part of that at the client."""
    listed = {line["op"]: line for line in stats["latencies"]}
    exported = {op: latency for (op, _), latency in latencies(text).items()}
    assert listed.keys() == exported.keys() == counted.calls.keys()
    for op, calls in counted.calls.items():
        assert listed[op]["requests"] == exported[op].count == calls
        assert 0 < listed[op]["seconds"] <= counted.seconds[op]
        assert exported[op].sum == pytest.approx(listed[op]["seconds"])
        assert exported[op].buckets[max(exported[op].buckets)] == calls
        assert listed[op]["p50_seconds"] <= listed[op]["p99_seconds"] <= 2 * counted.seconds[op]  # buckets double


# ---- A second tier ----

TIER_DIM, TIER_ROWS, ROUNDS = 128, 14_000, 3
TIER_ROW_BYTES = TIER_DIM * 4


@pytest.fixture
def tiered(make_daemon) -> Daemon:
    """Its first tier has room for about half of the rows, and both together for all."""
    daemon = make_daemon(LISTEN, lanes=1)
    daemon.configure({"cache": {"tiers": [daemon.dram(1, 4), daemon.pmem(1, 8)]}})
    daemon.start()
    return daemon


def get_all(table, server, rows: int) -> int:
    """Returns the rows that memory served, as batches say."""
    hits = 0
    with server.batch([(table, 1000)]) as batch:
        for first in range(0, rows, 1000):
            batch.ids(0)[:] = np.arange(first, first + 1000)
            batch.get()
            hits += batch.hit_rows
    return hits


def test_a_second_tier_is_counted_as_the_client_does(tiered: Daemon):
    with tiered.connect(arena_bytes=16 << 20) as server:
        table = server.create_table("t", TIER_DIM, TIER_ROWS)
        for first in range(0, TIER_ROWS, 1000):
            table.set(np.arange(first, first + 1000), np.ones((1000, TIER_DIM), np.float32))
        hits = sum(get_all(table, server, TIER_ROWS) for _ in range(ROUNDS))
        stats, status = shown(tiered, "stats"), shown(tiered, "status")
        http = samples(get(port_of(tiered), "/metrics").text)
    metrics = stats["metrics"]
    asked, served, rows = ROUNDS * TIER_ROWS, metrics["lookup_rows"], metrics["cache_rows"]
    assert sum(metrics["cache_evicted_dirty_rows"].values()) == 0, "this test needs room for all rows"
    assert hits == asked == served["dram"] + served["pmem"] and served["pmem"] > 0
    assert rows["dram"] > 0 and rows["pmem"] > 0 and rows["dram"] + rows["pmem"] == TIER_ROWS
    for tier in ("dram", "pmem"):
        assert metrics["cache_used_bytes"][tier] == rows[tier] * TIER_ROW_BYTES <= metrics["cache_capacity_bytes"][tier]
        assert http["cache_rows", tier] == rows[tier] and http["lookup_rows_total", tier] == served[tier]
    # A row is in one place: those that moved down and not up again are in the second tier.
    assert metrics["cache_demoted_rows"]["dram"] - metrics["cache_promoted_rows"]["pmem"] == rows["pmem"]
    assert sum(metrics["cache_dirty_rows"].values()) == TIER_ROWS
    for tier in status["tiers"]:
        assert tier["rows"] == rows[tier["name"]]
        assert tier["hit_rate"] == pytest.approx(served[tier["name"]] / asked)
    assert sum(tier["hit_rate"] for tier in status["tiers"]) == pytest.approx(hits / asked)


def test_rows_that_no_tier_has_room_for_are_misses_to_both(tiered: Daemon):
    many = 36_000
    with tiered.connect(arena_bytes=16 << 20) as server:
        table = server.create_table("t", TIER_DIM, many)
        for first in range(0, many, 1000):
            table.set(np.arange(first, first + 1000), np.ones((1000, TIER_DIM), np.float32))
        before = tiered.metrics()["lookup_rows"]
        hits = get_all(table, server, many)
        after, status = tiered.metrics()["lookup_rows"], shown(tiered, "status")
    served = {source: after[source] - before[source] for source in after}
    assert sum(served.values()) == many and served["initial"] == 0 and served["ssd"] > many // 4
    assert hits == many - served["ssd"]
    assert status["lookups"]["served_by"]["ssd"] == served["ssd"]
    assert sum(tier["hit_rate"] for tier in status["tiers"]) == pytest.approx((served["dram"] + served["pmem"]) / many)
