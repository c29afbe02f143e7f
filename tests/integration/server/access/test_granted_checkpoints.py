# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of users, and what users may see of them."""

from __future__ import annotations

import json
import os

import embtier
import numpy as np
import pytest
from accessed import Guarded

@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    yield daemon
    daemon.end()


@pytest.mark.parametrize("transport", ["shm", "tls"])
def test_a_checkpoint_names_its_user(guarded, transport):
    guarded.start()
    with guarded.connect_as("boss", transport) as server:
        made = server.checkpoint(step=5)
        assert (made.user, made.uid) == ("boss", None if transport == "tls" else os.geteuid())
        server.start_profile()
        name = "a user over a network" if transport == "tls" else f"user {os.geteuid()}"
        with pytest.raises(embtier.BusyError, match=f"{name} already makes a profile"):
            server.start_profile()
        server.stop_profile()
    guarded.restart()
    shown, _ = guarded.run_as("boss", "shm", "checkpoint", "list")
    assert "boss" in shown and "UID" not in shown and "4294967295" not in shown, shown
    shown, _ = guarded.run_as("boss", "shm", "checkpoint", "show", str(made.id))
    assert "user       boss\n" in shown, shown
    shown, _ = guarded.run_as("boss", "shm", "-o", "json", "checkpoint", "list")
    assert [(one["user"], one["uid"]) for one in json.loads(shown) if one["id"] == made.id] == [("boss", made.uid)]
    assert {line["user"] for line in guarded.logged("checkpoint made") if line["by"] == "user"} == {"boss"}
    assert "4294967295" not in guarded.log.read_text()


@pytest.mark.parametrize(("interval", "said"), [(600, "or wait: the server makes one every 600 s"), (0, "the server makes none by itself")])
def test_without_a_checkpoint_a_trainer_learns_whom_to_ask(guarded, interval, said, tmp_path):
    guarded.configure({"checkpoints": {"interval_seconds": interval}})
    guarded.add("trainer", "train")
    guarded.start()
    with guarded.connect_as("boss") as boss:
        boss.create_table("t", 4, rows=10)
    _, error = guarded.run_as("trainer", "shm", "export", "t", str(tmp_path / "out"), "--checkpoint", "newest", code=1)
    assert "ask an administrator" in error and said in error, error


@pytest.mark.parametrize("transport", ["shm", "tls"])
def test_a_reader_exports_its_table_alone(guarded, transport, tmp_path):
    """It reads a checkpoint that exists, as making one is about all tables. Other tables stay hidden."""
    guarded.add("reader", "read", tables=["ads_*"])
    guarded.start()
    with guarded.connect_as("boss") as boss:
        for name in ("ads_a", "users"):
            boss.create_table(name, 4, rows=10, init=("constant", 3)).set([1], np.ones((1, 4), np.float32))
        made = boss.checkpoint(step=77)
    for which in ("newest", str(made.id)):
        said, _ = guarded.run_as("reader", transport, "export", "ads_a", str(tmp_path / which), "--checkpoint", which)
        assert f"as of checkpoint {made.id}" in said
        assert json.loads((tmp_path / which / "table.json").read_text())["step"] == "77"
    with guarded.connect_as("boss") as boss:
        boss.import_table(str(tmp_path / "newest"), "again")
        assert (boss.open_table("again").get([1]) == 1).all()
    _, said = guarded.run_as("reader", transport, "export", "ads_a", str(tmp_path / "now"), code=1)
    assert "checkpoint create" in said and "--checkpoint newest" in said, said
    _, said = guarded.run_as("reader", transport, "export", "ads_a", str(tmp_path / "no"), "--checkpoint", "1000000", code=1)
    assert "there is no checkpoint 1000000" in said, said
    for refused in (("export", "users", str(tmp_path / "not"), "--checkpoint", "newest"), ("checkpoint", "show", str(made.id))):
        _, said = guarded.run_as("reader", transport, *refused, code=1)
        assert "granted" in said, said
    with guarded.connect_as("reader", transport) as server, pytest.raises(embtier.PermissionError, match='checkpoint "newest"'):
        server.export_table("ads_a", str(tmp_path / "python"))
