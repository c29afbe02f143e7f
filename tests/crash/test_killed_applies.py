# SPDX-License-Identifier: Apache-2.0
"""`embtier apply` or the server may be killed at any state of an apply, or power may fail. Each table is then whole, in its old or its
new home, or in the cache if it gave way to others. A further run goes on, and the memory of arrays is there again.

A state is held while it is looked at: by another client's move, by a trace that comes through a pipe, by pins, by a client that is
stopped, by a call that waits, or by a rate so low that the test may be late by half a minute. test_killed_at_points.py kills the
server between these states too."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from daemons import LANES, LONG, SANITIZED, Daemon
from power_loss import Disk
from test_apply import (
    DIM, FULL, IDS, LIMIT_S, SLAB, SLABS, SLOWLY, TABLES, apply, await_that, command, homes_of, moves_of, refused, write, write_trace,
)  # fmt: skip

DURABILITIES = dict(zip(TABLES, ("replay", "async", "sync", "replay", "async")))
# Versions of rows: those of the checkpoint, those before the apply, and those that are written in the state of the kill.
SAVED, BEFORE, MEANWHILE = 1, 2, 3
WRITTEN = IDS[::2]

HOT_ROWS = 1000
OLD_HOT, NEW_HOT = range(0, HOT_ROWS), range(500, 500 + HOT_ROWS)
OLD = {"a": "dram", "b": "cache", "c": "pmem", "d": "cache", "e": "cache"}
NEW = {"a": "pmem", "b": "dram", "c": "cache", "d": f"dram:{HOT_ROWS}", "e": "cache"}  # in the order c, a, b, d


# ---- An apply that is held ----


class Run:
    """A server, and an `embtier apply` that is on its way."""

    def __init__(self, daemon: Daemon, folder: Path, state: State, holds: contextlib.ExitStack) -> None:
        self.daemon, self.folder, self.state = daemon, folder, state
        self.generation = 1  # of the plan in force
        self.plan = write(folder, state.new, 2)
        self.old_trace, self.trace = write_trace(folder, {"d": OLD_HOT}), write_trace(folder, {"d": NEW_HOT})
        self.holds = holds  # of the state; they end after the kill
        self.process: subprocess.Popen | None = None

    def begin(self, rate_mib: float = 10_000, trace: Path | None = None, stdout: int = subprocess.PIPE) -> None:
        arguments = ("apply", self.plan, "--rate", str(rate_mib), "--trace", trace or self.trace)
        self.process = subprocess.Popen(command(self.daemon, *arguments), stdout=stdout, stderr=subprocess.PIPE, text=True)

    def end(self) -> str:
        """Waits until the client ends, and returns its message."""
        self.process.send_signal(signal.SIGCONT)
        return self.process.communicate(timeout=LIMIT_S)[1]

    def await_that(self, is_so: Callable[[], object]) -> None:
        await_that(lambda: is_so() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()

    def await_move(self, table: str, part: float, unit: str = "rows") -> None:
        """Waits until more than @part of a table's rows have moved; or with another unit, until the move waits for these."""

        def is_there() -> bool:
            jobs = [job for job in moves_of(self.daemon) if job["what"] == table and job["unit"] == unit]
            return any(job["total"] > 0 and (job["done"] > part * job["total"] or unit != "rows") for job in jobs)

        self.await_that(is_there)

    def pin(self, table: str) -> contextlib.ExitStack:
        """Prefetches rows, so that a move of the table waits."""
        pins = contextlib.ExitStack()
        server = pins.enter_context(self.daemon.connect(timeout=LIMIT_S))
        batch = pins.enter_context(server.prefetch_batch([(server.open_table(table), 100)]))
        batch.ids(0)[:] = IDS[:100]
        batch.prefetch()
        self.holds.callback(pins.close)
        return pins

    def freeze(self) -> None:
        """Stops the client. The server goes on with what the client has asked for."""
        self.process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):  # it has ended
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """Kills the client. The server takes its move back, pins or not."""
        self.process.kill()
        self.end()
        await_that(lambda: all(job["pid"] != self.process.pid for job in moves_of(self.daemon)))

    def go_back(self) -> None:
        """Undoes what the client has done so far, which may be all. The next plans have higher generations."""
        self.kill()
        await_that(lambda: not plan_of(self.daemon)["applying_pid"])
        self.generation += 2
        apply(self.daemon, write(self.folder, self.state.old, self.generation), "--trace", self.old_trace)
        self.plan = write(self.folder, self.state.new, self.generation + 1)


