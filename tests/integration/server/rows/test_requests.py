# SPDX-License-Identifier: Apache-2.0
"""A bad request is refused with the right error, and changes nothing. It harms neither its session nor others."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time

import numpy as np
import pytest
from raw_client import GET, NO_SEGMENT, SET, RawClient

import embtier

ROWS, DIM = 1000, 4
ROW = DIM * 4
ERR = {name: embtier.errors.code_of(name) for name in (
    "INVALID", "NO_TABLE", "ID_RANGE", "OFFSET_RANGE", "TOO_LARGE", "UNSUPPORTED", "DROPPED",
    "PROTOCOL",
)}  # fmt: skip


def ids(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def rows(*values):
    return np.repeat(np.array(values, dtype="<f4")[:, None], DIM, axis=1).tobytes()


@pytest.fixture
def table(daemon, name):
    """A table whose rows 0 to 9 hold their number."""
    with daemon.connect() as server:
        table = server.create_table(name, DIM, ROWS)
        table.set(np.arange(10), np.repeat(np.arange(10)[:, None], DIM, axis=1))
        yield table


@pytest.fixture
def client(daemon, table):
    """A client with ids 0, 1 at `ids` and room for rows at `rows`."""
    with RawClient(daemon.path) as client:
        client.table = client.handle(table.name)
        client.ids = client.payload + 8192
        client.rows = client.payload + 65536
        client.write(client.ids, ids(0, 1))
        yield client


@pytest.fixture(autouse=True)
def others_are_served(daemon, table, client):
    """After each test its session, unless it was ended, and another one must still be served."""
    yield
    assert (table.get(np.arange(10)) == np.arange(10)[:, None]).all()
    if client.arena is not None and not client.closed_why:
        client.write(client.ids, ids(3, 9))
        done = client.request(GET, [(client.table, client.ids, client.rows, 2)])
        assert done.err == 0 and client.read(client.rows, 2 * ROW) == rows(3, 9)


def test_a_good_request_is_answered(client):
    done = client.request(GET, [(client.table, client.ids, client.rows, 2)])
    assert (done.err, client.read(client.rows, 2 * ROW)) == (0, rows(0, 1))
    client.write(client.rows, rows(0.5, 1.5))
    assert client.request(SET, [(client.table, client.ids, client.rows, 2)]).err == 0
    client.write(client.rows, bytes(2 * ROW))
    assert client.request(GET, [(client.table, client.ids, client.rows, 2)]).err == 0
    assert client.read(client.rows, 2 * ROW) == rows(0.5, 1.5)
    client.write(client.rows, rows(0, 1))
    assert client.request(SET, [(client.table, client.ids, client.rows, 2)]).err == 0


@pytest.mark.parametrize("op", [0, 7, 8, 2**31, 2**32 - 1])
def test_an_unknown_operation_is_invalid(client, op):
    done = client.request(op, [(client.table, client.ids, client.rows, 2)])
    assert (done.err, done.value) == (ERR["INVALID"], op)


def test_unknown_flags_are_unsupported(client):
    segment = (client.table, client.ids, client.rows, 2)
    for flags in (2, 3, 1 << 31, 2**32 - 1):
        done = client.request(GET, [segment], flags=flags)
        assert (done.err, done.value) == (ERR["UNSUPPORTED"], flags)
    done = client.request(GET, [segment, (*segment, 1)])
    assert (done.err, done.segment) == (ERR["UNSUPPORTED"], 1)


@pytest.mark.parametrize("op", [GET, SET])
@pytest.mark.parametrize(
    "wrong", [lambda h: 0, lambda h: 2**64 - 1, lambda h: h ^ 1 << 32, lambda h: h ^ 1 << 15, lambda h: h + 70000]
)
def test_an_unknown_table_handle_is_no_table(client, op, wrong):
    good = (client.table, client.ids, client.rows, 1)
    client.write(client.rows, rows(-1, -1))
    done = client.request(op, [good, (wrong(client.table), client.ids, client.rows, 2)])
    assert (done.err, done.segment) == (ERR["NO_TABLE"], 1)


@pytest.mark.parametrize("bad", [ROWS, 2**32, 2**63, 2**64 - 1])
def test_a_set_with_one_id_out_of_range_at_its_end_changes_nothing(client, bad):
    """Rows on other lanes, and in segments before the bad one, are unchanged too."""
    client.write(client.ids, ids(*range(10), bad))
    client.write(client.rows, rows(*[-1] * 11))
    first = (client.table, client.ids, client.rows, 10)
    done = client.request(SET, [first, (client.table, client.ids, client.rows, 11)])
    assert (done.err, done.segment, done.value, done.limit) == (ERR["ID_RANGE"], 1, bad, ROWS)


def test_ids_and_rows_past_the_arenas_end_are_refused(client):
    end = client.arena_bytes
    bad = [
        (client.table, end, client.rows, 1),
        (client.table, end - 8, client.rows, 2),
        (client.table, 2**64 - 8, client.rows, 2),
        (client.table, 2**63, client.rows, 1),
        (client.table, client.ids, end - ROW, 2),
        (client.table, client.ids, end - ROW + 2, 1),
        (client.table, client.ids, 2**64 - 2, 1),
        (client.table, client.ids, end, 1),
        # Before the payload, in the head or the submissions.
        (client.table, 0, client.rows, 1),
        (client.table, client.payload - 8, client.rows, 1),
        (client.table, client.ids, 0, 1),
        (client.table, client.ids, client.payload - 2, 1),
        # Not aligned.
        (client.table, client.ids + 4, client.rows, 1),
        (client.table, client.ids + 1, client.rows, 1),
        (client.table, client.ids, client.rows + 1, 1),
    ]
    for op in (GET, SET):
        for segment in bad:
            done = client.request(op, [(client.table, client.ids, client.rows, 0), segment])
            assert (done.err, done.segment) == (ERR["OFFSET_RANGE"], 1), segment


def test_the_last_bytes_of_the_arena_may_be_used(client):
    end = client.arena_bytes
    client.write(end - 8, ids(5))
    assert client.request(GET, [(client.table, end - 8, client.rows, 1)]).err == 0
    assert client.read(client.rows, ROW) == rows(5)
    assert client.request(GET, [(client.table, client.ids, end - ROW, 1)]).err == 0
    assert client.read(end - ROW, ROW) == rows(0)


def test_segments_outside_the_arena_are_refused(client):
    end = client.arena_bytes
    for offset in (0, client.payload - 8, client.payload + 4, end, end - 24, 2**64 - 8, 2**64 - 32, 2**63):
        done = client.request(GET, [], segments_offset=offset, segment_count=1)
        assert (done.err, done.segment) == (ERR["OFFSET_RANGE"], NO_SEGMENT), offset
    inside = end - 64
    client.write(inside, struct.pack("<QQQII", client.table, client.ids, client.rows, 1, 0))
    assert client.request(GET, [], segments_offset=inside, segment_count=1).err == 0
    assert client.request(GET, [], segments_offset=inside, segment_count=3).err == ERR["OFFSET_RANGE"]


@pytest.mark.parametrize("count", [65537, 2**31, 2**32 - 1])
def test_a_huge_number_of_segments_is_too_large(client, count):
    done = client.request(GET, [(client.table, client.ids, client.rows, 1)], segment_count=count)
    assert (done.err, done.value) == (ERR["TOO_LARGE"], count)


def test_65536_segments_are_served(daemon, table):
    with RawClient(daemon.path, arena_bytes=8 << 20) as client:
        handle = client.handle(table.name)
        at = client.payload + 65536 * 32
        client.write(at, ids(7))
        done = client.request(GET, [(handle, at, at + 64 + i * ROW, 1) for i in range(65536)])
        assert done.err == 0 and client.read(at + 64, 65536 * ROW) == rows(*[7] * 65536)


def test_no_ids_at_all_are_answered(client):
    assert client.request(GET, []).err == 0
    assert client.request(SET, []).err == 0
    assert client.request(GET, [(client.table, client.ids, client.rows, 0)] * 3).err == 0
    assert client.request(GET, [(client.table, client.arena_bytes, client.arena_bytes, 0)]).err == 0


def test_100_million_ids_are_too_large(client):
    for count in (100_000_000, 2**32 - 1):
        done = client.request(GET, [(client.table, client.ids, client.rows, count)])
        assert done.err == ERR["TOO_LARGE"] and done.limit < done.value
    # Too many together; a sum of 32 bits would be small.
    done = client.request(GET, [(client.table, client.ids, client.rows, 2**31)] * 2)
    assert (done.err, done.value) == (ERR["TOO_LARGE"], 2**32)


def ends(client, why):
    """The server must end the session and say why."""
    deadline = time.monotonic() + 60
    while not client.closed_why:
        assert time.monotonic() < deadline, "the session goes on"
        time.sleep(0.001)
    assert client.closed_why == ERR[why]
    with pytest.raises(ConnectionError):
        client.receive()


@pytest.mark.parametrize("jump", [9, 1000, 2**31, 2**32 - 1])
def test_a_tail_further_ahead_than_there_are_slots_ends_the_session(client, jump):
    assert client.slots == 8
    client.set_tail(client.next + jump)
    ends(client, "PROTOCOL")


def test_a_slot_used_while_its_request_is_under_way_ends_the_session(make_daemon):
    """Reads take 5 s, so that the first request is surely under way when its slot is used again."""
    daemon = make_daemon()
    trigger = daemon.folder / "slow"
    daemon.with_fault(
        "slow_reads", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_READ_MS="5000"
    )
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", DIM, ROWS, init=("constant", 2)).set([1], [[1] * DIM])
    daemon.restart()
    with RawClient(daemon.path, slots=1) as client, daemon.connect() as server:
        trigger.touch()
        handle = client.handle("rows")
        client.write(client.payload + 64, ids(1))
        for _ in range(2):
            client.submit(GET, [(handle, client.payload + 64, client.payload + 128, 1)])
        ends(client, "PROTOCOL")
        trigger.unlink()
        assert server.open_table("rows").get([1]).tolist() == [[1] * DIM]
    daemon.await_metric("session_arena_bytes", 0)


def test_slots_are_used_again_in_turn(client):
    for _ in range(3 * client.slots + 1):
        assert client.request(GET, [(client.table, client.ids, client.rows, 2)]).err == 0


def test_changes_by_a_client_during_a_read_harm_no_other(daemon, table):
    """The client overwrites ids, segments and submissions all the time while requests run. The server checks and uses one copy of
    each, so a request can only be refused, or get other rows of the same table."""
    stop = threading.Event()
    with RawClient(daemon.path, slots=8) as client:
        handle = client.handle(table.name)
        at = client.payload + 8192
        good, bad = ids(*range(10)) * 100, ids(*[2**63] * 1000)

        def scribble():
            while not stop.is_set():
                client.write(at, bad)
                client.write(client.payload + 8, struct.pack("<QQ", 2**64 - 8, 2**64 - 2))
                client.write(client.payload + 8, struct.pack("<QQ", at, at + 8192))
                client.write(at, good)

        thread = threading.Thread(target=scribble)
        thread.start()
        try:
            seen = set()
            deadline = time.monotonic() + 1.5
            while time.monotonic() < deadline:
                segment = (handle, at, at + 8192, 1000)
                seen.add(client.request(GET, [segment]).err)
            assert seen <= {0, ERR["ID_RANGE"], ERR["OFFSET_RANGE"]}
        finally:
            stop.set()
            thread.join()


def test_control_memory_cannot_be_written_or_resized_by_a_client(client):
    control, arena, _ = client.descriptors
    with pytest.raises(PermissionError):
        mmap.mmap(control, 4096)
    with pytest.raises(OSError):
        os.pwrite(control, b"x", 0)
    for fd in (control, arena):
        for size in (0, 1 << 24):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)


# ---- Dropped tables ----


def test_a_table_dropped_under_way_ends_its_requests_and_its_name_is_free(daemon, name):
    """A client floods the table with GET and SET while another drops it. Each request ends, with success or with the table's end.
    The name is then free for another table with initial rows, and old handles are not valid for it."""
    name += "_dropped"
    with daemon.connect() as server, RawClient(daemon.path, arena_bytes=4 << 20) as client:
        for round_ in range(4):
            table = server.create_table(name, 64, init=("constant", 3))
            table.set(np.arange(2000), np.ones((2000, 64)))
            handle = client.handle(name)
            at = client.payload + 8192
            client.write(at, ids(*range(1000)))
            done = []

            def flood():
                while not done or done[-1].err == 0:
                    numbers = [
                        client.submit(SET if i % 2 else GET, [(handle, at, at + 8192 + i * 256_000, 1000)])
                        for i in range(6)
                    ]
                    done.extend(map(client.wait, numbers))

            thread = threading.Thread(target=flood)
            thread.start()
            time.sleep(0.02 * round_)
            server.drop_table(name)
            thread.join()
            assert {d.err for d in done} <= {0, ERR["DROPPED"], ERR["NO_TABLE"]}
            with pytest.raises(embtier.NoTableError):
                server.open_table(name)
            with pytest.raises(embtier.Error) as caught:
                table.get([1])
            assert type(caught.value) in (embtier.NoTableError, embtier.DroppedError)
            again = server.create_table(name, 64, init=("constant", 3))
            assert (again.get(np.arange(3000)) == 3).all()
            old = client.request(SET, [(handle, at, at + 16384, 1000)])
            assert old.err in (ERR["DROPPED"], ERR["NO_TABLE"])
            assert (again.get(np.arange(3000)) == 3).all()
            server.drop_table(name)


def test_rows_of_a_dropped_table_do_not_come_back_after_a_restart(own_daemon):
    with own_daemon.connect() as server:
        for init in (1, 2):
            table = server.create_table("again", 64, init=("constant", init))
            assert (table.get(np.arange(5000)) == init).all()
            table.set(np.arange(5000), np.full((5000, 64), 9))
            server.drop_table("again")
        server.create_table("again", 64, init=("constant", 3))
    own_daemon.restart()
    with own_daemon.connect() as server:
        assert (server.open_table("again").get(np.arange(5000)) == 3).all()
