# SPDX-License-Identifier: Apache-2.0
"""A service manager is told of reloads and signs of life, and hands over a socket at which it listens already."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import CLI, EMBTIERD, Daemon, log_fields

import embtier

# Puts the descriptors behind the three standard ones, as a service manager does, and becomes the program.
HAND_OVER = """
import fcntl, os, sys
count, fds, program = int(sys.argv[1]), [int(fd) for fd in sys.argv[2].split(",")], sys.argv[3:]
fds = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in fds]
for at, fd in enumerate(fds):
    os.dup2(fd, 3 + at, inheritable=True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count)}
os.execv(program[0], program)
"""


class Manager:
    """The end of a notify socket."""

    def __init__(self, daemon: Daemon) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = f"{os.path.dirname(daemon.socket)}/notify"
        self.socket.bind(path)
        self.socket.settimeout(60)
        daemon.environment["NOTIFY_SOCKET"] = path

    def lines_so_far(self) -> list[str]:
        lines = []
        while select.select([self.socket], [], [], 0)[0]:
            lines += self.socket.recv(4096).decode().splitlines()
        return lines

    def await_line(self, line: str) -> list[str]:
        """Reads messages up to the first that has the line; returns that one's lines."""
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            if line in lines:
                return lines


def await_true(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def jobs(daemon: Daemon) -> list[dict]:
    return json.loads(subprocess.check_output([CLI, "-s", daemon.socket, "-t", "0", "-o", "json", "jobs"]))


@pytest.fixture
def watched(make_daemon) -> Iterator[tuple[Daemon, Manager]]:
    daemon = make_daemon()
    manager = Manager(daemon)
    yield daemon, manager
    manager.socket.close()


def test_a_reload_is_told_at_its_begin_and_its_end(watched):
    daemon, manager = watched
    daemon.start()
    manager.await_line("READY=1")
    for _ in range(2):
        daemon.signal(signal.SIGHUP)
        lines = manager.await_line("RELOADING=1")
        (moment,) = [line.partition("=")[2] for line in lines if line.startswith("MONOTONIC_USEC=")]
        assert int(moment) > 0
        manager.await_line("READY=1")
    daemon.stop()


def test_a_reload_that_fails_leaves_the_server_ready(watched):
    daemon, manager = watched
    access = daemon.folder / "access.yaml"
    access.write_text("users:\n  - {name: root, role: admin, unix_users: [root]}\n")
    access.chmod(0o600)
    daemon.configure({"access": {"file": str(access)}})
    daemon.start()
    access.write_text("users: 3\n")
    daemon.signal(signal.SIGHUP)
    manager.await_line("RELOADING=1")
    manager.await_line("READY=1")
    assert any(log_fields(line)["msg"].startswith("not reloaded") for line in daemon.log_lines())
    daemon.stop()


def test_a_reload_that_is_cancelled_is_told_as_that(watched, tmp_path):
    """It waits behind another one, which reads the access file for as long as the test says."""
    daemon, manager = watched
    access, trigger = daemon.folder / "access.yaml", tmp_path / "trigger"
    access.write_text("users:\n  - {name: root, role: admin, unix_users: [root]}\n")
    access.chmod(0o600)
    daemon.configure({"access": {"file": str(access)}})
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_PATH="access.yaml")
    daemon.start()
    manager.await_line("READY=1")
    trigger.touch()
    daemon.signal(signal.SIGHUP)
    await_true(Path(f"{trigger}.waits").exists)
    daemon.signal(signal.SIGHUP)
    await_true(lambda: [job["state"] for job in jobs(daemon)] == ["running", "waiting"])
    subprocess.run([CLI, "-s", daemon.socket, "-t", "0", "jobs", "cancel", str(jobs(daemon)[1]["id"])], check=True)
    await_true(lambda: daemon.logged("not reloaded"))
    (told,) = daemon.logged("not reloaded")
    assert told["level"] == "warn" and "cancelled" in told["why"] and "SIGHUP" in told["msg"]
    assert not daemon.logged("a checkpoint of the server's own")
    assert [job["state"] for job in jobs(daemon)] == ["running"]
    assert "READY=1" not in manager.lines_so_far()
    trigger.unlink()
    manager.await_line("READY=1")
    daemon.stop()


def test_the_watchdog_gets_signs_of_life_while_the_server_serves(watched):
    daemon, manager = watched
    daemon.environment["WATCHDOG_USEC"] = "2000000"
    daemon.start()
    manager.await_line("READY=1")
    for _ in range(2):
        assert manager.await_line("WATCHDOG=1") == ["WATCHDOG=1"]
    daemon.stop()


# ---- Sockets that are handed over ----


def listening(path: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, kind)
    made.bind(path)
    if kind == socket.SOCK_STREAM:
        made.listen(16)
    return made


def launch(daemon: Daemon, sockets: list[socket.socket], count: int | None = None) -> None:
    fds = [each.fileno() for each in sockets]
    with daemon.log.open("ab") as log:
        daemon._process = subprocess.Popen(
            ["/usr/bin/python3", "-c", HAND_OVER, str(len(fds) if count is None else count), ",".join(map(str, fds)),
             EMBTIERD, *daemon.options, "--config", daemon.folder / "embtierd.yaml"],
            stderr=log, stdin=subprocess.DEVNULL, pass_fds=fds, env={**os.environ, **daemon.environment},
        )  # fmt: skip


def test_a_client_that_comes_before_the_server_is_served(make_daemon):
    daemon = make_daemon()
    with listening(daemon.socket) as manager:
        for _ in range(2):  # the socket outlives a server
            done: list[embtier.Server] = []
            early = threading.Thread(target=lambda done=done: done.append(daemon.connect(arena_bytes=0)))
            early.start()
            launch(daemon, [manager])
            early.join(60)
            assert len(done) == 1
            done[0].close()
            daemon.stop()
            assert Path(daemon.path).is_socket()


def test_clients_see_the_server_s_user_and_not_the_manager_s(make_daemon):
    daemon = make_daemon()
    with listening(daemon.socket) as manager:
        launch(daemon, [manager])
        daemon.await_ready()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(daemon.socket)
            pid = int.from_bytes(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], "little")
        assert pid == daemon.pid
        daemon.stop()


def refusal(daemon: Daemon) -> str:
    daemon.await_end(1)
    fields = log_fields(daemon.log_lines()[-1])
    assert fields["msg"] == "embtierd ends" and fields["err"] == "INVALID"
    return fields["why"]


def test_sockets_that_the_server_would_not_serve_are_refused(make_daemon):
    daemon = make_daemon()
    folder = os.path.dirname(daemon.socket)
    with listening(f"{folder}/other") as other, listening(daemon.socket) as right, \
         listening(f"{folder}/datagrams", socket.SOCK_DGRAM) as datagrams:  # fmt: skip
        launch(daemon, [other])
        assert f"{folder}/other" in (why := refusal(daemon)) and daemon.socket in why
        launch(daemon, [right, other])
        assert "2 sockets" in refusal(daemon)
        launch(daemon, [datagrams])
        assert "no listening Unix stream socket" in refusal(daemon)
        launch(daemon, [right], count=0)  # none: the manager's own socket is then another program's
        daemon.await_end(1)
        assert daemon.socket in log_fields(daemon.log_lines()[-1])["why"]
        assert not (daemon.folder / "rows/embtier.json").exists()  # all that before a store is made
