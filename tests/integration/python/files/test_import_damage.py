# SPDX-License-Identifier: Apache-2.0
"""A file or an export that is wrong, in any way, leaves the server as it was."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from foreign_files import IDS, ROWS, header_of, numbers
from transfers import LONG, contents, is_free, next_table_id, refused, safetensors_bytes, spec_of, train, with_header

import embtier

# ---- Hostile files ----

GOOD = '{"weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}'
HOSTILE = {
    "empty": b"",
    "short": b"\x02",
    "text": b"id,weight\n0,0.5\n1,0.25\n",
    "huge_length": struct.pack("<Q", 2**63) + b"{}",
    "all_ones_length": struct.pack("<Q", 2**64 - 1) + b"{}",
    "length_beyond_the_end": struct.pack("<Q", 1000) + b"{}",
    "no_json": with_header(b"{weight}", bytes(16)),
    "no_object": with_header(b"[1, 2]", bytes(16)),
    "deep": with_header(b'{"a":' + b"[" * 100_000, b""),
    "no_utf8": with_header(b'{"\xff": 1}', bytes(16)),
    "overlap": with_header(header_of(weight=("F32", [2, 2], [0, 16]), a=("F32", [2], [8, 16])), bytes(16)),
    "hole": with_header(header_of(weight=("F32", [2, 2], [0, 16]), a=("F32", [1], [20, 24])), bytes(24)),
    "hole_in_front": with_header(header_of(weight=("F32", [2, 2], [4, 20])), bytes(20)),
    "more_behind": with_header(header_of(weight=("F32", [2, 2], [0, 16])), bytes(17)),
    "backwards": with_header(header_of(weight=("F32", [2, 2], [16, 0])), bytes(16)),
    "negative": with_header(header_of(weight=("F32", [-2, -2], [0, 16])), bytes(16)),
    "overflow": with_header(header_of(weight=("F32", [2**62, 2**62 + 1], [0, 16])), bytes(16)),
    "other_bytes": with_header(header_of(weight=("F32", [2, 3], [0, 16])), bytes(16)),
    "unknown_dtype": with_header(header_of(weight=("F99", [2, 2], [0, 16])), bytes(16)),
    "dtype_no_text": with_header(header_of(weight=(7, [2, 2], [0, 16])), bytes(16)),
    "twice": with_header(f"{GOOD}, {GOOD[1:]}}}".encode(), bytes(16)),
    "truncated": with_header(f"{GOOD}}}".encode(), bytes(15)),
    "npy_header_cut": b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4'",
    "npy_no_dict": b"\x93NUMPY\x01\x00\x04\x00abc\n",
    "npy_huge_header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "npy_objects": b"\x93NUMPY\x01\x00\x40\x00"
    + b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }".ljust(63)
    + b"\n",
    "npy_truncated": None,
    "zip": b"PK\x03\x04" + bytes(100),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_is_wrong_changes_nothing(server, name, tmp_path, kind):
    path = tmp_path / "file"
    if kind == "npy_truncated":
        np.save(tmp_path / "whole.npy", numbers(5, 2))
        path.write_bytes((tmp_path / "whole.npy").read_bytes()[:-1])
    else:
        path.write_bytes(HOSTILE[kind])
    unsupported = kind in ("unknown_dtype", "npy_objects", "zip")
    expected = embtier.UnsupportedError if unsupported else (embtier.InvalidError, embtier.TooLargeError)
    with refused(server, expected, f"^{path}", name):
        server.import_table(path, name)
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    with refused(server, expected, f"^{path}", name):
        server.import_table(tmp_path / "rows.npy", name, ids_path=path)


def test_what_is_no_file_does_not_hold_it_up(server, name, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    np.save(tmp_path / "rows.npy", numbers(5, 2))
    with refused(server, embtier.InvalidError, "not a regular file", name):
        server.import_table(tmp_path / "fifo", name)
    with refused(server, embtier.InvalidError, "not a regular file", name):
        server.import_table("/dev/zero", name)
    for path in (tmp_path / "fifo", tmp_path):
        with refused(server, embtier.InvalidError, "not a regular file|is a directory", name):
            server.import_table(tmp_path / "rows.npy", name, ids_path=path)
    with refused(server, embtier.NotFoundError, "the folder holds no export", name):
        server.import_table(tmp_path, name)


# ---- Exports that were changed ----


@pytest.fixture
def export(server, name, tmp_path) -> Path:
    """An export of three parts with 100 rows each, with state."""
    table = server.create_table(name, 5, ROWS, optimizer="adagrad", init=("uniform", -1, 1))
    train(server, table, 1, IDS)
    made = server.export_table(table, tmp_path / "export", state=True, file_bytes=100 * (20 + 20 + 8))
    assert (made.rows, made.parts) == (300, 3)
    return tmp_path / "export"


def part(export: Path, number: int) -> Path:
    return sorted(export.glob("*.safetensors"))[number - 1]


def test_a_flipped_bit_is_found_wherever_it_is(server, name, export, rng):
    for number in (1, 2, 3):
        whole = part(export, number).read_bytes()
        data = 8 + int.from_bytes(whole[:8], "little")
        for at in {data, len(whole) - 1, *(rng.randrange(data, len(whole)) for _ in range(20 if LONG else 3))}:
            damaged = bytearray(whole)
            damaged[at] ^= 1 << rng.randrange(8)
            part(export, number).write_bytes(damaged)
            # An id that is out of range is found before the checksum differs.
            errors, match = (embtier.CorruptError, embtier.IdRangeError), "checksum differs|negative|has rows 0 to"
            with refused(server, errors, match, f"{name}.2"):
                server.import_table(export, f"{name}.2")
        for _ in range(20 if LONG else 3):  # in the header a flip is refused, or does not matter
            damaged = bytearray(whole)
            damaged[rng.randrange(data)] ^= 1 << rng.randrange(8)
            part(export, number).write_bytes(damaged)
            try:
                server.import_table(export, f"{name}.3")
            except embtier.Error:
                assert is_free(server, f"{name}.3")
            else:
                ids = np.arange(ROWS)
                assert contents(server.open_table(f"{name}.3"), ids) == contents(server.open_table(name), ids)
                server.drop_table(f"{name}.3")
        part(export, number).write_bytes(whole)
    server.import_table(export, f"{name}.4")


def test_parts_that_are_not_what_they_were_are_refused(server, name, export):
    first, second, third = (part(export, number) for number in (1, 2, 3))
    raw = [path.read_bytes() for path in (first, second, third)]
    first.write_bytes(raw[1])
    second.write_bytes(raw[0])
    with refused(server, embtier.CorruptError, f"{first}.*checksum differs", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    first.write_bytes(raw[0])
    second.write_bytes(raw[1])
    third.write_bytes(raw[2][:-1])
    with refused(server, embtier.InvalidError, f"^{third}", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.unlink()
    with refused(server, embtier.NotFoundError, f"^{third}", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    os.mkfifo(third)
    with refused(server, embtier.InvalidError, f"{third}.*not a regular file", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.unlink()
    third.write_bytes(safetensors_bytes({"weight": ("F32", numbers(100, 5))}))
    with refused(server, embtier.NotFoundError, f"{third}: has no tensor 'state'", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    tensors = {"weight": ("F16", numbers(100, 5)), "state": ("F32", numbers(100, 5)), "ids": ("I64", IDS[:100])}
    third.write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, f"{third}: weight is of dtype F16", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    tensors = {"weight": ("F32", numbers(99, 5)), "state": ("F32", numbers(99, 5)), "ids": ("I64", IDS[:99])}
    third.write_bytes(safetensors_bytes(tensors))
    with refused(server, embtier.MismatchError, rf"{third}: weight has the shape \[99, 5\]", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    third.write_bytes(raw[2])
    server.import_table(export, f"{name}.2")


WRONG_PARTS = {
    "dtype": ({"weight": ("F16", numbers(100, 5))}, "weight is of dtype F16"),
    "state_dtype": ({"state": ("F64", numbers(100, 5))}, "state is of dtype F64"),
    "ids_dtype": ({"ids": ("I32", IDS[200:])}, "ids is of dtype I32"),
    "rows": ({"weight": ("F32", numbers(99, 5))}, r"weight has the shape \[99, 5\]"),
    "dim": ({"weight": ("F32", numbers(100, 4))}, r"weight has the shape \[100, 4\]"),
    "state": ({"state": ("F32", numbers(100, 4))}, r"state has the shape \[100, 4\]"),
    "ids": ({"ids": ("I64", IDS[:99])}, r"ids has the shape \[99\]"),
}


@pytest.mark.parametrize("kind", WRONG_PARTS)
def test_shapes_and_dtypes_of_all_parts_are_checked_before_a_table_is_begun(server, name, export, kind):
    changes, match = WRONG_PARTS[kind]
    whole = {"weight": ("F32", numbers(100, 5)), "state": ("F32", numbers(100, 5)), "ids": ("I64", IDS[200:])}
    third = part(export, 3)
    before = next_table_id(server, name)

    def fails(error: type[Exception], match: str) -> list[tuple]:
        reports = []
        with pytest.raises(error, match=f"^{third}: {match}"):
            server.import_table(export, f"{name}.2", progress=lambda *report: reports.append(report))
        return reports

    third.write_bytes(safetensors_bytes(whole | changes))
    assert fails(embtier.MismatchError, match) == []
    assert next_table_id(server, name) == before + 1
    # Only the bytes show this damage, so it is found later, and has taken a table's id. The damage above would have taken one,
    # too, had a table been begun.
    third.write_bytes(safetensors_bytes(whole))
    assert fails(embtier.CorruptError, "weight is not what was exported") != []
    assert next_table_id(server, name) == before + 3


def changed(manifest: dict, change: str) -> None:
    """Changes @manifest in place. @change is a line of Python over m, the manifest, and p, its parts."""
    exec(change, {"m": manifest, "p": manifest["parts"]})  # noqa: S102  (the lines are below)


CORRUPT_MANIFESTS = {
    "more_rows": 'm["rows"] = "301"',
    "fewer_rows": 'm["rows"] = "299"',
    "rows_missing": 'del m["rows"]',
    "rows_negative": 'p[0]["rows"] = -1',
    "rows_that_wrap": 'p[0]["rows"] = str(2**64 - 200); m["rows"] = "0"',
    "part_missing": 'p.pop()',
    "part_twice": 'p.append(p[0])',
    "part_no_object": 'p[0] = "x"',
    "no_parts": 'del m["parts"]',
    "parts_no_list": 'm["parts"] = {}',
    "parent": 'p[0]["tensors"]["weight"]["file"] = "../export/x.safetensors"',
    "slash": 'p[0]["tensors"]["weight"]["file"] = "/etc/passwd"',
    "below": 'p[0]["tensors"]["weight"]["file"] = "a/b"',
    "dots": 'p[0]["tensors"]["weight"]["file"] = ".."',
    "dot": 'p[0]["tensors"]["weight"]["file"] = "."',
    "empty_name": 'p[0]["tensors"]["weight"]["file"] = ""',
    "long_name": 'p[0]["tensors"]["weight"]["file"] = "x" * 300',
    "sum_missing": 'del p[0]["tensors"]["weight"]["xxh3"]',
    "sum_short": 'p[0]["tensors"]["weight"]["xxh3"] = "12"',
    "tensor_missing": 'del p[0]["tensors"]["ids"]',
    "files_unknown": 'm["files"] = "csv"',
    "which_unknown": 'm["which_rows"] = "some"',
    "all_of_some": 'm["which_rows"] = "all"',
    "table_missing": 'del m["table"]',
    "table_dim": 'm["table"]["dim"] = 0',
    "table_name": 'm["table"]["name"] = "../x"',
    "table_optimizer": 'm["table"]["optimizer"] = "best"',
    "other_format": 'm["format"] = "something else"',
    "no_format": 'del m["format"]',
    "format_version_text": 'm["format_version"] = "1"',
}


@pytest.mark.parametrize("kind", CORRUPT_MANIFESTS)
def test_a_manifest_that_is_wrong_changes_nothing(server, name, export, kind):
    file = export / "table.json"
    manifest = json.loads(file.read_text())
    changed(manifest, CORRUPT_MANIFESTS[kind])
    file.write_text(json.dumps(manifest))
    with refused(server, embtier.CorruptError, f"^{file}", f"{name}.2"):
        server.import_table(export, f"{name}.2")


def test_a_manifest_that_is_cut_or_none_changes_nothing(server, name, export, rng):
    file = export / "table.json"
    whole = file.read_bytes()
    for length in {0, 1, len(whole) - 2, *(rng.randrange(len(whole) - 1) for _ in range(10))}:
        file.write_bytes(whole[:length])
        with pytest.raises(embtier.CorruptError, match=f"^{file}"):
            server.import_table(export, f"{name}.2")
    for text in (b"not JSON", b"[]", b"{}", b"null", b"\xff\xfe", whole + b"x", b"[" * 100_000, whole[:20] + b"\0"):
        file.write_bytes(text)
        with refused(server, embtier.CorruptError, f"^{file}", f"{name}.2"):
            server.import_table(export, f"{name}.2")
    for _ in range(200 if LONG else 20):  # any byte, with any result but a crash
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.randrange(256)
        file.write_bytes(damaged)
        try:
            server.import_table(export, f"{name}.3")
        except embtier.Error:
            assert not spec_of(server, f"{name}.3")
        else:
            server.drop_table(f"{name}.3")
    file.unlink()
    with refused(server, embtier.NotFoundError, "the folder holds no export", f"{name}.2"):
        server.import_table(export, f"{name}.2")
    os.mkfifo(file)
    with refused(server, embtier.CorruptError, "not a file", f"{name}.2"):
        server.import_table(export, f"{name}.2")


def test_a_newer_version_is_told(server, name, export):
    file = export / "table.json"
    for key in ("format_version", "table_version"):
        whole = file.read_text()
        manifest = json.loads(whole)
        manifest[key] += 1
        file.write_text(json.dumps(manifest))
        with refused(server, embtier.VersionError, f"version {manifest[key]}.*reads up to", f"{name}.2"):
            server.import_table(export, f"{name}.2")
        file.write_text(whole)
