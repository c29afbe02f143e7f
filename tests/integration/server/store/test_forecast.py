# SPDX-License-Identifier: Apache-2.0
"""`embtier endurance forecast` says what another cache, layout or drive would write. Another server then has that cache, or writes
first values, and gets the same traffic."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, LONG, SANITIZED, Daemon

import embtier

DIM, ROWS, BATCH = 64, 30_000, 1024
SLAB_MIB = 2  # the lane has whole slabs of a tier, one of them for its index
SMALL, LARGE = 2 * SLAB_MIB << 20, 3 * SLAB_MIB << 20
LIMIT_S = 60
COMPACTIONS = 2  # in a window, which begins and ends with one, so that it has no fraction of one
WINDOWS = 5


class Trainer:
    """Looks rows up and pushes gradients. Compactions keep up, so that two servers whose rates differ compact alike."""

    def __init__(self, server, **table) -> None:
        rng = np.random.default_rng(7)
        chances = 1 / np.arange(1, ROWS + 1) ** 0.8
        self.server = server
        self.rows = rng.permutation(ROWS)[rng.choice(ROWS, (1000, BATCH), p=chances / chances.sum())]
        self.table = server.create_table("rows", DIM, ROWS, optimizer="sgd", **table)
        self.batch = server.bag_batch([embtier.Bags(self.table, BATCH, 1, "sum", False)])
        self.batches = 0

    def train(self, batches: int = 1) -> None:
        for _ in range(batches):
            self.batch.ids(0)[:] = self.rows[self.batches % len(self.rows)]
            self.batch.offsets(0)[:] = [0, BATCH]
            self.batch.lookup(ticket=True)
            self.batch.gradients(0)[:] = 0.01
            self.batches += 1
            self.batch.push(0.1, self.batches)

    def settle(self) -> dict:
        deadline = time.monotonic() + LIMIT_S
        while True:
            metrics = self.server.status()["metrics"]
            if metrics["store_pending_compaction_bytes"] == 0 and metrics["store_compacting_shards"] == 0:
                return metrics
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def train_compactions(self, count: int) -> dict:
        """Trains until the last of @count compactions. Each has as many files as the others: training waits for it."""
        before = self.settle()["store_compactions"]
        while (metrics := self.settle())["store_compactions"] < before + count:
            self.train()
        return metrics


def with_tier(make_daemon, bytes_: int, **endurance) -> Daemon:
    tier = {"name": "dram", "kind": "dram", "bytes": bytes_, "array_bytes": "0"}
    changes = {
        "cache": {"tiers": [tier]},
        "checkpoints": {"interval_seconds": 0},
        "data": {"shards_per_directory": 1},
        "endurance": endurance,
        "rocksdb": {"memtable_bytes": "4MiB"},
    }
    daemon = make_daemon(changes, lanes=1)
    daemon.start()
    return daemon


def command(daemon, *arguments: str | Path) -> list[str]:
    return [str(CLI), "-s", str(daemon.socket), "-t", "0", *map(str, arguments)]


def forecast(daemon, *arguments: str | Path) -> dict:
    done = subprocess.run(
        command(daemon, "-o", "json", "endurance", "forecast", *arguments), stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True
    )
    return json.loads(done.stdout)


def named(report: dict, name: str) -> dict:
    return next(one for one in report["forecasts"] if one["name"] == name)


def record(trainer: Trainer, path: Path, batches: int) -> None:
    trainer.server.start_profile()
    trainer.train(batches)
    trainer.server.stop_profile()
    trainer.server.save_profile(path)


def forecast_while(trainer: Trainer, daemon, *arguments: str | Path) -> dict:
    """The forecast of an interval in which rows are written to SSD, with checkpoints to flush them, and compacted."""
    for seconds in (2, 8, 32, 128):
        asking = command(daemon, "-o", "json", "endurance", "forecast", *arguments, "--interval", str(seconds))
        with subprocess.Popen(asking, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                trainer.train(10)
                trainer.server.checkpoint(keep=1)
            report, why = process.communicate()
        if process.returncode == 0 and json.loads(report)["forecasts"][0]["rewrite_amplification"] > 0.2:
            return json.loads(report)
    pytest.fail(f"no row was compacted in any interval: {process.returncode} {report} {why}")


def endurance(daemon) -> dict:
    return json.loads(subprocess.run(command(daemon, "-o", "json", "endurance"), check=True, capture_output=True, text=True).stdout)


def amplification(before: dict, now: dict) -> tuple[float, float]:
    """Bytes of rows written back, and bytes written, for each byte updated."""
    updated = now["updated_bytes"] - before["updated_bytes"]
    rows = now["store_row_bytes_written"] - before["store_row_bytes_written"]
    return rows / updated, (sum(now["store_written_bytes"].values()) - sum(before["store_written_bytes"].values())) / updated


def usual_amplification(trainer: Trainer) -> tuple[float, float]:
    """The median of some windows: on a busy machine flushes queue up, and then one compaction does the work of two."""
    figures = [trainer.train_compactions(COMPACTIONS) for _ in range(WINDOWS + 1)]
    windows = [amplification(before, now) for before, now in itertools.pairwise(figures)]
    return statistics.median(rows for rows, _ in windows), statistics.median(bytes_ for _, bytes_ in windows)


@pytest.mark.skipif(SANITIZED or not LONG, reason="bytes within 10 % need a machine without other work; a long check has it")
def test_another_cache_writes_what_was_forecast(make_daemon, tmp_path):
    profile = tmp_path / "run.profile"
    small = with_tier(make_daemon, SMALL)
    with small.connect(arena_bytes=32 << 20) as server:
        trainer = Trainer(server)
        trainer.train(100)
        record(trainer, profile, 100)
        rows, bytes_ = usual_amplification(trainer)
        report = forecast(small, profile, "--tier", f"dram={LARGE}")
    small.stop()
    now, larger = report["forecasts"]
    assert report["predicted_hit_rate"] == pytest.approx(report["measured_hit_rate"], abs=0.03)
    assert now["of_now"] == 1 and now["change"] == "now" and larger["tier_bytes"] == {"dram": LARGE}
    assert larger["of_now"] < 0.7  # so it is not what it is now

    with with_tier(make_daemon, LARGE).connect(arena_bytes=32 << 20) as server:
        trainer = Trainer(server)
        trainer.train(200)
        larger_rows, larger_bytes = usual_amplification(trainer)
    print(f"{rows=} {bytes_=} {larger_rows=} {larger_bytes=} of_now={larger['of_now']}")
    assert rows * larger["write_back_amplification"] / now["write_back_amplification"] == pytest.approx(larger_rows, rel=0.05)
    assert bytes_ * larger["of_now"] == pytest.approx(larger_bytes, rel=0.1)


@pytest.fixture
def trained(make_daemon, tmp_path):
    """A server, its trainer and a profile."""
    daemon = with_tier(make_daemon, SMALL, capacity_bytes="1GB", rated_written_bytes="1825GB", rated_years=5)
    with daemon.connect(arena_bytes=32 << 20) as server:
        trainer = Trainer(server)
        record(trainer, tmp_path / "run.profile", 120)
        server.checkpoint()
        yield daemon, trainer, tmp_path / "run.profile"


def test_a_table_with_all_its_rows_writes_what_was_forecast(trained, make_daemon):
    daemon, trainer, profile = trained
    report = forecast(daemon, profile, "--eager", "--table-days", "10")
    deferred, saved = named(report, "now"), report["initialization"]["written_bytes"]
    assert report["initialization"]["written_bytes_per_day"] == pytest.approx(saved / 10)
    eager = named(report, "no deferred initialization")
    assert eager["written_bytes_by_cause"]["initialization"] == pytest.approx(saved * report["seconds"] / (10 * 86400), rel=0.01)

    with with_tier(make_daemon, SMALL).connect(arena_bytes=32 << 20) as server:
        other = Trainer(server, eager=True)
        other.settle()
        first = sum(server.status()["metrics"]["store_written_bytes"].values())
        assert saved == pytest.approx(first, rel=0.1)
        other.train(trainer.batches)
        server.checkpoint()
        written = other.settle()["store_written_bytes"]
    # The first values, which the forecast adds, are flushed. How much is compacted depends on how many flushes one compaction meets.
    assert written["flush"] == pytest.approx(deferred["written_bytes_by_cause"]["flush"] + saved, rel=0.1)
    assert eager["written_bytes"] == pytest.approx(sum(eager["written_bytes_by_cause"].values()))
    assert eager["written_bytes"] == pytest.approx(deferred["written_bytes"] + eager["written_bytes_by_cause"]["initialization"])


def test_drives_and_layouts_come_side_by_side(trained):
    daemon, trainer, profile = trained
    options = ("--drive", "name=small,bytes=100GB,dwpd=3,years=2", "--drive", "name=rated,bytes=2TB,rated=700TB", "--layout", "universal")
    report = forecast_while(trainer, daemon, profile, *options, "--layout", "blob", "--amplification", "blob=2.5")
    assert [one["name"] for one in report["forecasts"]] == ["now", "drive small", "drive rated", "layout universal", "layout blob"]
    now, small, rated, universal, blob = report["forecasts"]
    assert now["written_bytes_per_day"] == pytest.approx(now["written_bytes"] * 86400 / report["seconds"])
    assert sum(now["daily_bytes_by_cause"].values()) == pytest.approx(now["written_bytes_per_day"])
    for one, bytes_, life, years in ((now, 10**9, 1825e9, 5), (small, 100e9, 3 * 100e9 * 2 * 365, 2), (rated, 2e12, 700e12, 5)):
        assert one["written_bytes"] == now["written_bytes"]
        assert one["drive"] == {"capacity_bytes": bytes_, "rated_written_bytes": life, "rated_years": years}
        assert one["drive_writes_per_day"] == pytest.approx(one["written_bytes_per_day"] / bytes_)
        assert one["rated_drive_writes_per_day"] == pytest.approx(life / bytes_ / years / 365)
        assert one["rated_life_years"] == pytest.approx(life / one["written_bytes_per_day"] / 365)

    assert universal["layout"] == "universal" and universal["rewrite_amplification"] < now["rewrite_amplification"]
    assert universal["first_write_amplification"] == pytest.approx(now["first_write_amplification"])
    assert blob["first_write_amplification"] + blob["rewrite_amplification"] == pytest.approx(2.5)
    assert universal["written_bytes_by_cause"]["other"] == now["written_bytes_by_cause"]["other"]


def test_rows_of_other_tables_and_logs_stay_as_they_are(trained):
    """A table that writes updates through, one in an array, and one without lookups: a larger cache changes nothing for them."""
    daemon, trainer, _ = trained
    server = trainer.server
    for name, kind in {"logged": {"durability": "async"}, "set_only": {}}.items():
        server.create_table(name, DIM, 2000, **kind).set(np.arange(2000), np.ones((2000, DIM), np.float32))
    profile = daemon.folder / "all.profile"
    record(trainer, profile, 20)
    server.checkpoint()
    report = forecast(daemon, profile, "--tier", "dram=1GiB")
    now, larger = report["forecasts"]
    assert report["tables"] == 1 and report["missing_tables"] == 0
    assert larger["hit_rate"] > 0.99 and now["written_bytes_by_cause"]["log"] > 0
    assert larger["written_bytes_by_cause"]["log"] == now["written_bytes_by_cause"]["log"]
    left = sum(info["flush_bytes"] for info in endurance(daemon)["tables"] if info["name"] != "rows")
    assert larger["written_bytes_by_cause"]["flush"] == pytest.approx(left, rel=0.02) and left > 0


def test_without_options_there_is_a_choice_of_alternatives(trained):
    daemon, _, profile = trained
    report = forecast(daemon, profile)
    assert [one["change"] for one in report["forecasts"]] == ["now", "tier", "tier", "layout", "layout", "eager"]
    assert [list(one["tier_bytes"]) for one in report["forecasts"][:3]] == [["dram"], ["dram"], ["dram", "pmem"]]
    now, dram, pmem = report["forecasts"][:3]
    assert dram["tier_bytes"]["dram"] == 2 * SMALL and pmem["tier_bytes"] == {"dram": SMALL, "pmem": 4 * SMALL}
    assert now["written_bytes"] > dram["written_bytes"] > pmem["written_bytes"]
    # The server is younger than an hour.
    assert now["written_bytes_per_day"] is None and now["rated_life_years"] is None and now["write_amplification"] > 0

    text = subprocess.run(command(daemon, "endurance", "forecast", profile), check=True, capture_output=True, text=True).stdout
    for words in ("dram of 8.0 MiB", "layout universal", "deferred initialization saves", "up for less than an hour", "write-back"):
        assert words in text
    assert "which part of its bytes that is, is not known yet" in text and report["initialization"]["saved_share"] is None


def test_a_drive_that_is_given_is_not_asked_for(make_daemon, tmp_path):
    profile, words = tmp_path / "run.profile", "or give --drive"
    daemon = with_tier(make_daemon, SMALL)
    with daemon.connect(arena_bytes=32 << 20) as server:
        record(Trainer(server), profile, 120)
        server.checkpoint()
    for options, is_asked in ((), True), (("--drive", "name=new,bytes=1TB,dwpd=3"), False):
        asking = command(daemon, "endurance", "forecast", profile, *options)
        text = subprocess.run(asking, check=True, capture_output=True, text=True).stdout
        assert "endurance.rated_written_bytes is not configured" in text and (words in text) == is_asked


@pytest.mark.parametrize("options", [["--tier", f"dram={LARGE}"], []])
def test_what_deferred_initialization_saves_is_told_whatever_is_asked(trained, options):
    daemon, trainer, profile = trained
    asked = [profile, *options, "--table-days", "0.01"]
    report = forecast_while(trainer, daemon, *asked)
    initial, now = report["initialization"], named(report, "now")
    saved = initial["written_bytes_per_day"]
    assert 0 < initial["saved_share"] < 1
    own = sum(bytes for cause, bytes in now["daily_bytes_by_cause"].items() if cause != "others")
    assert initial["saved_share"] == pytest.approx(saved / (saved + own), rel=0.001)
    eager = [one for one in report["forecasts"] if one["change"] == "eager"]
    assert bool(eager) == (not options)
    for one in eager:
        assert initial["saved_share"] == pytest.approx(1 - 1 / one["of_now"], rel=0.01)

    asking = command(daemon, "endurance", "forecast", *asked, "--interval", "2")
    with subprocess.Popen(asking, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            trainer.train(10)
            trainer.server.checkpoint(keep=1)
        text = process.communicate()[0]
    assert process.returncode == 0
    (line,) = (line for line in text.splitlines() if line.startswith("deferred initialization saves"))
    assert " % of its bytes, " in line and "every 0.01 days (--table-days)" in line


def fails(daemon, *arguments: str | Path, code: int = 1) -> str:
    done = subprocess.run(command(daemon, "endurance", "forecast", *arguments), capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == code and not done.stdout, done
    return done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "PROFILE is missing: `embtier profile record`"),
        (["a", "b"], "more than one PROFILE"),
        (["a", "--drive", "name=x,bytes=1TB"], "give its rating as dwpd=NUMBER"),
        (["a", "--drive", "name=x,bytes=1TB,dwpd=1,rated=1TB"], "one of them"),
        (["a", "--drive", "name=x,dwpd=1"], "name or bytes are missing"),
        (["a", "--drive", "bytes=1TB,dwpd=1"], "name or bytes are missing"),
        (["a", "--drive", "name=x,bytes=0,dwpd=1"], "bytes=0: allowed"),
        (["a", "--drive", "name=x,bytes=1TB,dwpd=-1"], "dwpd=-1: allowed: a number above 0"),
        (["a", "--drive", "name=x,bytes=1TB,dwpd=nan"], "dwpd=nan: allowed"),
        (["a", "--drive", "name=x,bytes=1TB,dwpd=1,years=0"], "years=0: allowed"),
        (["a", "--drive", "name=x,bytes=1TB,speed=1"], "there is no 'speed'; allowed: name, bytes"),
        (["a", "--drive", "fast"], "'fast' has no value"),
        (["a", "--drive", "name=" + "x" * 300], "too long"),
        (["a", "--tier", "dram"], "such as dram=64GiB"),
        (["a", "--tier", "dram=0"], "such as dram=64GiB"),
        (["a", "--tier", "=1GiB"], "such as dram=64GiB"),
        (["a", "--layout", "flat"], "allowed: leveled, universal, blob"),
        (["a", "--amplification", "blob"], "such as universal=2.5"),
        (["a", "--amplification", "flat=2"], "such as universal=2.5"),
        (["a", "--amplification", "blob=0.5"], "from 1 to 1000"),
        (["a", "--table-days", "0"], "days above 0"),
        (["a", *["--eager"] * 33], "at most 32"),
    ],
)
def test_bad_options_are_refused_without_a_server(options, why):
    done = subprocess.run([str(CLI), "-s", "/nowhere", "endurance", "forecast", *options], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and why in done.stderr, done


def rewritten(profile: Path, path: Path, head_changes: dict | None = None, **changes) -> Path:
    head, table = (json.loads(line) for line in profile.read_text().splitlines())
    path.write_text(json.dumps(head | (head_changes or {})) + "\n" + json.dumps(table | changes) + "\n")
    return path


def test_bad_profiles_are_refused(trained, tmp_path):
    daemon, _, profile = trained
    (broken := tmp_path / "broken").write_text(profile.read_text()[:-100])
    assert "No such file" in fails(daemon, tmp_path / "none")
    assert "broken" in fails(daemon, broken)
    assert "the profile is of another server" in fails(daemon, rewritten(profile, tmp_path / "other", name="others"))
    assert "table 'rows' has other rows, dim" in fails(daemon, rewritten(profile, tmp_path / "dim", dim=2 * DIM))
    assert "table 'rows' has other rows, dim" in fails(daemon, rewritten(profile, tmp_path / "state", optimizer="adam"))
    none = dict.fromkeys(("lookups", "batches", "pooling_factor", "distinct_rows", "batch_rows", "updated_batch_rows"), 0)
    none |= {"cdf_rows": [], "cdf_shares": [], "first": [0] * 16, "reuse": [[]] * 16}
    empty = rewritten(profile, tmp_path / "empty", {"lookups": 0, "batches": 0}, **none)
    assert "the profile has no lookups" in fails(daemon, empty)


def test_a_server_that_did_nothing_has_no_forecast(trained, make_daemon):
    _, _, profile = trained
    idle = with_tier(make_daemon, SMALL)
    with idle.connect(arena_bytes=32 << 20) as server:
        trainer = Trainer(server)
        assert "no row was updated in" in fails(idle, profile)
        trainer.train()
        assert "no row was written to SSD in" in fails(idle, profile)
