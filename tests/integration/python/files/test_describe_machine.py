# SPDX-License-Identifier: Apache-2.0
"""`tools/describe-machine`: the file is one that plans take; figures of a server are those of its counts."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE
from transfers import CLI

TIERS = ["--tier", "dram=24MiB", "--tier", "cxl=16777216"]
QUICK = ["--seconds", "0.01", "--for", "0.05"]
MIB = 1 << 20


def describe(*arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([TREE / "tools/describe-machine", *arguments], capture_output=True, text=True, timeout=240)


def described(folder: Path, *arguments: str | Path) -> tuple[dict[str, float], str]:
    """Figures by key, behind the name of their tier or ssd; and the text."""
    done = describe("--directory", folder, *QUICK, *arguments)
    assert done.returncode == 0, done
    assert not list(folder.glob("embtier-measure-*"))
    figures, memory = {}, ""
    for line in done.stdout.splitlines():
        key, _, value = line.partition("#")[0].strip(" -").partition(": ")
        memory = value.strip() if key == "name" else "ssd" if key == "ssd:" else memory
        if value and key != "name":
            figures[f"{memory} {key}"] = float(value)
    return figures, done.stdout


def test_a_measured_machine_is_one_that_plans_take(tmp_path):
    def embtier(*arguments: str | Path) -> str:
        done = subprocess.run([str(CLI), *map(str, arguments)], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done
        return done.stdout

    figures, text = described(tmp_path, *TIERS)
    assert "# lanes: 1," in text
    assert "# not by the server" not in text and all(figure > 0 for figure in figures.values())
    (tmp_path / "machine.yaml").write_text(text)
    embtier("trace", "generate", tmp_path / "a.trace", "--tables", 2, "--rows", 3000, "--dim", 32, "--batches", 20, "--bags", 100)
    embtier("profile", "show", tmp_path / "a.trace", "--save", tmp_path / "a.profile")
    embtier("plan", "make", tmp_path / "a.plan", "--profile", tmp_path / "a.profile", "--machine", tmp_path / "machine.yaml")
    plan = json.loads(embtier("-o", "json", "plan", "show", tmp_path / "a.plan"))
    assert [(one["name"], one["capacity_bytes"]) for one in plan["memories"][:2]] == [("dram", 24 << 20), ("cxl", 16 << 20)]
    assert all(one["bandwidth_bytes_per_s"] > 0 for one in plan["memories"])


def loaded(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The program as a module, so that its functions can be replaced."""
    program = importlib.machinery.SourceFileLoader("describe_machine", str(TREE / "tools/describe-machine"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(program.name, program))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    program.exec_module(module)
    return module


def node_refusal(monkeypatch: pytest.MonkeyPatch) -> str:
    """Why this container or kernel lets no program choose a NUMA node; empty if it does."""
    try:
        loaded(monkeypatch).check_place("numa", "0")
    except OSError as error:
        assert error.errno in (errno.EPERM, errno.ENOSYS), error
        return os.strerror(error.errno)
    return ""


def test_each_tier_is_measured_where_it_lies(tmp_path, monkeypatch):
    """A folder in memory is as fast as memory, so the places are seen by the calls and by the comments."""
    tiers = ["dram=24MiB", "other=16MiB", "file=16MiB:file=/dev/shm"]
    wrong = [("file=/nowhere", "No such file or directory")]
    if refusal := node_refusal(monkeypatch):
        wrong.append(("numa=0", refusal))
    else:
        tiers.append("node=16MiB:numa=0")
        wrong.append(("numa=63", "Invalid argument"))
    figures, text = described(tmp_path, *(word for tier in tiers for word in ("--tier", tier)))
    lines = [line for line in text.splitlines() if "bandwidth" in line][: len(tiers)]
    assert "#" not in lines[0] and lines[1].endswith("# ordinary memory, as tier dram: name its place if it lies elsewhere")
    assert all("as tier" not in line for line in lines[2:])
    rates = [figures[f"{name} bandwidth_bytes_per_s"] for name in (tier.partition("=")[0] for tier in tiers)]
    assert rates[0] == rates[1] and rates == sorted(rates, reverse=True), "plans want the fastest first"
    lowered = [line for line in lines if "that of the tier before; measured: " in line]
    assert all(float(line.rpartition(" ")[2]) > rates[0] * 0.01 for line in lowered)
    for place, message in wrong:
        done = describe("--directory", tmp_path, *QUICK, "--tier", "dram=24MiB", "--tier", f"far=16MiB:{place}")
        assert done.returncode == 1 and f"--tier far: {place}: {message}" in done.stderr and done.stdout == "", done


def test_too_little_memory_is_told(monkeypatch):
    module = loaded(monkeypatch)

    def full() -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(module, "ordinary_memory", full)
    with pytest.raises(SystemExit, match="--tier dram: ordinary memory: Cannot allocate memory"):
        module.bandwidths_of([module.tier("dram=24MiB")], None, 0.01)


# ---- With a server whose answers are known ----


def table(name: str, home: str, tier: str, lookups: int, **more: int) -> dict:
    counts = {"lookup_rows": lookups, "missed_lookup_rows": 0, "read_lookup_rows": 0, "lookup_ns": 0}
    described = {"name": name, "uuid": "u", "home": home, "tier": tier, "hot_rows": 0, "weight_bytes": 256, "state_bytes": 4}
    return described | counts | more


def fake(folder: Path, before: tuple[list, dict], now: tuple[list, dict], uptime_ms: int = 2000) -> list[str]:
    """A program that answers as `embtier` does, first with @before, then with @now: tables and figures. @uptime_ms: then; first 1000."""
    states = ({"metrics": before[1], "uptime_ms": 1000}, {"metrics": now[1], "uptime_ms": uptime_ms})
    answers = [json.dumps(answer) for answer in (before[0], states[0], now[0], states[1])]
    for i, answer in enumerate(answers):
        (folder / f"answer{i}").write_text(answer)
    program = folder / "embtier"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "first = min(folder.glob('answer*'))\n"
        "print(first.read_text())\n"
        "first.unlink()\n"
    )
    program.chmod(0o755)
    return ["--socket", "/nowhere", "--embtier", str(program)]


