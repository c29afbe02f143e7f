# SPDX-License-Identifier: Apache-2.0
"""One flipped bit, changed byte, zeroed sector or cut end, in any file of the store, is found or harmless. The server never
serves a wrong row.

Each store is made once. Its daemon was stopped, killed, or killed while it restored all tables from a checkpoint. Each flip gets
its own copy and start. Either the server refuses to start and says why, or each row is right for its table's durability, or
reading it fails.

Some damage cannot be found, since a crash may leave a file equally short:
* The end of a shard's newest log: cut off or zeroed, or with a zero sector behind the last mark of the synced length
  (store/database/logs/log_marks.h). The last updates of logged tables in it are gone, and rows are as acknowledged before. Damage to a
  single byte is found there too, also in the last record.
* The end of the MANIFEST of a database with a log, cut off or zeroed after a crash (a clean stop seals it): whole flushes are
  gone.
* The end of an older log, if the crash came before its rows were flushed: the updates behind it are gone.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from daemons import LONG, SANITIZED, Daemon

import embtier

# Per kind.
FLIPS = int(os.environ.get("EMBTIER_TEST_FLIPS", 3 if SANITIZED else 1000 if LONG else 20))

DIM = 16
ROWS = 4000
WRITTEN = 3000  # the others keep their initial values
TABLES = {  # name: (optimizer, durability)
    "replay": ("none", "replay"),
    "adagrad": ("adagrad", "replay"),
    "async": ("none", "async"),
    "sync": ("adagrad", "sync"),
    "untouched": ("none", "replay"),
}
ALL = np.arange(ROWS)
PIECE = 125

SETTINGS = {
    "data": {"shards_per_directory": 4},
    "lanes": {"count": 1, "write_queue_bytes": "1MiB", "request_bytes": "8MiB"},
    "rocksdb": {"memtable_bytes": "1MiB", "metadata_cache_bytes": "1MiB"},
    "checkpoints": {"interval_seconds": 0},
}


def values(ids: np.ndarray, version: int) -> np.ndarray:
    """The rows of one version: each number encodes the version, the row and the column."""
    return (version * 100_000 + ids * DIM)[:, None] + np.arange(DIM, dtype=np.float32)


def write(server, names, ids, version) -> None:
    for name in names:
        rows = values(ids, version)
        server.open_table(name).set(ids, rows, -rows if TABLES[name][0] != "none" else None)


def read(server, name, ids) -> np.ndarray:
    """Weights, with the optimizer's state beside them."""
    return np.hstack(server.open_table(name).get_with_state(ids))


# ---- Stores ----


@dataclass
class Store:
    """The folder that a daemon left, and the rows that it may serve."""

    daemon: Daemon
    copy: Path
    specs: list
    wanted: dict[str, np.ndarray]
    # Earlier rows of logged tables: those acknowledged before, and the initial ones.
    before: dict[str, list[np.ndarray]] = field(default_factory=dict)
    initial: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def rows(self) -> Path:
        return self.daemon.folder / "rows"

    def put_back(self) -> None:
        shutil.rmtree(self.rows)
        shutil.copytree(self.copy, self.rows)  # not links, although a checkpoint's table files have two names


def make_rows(daemon) -> Store:
    """Leaves some rows in table files of several levels, and the newest in write buffers and logs."""
    server = daemon.connect(timeout=60)
    for name, (optimizer, durability) in TABLES.items():
        server.create_table(
            name, DIM, ROWS, init=("uniform", -1, 1), seed=7, optimizer=optimizer, durability=durability
        )
    written = [name for name in TABLES if name != "untouched"]
    initial = {name: read(server, name, ALL) for name in ("async", "sync")}
    for ids in np.array_split(np.arange(WRITTEN), 6):
        write(server, written, ids, 1)
    wanted = {name: read(server, name, ALL) for name in TABLES}
    server.checkpoint()
    before = {name: [wanted[name]] for name in ("async", "sync")}
    some = np.arange(0, WRITTEN, 3)
    for version, ids in enumerate(np.array_split(some, 4), 2):
        write(server, written, ids, version)
    write(server, written, some[::5], 9)
    for name in before:
        middle = wanted[name].copy()
        for version, ids in enumerate(np.array_split(some, 4), 2):
            rows = values(ids, version)
            middle[ids] = np.hstack([rows, -rows]) if TABLES[name][0] != "none" else rows
        before[name].append(middle)
    store = Store(daemon, daemon.folder / "copy", server.tables(), wanted, before, initial)
    server.close()
    return store


