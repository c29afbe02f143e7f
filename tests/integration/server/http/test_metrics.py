# SPDX-License-Identifier: Apache-2.0
"""`/metrics` and `/status.json` show what a client counted, in texts that Prometheus reads."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest
from daemons import CLI, Daemon
from readers import LISTEN, OPENMETRICS, await_true, get, latencies, port_of, samples, scrape

ROWS, DIM = 300, 8
TABLES = 70  # more than are read at a time


def rows_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(count), np.ones((count, DIM), np.float32)


def test_figures_are_those_that_a_client_counted(http_daemon: Daemon):
    before = scrape(http_daemon)
    with http_daemon.connect() as server:
        table = server.create_table("counted", DIM)
        for _ in range(3):
            table.set(*rows_of(ROWS))
        for _ in range(5):
            table.get(np.arange(ROWS))
        with http_daemon.connect(arena_bytes=0):  # that of the daemon's start may be counted for a while
            now = await_true(lambda: (seen := scrape(http_daemon))["sessions", ""] == 2 and seen, "there are two sessions")
    assert before["tables", ""] == 0 and now["tables", ""] == 1
    for op, count in (("set", 3 * ROWS), ("get", 5 * ROWS), ("push", 0), ("prefetch", 0)):
        assert now["request_rows_total", op] - before["request_rows_total", op] == count
    assert now["requests_total", ""] - before["requests_total", ""] == 8
    assert now["lookup_rows_total", "dram"] == 5 * ROWS
    assert now["updated_bytes_total", ""] == 3 * ROWS * DIM * 4
    assert now["table_lookup_rows_total", "counted"] == 5 * ROWS
    assert now["table_updated_rows_total", "counted"] == 3 * ROWS
    assert now["table_lookup_rows_total", "other"] == 0
    assert now["ready", ""] == 1 and now["write_error", ""] == 0
    await_true(lambda: scrape(http_daemon)["sessions", ""] == 0, "the sessions are gone")


def stats_of(daemon: Daemon) -> dict:
    said = subprocess.run(
        [CLI, "--address", daemon.socket, "-o", "json", "stats"], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(said.stdout)


def compaction_of(daemon: Daemon) -> dict:
    command = [CLI, "--address", daemon.socket, "-o", "json", "compaction", "status", "--all"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def test_latencies_are_within_those_of_the_client(http_daemon: Daemon):
    """Each request is counted once, and takes no longer in the server than for its client."""
    gets, sets, spent = 40, 7, {"get": 0.0, "set": 0.0}
    with http_daemon.connect() as server:
        table = server.create_table("t", DIM)
        for op, calls in (("set", sets), ("get", gets)):
            for _ in range(calls):
                began = time.monotonic()
                table.set(*rows_of(ROWS)) if op == "set" else table.get(np.arange(ROWS))
                spent[op] += time.monotonic() - began
        bounded, began = server.create_table("bounded", DIM, rows=1), time.monotonic()
        with pytest.raises(IndexError):
            bounded.get([1])  # a refusal is an answer, too
        spent["get"] += time.monotonic() - began
    answer = get(port_of(http_daemon), "/metrics")
    found = latencies(answer.text)
    assert {op: latency.count for (op, _), latency in found.items()} == {"get": gets + 1, "set": sets}
    for (op, _), latency in found.items():
        counts = [latency.buckets[end] for end in sorted(latency.buckets)]
        assert counts == sorted(counts) and counts[-1] == latency.buckets[float("inf")] == latency.count
        assert 0 < latency.sum <= spent[op]
    status = json.loads(get(port_of(http_daemon), "/status.json").text)
    printed = stats_of(http_daemon)
    assert status["latencies"] == printed["latencies"]
    for line in printed["latencies"]:
        assert found[line["op"], line["transport"]].count == line["requests"]
        assert 0 < line["p50_seconds"] <= line["p99_seconds"] <= 2 * line["seconds"]


def test_figures_are_those_of_the_control_socket(http_daemon: Daemon):
    with http_daemon.connect() as server:
        server.create_table("t", DIM).set(*rows_of(ROWS))
        http_figures, status = scrape(http_daemon), server.status()["metrics"]
    for name in ("request_rows", "cache_rows", "cache_capacity_bytes", "array_capacity_bytes"):
        for label, value in status[name].items():
            assert {http_figures.get((name, label)), http_figures.get((f"{name}_total", label))} == {None, value}
    for name in ("tables", "sessions", "lanes", "store_reserve_bytes", "write_queue_capacity_bytes"):
        assert http_figures[name, ""] == status[name]


def test_tables_of_most_traffic_have_series(make_daemon):
    daemon = make_daemon({"http": {**LISTEN["http"], "tables": 3}})
    daemon.start()
    with daemon.connect() as server:
        tables = [server.create_table(f"t{i}", DIM) for i in range(TABLES)]
        for i, table in enumerate(tables):
            table.set(*rows_of(i + 1))
        first = scrape(daemon)
        tables[0].set(*rows_of(100))
        second = scrape(daemon)
    updated = {label: value for (name, label), value in first.items() if name == "table_updated_rows_total"}
    assert updated == {"t67": 68, "t68": 69, "t69": 70, "other": TABLES * (TABLES + 1) / 2 - 68 - 69 - 70}
    updated = {label: value for (name, label), value in second.items() if name == "table_updated_rows_total"}
    assert updated == {"t0": 101, "t68": 69, "t69": 70, "other": updated["other"]}
    assert updated["other"] >= first["table_updated_rows_total", "other"]  # a counter


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS])
def test_clients_of_prometheus_read_it(http_daemon: Daemon, accept: str):
    parser = pytest.importorskip(
        "prometheus_client.openmetrics.parser" if accept == OPENMETRICS else "prometheus_client.parser",
        reason="python3-prometheus-client is not installed",
    )
    with http_daemon.connect() as server:
        server.create_table("t", DIM).set(*rows_of(ROWS))
    answer = get(port_of(http_daemon), "/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith(accept)
    families = {family.name: family for family in parser.text_string_to_metric_families(answer.text)}
    assert all(family.documentation and family.name.startswith("embtier_") for family in families.values())
    requests = families["embtier_request_rows"]
    assert requests.type == "counter"
    assert {s.labels["op"]: s.value for s in requests.samples if s.name.endswith("_total")}["set"] == ROWS
    assert families["embtier_cache_capacity_bytes"].type == "gauge"
    if accept == OPENMETRICS:
        assert families["embtier_cache_capacity_bytes"].unit == "bytes"
        assert answer.text.endswith("# EOF\n")


def test_promtool_finds_nothing(http_daemon: Daemon):
    if not shutil.which("promtool"):
        pytest.skip("no promtool here (Debian: prometheus)")
    answer = get(port_of(http_daemon), "/metrics")
    result = subprocess.run(["promtool", "check", "metrics"], input=answer.text, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_status_json_has_what_the_command_prints(http_daemon: Daemon):
    with http_daemon.connect() as server:
        server.create_table("t", DIM).set(*rows_of(ROWS))
    answer = get(port_of(http_daemon), "/status.json")
    assert answer.headers["content-type"] == "application/json"
    status = json.loads(answer.text)
    printed = stats_of(http_daemon)
    assert status["version"] == printed["version"] and status["ready"] is True and status["reasons"] == []
    assert status["tables"]["t"]["updated_rows"] == ROWS
    assert status["metrics"]["request_rows"]["set"] == ROWS
    assert status["hit_rates"].keys() == {"dram", "pmem"}
    assert "users" not in status  # readers are nobody
    assert status["health"] == "ok" and status["warnings"] == []


def status_of_sessions(port: int, count: int) -> str:
    """The text of status.json, once the session of the server's start is gone. It lists 32 sessions at most."""

    def look() -> str | None:
        answer = get(port, "/status.json")
        assert answer.status == 200
        seen = json.loads(answer.text)
        return answer.text if (seen["metrics"]["sessions"], len(seen["sessions"])) == (count, min(count, 32)) else None

    return await_true(look, f"{count} sessions")


