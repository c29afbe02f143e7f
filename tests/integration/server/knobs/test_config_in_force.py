# SPDX-License-Identifier: Apache-2.0
"""`embtier config show` tells what is in force, and `config diff` compares it with a file."""

from __future__ import annotations

import json
import re

from daemons import merged
from knobbed import answer, differences, refused, run, set_knob

TOO_LONG = "# a line of a comment that is long\n" * 2000


def in_force(daemon) -> dict[str, dict]:
    keys = answer(daemon, "config", "show")["keys"]
    named = {key["name"]: key for key in keys}
    assert len(named) == len(keys)
    return named


def test_each_value_is_told_with_its_source(make_daemon):
    daemon = make_daemon({"checkpoints": {"keep": 3}})
    daemon.options += ["--log-level", "debug"]
    daemon.start()
    keys = in_force(daemon)
    assert keys["data.directories[0]"] | {"value": None} == {
        "name": "data.directories[0]", "value": None, "source": "file", "changes": "hand",
    }  # fmt: skip
    assert keys["data.directories[0]"]["value"] == f"{daemon.folder}/rows"
    assert keys["cache.tiers[1].kind"]["value"] == "file"
    assert keys["cache.tiers[1].numa_node"]["value"] is None
    assert (keys["checkpoints.keep"]["value"], keys["checkpoints.keep"]["source"]) == ("3", "file")
    assert (keys["lanes.ticket_seconds"]["value"], keys["lanes.ticket_seconds"]["source"]) == ("120", "default")
    assert (keys["log.level"]["value"], keys["log.level"]["source"]) == ("debug", "option")
    assert keys["rpc.listen"]["value"] is None
    set_knob(daemon, "lanes.ticket_seconds", "60")
    key = in_force(daemon)["lanes.ticket_seconds"]
    assert (key["value"], key["source"], key["changes"]) == ("60", "set", "live")
    text = run(daemon, "config", "show").stdout.splitlines()
    assert text[0].split() == ["KEY", "VALUE", "FROM"]
    assert ["lanes.ticket_seconds", "60", "set"] in [line.split() for line in text]
    daemon.stop()


def test_every_key_is_a_knob(own_daemon):
    knobs = answer(own_daemon, "knob", "list")["knobs"]
    names = [knob["name"] for knob in knobs]
    assert names == list(in_force(own_daemon))
    listed = run(own_daemon, "config", "keys").stdout.splitlines()
    live = {line.split("\t")[0] for line in listed if line.split("\t")[4] == "live"}
    assert live == {re.sub(r"\[\d+\]\.", "[].", knob["name"]) for knob in knobs if knob["changes"] == "live"}
    assert answer(own_daemon, "knob", "get", "log.level") == {
        "name": "log.level", "value": "info", "source": "default", "changes": "live", "allowed": "error, warn, info, debug",
        "default": "info", "text": "which lines are written",
    }  # fmt: skip
    assert "live" in run(own_daemon, "knob", "get", "log.level").stdout
    assert len(run(own_daemon, "knob", "list").stdout.splitlines()) == len(knobs) + 1


def test_the_file_is_compared_as_it_is_now(own_daemon):
    assert differences(own_daemon) == {}
    assert run(own_daemon, "config", "diff").stdout == "no differences\n"
    set_knob(own_daemon, "checkpoints.keep", "5")
    assert differences(own_daemon) == {"checkpoints.keep": ("5", "2")}
    text = run(own_daemon, "config", "diff")
    assert text.returncode == 1
    assert [line.split() for line in text.stdout.splitlines()] == [["KEY", "RUNNING", "FILE"], ["checkpoints.keep", "5", "2"]]
    own_daemon.configure({"checkpoints": {"keep": 5}, "rocksdb": {"bloom_bits_per_key": 12}})
    assert differences(own_daemon) == {"rocksdb.bloom_bits_per_key": ("10", "12")}
    (own_daemon.folder / "embtierd.yaml").write_text("lanes: {count: many}\n")
    assert "embtierd.yaml:1: lanes.count: " in refused(own_daemon, "config", "diff")


def test_a_default_that_follows_another_value_is_no_difference(make_daemon):
    """max_bytes of a tier is a multiple of its bytes where nobody sets it."""
    daemon = make_daemon()
    daemon.start()
    before = in_force(daemon)
    assert before["cache.tiers[0].max_bytes"]["source"] == "default"
    size = int(before["cache.tiers[0].bytes"]["value"].removesuffix("MiB"))
    set_knob(daemon, "cache.tiers[0].bytes", f"{2 * size}MiB", "--persist")
    assert differences(daemon) == {}
    assert run(daemon, "config", "diff").stdout == "no differences\n"
    set_knob(daemon, "cache.tiers[0].bytes", f"{3 * size}MiB")
    assert differences(daemon) == {"cache.tiers[0].bytes": (f"{3 * size}MiB", f"{2 * size}MiB")}
    daemon.stop()
    daemon.start()
    assert in_force(daemon)["cache.tiers[0].max_bytes"]["value"] != before["cache.tiers[0].max_bytes"]["value"]
    daemon.stop()


def test_another_file_is_compared_with_the_servers_defaults(own_daemon, tmp_path):
    other = tmp_path / "other.yaml"
    tiers = [*own_daemon.config["cache"]["tiers"], own_daemon.pmem() | {"name": "more"}]
    other.write_text(json.dumps(merged(own_daemon.config, {"cache": {"tiers": tiers}, "lanes": {"group_seconds": 7}})))
    found = differences(own_daemon, str(other))
    assert found.pop("lanes.group_seconds") == ("600", "7")
    assert found["cache.tiers[2].name"] == (None, "more")
    assert all(name.startswith("cache.tiers[2].") and running is None for name, (running, _) in found.items())
    other.write_text("lanes: {count: 1}\nsocket: {mode: 0999}\n")
    assert f"{other}:2: socket.mode: " in refused(own_daemon, "config", "diff", str(other))
    other.write_text(TOO_LONG)
    assert "at most 49152 can be compared" in refused(own_daemon, "config", "diff", str(other))
    assert "cannot be opened" in refused(own_daemon, "config", "diff", str(tmp_path / "none"))