def end_so(store: Store, end: str) -> None:
    daemon = store.daemon
    with daemon.connect() as server:
        now = {name: read(server, name, ALL) for name in TABLES}
    if end == "stopped":
        store.wanted = now
        store.before = {}
        daemon.stop()
        return
    daemon.kill()
    for name in store.before:
        store.wanted[name] = now[name]
    if end == "restoring":
        order = store.rows / "restore.json"
        while True:  # until the kill comes in time
            daemon.launch("--restore", "1")
            while not order.exists() and daemon.is_running:
                pass
            daemon.kill()
            if order.exists():
                break
        for name, (first, _) in store.before.items():
            store.wanted[name] = first
        store.before = {}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Makes a store when a test asks for it."""
    made: dict[str, Store] = {}

    def get(end: str) -> Store:
        if end not in made:
            daemon = Daemon(tmp_path_factory.mktemp(end), SETTINGS, lanes=1)
            daemon.start()
            made[end] = make_rows(daemon)
            end_so(made[end], end)
            shutil.copytree(made[end].rows, made[end].copy)
        return made[end]

    yield get
    with contextlib.ExitStack() as stack:
        for store in made.values():
            stack.callback(store.daemon.end)


# ---- Damage ----

BLOCK = 32768
SECTOR = 512
# A mark in a log begins with this. Three numbers follow: the first log that is needed, a log, and the synced bytes of that log.
MARK = b"embtier\x01"
MARK_HEAD = struct.Struct("<8sQQQ")


def records_of(data: bytes) -> list[int]:
    """The offsets of the records of a log or MANIFEST, in RocksDB's log format, up to the first zeros."""
    found, at = [], 0
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if kind == 0:
            break
        found.append(at)
        at += 7 + length
    return found


@dataclass
class Damage:
    path: Path
    how: str
    at: int
    was: bytes
    now: bytes

    def __str__(self) -> str:
        return f"{self.path}: {self.how} at {self.at} of {len(self.was)}"

    @property
    def shortens(self) -> bool:
        """True if only zeros are left from the damage to the end."""
        return self.now.rstrip(b"\0") == self.was[: len(self.now.rstrip(b"\0"))]


def damage(rng: random.Random, path: Path) -> Damage:
    was = path.read_bytes()
    heads = records_of(was) if path.suffix == ".log" or path.name.startswith("MANIFEST") else []
    now = bytearray(was)
    while now == was:
        at = rng.randrange(len(was))
        if heads and rng.random() < 0.5:  # record heads are few of a log's bytes, but matter most
            at = rng.choice(heads) + rng.randrange(7)
        elif path.suffix == ".sst" and rng.random() < 0.3:  # its index, properties and footer
            at = rng.randrange(max(0, len(was) - 1024), len(was))
        how = rng.choices(["bit", "byte", "sector", "cut"], [70, 10, 10, 10])[0]
        if how == "bit":
            now[at] ^= 1 << rng.randrange(8)
        elif how == "byte":
            now[at] ^= rng.randrange(1, 256)
        elif how == "sector":
            at = at // SECTOR * SECTOR
            now[at : at + SECTOR] = bytes(len(now[at : at + SECTOR]))
        else:
            del now[at:]
    path.write_bytes(now)
    return Damage(path, how, at, was, bytes(now))


def choose(rng: random.Random, folder: Path, patterns: list[str]) -> Path:
    """Chooses a kind of file first, each as likely as any other, then a file, longer ones more often."""
    files: list[Path] = []
    while not files:
        files = [path for path in sorted(folder.glob(rng.choice(patterns))) if path.stat().st_size > 0]
    return rng.choices(files, [path.stat().st_size for path in files])[0]


