# SPDX-License-Identifier: Apache-2.0
"""`embtier plan show` and `embtier plan diff`: what they print of a plan's file. Neither needs a server."""

from __future__ import annotations

import json
import random
import re
import resource
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest
from conftest import TREE
from transfers import CLI, SANITIZED

SVG = "{http://www.w3.org/2000/svg}"


def embtier(*arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(CLI), *map(str, arguments)], capture_output=True, text=True, timeout=120)


def done(*arguments: str | Path) -> str:
    result = embtier(*arguments)
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def refused(code: int, *arguments: str | Path) -> str:
    """The message."""
    result = embtier(*arguments)
    assert result.returncode == code and result.stdout == "", result
    return result.stderr


def plan_text(tables: list[tuple[str, str, int]], generation: int = 1, head: str = "") -> str:
    """A plan of tables (name, home, rows) with rows of 16 bytes; the home is hbm, dram or cache. A table is looked up for a millisecond
    per row."""
    held = {home: 16 * sum(rows for _, its, rows in tables if its == home) for home in ("hbm", "dram", "cache")}
    lines = [
        "format: embtier-plan",
        "version: 1",
        f"generation: {generation}",
        "samples_per_s: 2e5",
        "samples_per_batch: 1000",
        "time_s: 0.005",
        "bound_s: 0.004",
        "gpu_count: 1",
        f"table_count: {len(tables)}",
        "memories:",
        f"  - {{name: hbm, gpu: 0, capacity_bytes: {held['hbm'] + 16}, array_bytes: {held['hbm']}, cache_bytes: 0, "
        "bandwidth_bytes_per_s: 1e12, read_bytes: 1, time_s: 1}",
        f"  - {{name: dram, capacity_bytes: 1TiB, array_bytes: {held['dram']}, cache_bytes: 1GiB, "
        "bandwidth_bytes_per_s: 1e11, read_bytes: 1, time_s: 1}",
        "  - {name: ssd, capacity_bytes: 2TiB, array_bytes: 1TiB, cache_bytes: 0, bandwidth_bytes_per_s: 1e9, read_bytes: 1, time_s: 1}",
        "tables:",
    ]
    for name, home, rows in tables:
        where = {"hbm": "home: hbm", "dram": "home: array, tier: dram", "cache": "home: cache"}[home]
        more = "hit_rates: [0.75], cache_bytes: [1000]" if home == "cache" else f"bytes: {16 * rows}"
        lines += [
            f"  - {{name: {name}, rows: {rows}, dim: 4, dtype: f32, optimizer: none, gpu: 0, read_bytes: {rows * 3}, reason: why {name}, "
            f"parts: [{{{where}, rows: {rows}, {more}, lookup_share: 1, time_s: {rows / 1000}, reads_per_s: 0, writes_bytes_per_day: 0}}]}}"
        ]
    return head + "\n".join(lines) + "\n"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "a.plan"
    path.write_text(plan_text([("a", "hbm", 10), ("b", "cache", 4000), ("c", "dram", 200), ("d", "dram", 200)]))
    return path


