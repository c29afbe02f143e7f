# SPDX-License-Identifier: Apache-2.0
"""Walks all operations, with each role, over each transport: each user may do what its role allows, on tables that it is granted."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np
import pytest
from accessed import PERMISSION, TRANSPORTS, Guarded
from control_requests import ADAM, KINDS, MESSAGES
from daemons import TREE
from raw_any import BAG_OFFSETS, GRADIENTS, IDS, ROWS, error_of
from raw_client import GET, SET, field, fields

import embtier

INVALID, UNSUPPORTED = embtier.errors.code_of("INVALID"), embtier.errors.code_of("UNSUPPORTED")
ROLES = ["read", "train", "admin"]
NONE, NAMED, WHOLE = "no table", "the tables that it names", "all tables"

# The table of docs/access.md, written down once more: the least role, and the tables that a user must be granted. In the
# order of the walk, in which some requests need what others made. {} stands for the table's name.
OPERATIONS: list[tuple[str, str, str, dict]] = [
    ("table_create", "admin", NAMED, {"spec": ADAM | {"name": "{}_made"}, "if_not_exists": True}),
    ("table_open", "read", NAMED, {"name": "{}"}),
    ("table_list", "read", NONE, {}),
    ("table_move", "admin", NAMED, {"name": "{}", "home": 0}),
    ("status", "read", NONE, {}),
    ("group_join", "train", NONE, {"name": "g", "size": 2, "member": 1}),
    ("group_leave", "train", NONE, {"handle": 1 << 50}),
    ("checkpoint_create", "admin", WHOLE, {"metadata": "[]"}),
    ("checkpoint_list", "read", NONE, {}),
    ("checkpoint_show", "read", WHOLE, {"id": 1}),
    ("checkpoint_verify", "admin", WHOLE, {"id": 1}),
    ("checkpoint_restore", "admin", NAMED, {"id": 1 << 40, "tables": ["{}"]}),
    ("checkpoint_restore", "admin", NAMED, {"id": 1 << 40, "tables": ["mine"], "name": "{}"}),
    ("checkpoint_restore", "admin", WHOLE, {"id": 1 << 40}),
    ("checkpoint_delete", "admin", WHOLE, {"id": 1}),
    ("scan_open", "read", NAMED, {"table": "{}"}),
    ("scan_next", "read", NONE, {"offset": 4096, "bytes": 8192}),
    ("scan_close", "none", NONE, {}),
    ("load_open", "admin", NAMED, {"spec": ADAM | {"name": "{}_loaded"}}),
    ("load_rows", "admin", NONE, {"offset": 20480, "bytes": 8192, "rows": 2, "rows_at": 64}),
    ("load_end", "admin", NONE, {}),
    ("load_close", "none", NONE, {}),
    ("account_list", "read", NONE, {}),
    ("job_list", "read", NONE, {}),
    ("job_cancel", "read", NONE, {"id": 1 << 40}),
    ("plan_begin", "admin", WHOLE, {"generation": 2, "hash": 7, "tables": 3}),
    ("plan_end", "admin", WHOLE, {}),
    ("plan_show", "read", NONE, {}),
    ("profile_start", "admin", WHOLE, {"memory_bytes": 1 << 26}),
    ("profile_read", "admin", WHOLE, {}),
    ("profile_stop", "admin", WHOLE, {}),
    ("reload", "admin", WHOLE, {}),
    ("compaction_show", "admin", WHOLE, {}),
    ("compaction_set", "admin", WHOLE, {"deferral": 2}),
    ("compaction_run", "admin", WHOLE, {}),
    ("reshard", "admin", WHOLE, {}),
    ("session_list", "read", NONE, {}),
    ("session_end", "admin", WHOLE, {"number": 1 << 40}),
    ("knob_list", "admin", WHOLE, {}),
    ("knob_set", "admin", WHOLE, {"name": "log.level", "value": "info"}),
    ("table_drop", "admin", NAMED, {"name": "{}_made"}),
    ("table_drop", "admin", NAMED, {"name": "{}_loaded"}),
]

# Operations on rows have numbers in proto/ops.h.
NUMBERS = {name: int(number) for name, number in re.findall(r"OP\((\w+), (\d+)\)", (TREE / "proto/ops.h").read_text())}
WITH_TICKET = 2


def rows_segment(table: int) -> bytes:
    return struct.pack("<QQQII", table, IDS, ROWS, 1, 0)


def bags_segment(table: int) -> bytes:
    return struct.pack("<QQQQQIIIIQ", table, IDS, ROWS, BAG_OFFSETS, 0, 1, 1, 1, 0, 0)


def push_segment(table: int) -> bytes:
    return struct.pack("<QQQQdIIIIQ", table, IDS, GRADIENTS, 0, 0.5, 1, 4, 0, 0, 0)


def prefetch_segment(table: int) -> bytes:
    return struct.pack("<QQQQdIIIIQ", table, IDS, 0, 0, 0, 1, 0, 0, 0, 0)


# The operation, its flags and its step, the least role, and the segment for a table that must be granted. RELEASE has the ticket of the
# PREFETCH before it.
ROW_OPERATIONS: list[tuple[str, int, int, str, Callable[[int], bytes] | None]] = [
    ("GET", 0, 0, "read", rows_segment),
    ("SET", 0, 0, "train", rows_segment),
    ("POOL", 0, 0, "read", bags_segment),
    ("POOL", WITH_TICKET, 0, "train", bags_segment),
    ("PUSH", 0, 1, "train", push_segment),
    ("PREFETCH", 0, 0, "read", prefetch_segment),
    ("RELEASE", 0, 0, "none", None),
]


def filled(values, name: str):
    """@values with @name in place of each {}."""
    if isinstance(values, dict):
        return {key: filled(value, name) for key, value in values.items()}
    if isinstance(values, list):
        return [filled(value, name) for value in values]
    return values.replace("{}", name) if isinstance(values, str) else values


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    daemon = Guarded(tmp_path_factory.mktemp("access"))
    for role in ROLES:
        daemon.add(f"{role}_of_some", role, tables=["mine*"])
        daemon.add(f"{role}_of_all", role)
    daemon.start()
    with daemon.connect() as root:
        for name in ("mine", "theirs"):
            root.create_table(name, 4, rows=100, optimizer="sgd", init=("constant", 1))
        root.checkpoint()
    yield daemon
    daemon.stop()


def test_the_walk_has_all_requests():
    assert {kind for kind, *_ in OPERATIONS} == set(KINDS) - {"hello"}


def test_the_walk_has_all_operations_on_rows():
    assert {name for name, *_ in ROW_OPERATIONS} == set(NUMBERS)
    assert sorted(NUMBERS.values()) == list(range(1, 1 + len(NUMBERS)))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("grants", ["some", "all"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_what_the_table_says(guarded, transport, grants, role):
    user = f"{role}_of_{grants}"
    for kind, least, relation, values in OPERATIONS:
        for table in ["mine", "theirs"] if relation == NAMED else [""]:
            with guarded.raw_as(user, transport) as client:
                err, said = client.error(kind, filled(values, table))
            has_role = ["none", *ROLES].index(role) >= ["none", *ROLES].index(least)
            has_tables = grants == "all" or relation == NONE or table == "mine"
            where = f"{user} {kind} {table}: {err} {said}"
            assert (err == PERMISSION) == (not (has_role and has_tables)), where
            if err != PERMISSION:
                continue
            assert user in said, where
            if not has_role:
                assert f"needs role {least}" in said and f"role {role}" in said, where
            elif relation == NAMED:
                assert f"table '{table}" in said, where
            else:
                assert "all tables" in said, where


def rows_of(daemon) -> np.ndarray:
    with daemon.connect() as root:
        return np.concatenate([root.open_table(name).get(np.arange(100)) for name in ("mine", "theirs")])


@pytest.fixture(scope="module")
def handles(guarded) -> dict[str, int]:
    with guarded.raw_as("boss", "shm") as boss:
        return {name: fields(boss.call("table_open", {"name": name})[6][0])[1][0] for name in ("mine", "theirs")}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("grants", ["some", "all"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_do_on_rows_what_the_table_says(guarded, handles, transport, grants, role):
    """Each operation on rows, by its number, with handles of all tables."""
    before, released = rows_of(guarded), 0
    with guarded.raw_as(f"{role}_of_{grants}", transport) as client:
        for name, flags, step, least, segment in ROW_OPERATIONS:
            for table, handle in handles.items() if segment else [("", 0)]:
                err, ticket = client.submit(NUMBERS[name], segment(handle) if segment else b"", flags, step, 0 if segment else released)
                may = ["none", *ROLES].index(role) >= ["none", *ROLES].index(least) and (grants == "all" or table != "theirs")
                assert err == (0 if may else PERMISSION), f"{role} {name} {flags} {table}"
                released = ticket if may else released
    assert (rows_of(guarded) == before).all()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("role", ROLES)
def test_each_role_may_ask_for_rows_as_the_table_says(guarded, transport, role):
    """Operations on rows, through the library, which says what is missing."""

    def allowed(least: str, call, words: str = "") -> None:
        if ROLES.index(role) >= ROLES.index(least):
            call()
            return
        with pytest.raises(embtier.PermissionError, match=f"{words}needs role {least}, and user '{role}_of_some' has role {role}"):
            call()

    before = rows_of(guarded)
    with guarded.connect_as(f"{role}_of_some", transport) as server:
        table = server.open_table("mine")
        allowed("read", lambda: table.get([1, 2]))
        allowed("train", lambda: table.set([1], np.ones((1, 4))))
        with server.bag_batch([embtier.Bags(table, 2, 1)]) as bags:
            bags.ids(0)[:], bags.offsets(0)[:] = [1, 2], [0, 2]
            allowed("read", bags.lookup)
            allowed("train", lambda: bags.lookup(ticket=True), r"a lookup to train from \(with a ticket\) ")
            if role != "read":
                bags.gradients(0)[:] = 0
                bags.push(lr=0.5, step=1)
        with server.push_batch([(table, 1)]) as push:
            push.ids(0)[:], push.gradients(0)[:] = [1], 0
            allowed("train", lambda: push.push(lr=0.5, step=1))
        with server.prefetch_batch([(table, 2)]) as ahead:
            ahead.ids(0)[:] = [1, 2]
            allowed("read", ahead.prefetch)
    assert (rows_of(guarded) == before).all()


def test_a_reader_that_would_train_learns_of_no_grad(guarded):
    """torch makes a ticket for each pass that could be trained from. A module for passes that are not needs no learning rate."""
    torch = pytest.importorskip("torch")
    from embtier.torch import EmbeddingBag

    ids = torch.tensor([[1, 2]])
    with guarded.connect_as("read_of_some", "shm") as server:
        module = EmbeddingBag(server.open_table("mine"), mode="sum")
        with torch.no_grad():
            assert (module(ids) == 2).all()
        with pytest.raises(ValueError, match=r"lr is missing.*torch\.no_grad\(\)"):
            module(ids)
        module.lr = 0.1
        with pytest.raises(embtier.PermissionError, match=r"with a ticket\) needs role train.*torch\.no_grad\(\)"):
            module(ids)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_guessed_handle_is_refused(guarded, handles, transport):
    before = rows_of(guarded)
    for role in ROLES:
        with guarded.raw_as(f"{role}_of_some", transport) as client:
            assert client.access_row(GET, handles["mine"]) == 0
            assert client.access_row(SET, handles["theirs"]) == PERMISSION
            assert client.access_row(GET, handles["theirs"]) == PERMISSION
            assert client.access_row(GET, handles["mine"]) == 0  # the session goes on
    assert (rows_of(guarded) == before).all()


def test_lists_show_what_is_granted(guarded):
    with guarded.connect_as("read_of_some") as some, guarded.connect_as("read_of_all") as all_, guarded.connect() as root:
        assert {t.name for t in some.tables()} == {t.name for t in root.tables() if t.name.startswith("mine")}
        assert {t.name for t in all_.tables()} == {t.name for t in root.tables()}
        assert set(some.users()) == {"read_of_some"}
        assert {"read_of_some", "read_of_all", 0} <= set(root.users())
        with guarded.connect_as("admin_of_some") as admin:
            assert set(admin.users()) == {"admin_of_some"}


def test_a_list_goes_on_over_pages_that_show_nothing(guarded):
    with guarded.connect() as root:
        for i in range(260):  # two pages and more
            root.create_table(f"theirs_{i}", 1)
        root.create_table("mine_last", 1)
    try:
        with guarded.connect_as("read_of_some") as some:
            names = [t.name for t in some.tables()]
            assert "mine_last" in names and not any(name.startswith("theirs") for name in names)
    finally:
        with guarded.connect() as root:
            for i in range(260):
                root.drop_table(f"theirs_{i}")
            root.drop_table("mine_last")


# Beside each number that is known, and far from all.
KNOWN_REQUESTS = {number for number, *_ in MESSAGES["Request"].values()}
NEAR_REQUESTS = {near for number in KNOWN_REQUESTS for near in (number - 1, number + 1) if near}
UNKNOWN_REQUESTS = [*sorted(NEAR_REQUESTS - KNOWN_REQUESTS), 9000, 2**29 - 1]
UNKNOWN_OPERATIONS = [0, *range(1 + len(NUMBERS), 20), 2**31, 2**32 - 1]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("user", ["read_of_some", "admin_of_all"])
def test_an_unknown_request_is_no_secret_and_does_nothing(guarded, transport, user):
    before = rows_of(guarded)
    with guarded.raw_as(user, transport) as client:
        for number in UNKNOWN_REQUESTS:
            err, said = error_of(client.call_bytes(field(1, 5) + field(number, field(1, "mine"))))
            assert (err, "does not know the request" in said) == (UNSUPPORTED, True), f"{number}: {err} {said}"
        assert client.error("status", {})[0] == 0
    assert (rows_of(guarded) == before).all()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("user", ["read_of_some", "admin_of_all"])
def test_an_unknown_operation_on_rows_does_nothing(guarded, handles, transport, user):
    before = rows_of(guarded)
    with guarded.raw_as(user, transport) as client:
        for number in UNKNOWN_OPERATIONS:
            for segment in (rows_segment, push_segment):
                assert client.submit(number, segment(handles["mine"]))[0] == INVALID, number
        assert client.access_row(GET, handles["mine"]) == 0
    assert (rows_of(guarded) == before).all()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_create_of_a_table_that_is_there_needs_no_more_than_opening_it(guarded, transport):
    """Programs make their tables unless these are there. A trainer runs them too, once an admin has made the tables."""
    alike = {"rows": 100, "optimizer": "sgd", "init": ("constant", 1)}
    refusals = guarded.metrics()["access_refusals"]
    for user in ("read_of_some", "train_of_some"):
        with guarded.connect_as(user, transport) as server:
            table = server.create_table("mine", 4, if_not_exists=True, **alike)
            assert (table.get([1]) == server.open_table("mine").get([1])).all()
            with pytest.raises(embtier.MismatchError, match="rows"):
                server.create_table("mine", 4, if_not_exists=True, **alike | {"rows": 99})
            said = []
            for name, if_not_exists in (("mine", False), ("mine_new", True), ("theirs", True), ("their_new", True)):
                with pytest.raises(embtier.PermissionError, match="table create needs role admin") as caught:
                    server.create_table(name, 4, if_not_exists=if_not_exists, **alike)
                said.append(str(caught.value))
            assert len(set(said)) == 1, "tables that are not granted are not told from those that are not there"
    assert guarded.metrics()["access_refusals"] == refusals + 2 * 4
    with guarded.connect() as root:
        assert {table.name for table in root.tables()} == {"mine", "theirs"}
