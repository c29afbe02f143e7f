# SPDX-License-Identifier: Apache-2.0
"""Checkpoints are made, listed, verified and deleted, and tables restored from them, as the Python client says. Wrong requests
are refused with the reason."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterator
from ctypes import byref, c_void_p, sizeof
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from conftest import TREE, Daemon, under_load

import embtier
from embtier._library import CheckpointInfo, CheckpointOptions, ProgressFunction, lib

pytestmark = pytest.mark.usefixtures("random_homes")


def ids(server: embtier.Server) -> list[int]:
    return [checkpoint.id for checkpoint in server.checkpoints()]


def create_raw(server: embtier.Server, metadata: bytes) -> None:
    """Sends @metadata as it is, which the Python client would not do."""
    options = CheckpointOptions(struct_bytes=sizeof(CheckpointOptions), metadata=metadata)
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
    header = "".join(file.read_text() for file in (TREE / "client/include").glob("*.h"))
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", header, re.MULTILINE | re.DOTALL)[1]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    assert re.findall(r"(\w+);", body) == [name for name, _ in mirror._fields_]


# ---- Creation ----


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


@contextlib.contextmanager
def updates(daemon: Daemon, name: str) -> Iterator[None]:
    """Updates a table of 20,000 x 8 over a connection of its own; rows read must be those set."""
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
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    thread = threading.Thread(target=update)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures


def test_requests_go_on_meanwhile(daemon, server, name):
    table = server.create_table(name, 8, 20000, optimizer="sgd")
    with updates(daemon, name):
        for step in range(3):
            made = under_load(server.checkpoint, step=step)
            assert made.pause <= made.spent + 0.001
    server.verify_checkpoint(made.id)
    assert table.get([0]).shape == (1, 8)


def test_progress_is_told(server, name):
    server.create_table(name, 16, 5000).set(np.arange(5000), np.ones((5000, 16)))  # so that the checkpoint has rows to save
    saved: list[tuple[int, int, str]] = []
    verified: list[tuple[int, int, str]] = []
    made = server.checkpoint(progress=lambda *report: saved.append(report))
    server.verify_checkpoint(made.id, progress=lambda *report: verified.append(report))
    assert saved and {unit for _, _, unit in saved} <= {"rows", "databases"}
    assert verified and {(total, unit) for _, total, unit in verified} == {(made.bytes, "bytes")}
    for reports in (saved, verified):
        assert all(0 <= done <= total for done, total, _ in reports)
    read = [done for done, _, _ in verified]
    assert read == sorted(read) and read[-1] > 0


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


# ---- Deletion ----


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


# ---- Restoring tables ----

IDS = np.concatenate([np.arange(0, 900, 3), [999]]).astype(np.uint64)  # of rows that are set and trained
KINDS = {
    "replay": dict(rows=1000, optimizer="adam", durability="replay"),
    "async": dict(rows=1000, optimizer="rowwise_adagrad", dtype="f16", durability="async"),
    "sync": dict(rows=1000, optimizer="adagrad", durability="sync"),
    "unbounded": dict(optimizer="rmsprop", dtype="bf16", durability="replay"),
    "unbounded_sync": dict(optimizer="sgd", durability="sync"),
    "eager": dict(rows=1000, optimizer="adam", eager=True, durability="replay"),
}


def ids_of(table: embtier.Table) -> np.ndarray:
    """Ids that :func:`train` changes, and many that it does not."""
    unbounded = [2**32, 2**64 - 2, 2**64 - 1] if table.rows is None else []
    return np.concatenate([np.arange(1000, dtype=np.uint64), np.array(unbounded, np.uint64)])


def train(server: embtier.Server, table: embtier.Table, step: int, ids: np.ndarray = IDS) -> None:
    """Gives rows and state numbers that no other step gives."""
    if table.rows is None:
        ids = np.concatenate([ids, np.array([2**32, 2**64 - 1], np.uint64)])
    with server.push_batch([(table, len(ids))]) as batch:
        batch.ids(0)[:] = ids
        batch.gradients(0)[:] = np.random.default_rng(step).uniform(-1, 1, (len(ids), table.dim))
        batch.push(0.5, step)


def contents(table: embtier.Table) -> tuple[bytes, bytes]:
    rows, state = table.get_with_state(ids_of(table))
    return rows.tobytes(), state.tobytes()


def create(server: embtier.Server, name: str, kind: str) -> embtier.Table:
    return server.create_table(name, 5, init=("uniform", -1, 1), seed=11, **KINDS[kind])


def names(server: embtier.Server) -> list[str]:
    return sorted(spec.name for spec in server.tables())


def as_made(spec: embtier.TableSpec, **changes) -> embtier.TableSpec:
    """Without its id, and without its home, for which a restored table may find no memory."""
    return dataclasses.replace(spec, **{"table_id": 0, "home": "cache", "tier": None, **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_table_is_restored_with_rows_and_state(server, name, kind):
    table = create(server, name, kind)
    train(server, table, 1)
    before, spec = contents(table), table.spec
    checkpoint = server.checkpoint()
    train(server, table, 2, np.arange(500, dtype=np.uint64))  # including rows never touched before
    assert contents(table) != before
    server.drop_table(name)
    made = server.restore_checkpoint(checkpoint.id, [name])
    assert [as_made(one) for one in made] == [as_made(spec)]
    assert made == [one for one in server.tables() if one.name == name]
    table = server.open_table(name)
    assert contents(table) == before
    train(server, table, 2)  # the table can be used as any other
    assert contents(table) != before


@pytest.mark.parametrize("kind", KINDS)
def test_restored_under_another_name_it_stands_beside_the_live_one(server, name, kind):
    table = create(server, name, kind)
    train(server, table, 1)
    then = contents(table)
    checkpoint = server.checkpoint()
    train(server, table, 2)
    now = contents(table)
    (made,) = server.restore_checkpoint(checkpoint.id, (name,), name=f"{name}.then")
    assert as_made(made) == as_made(table.spec, name=f"{name}.then")
    assert made.table_id != table.spec.table_id
    restored = server.open_table(f"{name}.then")
    assert (contents(restored), contents(table)) == (then, now)
    train(server, restored, 2)
    assert contents(restored) == contents(table) == now  # the same push on the same rows and state
    train(server, table, 3)
    assert contents(restored) == now
    server.drop_table(name)
    assert contents(restored) == now


def test_rows_that_were_never_touched_have_their_first_values(server, name):
    fresh = create(server, f"{name}.fresh", "replay")
    table = create(server, name, "replay")
    train(server, table, 1)
    checkpoint = server.checkpoint()
    table.set(np.arange(1000), np.zeros((1000, 5)))
    server.restore_checkpoint(checkpoint.id, [name], name=f"{name}.then")
    others = np.setdiff1d(np.arange(1000, dtype=np.uint64), IDS)
    restored = server.open_table(f"{name}.then")
    for found, wanted in zip(restored.get_with_state(others), fresh.get_with_state(others)):
        np.testing.assert_array_equal(found, wanted)
    assert (restored.get(IDS) != fresh.get(IDS)).any(axis=1).all()


def test_over_a_live_table_nothing_is_restored(server, name):
    table = create(server, name, "replay")
    train(server, table, 1)
    checkpoint = server.checkpoint()
    train(server, table, 2)
    create(server, f"{name}.other", "async")
    now, tables, checkpoints = contents(table), server.tables(), ids(server)
    with pytest.raises(embtier.ExistsError, match=rf"'{name}'.*drop it first"):
        server.restore_checkpoint(checkpoint.id, [name])
    for taken in (name, f"{name}.other"):
        with pytest.raises(embtier.ExistsError, match=f"'{taken}'"):
            server.restore_checkpoint(checkpoint.id, [name], name=taken)
    assert contents(table) == now and server.tables() == tables and ids(server) == checkpoints


def test_of_several_none_is_made_when_one_is_there(server, name):
    several = [f"{name}.{kind}" for kind in ("async", "replay", "sync")]
    for one in several:
        train(server, create(server, one, one.rpartition(".")[2]), 1)
    checkpoint = server.checkpoint()
    server.drop_table(several[0])
    server.drop_table(several[2])
    before = server.tables()
    with pytest.raises(embtier.ExistsError, match=f"'{several[1]}'"):
        server.restore_checkpoint(checkpoint.id, several)
    with pytest.raises(embtier.ExistsError):
        server.restore_checkpoint(checkpoint.id)
    assert server.tables() == before
    made = server.restore_checkpoint(checkpoint.id, [several[2], several[0]])
    assert sorted(spec.name for spec in made) == [several[0], several[2]]


def test_a_table_that_is_named_twice_is_refused(server, name):
    several = [f"{name}.{number}" for number in range(3)]
    for one in several:
        create(server, one, "replay")
    checkpoint = server.checkpoint()
    for one in several:
        server.drop_table(one)
    before = server.tables()
    with pytest.raises(ValueError, match=f"'{several[0]}' is named twice"):
        server.restore_checkpoint(checkpoint.id, [several[0], several[2], several[1], several[0]])
    assert server.tables() == before
    made = server.restore_checkpoint(checkpoint.id, several)  # once each is fine
    assert sorted(spec.name for spec in made) == several


def test_all_tables_of_a_checkpoint_are_restored(own_daemon):
    with own_daemon.connect() as server:
        tables = {kind: create(server, kind, kind) for kind in KINDS}
        for table in tables.values():
            train(server, table, 1)
        before = {kind: contents(table) for kind, table in tables.items()}
        checkpoint = server.checkpoint()
        create(server, "later", "replay")
        for kind in KINDS:
            server.drop_table(kind)
        made = server.restore_checkpoint(checkpoint.id)
        assert sorted(spec.name for spec in made) == sorted(KINDS)
        assert names(server) == sorted([*KINDS, "later"])
        assert {kind: contents(server.open_table(kind)) for kind in KINDS} == before
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert {kind: contents(server.open_table(kind)) for kind in KINDS} == before


def test_restored_rows_outlive_a_crash_right_after(own_daemon):
    with own_daemon.connect() as server:
        tables = {kind: create(server, kind, kind) for kind in KINDS}
        for table in tables.values():
            train(server, table, 1)
        before = {kind: contents(table) for kind, table in tables.items()}
        checkpoint = server.checkpoint()
        for kind in KINDS:
            server.drop_table(kind)
        server.restore_checkpoint(checkpoint.id)
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert {kind: contents(server.open_table(kind)) for kind in KINDS} == before


def test_beside_a_live_table_it_outlives_a_crash_as_well(own_daemon):
    with own_daemon.connect() as server:
        table = create(server, "t", "replay")
        train(server, table, 1)
        then = contents(table)
        checkpoint = server.checkpoint()
        train(server, table, 2)
        now = contents(table)
        server.restore_checkpoint(checkpoint.id, ["t"], name="t.then")
        newest = server.checkpoints()[-1]
        assert newest.id > checkpoint.id and newest.automatic
        assert sorted(server.checkpoint_info(newest.id).tables) == ["t", "t.then"]
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert (contents(server.open_table("t.then")), contents(server.open_table("t"))) == (then, now)


def test_it_needs_its_checkpoint_no_more(server, name):
    table = create(server, name, "replay")
    train(server, table, 1)
    then = contents(table)
    first = server.checkpoint()
    server.drop_table(name)
    server.restore_checkpoint(first.id, [name], name=f"{name}.2")
    second = server.checkpoint()
    server.delete_checkpoint(first.id)
    server.drop_table(f"{name}.2")
    server.restore_checkpoint(second.id, [f"{name}.2"], name=f"{name}.3")
    assert contents(server.open_table(f"{name}.3")) == then


def test_a_table_of_that_name_that_is_another_now_does_not_matter(server, name):
    table = create(server, name, "replay")
    train(server, table, 1)
    then, spec = contents(table), table.spec
    checkpoint = server.checkpoint()
    server.drop_table(name)
    other = server.create_table(name, 3, 50, dtype="f16", init=("constant", 2))
    server.restore_checkpoint(checkpoint.id, [name], name=f"{name}.then")
    restored = server.open_table(f"{name}.then")
    assert as_made(restored.spec, name=name) == as_made(spec) and contents(restored) == then
    assert (other.get(np.arange(50)) == 2).all()


def test_a_table_without_rows_is_restored(server, name):
    server.create_table(name, 4, init=("constant", 7))
    checkpoint = server.checkpoint()
    server.drop_table(name)
    (made,) = server.restore_checkpoint(checkpoint.id, [name])
    assert made.name == name and made.rows is None
    assert (server.open_table(name).get([0, 2**64 - 1]) == 7).all()


def test_requests_to_other_tables_go_on_while_one_is_restored(daemon, server, name):
    reports: list[tuple[int, int, str]] = []
    server.create_table(name, 8, 20000)
    then = server.create_table(f"{name}.then", 16, 20000, optimizer="adam", eager=True, init=("uniform", -1, 1))
    then.set(np.arange(0, 20000, 7), np.full((1, 16), 3))
    rows, state = then.get_with_state(np.arange(20000))
    checkpoint = server.checkpoint()
    server.drop_table(then.name)
    with updates(daemon, name):
        for copy in range(3):
            under_load(
                server.restore_checkpoint, checkpoint.id, [then.name], f"{name}.{copy}", lambda *report: reports.append(report)
            )  # it ends with a checkpoint
    assert reports and all(0 <= done <= total and unit for done, total, unit in reports)
    for copy in range(3):
        found = server.open_table(f"{name}.{copy}").get_with_state(np.arange(20000))
        np.testing.assert_array_equal(found[0], rows)
        np.testing.assert_array_equal(found[1], state)


def test_what_cannot_be_restored_is_told_and_nothing_is_made(server, name):
    create(server, name, "replay")
    checkpoint = server.checkpoint()
    server.drop_table(name)
    create(server, f"{name}.later", "replay")
    before = server.tables()
    for unknown in (0, checkpoint.id + 1000, 2**64 - 1):
        with pytest.raises(embtier.NotFoundError):
            server.restore_checkpoint(unknown, [name])
    for tables in ([f"{name}.later"], [name, f"{name}.none"], [f"{name}.none", name]):
        with pytest.raises(embtier.NoTableError, match=rf"'{name}\.(later|none)'"):
            server.restore_checkpoint(checkpoint.id, tables)
    with pytest.raises(embtier.NoTableError):
        server.restore_checkpoint(checkpoint.id, [f"{name}.none"], name=name)
    with pytest.raises(embtier.InvalidError, match="twice"):
        server.restore_checkpoint(checkpoint.id, [name, name])
    for wrong in ("", "a b", ".hidden", "-", "x" * 2000):
        with pytest.raises(embtier.InvalidError):
            server.restore_checkpoint(checkpoint.id, [wrong])
        with pytest.raises(embtier.InvalidError):
            server.restore_checkpoint(checkpoint.id, [name], name=wrong)
    for several in (None, [name, f"{name}.2"]):
        with pytest.raises(ValueError, match="name needs exactly one named table"):
            server.restore_checkpoint(checkpoint.id, several, name="new")
    with pytest.raises(ValueError, match="None restores all"):
        server.restore_checkpoint(checkpoint.id, [])
    with pytest.raises(TypeError, match=re.escape(f"['{name}']")):
        server.restore_checkpoint(checkpoint.id, name)
    with pytest.raises(ValueError, match="id must be from 1"):
        server.restore_checkpoint(-1)
    assert server.tables() == before


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
    assert ids(server) == before  # the session goes on too


@pytest.mark.parametrize("metadata", [b'"' + b"x" * 4095 + b'"', b"[\n]", b'"\x7f"'])
def test_metadata_that_the_protocol_does_not_take_is_refused_by_the_library(server, metadata):
    with pytest.raises(embtier.InvalidError, match="metadata (is 4097 bytes long|holds the control)"):
        create_raw(server, metadata)
    create_raw(server, b"")  # no metadata


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
