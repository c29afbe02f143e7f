# SPDX-License-Identifier: Apache-2.0
"""`embtier trace generate`, `trace hottest` and `profile show`: a trace is what its options say, and profiles and hottest rows are what
counting each lookup gives. None needs a server."""

from __future__ import annotations

import csv
import gzip
import json
import re
import signal
import struct
import subprocess
import xml.etree.ElementTree
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE
from transfers import CLI, SANITIZED, run_on_terminal

from embtier import TraceTable, TraceWriter


def embtier(*arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(CLI), *map(str, arguments)], capture_output=True, text=True, timeout=120)


def done(*arguments: str | Path) -> str:
    result = embtier(*arguments)
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def shown(path: Path, *arguments: str) -> dict:
    return json.loads(done("-o", "json", "profile", "show", path, *arguments))


def refused(code: int, *arguments: str | Path) -> str:
    """The message."""
    result = embtier(*arguments)
    assert result.returncode == code and result.stdout == "", result
    return result.stderr


def read_trace(path: Path) -> tuple[list[tuple], list[tuple]]:
    """(name, rows, dim, dtype) of each table, and (batch, table, flags, bag ends, ids) of each block: a reader after the page on the
    format."""
    raw = path.read_bytes()
    magic, version, table_count, tables_bytes, reserved = struct.unpack_from("<8sIIII", raw)
    assert (magic, version, reserved) == (b"EMBTRACE", 1, 0)
    at, tables = 24, []
    for _ in range(table_count):
        rows, dim, dtype, name_bytes, reserved = struct.unpack_from("<QIBBH", raw, at)
        tables.append((raw[at + 16 : at + 16 + name_bytes].decode(), rows, dim, dtype))
        at += 16 + (name_bytes + 7) // 8 * 8
    assert at == 24 + tables_bytes
    at, blocks = at + 8, []
    while struct.unpack_from("<4sI", raw, at) == (b"EBLK", 1):
        batch, table, flags, bags, ids = struct.unpack_from("<QIIII", raw, at + 8)
        ends = np.frombuffer(raw, "<u4", bags, at + 32)
        at += 32 + (bags * 4 + 7) // 8 * 8
        blocks.append((batch, table, flags, ends, np.frombuffer(raw, "<u8", ids, at)))
        at += ids * 8 + 8
    assert struct.unpack_from("<4sIQ", raw, at) == (b"EBLK", 2, len(blocks)) and at + 40 == len(raw)
    return tables, blocks


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a.trace"
    done("trace", "generate", path, "--tables", "2", "--rows", "5000", "--pooling", "2.5", "--batches", "8", "--bags", "400", "--dim",
         "16", "--dtype", "f16", "--seed", "5")  # fmt: skip
    return path


def test_a_trace_is_what_its_options_say(trace):
    tables, blocks = read_trace(trace)
    assert tables == [("t0", 5000, 16, 2), ("t1", 5000, 16, 2)]
    assert [(batch, table) for batch, table, *_ in blocks] == [(batch, table) for batch in range(8) for table in range(2)]
    assert all(flags == 1 and len(ends) == 400 and ends[-1] == len(ids) for _, _, flags, ends, ids in blocks)
    lengths = np.concatenate([np.diff(ends, prepend=np.uint32(0)) for *_, ends, _ in blocks])
    assert set(lengths) == {2, 3} and abs(lengths.mean() - 2.5) < 0.05
    # The hottest rows of two tables differ, and do not lie side by side.
    hottest = [Counter(np.concatenate([ids for _, t, _, _, ids in blocks if t == table]).tolist()).most_common(2) for table in range(2)]
    assert hottest[0][0][0] != hottest[1][0][0] and abs(hottest[0][0][0] - hottest[0][1][0]) > 1


def test_no_update_and_the_seed(trace, tmp_path):
    options = ["--tables", "1", "--rows", "50", "--batches", "1", "--bags", "20"]
    for name, more in (("b", []), ("c", []), ("d", ["--seed", "1"]), ("e", ["--no-update"])):
        done("trace", "generate", tmp_path / name, *options, *more)
    bytes_of = {name: (tmp_path / name).read_bytes() for name in "bcde"}
    assert bytes_of["b"] == bytes_of["c"] != bytes_of["d"]
    assert [flags for _, _, flags, _, _ in read_trace(tmp_path / "e")[1]] == [0]
    assert np.array_equal(read_trace(tmp_path / "e")[1][0][4], read_trace(tmp_path / "b")[1][0][4])