def test_status_json_has_databases_and_clients_without_names(http_daemon: Daemon):
    port = port_of(http_daemon)
    with http_daemon.connect(client_name="secret-client") as server:
        table = server.create_table("t", DIM)
        table.set(*rows_of(ROWS))
        answer = status_of_sessions(port, 1)
        status = json.loads(answer)
        (session,) = status["sessions"]
        assert session["transport"] == "shm" and session["connections"] == 1 and session["in_flight"] == 0
        assert session["requests"] >= 1 and session["rows"] == ROWS and session["arena_bytes"] > 0
        assert "secret-client" not in answer and str(http_daemon.folder) not in answer
        assert session.keys().isdisjoint({"user", "uid", "pid", "address", "client"})
        listed = {re.sub(r"^.*/(shard-)", r"\1", one["path"]): one["state"] for one in compaction_of(http_daemon)["databases"]}
        assert {one["name"] for one in status["databases"]} == listed.keys()
        assert all(one["pending_bytes"] >= 0 and one["urgent"] is False for one in status["databases"])
    await_true(lambda: json.loads(get(port, "/status.json").text)["sessions"] == [], "the client is gone")


def test_many_tables_clients_and_databases_fit(make_daemon):
    daemon = make_daemon({**LISTEN, "http": {**LISTEN["http"], "tables": 120}, "data": {"shards_per_directory": 40}})
    daemon.start()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(daemon.connect(arena_bytes=1 << 20)) for _ in range(40)]
        for i in range(1000):
            servers[0].create_table(f"table_with_a_name_of_some_length_{i:04}", 4)
        answer = status_of_sessions(port_of(daemon), 40)
    assert len(answer) <= 256 << 10
    status = json.loads(answer)
    assert (len(status["tables"]), len(status["databases"])) == (121, 64)


def test_scrapes_go_on_beside_work_reloads_and_a_stop(make_daemon):
    """Readers are always answered: by figures that never go down, or by the reason why there are none."""
    daemon = make_daemon(LISTEN)
    daemon.start()
    port, failures, counts = port_of(daemon), [], []

    def read() -> None:
        last = 0.0
        try:
            while True:
                try:
                    answer = get(port, "/metrics")
                except ConnectionError:
                    return  # it has stopped
                if answer.status == 503:
                    assert "stopping" in answer.text, answer
                    continue
                rows = samples(answer.text)["request_rows_total", "set"]
                assert rows >= last
                last = rows
                counts.append(rows)
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    with daemon.connect() as server:
        table = server.create_table("t", DIM)
        for _ in range(50):
            table.set(*rows_of(ROWS))
    before = len(counts)
    await_true(lambda: len(counts) > before + 10 or failures, "readers are answered")
    daemon.stop()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert max(counts) == 50 * ROWS