def metrics(reading_s: float, *tiers: str, rows_read: int = 0) -> dict:
    return {
        "store_reading_seconds": reading_s, "store_rows_read": rows_read, "lanes": 2, "cache_capacity_bytes": dict.fromkeys(tiers, MIB),
    }  # fmt: skip


def test_figures_of_a_server_are_those_of_its_counts(tmp_path):
    before = [
        table("a", "cache", "", 5_000_000, missed_lookup_rows=7, read_lookup_rows=7, lookup_ns=1),
        table("dropped", "cache", "", 9_000_000, lookup_ns=1),
    ]
    now = [
        table("a", "cache", "", 6_000_000, missed_lookup_rows=100_007, read_lookup_rows=50_007, lookup_ns=300_000_001),
        table("b", "array", "dram", 500_000, weight_bytes=5000, lookup_ns=700_000_000),
    ]
    old_b = table("b", "array", "dram", 0, weight_bytes=5000)
    given = fake(tmp_path, ([*before, old_b], metrics(1, "dram")), (now, metrics(3, "dram")))
    figures, text = described(tmp_path, "--tier", "dram=24MiB", *given)
    # Two lanes that took a second: 900,000 rows of 256 B that were found, and 500,000 of 5,000 B. 50,000 blocks in two seconds.
    assert figures["dram bandwidth_bytes_per_s"] == 2 * (900_000 * 256 + 500_000 * 5000)
    assert figures["ssd read_iops"] == 25_000
    assert text.count("# by the server's lookups") == 2 and "# not by" not in text
    assert "\nlanes: 2\n" in text


def test_of_several_tiers_only_that_of_arrays_is_known(tmp_path):
    none = [table("a", "cache", "", 0), table("b", "array", "cxl", 0)]
    now = [
        table("a", "cache", "", 6_000_000, read_lookup_rows=1000, weight_bytes=4096, lookup_ns=300_000_000),
        table("b", "array", "cxl", 500_000, lookup_ns=1_000_000_000),
    ]
    given = fake(tmp_path, (none, metrics(0, "dram", "cxl")), (now, metrics(1, "dram", "cxl")))
    figures, text = described(tmp_path, *TIERS, *given)
    assert figures["cxl bandwidth_bytes_per_s"] == min(2 * 500_000 * 256, figures["dram bandwidth_bytes_per_s"])  # a busy machine's is low
    assert figures["ssd read_iops"] == 2000  # a row of 4,100 bytes fills two blocks
    dram = next(line for line in text.splitlines() if "bandwidth" in line)
    assert "# not by the server" in dram and figures["dram bandwidth_bytes_per_s"] > 0


