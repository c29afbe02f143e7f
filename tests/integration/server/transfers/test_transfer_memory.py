# SPDX-License-Identifier: Apache-2.0
"""Exports, imports and restores together stay within their memory, and a client that is refused learns why."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from daemons import TREE

sys.path.insert(0, str(TREE / "tests/crash"))
from scans import Scan  # noqa: E402

import embtier  # noqa: E402

MIB = 1 << 20
LEAST = "66MiB"  # for 8 shards: enough for one export, but not for two
EIGHT_SHARDS = {"shards_per_directory": 8}


def fill(server, name: str, rows: int = 1000, dim: int = 16, **options) -> embtier.Table:
    table = server.create_table(name, dim, **options)
    step = max(1, MIB // dim)
    for first in range(0, rows, step):
        ids = np.arange(first, min(first + step, rows))
        table.set(ids, np.repeat(ids[:, None] % 1000, dim, axis=1))
    return table


@pytest.fixture
def small(make_daemon):
    """A daemon with memory for one export at a time."""
    daemon = make_daemon({"data": EIGHT_SHARDS, "checkpoints": {"interval_seconds": 0, "transfer_bytes": LEAST}})
    daemon.start()
    return daemon


def test_an_export_for_which_there_is_no_memory_waits_for_another(small, tmp_path):
    daemon = small
    with daemon.connect() as server, daemon.connect() as other:
        fill(server, "t", durability="async")
        checkpoint = server.checkpoint()
        other.export_table("t", tmp_path / "first")
        assert daemon.metrics()["transfer_bytes"] == 0
        scan = Scan(server, "t")
        used = int(daemon.metrics()["transfer_bytes"])
        assert 32 * MIB <= used < 50 * MIB and used % MIB == 0
        said = (
            f"needs {used // MIB}MiB of memory, and exports and imports already have {used // MIB}MiB of the {LEAST} of "
            "checkpoints.transfer_bytes: try again when one has ended"
        )
        with pytest.raises(embtier.BusyError, match=f"an export of table 't' {said}"):
            other.export_table("t", tmp_path / "second", checkpoint=checkpoint.id)
        made = [one.id for one in server.checkpoints()]
        with pytest.raises(embtier.BusyError, match="an export needs .*checkpoints.transfer_bytes"):
            other.export_table("t", tmp_path / "second")
        assert [one.id for one in server.checkpoints()] == made, "one was made for nothing"
        with pytest.raises(embtier.BusyError, match="the restore needs .*checkpoints.transfer_bytes"):
            other.restore_checkpoint(checkpoint.id, ["t"], name="copy")
        assert [table.name for table in other.tables()] == ["t"]
        other.import_table(tmp_path / "first", "imported")  # an import still has room
        assert daemon.metrics()["transfer_bytes"] == used
        assert len(scan.next()) > 0
        scan.close()
        daemon.await_metric("transfer_bytes", 0)
        other.export_table("t", tmp_path / "second")
        other.restore_checkpoint(checkpoint.id, ["t"], name="copy")
        for name in ("t", "imported", "copy"):
            assert (other.open_table(name).get(np.arange(1000)) == np.arange(1000)[:, None]).all()
        assert daemon.metrics()["transfer_bytes"] == 0


def test_what_a_client_that_died_had_is_given_back(small):
    with small.connect() as server:
        fill(server, "t")
        server.checkpoint()
    server = small.connect()
    Scan(server, "t")
    assert small.metrics()["transfer_bytes"] > 0
    server.close()
    small.await_metric("transfer_bytes", 0)


def test_an_export_that_never_fits_says_so(make_daemon, tmp_path):
    daemon = make_daemon(
        {
            "data": {"shards_per_directory": 64},
            "rocksdb": {"memtable_bytes": "64MiB"},
            "checkpoints": {"interval_seconds": 0, "transfer_bytes": "80MiB"},
        }
    )
    daemon.start()
    with daemon.connect() as server:
        fill(server, "long", 640, 8192, optimizer="adam")
        with pytest.raises(embtier.TooLargeError) as raised:
            server.export_table("long", tmp_path / "long")
        said = str(raised.value)
        assert "an export of table 'long' needs " in said and "together may have 80MiB" in said, said
        assert "raise checkpoints.transfer_bytes" in said, said
        assert not (tmp_path / "long").exists()
        assert daemon.metrics()["transfer_bytes"] == 0
    daemon.restart({"checkpoints": {"transfer_bytes": "200MiB"}})
    with daemon.connect() as server:
        assert server.export_table("long", tmp_path / "long").rows == 640


def test_too_little_memory_for_any_export_is_refused_at_the_start(make_daemon):
    daemon = make_daemon({"data": EIGHT_SHARDS, "checkpoints": {"transfer_bytes": "65MiB"}})
    said = daemon.fail_to_start()
    assert "checkpoints.transfer_bytes: 65MiB is too little to export a table of 8 shards" in said
    assert f"allowed: at least {LEAST}" in said
