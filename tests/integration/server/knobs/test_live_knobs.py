# SPDX-License-Identifier: Apache-2.0
"""Each live knob works where it should: the tests look at what it changes, not at the answer alone."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, embtier
from knobbed import answer, differences, refused, run, set_knob, wait_for

MIB = 1 << 20
COMPUTED = {
    "socket.max_user_sessions", "socket.max_user_arena_bytes", "checkpoints.max_user_checkpoints", "data.reserve_bytes", "endurance.capacity_bytes",
}  # fmt: skip


def in_bytes(value: str) -> int:
    units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
    return int(value[:-3]) * units[value[-3:]] if value[-3:] in units else int(value)



def must_refuse(error: type[Exception], call, *arguments, **options) -> Exception:
    with pytest.raises(error) as caught:
        call(*arguments, **options)
    return caught.value


def test_the_log_has_the_lines_of_its_level(own_daemon):
    with own_daemon.connect() as server:
        assert set_knob(own_daemon, "log.level", "error") == {
            "name": "log.level", "old": "info", "asked": "error", "value": "error", "applied": True, "file": None,
        }  # fmt: skip
        server.checkpoint()
        assert not own_daemon.logged("checkpoint made")
        set_knob(own_daemon, "log.level", "info")
        server.checkpoint()
        assert len(own_daemon.logged("checkpoint made")) == 1
    assert run(own_daemon, "knob", "set", "log.level", "warn").stdout == "log.level: info -> warn\n"


def own_checkpoints(server) -> list[int]:
    return [checkpoint.id for checkpoint in server.checkpoints() if checkpoint.automatic]


def test_checkpoints_follow_their_interval_and_their_number(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0, "keep": 3}})
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("t", 4, durability="replay")
        before = own_checkpoints(server)

        def has_new(count: int) -> bool:
            table.set(np.arange(10), np.full((10, 4), time.monotonic() % 100))
            made = own_checkpoints(server)
            return len(made) >= count and made[-1:] > before[-1:]

        set_knob(daemon, "checkpoints.interval_seconds", "1")
        wait_for(lambda: has_new(3), "no checkpoints are made")
        set_knob(daemon, "checkpoints.keep", "1")
        newest = own_checkpoints(server)[-1]
        wait_for(lambda: has_new(1) and own_checkpoints(server)[-1] > newest + 1, "no later checkpoint is made")
        wait_for(lambda: len(own_checkpoints(server)) == 1, "more than one is kept")
        set_knob(daemon, "checkpoints.interval_seconds", "0")
    daemon.stop()


def rocksdb_threads(daemon) -> dict[str, int]:
    names = []
    for task in Path(f"/proc/{daemon.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this thread has just ended
            names.append((task / "comm").read_text().strip())
    return {name: names.count(name) for name in ("rocksdb:low", "rocksdb:high")}


def test_rocksdb_has_as_many_threads_as_it_is_given(own_daemon):
    wait_for(lambda: rocksdb_threads(own_daemon) == {"rocksdb:low": 1, "rocksdb:high": 1}, "they have their names when they run")
    for value, wanted in (("8", (6, 2)), ("3", (2, 1)), ("1", (1, 1))):
        assert set_knob(own_daemon, "rocksdb.background_threads", value)["value"] == value
        low, high = wanted
        wait_for(lambda: rocksdb_threads(own_daemon) == {"rocksdb:low": low, "rocksdb:high": high}, value)  # noqa: B023


def write_rows(table, mib: int, value: float) -> None:
    rows = mib * MIB // (64 * 4)
    for first in range(0, rows, 4096):
        ids = np.arange(first, min(first + 4096, rows))
        table.set(ids, np.full((len(ids), 64), value))


def test_larger_write_buffers_are_flushed_later(make_daemon):
    """The same rows again and again: small buffers are flushed, and large ones hold them."""
    own_daemon = make_daemon({"data": {"shards_per_directory": 8}})
    own_daemon.start()
    with own_daemon.connect(arena_bytes=8 * MIB) as server:
        table = server.create_table("logged", 64, durability="async")

        def flushed_by(mib: int, value: float) -> float:
            before = own_daemon.metrics()["store_written_bytes"]["flush"]
            write_rows(table, mib, value)
            return own_daemon.metrics()["store_written_bytes"]["flush"] - before

        set_knob(own_daemon, "rocksdb.memtable_bytes", "4MiB")
        wait_for(lambda: flushed_by(4, time.monotonic() % 100) > 0, "small buffers are not flushed")
        changed = set_knob(own_daemon, "rocksdb.memtable_bytes", "512MiB")
        assert (changed["old"], changed["value"]) == ("4MiB", "512MiB")
        # Flushes that had begun may end late, while these rows are written.
        wait_for(lambda: flushed_by(8, time.monotonic() % 100) == 0, "large buffers are flushed too")
        assert own_daemon.metrics()["store_memtable_bytes"] > 8 * MIB
        set_knob(own_daemon, "rocksdb.memtable_bytes", "4MiB")
        wait_for(lambda: flushed_by(1, time.monotonic() % 100) > 0, "they are not flushed")
        assert (table.get(np.arange(4)) > 0).all()
    assert "rocksdb.memtable_bytes: 1MiB is too little for 8 shards; allowed: at least 2MiB" in refused(own_daemon, "knob", "set", "rocksdb.memtable_bytes", "1MiB")
    assert answer(own_daemon, "knob", "get", "rocksdb.memtable_bytes")["value"] == "4MiB"


def test_other_options_of_rocksdb_are_read_back(own_daemon):
    assert set_knob(own_daemon, "rocksdb.compaction_parallel", "2")["old"] == "1"
    assert set_knob(own_daemon, "rocksdb.metadata_cache_bytes", "4096KiB")["value"] == "4MiB"


def test_compactions_have_their_limit_at_once(own_daemon):
    name, none = "rocksdb.compaction_bytes_per_second", "no limit is set"
    for value, shown in (("5MiB", "limit: 5MiB a second, "), ("7340032", "limit: 7MiB a second, ")):
        set_knob(own_daemon, name, value)
        limit = answer(own_daemon, "compaction", "status")["limit"]
        assert limit["state"] != "none" and none not in limit["why"]
        assert shown in run(own_daemon, "compaction", "status").stdout
    assert run(own_daemon, "knob", "set", name, "7MiB").stdout == f"{name}: 7MiB -> 7MiB\n"
    set_knob(own_daemon, name, "0")
    assert answer(own_daemon, "compaction", "status")["limit"]["state"] == "none"


def test_values_that_are_computed_are_shown(make_daemon):
    """Those that a client meets, and those of the metrics."""
    own_daemon = make_daemon()
    for section, key in (name.split(".") for name in COMPUTED):
        own_daemon.config.get(section, {}).pop(key, None)
    own_daemon.configure({})
    own_daemon.start()
    set_knob(own_daemon, "socket.max_sessions", "8")
    set_knob(own_daemon, "socket.max_total_arena_bytes", "2GiB")
    set_knob(own_daemon, "checkpoints.max_checkpoints", "2")
    own = {knob["name"]: knob for knob in answer(own_daemon, "knob", "list")["knobs"]}
    shown = {name: own[name]["value"] for name in COMPUTED}
    assert {own[name]["source"] for name in COMPUTED} == {"default"}
    assert shown["socket.max_user_sessions"] == "6"
    assert shown["socket.max_user_arena_bytes"] == "1536MiB"
    assert shown["checkpoints.max_user_checkpoints"] == "1"
    metrics = own_daemon.metrics()
    assert in_bytes(shown["data.reserve_bytes"]) == metrics["store_reserve_bytes"]  # of one directory
    assert in_bytes(shown["endurance.capacity_bytes"]) == metrics["store_capacity_bytes"]
    for name in COMPUTED:
        assert answer(own_daemon, "knob", "get", name)["value"] == shown[name]
    assert not COMPUTED & differences(own_daemon).keys()
    assert set_knob(own_daemon, "socket.max_user_sessions", "7")["old"] == "6"
    set_knob(own_daemon, "socket.max_sessions", "16")  # nothing else is set by it
    assert answer(own_daemon, "knob", "get", "checkpoints.max_user_checkpoints")["source"] == "default"
    with own_daemon.connect(arena_bytes=0) as server:
        server.checkpoint()
        must_refuse(embtier.BusyError, server.checkpoint)


def test_hours_of_compaction_are_one_value_for_both_commands(own_daemon):
    assert answer(own_daemon, "knob", "get", "rocksdb.compaction_hours")["value"] is None
    assert run(own_daemon, "compaction", "schedule", "02:00-03:00").returncode == 0
    assert answer(own_daemon, "knob", "get", "rocksdb.compaction_hours")["source"] == "set"
    assert set_knob(own_daemon, "rocksdb.compaction_hours", "22:00-06:00")["value"] == "22:00-06:00"
    assert answer(own_daemon, "compaction", "status")["hours"] == "22:00-06:00"  # for people, only at other times
    assert run(own_daemon, "compaction", "schedule", "01:00-02:00").returncode == 0
    assert answer(own_daemon, "knob", "get", "rocksdb.compaction_hours")["value"] == "01:00-02:00"
    assert answer(own_daemon, "knob", "get", "rocksdb.compaction_hours")["source"] == "set"
    assert "rocksdb.compaction_hours: " in refused(own_daemon, "knob", "set", "rocksdb.compaction_hours", "25:00-26:00")


def test_a_ticket_that_waits_expires_by_the_new_time(own_daemon):
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, optimizer="sgd")
        batch = server.bag_batch([embtier.Bags(table, 2, 2)])
        batch.ids(0)[:], batch.offsets(0)[:] = [1, 2], [0, 1, 2]
        batch.lookup(ticket=True)
        set_knob(own_daemon, "lanes.ticket_seconds", "1")  # it had two minutes
        own_daemon.await_metric("expired_tickets", 1)
        assert "the server keeps tickets for 1000 ms" in str(must_refuse(embtier.TicketExpiredError, batch.push, 0.1, 1))


def test_a_group_that_waits_breaks_by_the_new_time(own_daemon):
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, optimizer="sgd")
        group = server.join("g", 2, 0)
        batch = server.push_batch([(table, 1)])
        batch.ids(0)[:] = [1]
        batch.gradients(0)[:] = 1
        batch.submit_push(0.1, 1, group=group)
        assert set_knob(own_daemon, "lanes.group_seconds", "1")["old"] == "600"
        must_refuse(TimeoutError, batch.wait, 60)
        assert group.step == 0


def connect_when_free(daemon):
    """Connects. The place of a session that has ended becomes free a little later."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return daemon.connect(arena_bytes=0)
        except embtier.BusyError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def set_when_free(daemon, name: str, value: str) -> None:
    wait_for(lambda: run(daemon, "knob", "set", name, value).returncode == 0, "no session becomes free")


