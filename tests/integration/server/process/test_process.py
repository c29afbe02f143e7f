# SPDX-License-Identifier: Apache-2.0
"""The server survives all that a terminal, a log rotation, a container's log driver and a shell do to a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
from daemons import CLI, EMBTIERD, STOP_LIMIT_S, log_fields

STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}
# A process with such a fault cannot go on, and nothing can be done about the system's own signals.
FAULTS = {
    signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS,
}  # fmt: skip
SYSTEMS = FAULTS | {signal.SIGKILL, signal.SIGSTOP}
HARMLESS = [number for number in range(1, 65) if number not in SYSTEMS | STOPS]


def must_serve(daemon, table: str) -> None:
    with daemon.connect() as server:
        table = server.open_table(table)
        assert (table.get(np.arange(100)) == 7).all()


def test_no_signal_but_those_of_faults_ends_the_server_otherwise_than_cleanly(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("rows", 4, durability="replay").set(np.arange(100), np.full((100, 4), 7.0))
    for number in HARMLESS:
        for _ in range(3):
            os.kill(own_daemon.pid, number)
        must_serve(own_daemon, "rows")
        assert own_daemon.is_running, f"signal {number} has ended it"
    for number in sorted(STOPS):
        os.kill(own_daemon.pid, number)
        own_daemon.await_end(0)
        assert own_daemon.logged("the server stops")[-1]["signal"] == number.name
        own_daemon.start()
        must_serve(own_daemon, "rows")  # as before the stop: nothing goes back to a checkpoint
    assert not own_daemon.logged("did not end cleanly")


def test_sighup_says_that_nothing_was_reloaded(own_daemon):
    os.kill(own_daemon.pid, signal.SIGHUP)
    deadline = time.monotonic() + 60
    while not own_daemon.logged("nothing was reloaded"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (signalled,) = own_daemon.logged("signal:")
    assert signalled["signal"] == "SIGHUP" and signalled["from_pid"] == str(os.getpid())
    own_daemon.stop()


def test_signals_during_start_and_stop_change_nothing(make_daemon):
    daemon = make_daemon()
    # A sanitizer that looks for leaks at the end stops all threads. A signal at that moment keeps it from ever going on.
    daemon.environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 4).set(np.arange(100), np.full((100, 4), 7.0))
        server.create_table("logged", 64, durability="async").set(np.arange(20000), np.ones((20000, 64)))
    daemon.kill()
    lines = len(daemon.log_lines())
    daemon.launch()
    while len(daemon.log_lines()) == lines:
        time.sleep(0.001)
    while not any("ready" in log_fields(line)["msg"] for line in daemon.log_lines()[lines:]):
        for number in HARMLESS:
            os.kill(daemon.pid, number)
        assert daemon.is_running, daemon.log.read_text()
        time.sleep(0.001)  # so that a sanitizer, which stops all threads by a signal, has its turn
    daemon.await_ready()
    with daemon.connect() as server:
        server.open_table("rows").set(np.arange(100), np.full((100, 4), 7.0))
    daemon._process.send_signal(signal.SIGTERM)
    # None of these is the second signal, which makes the server give up.
    while daemon._process.poll() is None and not daemon.logged("stopped; all rows are on SSD"):
        for number in HARMLESS:
            daemon._process.send_signal(number)
        time.sleep(0.001)
    daemon.await_end(0)
    assert daemon.logged("stopped; all rows are on SSD")
    daemon.start()
    must_serve(daemon, "rows")


def test_a_stop_asked_for_during_start_is_clean(make_daemon):
    daemon = make_daemon()
    for number in sorted(STOPS):
        lines = len(daemon.log_lines())
        daemon.launch()
        while len(daemon.log_lines()) == lines:
            assert daemon.is_running
            time.sleep(0.001)
        os.kill(daemon.pid, number)
        daemon.await_end(0)


def test_signals_after_the_one_that_stops_the_server_cost_no_row(make_daemon):
    """A terminal's process group or a wrapper may send several signals. All are pending when the server goes on. It takes one for
    the stop, and finds the others while it has rows to write."""
    daemon = make_daemon({"cache": {"tiers": [make_daemon().dram(mib_per_lane=16)]}})
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("rows", 16, durability="replay")
        for begin in range(0, 100_000, 10_000):
            table.set(np.arange(begin, begin + 10_000), np.full((10_000, 16), 7.0))
    for number in (signal.SIGSTOP, *sorted(STOPS), signal.SIGCONT):
        daemon._process.send_signal(number)
    daemon.await_end(0)
    assert len(daemon.logged("the server is already stopping")) == 2
    assert daemon.logged("stopped; all rows are on SSD")
    daemon.start()
    with daemon.connect() as server:
        table = server.open_table("rows")
        for begin in range(0, 100_000, 10_000):
            assert (table.get(np.arange(begin, begin + 10_000)) == 7).all()
    assert not daemon.logged("did not end cleanly")


# ---- Standard error ----


class Unread:
    """A full pipe for standard error, which no process reads until read()."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        try:
            while True:
                os.write(self.write, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.write, True)

    def read(self) -> str:
        """Reads to the end, so the writing process must have its own descriptor."""
        os.close(self.write)
        with os.fdopen(self._read, "rb") as pipe:
            return pipe.read().decode().lstrip("x").lstrip("\n")