def test_a_profile_is_what_counting_gives(trace):
    _, blocks = read_trace(trace)
    profile = shown(trace)
    assert profile["lookups"] == sum(len(ids) for *_, ids in blocks) and profile["batches"] == 8
    for number, table in enumerate(profile["tables"]):
        ids = [ids for _, t, _, _, ids in blocks if t == number]
        counts = sorted(Counter(np.concatenate(ids).tolist()).values(), reverse=True)
        assert (table["name"], table["rows"], table["dim"], table["dtype"]) == (f"t{number}", 5000, 16, "f16")
        assert table["lookups"] == sum(counts) and table["distinct_rows"] == len(counts) and table["sampling_rate"] == 1
        assert table["pooling_factor"] == pytest.approx(sum(counts) / 3200)
        assert table["batch_rows"] == pytest.approx(np.mean([len(set(one.tolist())) for one in ids]))
        assert table["updated_share"] == 1
        exact = np.cumsum(counts) / sum(counts)
        assert len(table["cdf"]) <= 100 and table["cdf"][-1] == [len(counts), 1]
        assert all(share == pytest.approx(exact[int(rows) - 1]) for rows, share in table["cdf"])
        for percent, rows in table["working_sets"].items():
            assert exact[int(rows) - 1] == pytest.approx(int(percent) / 100, abs=0.02)


def test_a_profile_is_the_same_each_time(tmp_path):
    """Also where rows are sampled, and lie at random places in memory."""
    path = tmp_path / "a.trace"
    done("trace", "generate", path, "--tables", "1", "--rows", "3000000", "--batches", "20", "--zipf", "0.9")
    first = shown(path, "--cache", "1MiB")
    assert first["tables"][0]["sampling_rate"] < 1
    assert shown(path, "--cache", "1MiB") == first


def lru_hits(blocks: list[tuple], capacity: int) -> list[float]:
    cache: OrderedDict = OrderedDict()
    hits, lookups = [0, 0], [0, 0]
    for _, table, _, _, ids in blocks:
        for id in ids.tolist():
            lookups[table] += 1
            hits[table] += (table, id) in cache
            cache[table, id] = None
            cache.move_to_end((table, id))
            if len(cache) > capacity:
                cache.popitem(last=False)
    return [a / b for a, b in zip(hits, lookups)]


def test_predicted_hit_rates_are_those_of_lru(trace):
    _, blocks = read_trace(trace)
    row_bytes = 16 * 2 + 4  # rowwise_adagrad
    profile = shown(trace, "--cache", f"{100 * row_bytes},{600 * row_bytes}", "--optimizer", "rowwise_adagrad")
    dram, both = lru_hits(blocks, 100), lru_hits(blocks, 700)
    for number, table in enumerate(profile["tables"]):
        assert table["hit_rates"] == pytest.approx([dram[number], both[number] - dram[number]], abs=0.02)
    assert profile["tier_bytes"] == [100 * row_bytes, 600 * row_bytes]
    used = [sum(table["cache_bytes"][tier] for table in profile["tables"]) for tier in range(2)]
    assert all(0.9 * tier < bytes < 1.001 * tier for bytes, tier in zip(used, profile["tier_bytes"])), "the mean, also while it fills"
    assert profile["hit_rates"][0] == pytest.approx(np.average(dram, weights=[t["lookups"] for t in profile["tables"]]), abs=0.02)


def test_predicted_hit_rates_of_a_shop(tmp_path):
    """The data that the quickstart trains on: customers, and the items that they bought."""
    path = tmp_path / "shop.trace"
    with gzip.open(TREE / "tests/data/online-retail.csv.gz", "rt") as file:
        sales = [(line["customer_id"], line["stock_code"]) for line in csv.DictReader(file) if line["customer_id"]]
    numbers = [{word: number for number, word in enumerate(dict.fromkeys(column))} for column in zip(*sales)]
    with TraceWriter(path, [TraceTable("customers", 8), TraceTable("items", 8)]) as trace:
        for begin in range(0, len(sales), 256):
            for table, column in enumerate(zip(*sales[begin : begin + 256])):
                trace.add(table, [numbers[table][word] for word in column])
            trace.next_batch()
    _, blocks = read_trace(path)
    for rows in (400, 1000, 2500):
        tables = shown(path, "--cache", str(rows * 8 * 4))["tables"]
        assert [table["hit_rates"][0] for table in tables] == pytest.approx(lru_hits(blocks, rows), abs=0.02)