def test_sessions_and_arenas_are_limited_anew(own_daemon):
    with own_daemon.connect(arena_bytes=MIB) as first:
        set_knob(own_daemon, "socket.max_arena_bytes", "4MiB")
        assert "socket.max_arena_bytes" in str(must_refuse(embtier.TooLargeError, own_daemon.connect, arena_bytes=8 * MIB))
        set_knob(own_daemon, "socket.max_total_arena_bytes", "4MiB")
        must_refuse(embtier.BusyError, own_daemon.connect, arena_bytes=4 * MIB)
        set_knob(own_daemon, "socket.max_total_arena_bytes", "64MiB")
        set_knob(own_daemon, "socket.max_user_arena_bytes", "2MiB")
        assert "socket.max_user_arena_bytes" in str(must_refuse(embtier.BusyError, own_daemon.connect, arena_bytes=4 * MIB))
        set_knob(own_daemon, "socket.max_user_arena_bytes", "32MiB")
        own_daemon.connect(arena_bytes=4 * MIB).close()
        set_knob(own_daemon, "socket.max_sessions", "3")
        with connect_when_free(own_daemon), connect_when_free(own_daemon):
            assert "socket.max_sessions" in str(must_refuse(embtier.BusyError, own_daemon.connect, arena_bytes=0))
        connect_when_free(own_daemon).close()
        set_when_free(own_daemon, "socket.max_sessions", "600")
        set_knob(own_daemon, "socket.max_user_sessions", "3")
        with connect_when_free(own_daemon), connect_when_free(own_daemon):
            must_refuse(embtier.BusyError, own_daemon.connect, arena_bytes=0)
        set_when_free(own_daemon, "socket.max_user_sessions", "600")
        assert first.status()


