# SPDX-License-Identifier: Apache-2.0
"""Messages and figures name the real limits, and ages that are possible."""

from __future__ import annotations

import json
import re
import subprocess
import time

import embtier
import numpy as np
import pytest
from daemons import CLI, SANITIZED
from stores import run_cli, with_tables, write_all

DAY_S = 86400
AGE = "checkpoint_newest_seconds"


def test_a_batch_that_lanes_request_bytes_has_no_room_for_is_told_what_fits(make_daemon):
    daemon = make_daemon({"lanes": {"request_bytes": "16MiB"}})
    daemon.start()
    with daemon.connect(arena_bytes=32 << 20) as server:
        table = server.create_table("t", 1)
        for count in (1_000_000, 700_000):
            with server.batch([(table, count)]) as batch, pytest.raises(embtier.TooLargeError) as caught:
                batch.ids(0)[:] = np.arange(count)
                batch.get()
            said = str(caught.value)
            assert f"batch of {count} ids" in said, said
            assert f"raise the server's lanes.request_bytes in {daemon.folder.resolve()}/embtierd.yaml" in said, said
            fitting = int(re.search(r"at most (\d+) ids", said)[1])
            times = float(re.search(r"to ([\d.e+]+) times", said)[1])
            assert 1000 < fitting < count
        with server.batch([(table, fitting)]) as batch:  # the number must be true
            batch.ids(0)[:] = np.arange(fitting)
            batch.get()
        with server.batch([(table, fitting + 1)]) as batch, pytest.raises(embtier.TooLargeError):
            batch.ids(0)[:] = np.arange(fitting + 1)
            batch.get()
    daemon.restart({"lanes": {"request_bytes": f"{int(16 * times) + 1}MiB"}})  # rounded up to whole MiB
    with daemon.connect(arena_bytes=32 << 20) as server, server.batch([(server.open_table("t"), 700_000)]) as batch:
        batch.ids(0)[:] = np.arange(700_000)
        batch.get()


def test_a_batch_over_max_batch_rows_is_told_that(make_daemon):
    daemon = make_daemon({"socket": {"max_batch_rows": 1000}})
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("t", 1)
        says = re.escape(f"1000 (socket.max_batch_rows in {daemon.folder.resolve()}/embtierd.yaml)")
        with pytest.raises(embtier.TooLargeError, match=says), server.batch([(table, 1001)]):
            pass


@pytest.mark.parametrize("name", ["x" * 200, "a\nb", "a\u202eb"], ids=["long", "of two lines", "turned round"])
def test_a_configuration_that_cannot_be_named_is_not(make_daemon, name, tmp_path):
    """It must not keep a client from connecting either."""
    folder = tmp_path / name / name
    folder.mkdir(parents=True)
    daemon = make_daemon({"socket": {"max_batch_rows": 1000}})
    other = folder / "embtierd.yaml"
    other.write_bytes((daemon.folder / "embtierd.yaml").read_bytes())
    daemon.launch("--config", str(other))
    daemon.await_ready()
    with daemon.connect() as server:
        table = server.create_table("t", 1)
        with pytest.raises(embtier.TooLargeError, match=r"1000 \(socket\.max_batch_rows\)"), server.batch([(table, 1001)]):
            pass


def age_of(daemon) -> float | None:
    """The age, which must be the same in C and in JSON."""
    as_json = json.loads(run_cli(daemon, "-o", "json", "stats").stdout)["metrics"].get(AGE)
    age = daemon.metrics().get(AGE)
    assert (age is None) == (as_json is None)
    return age