def test_a_table_and_a_picture_for_people(trace, tmp_path):
    picture = tmp_path / "a.svg"
    picture.write_text("<svg of old/>")
    text = done("profile", "show", trace, "--cache", "64KiB", "--plot", picture)
    lines = text.splitlines()
    assert re.fullmatch(rf"{re.escape(str(trace))}: 2 tables, 8 batches, [\d,]+ lookups", lines[0])
    assert re.fullmatch(r"tier 1 of 64\.0 KiB: [\d.]+% of all lookups predicted to hit", lines[1])
    assert lines[3].split() == "TABLE LOOKUPS POOLING ROWS BATCH ROWS UPDATED 50% 80% 95% TIER 1 CDF".split()
    assert [line.split()[0] for line in lines[4:]] == ["t0", "t1"]
    sparks = [line.split()[-1] for line in lines[4:]]
    assert all(len(spark) == 12 and list(spark) == sorted(spark) and spark[-1] == "█" for spark in sparks)
    root = xml.etree.ElementTree.parse(picture).getroot()
    names = [curve[0].text for curve in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert sorted(names) == ["t0", "t1"]


def test_a_saved_profile_shows_the_same(trace, tmp_path):
    saved = tmp_path / "a.profile"
    first = shown(trace, "--cache", "8KiB", "--save", str(saved))
    again = shown(saved, "--cache", "8KiB")
    assert (again["lookups"], again["batches"]) == (first["lookups"], first["batches"])
    for one, other in zip(first["tables"], again["tables"]):
        for key, value in one.items():
            if key == "cdf":
                assert np.allclose(other[key], value)
            else:
                assert other[key] == (pytest.approx(value) if isinstance(value, (float, list)) else value), key
    assert refused(1, "profile", "show", trace, "--save", saved) == f"embtier: {saved} already exists\n"
    # This is found before the trace is read.
    assert refused(1, "profile", "show", tmp_path / "none", "--save", saved) == f"embtier: {saved} already exists\n"
    other = tmp_path / "other.profile"
    assert "/none/a.svg" in refused(1, "profile", "show", trace, "--plot", tmp_path / "none/a.svg", "--save", other)
    assert not other.exists()
    lines = saved.read_text().splitlines(keepends=True)
    saved.write_text("".join(lines[:-1]))
    assert refused(1, "profile", "show", saved) == f"embtier: {saved}:3: the file was cut short\n"
    saved.write_text(lines[0].replace(':1,"tables"', ':2,"tables"') + "".join(lines[1:]))
    assert f"{saved}:1: version: 2 is newer than 1" in refused(1, "profile", "show", saved)


def test_meta_s_tables(tmp_path):
    path = tmp_path / "meta.trace"
    made = json.loads(done("-o", "json", "trace", "generate", path, "--like", "meta-2021", "--bags", "16", "--batches", "2"))
    assert made == {"path": str(path), "tables": 856, "batches": 2, "lookups": made["lookups"]}
    tables, blocks = read_trace(path)
    rows = [rows for _, rows, _, _ in tables]
    assert len(set(rows)) > 700 and 1e4 < np.median(rows) < 1e6
    assert made["lookups"] / (856 * 32) == pytest.approx(8.34, rel=0.15)
    assert len(shown(path)["tables"]) == 856
    done("trace", "generate", tmp_path / "few", "--like", "meta-2022", "--tables", "3", "--bags", "8", "--rows", "9", "--pooling", "1")
    assert [rows for _, rows, _, _ in read_trace(tmp_path / "few")[0]] == [9, 9, 9]


# ---- Files that are whole, or absent ----


@pytest.mark.skipif(SANITIZED, reason="a sanitizer does not live with a limit of the size of files")
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("new.trace", ["trace", "generate", "FILE", "--tables", "2", "--rows", "5000"]),
        ("rows.safetensors", ["trace", "hottest", "TRACE", "--table", "t0", "--save", "FILE"]),
        ("new.profile", ["profile", "show", "TRACE", "--save", "FILE"]),
        ("new.svg", ["profile", "show", "TRACE", "--plot", "FILE"]),
        ("old.svg", ["profile", "show", "TRACE", "--plot", "FILE"]),
    ],
)
def test_a_killed_command_leaves_no_half_file(trace, tmp_path, name, command):
    """The kernel kills it when it has written some bytes."""
    path = tmp_path / name
    if name == "old.svg":
        path.write_text("<svg of old/>")
    before = path.read_bytes() if path.exists() else None
    command = [str(CLI), *(str({"FILE": path, "TRACE": trace}.get(word, word)) for word in command)]
    killed = subprocess.run(["prlimit", "--fsize=100", "--core=0", *command], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGXFSZ, killed
    assert (path.read_bytes() if path.exists() else None) == before
    (partial,) = tmp_path.glob(f"{name}.*")
    assert re.fullmatch(re.escape(name) + r"\.\d+-[0-9a-f]{8}\.partial", partial.name)
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    assert path.stat().st_size > 100 and [partial] == list(tmp_path.glob(f"{name}.*"))


def test_a_picture_may_go_to_a_pipe(trace):
    text = done("profile", "show", trace, "--plot", "/dev/stdout")
    assert "<svg " in text and "</svg>\n" in text and "TABLE" in text


@pytest.mark.parametrize(("name", "number"), [("/dev/stdout", 1), ("/dev/stderr", 2)])
def test_a_picture_may_go_to_the_file_of_the_output(trace, tmp_path, name, number):
    """The text follows it in the same file, behind what other programs wrote there."""
    path = tmp_path / "both"
    path.write_text("before\n")
    with path.open("ab") as file:
        streams = {"stdout": file} if number == 1 else {"stdout": subprocess.PIPE, "stderr": file}
        shown = subprocess.run([str(CLI), "profile", "show", trace, "--plot", name], timeout=120, check=True, **streams)
    text = path.read_text()
    assert text.startswith("before\n<svg ") and "</svg>\n" in text
    assert "TABLE" in (text.partition("</svg>\n")[2] if number == 1 else shown.stdout.decode())
    assert list(tmp_path.glob("both*")) == [path]


# ---- Mistakes ----


# ---- The hottest rows ----


def counted(trace: Path, table: int) -> list[tuple[int, int]]:
    """(id, lookups), the hottest first, then by id."""
    counts = Counter(np.concatenate([ids for _, t, _, _, ids in read_trace(trace)[1] if t == table]).tolist())
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


@pytest.mark.parametrize("memory", [[], ["--memory", "64KiB"]])
def test_the_hottest_rows_are_those_that_counting_gives(trace, memory):
    rows = counted(trace, 1)
    found = json.loads(done("-o", "json", "trace", "hottest", trace, "--table", "t1", "--rows", "300", *memory))
    assert [(row["id"], row["lookups"]) for row in found["rows"]] == rows[:300]
    assert (found["table"], found["count"], found["distinct_rows"]) == ("t1", 300, len(rows))
    lookups = sum(count for _, count in rows)
    assert found["lookups"] == lookups and found["share"] == pytest.approx(sum(count for _, count in rows[:300]) / lookups)


def test_the_hottest_rows_are_saved_in_their_order(trace, tmp_path):
    saved, rows = tmp_path / "t0.safetensors", counted(trace, 0)
    text = done("trace", "hottest", trace, "--table", "t0", "--save", saved)
    assert f"the {len(rows):,} hottest take 100.0 % of them" in text.replace("\u202f", ",")
    assert f"row {rows[0][0]}: {rows[0][1]} lookups\n" in text
    raw = saved.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + header_bytes])
    assert header["__metadata__"] == {"table": "t0"}
    tensors = {}
    for name in ("ids", "lookups"):
        begin, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "U64" and header[name]["shape"] == [len(rows)]
        tensors[name] = np.frombuffer(raw[8 + header_bytes + begin : 8 + header_bytes + end], "<u8").tolist()
    assert list(zip(tensors["ids"], tensors["lookups"])) == rows
    assert refused(1, "trace", "hottest", trace, "--table", "t0", "--save", saved) == f"embtier: {saved} already exists\n"
    assert saved.read_bytes() == raw


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (2, [], "--table is missing"),
        (2, ["--table", "t0", "--rows", "0"], "--rows 0: allowed: whole numbers above 0"),
        (2, ["--table", "t0", "--rows", "-3"], "--rows -3: allowed: whole numbers above 0"),
        (2, ["--table", "t0", "--memory", "1KiB"], "--memory 1KiB: allowed: sizes of at least 64KiB"),
        (2, ["--table", "t0", "--save", "rows.npy"], "--save rows.npy: allowed: a file whose name ends with .safetensors"),
        (2, ["--table", "t0", "--save", ".safetensors"], "--save .safetensors: allowed: a file whose name ends with"),
        (2, ["--table", "t0", "more"], "more than one TRACE"),
        (1, ["--table", "t9"], "the trace has no table 't9'"),
        (1, ["--table", "t0", "--rows", str(2**63)], f"{2**63} rows do not fit into {2**30} bytes"),
        (1, ["--table", "t0", "--save", "missing/rows.safetensors"], "missing/rows.safetensors: No such file or directory"),
    ],
)
def test_mistakes_of_hottest(trace, tmp_path, code, options, message):
    assert message in refused(code, "trace", "hottest", trace, *options)
    assert not list(tmp_path.glob("*.safetensors"))


