# SPDX-License-Identifier: Apache-2.0
"""Are checkpoints made, found again, verified and deleted as the Python client says, and wrong requests
refused with the reason?"""

from __future__ import annotations

import re
import threading
from ctypes import byref, c_void_p
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from conftest import TREE

import embtier
from embtier._library import CheckpointInfo, CheckpointOptions, ProgressFunction, lib


def ids(server: embtier.Server) -> list[int]:
    return [checkpoint.id for checkpoint in server.checkpoints()]


def create_raw(server: embtier.Server, metadata: bytes) -> None:
    """With @metadata as it is, which the Python client would not send."""
    options = CheckpointOptions(metadata=metadata)
    pointer = c_void_p()
    with server._connection as handle:
        code = lib.embtier_checkpoint_create(handle, byref(options), ProgressFunction(), None, byref(pointer))
        server._connection.check(code)
    lib.embtier_checkpoint_list_free(pointer)


@pytest.mark.parametrize(
    ("struct", "mirror"),
    [("embtier_checkpoint", CheckpointInfo), ("embtier_checkpoint_options", CheckpointOptions)],
)
def test_structs_are_those_of_the_c_header(struct, mirror):
    header = (TREE / "client/embtier.h").read_text()
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", header, re.MULTILINE | re.DOTALL)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    assert re.findall(r"(\w+);", body) == [name for name, _ in mirror._fields_]


# ---- Making ----


def test_a_checkpoint_is_what_was_asked_for_and_found_again(server, name):
    server.create_table(name, 4, 1000, optimizer="adagrad").set([1, 2], np.ones((2, 4)))
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    made = server.checkpoint(step=2000, metadata={"epoch": 3, "loss": 0.25})
    assert before <= made.created <= datetime.now(timezone.utc) + timedelta(seconds=1)
    assert (made.step, made.metadata, made.automatic) == (2000, {"epoch": 3, "loss": 0.25}, False)
    assert sorted(made.tables) == sorted(spec.name for spec in server.tables())
    assert name in made.tables and made.table_count == len(made.tables)
    assert 0 < made.bytes and 0 <= made.new_bytes <= made.bytes
    assert made.pause >= 0 and made.held_rows >= 0 and made.spent >= 0
    found = server.checkpoint_info(made.id)
    assert (found.id, found.step, found.metadata, found.tables) == (made.id, 2000, made.metadata, made.tables)
    assert (found.created, found.bytes) == (made.created, made.bytes)
    listed = {checkpoint.id: checkpoint for checkpoint in server.checkpoints()}[made.id]
    assert listed.tables is None and listed.table_count == made.table_count
    assert (listed.step, listed.metadata, listed.bytes) == (2000, made.metadata, made.bytes)


def test_step_and_metadata_may_be_left_out(server):
    made = server.checkpoint()
    assert made.step is None and made.metadata is None
    assert server.checkpoint_info(made.id).step is None
    assert server.checkpoint(step=0).step == 0
    assert server.checkpoint(step=2**64 - 1).step == 2**64 - 1


@pytest.mark.parametrize(
    "metadata",
    [{}, [], "text", 7, 2.5, True, {"ä\x7f\"\\\n": [None, {"€": -1e-300}, "\0"]}, "x" * 4094],
    ids=["object", "array", "text", "integer", "number", "true", "nested", "longest"],
)
def test_metadata_comes_back_as_it_was(server, metadata):
    made = server.checkpoint(metadata=metadata)
    assert made.metadata == metadata
    assert server.checkpoint_info(made.id).metadata == metadata


def test_ids_count_up_and_the_list_is_in_their_order(server):
    made = [server.checkpoint().id for _ in range(3)]
    assert made == sorted(set(made))
    assert ids(server) == sorted(ids(server)) and set(made) <= set(ids(server))
    server.delete_checkpoint(made[1])
    assert server.checkpoint().id > made[2]


def test_a_table_is_in_those_made_while_it_was_there(server, name):
    before = server.checkpoint()
    server.create_table(name, 4, 10)
    during = server.checkpoint()
    server.drop_table(name)
    after = server.checkpoint()
    assert [name in server.checkpoint_info(made.id).tables for made in (before, during, after)] == [
        False, True, False,
    ]  # fmt: skip
    server.verify_checkpoint(during.id)


def test_requests_go_on_meanwhile(daemon, server, name):
    table = server.create_table(name, 8, 20000, optimizer="sgd")
    failures = []
    stop = threading.Event()

    def update() -> None:
        try:
            with daemon.connect() as own:
                mine = own.open_table(name)
                number = 0
                while not stop.is_set():
                    number += 1
                    rows = np.arange(1000) + number % 20 * 1000
                    mine.set(rows, np.full((1000, 8), number, np.float32))
                    assert (mine.get(rows) == number).all()
        except BaseException as error:  # told to the test's thread
            failures.append(error)

    thread = threading.Thread(target=update)
    thread.start()
    try:
        for step in range(3):
            made = server.checkpoint(step=step)
            assert made.pause <= made.spent + 0.001
    finally:
        stop.set()
        thread.join()
    assert not failures
    server.verify_checkpoint(made.id)
    assert table.get([0]).shape == (1, 8)


