# SPDX-License-Identifier: Apache-2.0
"""Prometheus takes the rules that are installed, and scrapes a server. Each alert fires when it shall, by series as the server has them,
and only then. Queries of the dashboard are taken; the build holds their names to the server's metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse

import numpy as np
import pytest
from daemons import EMBTIERD, Daemon
from readers import await_true, free_port, get, port_of

MONITORING = EMBTIERD.parents[1] / "docs/monitoring"
RULES, DASHBOARD = MONITORING / "embtier.rules.yml", MONITORING / "embtier-dashboard.json"
TEN_GB = "0+1e10x200"  # a minute
ALERTS: dict[str, tuple[dict[str, str], ...]] = {  # series by which it fires, by which it does not, and more by which it fires
    "EmbtierWritesBlocked": ({"write_error": "5"}, {"write_error": "0"}),
    "EmbtierDiskFull": (
        {"store_room_bytes": "0"}, {"store_room_bytes": "1", "store_space_refusals_total": "7"},
        {"store_room_bytes": "1", "store_space_refusals_total": "0+1x200"},
    ),
    "EmbtierReplayRefused": ({"replay_refused": "1"}, {"replay_refused": "0"}),
    "EmbtierRowsUnreadable": ({"failed_rows_total": "0+1x200"}, {"failed_rows_total": "7"}),
    "EmbtierDiskNearlyFull": (
        {"store_room_bytes": "99", "store_stored_bytes": "901"}, {"store_room_bytes": "100", "store_stored_bytes": "900"},
    ),
    "EmbtierReserveShort": (
        {"store_reserve_held_bytes": "9", "store_reserve_bytes": "10"}, {"store_reserve_held_bytes": "10", "store_reserve_bytes": "10"},
    ),
    "EmbtierWriteQueueFull": (
        {"write_queue_bytes": "90", "write_queue_capacity_bytes": "100"}, {"write_queue_bytes": "89", "write_queue_capacity_bytes": "100"},
    ),
    "EmbtierCompactionBehind": (
        {"store_pending_compaction_bytes": "2e9", "store_stored_bytes": "1e9"},
        {"store_pending_compaction_bytes": "2e9", "store_stored_bytes": "3e9"},
    ),
    "EmbtierCachePinned": (
        {
            "cache_pinned_rows": "60", 'cache_rows{tier="dram"}': "50", 'cache_rows{tier="pmem"}': "50",
            'cache_used_bytes{tier="dram"}': "100", 'cache_used_bytes{tier="pmem"}': "90",
            'cache_capacity_bytes{tier="dram"}': "100", 'cache_capacity_bytes{tier="pmem"}': "100",
        },
        {
            "cache_pinned_rows": "60", 'cache_rows{tier="dram"}': "50", 'cache_rows{tier="pmem"}': "50",
            'cache_used_bytes{tier="dram"}': "100", 'cache_used_bytes{tier="pmem"}': "0",
            'cache_capacity_bytes{tier="dram"}': "100", 'cache_capacity_bytes{tier="pmem"}': "100",
        },
    ),
    "EmbtierCheckpointFailed": ({"checkpoint_failures_in_row": "1"}, {"checkpoint_failures_in_row": "0"}),
    "EmbtierCheckpointLate": (
        {"checkpoint_interval_seconds": "60", "checkpoint_unsaved_bytes": "1", "checkpoint_newest_seconds": "181", "uptime_seconds": "9"},
        {"checkpoint_interval_seconds": "60", "checkpoint_unsaved_bytes": "1", "checkpoint_newest_seconds": "1", "uptime_seconds": "999"},
    ),
    "EmbtierReshardFailed": ({"reshard_failed": "1"}, {"reshard_failed": "0"}),
    "EmbtierReshardStuck": ({"reshard_idle_seconds": "300"}, {"reshard_idle_seconds": "299"}),
    "EmbtierReloadFailed": ({"access_reload_failed": "1"}, {"access_reload_failed": "0"}),
    "EmbtierSsdWearsOut": (
        {
            "store_rated_written_bytes": "1e15", "store_rated_years": "5", "uptime_seconds": "1e5",
            'store_written_bytes_total{cause="flush"}': TEN_GB, 'store_written_bytes_total{cause="log"}': "0+1x200",
        },
        {
            "store_rated_written_bytes": "1e15", "store_rated_years": "5", "uptime_seconds": "1e5",
            'store_written_bytes_total{cause="flush"}': "0+1e6x200", 'store_written_bytes_total{cause="log"}': "0+1x200",
        },
    ),
    "EmbtierWriteBackHeld": ({'device_write_back_held{device="nvme0n1"}': "1"}, {'device_write_back_held{device="nvme0n1"}': "0"}),
    "EmbtierDriveOverLimit": (
        {'device_max_dwpd_exceeded{device="nvme0n1"}': "1", 'device_write_back_held{device="nvme0n1"}': "0"},
        {'device_max_dwpd_exceeded{device="nvme0n1"}': "1", 'device_write_back_held{device="nvme0n1"}': "1"},
    ),
    "EmbtierLogLost": ({"log_dropped_lines_total": "0+1x200"}, {"log_dropped_lines_total": "7"}),
    "EmbtierNotReady": ({"ready": "0"}, {"ready": "1"}),
}  # fmt: skip
ALSO_FIRES = {"EmbtierWriteBackHeld": ["EmbtierDriveOverLimit-1"]}  # by series of another alert
VARIABLES = {'instance=~"$instance"': 'instance=~".*"', "$__rate_interval": "5m"}


@pytest.fixture(autouse=True)
def _has_files() -> None:
    if not RULES.exists():
        pytest.skip("this build folder has no docs/monitoring")


def program(name: str) -> str:
    if not (found := shutil.which(name)):
        pytest.skip(f"no {name} here (Debian: prometheus)")
    return found


def queries_of_dashboard() -> list[str]:
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            found.append(query)
    return found


def test_panels_lie_beside_each_other():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(places) == len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    assert all("$" not in query for query in queries_of_dashboard())


def test_promtool_takes_the_rules():
    said = subprocess.run([program("promtool"), "check", "rules", RULES], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr
    alerts = re.findall(r"^      - alert: (\w+)$", RULES.read_text(), re.M)
    assert f"SUCCESS: {len(alerts)} rules found" in said.stdout and "EmbtierDiskFull" in alerts


def alerts_of_rules() -> dict[str, dict[str, str]]:
    """Returns severity, summary and description of each alert."""
    told: dict[str, dict[str, str]] = {}
    for part in RULES.read_text().split("- alert: ")[1:]:
        told[part.split("\n")[0]] = {
            key: json.loads(f'"{value}"') for key, value in re.findall(r'^ +(severity|summary|description): "?(.*?)"?$', part, re.M)
        }
    return told


def of_instance(series: str, instance: str) -> str:
    name, _, labels = series.rstrip("}").partition("{")
    return f'embtier_{name}{{{labels}{"," if labels else ""}instance="{instance}"}}'


def test_alerts_fire_when_they_shall_and_only_then(tmp_path):
    rules, series, wanted = alerts_of_rules(), [], []
    assert set(rules) == set(ALERTS)
    for alert, cases in ALERTS.items():
        told, expected = rules[alert], []
        for number, case in enumerate(cases):
            for name, value in case.items():
                series.append({"series": of_instance(name, f"{alert}-{number}"), "values": value if "x" in value else f"{value}+0x200"})
        for instance in (*(f"{alert}-{number}" for number in range(len(cases)) if number != 1), *ALSO_FIRES.get(alert, [])):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', of_instance(next(iter(cases[0])), instance)))
            expected.append({
                "exp_labels": labels | {"severity": told["severity"]},
                "exp_annotations": {"summary": told["summary"], "description": told["description"]},
            })  # fmt: skip
        wanted.append({"eval_time": "180m", "alertname": alert, "exp_alerts": expected})
    file = tmp_path / "alerts.yml"
    file.write_text(json.dumps({
        "rule_files": [str(RULES)], "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": wanted}],
    }))  # fmt: skip
    said = subprocess.run([program("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stdout + said.stderr


def test_series_of_alerts_are_those_of_a_server(http_daemon: Daemon):
    with http_daemon.connect() as server:
        server.create_table("t", 8).set(np.arange(9), np.ones((9, 8), np.float32))
        server.checkpoint()
    text = get(port_of(http_daemon), "/metrics").text
    has = {re.sub(r'"[^"]*"', '""', line.rsplit(" ", 1)[0]) for line in text.splitlines() if not line.startswith("#")}
    wanted = {re.sub(r'"[^"]*"', '""', f"embtier_{name}") for cases in ALERTS.values() for case in cases for name in case}
    assert {name for name in wanted - has if not name.startswith("embtier_device_")} == set()  # devices are there with a rating


def test_prometheus_scrapes_a_server(http_daemon: Daemon, tmp_path):
    prometheus, port = program("prometheus"), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "embtier", "static_configs": [{"targets": [f"127.0.0.1:{port_of(http_daemon)}"]}]}],
    }))  # fmt: skip
    with http_daemon.connect() as server:
        table = server.create_table("t", 8)
        table.set(np.arange(100), np.ones((100, 8), np.float32))
        table.get(np.arange(100))
    log = (tmp_path / "log").open("w")
    running = subprocess.Popen(
        [prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=log, stderr=log,
    )  # fmt: skip

    def ask(path: str, **values: str) -> dict | None:
        try:
            answer = get(port, f"/api/v1/{path}?{urllib.parse.urlencode(values)}")
        except ConnectionError:
            return None
        return json.loads(answer.text)["data"] if answer.status == 200 else None

    def value_of(query: str) -> list[float]:
        return [float(found["value"][1]) for found in (ask("query", query=query) or {"result": []})["result"]]

    try:
        await_true(lambda: value_of("embtier_ready") == [1], "it has scraped the server")
        await_true(
            lambda: all(rule["health"] == "ok" for group in ask("rules")["groups"] for rule in group["rules"]), "rules are evaluated"
        )
        assert value_of('embtier_request_rows_total{op="get"}') == [100]
        assert value_of('embtier_request_seconds_count{op="get"}') == [1]
        await_true(lambda: value_of('histogram_quantile(0.99, embtier_request_seconds_bucket{op="get"})'), "there is a quantile")
        for query in queries_of_dashboard():
            assert ask("query", query=query) is not None, query
        firing = [alert["labels"]["alertname"] for alert in ask("alerts")["alerts"] if alert["state"] == "firing"]
        assert firing == []
    finally:
        running.terminate()
        running.wait(60)
        log.close()