def plan_of(daemon: Daemon) -> dict:
    """The plan in force, and the one that is being applied."""
    shown = subprocess.run(command(daemon, "-o", "json", "stats"), capture_output=True, check=True, timeout=LIMIT_S)
    return json.loads(shown.stdout)["plan"]


# ---- The states ----


def begun(run: Run) -> None:
    """The server knows of the plan, and the client waits until another one's move of a table is over."""
    other = command(run.daemon, "table", "move", "b", "--home", "array", "--tier", "pmem", "--rate", str(SLOWLY))
    mover = subprocess.Popen(other, stderr=subprocess.DEVNULL)
    run.holds.callback(mover.wait, LIMIT_S)
    run.holds.callback(mover.kill)
    await_that(lambda: any(job["done"] > 0 for job in moves_of(run.daemon)) or mover.poll() is not None)
    run.begin()
    run.await_that(lambda: plan_of(run.daemon)["applying_pid"] == run.process.pid)


def counting(run: Run) -> None:
    """The client has half of the trace, and wants the rest."""
    pipe = run.trace.with_suffix(".pipe")
    os.mkfifo(pipe)
    run.begin(trace=pipe)
    ends: list[int] = []

    def is_open() -> bool:
        with contextlib.suppress(OSError):  # ENXIO: nobody reads it yet
            ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    run.await_that(is_open)
    run.holds.callback(os.close, ends[0])
    text = run.trace.read_bytes()
    os.set_blocking(ends[0], True)
    os.write(ends[0], text[: min(len(text) // 2, 30_000)])  # less than a pipe takes
    run.await_that(lambda: struct.unpack("i", fcntl.ioctl(ends[0], termios.FIONREAD, bytes(4)))[0] == 0)


def waits_for_pins(run: Run) -> None:
    run.pin("b")
    run.begin()
    run.await_move("b", 0, "pinned rows")


def moves(table: str, part: float, rate_mib: float) -> Callable[[Run], None]:
    def reach(run: Run) -> None:
        run.begin(rate_mib)
        run.await_move(table, part)

    return reach


def moves_in_sight(run: Run, table: str) -> bool:
    return any(job["what"] == table and job["done"] > 0 for job in moves_of(run.daemon))


def gave_way(table: str, rate_mib: float) -> Callable[[Run], None]:
    """The table has left for the cache, and the client does not know it yet. Its move has the rate, so that it soon ends; or a lower
    one if the client was stopped too late."""

    def is_stopped_in_time(run: Run, rate_mib: float) -> bool:
        homes = homes_of(run.daemon)
        run.begin(rate_mib)
        await_that(lambda: moves_in_sight(run, table) or homes_of(run.daemon) != homes or run.process.poll() is not None)
        run.freeze()
        return moves_in_sight(run, table)

    def reach(run: Run) -> None:
        for part in (1, 4, 16):
            if is_stopped_in_time(run, rate_mib / part):
                break
            run.go_back()
        else:
            pytest.fail("the client was never stopped in time")
        await_that(lambda: not moves_of(run.daemon))

    return reach


def gave_way_and_others_move(run: Run) -> None:
    """A first client leaves the table in the cache, since a low rate for all of its moves would take long."""
    gave_way("a", 0.4)(run)
    run.kill()
    moves("c", 0, SLOWLY)(run)


def all_moved(run: Run) -> None:
    """The client has not said that the plan is in force."""
    pins = run.pin("d")
    run.begin()
    run.await_move("d", 0, "pinned rows")
    run.freeze()
    pins.close()
    await_that(lambda: not moves_of(run.daemon))


def ending(run: Run) -> None:
    """The client has said so, and the server has not begun to write it down."""
    trigger = Path(run.daemon.environment["EMBTIER_FAULT_TRIGGER"])
    trigger.touch()
    run.holds.callback(trigger.unlink)
    run.begin()
    run.await_that(trigger.with_name(f"{trigger.name}.waits").exists)


def ended(run: Run) -> None:
    """The plan is in force, and the client cannot say so, as nobody reads what it writes."""
    reads, writes = os.pipe()
    run.holds.callback(os.close, reads)
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(4096))
    os.set_blocking(writes, True)
    run.begin(stdout=writes)
    os.close(writes)
    run.await_that(lambda: plan_of(run.daemon)["generation"] == 2)


@dataclass(frozen=True)
class State:
    reach: Callable[[Run], None]
    new: dict[str, str]
    old: dict[str, str]
    moved: str = ""  # tables in their new homes
    in_cache: str = ""  # tables that gave way
    is_in_force: bool = False  # the new plan

    @property
    def homes(self) -> dict[str, str]:
        """After a kill. A table on its way goes back."""
        return self.old | {name: self.new[name] for name in self.moved} | dict.fromkeys(self.in_cache, "cache")


def only(table: str) -> dict[str, str]:
    return OLD | {table: NEW[table]}


CUT = OLD | {"d": NEW["d"]}  # by other hot rows than the plan's
MIDDLE = 0.05  # of a table: the rest takes most of a minute
SPLIT_SLOWLY = SLOWLY / 5  # a fifth of the rows is hot
STATES = {
    "begun": State(begun, NEW, OLD),
    "counting": State(counting, NEW, OLD),
    "waits_for_pins": State(waits_for_pins, only("b"), OLD),
    "first_rows": State(moves("a", 0, SLOWLY), only("a"), OLD),
    "middle_to_array": State(moves("b", MIDDLE, SLOWLY), only("b"), OLD),
    "middle_between_tiers": State(moves("a", MIDDLE, SLOWLY), only("a"), OLD),
    "middle_to_cache": State(moves("c", MIDDLE, SLOWLY), only("c"), OLD),
    "middle_to_split": State(moves("d", MIDDLE / 5, SPLIT_SLOWLY), only("d"), OLD),  # cold rows count too, and stay
    "some_done": State(waits_for_pins, NEW, OLD, moved="ca"),
    "gave_way": State(gave_way("a", 0.4), FULL[1], FULL[0], in_cache="a"),
    "gave_way_and_others_move": State(gave_way_and_others_move, FULL[1], FULL[0], in_cache="a"),
    "split_gave_way": State(gave_way("d", 0.1), CUT, CUT, in_cache="d"),
    "all_moved": State(all_moved, NEW, OLD, moved="abcd"),
    "ending": State(ending, NEW, OLD, moved="abcd"),
    "ended": State(ended, NEW, OLD, moved="abcd", is_in_force=True),
}


# ---- The checks ----


def rows_of(table: str, version: int) -> np.ndarray:
    """Each row of each table and version is another."""
    return np.repeat((IDS + 10_000 * version + 100_000 * TABLES.index(table))[:, None], DIM, axis=1)


def write_rows(daemon: Daemon, ids: np.ndarray, version: int) -> None:
    with daemon.connect(timeout=LIMIT_S) as server:
        for name in TABLES:
            server.open_table(name).set(ids, rows_of(name, version)[ids])


def check_rows(daemon: Daemon, victim: str) -> None:
    """After a crash, replay tables have the rows of the checkpoint. A power loss may take rows of async tables too."""
    with daemon.connect(timeout=LIMIT_S) as server:
        for name, durability in DURABILITIES.items():
            newest = rows_of(name, BEFORE)
            newest[WRITTEN] = rows_of(name, MEANWHILE)[WRITTEN]
            allowed = [rows_of(name, SAVED)] if victim != "client" and durability == "replay" else [newest]
            if victim == "power" and durability == "async":
                allowed += [rows_of(name, SAVED), rows_of(name, BEFORE)]
            found = server.open_table(name).get(IDS)
            wrong = ~np.logical_or.reduce([(found == rows).all(1) for rows in allowed])
            assert not wrong.any(), f"{name}: {wrong.sum()} rows, as {np.flatnonzero(wrong)[:9]}, are {found[wrong][:9, 0]}"


def check_memory(daemon: Daemon) -> None:
    """Each array and each split of these tests has one slab, and the others are free."""
    tiers = [home.partition(":")[0] for home in homes_of(daemon).values()]
    free = {tier: (count - tiers.count(tier)) * SLAB for tier, count in SLABS.items()}
    assert daemon.metrics()["array_free_bytes"] == free


def check_further_run(run: Run) -> None:
    """It ends with all tables in their new homes, and another one frees all arrays."""
    new, old_generation = run.state.new, run.generation
    assert apply(run.daemon, run.plan, "--trace", run.trace)["applied"] and homes_of(run.daemon) == new
    check_memory(run.daemon)
    with run.daemon.connect(timeout=LIMIT_S) as server:
        for name in [name for name, home in new.items() if ":" in home]:
            assert server.move_table(name, "split", tier="dram", hot_rows=NEW_HOT) == 0, "others would be refused"
    said = refused(run.daemon, write(run.folder, new, old_generation))
    assert f"the plan has generation {old_generation}, and the one in force has {old_generation + 1}" in said
    apply(run.daemon, write(run.folder, dict.fromkeys(TABLES, "cache"), old_generation + 2))
    check_memory(run.daemon)


# ---- The tests ----


def preload(daemon: Daemon, tmp_path: Path, with_disk: bool) -> Disk | None:
    """Preloads the library that holds a call, and the one for losses of power."""
    disk = Disk(daemon.folder / "rows", daemon.folder / "journal") if with_disk else None
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(tmp_path / "hold"), EMBTIER_FAULT_PATH="/plan.json")
    if disk:
        held = daemon.environment["LD_PRELOAD"]
        daemon.with_fault("unsynced", **disk.environment())
        daemon.environment["LD_PRELOAD"] = f"{held}:{daemon.environment['LD_PRELOAD']}"
    return disk


def make_server(daemon: Daemon, folder: Path, old: dict[str, str]) -> None:
    """Tables in their homes before the apply, with rows that no checkpoint has."""
    dram, pmem = (2 * SLABS[tier] for tier in ("dram", "pmem"))
    tiers = [
        daemon.dram(LANES) | {"bytes": f"{4 * LANES + dram}MiB", "array_bytes": f"{dram}MiB"},
        daemon.pmem(LANES) | {"bytes": f"{2 * LANES + pmem}MiB", "array_bytes": f"{pmem}MiB"},
    ]
    daemon.configure({"cache": {"tiers": tiers}, "checkpoints": {"interval_seconds": 0}})
    daemon.start()
    with daemon.connect() as server:
        for name, durability in DURABILITIES.items():
            server.create_table(name, DIM, len(IDS), optimizer="sgd", durability=durability)
        write_rows(daemon, IDS, SAVED)
        apply(daemon, write(folder, old, 1), "--trace", write_trace(folder, {"d": OLD_HOT}))
        assert homes_of(daemon) == old
        server.checkpoint()
        write_rows(daemon, IDS, BEFORE)


def kill_client(run: Run) -> None:
    """The server then lets others apply a plan."""
    run.kill()
    run.holds.close()
    await_that(lambda: not moves_of(run.daemon) and not plan_of(run.daemon)["applying_pid"])


def kill_server(run: Run, disk: Disk | None, rng: random.Random) -> None:
    """The client tells of it. With a @disk, power fails too."""
    run.daemon.kill()
    run.holds.close()
    message = run.end()
    assert run.process.returncode != 0 and (message.startswith("embtier: ") or run.process.returncode < 0), message
    if disk:
        print(disk.lose_power(rng))
    run.daemon.start()


# The short form kills one of the two in the middle of each kind of move, and power fails in some states only.
ONLY_LONG = {("middle_to_array", "server"), ("middle_to_cache", "server")}
ONLY_LONG |= {("middle_between_tiers", "client"), ("middle_to_split", "client")}
ONLY_LONG |= {(state, "power") for state in STATES if state not in ("some_done", "split_gave_way", "all_moved")}
CASES = [(state, victim) for state in STATES for victim in ("client", "server", "power") if LONG or (state, victim) not in ONLY_LONG]
if SANITIZED:
    CASES = CASES[::3]


@pytest.mark.parametrize(("state", "victim"), CASES, ids=["-".join(case) for case in CASES])
def test_an_apply_that_is_killed_leaves_whole_tables_and_can_go_on(make_daemon, tmp_path, rng, state, victim):
    wanted, daemon = STATES[state], make_daemon()
    disk = preload(daemon, tmp_path, victim == "power")
    make_server(daemon, tmp_path, wanted.old)
    with contextlib.ExitStack() as holds:
        run = Run(daemon, tmp_path, wanted, holds)
        try:
            wanted.reach(run)
            write_rows(daemon, WRITTEN, MEANWHILE)
            if victim == "client":
                kill_client(run)
            else:
                kill_server(run, disk, rng)
        finally:
            if run.process:
                run.process.kill()
    is_in_force = wanted.is_in_force or (state, victim) == ("ending", "client")  # the server goes on
    assert homes_of(daemon) == wanted.homes and plan_of(daemon)["generation"] == run.generation + is_in_force
    check_rows(daemon, victim)
    check_memory(daemon)
    check_further_run(run)
    check_rows(daemon, victim)
