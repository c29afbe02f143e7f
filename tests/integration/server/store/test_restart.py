# SPDX-License-Identifier: Apache-2.0
"""Rows are the same bytes after a stop, with other lanes, another cache or another start, for every kind of table."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from daemons import LANES, SANITIZED

import embtier

pytestmark = pytest.mark.usefixtures("random_homes")

# (dtype, dim, rows, optimizer, init)
TABLES = {
    "f32_1": ("f32", 1, None, "none", ("uniform", -1, 1)),
    "f32_3_adam": ("f32", 3, 5000, "adam", ("normal", 0, 0.1)),
    "f32_128_adagrad": ("f32", 128, None, "adagrad", ("uniform", 0, 1)),
    "f32_8192": ("f32", 8192, 300, "none", ("uniform", -2, 2)),
    "f16_3": ("f16", 3, None, "rowwise_adagrad", ("normal", 1, 2)),
    "f16_128": ("f16", 128, 4000, "sgd", ("constant", 0.25)),
    "f16_8192_adam": ("f16", 8192, None, "adam", ("uniform", -2, 2)),
    "bf16_1": ("bf16", 1, 5000, "rmsprop", ("uniform", -1, 1)),
    "bf16_128": ("bf16", 128, None, "none", ("normal", 0, 1)),
    "zeros": ("f32", 16, None, "none", "zeros"),
}


def make_tables(server):
    return {
        name: server.create_table(
            name, dim, rows, dtype=dtype, optimizer=optimizer, init=init, seed=len(name)
        )
        for name, (dtype, dim, rows, optimizer, init) in TABLES.items()
    }


def ids_of(table, rng) -> np.ndarray:
    """Some rows of the table, the first and the last among them."""
    count = min(750, 200_000 // table.dim) if SANITIZED else min(1500, 400_000 // table.dim)
    last = 2**64 - 1 if table.rows is None else table.rows - 1
    ids = rng.integers(0, last, count, dtype=np.uint64, endpoint=True)
    return np.unique(np.concatenate([ids, np.array([0, last], dtype=np.uint64)]))


def some_rows(table, count, rng) -> np.ndarray:
    """Any bits except signalling NaNs, which NumPy's conversions would change; bf16 is given as bits."""
    bits = rng.integers(0, 2**16, (count, table.dim), dtype=np.uint16)
    if table.dtype == "bf16":
        return bits
    if table.dtype == "f16":
        return bits.view(np.float16)
    return rng.standard_normal((count, table.dim)).astype(np.float32)