def test_the_newest_checkpoint_s_age_is_one(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    began = time.monotonic()
    with with_tables(daemon) as server:
        server.checkpoint()
        assert 0 <= age_of(daemon) <= time.monotonic() - began
        made = time.monotonic()
        time.sleep(0.1)
        least = time.monotonic() - made
        assert age_of(daemon) >= least  # the age grows
    daemon.stop()
    daemon.start()
    assert 0 <= age_of(daemon) <= time.monotonic() - began + 2


def test_where_there_is_no_checkpoint_its_age_is_no_figure(make_daemon):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    daemon.start()  # with nothing to checkpoint
    assert age_of(daemon) is None
    assert AGE not in run_cli(daemon, "stats").stdout


@pytest.mark.parametrize("shift", [-400 * DAY_S, 400 * DAY_S])
def test_a_clock_that_is_put_back_or_forward_makes_no_negative_and_no_huge_age(make_daemon, tmp_path, shift):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    control = tmp_path / "seconds"
    control.write_text("0")
    daemon.with_fault("other_time", EMBTIER_FAULT_CONTROL=str(control))
    began = time.monotonic()
    with with_tables(daemon) as server:
        write_all(server, 1)
        made = server.checkpoint(step=1)
        control.write_text(str(shift))
        # The shift of the clock must not change durations since the start.
        assert 0 <= age_of(daemon) <= time.monotonic() - began
        jobs = json.loads(run_cli(daemon, "-o", "json", "jobs").stdout)
        assert all(0 <= job["age_ms"] <= (time.monotonic() - began) * 1e3 for job in jobs)
        status = json.loads(run_cli(daemon, "-o", "json", "status").stdout)
        assert 0 <= status["uptime_ms"] <= (time.monotonic() - began) * 1e3
        assert 0 <= server.checkpoint(step=2).spent <= time.monotonic() - began
        control.write_text("0")
        made = server.checkpoint(step=3)
        write_all(server, 2)
    control.write_text(str(shift))
    daemon.kill()
    daemon.start()
    (said,) = daemon.logged("did not end cleanly: replay tables are as they were")
    assert (said["checkpoint"], int(said["made_seconds_ago"]) >= 0) == (str(made.id), True)
    wanted = max(shift, 0)
    assert wanted <= int(said["made_seconds_ago"]) <= wanted + time.monotonic() - began + 2
    assert wanted <= age_of(daemon) <= wanted + time.monotonic() - began + 2
    for key, value in daemon.metrics().items():
        for number in value.values() if isinstance(value, dict) else [value]:
            assert not isinstance(number, float | int) or 0 <= number < 2**53, (key, value)


# ---- Standard input of get and set ----


def run_rows(daemon, command: str, text: bytes) -> subprocess.CompletedProcess:
    """Runs the command with little memory, since it must not keep endless input. A sanitizer needs more."""
    limit = [] if SANITIZED else ["prlimit", "--as=268435456"]
    return subprocess.run(
        [*limit, CLI, "--timeout", "60", "--socket", daemon.socket, command, "t", "-"], input=text, capture_output=True, timeout=300
    )


def test_words_that_have_no_end_are_refused(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 2, 100)
    for command in ("get", "set"):
        done = run_rows(own_daemon, command, b"1" * (32 << 20))
        assert done.returncode == 2 and b"a word of more than 16777216 bytes" in done.stderr
        done = run_rows(own_daemon, command, bytes(64 << 20))
        assert done.returncode == 2 and b"standard input has a zero byte" in done.stderr


def test_what_is_behind_a_zero_byte_is_not_left_out(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 2, 100)
    done = run_rows(own_daemon, "set", b"1=1,1\n2=2,2\0 3=3,3\n")
    assert done.returncode == 2 and b"standard input has a zero byte" in done.stderr
    done = run_rows(own_daemon, "get", b"1 2")
    assert done.returncode == 0 and done.stdout == b"1=0,0\n2=0,0\n", "nothing was set"


def test_words_may_be_separated_as_one_likes(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 2, 100)
    assert run_rows(own_daemon, "set", b"\n\n 1=1,1\t2=2,2\r\n3=3,3").returncode == 0
    assert run_rows(own_daemon, "get", b" 1\r\n\n2 3 ").stdout == b"1=1,1\n2=2,2\n3=3,3\n"
    assert run_rows(own_daemon, "get", b" \n ").stdout == b""
