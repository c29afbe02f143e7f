# SPDX-License-Identifier: Apache-2.0
"""However much a client asks for at a time, an export gives a bounded piece, and an import takes all of it in pieces.
tests/unit/daemon/jobs/test_worker_pieces.c tests the turns of users."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from raw_client import RawClient, field, fields

MIB = 1 << 20
PIECE_BYTES, PIECE_ROWS = 8 * MIB, 65536  # as in daemon/jobs/transfer/transfer_piece.h
ARENA = 64 * MIB
SCAN_OPEN, SCAN_NEXT, SCAN_CLOSE, LOAD_OPEN, LOAD_ROWS, LOAD_END = 15, 16, 17, 18, 19, 20
F32, SGD = 1, 1
ERROR, TABLE, SCAN, SCAN_ROWS, LOADED_ROWS = 3, 6, 12, 13, 14


@pytest.fixture
def quiet(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    daemon.start()
    return daemon


def pieces(client: RawClient, table: str, all_rows: bool) -> Iterator[tuple[int, dict[int, list]]]:
    """Scans @table, and always asks for as much as the arena has room for. Yields the number of rows of each piece, and its other
    fields."""
    assert SCAN in client.call(SCAN_OPEN, field(2, table) + field(4, int(all_rows)))
    while True:
        reply = client.call(SCAN_NEXT, field(1, client.payload) + field(2, ARENA - 2 * MIB))
        filled = fields(reply[SCAN_ROWS][0])
        count = filled.get(1, [0])[0]
        if count == 0:
            return
        yield count, filled


def test_an_export_of_all_rows_comes_in_bounded_pieces(quiet):
    dim = 64
    with quiet.connect() as server, RawClient(quiet.path, ARENA, 8) as client:
        server.create_table("huge", dim, rows=2**40)  # none of its rows is written
        server.checkpoint()
        next_id = 0
        for number, (count, filled) in enumerate(pieces(client, "huge", all_rows=True)):
            assert PIECE_BYTES // 2 < count * dim * 4 <= PIECE_BYTES
            assert filled.get(2, [0])[0] == next_id
            next_id += count
            if number == 3:
                break
        client.call(SCAN_CLOSE)


def test_an_export_of_short_rows_comes_in_bounded_pieces_and_whole(quiet):
    rows = 3 * PIECE_ROWS + 100
    with quiet.connect() as server, RawClient(quiet.path, ARENA, 8) as client:
        server.create_table("short", 1).set(np.arange(rows), np.arange(rows, dtype=np.float32)[:, None])
        server.checkpoint()
        counts, next_id = [], 0
        for count, filled in pieces(client, "short", all_rows=False):
            ids = client.payload + filled.get(3, [0])[0]
            values = client.payload + filled[4][0]
            expected = np.arange(next_id, next_id + count)
            assert (np.frombuffer(client.read(ids, 8 * count), np.uint64) == expected).all()
            assert (np.frombuffer(client.read(values, 4 * count), np.float32) == expected).all()
            counts.append(count)
            next_id += count
        assert counts == [PIECE_ROWS] * 3 + [100]


def send_rows(client: RawClient, ids: np.ndarray) -> dict[int, list]:
    """Sends rows of one number, which is their id."""
    rows_at = 8 * len(ids)
    client.write(client.payload, ids.astype(np.uint64).tobytes())
    client.write(client.payload + rows_at, ids.astype(np.float32).tobytes())
    where = field(1, client.payload) + field(2, rows_at + 4 * len(ids))
    return client.call(LOAD_ROWS, where + field(3, len(ids)) + field(4, rows_at))


def open_load(client: RawClient, name: str, rows: int) -> None:
    spec = field(1, name) + field(2, rows) + field(3, 1) + field(4, F32) + field(5, SGD)
    assert TABLE in client.call(LOAD_OPEN, field(1, spec))


def test_rows_of_an_import_are_all_taken_however_many_pieces_they_are(quiet):
    rows = 5 * PIECE_ROWS + 3
    with RawClient(quiet.path, ARENA, 8) as client:
        open_load(client, "imported", 2 * rows)
        for first in (0, rows):
            reply = send_rows(client, np.arange(first, first + rows))
            assert fields(reply[LOADED_ROWS][0])[1][0] == first + rows
        assert TABLE in client.call(LOAD_END)
    with quiet.connect() as server:
        table = server.open_table("imported")
        for first in (0, rows):
            ids = np.arange(first, first + rows)
            assert (table.get(ids) == ids.astype(np.float32)[:, None]).all()


def test_a_wrong_row_of_a_later_piece_ends_the_import(quiet):
    rows = 3 * PIECE_ROWS
    ids = np.arange(rows)
    ids[2 * PIECE_ROWS + 5] = rows  # the table has no such row
    with RawClient(quiet.path, ARENA, 8) as client:
        open_load(client, "wrong", rows)
        assert f"not {rows}".encode() in fields(send_rows(client, ids)[ERROR][0])[2][0]
        assert b"takes no more rows" in fields(send_rows(client, np.arange(rows))[ERROR][0])[2][0]
        assert b"cannot be published" in fields(client.call(LOAD_END)[ERROR][0])[2][0]
    with quiet.connect() as server:
        assert not server.tables()
