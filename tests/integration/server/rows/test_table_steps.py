# SPDX-License-Identifier: Apache-2.0
"""A table keeps its identity and the step of its rows, whatever happens to the server."""

from __future__ import annotations

import concurrent.futures
import json
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from control_requests import KINDS, encode
from raw_client import RawClient, fields
from stores import run_cli

import embtier

DURABILITIES = ("replay", "async", "sync")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def push(server: embtier.Server, tables: list[embtier.Table], step: int, number: float = 1.0) -> None:
    with server.push_batch([(table, 2) for table in tables]) as batch:
        for part in range(len(tables)):
            batch.ids(part)[:] = [1, 1000 + step]
            batch.gradients(part)[:] = number
        batch.push(0.1, step)


def make_all(server: embtier.Server, **options) -> list[embtier.Table]:
    return [server.create_table(one, 4, 10_000, optimizer="adam", durability=one, **options) for one in DURABILITIES]


def steps(server: embtier.Server) -> dict[str, int]:
    assert {spec.name: spec.step for spec in server.tables()} == {
        spec.name: server.open_table(spec.name).step for spec in server.tables()
    }
    return {spec.name: spec.step for spec in server.tables()}


def uuids(server: embtier.Server) -> dict[str, str]:
    return {spec.name: spec.uuid for spec in server.tables()}


def test_a_step_is_that_of_the_last_push_that_changed_rows(own_daemon):
    with own_daemon.connect() as server:
        tables = make_all(server)
        assert set(steps(server).values()) == {0}
        tables[0].set([1], 1)
        push(server, tables[:2], 7)
        assert steps(server) == {"replay": 7, "async": 7, "sync": 0}
        push(server, tables, 3)  # by another trainer, which is behind
        with pytest.raises(embtier.errors.NonfiniteError):
            push(server, tables, 9, np.nan)
        with server.push_batch([(tables[0], 1)]) as batch:
            batch.ids(0)[:] = 1
            batch.gradients(0)[:] = 1
            batch.push(0.1, 12, group=server.join("one", 1, 0, step=11))
        assert steps(server) == {"replay": 12, "async": 7, "sync": 3}
        shown = json.loads(run_cli(own_daemon, "table", "show", "async", "-o", "json").stdout)
        assert shown["step"] == 7 and shown["uuid"] == tables[1].spec.uuid
        assert f"uuid       {tables[1].spec.uuid}\nstep       7\n" in run_cli(own_daemon, "table", "show", "async").stdout


def test_a_push_that_changes_no_row_of_a_table_is_no_step_of_it(own_daemon):
    with own_daemon.connect() as server:
        one, other, empty = make_all(server)
        with server.push_batch([(one, 1), (empty, 0)]) as batch:
            batch.ids(0)[:] = batch.gradients(0)[:] = 1
            batch.push(0.1, 5)
        with server.bag_batch([embtier.Bags(one, 1, 1), embtier.Bags(other, 1, 1), embtier.Bags(empty, 0, 1)]) as bags:
            bags.ids(0)[:] = bags.ids(1)[:] = 1
            for part in range(3):
                bags.offsets(part)[:] = [0, 0 if part == 2 else 1]
            bags.lookup(ticket=True)
            bags.gradients(0)[:] = bags.gradients(2)[:] = 1
            bags.skip(1)
            bags.push(0.1, 5)
        assert steps(server) == {"replay": 5, "async": 0, "sync": 0}