def test_a_lowered_figure_of_the_server_has_one_origin(tmp_path):
    none = [table("a", "array", "dram", 0), table("b", "array", "cxl", 0)]
    now = [
        table("a", "array", "dram", 500_000, lookup_ns=1_000_000_000),
        table("b", "array", "cxl", 1_000_000, lookup_ns=1_000_000_000),
    ]
    given = fake(tmp_path, (none, metrics(0, "dram", "cxl")), (now, metrics(1, "dram", "cxl")))
    figures, text = described(tmp_path, *TIERS, *given)
    slower = 2 * 500_000 * 256
    assert figures["dram bandwidth_bytes_per_s"] == figures["cxl bandwidth_bytes_per_s"] == slower
    assert f": {slower}  # by the server's lookups\n" in text
    assert f": {slower}  # that of the tier before; by the server: {2 * slower}\n" in text


def test_a_wrong_place_is_found_before_the_server_is_asked(tmp_path):
    one = ([], metrics(0, "dram"))
    given = fake(tmp_path, one, one)
    for arguments in (["--directory", tmp_path, "--tier", "dram=24MiB:file=/nowhere"], ["--directory", "/nowhere", "--tier", "dram=24MiB"]):
        done = describe(*arguments, *QUICK, *given)
        assert done.returncode == 1 and "/nowhere: No such file or directory" in done.stderr and done.stdout == ""
    assert len(list(tmp_path.glob("answer*"))) == 4, "none was taken"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_place_that_only_the_server_may_use_is_measured_by_its_lookups(tmp_path, monkeypatch, capsys, number):
    def refused(_kind: str, _place: str) -> None:
        raise OSError(number, os.strerror(number))

    module = loaded(monkeypatch)
    monkeypatch.setattr(module, "check_place", refused)
    now = [table("a", "cache", "", 10**6, lookup_ns=10**9)]
    arguments = ["--directory", str(tmp_path), *QUICK, "--tier", "dram=24MiB:numa=0"]
    given = fake(tmp_path, ([table("a", "cache", "", 0)], metrics(0, "dram")), (now, metrics(1, "dram")))
    monkeypatch.setattr(sys, "argv", ["describe-machine", *arguments, *given])
    assert module.main() == 0
    assert f"bandwidth_bytes_per_s: {2 * 10**6 * 256}  # by the server's lookups\n" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["describe-machine", *arguments])
    with pytest.raises(SystemExit, match=f"--tier dram: numa=0: {os.strerror(number)}"):
        module.main()