def get_all(server, ids) -> dict[str, bytes]:
    """Weights, then state."""
    found = {}
    for name, wanted in ids.items():
        table = server.open_table(name)
        step = max(1, (8 << 20) // (table.dim * 4))
        parts = [table.get_with_state(wanted[at : at + step]) for at in range(0, len(wanted), step)]
        found[name] = b"".join(np.concatenate(columns).tobytes() for columns in zip(*parts))
    return found


def write_some(server, ids, rng) -> None:
    """Writes every second of @ids: of these first every second with state, then every third by weights alone."""
    for name, wanted in ids.items():
        table = server.open_table(name)
        step = max(1, (8 << 20) // (table.dim * 4))
        for at in range(0, len(wanted[::2]), step):
            some = wanted[::2][at : at + step]
            for few, state in ((some[::2], True), (some[::3], False)):
                with server.batch([(table, len(few))], state=state) as batch:
                    batch.ids(0)[:] = few
                    batch.rows(0)[:] = some_rows(table, len(few), rng)
                    if state:
                        batch.state(0)[:] = rng.standard_normal((len(few), table.state_numbers))
                    batch.set()


def other_lanes() -> int:
    return 1 if LANES > 1 else 3


@pytest.fixture
def numbers(rng):
    return np.random.default_rng(rng.randrange(2**32))


def test_a_stopped_server_serves_the_same_bytes_again_with_any_lanes_and_cache(make_daemon, numbers):
    daemon = make_daemon()
    daemon.configure({"cache": {"tiers": [daemon.dram(LANES, 16), daemon.pmem(LANES, 4)]}})
    daemon.start()
    with daemon.connect() as server:
        ids = {name: ids_of(table, numbers) for name, table in make_tables(server).items()}
        write_some(server, ids, numbers)
        before = get_all(server, ids)
        last = {name: ids[name] for name in ("f32_1", "bf16_1")}  # all other rows are on SSD already
        write_some(server, last, numbers)
        before |= get_all(server, last)
        dirty = sum(daemon.metrics()["cache_dirty_rows"].values())
        assert dirty > 0, "nothing is left to write back"
    for lanes in (LANES, other_lanes(), LANES):
        daemon.restart({
            "lanes": {"count": lanes},
            "cache": {"tiers": [daemon.dram(lanes, 6), daemon.pmem(lanes, 4)]},
        })  # fmt: skip
        with daemon.connect() as server:
            assert get_all(server, ids) == before
    said = [fields for fields in daemon.logged("writing rows back") if "rows" in fields]
    assert said and int(said[0]["rows"]) > 0


def test_first_values_are_the_same_whatever_lanes_cache_order_and_start(make_daemon, numbers):
    def values(daemon, ids):
        daemon.start()
        with daemon.connect() as server:
            make_tables(server)
            for name, wanted in ids.items():  # first in another order
                table = server.open_table(name)
                table.get(numbers.permutation(wanted)[: 4000 // table.dim + 1])
            found = get_all(server, ids)
            assert get_all(server, ids) == found
        daemon.restart()
        with daemon.connect() as server:
            assert get_all(server, ids) == found
        daemon.stop()
        return found

    one = make_daemon()
    one.start()
    with one.connect() as server:
        ids = {name: ids_of(table, numbers) for name, table in make_tables(server).items()}
        for name in TABLES:
            server.drop_table(name)
        # Table numbers differ from here on; a row's initial value must not depend on them.
    one.stop()
    expected = values(one, ids)
    for lanes, mib, shards in ((other_lanes(), 4, 8), (LANES, 40, 3 * LANES)):
        other = make_daemon({"data": {"shards_per_directory": shards}}, lanes=lanes)
        other.configure({"cache": {"tiers": [other.dram(lanes, mib)]}})
        assert values(other, ids) == expected
    constants = np.frombuffer(expected["f16_128"], dtype=np.float16)
    assert (constants == 0.25).all() and not any(expected["zeros"])
    both = np.frombuffer(expected["f32_128_adagrad"], dtype=np.float32)
    uniform, state = np.split(both, 2)
    assert not state.any()
    assert 0 <= uniform.min() and uniform.max() < 1 and len(np.unique(uniform)) > len(uniform) // 2


def test_rows_that_were_never_written_write_nothing_to_ssd(own_daemon):
    """This holds even if they are read, and leave the cache, by the ten thousand, and the server stops."""
    with own_daemon.connect() as server:
        table = server.create_table("read_only", 64, init=("uniform", 0, 1), home="cache")  # a split stores its hot ids
        for first in range(0, max(100_000, (30_000 if SANITIZED else 100_000) * LANES), 10_000):
            table.get(np.arange(first, first + 10_000))
    metrics = own_daemon.metrics()
    assert metrics["rows_initialised"] >= 100_000
    assert sum(metrics["cache_evicted_clean_rows"].values()) > 0
    assert sum(metrics["cache_evicted_dirty_rows"].values()) == 0
    assert metrics["store_rows_written"] == metrics["store_row_bytes_written"] == 0
    assert metrics["store_written_bytes"]["flush"] == metrics["store_written_bytes"]["compaction"] == 0
    stored = metrics["store_stored_bytes"]
    own_daemon.restart()
    metrics = own_daemon.metrics()
    assert metrics["store_stored_bytes"] == stored and metrics["store_rows_written"] == 0
    assert not [path for path in own_daemon.folder.glob("rows/**/*.sst")]


def test_clean_rows_that_leave_the_cache_are_not_written_again(own_daemon):
    count = (24_000 if SANITIZED else 30_000) * LANES  # more than the cache holds
    with own_daemon.connect() as server:
        table = server.create_table("once", 64)
        for ids in np.array_split(np.arange(count), LANES * 3):
            table.set(ids, np.ones((len(ids), 64)))
    own_daemon.restart()
    with own_daemon.connect() as server:
        table = server.open_table("once")
        for ids in np.array_split(np.arange(count), LANES * 3) * (1 if SANITIZED else 2):
            assert (table.get(ids) == 1).all()
    metrics = own_daemon.metrics()
    assert sum(metrics["cache_evicted_clean_rows"].values()) > 1000
    assert metrics["store_rows_written"] == 0
    own_daemon.restart()
    assert own_daemon.metrics()["store_rows_written"] == 0


def test_a_dirty_row_is_written_once_however_often_it_was_set(own_daemon):
    with own_daemon.connect() as server:
        table = server.create_table("often", 64, home="cache")  # a split stores its hot ids
        for i in range(200):
            table.set(np.arange(1000), np.full((1000, 64), i))
        assert own_daemon.metrics()["store_rows_written"] == 0, "they fit into the cache"
    own_daemon.stop()
    said = own_daemon.logged("writing rows back")
    assert said and said[0]["rows"] == "1000"


@pytest.mark.parametrize("how", ["stopped", "killed", "restore"])
def test_a_start_that_takes_long_says_how_far_it_is(make_daemon, how):
    """Every read of a table file takes two seconds longer. So lines come while one shard is opened, while its logs are read and
    flushed, and while a file of the checkpoint is verified."""
    daemon = make_daemon({"data": {"shards_per_directory": 1}}, lanes=1)
    slow = daemon.folder / "slow"
    daemon.with_fault("slow_reads", EMBTIER_FAULT_TRIGGER=str(slow), EMBTIER_FAULT_READ_MS="2000")
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 64, durability="async").set(np.arange(1000), np.ones((1000, 64)))
        if how == "restore":
            server.create_table("others", 64).set(np.arange(1000), np.ones((1000, 64)))
            server.checkpoint()
    daemon.kill() if how == "killed" else daemon.stop()
    before = len(daemon.logged("opening the store"))  # on a slow machine the first start may have logged some
    slow.touch()
    daemon.start(*(["--restore", "1"] if how == "restore" else []))
    slow.unlink()
    said = [
        (fields["step"], int(fields["done"]), int(fields["of"]), int(fields["seconds"]))
        for fields in daemon.logged("opening the store")[before:]
    ]
    assert len(said) >= 2, said
    seconds = [line[3] for line in said]
    assert seconds == sorted(seconds) and seconds[-1] >= len(said), said
    for step in {line[0] for line in said}:
        done = [line[1] for line in said if line[0] == step]
        assert done == sorted(done) and all(0 <= line[1] <= line[2] for line in said), said
    assert all(line[1:3] == (0, 1) for line in said if line[0] == "shards"), said
    assert "shards" in {line[0] for line in said} or how == "restore", said
    if how == "restore":
        assert "verify_mib" in {line[0] for line in said}, said


def test_a_second_signal_does_not_disturb_a_stop_that_gets_on(own_daemon):
    """An impatient user of a service manager may send it. Either the stop is done, with nothing lost, or the log says how many
    rows are lost."""
    with own_daemon.connect() as server:
        table = server.create_table("rows", 64)
        table.set(np.arange(10_000), np.ones((10_000, 64)))
    pid = own_daemon.pid
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.005)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    code = own_daemon._process.wait(60)
    last = own_daemon.logged("")[-1]
    assert (code, last["msg"]) in ((0, "stopped; all rows are on SSD"), (1, "embtierd ends")), last
    own_daemon.await_end(code)
    own_daemon.start()
    with own_daemon.connect() as server:
        got = server.open_table("rows").get(np.arange(10_000))
    assert ((got == 1) | (got == 0)).all()
    if code == 0:
        assert (got == 1).all()


def test_requests_in_flight_at_a_stop_end_and_the_rest_is_told(own_daemon):
    with own_daemon.connect() as server:
        table = server.create_table("rows", 64)
        batches = [server.batch([(table, 4000)]) for _ in range(8)]
        for i, batch in enumerate(batches):
            batch.ids(0)[:] = np.arange(i * 4000, i * 4000 + 4000)
            batch.rows(0)[:] = i + 1
            batch.submit_set()
        own_daemon.stop()
        ended = []
        for batch in batches:
            try:
                batch.wait(60)
                ended.append(True)
            except (embtier.DisconnectedError, embtier.ShutdownError):
                ended.append(False)
    own_daemon.start()
    with own_daemon.connect() as server:
        table = server.open_table("rows")
        for i, kept in enumerate(ended):
            got = table.get(np.arange(i * 4000, i * 4000 + 4000))
            assert (got == i + 1).all() if kept else ((got == i + 1) | (got == 0)).all()


@pytest.mark.parametrize("dtype,bits", [("f32", 32), ("f16", 16), ("bf16", 16)])
def test_nan_and_inf_are_stored_bit_for_bit(own_daemon, dtype, bits):
    if bits == 32:
        patterns = [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FC12345, 0xFFC00001, 0x7F800001, 0x80000000, 1]
    elif dtype == "f16":
        patterns = [0x7C00, 0xFC00, 0x7E00, 0x7E01, 0xFE55, 0x7C01, 0x8000, 1]
    else:
        patterns = [0x7F80, 0xFF80, 0x7FC0, 0x7FC1, 0xFFC5, 0x7F81, 0x8000, 1]
    given = np.array([patterns, patterns[::-1]], dtype=f"<u{bits // 8}")

    def stored(server):
        with server.batch([(server.open_table("odd"), 2)]) as batch:
            batch.ids(0)[:] = [1, 2]
            return batch.get().rows(0).view(given.dtype).tolist()

    with own_daemon.connect() as server:
        table = server.create_table("odd", 8, dtype=dtype)
        with server.batch([(table, 2)]) as batch:
            batch.ids(0)[:] = [1, 2]
            batch.rows(0).view(given.dtype)[:] = given
            batch.set()
        assert stored(server) == given.tolist()
    own_daemon.restart()
    with own_daemon.connect() as server:
        assert stored(server) == given.tolist()


def test_optimizer_state_has_its_place_on_ssd_and_survives_a_set(own_daemon):
    """A row's bytes on SSD are those of its weights and its optimizer's state. This holds if it was written whole from the cache,
    or as weights over a row that had to be read."""
    with own_daemon.connect() as server:
        for name in ("none", "adam"):
            # A split would store its hot ids as well.
            server.create_table(name, 8, 1000, optimizer=name, home="cache").set(np.arange(1000), np.ones((1000, 8)))
    sizes = {}
    own_daemon.restart()
    for name in ("none", "adam"):
        with own_daemon.connect() as server:
            server.open_table(name).set(np.arange(500), np.full((500, 8), 2))
        own_daemon.stop()
        written = [fields for fields in own_daemon.logged("writing rows back") if "rows" in fields][-1]
        assert written["rows"] == "500"
        sizes[name] = stored_value_bytes(own_daemon, name)
        own_daemon.start()
    if None in sizes.values():
        pytest.skip("needs ldb, of rocksdb-tools")
    assert sizes["none"] and sizes["adam"] - sizes["none"] >= 2 * 8 * 4


def stored_value_bytes(daemon, table):
    """The longest value of all shards, found with ldb as an administrator would."""
    try:
        longest = 0
        for current in daemon.folder.glob("rows/**/CURRENT"):
            out = subprocess.run(
                ["ldb", f"--db={current.parent}", "scan", "--value_hex"], capture_output=True, text=True
            ).stdout
            for line in out.splitlines():
                value = re.split(" : | ==> ", line)[-1]  # " ==> " from RocksDB 8.7 on
                if value.startswith("0x") and (table == "adam" or len(value) < 150):
                    longest = max(longest, len(value) // 2 - 1)
        return longest
    except FileNotFoundError:
        return None