@pytest.mark.parametrize("rows", (1, 10_000), ids=("one row", "many"))
def test_a_checkpoint_has_the_step_of_its_rows_while_others_push(own_daemon, rows):
    """Each push takes 1 from its rows, so the rows' numbers are their step, negated."""
    options = {"optimizer": "sgd", "init": "zeros"}
    over = threading.Event()
    with own_daemon.connect() as server:
        for one in DURABILITIES:
            server.create_table(one, 2, 10_000, durability=one, **options)

    def push_on() -> None:
        with own_daemon.connect() as mine:
            tables = [mine.open_table(one) for one in DURABILITIES]
            with mine.push_batch([(table, rows) for table in tables]) as batch:
                for part in range(len(tables)):
                    batch.ids(part)[:] = np.arange(rows)
                    batch.gradients(part)[:] = 1
                step = 0
                while not over.is_set():
                    step += 1
                    batch.push(1.0, step)

    with concurrent.futures.ThreadPoolExecutor() as pool, own_daemon.connect() as server:
        pushing = pool.submit(push_on)
        made = []
        try:
            for _ in range(4):
                before = server.open_table("sync").step
                wait_until(lambda: pushing.done() or server.open_table("sync").step > before)
                made.append(server.checkpoint())
        finally:
            over.set()
        pushing.result()
        assert 0 < server.open_table("replay").step
        for checkpoint in made:
            for one in DURABILITIES:
                (spec,) = server.restore_checkpoint(checkpoint.id, [one], f"{one}_{checkpoint.id}")
                found = np.unique(server.open_table(spec.name).get(np.arange(rows)))
                if checkpoint.cut_updates == 0:
                    assert found.tolist() == [-spec.step]
                else:  # a part of that step's push is in it
                    assert set(found.tolist()) <= {-spec.step, 1 - spec.step}


def test_every_table_has_a_uuid_of_its_own_that_stays(own_daemon):
    with own_daemon.connect() as server:
        make_all(server)
        before = uuids(server)
        assert len(set(before.values())) == 3 and all(len(one) == 32 and int(one, 16) for one in before.values())
        server.drop_table("sync")
        server.create_table("sync", 4, 10_000, optimizer="adam", durability="sync")
        again = server.create_table("async", 4, 10_000, optimizer="adam", durability="async", if_not_exists=True)
        assert again.spec.uuid == before["async"]
        after = uuids(server)
        assert after["sync"] != before["sync"] and after["replay"] == before["replay"]
    own_daemon.restart()
    with own_daemon.connect() as server:
        assert uuids(server) == after


@pytest.mark.parametrize("times", (1, 3))
def test_steps_survive_clean_stops(own_daemon, times):
    for at in range(times):
        with own_daemon.connect() as server:
            push(server, make_all(server, if_not_exists=True), at + 1)
            assert set(steps(server).values()) == {at + 1}
        own_daemon.restart()
        with own_daemon.connect() as server:
            assert set(steps(server).values()) == {at + 1}


@pytest.mark.parametrize("many", (False, True), ids=("few", "many"))
def test_after_a_crash_a_step_is_that_of_the_rows(own_daemon, many):
    """This holds also for a catalog that is too large to be written whole with each change."""
    with own_daemon.connect() as server:
        for i in range(80 if many else 0):
            server.create_table(f"other_{i}", 1)
        tables = make_all(server)
        for step in range(1, 4):
            push(server, tables, step)
        server.checkpoint()
        for step in range(4, 6):
            push(server, tables, step)
        before = tables[1].get_with_state([1, 1005])
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert {k: v for k, v in steps(server).items() if v} == {"replay": 3, "async": 5, "sync": 5}
        assert all((a == b).all() for a, b in zip(server.open_table("async").get_with_state([1, 1005]), before))
        push(server, [server.open_table(one) for one in DURABILITIES], 6)
    own_daemon.restart()
    with own_daemon.connect() as server:
        assert {k: v for k, v in steps(server).items() if v} == dict.fromkeys(DURABILITIES, 6)


def test_without_a_checkpoint_a_crash_leaves_no_step_to_a_table_without_rows(own_daemon):
    with own_daemon.connect() as server:
        push(server, make_all(server), 8)
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert steps(server) == {"replay": 0, "async": 8, "sync": 8}


def test_a_crash_after_a_clean_stop_goes_back_to_the_steps_of_its_rows(own_daemon):
    with own_daemon.connect() as server:
        push(server, make_all(server), 2)
    own_daemon.restart()
    with own_daemon.connect() as server:
        push(server, [server.open_table(one) for one in DURABILITIES], 4)
    own_daemon.kill()
    own_daemon.start()
    with own_daemon.connect() as server:
        found = server.open_table("replay").get_with_state([1002])[1].any()
        assert found and steps(server) == {"replay": 2, "async": 4, "sync": 4}


