# SPDX-License-Identifier: Apache-2.0
"""Prometheus takes the rules that are installed, scrapes a server, and finds all that the rules and the dashboard ask for."""

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