def test_a_drive_without_room_is_found_before_the_server_is_asked(tmp_path):
    one = ([], metrics(0, "dram"))
    arguments = ["--directory", str(tmp_path), *QUICK, "--tier", "dram=24MiB", *fake(tmp_path, one, one)]
    command = ["prlimit", f"--fsize={16 * MIB}", str(TREE / "tools/describe-machine"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1 and f"--directory {tmp_path}: File too large" in done.stderr and done.stdout == "", done
    assert len(list(tmp_path.glob("answer*"))) == 4, "none was taken"
    assert not list(tmp_path.glob("embtier-measure-*"))


def test_too_few_lookups_leave_the_measured_figures(tmp_path):
    now = [table("a", "cache", "", 399_999, read_lookup_rows=399, lookup_ns=1)]
    given = fake(tmp_path, ([table("a", "cache", "", 0)], metrics(0, "dram")), (now, metrics(1, "dram")))
    figures, text = described(tmp_path, "--tier", "dram=24MiB", *given)
    assert text.count("# not by the server") == 2 and figures["ssd read_iops"] > 399


def test_reads_of_prefetches_and_pushes_count(tmp_path):
    now = [table("a", "cache", "", 10_000, read_lookup_rows=1000, weight_bytes=4096)]  # of two blocks
    given = fake(tmp_path, ([table("a", "cache", "", 0)], metrics(1, "dram", rows_read=500)), (now, metrics(3, "dram", rows_read=10_500)))
    figures, _ = described(tmp_path, "--tier", "dram=24MiB", *given)
    assert figures["ssd read_iops"] == 10_000  # 10,000 rows in two seconds


def test_a_table_that_moves_meanwhile_is_left_out(tmp_path):
    before = [table("a", "cache", "", 0), table("b", "array", "dram", 0)]
    now = [table("a", "array", "dram", 10**7, lookup_ns=10**9), table("b", "array", "dram", 500_000, lookup_ns=10**9)]
    given = fake(tmp_path, (before, metrics(0, "dram")), (now, metrics(1, "dram")))
    figures, _ = described(tmp_path, "--tier", "dram=24MiB", *given)
    assert figures["dram bandwidth_bytes_per_s"] == 2 * 500_000 * 256


def test_a_server_that_starts_anew_meanwhile_is_told(tmp_path):
    one = ([table("a", "cache", "", 0)], metrics(0, "dram"))
    done = describe("--directory", tmp_path, *QUICK, "--tier", "dram=24MiB", *fake(tmp_path, one, one, uptime_ms=10))
    assert done.returncode == 1 and "started anew in the meantime" in done.stderr and done.stdout == ""


def test_tiers_are_those_of_the_server(tmp_path):
    given = fake(tmp_path, ([], metrics(0, "dram", "pmem")), ([], metrics(1, "dram", "pmem")))
    done = describe("--directory", tmp_path, *TIERS, *given)
    assert done.returncode == 1 and "--tier: the server's tiers are dram, pmem" in done.stderr and done.stdout == ""


def test_a_server_that_works(daemon, tmp_path):
    with daemon.connect() as server:
        table = server.create_table("a", dim=64, rows=20_000, home="array", tier="pmem")
        ids, is_over = np.arange(8192), threading.Event()

        def look_up() -> None:
            while not is_over.is_set():
                table.get(ids)

        client = threading.Thread(target=look_up)
        client.start()
        try:
            for seconds in (0.5, 3, 12, 48):  # a slow machine needs longer for as many lookups
                given = ["--socket", daemon.socket, "--for", str(seconds), "--embtier", str(CLI)]
                figures, text = described(tmp_path, "--tier", "dram=24MiB", "--tier", "pmem=24MiB", *given)
                if "  # by the server's lookups" in text or "  # that of the tier before; by the server" in text:
                    break
        finally:
            is_over.set()
            client.join()
    by_server = [line for line in text.splitlines() if "# by the server's lookups" in line or "before; by the server" in line]
    assert len(by_server) == 1 and figures["pmem bandwidth_bytes_per_s"] == float(by_server[0].partition("#")[0].split(": ")[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--directory", "/nowhere", "--tier", "dram=1MiB"], "--directory /nowhere: No such file or directory"),
        (["--directory", "/tmp", "--tier", "ssd=1MiB"], "ssd=1MiB: allowed: NAME=SIZE"),
        (["--directory", "/tmp", *["--tier", "a=1MiB"] * 5], "5 tiers; allowed: 1 to 4"),
        (["--directory", "/tmp", "--tier", "dram"], "dram: allowed: NAME=SIZE, such as dram=16GiB"),
        (["--directory", "/tmp", "--tier", "dram=16G"], "16G: allowed: a size such as 4194304, 4MiB or 16GiB"),
        (["--directory", "/tmp", "--tier", "dram=16GiB:disk=/"], "allowed behind the size: nothing, :file=FOLDER, or :numa=NODE"),
        (["--directory", "/tmp", "--tier", "dram=16GiB:numa=64"], ":numa=NODE of 0 to 63"),
        (["--directory", "/tmp"], "--tier"),
        (["--directory", "/tmp", "--tier", "dram=1MiB", "--for", "0"], "--for 0: allowed: more than 0"),
        (["--directory", "/tmp", "--tier", "dram=1MiB", "--seconds", "nan"], "--seconds nan: allowed: more than 0"),
        (
            ["--directory", "/tmp", "--tier", "dram=1MiB", *QUICK, "--socket", "/nowhere/s", "--embtier", str(CLI)],
            "/nowhere/s",
        ),
        (["--directory", "/tmp", "--tier", "dram=1MiB", "--socket", "/s", "--embtier", "/no/program"], "/no/program"),
    ],
)
def test_mistakes(arguments, message):
    result = describe(*arguments)
    assert result.returncode != 0 and message in result.stderr and result.stdout == ""
    assert "Traceback" not in result.stderr
