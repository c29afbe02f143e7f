# SPDX-License-Identifier: Apache-2.0
"""A split table has its hot rows in an array and all others in the cache. It has the same rows as a cached table, to the bit, and is
checkpointed, restored, exported and imported as one table. Its hot rows are those that the user named, also after a restart."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from daemons import CLI, LANES

import embtier

from test_homes import DIM, ROWS, tiers, train
from test_moves import await_that, some_moved

LIMIT_S = 60
IDS = np.arange(ROWS, dtype=np.uint64)
HOT = IDS[::3]
FAR = np.uint64(2**63) + IDS * np.uint64(2**40 + 1)  # of an unbounded table


@pytest.fixture
def make_roomy(make_daemon):
    """Makes daemons whose tiers keep 8 MiB each for arrays."""

    def make(lanes: int = LANES):
        daemon = make_daemon(lanes=lanes)
        daemon.configure(tiers(daemon, 8, 8, lanes))
        daemon.start()
        return daemon

    return make


def spec_of(server, name):
    (spec,) = [spec for spec in server.tables() if spec.name == name]
    return spec


def numbered(first: int = 0) -> np.ndarray:
    return np.arange(first, first + ROWS * DIM).reshape(ROWS, DIM).astype("f4")


@pytest.mark.parametrize("lanes", sorted({1, LANES}))
@pytest.mark.parametrize(
    ("optimizer", "dtype", "durability"), [("adam", "f32", "replay"), ("rowwise_adagrad", "f16", "async"), ("sgd", "f32", "sync")]
)
def test_rows_are_the_same_bits_in_a_split(make_roomy, lanes, optimizer, dtype, durability):
    daemon = make_roomy(lanes=lanes)
    results = []
    with daemon.connect() as server:
        for hot in (None, HOT, IDS[:1], IDS):
            server.create_table(
                "rows", DIM, ROWS, optimizer=optimizer, dtype=dtype, durability=durability, init=("uniform", -1, 1), seed=3
            )
            if hot is not None:
                server.move_table("rows", "split", hot_rows=hot)
            results.append(train(server, "rows", np.random.default_rng(9)))
            with server.prefetch_batch([(server.open_table("rows"), 200)]) as batch:
                batch.ids(0)[:] = IDS[:200]
                batch.prefetch()
            server.drop_table("rows")
    assert results == results[:1] * len(results)
    assert daemon.metrics()["array_used_bytes"] == 0


def test_an_unbounded_table_can_be_split(make_roomy):
    daemon = make_roomy()
    with daemon.connect() as server:
        table = server.create_table("rows", DIM)
        table.set(FAR[:2500], numbered()[:2500])
        assert server.move_table("rows", "split", "pmem", hot_rows=FAR[::5]) > 0
        table.set(FAR[2500:], numbered()[2500:])
        assert (table.get(FAR) == numbered()).all()
        assert daemon.metrics()["array_rows"] == ROWS / 5
        spec = spec_of(server, "rows")
        assert (spec.home, spec.tier, spec.hot_rows, spec.rows) == ("split", "pmem", ROWS // 5, None)


@pytest.mark.parametrize("durability", ["replay", "async"])
def test_a_restart_finds_the_same_split(make_roomy, durability):
    daemon = make_roomy()
    hot = np.random.default_rng(5).permutation(20_000)[:9000]  # in two chunks on SSD
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, 20_000, durability=durability)
        server.move_table("rows", "split", "pmem", hot_rows=hot)
        ids = np.arange(20_000)
        rows = np.repeat(ids[:, None], DIM, axis=1).astype("f4")
        table.set(ids, rows)
        server.checkpoint()
    for end in (daemon.kill, daemon.stop):
        end()
        daemon.start()
        with daemon.connect() as server:
            spec = spec_of(server, "rows")
            assert (spec.home, spec.tier, spec.hot_rows) == ("split", "pmem", len(hot))
            table = server.open_table("rows")
            assert (table.get(ids) == rows).all()
            assert daemon.metrics()["array_rows"] == len(hot)
            table.set(hot[:100], rows[hot[:100]])
    with daemon.connect() as server:
        assert server.move_table("rows", "cache") == len(hot)
        assert server.move_table("rows", "split", hot_rows=hot[:10]) <= 10, "other hot rows"
        assert (server.open_table("rows").get(ids) == rows).all()
    daemon.stop()
    daemon.start()
    with daemon.connect() as server:
        assert spec_of(server, "rows").hot_rows == 10
        assert (server.open_table("rows").get(ids) == rows).all()


def test_a_split_table_is_checkpointed_restored_exported_and_imported_as_one(make_roomy, tmp_path):
    daemon = make_roomy()
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, optimizer="adagrad")
        server.move_table("rows", "split", hot_rows=HOT)
        table.set(IDS, numbered())
        made = server.checkpoint()
        table.set(IDS, numbered(7))
        server.restore_checkpoint(made.id, ["rows"], name="then")
        assert (server.open_table("then").get(IDS) == numbered()).all()
        server.export_table("rows", tmp_path / "out", checkpoint=made.id, state=True)
        server.import_table(tmp_path / "out", "again")
        assert (server.open_table("again").get(IDS) == numbered()).all()
        assert (table.get(IDS) == numbered(7)).all()
        assert [spec_of(server, name).home for name in ("rows", "then", "again")] == ["split", "cache", "cache"]


@pytest.mark.parametrize("start", ["cache", "split"])
def test_a_server_killed_during_a_move_has_the_table_in_its_old_home(make_roomy, tmp_path, start):
    daemon = make_roomy()
    np.save(tmp_path / "hot.npy", HOT)
    there = {"split": ["--home", "split", "--hot-rows", str(tmp_path / "hot.npy")], "cache": ["--home", "cache"]}
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, durability="async")
        if start == "split":
            server.move_table("rows", "split", hot_rows=HOT)
        table.set(IDS, numbered())
    (home,) = set(there) - {start}
    move = subprocess.Popen([CLI, "-s", daemon.socket, "table", "move", "rows", *there[home], "--rate", "0.01"])
    await_that(lambda: some_moved(daemon))
    daemon.kill()
    move.wait(LIMIT_S)
    daemon.start()
    with daemon.connect() as server:
        assert spec_of(server, "rows").home == start
        assert (server.open_table("rows").get(IDS) == numbered()).all()
        assert server.move_table("rows", home, hot_rows=HOT if home == "split" else None) > 0
        assert (server.open_table("rows").get(IDS) == numbered()).all()


REFUSALS = {
    "no hot rows": ({}, embtier.InvalidError, "home split needs hot rows"),
    "none of them": ({"hot_rows": []}, embtier.InvalidError, "home split needs hot rows"),
    "twice": ({"hot_rows": [5, 6, 5]}, embtier.InvalidError, "row 5 is twice among the hot rows of table 'rows'"),
    "out of range": ({"hot_rows": [1, ROWS]}, embtier.IdRangeError, f"has {ROWS} rows, and no hot row {ROWS}"),
    "no such tier": ({"hot_rows": [1], "tier": "hbm"}, embtier.InvalidError, "there is no tier 'hbm', only dram, pmem"),
}


def test_what_cannot_be_split_is_refused_and_stays_as_it_is(make_roomy):
    daemon = make_roomy()
    free = daemon.metrics()["array_free_bytes"]
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS)
        table.set(IDS, numbered())
        for options, error, message in REFUSALS.values():
            with pytest.raises(error, match=message):
                server.move_table("rows", "split", **options)
        assert daemon.metrics()["store_rows_written"] == 0, "ids are checked before any of them is stored"
        large = server.create_table("large", DIM, 1_000_000)
        with pytest.raises(
            embtier.TooLargeError, match=r"needs [\d.]+MiB for its hot rows and their remap; tier 'dram' keeps 8MiB for arrays"
        ):
            server.move_table("large", "split", "dram", hot_rows=np.arange(300_000))
        with pytest.raises(embtier.InvalidError, match="a new table cannot have home split|home split needs hot rows"):
            server.create_table("new", DIM, ROWS, home="split")
        assert daemon.metrics()["array_free_bytes"] == free
        assert large.spec.home == "cache"
        server.move_table("rows", "split", hot_rows=HOT)
        assert server.move_table("rows", "split", hot_rows=HOT[::-1]) == 0, "the same rows in another order"
        with pytest.raises(embtier.InvalidError, match="is split already, by other hot rows or in another tier"):
            server.move_table("rows", "split", hot_rows=HOT[1:])
        assert (table.get(IDS) == numbered()).all()


def test_other_hot_rows_are_refused_whatever_their_sum(make_roomy):
    """The catalog knows hot rows by a sum of hashes. That of one id is 0."""
    daemon = make_roomy()
    with daemon.connect() as server:
        table = server.create_table("rows", DIM)
        table.set(FAR, numbered())
        server.move_table("rows", "split", "dram", hot_rows=FAR[::3])
        for tier in ("dram", "pmem"):
            with pytest.raises(embtier.InvalidError, match="is split already, by other hot rows or in another tier"):
                server.move_table("rows", "split", tier, hot_rows=[18385900643063223618])
        assert (table.get(FAR) == numbered()).all()
        server.move_table("rows", "cache")
        server.move_table("rows", "split", "pmem", hot_rows=[18385900643063223618])
    daemon.restart()
    with daemon.connect() as server:
        assert (spec_of(server, "rows").home, spec_of(server, "rows").hot_rows) == ("split", 1)
        assert (server.open_table("rows").get(FAR) == numbered()).all()


def test_the_command_splits_a_table_by_a_file(make_roomy, tmp_path):
    daemon = make_roomy()
    np.save(tmp_path / "hot.npy", HOT)
    np.save(tmp_path / "wrong.npy", HOT.astype("f4"))
    np.save(tmp_path / "negative.npy", np.array([1, -1]))

    def run(*arguments):
        return subprocess.run(
            [CLI, "-s", daemon.socket, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )

    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS).set(IDS, numbered())
    done = run("table", "move", "rows", "--home", "split", "--hot-rows", str(tmp_path / "hot.npy"))
    assert done.stdout == f"moved table 'rows' to home split in tier dram: {len(HOT):,} rows were in memory\n", done.stderr
    assert json.loads(run("-o", "json", "table", "show", "rows").stdout)["hot_rows"] == len(HOT)
    assert f"hot rows   {len(HOT)}\n" in run("table", "show", "rows").stdout
    assert f"split:dram:{len(HOT):,}" in run("table", "list").stdout
    for arguments, message in {
        ("--home", "split"): "--home split needs --hot-rows FILE",
        ("--home", "cache", "--hot-rows", "x"): "--hot-rows is for --home split only",
        ("--home", "split", "--hot-rows", str(tmp_path / "wrong.npy")): "a list of 64-bit integers",
        ("--home", "split", "--hot-rows", str(tmp_path / "none.npy")): "none.npy",
        ("--home", "split", "--hot-rows", str(tmp_path / "negative.npy")): "id -1 at 1 is negative",
    }.items():
        done = run("table", "move", "rows", *arguments)
        assert done.returncode != 0
        assert message in done.stderr