# ---- Mistakes ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tables", "0"], "--tables 0: allowed: 1 to 8192"),
        (["--tables", "8193"], "--tables 8193: allowed: 1 to 8192"),
        (["--rows", "-1"], "--rows -1: allowed: 1 to "),
        (["--pooling", "nan"], "--pooling nan: allowed: 0 to 10000"),
        (["--zipf", "11"], "--zipf 11: allowed: 0 to 10"),
        (["--dtype", "f64"], "--dtype f64: allowed: f32, f16, bf16"),
        (["--locality", "meta-2020"], "--locality meta-2020: allowed: meta-2021, meta-2022"),
        (["--zipf", "1", "--locality", "meta-2021"], "--zipf and --locality exclude each other"),
        (["more"], "more than one FILE"),
    ],
)
def test_mistakes_of_generate(tmp_path, options, message):
    assert message in refused(2, "trace", "generate", tmp_path / "a", *options)
    assert not (tmp_path / "a").exists()


def test_generate_replaces_no_file(trace):
    before = trace.read_bytes()
    assert refused(1, "trace", "generate", trace) == f"embtier: {trace} already exists\n"
    assert trace.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cache", "0"], "--cache 0: allowed: sizes above 0"),
        (["--cache", "1GiB,"], "--cache : allowed: sizes above 0"),
        (["--cache", "1,2,3,4,5"], "--cache: allowed: 1 to 4 sizes"),
        (["--optimizer", "x"], "--optimizer x: see `embtier table create --help`"),
        (["more"], "more than one TRACE"),
    ],
)
def test_mistakes_of_show(trace, options, message):
    assert message in refused(2, "profile", "show", trace, *options)


