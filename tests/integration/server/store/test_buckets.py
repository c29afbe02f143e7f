# SPDX-License-Identifier: Apache-2.0
"""The server finds rows where the map of buckets on disk says. It refuses a map that is damaged, missing or another store's, and
a store of an older format. The message names the fault and the way out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stores import cut, directories, flip, rewrite_summed, what_is_there

SHARDS = 8  # in both directories together
ROWS = 5000
DIM = 4
IDS = np.arange(ROWS)


@pytest.fixture
def daemon(make_daemon):
    """A stopped daemon with two data directories and a table whose rows were written."""
    daemon = make_daemon()
    daemon.configure(directories(daemon, count=2, shards=SHARDS // 2))
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", DIM, ROWS, init=("constant", -1.0))
        table.set(IDS, rows_of(1))
    daemon.stop()
    return daemon


def rows_of(version: int) -> np.ndarray:
    return np.repeat((IDS + version * ROWS).astype(np.float32)[:, None], DIM, axis=1)


def maps_of(daemon) -> list[Path]:
    return [Path(directory) / "buckets.json" for directory in daemon.config["data"]["directories"]]


def shards_in(path: Path) -> list[int]:
    digits = json.loads(path.read_text())["shards"]
    return [int(digits[at : at + 4], 16) for at in range(0, len(digits), 4)]


def write_map(daemon, shards: list[int], generation: int) -> None:
    for path in maps_of(daemon):
        rewrite_summed(path, shards="".join(f"{shard:04x}" for shard in shards), generation=generation)


def check_rows(daemon, wanted: np.ndarray) -> None:
    daemon.start()
    with daemon.connect() as server:
        np.testing.assert_array_equal(server.open_table("rows").get(IDS), wanted)
    daemon.stop()


def refusals(daemon) -> Iterator[str]:
    """The reasons that two starts and a check give."""
    yield daemon.fail_to_start()
    yield daemon.fail_to_start("--init")
    daemon.launch("--check")
    assert daemon.await_any_end() == 1
    yield daemon.log_lines()[-1]


def test_a_new_store_has_a_map_that_is_balanced_and_stays(daemon):
    first, second = maps_of(daemon)
    made = json.loads(first.read_text())
    assert made["generation"] == 1 and made["bucket_count"] == 16384 and made["shard_count"] == SHARDS
    assert np.bincount(shards_in(first)).tolist() == [16384 // SHARDS] * SHARDS
    before = first.read_bytes()
    check_rows(daemon, rows_of(1))
    assert first.read_bytes() == second.read_bytes() == before
    assert oct(first.stat().st_mode & 0o777) == "0o600"


def test_rows_are_looked_for_where_the_map_says(daemon):
    made = shards_in(maps_of(daemon)[0])
    turned = [SHARDS - 1 - shard for shard in made]
    write_map(daemon, turned, generation=2)
    check_rows(daemon, np.full((ROWS, DIM), -1, np.float32))  # the new map finds none of them
    daemon.start()
    with daemon.connect() as server:
        server.open_table("rows").set(IDS, rows_of(2))
    daemon.stop()
    check_rows(daemon, rows_of(2))
    write_map(daemon, made, generation=3)
    check_rows(daemon, rows_of(1))


@pytest.mark.parametrize("how", [flip, cut, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("index", [0, 1])
def test_a_bad_copy_is_replaced_with_the_good_one_and_the_log_says_so(daemon, how, index):
    path = maps_of(daemon)[index]
    whole = path.read_bytes()
    how(path)
    check_rows(daemon, rows_of(1))
    assert path.read_bytes() == whole
    (line,) = [line for line in daemon.log_lines() if "a copy of the map of buckets" in line]
    assert str(path.parent) in line and "generation=1" in line
    check_rows(daemon, rows_of(1))
    assert len([line for line in daemon.log_lines() if "a copy of the map of buckets" in line]) == 1


@pytest.mark.parametrize("how", [flip, cut, Path.unlink])
def test_without_a_good_copy_nothing_is_started_or_changed(daemon, how):
    wholes = [path.read_bytes() for path in maps_of(daemon)]
    for path in maps_of(daemon):
        how(path)
    before = what_is_there(daemon, without=["LOCK"])
    for why in refusals(daemon):
        assert str(maps_of(daemon)[0]) in why and "no data directory has a whole copy" in why, why
        assert "--restore-from" in why
    assert what_is_there(daemon, without=["LOCK"]) == before
    for path, whole in zip(maps_of(daemon), wholes, strict=True):
        path.write_bytes(whole)
    check_rows(daemon, rows_of(1))


def test_a_checkpoint_is_restored_without_the_map(daemon, make_daemon):
    """The message names this way out."""
    daemon.start()
    with daemon.connect() as server:
        server.checkpoint()
    daemon.stop()
    for path in maps_of(daemon):
        path.unlink()
    new = make_daemon()
    new.start("--restore-from", ",".join(daemon.config["data"]["directories"]))
    with new.connect() as server:
        np.testing.assert_array_equal(server.open_table("rows").get(IDS), rows_of(1))


def test_the_map_of_another_store_is_refused(daemon, make_daemon):
    other = make_daemon()
    other.configure(directories(other, count=2, shards=SHARDS // 2))
    other.start()
    other.stop()
    mine, others = maps_of(daemon)[1], maps_of(other)[1]
    whole = mine.read_bytes()
    shutil.copy(others, mine)
    for why in refusals(daemon):
        assert f"{mine}: belongs to store " in why and "file back" in why
    assert mine.read_bytes() == others.read_bytes()
    mine.write_bytes(whole)
    check_rows(daemon, rows_of(1))


def test_a_store_of_an_older_format_is_refused(daemon):
    for path in maps_of(daemon):
        rewrite_summed(path.parent / "embtier.json", format_version=4)
        path.unlink()
    before = what_is_there(daemon)
    for why in refusals(daemon):
        assert "format version 4, this program reads 5: an older one made it" in why and "export its tables" in why
    assert what_is_there(daemon) == before