def test_progress_is_told(server, name):
    server.create_table(name, 16, 5000, init=("constant", 1), eager=True)
    reports: list[tuple[int, int, str]] = []
    made = server.checkpoint(progress=lambda *report: reports.append(report))
    server.verify_checkpoint(made.id, progress=lambda *report: reports.append(report))
    assert all(0 <= done <= total and unit for done, total, unit in reports)


def test_those_on_disk_are_there_after_a_restart(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 4, 100).set([7], np.full((1, 4), 3))
        made = server.checkpoint(step=5, metadata=["kept"])
        info = server.checkpoint_info(made.id)
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert server.checkpoint_info(made.id) == info
        server.verify_checkpoint(made.id)
        assert server.checkpoint().id > made.id


# ---- keep ----


def test_keep_deletes_the_oldest_that_users_made(server):
    made = [server.checkpoint().id for _ in range(4)]
    automatic = [checkpoint.id for checkpoint in server.checkpoints() if checkpoint.automatic]
    last = server.checkpoint(keep=2).id
    users = [checkpoint.id for checkpoint in server.checkpoints() if not checkpoint.automatic]
    assert users == [made[-1], last]
    assert set(automatic) <= set(ids(server))
    newest = server.checkpoint(keep=1).id
    assert [checkpoint.id for checkpoint in server.checkpoints() if not checkpoint.automatic] == [newest]
    server.checkpoint(keep=0)
    assert newest in ids(server)


# ---- Deleting ----


def test_a_deleted_one_is_gone_and_others_are_whole(server, name):
    server.create_table(name, 4, 100).set([1], np.ones((1, 4)))
    first, second, third = (server.checkpoint() for _ in range(3))
    server.delete_checkpoint(second.id)
    assert second.id not in ids(server)
    for call in (server.checkpoint_info, server.verify_checkpoint, server.delete_checkpoint):
        with pytest.raises(embtier.NotFoundError, match=str(second.id)):
            call(second.id)
    server.verify_checkpoint(first.id)
    server.verify_checkpoint(third.id)


def test_the_newest_cannot_be_deleted(server):
    server.checkpoint()
    newest = ids(server)[-1]
    with pytest.raises(embtier.InvalidError, match="newest"):
        server.delete_checkpoint(newest)
    assert newest in ids(server)
    server.checkpoint()
    server.delete_checkpoint(newest)
    assert newest not in ids(server)


# ---- Refusals ----


def test_unknown_ids_are_not_found(server):
    for unknown in (0, 2**63, 2**64 - 1):
        for call in (server.checkpoint_info, server.verify_checkpoint, server.delete_checkpoint):
            with pytest.raises(embtier.NotFoundError):
                call(unknown)
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="id must be from 1"):
            server.checkpoint_info(wrong)
    with pytest.raises(TypeError):
        server.delete_checkpoint("1")


@pytest.mark.parametrize("metadata", [b"{epoch: 3}", b"{", b"1 2", b" ", b'"\xff"', b"nul"])
def test_metadata_that_is_not_json_is_refused_by_the_server(server, metadata):
    before = ids(server)
    with pytest.raises(embtier.InvalidError, match="(?i)metadata"):
        create_raw(server, metadata)
    assert ids(server) == before  # and the session goes on


@pytest.mark.parametrize("metadata", [b'"' + b"x" * 4095 + b'"', b"[\n]", b'"\x7f"'])
def test_metadata_that_the_protocol_does_not_take_is_refused_by_the_library(server, metadata):
    with pytest.raises(embtier.InvalidError, match="metadata (is 4097 bytes long|holds the control)"):
        create_raw(server, metadata)
    create_raw(server, b"")  # none


def test_wrong_arguments_are_told_before_anything_is_asked(server):
    before = ids(server)
    with pytest.raises(embtier.InvalidError, match="metadata is 4097 bytes long, at most 4096"):
        server.checkpoint(metadata="x" * 4095)
    with pytest.raises(ValueError, match="JSON"):
        server.checkpoint(metadata=float("nan"))
    with pytest.raises(TypeError, match="JSON"):
        server.checkpoint(metadata=object())
    for step in (-1, 2**64):
        with pytest.raises(ValueError, match="step must be from 0"):
            server.checkpoint(step=step)
    for keep in (-1, 2**32):
        with pytest.raises(ValueError, match="keep must be from 0"):
            server.checkpoint(keep=keep)
    with pytest.raises(TypeError):
        server.checkpoint(step=1.5)
    assert ids(server) == before