def test_what_is_put_back_to_a_checkpoint_has_its_steps(own_daemon):
    with own_daemon.connect() as server:
        tables = make_all(server)
        before = uuids(server)
        push(server, tables, 5)
        checkpoint = server.checkpoint()
        push(server, tables, 6)
        for one in DURABILITIES:
            (made,) = server.restore_checkpoint(checkpoint.id, [one], f"{one}_then")
            assert (made.uuid, made.step) == (before[one], 5)
            assert server.open_table(f"{one}_then").step == 5
    own_daemon.stop()
    own_daemon.start("--restore", str(checkpoint.id))
    with own_daemon.connect() as server:
        assert steps(server) == dict.fromkeys(DURABILITIES, 5) and uuids(server) == before


@pytest.mark.parametrize("optimizer", ("sgd", "adam"))
def test_exports_take_uuid_and_step_along(own_daemon, optimizer, tmp_path):
    with own_daemon.connect() as server:
        table = server.create_table("one", 4, 10_000, optimizer=optimizer)
        push(server, [table], 9)
        server.export_table(table, tmp_path / "one", state=optimizer == "adam")
        push(server, [table], 10)
        again = server.open_table(server.import_table(tmp_path / "one", "again").name).spec
        assert (again.uuid, again.step) == (table.spec.uuid, 9)
        bare = server.open_table(server.import_table(tmp_path / "one", "bare", state=False).name).spec
        assert (bare.uuid, bare.step) == (table.spec.uuid, 0 if optimizer == "adam" else 9)
        described = json.loads((tmp_path / "one" / "table.json").read_text())
        for key, wrong in (("uuid", "x" * 32), ("uuid", "a"), ("uuid", "a" * 33), ("uuid", 3), ("step", -1), ("step", str(2**53))):
            edited = described | {"table": described["table"] | {key: wrong}}
            (tmp_path / "one" / "table.json").write_text(json.dumps(edited))
            with pytest.raises(embtier.errors.CorruptError):
                server.import_table(tmp_path / "one", "wrong")
        for key in ("uuid", "step"):
            del described["table"][key]
        (tmp_path / "one" / "table.json").write_text(json.dumps(described))
        old = server.open_table(server.import_table(tmp_path / "one", "old").name).spec  # older than uuids and steps
        assert len(old.uuid) == 32 and old.uuid != table.spec.uuid and old.step == 0


SPEC = {"name": "sent", "rows": 100, "dim": 4, "dtype": 1, "optimizer": 5, "init_version": 1}


def test_a_client_gives_no_uuid_or_step_to_a_table_that_it_makes(daemon):
    number = KINDS["table_create"].number
    with RawClient(daemon.path) as client:
        sent = SPEC | {"uuid": "a" * 32, "step": 5}
        client.call(number, encode("TableCreate", {"spec": sent}))
    with daemon.connect() as server:
        spec = server.open_table("sent").spec
        assert spec.uuid != "a" * 32 and len(spec.uuid) == 32 and spec.step == 0
        server.drop_table("sent")


@pytest.mark.parametrize(
    "wrong", ({"uuid": "a"}, {"uuid": "a" * 33}, {"uuid": "A" * 32}, {"uuid": "g" * 32}, {"step": 2**53}), ids=str
)
@pytest.mark.parametrize("kind", ("table_create", "load_open"))
def test_what_is_no_uuid_and_no_step_is_refused(daemon, kind, wrong):
    number, message, _ = KINDS[kind]
    with RawClient(daemon.path) as client:
        reply = client.call(number, encode(message, {"spec": SPEC | wrong}))
        (error,) = reply[3]
        assert fields(error)[1] == [embtier.errors.code_of("INVALID")]
    with daemon.connect() as server:
        assert "sent" not in {spec.name for spec in server.tables()}
