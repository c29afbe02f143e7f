# SPDX-License-Identifier: Apache-2.0
"""Tiers grow and shrink while clients read and write: no row is lost, memory follows, pinned rows stay."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, SANITIZED
from knobbed import answer, differences, refused, run, set_knob, wait_for

MIB = 1 << 20
DIM = 64
ROWS = 40_000 if SANITIZED else 120_000
BATCH = 2_000
SMALL, LARGE = 8 * LANES, 64 * LANES  # MiB
STORE_MIB = 16 + 8  # rocksdb.memtable_bytes and metadata_cache_bytes of these tests
FIRST = "cache.tiers[0].bytes"
SECOND = "cache.tiers[1].bytes"


def tiers(folder: Path) -> dict:
    return {"tiers": [{"name": "dram", "bytes": f"{SMALL}MiB"}, {"name": "pmem", "kind": "file", "path": str(folder), "bytes": f"{SMALL}MiB"}]}


@pytest.fixture
def tiered(make_daemon, tmp_path):
    folder = tmp_path / "pmem"
    folder.mkdir()
    daemon = make_daemon({"cache": tiers(folder), "checkpoints": {"interval_seconds": 1}})
    daemon.start()
    return daemon


def resident(daemon) -> int:
    """Memory of the process without its files: a tier's file counts where it lies."""
    for line in Path(f"/proc/{daemon.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def capacity(daemon, tier: str) -> int:
    return daemon.metrics()["cache_capacity_bytes"][tier]


def file_bytes(daemon) -> int:
    """Blocks of the tier's file, which has no name."""
    for link in Path(f"/proc/{daemon.pid}/fd").iterdir():
        try:
            name = str(link.readlink())
        except FileNotFoundError:
            continue
        if "/pmem/" in name:
            return link.stat().st_blocks * 512
    raise AssertionError("no file of a tier")


class Trainer(threading.Thread):
    """Writes and reads rows of its own, and compares each with its model."""

    def __init__(self, daemon, number: int, durability: str) -> None:
        super().__init__(daemon=True)
        self.server = daemon.connect(arena_bytes=8 * MIB)
        self.name_of_table = f"t{number}"
        self.table = self.server.create_table(self.name_of_table, DIM, durability=durability, rows=ROWS)
        self.model = np.zeros(ROWS, dtype=np.float32)
        self.known = np.zeros(ROWS, dtype=bool)
        self.random = np.random.default_rng(number)
        self.stop, self.failure, self.rounds = threading.Event(), None, 0

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.step()
        except Exception as error:  # told by end()
            self.failure = error

    def step(self) -> None:
        ids = self.random.choice(ROWS, BATCH, replace=False)
        values = self.random.random(BATCH, dtype=np.float32)
        self.table.set(ids, np.repeat(values[:, None], DIM, axis=1))
        self.model[ids], self.known[ids] = values, True
        self.check(self.random.choice(ROWS, BATCH, replace=False))
        self.rounds += 1

    def check(self, ids: np.ndarray) -> None:
        found = self.table.get(ids)
        known = self.known[ids]
        assert (found[known] == self.model[ids][known][:, None]).all()

    def check_all(self) -> None:
        for first in range(0, ROWS, BATCH):
            self.check(np.arange(first, min(first + BATCH, ROWS)))

    def end(self) -> None:
        self.stop.set()
        self.join()
        if self.failure:
            raise self.failure

    def reopen(self, daemon) -> None:
        self.server = daemon.connect(arena_bytes=8 * MIB)
        self.table = self.server.open_table(self.name_of_table)


def sizes(seed: int, count: int) -> list[tuple[str, str, int]]:
    """Both tiers become large, then have random sizes."""
    chosen = random.Random(seed)
    some = [chosen.choice(((FIRST, "dram"), (SECOND, "pmem"))) + (chosen.randrange(SMALL, LARGE),) for _ in range(count)]
    return [(FIRST, "dram", LARGE), (SECOND, "pmem", LARGE), *some]


def in_force(mib: int) -> int:
    """MiB of a tier of so many: whole slabs of 2 MiB, which lanes share evenly."""
    return (mib + 1) // 2 // LANES * LANES * 2


def must_have(daemon, name: str, tier: str, mib: int) -> None:
    """Sets a size. The one that the tier has then is read back and shown."""
    changed = set_knob(daemon, name, f"{mib}MiB")
    assert (changed["asked"], changed["value"]) == (f"{mib}MiB", f"{in_force(mib)}MiB")
    assert capacity(daemon, tier) == in_force(mib) * MIB


def test_tiers_have_random_sizes_while_clients_train(tiered, request):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    trainers = [Trainer(tiered, 1, "replay"), Trainer(tiered, 2, "async")]
    for trainer in trainers:
        trainer.start()
    for name, tier, mib in sizes(seed, 2 if SANITIZED else 6):
        rounds = [trainer.rounds for trainer in trainers]
        must_have(tiered, name, tier, mib)
        wait_for(lambda: all(t.rounds > r or t.failure for t, r in zip(trainers, rounds)), "nobody trains")  # noqa: B023
    for trainer in trainers:
        trainer.end()
        trainer.check_all()
    must_have(tiered, FIRST, "dram", SMALL)
    must_have(tiered, SECOND, "pmem", SMALL)
    for trainer in trainers:
        trainer.check_all()
        trainer.server.close()
    tiered.stop()
    tiered.start()  # with the sizes of its file
    assert capacity(tiered, "dram") == SMALL * MIB
    for trainer in trainers:
        trainer.reopen(tiered)
        trainer.check_all()
        trainer.server.close()
    tiered.stop()


def test_memory_follows_the_size(tiered):
    with tiered.connect(arena_bytes=8 * MIB) as server:
        table = server.create_table("t", DIM, rows=ROWS)
        before, blocks = resident(tiered), file_bytes(tiered)
        must_have(tiered, FIRST, "dram", LARGE)
        must_have(tiered, SECOND, "pmem", LARGE)
        assert resident(tiered) > before + (LARGE - SMALL) * MIB * 0.9  # every page is there
        assert file_bytes(tiered) == blocks + (LARGE - SMALL) * MIB
        for first in range(0, ROWS, BATCH):
            table.set(np.arange(first, first + BATCH), np.full((BATCH, DIM), first, dtype=np.float32))
        full = resident(tiered)
        must_have(tiered, SECOND, "pmem", SMALL)
        must_have(tiered, FIRST, "dram", SMALL)
        assert file_bytes(tiered) == blocks
        if not SANITIZED:  # it keeps freed memory for a while
            most = full - (LARGE - SMALL) * MIB * 0.9 + STORE_MIB * MIB  # rows that leave the tier fill write buffers
            wait_for(lambda: resident(tiered) < most, "the memory is not given back")
        for first in range(0, ROWS, BATCH):
            assert (table.get(np.arange(first, first + BATCH)) == first).all()
    tiered.stop()


def test_status_stats_and_scrapes_have_the_new_size(tiered):
    must_have(tiered, FIRST, "dram", LARGE)
    shown = answer(tiered, "status")
    assert f'"capacity_bytes": {LARGE * MIB}' in json.dumps(shown)
    assert str(LARGE * MIB) in run(tiered, "-o", "json", "stats").stdout
    assert answer(tiered, "knob", "get", FIRST)["source"] == "set"
    assert answer(tiered, "knob", "get", SECOND)["source"] == "file"
    tiered.stop()


def test_a_size_is_kept_for_the_next_start(tiered):
    changed = set_knob(tiered, FIRST, f"{LARGE}MiB", "--persist")
    assert changed["applied"] and changed["file"]
    assert answer(tiered, "knob", "get", FIRST)["source"] == "file"
    tiered.stop()
    tiered.start()
    assert capacity(tiered, "dram") == LARGE * MIB
    tiered.stop()


def test_a_size_is_told_that_is_not_the_one_asked_for(tiered):
    """The file keeps the size that was asked for, and is no other configuration."""
    asked, found = LARGE + 1, in_force(LARGE + 1)
    assert asked != found
    text = run(tiered, "knob", "set", FIRST, f"{asked}MiB", "--persist").stdout
    assert text.splitlines()[0] == f"{FIRST}: {SMALL}MiB -> {found}MiB (asked {asked}MiB, in force {found}MiB)"
    tiered.stop()
    tiered.start()
    assert capacity(tiered, "dram") == found * MIB
    assert answer(tiered, "knob", "get", FIRST)["value"] == f"{found}MiB"
    assert differences(tiered) == {}
    assert set_knob(tiered, SECOND, f"{LARGE}MiB")["old"] == f"{SMALL}MiB"  # with the first as it is
    assert set(differences(tiered)) == {SECOND}
    assert run(tiered, "knob", "set", FIRST, f"{SMALL}MiB").stdout == f"{FIRST}: {found}MiB -> {SMALL}MiB\n"
    assert differences(tiered)[FIRST] == (f"{SMALL}MiB", f"{asked}MiB")
    tiered.stop()


def test_sizes_that_a_start_would_refuse_are_refused(tiered):
    before = capacity(tiered, "dram")
    for value, part in (
        ("1MiB", "allowed: 2MiB to"),
        ("2MiB", "is too little for"),
        (f"{17 * SMALL}MiB", "is more than max_bytes"),
        ("8TiB", "max_bytes"),
        ("12 apples", "is not possible"),
    ):
        assert part in refused(tiered, "knob", "set", FIRST, value), value
    assert "the nearest name is" in refused(tiered, "knob", "set", "cache.tiers[2].bytes", "64MiB")
    assert capacity(tiered, "dram") == before
    assert answer(tiered, "knob", "get", FIRST)["value"] == f"{SMALL}MiB"
    tiered.stop()


def test_the_sizes_that_are_allowed_are_told(tiered):
    for name in (FIRST, SECOND):
        least, most = answer(tiered, "knob", "get", name)["allowed"].removesuffix(", written like 4096 or 1.5GiB").split(" to ")
        assert most == answer(tiered, "knob", "get", name.replace(".bytes", ".max_bytes"))["value"]
        set_knob(tiered, name, least)
        least_bytes, most_bytes = (int(size.removesuffix("MiB")) * MIB for size in (least, most))
        why = "is too little for" if least != "2MiB" else "is not possible; allowed: 2MiB"  # of lanes; of all tiers
        assert why in refused(tiered, "knob", "set", name, str(least_bytes - 1))
        assert "is more than max_bytes" in refused(tiered, "knob", "set", name, str(most_bytes + 1))
    tiered.stop()


def test_a_tier_is_not_made_smaller_than_its_pins(tiered):
    must_have(tiered, FIRST, "dram", LARGE)
    rows = SMALL * MIB * 5 // 8 // 1024  # pinned rows may be half of the tier
    with tiered.connect(arena_bytes=32 * MIB) as server:
        table = server.create_table("t", 256, rows=rows)
        batch = server.prefetch_batch([(table, rows)])
        batch.ids(0)[:] = np.arange(rows)
        batch.prefetch()
        assert tiered.metrics()["cache_pinned_rows"] == rows
        error = refused(tiered, "knob", "set", FIRST, f"{SMALL}MiB")
        assert f"{rows * 1024} bytes of rows are pinned" in error
        assert capacity(tiered, "dram") == LARGE * MIB
        assert answer(tiered, "knob", "get", FIRST)["value"] == f"{LARGE}MiB"
        batch.release()
        wait_for(lambda: tiered.metrics()["cache_pinned_rows"] == 0, "the rows stay pinned")
        must_have(tiered, FIRST, "dram", SMALL)
    tiered.stop()

