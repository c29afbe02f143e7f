# SPDX-License-Identifier: Apache-2.0
"""embtier.TraceWriter: `embtier profile show` reads what a program wrote, and a trace that did not come to its end is removed."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transfers import CLI

import embtier
from embtier._xxh3 import xxh3_64

TABLES = [embtier.TraceTable("users", 64), embtier.TraceTable("items", 16, rows=1000, dtype="bf16")]


def shown(path: Path) -> dict:
    done = subprocess.run([str(CLI), "-o", "json", "profile", "show", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_checksum_is_that_of_the_library():
    library = ctypes.CDLL(ctypes.util.find_library("xxhash"))
    library.XXH3_64bits.restype = ctypes.c_uint64
    source = random.Random(1)
    for length in (*range(17, 1200), 2048, 2049, 65_537, 786_472):
        data = source.randbytes(length)
        assert xxh3_64(data) == library.XXH3_64bits(data, ctypes.c_size_t(length)), length


def test_a_profile_of_what_was_written(tmp_path):
    path = tmp_path / "a.trace"
    with embtier.TraceWriter(path, TABLES) as trace:
        trace.add("users", [2**64 - 1, 7, 7], offsets=[0, 0, 2, 3])
        trace.add("users", torch.tensor([7, 8]))
        trace.add(1, np.array([[1, 2], [1, 3]], np.int16), update=False)
        trace.next_batch()
        trace.add("users", [7])
    profile = shown(path)
    users, items = profile["tables"]
    assert (profile["lookups"], profile["batches"]) == (10, 2)
    assert [users[key] for key in ("name", "rows", "dim", "dtype")] == ["users", None, 64, "f32"]
    assert [items[key] for key in ("name", "rows", "dim", "dtype")] == ["items", 1000, 16, "bf16"]
    assert (users["lookups"], users["distinct_rows"], users["batches"], users["batch_rows"]) == (6, 3, 2, 2)
    assert users["pooling_factor"] == 1 and users["updated_share"] == 1
    assert items["pooling_factor"] == 2 and items["updated_share"] == 0 and items["distinct_rows"] == 3


def test_jagged_ids_of_all_tables(tmp_path):
    """As FBGEMM and TorchRec have them: two bags of the first table, then two of the second."""
    for name, make in (("a", np.array), ("b", torch.tensor)):
        with embtier.TraceWriter(tmp_path / name, TABLES) as trace:
            trace.add_jagged(make([5, 6, 7, 5, 999]), make([0, 1, 3, 3, 5]))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    users, items = shown(tmp_path / "a")["tables"]
    assert (users["lookups"], users["pooling_factor"]) == (3, 1.5) and (items["lookups"], items["pooling_factor"]) == (2, 1)


def test_large_batches_take_several_blocks(tmp_path):
    lengths = np.concatenate([[200_000, 0, 65_536, 65_537], np.ones(150_000, int), np.zeros(70_000, int), [3]])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.arange(offsets[-1])
    with embtier.TraceWriter(tmp_path / "a", TABLES) as trace:
        trace.add("users", ids, offsets)
        trace.add("items", [])
        trace.add("items", np.zeros((5, 0), int))
    users, items = shown(tmp_path / "a")["tables"]
    assert users["lookups"] == len(ids) and users["pooling_factor"] == pytest.approx(len(ids) / len(lengths))
    assert users["batch_rows"] == pytest.approx(len(ids), rel=0.02)
    assert items["lookups"] == 0 and items["pooling_factor"] == 0


def test_tables_of_a_server(server, name, tmp_path):
    table = server.create_table(name, 8, 100, dtype="f16")
    with embtier.TraceWriter(tmp_path / "a", [table]) as trace:
        trace.add(table, [99])
    assert [shown(tmp_path / "a")["tables"][0][key] for key in ("name", "rows", "dim", "dtype")] == [name, 100, 8, "f16"]
    with embtier.TraceWriter(tmp_path / "b", [table.spec]):
        pass
    assert shown(tmp_path / "b")["lookups"] == 0


@pytest.mark.parametrize(
    ("add", "error", "message"),
    [
        (lambda trace: trace.add("none", [1]), ValueError, "table 'none' is not in this trace"),
        (lambda trace: trace.add(2, [1]), ValueError, "table must be from 0 to 1, not 2"),
        (lambda trace: trace.add("items", [0, 1000]), embtier.errors.IdRangeError, "row id 1000: table 'items' has 1000 rows"),
        (lambda trace: trace.add("users", [-1]), ValueError, "row id -1 at position 0 is negative"),
        (lambda trace: trace.add("users", [1.5]), TypeError, "row ids must be integers"),
        (lambda trace: trace.add("users", [1, 2], [0, 1]), ValueError, "end with the number of ids, 2, not 0 and 1"),
        (lambda trace: trace.add("users", [1, 2], [1, 2]), ValueError, "offsets must begin with 0"),
        (lambda trace: trace.add("users", [1, 2], [0, 2, 1, 2]), ValueError, "offsets fall at position 2, from 2 to 1"),
        (lambda trace: trace.add("users", [1, 2], []), ValueError, "offsets must have one dimension and at least one number"),
        (lambda trace: trace.add("users", [[1, 2]], [0, 2]), ValueError, "ids must have one dimension if there are offsets"),
        (lambda trace: trace.add("users", 5), ValueError, "ids must have one or two dimensions"),
        (lambda trace: trace.add_jagged([1, 2], [0, 1, 1, 2]), ValueError, "offsets has 3 bags, which 2 tables cannot share evenly"),
        (lambda trace: trace.add_jagged([1, 1000], [0, 1, 2]), embtier.errors.IdRangeError, "row id 1000"),
    ],
)
def test_a_refused_lookup_adds_nothing(tmp_path, add, error, message):
    with embtier.TraceWriter(tmp_path / "a", TABLES) as trace:
        with pytest.raises(error, match=message):
            add(trace)
        trace.add("users", [7])
    assert shown(tmp_path / "a")["lookups"] == 1


@pytest.mark.parametrize("name", ["", ".a", "a b", "ä", "a" * 128])
def test_names_are_those_of_tables(name):
    with pytest.raises(ValueError, match="name must be"):
        embtier.TraceTable(name, 4)
    assert embtier.TraceTable("a" * 127, 4).rows is None


def test_only_a_complete_trace_stays(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(KeyError), embtier.TraceWriter(path, TABLES) as trace:
        trace.add("users", [1])
        raise KeyError
    assert not path.exists()
    with pytest.raises(ValueError, match="the trace is closed"):
        trace.add("users", [1])
    trace = embtier.TraceWriter(path, TABLES)
    del trace
    assert not path.exists()
    path.write_text("mine")
    with pytest.raises(embtier.errors.ExistsError, match="File exists"):
        embtier.TraceWriter(path, TABLES)
    assert path.read_text() == "mine"
    with pytest.raises(embtier.errors.NotFoundError, match="No such file"):
        embtier.TraceWriter(tmp_path / "none" / "a", TABLES)
    with pytest.raises(ValueError, match="tables has two of the name 'users'"):
        embtier.TraceWriter(tmp_path / "b", [TABLES[0], TABLES[0]])
    with pytest.raises(ValueError, match="tables must be 1 to 8192, not 0"):
        embtier.TraceWriter(tmp_path / "b", [])
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("failing", [2, 3])
def test_an_interrupt_leaves_no_part_of_a_call(tmp_path, monkeypatch, failing):
    path = tmp_path / "a"
    ids = np.arange(200_000)
    for add in (
        lambda trace: trace.add("users", ids),
        lambda trace: trace.add_jagged(ids % 1000, [0, 100_000, 200_000]),
    ):
        trace = embtier.TraceWriter(path, TABLES)
        trace.add("users", [1])
        calls = []

        def write(data, write=trace._write, calls=calls):
            calls.append(data)
            if len(calls) == failing:
                raise KeyboardInterrupt
            write(data)

        monkeypatch.setattr(trace, "_write", write)
        with pytest.raises(KeyboardInterrupt):
            add(trace)
        assert not path.exists()
        with pytest.raises(ValueError, match="the trace is closed"):
            trace.add("users", [1])
        trace.close()
        assert not path.exists()


FORKING = """
import os, sys
sys.path.insert(0, sys.argv[1])
import embtier

trace = embtier.TraceWriter(sys.argv[2], [embtier.TraceTable("users", 64)])
trace.add("users", [1])
child = os.fork()
if not child:
    for call in (lambda: trace.add("users", [2]), trace.next_batch, trace.close):
        try:
            call()
        except RuntimeError as error:
            print(error)
    if sys.argv[3] == "with":
        with trace:
            sys.exit(3)
    del trace
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
trace.add("users", [3])
trace.close()
"""


@pytest.mark.parametrize("end", ["with", "del"])
def test_a_forked_child_leaves_the_trace_alone(tmp_path, end):
    path = tmp_path / "a"
    package = str(Path(embtier.__file__).parents[1])
    command = [sys.executable, "-c", FORKING, package, str(path), end]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a trace does not survive fork()") == 3
    assert shown(path)["tables"][0]["lookups"] == 2