def launch_unread(daemon, *arguments: str) -> Unread:
    unread = Unread()
    daemon._process = subprocess.Popen(
        [EMBTIERD, "--init", "--config", daemon.folder / "embtierd.yaml", *arguments],
        stderr=unread.write, stdin=subprocess.DEVNULL, env={**os.environ, **daemon.environment},
    )  # fmt: skip
    return unread


def test_a_reader_of_the_log_that_stops_holds_nothing_up(make_daemon):
    daemon = make_daemon()
    unread = launch_unread(daemon, "--log-level", "debug")
    daemon.await_ready()
    with daemon.connect() as server:
        table = server.create_table("rows", 4)
        for step in range(3):
            table.set(np.arange(100), np.full((100, 4), 7.0))
            server.checkpoint(step=step)
        # More lines than the buffer takes: each connection makes at least one.
        dropped = 0
        while dropped < 100:
            for _ in range(100):
                daemon.connect(arena_bytes=0).close()
            dropped = server.status()["metrics"]["log_dropped_lines"]
    daemon.stop()
    assert unread.read() == ""  # no line fitted, and the process did not wait for the pipe
    daemon.start()
    must_serve(daemon, "rows")
    assert not daemon.logged("did not end cleanly")


def test_lines_that_were_dropped_are_told_when_the_log_is_read_again(make_daemon):
    daemon = make_daemon()
    unread = launch_unread(daemon, "--log-level", "debug")
    daemon.await_ready()
    with daemon.connect() as server:
        while server.status()["metrics"]["log_dropped_lines"] < 100:
            for _ in range(100):
                daemon.connect(arena_bytes=0).close()
    text = bytearray()
    while b"were dropped" not in text:
        text += os.read(unread._read, 65536)
    daemon._process.send_signal(signal.SIGTERM)
    text += unread.read().encode()
    assert daemon._process.wait(STOP_LIMIT_S) == 0
    daemon._process = None
    lines = [log_fields(line) for line in text.decode().lstrip("x").splitlines()]  # each line is whole
    told = [int(fields["count"]) for fields in lines if "were dropped" in fields["msg"]]
    assert told and sum(told) >= 100
    assert lines[-1]["msg"] == "stopped; all rows are on SSD"


def test_a_log_that_is_closed_or_full_ends_nothing(make_daemon):
    daemon = make_daemon()
    read, write = os.pipe()
    os.close(read)
    for stderr in (write, os.open("/dev/full", os.O_WRONLY)):
        daemon._process = subprocess.Popen(
            [EMBTIERD, "--init", "--config", daemon.folder / "embtierd.yaml"], stderr=stderr, stdin=subprocess.DEVNULL
        )
        daemon.await_ready()
        assert daemon.metrics()["log_dropped_lines"] > 0
        daemon.stop()
        os.close(stderr)


# ---- Descriptors 0 to 2 ----


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&-", "0<&- 2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_no_file_takes_the_place_of_a_standard_descriptor(make_daemon, closed):
    daemon = make_daemon()
    daemon._process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$0" --init --config "$1" {closed}', EMBTIERD, daemon.folder / "embtierd.yaml"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=daemon.log.open("ab"),
    )  # fmt: skip
    daemon.await_ready()
    for fd in range(3):
        target = os.readlink(f"/proc/{daemon.pid}/fd/{fd}")
        assert target == "/dev/null" or (fd == 2 and target == str(daemon.log))
    assert (daemon.folder / "rows/LOCK").read_text() == f"{daemon.pid}\n"
    daemon.stop()


def test_the_command_line_keeps_its_standard_descriptors_too(own_daemon):
    command = f'exec "$0" --timeout 60 --socket "$1" status %s'
    run = lambda closed: subprocess.run(  # noqa: E731
        ["/bin/sh", "-c", command % closed, CLI, own_daemon.socket], capture_output=True, text=True, timeout=60
    )
    assert run("").returncode == 0
    assert run("0<&-").returncode == 0
    assert run("2>&-").returncode == 0
    closed = run("1>&-")
    assert closed.returncode == 1 and "cannot write the output" in closed.stderr


def test_help_that_cannot_be_printed_is_an_error():
    with open("/dev/full", "w") as full:
        for program, options in ((EMBTIERD, ("--help", "--version", "--help-config")), (CLI, ("--help", "--version"))):
            for option in options:
                done = subprocess.run([program, option], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                assert done.returncode == 1 and "No space left" in done.stderr + "No space left" * (program == CLI)


# ---- The service manager ----


def test_a_service_manager_that_does_not_read_holds_no_stop_up(make_daemon):
    daemon = make_daemon()
    path = f"{os.path.dirname(daemon.socket)}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, \
         socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:  # fmt: skip
        manager.bind(path)
        other.setblocking(False)
        other.connect(path)
        with pytest.raises(BlockingIOError):
            while True:
                other.send(b"STATUS=another unit has filled the queue")
        daemon.environment["NOTIFY_SOCKET"] = path
        daemon.start()
        daemon.stop()


def test_readiness_is_told_to_a_manager_with_a_name_of_linux_own(make_daemon):
    daemon = make_daemon()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0embtier-test-{os.getpid()}")
        manager.settimeout(60)
        daemon.environment["NOTIFY_SOCKET"] = f"@embtier-test-{os.getpid()}"
        daemon.launch()
        while b"READY=1" not in manager.recv(4096).splitlines():
            pass
    daemon.stop()
