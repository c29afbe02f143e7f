# SPDX-License-Identifier: Apache-2.0
"""Tables whose home is an array have the same rows as cached tables, to the bit. Their memory is the tier's, and is given back.
An array for which there is no room is refused, with the figures. Tests of kills, power losses and checkpoints check all other
promises, since their tables have random homes (the fixture random_homes)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from daemons import LANES

import embtier

DIM, ROWS = 24, 5000
HOMES = [("cache", None), ("array", "dram"), ("array", "pmem")]


def tiers(daemon, dram: int, pmem: int, lanes: int = LANES) -> dict:
    """A configuration with memory for arrays in each tier, and a small cache."""
    return {
        "cache": {
            "tiers": [
                daemon.dram(lanes) | {"bytes": f"{4 * lanes + dram}MiB", "array_bytes": f"{dram}MiB"},
                daemon.pmem(lanes) | {"bytes": f"{2 * lanes + pmem}MiB", "array_bytes": f"{pmem}MiB"},
            ]
        }
    }


@pytest.fixture
def make_roomy(make_daemon):
    """Makes daemons whose tiers keep 8 MiB each for arrays."""

    def make(lanes: int = LANES):
        daemon = make_daemon(lanes=lanes)
        daemon.configure(tiers(daemon, 8, 8, lanes))
        return daemon

    return make


def train(server, name, rng, steps=12):
    """Makes SETs, pushes and pooled lookups, which must have the same results with each home."""
    table = server.open_table(name)
    pooled = []
    table.set(np.arange(0, ROWS, 3), rng.standard_normal((len(range(0, ROWS, 3)), DIM)).astype(table.spec.numpy_dtype))
    for step in range(1, steps + 1):
        ids = (rng.zipf(1.2, 1500) - 1) % ROWS
        with server.bag_batch([embtier.Bags(table, 600, 60)]) as batch:
            batch.ids(0)[:] = ids[:600]
            batch.offsets(0)[:] = np.arange(0, 601, 10)
            batch.lookup()
            pooled.append(np.array(batch.bags(0)))
        with server.push_batch([(table, 1500)]) as batch:
            batch.ids(0)[:] = ids
            batch.gradients(0)[:] = rng.standard_normal((1500, DIM))
            batch.push(lr=0.1, step=step)
    weights, state = table.get_with_state(np.arange(ROWS))
    return [np.array(part).tobytes() for part in (weights, state, *pooled)]


@pytest.mark.parametrize("lanes", sorted({1, LANES}))
@pytest.mark.parametrize(("optimizer", "dtype"), [("adam", "f32"), ("rowwise_adagrad", "f16"), ("sgd", "f32")])
def test_rows_are_the_same_bits_in_every_home(make_roomy, lanes, optimizer, dtype):
    daemon = make_roomy(lanes=lanes)
    daemon.start()
    results = []
    with daemon.connect() as server:
        for home, tier in HOMES:
            server.create_table(
                "rows", DIM, ROWS, optimizer=optimizer, dtype=dtype, init=("uniform", -1, 1), seed=3, home=home, tier=tier
            )
            results.append(train(server, "rows", np.random.default_rng(9)))
            server.drop_table("rows")
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.parametrize("durability", ["replay", "async", "sync"])
def test_rows_outlive_stops_as_their_durability_says(make_roomy, durability):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        for home, tier in HOMES:
            server.create_table(f"rows_{tier}", DIM, ROWS, durability=durability, optimizer="adagrad", home=home, tier=tier)
        wanted = [train(server, f"rows_{tier}", np.random.default_rng(4), 2)[:2] for _, tier in HOMES]
    assert wanted[1] == wanted[2] == wanted[0]
    for stop in (daemon.stop, daemon.kill) if durability != "replay" else (daemon.stop, daemon.stop):
        stop()
        daemon.start()
        with daemon.connect() as server:
            assert {(t.home, t.tier) for t in server.tables()} == set(HOMES)
            for (_, tier), rows in zip(HOMES, wanted):
                got = server.open_table(f"rows_{tier}").get_with_state(np.arange(ROWS))
                assert [np.array(part).tobytes() for part in got] == rows, tier


def test_memory_is_given_back_and_a_table_in_it_has_no_row_of_the_one_before(make_roomy):
    daemon = make_roomy()
    daemon.start()
    free = daemon.metrics()["array_free_bytes"]
    assert free == daemon.metrics()["array_capacity_bytes"] == {"dram": 8 << 20, "pmem": 8 << 20}
    with daemon.connect() as server:
        for i in range(12):  # together these need more than the tier has
            table = server.create_table("rows", 64, 10_000, home="array", tier="pmem", init=("constant", i))
            assert (table.get(np.arange(10_000)) == i).all()
            table.set(np.arange(10_000), np.full((10_000, 64), 100 + i))
            metrics = daemon.metrics()
            assert metrics["array_free_bytes"]["pmem"] == free["pmem"] - (4 << 20)
            assert metrics["array_rows"] == metrics["array_dirty_rows"] == 10_000
            assert metrics["array_used_bytes"] == 10_000 * 256
            server.drop_table("rows")
            assert daemon.metrics()["array_free_bytes"] == free
            assert daemon.metrics()["array_rows"] == 0


def test_lookups_are_counted_where_they_were_served(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, home="array")
        assert (table.spec.home, table.spec.tier) == ("array", "dram")
        table.set(np.arange(1000), np.ones((1000, DIM)))
        before = daemon.metrics()
        table.get(np.arange(2000))
        after = daemon.metrics()
    assert after["lookup_rows"]["array"] - before["lookup_rows"]["array"] == 1000
    assert after["lookup_rows"]["initial"] - before["lookup_rows"]["initial"] == 1000
    assert after["lookup_rows"]["dram"] == before["lookup_rows"]["dram"]
    assert after["cache_miss_rows"] - before["cache_miss_rows"] == 1000
    assert after["cache_rows"] == before["cache_rows"]


def test_no_row_of_an_array_leaves_memory_whatever_else_is_read(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", 64, 10_000, home="array")
        table.set(np.arange(10_000), np.ones((10_000, 64)))
        others = server.create_table("others", 64)
        for first in range(0, 60_000 * LANES, 6000):  # more than the cache holds
            others.set(np.arange(first, first + 6000), np.zeros((6000, 64)))
        read = daemon.metrics()["store_rows_read"]
        assert (table.get(np.arange(10_000)) == 1).all()
        assert daemon.metrics()["store_rows_read"] == read


REFUSALS = {
    "unbounded": ({"rows": None}, embtier.InvalidError, "needs a table with a number of rows"),
    "too large": ({"rows": 1_000_000}, embtier.TooLargeError, r"needs \d+MiB as an array; tier 'dram' keeps 8MiB for arrays"),
    "too large for its tier": (
        {"rows": 1_000_000, "tier": "pmem"}, embtier.TooLargeError, "tier 'pmem' keeps 8MiB for arrays",
    ),
    "beyond all memory": ({"rows": 2**63}, embtier.TooLargeError, "too many rows for an array"),
    "no such tier": ({"tier": "hbm"}, embtier.InvalidError, "there is no tier 'hbm', only dram, pmem: choose one"),
    "a tier's name of 32 characters": ({"tier": "x" * 32}, embtier.InvalidError, "1 to 31 of A-Z"),
    "a tier's name with escapes": ({"tier": "a\x1b[31m"}, embtier.InvalidError, "1 to 31 of A-Z"),
    "a tier, but no array": ({"home": "cache", "tier": "dram"}, embtier.InvalidError, "home cache has no tier of its own"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_an_array_is_refused_and_nothing_is_left(make_roomy, case):
    options, error, message = REFUSALS[case]
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        with pytest.raises(error, match=message):
            server.create_table("rows", DIM, **{"rows": 100, "home": "array", **options})
        assert server.tables() == []
        assert daemon.metrics()["array_free_bytes"] == daemon.metrics()["array_capacity_bytes"]
        server.create_table("rows", DIM, 100, home="array")  # the name is free


def test_an_array_for_which_others_leave_no_room_is_refused_with_the_figures(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        for name in ("first", "second", "third", "fourth"):  # a slab of 2 MiB each
            assert server.create_table(name, 8, 1000, home="array", tier="dram").spec.tier == "dram"
        with pytest.raises(MemoryError, match="of the 8MiB that tier 'dram' keeps for arrays, 0B are free"):
            server.create_table("fifth", 8, 1000, home="array", tier="dram")
        assert server.create_table("fifth", 8, 1000, home="array").spec.tier == "pmem"
        server.drop_table("first")
        server.drop_table("third")
        with pytest.raises(MemoryError, match="4MiB are free, the largest piece is 2MiB"):
            server.create_table("sixth", 64, 10_000, home="array", tier="dram")
    daemon.stop()  # a start joins the free pieces
    daemon.start()
    with daemon.connect() as server:
        server.create_table("sixth", 64, 10_000, home="array", tier="dram")


def test_a_server_without_memory_for_arrays_says_how_to_get_some(make_daemon):
    daemon = make_daemon()
    daemon.configure(tiers(daemon, 0, 0))
    daemon.start()
    with daemon.connect() as server:
        with pytest.raises(embtier.InvalidError, match="no tier keeps memory for arrays: set array_bytes"):
            server.create_table("rows", DIM, 100, home="array")
        with pytest.raises(embtier.InvalidError, match="tier 'pmem' keeps no memory for arrays"):
            server.create_table("rows", DIM, 100, home="array", tier="pmem")


def test_a_start_without_room_for_an_array_is_refused_and_nothing_is_lost(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS, home="array").set(np.arange(ROWS), np.full((ROWS, DIM), 7))
        assert server.open_table("rows").spec.tier == "dram"
    daemon.stop()
    daemon.configure(tiers(daemon, 0, 0))
    refusal = daemon.fail_to_start()
    assert re.search(r"embtierd.yaml:[0-9]+: cache.tiers\[0\].array_bytes: 0B; the arrays of tier 'dram' need 2MiB", refusal)
    assert "(table 'rows' 2MiB); allowed: at least 2MiB. Or start with the old value" in refusal
    assert "choose" not in refusal  # the home of a table that exists
    for arrays, tier in (((0, 8), "pmem"), ((8, 8), "dram")):  # another tier serves until the next start
        daemon.configure(tiers(daemon, *arrays))
        daemon.start()
        with daemon.connect() as server:
            table = server.open_table("rows")
            assert table.spec.tier == tier
            assert (table.get(np.arange(ROWS)) == 7).all()
        (line,) = daemon.logged("an array is in another tier until the next start")
        assert "choose" not in line
        daemon.stop()


def test_a_refused_start_names_each_array_of_a_tier_that_is_too_small_or_gone(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        for name in ("first", "second"):
            server.create_table(name, DIM, ROWS, home="array", tier="pmem")
    daemon.stop()
    daemon.configure(tiers(daemon, 0, 2))
    refusal = daemon.fail_to_start()
    assert "cache.tiers[1].array_bytes: 2MiB; the arrays of tier 'pmem' need 4MiB" in refusal
    assert "(tables 'first' 2MiB, 'second' 2MiB); allowed: at least 4MiB" in refusal
    daemon.configure({"cache": {"tiers": tiers(daemon, 0, 0)["cache"]["tiers"][:1]}})
    refusal = daemon.fail_to_start()
    assert re.search(r"embtierd.yaml:[0-9]+: cache.tiers: there is no tier 'pmem', whose arrays need 4MiB", refusal)
    assert "(tables 'first' 2MiB, 'second' 2MiB); allowed: one with array_bytes of at least 4MiB" in refusal


def test_tables_of_another_store_are_cached_where_there_is_no_room(make_roomy, make_daemon):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS, home="array", tier="pmem").set(np.arange(ROWS), np.full((ROWS, DIM), 7))
        server.checkpoint()
    daemon.stop()
    for arrays, home in (((0, 0), ("cache", None)), ((8, 0), ("array", "dram")), ((8, 8), ("array", "pmem"))):
        new = make_daemon()
        new.configure(tiers(new, *arrays))
        new.start("--restore-from", daemon.config["data"]["directories"][0])
        with new.connect() as server:
            table = server.open_table("rows")
            assert (table.spec.home, table.spec.tier) == home
            assert (table.get(np.arange(ROWS)) == 7).all()
        warnings = new.logged("a table that had another home is cached here")
        assert [line["table"] for line in warnings] == (["rows"] if home[0] == "cache" else [])
        new.stop()


def test_a_table_restored_under_another_name_is_cached_where_there_is_no_room(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 64, 15_000, home="array").set([1], np.full((1, 64), 7))
        for name in ("more", "other", "rest"):  # 4 MiB each, which fills both tiers
            server.create_table(name, 64, 15_000, home="array")
        checkpoint = server.checkpoint().id
        server.restore_checkpoint(checkpoint, ["rows"], name="again")
        table = server.open_table("again")
        assert table.spec.home == "cache" and (table.get([1]) == 7).all()


def test_rows_of_an_array_take_no_pins(make_roomy):
    """More rows are prefetched than the cache may pin."""
    daemon = make_roomy()
    daemon.start()
    count = 12_000 * LANES
    with daemon.connect() as server:
        cached = server.create_table("cached", 64, count)
        with server.prefetch_batch([(cached, count)]) as batch:
            batch.ids(0)[:] = np.arange(count)
            with pytest.raises(embtier.PinsFullError):
                batch.prefetch()
        table = server.create_table("rows", 64, 12_000, home="array")
        with server.prefetch_batch([(table, count)]) as batch:
            batch.ids(0)[:] = np.arange(count) % 12_000
            batch.prefetch()


def test_an_export_does_not_bind_an_import_to_its_home(make_roomy, tmp_path):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        rows = np.random.default_rng(1).standard_normal((ROWS, DIM)).astype(np.float32)
        server.create_table("rows", DIM, ROWS, home="array", tier="pmem").set(np.arange(ROWS), rows)
        server.export_table("rows", tmp_path / "export")
        for name, options, home in (
            ("cached", {}, ("cache", None)),
            ("anywhere", {"home": "array"}, ("array", "dram")),
            ("in_pmem", {"home": "array", "tier": "pmem"}, ("array", "pmem")),
        ):
            server.import_table(tmp_path / "export", name, **options)
            table = server.open_table(name)
            assert (table.spec.home, table.spec.tier) == home
            assert (table.get(np.arange(ROWS)) == rows).all()
        with pytest.raises(embtier.InvalidError, match="there is no tier"):
            server.import_table(tmp_path / "export", "nowhere", home="array", tier="hbm")
        loaded = server.load_table("loaded", DIM, [(np.arange(ROWS), rows)], ROWS, home="array")
        assert loaded.rows == ROWS and server.open_table("loaded").spec.home == "array"


def test_a_table_that_is_there_is_taken_whatever_its_home_unless_an_array_is_asked_for(make_roomy):
    daemon = make_roomy()
    daemon.start()
    with daemon.connect() as server:
        server.create_table("array", DIM, ROWS, home="array", tier="pmem")
        server.create_table("cached", DIM, ROWS)
        assert server.create_table("array", DIM, ROWS, if_not_exists=True).spec.home == "array"
        server.create_table("array", DIM, ROWS, home="array", if_not_exists=True)
        with pytest.raises(embtier.MismatchError, match=r"\(tier\).*home array in tier pmem"):
            server.create_table("array", DIM, ROWS, home="array", tier="dram", if_not_exists=True)
        with pytest.raises(embtier.MismatchError, match=r"\(home\)"):
            server.create_table("cached", DIM, ROWS, home="array", if_not_exists=True)