def test_the_page_s_example_is_a_plan(tmp_path):
    page = (TREE / "docs/internals/placement/plan-format.md").read_text()
    path = tmp_path / "example.plan"
    path.write_text(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
    shown = json.loads(done("-o", "json", "plan", "show", path))
    assert [table["name"] for table in shown["tables"]] == ["ads", "words"]
    assert [part["memory"] for part in shown["tables"][0]["parts"]] == ["hbm", "ssd"]


def test_a_plan_for_people(plan):
    lines = done("plan", "show", plan).splitlines()
    assert lines[0] == f"{plan}: generation 1, 4 tables, 1 GPU"
    assert lines[1] == "predicted: 2e+05 samples/s; a batch of 1,000 takes 5 ms, no plan less than 4 ms (gap 20%)"
    memories = [line.split() for line in lines[5:8]]
    assert [(row[0], row[1], row[-2:]) for row in memories] == [
        ("hbm", "0", ["1", "s"]),
        ("dram", "-", ["1", "s"]),
        ("ssd", "-", ["1", "s"]),
    ]
    assert lines[8] == "the server must keep for arrays: array_bytes 1MiB of tier 'dram'"
    # The longest lookup time comes first, then names decide.
    tables = [line.split() for line in lines[11:]]
    assert [row[:4] for row in tables] == [
        ["b", "0", "cache", "4,000"],
        ["c", "0", "dram", "200"],
        ["d", "0", "dram", "200"],
        ["a", "0", "hbm", "10"],
    ]
    assert "75.0%" in tables[0] and "4" in tables[0] and tables[0][-2:] == ["why", "b"]


def test_a_plan_for_people_has_what_each_table_asks_of_ssd(plan):
    asked = "time_s: 4.0, reads_per_s: 1250, writes_bytes_per_day: 3145728"
    plan.write_text(plan.read_text().replace("time_s: 4.0, reads_per_s: 0, writes_bytes_per_day: 0", asked))
    lines = done("plan", "show", plan).splitlines()
    titles = lines[10]
    cells = [[line[: titles.index(name) + len(name)].split()[-1] for name in ("READS/S", "HITS")] for line in lines[11:]]
    assert [row[0] for row in cells] == ["1,250", "-", "-", "-"]
    assert "3.0 MiB" in lines[11][: titles.index("WRITES/DAY") + len("WRITES/DAY")]
    assert titles.index("WHY") < 100


def test_one_table(plan):
    text = done("plan", "show", plan, "--table", "b")
    assert "b: 4,000 rows of 4 f32, optimizer none, looked up by GPU 0" in text
    assert "a batch reads 11.7 KiB in 4 s" in text and "why b" in text
    assert text.splitlines()[-1].split() == "cache 4,000 100% 0 B 100% 75.0% 4 s 0 0 B 75.0%, 1000 B".split()
    table = json.loads(done("-o", "json", "plan", "show", plan, "--table", "b"))
    assert table["parts"][0]["hit_rates"] == [0.75] and table["bytes"] == 64000 and table["time_s"] == 4
    assert f"{plan}: no table has the name 'e'" in refused(1, "plan", "show", plan, "--table", "e")


def test_json_has_every_figure(plan):
    shown = json.loads(done("-o", "json", "plan", "show", plan))
    assert (shown["generation"], shown["samples_per_s"], shown["bound_s"], shown["inputs"]) == (1, 200000, 0.004, [])
    assert [memory["left_bytes"] for memory in shown["memories"]] == [16, (1 << 40) - (1 << 30) - 6400, 1 << 40]
    assert [(table["name"], table["parts"][0]["home"], table["parts"][0]["memory"]) for table in shown["tables"]] == [
        ("a", "hbm", "hbm"),
        ("b", "cache", "ssd"),
        ("c", "array", "dram"),
        ("d", "array", "dram"),
    ]


def circles(path: Path) -> list[xml.etree.ElementTree.Element]:
    return list(xml.etree.ElementTree.parse(path).getroot().iter(f"{SVG}circle"))


def texts(path: Path) -> list[str]:
    return [text.text for text in xml.etree.ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def test_the_picture_has_a_sector_for_each_range(plan, tmp_path):
    text = plan.read_text()
    part = re.search(r"\{home: cache, rows: 4000,[^}]*\}", text)[0]
    hot = "{home: array, tier: dram, rows: 1000, bytes: 16000, lookup_share: 0.75, time_s: 1, reads_per_s: 0, writes_bytes_per_day: 0}, "
    text = text.replace(part, hot + part.replace("rows: 4000", "rows: 3000").replace("lookup_share: 1", "lookup_share: 0.25"))
    (tmp_path / "cut.plan").write_text(text.replace("array_bytes: 6400", "array_bytes: 22400"))
    picture = tmp_path / "a.svg"
    done("plan", "show", tmp_path / "cut.plan", "--svg", picture)
    sectors = [path for path in xml.etree.ElementTree.parse(picture).getroot().iter(f"{SVG}path") if "A" in path.get("d")]
    assert len(sectors) == 2 and len({sector.get("fill") for sector in sectors}) == 2
    assert [" 0 1 1 " in sector.get("d") for sector in sectors] == [True, False]  # three quarters are the large arc
    title = next(point[0].text for point in circles(picture) if point[0].text.startswith("b:"))
    assert "; dram: 1,000 rows, 75% of the lookups; cache: 3,000 rows, 25% of the lookups" in title
    assert "1 of them split" in texts(picture)


def test_the_picture(plan, tmp_path):
    picture = tmp_path / "a.svg"
    picture.write_text("<svg of old/>")
    done("plan", "show", plan, "--svg", picture)
    points = circles(picture)
    assert [point[0].text.split(":")[0] for point in points] == ["a", "b", "c", "d"]
    colors = [point.get("fill") for point in points]
    assert colors[2] == colors[3] and len(set(colors)) == 3
    at = [(float(point.get("cx")), float(point.get("cy"))) for point in points]
    assert at[0][0] < at[2][0] == at[3][0] < at[1][0]  # bytes
    assert at[0][1] > at[2][1] == at[3][1] > at[1][1]  # bytes a second: up is less in SVG
    # Both scales are logarithmic: 160, 3200 and 64,000 bytes lie equally far apart.
    assert at[1][0] - at[2][0] == pytest.approx(at[2][0] - at[0][0], abs=0.2)
    assert {"bytes of the table", "bytes read per second", "1 in hbm", "2 in dram", "1 in cache over ssd", "10 kB", "1 MB/s"} <= set(texts(picture))
    assert "/none/a.svg" in refused(1, "plan", "show", plan, "--svg", tmp_path / "none/a.svg")
    done("plan", "show", plan, "--svg", picture)  # an old picture is replaced, and nothing else
    text = plan.read_text()
    assert f"{plan}: already exists, and is no picture" in refused(1, "plan", "show", plan, "--svg", plan)
    assert plan.read_text() == text


@pytest.mark.parametrize("count", [1, 8192])
def test_pictures_of_few_and_many_tables(tmp_path, count):
    rng = random.Random(3)
    path, picture = tmp_path / "many.plan", tmp_path / "many.svg"
    homes = ["hbm", "dram", "cache"]
    path.write_text(plan_text([(f"t{i}", rng.choice(homes), int(10 ** rng.uniform(0, 8))) for i in range(count)]))
    lines = done("plan", "show", path, "--svg", picture).splitlines()
    assert len(lines) == 10 + count + sum("must keep for arrays" in line for line in lines)
    points = circles(picture)
    assert len(points) == count
    assert all(84 <= float(point.get("cx")) <= 620 and 40 <= float(point.get("cy")) <= 400 for point in points)
    legend = [re.fullmatch(r"(\d+) in .*", text) for text in texts(picture)]
    assert sum(int(found[1]) for found in legend if found) == count


def test_a_difference(plan, tmp_path):
    new = tmp_path / "b.plan"
    new.write_text(plan_text([("a", "hbm", 10), ("b", "dram", 4000), ("c", "cache", 200), ("d", "dram", 201), ("e", "hbm", 1)], 2))
    lines = done("plan", "diff", plan, new).splitlines()
    assert lines[0] == "generation 1 > 2, tables: 2 moved, 1 same, 1 new, 0 gone, 1 altered"
    assert lines[1] == "4,200 rows move, 65.6 KiB; predicted: 2e+05 > 2e+05 samples/s"
    assert [line.split()[:2] for line in lines[-4:]] == [["b", "moved"], ["c", "moved"], ["d", "altered"], ["e", "new"]]
    diff = json.loads(done("-o", "json", "plan", "diff", plan, new))
    assert (diff["rows_moved"], diff["bytes_moved"], diff["same_tables"]) == (4200, 67200, 1)
    assert [(memory["name"], memory["in_bytes"], memory["out_bytes"]) for memory in diff["memories"]] == [
        ("hbm", 16, 0),
        ("dram", 64000 + 201 * 16, 3200 + 3200),
        ("ssd", 3200, 64000),
    ]
    assert diff["tables"][3]["before"] is None and diff["tables"][3]["after"]["name"] == "e"
    same = done("plan", "diff", plan, plan).splitlines()
    assert same[0] == "generation 1 > 1, tables: 0 moved, 4 same, 0 new, 0 gone, 0 altered" and len(same) == 7


# ---- Mistakes ----


def test_mistakes_have_file_line_and_key(plan):
    text = plan.read_text()
    cases = [
        ("array_bytes: 160,", "array_bytes: 176,", f"{plan}:11: memories[0].array_bytes: 176; allowed: 160, the sum of the parts there"),
        ("capacity_bytes: 176,", "capacity_bytes: 159,", f"{plan}:11: memories[0].capacity_bytes: 159 (159B) does not hold 160 (160B)"),
        ("tier: dram", "tier: pmem", f"{plan}:17: tables[2].parts[0].tier: 'pmem' is no tier of this plan"),
        ("rows: 4000, hit", "rows: -1, hit", f"{plan}:16: tables[1].parts[0].rows: `-1` is not possible"),
        ("version: 1", "version: 2", f"{plan}:2: version: 2 is newer than 1"),
        ("generation: 1", "generation: \x1b[2J", f"{plan}:3: "),
    ]
    for what, by, message in cases:
        assert what in text
        plan.write_text(text.replace(what, by, 1))
        shown = refused(1, "plan", "show", plan)
        assert shown.startswith(f"embtier: {message}") and "\x1b" not in shown, shown
        assert refused(1, "plan", "diff", plan, plan) == shown


def test_wrong_usage(plan, tmp_path):
    assert "FILE is missing" in refused(2, "plan", "show")
    assert "more than one FILE" in refused(2, "plan", "show", plan, plan)
    assert "an argument is missing: OLD NEW" in refused(2, "plan", "diff", plan)
    assert "none.plan: cannot be opened: No such file" in refused(1, "plan", "show", tmp_path / "none.plan")
    assert "cannot be read: Is a directory" in refused(1, "plan", "show", tmp_path)


@pytest.mark.skipif(SANITIZED, reason="sanitizers reserve terabytes of addresses")
def test_memory_is_bounded_whatever_the_file_says(plan):
    text = plan.read_text()
    hostile = "x" * ((64 << 20) - len(text) - 100)
    plan.write_text(text.replace("reason: why a", f'reason: "{hostile}"', 1))
    result = subprocess.run(
        [str(CLI), "plan", "show", str(plan)],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)),
    )
    assert result.returncode == 1 and f"{plan}:15: tables[0].reason: `xxx" in result.stderr, result.stderr
    plan.write_text(text + "#" * (64 << 20))
    assert f"{plan}:1: the file is too large; allowed: at most 67108864 bytes" in refused(1, "plan", "show", plan)
