# SPDX-License-Identifier: Apache-2.0
"""`embtier reshard`: rows move to more or fewer shards while clients read and write, over cancels, stops and kills."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from daemons import CLI, FREED_MEMORY, Daemon
from stores import MOVE_LIMIT_S, has_lost_server, run_cli, run_move, was_busy

import embtier

ROWS, DIM, SHARDS = 3000, 16, 4
IDS = np.arange(ROWS)
MODES = ("replay", "async", "sync")
KILLS = 20 if os.environ.get("EMBTIER_TEST_LONG") == "1" else 4


def rows_of(version: int) -> np.ndarray:
    return np.repeat((IDS + version * ROWS).astype(np.float32)[:, None], DIM, axis=1)


@pytest.fixture
def daemon(make_daemon) -> Daemon:
    daemon = make_daemon({"data": {"shards_per_directory": SHARDS}})
    daemon.environment |= FREED_MEMORY
    daemon.start()
    with daemon.connect() as server:
        for mode in MODES:
            server.create_table(mode, DIM, durability=mode).set(IDS, rows_of(0))
    return daemon


def shown(daemon: Daemon) -> dict:
    done = run_cli(daemon, "-o", "json", "reshard")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def reshard(daemon: Daemon, shards: int) -> dict:
    """Moves rows. A move that ends because the server has too much else to do is given again."""
    until = time.monotonic() + MOVE_LIMIT_S
    while (done := run_move(daemon, shards)).returncode:
        assert was_busy(done) and "already move" not in done.stderr and time.monotonic() < until, done.stderr
    return json.loads(done.stdout)


def await_true(holds: Callable[[], object]) -> None:
    until = time.monotonic() + MOVE_LIMIT_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def cancel_move(daemon: Daemon) -> bool:
    """False if no move runs, or if it ended by itself before. One that has ended may still be listed."""
    for job in json.loads(run_cli(daemon, "-o", "json", "jobs").stdout):
        if job["kind"] == "reshard" and job["state"] == "running" and (job["total"] == 0 or job["done"] < job["total"]):
            return run_cli(daemon, "jobs", "cancel", str(job["id"])).returncode == 0
    return False


def check_rows(daemon: Daemon, version: int, modes: tuple[str, ...] = MODES) -> None:
    with daemon.connect() as server:
        for mode in modes:
            np.testing.assert_array_equal(server.open_table(mode).get(IDS), rows_of(version))


def write(daemon: Daemon, version: int) -> None:
    with daemon.connect() as server:
        for mode in MODES:
            server.open_table(mode).set(IDS, rows_of(version))


def folders(daemon: Daemon) -> int:
    return len(list(daemon.folder.glob("rows/shard-*")))


class Writer:
    """Writes newer and newer versions of all rows, and reads each back."""

    def __init__(self, daemon: Daemon, mode: str, version: int = 0) -> None:
        self.version, self.failure = version, None  # the version that was acknowledged last
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(daemon, mode))
        self._thread.start()

    def _run(self, daemon: Daemon, mode: str) -> None:
        try:
            with daemon.connect() as server:
                table = server.open_table(mode)
                while not self._ends.is_set():
                    table.set(IDS, rows_of(self.version + 1))
                    self.version += 1
                    np.testing.assert_array_equal(table.get(IDS), rows_of(self.version))
        except BaseException as failure:  # the test's thread reports it
            self.failure = failure

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def end(self) -> int:
        self.stop()
        if self.failure:
            raise self.failure
        return self.version

    def end_killed(self) -> int:
        """Returns the version that was acknowledged before the server died."""
        self.stop()
        if self.failure and not isinstance(self.failure, (embtier.DisconnectedError, ConnectionError)):
            raise self.failure
        return self.version


@contextmanager
def slow_move(daemon: Daemon, shards: int, rate: float = 0.001) -> Iterator[subprocess.Popen]:
    """A move in a process of its own. At the usual rate it takes far longer than the test."""
    command = [str(CLI), "-s", daemon.socket, "reshard", "--shards", str(shards), "--rate", str(rate)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + MOVE_LIMIT_S
        while not (now := shown(daemon))["runs"] or now["total"] == 0:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, now
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_rows_move_to_more_shards_and_to_fewer(daemon: Daemon):
    assert shown(daemon) == {"shards": SHARDS, "runs": False, "wanted": 0, "moved": 0, "total": 0}
    done = reshard(daemon, 7)
    assert done["shards"] == 7 and done["wanted"] == 0 and done["moved"] == done["total"] > 0
    check_rows(daemon, 0)
    write(daemon, 1)
    daemon.restart()
    check_rows(daemon, 1)
    assert folders(daemon) == 7
    assert reshard(daemon, 1)["shards"] == 1
    check_rows(daemon, 1)
    daemon.restart()
    check_rows(daemon, 1)
    assert folders(daemon) == 1


def test_clients_read_and_write_meanwhile(daemon: Daemon):
    writers = [Writer(daemon, mode) for mode in MODES]
    try:
        for shards in (6, 3):
            assert reshard(daemon, shards)["shards"] == shards
    finally:
        for writer in writers:
            writer.stop()
    versions = [writer.end() for writer in writers]
    for mode, version in zip(MODES, versions, strict=True):
        check_rows(daemon, version, (mode,))
    daemon.restart()
    for mode, version in zip(MODES, versions, strict=True):
        check_rows(daemon, version, (mode,))


def test_a_cancelled_move_leaves_rows_where_they_are(daemon: Daemon):
    with slow_move(daemon, 6) as process:
        write(daemon, 1)
        assert "; resharding 0" in run_cli(daemon, "status").stdout
        ssd, figures = (json.loads(run_cli(daemon, "-o", "json", word).stdout)[part] for word, part in (("status", "ssd"), ("stats", "metrics")))
        assert 0 <= ssd["resharded"] < 1 and figures["reshard_running"] == 1 and figures["reshard_buckets"] > 0
        assert figures["store_shards"] == SHARDS and figures["reshard_idle_seconds"] < MOVE_LIMIT_S
        refused = run_cli(daemon, "reshard", "--shards", "5")
        assert refused.returncode == 1 and "buckets already move to 6 shards" in refused.stderr
        assert cancel_move(daemon)
        _, told = process.communicate(timeout=MOVE_LIMIT_S)
        assert process.returncode == 1 and "cancelled" in told, told
    figures = json.loads(run_cli(daemon, "-o", "json", "stats").stdout)["metrics"]
    assert figures["reshard_running"] == figures["reshard_failed"] == figures["reshard_idle_seconds"] == 0
    assert shown(daemon) | {"moved": 0, "total": 0} == {"shards": SHARDS, "runs": False, "wanted": 0, "moved": 0, "total": 0}
    check_rows(daemon, 1)
    daemon.restart()
    check_rows(daemon, 1)
    assert folders(daemon) == SHARDS


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_start_goes_on_with_a_move(daemon: Daemon, how: str):
    with slow_move(daemon, 6) as process:
        process.kill()  # the server goes on without it
        process.wait()
        write(daemon, 1)
        assert shown(daemon)["runs"]
        with daemon.connect() as server:
            server.checkpoint()
        daemon.stop() if how == "stopped" else daemon.kill()
    path = daemon.folder / "rows/reshard.json"
    assert '"shards":6' in path.read_text().replace(" ", "")
    daemon.start()
    check_rows(daemon, 1)
    await_true(lambda: shown(daemon)["runs"])
    assert cancel_move(daemon)
    await_true(lambda: not shown(daemon)["runs"])
    assert reshard(daemon, 6)["shards"] == 6
    check_rows(daemon, 1)


def move_until_killed(daemon: Daemon, shards: int, failures: list[str]) -> None:
    """The start before may go on with another move."""
    with suppress(subprocess.TimeoutExpired):
        done = run_move(daemon, shards)
        if done.returncode and not has_lost_server(done) and not was_busy(done):
            failures.append(done.stderr)


def reshard_to_the_end(daemon: Daemon, shards: int) -> None:
    """First cancels the move that the start goes on with. It may begin only now."""
    until = time.monotonic() + MOVE_LIMIT_S
    cancel_move(daemon)
    while (done := run_move(daemon, shards)).returncode:
        assert was_busy(done) and time.monotonic() < until, done.stderr
        cancel_move(daemon)
        time.sleep(0.1)


def test_kills_at_any_moment_lose_no_acknowledged_row(daemon: Daemon):
    """A client has each version acknowledged before it writes the next. The last one may be there in part."""
    seed = int(os.environ.get("EMBTIER_TEST_SEED") or random.randrange(1 << 32))
    print(f"EMBTIER_TEST_SEED={seed}")
    rng, acknowledged, failures = random.Random(seed), dict.fromkeys(("async", "sync"), 0), []
    with daemon.connect() as server:
        server.checkpoint()
    for _ in range(KILLS):
        writers = {mode: Writer(daemon, mode, version) for mode, version in acknowledged.items()}
        mover = threading.Thread(target=move_until_killed, args=(daemon, rng.randrange(2, 9), failures))
        mover.start()
        time.sleep(rng.random() * 1.5)
        daemon.kill()
        mover.join()
        for writer in writers.values():
            writer.stop()
        assert not failures
        for mode, writer in writers.items():
            acknowledged[mode] = writer.end_killed()
        daemon.start()
        with daemon.connect() as server:
            for mode, version in acknowledged.items():
                got = server.open_table(mode).get(IDS)
                is_old, is_new = ((got == rows_of(v)).all(axis=1) for v in (version, version + 1))
                assert (is_old | is_new).all(), (mode, version, np.flatnonzero(~(is_old | is_new))[:5])
            np.testing.assert_array_equal(server.open_table("replay").get(IDS), rows_of(0))
    reshard_to_the_end(daemon, 5)
    check_rows(daemon, 0, ("replay",))


def test_a_new_store_is_made_of_a_checkpoint_whose_rows_had_moved(daemon: Daemon, make_daemon):
    reshard(daemon, 6)
    write(daemon, 1)
    with daemon.connect() as server:
        server.checkpoint()
    daemon.stop()
    other = make_daemon({"data": {"shards_per_directory": 3}})
    other.start("--restore-from", str(daemon.folder / "rows"))
    check_rows(other, 1)


def test_exports_have_all_rows_whose_buckets_moved(daemon: Daemon, tmp_path):
    reshard(daemon, 6)
    write(daemon, 1)
    with daemon.connect(arena_bytes=16 << 20) as server:
        server.checkpoint()
        for mode in MODES:
            assert server.export_table(mode, tmp_path / mode).rows == ROWS
            server.import_table(tmp_path / mode, f"{mode}-back")
            np.testing.assert_array_equal(server.open_table(f"{mode}-back").get(IDS), rows_of(1))


def test_words_fit_their_numbers(make_daemon):
    daemon = make_daemon({"data": {"shards_per_directory": 1}}, lanes=1)
    daemon.start()
    assert run_cli(daemon, "reshard").stdout.startswith("1 shard has rows")
    rows = run_cli(daemon, "compaction", "status", "--all").stdout
    assert " 0 B " in rows and " 0B " not in rows


def test_a_damaged_order_is_told_and_can_be_given_again(daemon: Daemon):
    daemon.stop()
    order = daemon.folder / "rows/reshard.json"
    order.write_text('{"shards": 6}')
    daemon.start()
    said = "a move of buckets cannot be continued; `embtier reshard --shards N`, or `embtier data add` or `data remove`, begins it again"
    await_true(lambda: daemon.logged(said))
    assert "reshard.json" in daemon.logged(said)[0]["why"]
    refused = run_cli(daemon, "reshard")
    assert refused.returncode == 1 and "reshard.json" in refused.stderr
    check_rows(daemon, 0)
    assert reshard(daemon, 6)["shards"] == 6
    (begun,) = daemon.logged("buckets of rows move")
    assert begun["shards"] == "6" and "adds" not in begun
    assert not order.exists()
    check_rows(daemon, 0)


def test_a_restore_takes_rows_back_to_the_shards_of_then(daemon: Daemon):
    with daemon.connect() as server:
        then = server.checkpoint().id
    reshard(daemon, 6)
    write(daemon, 1)
    with daemon.connect() as server:
        later = server.checkpoint().id
    daemon.stop()
    for checkpoint, version, shards in ((then, 0, SHARDS), (later, 1, 6)):
        daemon.start("--restore", str(checkpoint))
        check_rows(daemon, version)
        assert shown(daemon)["shards"] == shards
        daemon.stop()


def test_a_target_that_stalls_holds_up_neither_clients_nor_the_move(make_daemon):
    """The disk of the new shard writes no table file for a time. Its flush and that of another database have a thread each."""
    daemon = make_daemon({"data": {"shards_per_directory": 1}, "rocksdb": {"memtable_bytes": "2MiB", "background_threads": 16}}, lanes=1)
    trigger = daemon.folder / "slow"
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_PATH="/shard-0001/", EMBTIER_FAULT_END=".sst")
    daemon.start()
    with daemon.connect() as server:
        server.create_table("async", DIM, durability="async").set(IDS, rows_of(0))
    with slow_move(daemon, 2, rate=0.4) as process:
        writer = Writer(daemon, "async")
        try:
            trigger.touch()
            await_true(lambda: daemon.logged("a shard takes no rows; those that move to it are copied later"))
            version = writer.version
            await_true(lambda: writer.version > version + 2 or writer.failure)
            trigger.unlink()
            _, told = process.communicate(timeout=MOVE_LIMIT_S)
        finally:
            trigger.unlink(missing_ok=True)
            writer.stop()
        assert process.returncode == 0, told
    version = writer.end()
    assert not daemon.logged("buckets of a shard could not move")
    check_rows(daemon, version, ("async",))
    daemon.restart()
    check_rows(daemon, version, ("async",))
    assert shown(daemon)["shards"] == 2


def automatic(daemon: Daemon) -> list[int]:
    with daemon.connect() as server:
        return [made.id for made in server.checkpoints() if made.automatic]


def set_interval(daemon: Daemon, seconds: int) -> None:
    done = run_cli(daemon, "knob", "set", "checkpoints.interval_seconds", str(seconds))
    assert done.returncode == 0, done.stderr


def await_automatic(daemon: Daemon, above: int) -> int:
    """Makes changes until the server has made another checkpoint of its own."""

    def is_made() -> bool:
        with daemon.connect() as server:
            server.open_table("replay").set(IDS[:1], rows_of(0)[:1])
        return automatic(daemon)[-1:] > [above]

    await_true(is_made)
    return automatic(daemon)[-1]


def test_checkpoints_of_a_move_do_not_count_among_those_that_are_kept(make_daemon):
    daemon = make_daemon({"data": {"shards_per_directory": SHARDS}, "checkpoints": {"interval_seconds": 1, "keep": 2}})
    daemon.start()
    with daemon.connect() as server:
        server.create_table("replay", DIM).set(IDS, rows_of(0))
    await_automatic(daemon, await_automatic(daemon, 0))
    set_interval(daemon, 0)
    kept = automatic(daemon)
    assert len(kept) == 2
    assert reshard(daemon, 7)["shards"] == 7  # several waves
    later = automatic(daemon)
    assert later[:2] == kept and len(later) == 3 and later[2] > kept[1]
    daemon.kill()
    daemon.start()  # goes back to the one of the last wave
    check_rows(daemon, 0, ("replay",))
    assert reshard(daemon, SHARDS)["shards"] == SHARDS
    newest = automatic(daemon)[-1]
    set_interval(daemon, 1)
    second = await_automatic(daemon, await_automatic(daemon, newest))
    set_interval(daemon, 0)
    assert newest not in automatic(daemon) and automatic(daemon)[-1] >= second
    assert len(automatic(daemon)) == 2


def test_checkpoints_that_are_kept_are_made_beside_those_of_moves(make_daemon):
    """Moves make one of their own several times in each interval, which has all changes. One that is there after two moves is none of those."""
    daemon = make_daemon({"data": {"shards_per_directory": SHARDS}, "checkpoints": {"interval_seconds": 5, "keep": 10}})
    daemon.start()
    with daemon.connect() as server:
        server.create_table("replay", DIM).set(IDS, rows_of(0))
    kept = {*automatic(daemon), await_automatic(daemon, 0)}
    before: set[int] = set()
    shards = SHARDS
    until = time.monotonic() + 2 * MOVE_LIMIT_S
    while not before & (now := set(automatic(daemon)) - kept):
        assert time.monotonic() < until
        before = now
        with daemon.connect() as server:
            server.open_table("replay").set(IDS[:1], rows_of(0)[:1])
        shards = 2 * SHARDS + 1 - shards
        reshard(daemon, shards)


def test_tries_to_switch_make_no_more_checkpoints(daemon: Daemon):
    daemon.stop()
    daemon.configure({"data": {"shards_per_directory": SHARDS}, "checkpoints": {"interval_seconds": 0}, "log": {"level": "debug"}})
    daemon.start()
    spoiled = daemon.folder / "rows/buckets.json.tmp"
    with slow_move(daemon, SHARDS + 1, rate=1) as process:
        await_true(lambda: any("both shards" in line["step"] for line in daemon.logged("buckets move")))
        before = len(daemon.logged("checkpoint made"))
        spoiled.mkdir()  # neither map can be written
        await_true(lambda: len(daemon.logged("the map of buckets cannot be written")) >= 3)
        assert len(daemon.logged("checkpoint made")) == before + 1
        spoiled.rmdir()
        _, told = process.communicate(timeout=MOVE_LIMIT_S)
        assert process.returncode == 0, told
    assert len(daemon.logged("checkpoint made")) == before + SHARDS  # one for each wave
    check_rows(daemon, 0)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--shards", "0"], "allowed: 1 to 1024"),
        (["--shards", "1025"], "allowed: 1 to 1024"),
        (["--shards", "many"], "allowed: 1 to 1024"),
        (["--rate", "5"], "--rate is for --shards only"),
        (["--shards", "5", "--rate", "-1"], "allowed: a number of MiB a second"),
        (["5"], "unexpected argument"),
    ],
)
def test_mistakes_are_told(daemon: Daemon, arguments: list[str], words: str):
    done = run_cli(daemon, "reshard", *arguments)
    assert done.returncode == 2 and words in done.stderr


def test_more_shards_than_there_are_write_buffers_for_are_refused(daemon: Daemon):
    done = run_cli(daemon, "reshard", "--shards", "100")
    assert done.returncode == 1 and "rocksdb.memtable_bytes" in done.stderr and "allowed: at least 25MiB" in done.stderr
    assert json.loads(run_cli(daemon, "-o", "json", "reshard").stdout)["shards"] == SHARDS