# ---- Checks ----

REFUSALS = (embtier.CorruptError, embtier.IoError)


def check_rows(server, name, ids, allowed) -> int:
    """Returns the number of refused rows. All others must be as in one of @allowed."""
    try:
        got = read(server, name, ids)
    except REFUSALS as error:
        assert str(error)
        if len(ids) <= PIECE:
            return len(ids)
        pieces = np.array_split(ids, -(-len(ids) // PIECE))
        return sum(check_rows(server, name, piece, allowed) for piece in pieces)
    right = np.zeros(len(ids), dtype=bool)
    for rows in allowed:
        right |= (got == rows[ids]).all(axis=1)
    wrong = ids[~right]
    assert wrong.size == 0, f"{name}: {wrong.size} rows from {wrong[:5]}: {got[~right][:2]}, not {allowed[0][wrong[:2]]}"
    return 0


def limit(store: Store, done: Damage, end: str) -> dict[str, list[np.ndarray]]:
    """Other permitted rows after damage that cannot be found; see the head of the file."""
    if end != "killed" or done.how not in ("cut", "sector"):
        return {}
    is_log = done.path.suffix == ".log" and "checkpoints" not in done.path.parts
    if not (done.shortens or (is_log and is_behind_marks(store, done))):
        return {}
    if done.path.suffix == ".log" and is_newest_log(store, done.path):
        return store.before
    if done.path.suffix == ".log" or done.path.match("logged/MANIFEST-*"):
        return {name: [*store.before[name], store.initial[name]] for name in store.before}
    return {}


def is_behind_marks(store: Store, done: Damage) -> bool:
    """True if the damage lies behind the marks: there a zeroed sector looks like a page that never reached the disk."""
    number = int(done.path.stem)
    first_wrong = next(i for i, (was, now) in enumerate(zip(done.was, done.now)) if was != now)
    return not any(
        first <= number < log or (log == number and first_wrong < end)
        for path in folder_as_left(store, done.path).glob("*.log")
        for first, log, end in marks_of(done.now if path.name == done.path.name else path.read_bytes())
    )


def marks_of(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = data.find(MARK)
    while 0 <= at <= len(data) - MARK_HEAD.size:
        yield MARK_HEAD.unpack_from(data, at)[1:]
        at = data.find(MARK, at + 1)


def is_newest_log(store: Store, path: Path) -> bool:
    return path.name == max(log.name for log in folder_as_left(store, path).glob("*.log"))


def folder_as_left(store: Store, path: Path) -> Path:
    """The folder of the damaged file, as it was before a start made new files in it."""
    return store.copy / path.parent.relative_to(store.rows)


def check(server, store: Store, besides: dict[str, list[np.ndarray]]) -> int:
    assert server.tables() == store.specs
    return sum(
        check_rows(server, name, ALL, [store.wanted[name], *besides.get(name, [])]) for name in TABLES
    )


def outcome(store: Store, done: Damage, end: str, ends_well: bool) -> str:
    """"start refused", "harmless" or the number of rows that cannot be read."""
    daemon = store.daemon
    names = (done.path.name, str(done.path.parent))
    lines = len(daemon.log_lines())
    daemon.launch()
    deadline = time.monotonic() + 60
    while True:
        try:
            server = daemon.connect(arena_bytes=64 << 20)
            break
        except embtier.UnreachableError:
            if not daemon.is_running:
                assert daemon._process.returncode == 1, "died at the start"
                why = daemon.log_lines()[-1]
                assert "embtierd ends" in why and "why=" in why
                assert any(name in why for name in names), f"refused without a reason: {why}"
                return f"start refused: {why.partition('why=')[2]}"
            assert time.monotonic() < deadline, "neither ready nor refused"
            time.sleep(0.005)
    with server:
        refused = check(server, store, limit(store, done, end))
    assert daemon.is_running, "died"
    if ends_well:
        daemon._process.terminate()
        assert daemon._process.wait(60) in (0, 1), "died at the stop"
        daemon._process = None
    else:
        daemon.kill()
    said = daemon.log_lines()[lines:]
    assert not any("Sanitizer" in line or "runtime error:" in line for line in said), said
    return f"{refused} rows refused" if refused else "harmless"


# Kind: how the store was left, and its files. "checkpoint" is the one that a crash goes back to.
DATABASE = "shard-*/*/"
KINDS = {
    "sst": ("stopped", [DATABASE + "*.sst"]),
    "sst_killed": ("killed", [DATABASE + "*.sst"]),
    "log_killed": ("killed", [DATABASE + "*.log"]),
    "manifest": ("stopped", [DATABASE + "MANIFEST-*"]),
    "manifest_killed": ("killed", [DATABASE + "MANIFEST-*"]),
    "small": ("stopped", [DATABASE + name for name in ("CURRENT", "OPTIONS-*", "IDENTITY")]),
    "small_killed": ("killed", [DATABASE + name for name in ("CURRENT", "OPTIONS-*", "IDENTITY")]),
    "own": ("stopped", ["embtier.json", "buckets.json", "catalog.json", "closed.json", "shard-*/*.seal", "LOCK"]),
    "own_killed": ("killed", ["embtier.json", "buckets.json", "catalog.json", "LOCK"]),
    "restore": ("restoring", ["restore.json", "catalog.json"]),
    "checkpoint": (
        "killed",
        ["checkpoints/*/*.json", *("checkpoints/*/shard-*/*/" + n for n in ("*.sst", "*.log", "[A-Z]*"))],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_found_or_harmless_and_no_wrong_row_is_served(stores, rng, kind):
    end, patterns = KINDS[kind]
    store = stores(end)
    seen: Counter = Counter()
    failures = []
    for flip in range(FLIPS):
        store.put_back()
        done = damage(rng, choose(rng, store.rows, patterns))
        try:
            result = outcome(store, done, end, ends_well=rng.random() < 0.2)
        except AssertionError as error:
            result = f"wrong: {error}"
            failures.append(f"flip {flip}: {done}: {error}")
        finally:
            if store.daemon.is_running:
                store.daemon.kill()
        seen[f"{done.how}: {result.partition(': ')[0].lstrip('0123456789 ')}"] += 1
        if os.environ.get("EMBTIER_TEST_TELL"):
            print(f"{kind} {flip}: {done.path.relative_to(store.rows)} {done.how} {done.at}: {result}")
    print(f"{kind}: {FLIPS} flips:", dict(sorted(seen.items())))
    assert not failures, "\n".join([str(len(failures)), *failures[:10]])


def test_verify_finds_damage_anywhere_in_a_checkpoint(stores, rng):
    store = stores("stopped")
    store.put_back()
    store.daemon.start()
    with store.daemon.connect() as server:
        patterns = KINDS["checkpoint"][1]
        for flip in range(FLIPS):
            done = damage(rng, choose(rng, store.rows, [p.replace("*", "000001", 1) for p in patterns]))
            with pytest.raises(embtier.CorruptError) as found:
                server.verify_checkpoint(1)
                pytest.fail(f"flip {flip}: {done} is not found")
            assert done.path.name in str(found.value), (str(done), str(found.value))
            done.path.write_bytes(done.was)
        server.verify_checkpoint(1)
    store.daemon.kill()


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_nothing_is_read_from_the_memory_of_a_tier_after_a_restart(stores, rng, end):
    """The file of a tier of kind "file" (persistent memory) never has a name, so that it cannot be damaged through one. Other
    files in its folder are left alone."""
    store = stores(end)
    folder = store.daemon.folder / "pmem"
    store.put_back()
    assert list(folder.iterdir()) == []
    left = {name: rng.randbytes(1 << 20) for name in ("pmem", "dram", "header")}
    for name, data in left.items():
        (folder / name).write_bytes(data)
    try:
        store.daemon.start()
        assert {path.name for path in folder.iterdir()} == set(left)
        with store.daemon.connect() as server:
            assert check(server, store, {}) == 0
        store.daemon.kill()
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == left
    finally:
        for name in left:
            (folder / name).unlink()