def test_damaged_traces(trace, tmp_path):
    raw = bytearray(trace.read_bytes())
    for name, data, message in (
        ("cut", raw[:-1], rf"byte {len(raw) - 1}: the file ends inside .*: it was cut short"),
        ("end", raw[:-40], rf"byte {len(raw) - 40}: the end block is missing: the file was cut short"),
        ("newer", raw[:8] + b"\2" + raw[9:], r"byte 8: version 2 of the format is newer than 1, .*: update it"),
        ("turned", raw[:300] + bytes([raw[300] ^ 4]) + raw[301:], r"byte 80: the checksum of the block that begins here differs"),
        ("other", b"PK" + raw, r"byte 0: this is no trace: it does not begin with EMBTRACE"),
        ("empty", b"", r"byte 0: the file ends inside the header .*: it was cut short"),
    ):
        (tmp_path / name).write_bytes(data)
        assert re.fullmatch(rf"embtier: {re.escape(str(tmp_path / name))}: {message}\n", refused(1, "profile", "show", tmp_path / name))
    assert "none: No such file or directory" in refused(1, "profile", "show", tmp_path / "none")
    assert "Is a directory" in refused(1, "profile", "show", tmp_path)
    assert "/none/a.svg" in refused(1, "profile", "show", trace, "--plot", tmp_path / "none/a.svg")


def test_a_terminal_shows_progress(daemon, tmp_path):
    path = tmp_path / "long.trace"
    options = ["--tables", "1", "--batches", "10", "--bags", "60000"]
    for what, arguments, unit in (("generating", ("trace", "generate", path, *options), "bags"),
                                  ("reading", ("profile", "show", path), "bytes")):  # fmt: skip
        code, seen, _ = run_on_terminal(daemon, *arguments)
        before, *bars = re.split(r"\r\033\[K", seen)
        assert code == 0 and before == "" and bars.pop() == ""
        assert bars and all(re.match(rf"{what} \[#* *\] +\d+%  [\d,]+ {unit}", bar) for bar in bars), bars


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has memory of its own")
def test_memory_is_bounded_by_tables_not_by_lookups(tmp_path):
    path = tmp_path / "wide.trace"
    done("trace", "generate", path, "--tables", "1", "--rows", "1000000000", "--zipf", "0", "--batches", "20", "--bags", "10000")
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n" \
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"  # fmt: skip
    peak = subprocess.run(["/usr/bin/python3", "-c", script, str(CLI), "profile", "show", str(path)], capture_output=True, text=True)
    assert path.stat().st_size > 16_000_000 and int(peak.stdout) < 40_000, "KiB, most of them libraries"


def test_one_thing_is_no_plural(tmp_path):
    path = tmp_path / "one"
    assert ": 1 table, 1 batch, " in done("trace", "generate", path, "--tables", "1", "--batches", "1", "--bags", "2")
    assert ": 1 table, 1 batch, " in done("profile", "show", path)
