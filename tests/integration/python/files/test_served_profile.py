# SPDX-License-Identifier: Apache-2.0
"""The profile of the running server: its figures are those of the lookups and updates that clients made, and mistakes are refused
with the reason."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import Daemon
from transfers import CLI, SANITIZED

import embtier

CLIENTS, STEPS, ROWS = 3, 40, 2000


def shown(path: Path, *arguments: str) -> dict:
    return json.loads(done("-o", "json", "profile", "show", path, *arguments))


def embtier_of(*arguments: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([str(CLI), *map(str, arguments)], capture_output=True, text=True, timeout=120)


def done(*arguments: str | Path) -> str:
    result = embtier_of(*arguments)
    assert result.returncode == 0 and result.stderr == "", result
    return result.stdout


def refused(code: int, *arguments: str | Path) -> str:
    result = embtier_of(*arguments)
    assert result.returncode == code and result.stdout == "", result
    return result.stderr


class Counted:
    """Lookups and updates of a table by one client."""

    def __init__(self) -> None:
        self.lookups: Counter[int] = Counter()
        self.bags = self.batches = self.batch_rows = self.updated_rows = 0

    def looked_up(self, ids: np.ndarray, bags: int) -> None:
        self.lookups.update(ids.tolist())
        self.bags += bags
        self.batches += 1
        self.batch_rows += len(set(ids.tolist()))

    def updated(self, ids: np.ndarray) -> None:
        self.updated_rows += len(set(ids.tolist()))


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.minimum(rng.zipf(1.2, count), ROWS) - 1


def work(daemon: Daemon, seed: int, counted: dict[str, Counted]) -> None:
    """Batches of plain lookups, pooled lookups with a push of bags, pushes of rows, and prefetches, of two tables."""
    rng = np.random.default_rng(seed)
    with daemon.connect() as server:
        one, two = server.open_table("one"), server.open_table("two")
        gets, bags = server.batch([(one, 50), (two, 30)]), server.bag_batch([embtier.Bags(one, count=60, bag_count=12)])
        rows, ahead = server.push_batch([(two, 20)]), server.prefetch_batch([(two, 5)])
        for step in range(1, STEPS + 1):
            for part, (name, count) in enumerate((("one", 50), ("two", 30))):
                gets.ids(part)[:] = draw(rng, count)
                counted[name].looked_up(gets.ids(part), count)
            gets.get()
            bags.ids(0)[:] = draw(rng, 60)
            bags.offsets(0)[:] = np.arange(0, 61, 5)
            bags.lookup(ticket=True)
            counted["one"].looked_up(bags.ids(0), 12)
            bags.gradients(0)[:] = 1
            bags.push(0.1, step)
            counted["one"].updated(bags.ids(0))
            rows.ids(0)[:] = draw(rng, 20)
            rows.gradients(0)[:] = 1
            rows.push(0.1, step)
            counted["two"].updated(rows.ids(0))
            ahead.ids(0)[:] = draw(rng, 5)
            ahead.prefetch().release()


def make_tables(server: embtier.Server) -> None:
    for name in ("one", "two"):
        server.create_table(name, 8, ROWS, optimizer="sgd")


@pytest.mark.parametrize("client_count", [1, CLIENTS])
def test_figures_are_those_of_the_lookups(own_daemon: Daemon, tmp_path: Path, client_count: int) -> None:
    counts = [{"one": Counted(), "two": Counted()} for _ in range(client_count)]
    with own_daemon.connect() as server:
        make_tables(server)
        state = server.start_profile()
        assert state.runs and state.lookups == 0 and state.memory_bytes > 0
        clients = [threading.Thread(target=work, args=(own_daemon, seed, counts[seed])) for seed in range(client_count)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        server.save_profile(tmp_path / "running")
        metrics = server.status()["metrics"]
        state = server.stop_profile()
        server.save_profile(tmp_path / "stopped")
        assert server.status()["metrics"]["profile_running"] == 0
    assert not state.runs and state.exact and state.lost_samples == 0 and state.tables == 2
    assert metrics["profile_running"] == 1 and metrics["profile_lookups"] == state.lookups
    assert metrics["profile_samples"] == state.samples > 0 and metrics["profile_bytes"] == state.memory_bytes
    assert shown(tmp_path / "running")["tables"] == shown(tmp_path / "stopped")["tables"]
    profile = shown(tmp_path / "stopped")
    assert profile["lookups"] == state.lookups and profile["batches"] == 2 * STEPS * client_count
    for table in profile["tables"]:
        each = [count[table["name"]] for count in counts]
        lookups = sum((one.lookups for one in each), Counter())
        batches = sum(one.batches for one in each)
        batch_rows = sum(one.batch_rows for one in each)
        hottest = sorted(lookups.values(), reverse=True)
        assert (table["rows"], table["dim"], table["dtype"]) == (ROWS, 8, "f32")
        assert table["lookups"] == lookups.total() and table["batches"] == batches
        assert table["distinct_rows"] == len(lookups) and table["sampling_rate"] == 1
        assert table["pooling_factor"] == pytest.approx(lookups.total() / sum(one.bags for one in each))
        # A row counts again if another client's batch came in between. How often that happens depends on the machine.
        times = table["batch_rows"] / (batch_rows / batches)
        if client_count == 1:
            assert times == pytest.approx(1, rel=1e-6)
        assert batch_rows * (1 - 1e-6) <= table["batch_rows"] * batches <= lookups.total() * (1 + 1e-6)
        assert table["updated_share"] * times == pytest.approx(sum(one.updated_rows for one in each) / batch_rows, rel=1e-6)
        for rows, share in table["cdf"]:
            assert share == pytest.approx(sum(hottest[: round(rows)]) / lookups.total(), rel=1e-6)


def test_predicts_the_hits_of_a_cache(own_daemon: Daemon, tmp_path: Path) -> None:
    """A loop over more rows than a cache has never hits, and over fewer always does after the first round."""
    with own_daemon.connect() as server:
        table = server.create_table("loop", 8, 10_000)
        server.start_profile()
        for _ in range(15):  # even if the profiling thread never runs meanwhile, the ring has room for all samples
            for first in range(0, 1000, 100):
                table.get(np.arange(first, first + 100))
        server.stop_profile()
        server.save_profile(tmp_path / "loop")
    assert shown(tmp_path / "loop", "--cache", str(900 * 32))["hit_rates"][0] == pytest.approx(0, abs=0.02)
    assert shown(tmp_path / "loop", "--cache", str(1200 * 32))["hit_rates"][0] == pytest.approx(14 / 15, abs=0.02)


def test_tables_come_and_go(own_daemon: Daemon, tmp_path: Path) -> None:
    with own_daemon.connect() as server:
        for name in ("stays", "goes"):
            server.create_table(name, 4, 100)
        server.start_profile()
        for name in ("stays", "goes"):
            server.open_table(name).get(np.arange(10))
        for name in ("stays", "goes"):
            server.drop_table(name)
        server.create_table("stays", 4, 50).get(np.arange(7))
        server.create_table("new", 2, 10).get(np.arange(3))
        server.save_profile(tmp_path / "saved")
        server.stop_profile()
    tables = {table["name"]: (table["rows"], table["lookups"]) for table in shown(tmp_path / "saved")["tables"]}
    assert tables == {"stays": (50, 7), "goes": (100, 10), "new": (10, 3)}


def test_mistakes(own_daemon: Daemon, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, 100)
        with pytest.raises(embtier.NotFoundError, match="there is no profile: `embtier profile start`"):
            server.save_profile(saved)
        with pytest.raises(embtier.NotFoundError, match="no profile runs"):
            server.stop_profile()
        with pytest.raises(embtier.TooLargeError, match=r"a profile of 9 tables on \d lanes? needs at least .*, not 1B"):
            server.start_profile(1)
        with pytest.raises(ValueError, match="memory_bytes must be from 0"):
            server.start_profile(-1)
        used = server.status()["metrics"]["transfer_bytes"]
        state = server.start_profile(2**60)  # more than is of use
        assert server.status()["metrics"]["transfer_bytes"] == used + state.memory_bytes < 2**28
        with pytest.raises(embtier.BusyError, match="already makes a profile: stop it first"):
            server.start_profile()
        with pytest.raises(embtier.NotFoundError, match="no table was looked up"):
            server.save_profile(saved)
        server.stop_profile()
        with pytest.raises(embtier.NotFoundError, match="the last profile has no results: no table was looked up since"):
            server.save_profile(saved)
        server.start_profile(2**60)
        with pytest.raises(embtier.NotFoundError, match="none: No such file or directory"):
            server.save_profile(tmp_path / "none" / "none")
        assert not saved.exists()
        table.get([1])
        server.save_profile(saved)
        with pytest.raises(embtier.ExistsError, match="saved already exists"):
            server.save_profile(saved)
        server.stop_profile()
        assert server.status()["metrics"]["transfer_bytes"] == used
        with pytest.raises(embtier.NotFoundError, match="no profile runs"):
            server.stop_profile()
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server, pytest.raises(embtier.NotFoundError, match="there is no profile"):
        server.save_profile(tmp_path / "other")


@pytest.mark.skipif(SANITIZED, reason="a sanitizer does not live with a limit of the size of files")
def test_a_killed_save_leaves_its_name_free(own_daemon: Daemon, tmp_path: Path) -> None:
    """The kernel kills the command when it has written some bytes."""
    command = [str(CLI), "--socket", str(own_daemon.socket), "--timeout", "60", "profile", "save", str(tmp_path / "saved")]
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, 1000)
        server.start_profile()
        table.get(np.arange(1000))
    killed = subprocess.run(["prlimit", "--fsize=100", "--core=0", *command], capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGXFSZ, killed
    (partial,) = tmp_path.glob("saved*")
    assert re.fullmatch(r"saved\.\d+-[0-9a-f]{8}\.partial", partial.name)
    assert subprocess.run(command, timeout=120).returncode == 0
    assert shown(tmp_path / "saved")["lookups"] == 1000


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_recording_that_is_interrupted_ends_the_profile(own_daemon: Daemon, tmp_path: Path, end: signal.Signals) -> None:
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, 100)
        recording = begin_recording(
            own_daemon, server, "--timeout", "60", "profile", "record", "--seconds", "600", "--save", tmp_path / "saved"
        )
        assert recording.poll() is None, recording.communicate()
        table.get(np.arange(10))
        recording.send_signal(end)
        out, error = recording.communicate(timeout=60)
        assert recording.returncode == 128 + end and out == "" and "interrupted; the profile has ended, and was not saved" in error
        assert server.status()["metrics"]["profile_running"] == 0
        assert not list(tmp_path.glob("saved*"))
        server.save_profile(tmp_path / "saved")  # as the message says
    assert shown(tmp_path / "saved")["lookups"] == 10


# Seconds of which some are enough, however late this process and the server are.
LENGTHS_S = (1, 4, 16, 64)


def block_alarm() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])


def begin_recording(daemon: Daemon, server: embtier.Server, *arguments: str | Path) -> subprocess.Popen:
    """Returns when the server profiles, or the recording has ended. Its alarm, which ends it 10 s after a signal, never comes."""
    command = [str(CLI), "--socket", str(daemon.socket), *map(str, arguments)]
    recording = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=block_alarm)
    while server.status()["metrics"]["profile_running"] == 0 and recording.poll() is None:
        time.sleep(0.01)
    return recording


def test_a_second_signal_ends_a_recording_of_a_silent_server(own_daemon: Daemon, tmp_path: Path) -> None:
    with own_daemon.connect() as server:
        recording = begin_recording(
            own_daemon, server, "--timeout", "0", "profile", "record", "--seconds", "600", "--save", tmp_path / "saved"
        )
        assert recording.poll() is None, recording.communicate()
        own_daemon.freeze()
        try:
            for _ in range(240):  # those within a second of the first are ignored
                recording.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, error = recording.communicate(timeout=0.25)
                    break
            else:
                pytest.fail("signals did not end the recording")
        finally:
            own_daemon.signal(signal.SIGCONT)
    assert recording.returncode == 128 + signal.SIGTERM and out == "", error
    assert "the server did not answer, and may go on profiling: `embtier profile stop` ends that" in error
    assert not list(tmp_path.glob("saved*"))


def test_two_signals_at_once_count_as_one(own_daemon: Daemon, tmp_path: Path) -> None:
    with own_daemon.connect() as server:
        recording = begin_recording(
            own_daemon, server, "--timeout", "60", "profile", "record", "--seconds", "600", "--save", tmp_path / "saved"
        )
        recording.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, recording.pid, os.WSTOPPED)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):  # the lower number comes first
            recording.send_signal(number)
        out, error = recording.communicate(timeout=60)
        assert recording.returncode == 128 + signal.SIGINT and out == "", error
        assert "interrupted; the profile has ended, and was not saved" in error
        assert server.status()["metrics"]["profile_running"] == 0


def test_a_signal_and_a_timeout_tell_of_both(own_daemon: Daemon, tmp_path: Path) -> None:
    with own_daemon.connect() as server:
        for timeout_s in LENGTHS_S:  # the server may be late when it starts the profile
            recording = begin_recording(
                own_daemon, server, "--timeout", str(timeout_s), "profile", "record", "--seconds", "600", "--save", tmp_path / "saved"
            )
            if recording.poll() is None:
                break
            with contextlib.suppress(embtier.NotFoundError):
                server.stop_profile()
        own_daemon.freeze()
        try:
            recording.send_signal(signal.SIGINT)
            out, error = recording.communicate(timeout=60 + timeout_s)
        finally:
            own_daemon.signal(signal.SIGCONT)
    assert recording.returncode == 128 + signal.SIGINT and out == "", error
    first, last = error.splitlines()[-2:]
    assert f"no answer from the server within {timeout_s}000 ms" in first
    assert last == "embtier: interrupted; the server may go on profiling: `embtier profile stop` ends that"


def end_late(daemon: Daemon, server: embtier.Server, seconds: int, saved: Path) -> tuple[int, str, str] | None:
    """Sends a recording a signal while the server is silent at its end. None: the server fell silent, or answered, too late."""
    began = time.monotonic()
    recording = begin_recording(daemon, server, "--timeout", "0", "profile", "record", "--seconds", str(seconds), "--save", saved)
    daemon.freeze()
    try:
        is_silent = time.monotonic() - began < seconds
        time.sleep(seconds + 0.5 if is_silent else 0)
        recording.send_signal(signal.SIGHUP)
    finally:
        daemon.signal(signal.SIGCONT)
    out, error = recording.communicate(timeout=60)
    return (recording.returncode, out, error) if is_silent and "the server did not answer" not in error else None


def test_a_signal_at_the_end_of_a_recording_is_not_lost(own_daemon: Daemon, tmp_path: Path) -> None:
    """It comes while the command waits for the server to end the profile. Should it come before, the result is the same."""
    with own_daemon.connect() as server:
        for seconds in LENGTHS_S:
            saved = tmp_path / f"saved{seconds}"
            ended = end_late(own_daemon, server, seconds, saved)
            if ended:
                break
            with contextlib.suppress(embtier.NotFoundError):
                server.stop_profile()
    assert ended, "all signals came too late"
    returncode, out, error = ended
    assert returncode == 128 + signal.SIGHUP and out == "", error
    assert "interrupted; the profile has ended, and was not saved" in error
    assert not list(tmp_path.glob(f"{saved.name}*"))


def record_and_ignore(daemon: Daemon, server: embtier.Server, seconds: int, saved: Path) -> bool:
    """Sends SIGHUP to a recording that ignores it. False: it came too late."""
    command = [str(CLI), "--socket", str(daemon.socket), "--timeout", "60", "profile", "record"]
    command += ["--seconds", str(seconds), "--save", str(saved)]
    recording = subprocess.Popen(["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command], stdout=subprocess.DEVNULL)
    is_told = False
    while recording.poll() is None:
        if not is_told and server.status()["metrics"]["profile_running"]:
            recording.send_signal(signal.SIGHUP)
            server.open_table("t").get(np.arange(10))
            is_told = server.status()["metrics"]["profile_running"] == 1
        time.sleep(0.01)
    assert recording.returncode in ((0,) if is_told else (0, 1)), "1: there were no lookups to save"
    return is_told


def test_a_recording_whose_caller_ignores_a_signal_goes_on(own_daemon: Daemon, tmp_path: Path) -> None:
    """As with nohup."""
    with own_daemon.connect() as server:
        server.create_table("t", 4, 100)
        lengths = (seconds for seconds in LENGTHS_S if record_and_ignore(own_daemon, server, seconds, tmp_path / f"saved{seconds}"))
        seconds = next(lengths, None)
    assert seconds, "all signals came too late"
    assert shown(tmp_path / f"saved{seconds}")["lookups"] > 0


def test_a_plan_takes_the_optimizers_of_the_servers_tables(own_daemon: Daemon, tmp_path: Path) -> None:
    """Its state is part of a row. An option overrides it, and a profile of a trace has none."""
    saved, machine, trace = tmp_path / "saved", tmp_path / "machine.yaml", tmp_path / "run.trace"
    optimizers = {"plain": "none", "adam": "adam", "sgd": "sgd"}
    machine.write_text(
        "tiers: [{name: dram, bytes: 1GiB, bandwidth_bytes_per_s: 10GB}]\nssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 1GB}\n"
    )

    def planned(profile: Path, *options: str) -> dict[str, str]:
        path = tmp_path / f"{len(list(tmp_path.glob('*.plan')))}.plan"
        done("plan", "make", path, "--profile", profile, "--machine", machine, "--solver", "none", *options)
        return {table["name"]: table["optimizer"] for table in json.loads(done("-o", "json", "plan", "show", path))["tables"]}

    with own_daemon.connect() as server:
        server.start_profile()
        for name, optimizer in optimizers.items():
            server.create_table(name, 8, 1000, optimizer=optimizer).get(np.arange(1000))
        server.save_profile(saved)
    assert planned(saved) == optimizers
    assert planned(saved, "--optimizer", "sgd,adam=adagrad") == {"plain": "sgd", "adam": "adagrad", "sgd": "sgd"}
    sizes = [shown(saved, "--cache", "100KiB", *options)["hit_rates"][0] for options in ((), ("--optimizer", "none"))]
    assert sizes[0] <= sizes[1], "rows with state are larger"
    with embtier.TraceWriter(trace, [embtier.TraceTable(name, 8, rows=1000) for name in optimizers]) as writer:
        for name in optimizers:
            writer.add(name, np.arange(1000))
        writer.next_batch()
    done("profile", "show", trace, "--save", tmp_path / "traced")
    assert set(planned(tmp_path / "traced").values()) == {"none"}
    said = refused(1, "plan", "make", tmp_path / "no.plan", "--profile", trace, "--machine", machine)
    assert f"{trace}:1: this is a trace: `embtier profile show TRACE --save FILE` makes a profile of it" in said
    text = saved.read_text()
    saved.write_text(text.replace('"optimizer":"adam"', '"optimizer":"adem"'))
    assert "optimizer: not the name of an optimizer" in refused(1, "profile", "show", saved)


def test_a_server_stops_while_it_profiles(own_daemon: Daemon) -> None:
    with own_daemon.connect() as server:
        table = server.create_table("t", 4, 1000)
        server.start_profile()
        table.get(np.arange(1000))
    own_daemon.stop()


def test_command_line(own_daemon: Daemon, tmp_path: Path) -> None:
    socket = ("--socket", own_daemon.socket, "--timeout", "60")
    stop, looked_up = threading.Event(), threading.Semaphore(0)

    def look_up() -> None:
        with own_daemon.connect() as client:
            table = client.open_table("t")
            while not stop.is_set():
                table.get(np.arange(100))
                looked_up.release()
                time.sleep(0.002)

    def await_lookup() -> None:
        """Returns when a lookup that began after this call has ended."""
        while looked_up.acquire(blocking=False):
            pass
        for _ in range(2):
            assert looked_up.acquire(timeout=60)

    def recorded() -> str:
        for seconds in (0.5, *LENGTHS_S[1:]):
            result = embtier_of(*socket, "profile", "record", "--seconds", str(seconds), "--save", tmp_path / "a")
            if result.returncode == 0:
                break
            assert "no table was looked up" in result.stderr, result  # the thread has slept through that time
        assert result.returncode == 0 and result.stderr == "", result
        return result.stdout

    with own_daemon.connect() as server:
        server.create_table("t", 4, 1000)
    thread = threading.Thread(target=look_up)
    thread.start()
    try:
        await_lookup()
        text = recorded()
        assert re.fullmatch(rf"[\d.,kM]+ lookups of 1 tables? in .*, .* samples.*\nsaved: {tmp_path}/a\n", text), text
        # A profiling thread that gets no processor for long lets the sample be thinned.
        assert shown(tmp_path / "a")["tables"][0]["distinct_rows"] == pytest.approx(100, rel=0.5)
        assert re.fullmatch(r"profiling, with \S+ of memory\n", done(*socket, "profile", "start", "--memory", "40MiB"))
        assert "already makes a profile" in refused(1, *socket, "profile", "start")
        await_lookup()
        done(*socket, "profile", "save", tmp_path / "b")
        state = json.loads(done("-o", "json", *socket, "profile", "stop", "--save", tmp_path / "c"))
        assert state["state"] == "stopped" and state["lookups"] >= 100 and state["saved"] == str(tmp_path / "c")
        assert state["lost_samples"] == 0 and state["tables"] == 1 and 0 < state["memory_bytes"] <= 40 << 20
        assert shown(tmp_path / "c")["tables"][0]["name"] == "t"
        lost = refused(1, *socket, "profile", "record", "--seconds", "3600", "--save", tmp_path / "none" / "c")
        assert "none/c cannot be made: No such file or directory" in lost
        assert refused(1, *socket, "profile", "record", "--seconds", "1", "--save", tmp_path / "c") == (
            f"embtier: {tmp_path}/c already exists\n"
        )
    finally:
        stop.set()
        thread.join()
    assert "no profile runs" in refused(1, *socket, "profile", "stop")
    for arguments, message in (
        (("start", "--memory", "0"), "--memory 0: allowed: a size above 0 such as 32MiB"),
        (("start", "--memory", "many"), "--memory many: allowed"),
        (("start", "more"), "unexpected argument 'more'"),
        (("record", "--save", "x"), "--seconds is missing"),
        (("record", "--seconds", "1"), "--save is missing"),
        (("record", "--seconds", "0", "--save", "x"), "--seconds 0: allowed: seconds, 0.1 to 86400"),
        (("save",), "an argument is missing: FILE"),
    ):
        assert message in refused(2, *socket, "profile", *arguments)