def test_figures_of_endurance_follow(own_daemon):
    set_knob(own_daemon, "endurance.rated_years", "7")
    set_knob(own_daemon, "endurance.rated_written_bytes", "1TiB")
    set_knob(own_daemon, "endurance.capacity_bytes", "2TiB")
    metrics = own_daemon.metrics()
    assert metrics["store_rated_years"] == 7
    assert metrics["store_rated_written_bytes"] == 1 << 40
    assert metrics["store_capacity_bytes"] == 2 << 40


def test_users_checkpoints_are_limited_anew(own_daemon):
    set_knob(own_daemon, "checkpoints.max_user_checkpoints", "1")
    set_knob(own_daemon, "checkpoints.max_checkpoints", "2")
    with own_daemon.connect(arena_bytes=0) as server:
        server.checkpoint()
        must_refuse(embtier.BusyError, server.checkpoint)
        set_knob(own_daemon, "checkpoints.max_user_checkpoints", "2")
        server.checkpoint()


def test_wrong_orders_are_refused_and_change_nothing(own_daemon):
    before = answer(own_daemon, "config", "show")
    for words, part in (
        (("lanes.ticket_second", "1"), "the nearest name is `lanes.ticket_seconds`"),
        (("ticket_seconds", "1"), "the nearest name is `lanes.ticket_seconds`"),
        (("lanes.ticket_seconds", "1min"), "lanes.ticket_seconds: `1min` is not possible; allowed: 1 to 86400"),
        (("rocksdb.memtable_bytes", "12 Mb"), "written like 4096 or 1.5GiB"),
        (("rocksdb.memtable_bytes", "1PiB"), "is not possible"),
        (("rocksdb.memtable_bytes", "8TiB"), "rocksdb.memtable_bytes"),
        (("socket.max_arena_bytes", "512GiB"), "is more than socket.max_total_arena_bytes"),
        (("log.level", ""), "error, warn, info, debug"),
        (("log.level", "\x1b[2J"), "PROTOCOL"),
        (("lanes.count", "3"), "lanes.count needs a restart; --persist writes it into the file"),
        (("lanes.count", "none"), "lanes.count: `none` is not possible"),
        (("cache.tiers[0].kind", "dram"), "needs a restart"),
        (("rpc.listen", "tcp://127.0.0.1:0"), "rpc.listen is a list: change it in the file"),
        (("socket.mode", "0666"), "no client sets it"),
        (("x" * 65, "1"), ""),
    ):
        error = refused(own_daemon, "knob", "set", *words)
        assert part in error or part == "PROTOCOL", (words, error)
        assert error.startswith("embtier: ") and "\x1b" not in error
    assert "the nearest name is" in refused(own_daemon, "knob", "get", "level")
    assert run(own_daemon, "knob", "set", "log.level").returncode == 2
    assert run(own_daemon, "knob", "set", "log.level", "info", "debug").returncode == 2
    assert answer(own_daemon, "config", "show") == before


def test_the_page_for_operators_has_every_live_knob():
    """Names of one section stand in one row, `section.first`, `second`; a name may end with … or *."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "operations.md").read_text()
    rows = page.partition("| live knobs |")[2].partition("\n\n")[0].splitlines()[2:]
    shown = []
    for row in rows:
        section = ""
        for name in re.findall(r"`([a-z_.*…N\[\]]+)`", row.split("|")[1].partition(" but ")[0]) + re.findall(r", `([a-z_]+\.[a-z_…]+)`", row.split("|")[1]):
            section = name.rpartition(".")[0] if "." in name else section
            shown.append(f"{section}.{name.rpartition('.')[2]}".replace("[N]", "[]"))
    keys = json.loads(subprocess.run([CLI, "-o", "json", "config", "keys"], check=True, capture_output=True, text=True).stdout)["keys"]
    live = [key["name"] for key in keys if key["changes"] == "live"]
    assert "log.level" in live
    assert [name for name in live if not any(fnmatch.fnmatch(name, one.replace("…", "*").replace("[]", "[[]]")) for one in shown)] == []
