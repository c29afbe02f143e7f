# SPDX-License-Identifier: Apache-2.0
"""Users who are not root and name no paths talk only to their own server, and keep no data where everybody can write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import CLI, EMBTIERD, LANES, STOP_LIMIT_S, TREE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

LIMIT_S = 60


class User:
    """A user without an account, whose directory for the default socket does not exist yet."""

    def __init__(self, uid: int, scratch: Path) -> None:
        self.uid = uid
        self.home = scratch / f"home-{uid}"
        self.home.mkdir()
        os.chown(self.home, uid, uid)
        self.directory = Path(f"/tmp/embtier-{uid}")
        self.socket = self.directory / "embtier.sock"

    def environment(self, **more: str) -> dict[str, str]:
        wanted = {"PATH": os.environ["PATH"], "HOME": str(self.home), "EMBTIER_LIBRARY": os.environ["EMBTIER_LIBRARY"]}
        return wanted | more

    def run(self, *command, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command], user=self.uid, group=self.uid, extra_groups=[], text=True,
            env=self.environment(**more), stdin=subprocess.DEVNULL, capture_output=True, timeout=300, cwd="/",
        )  # fmt: skip

    def config(self, **sections) -> Path:
        """A configuration with data of its own, but no path of a socket."""
        path = self.home / "embtierd.yaml"
        tiers = [{"kind": "dram", "bytes": f"{4 * LANES}MiB"}]
        config = {"lanes": {"count": LANES, "request_bytes": "16MiB"}, "cache": {"tiers": tiers}, **sections}
        path.write_text(json.dumps(config))
        path.chmod(0o644)
        return path

    @contextlib.contextmanager
    def server(self, *arguments, **more: str) -> Iterator[subprocess.Popen]:
        process = subprocess.Popen(
            [EMBTIERD, "--config", self.config(), *arguments], user=self.uid, group=self.uid, extra_groups=[],
            env=self.environment(**more), stdin=subprocess.DEVNULL, stderr=(self.home / "log").open("ab"), cwd="/",
        )  # fmt: skip
        try:
            deadline = time.monotonic() + LIMIT_S
            while self.run(CLI, "status", **more).returncode != 0:
                assert process.poll() is None and time.monotonic() < deadline, (self.home / "log").read_text()
                time.sleep(0.05)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_LIMIT_S) == 0


@pytest.fixture
def scratch(tmp_path) -> Iterator[Path]:
    """A folder for all users, since pytest's are for root only."""
    path = Path(f"/tmp/embtier-users-{os.getpid()}")
    path.mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


def free_uid() -> int:
    uid = 100_000 + os.getpid() * 10
    while Path(f"/tmp/embtier-{uid}").exists():
        uid += 1
    return uid


@pytest.fixture
def user(scratch) -> Iterator[User]:
    user = User(free_uid(), scratch)
    if user.run(EMBTIERD, "--version").returncode != 0 or user.run(CLI, "--version").returncode != 0:
        pytest.skip("the build folder is for root alone")
    yield user
    if user.directory.is_symlink():
        user.directory.unlink()
    shutil.rmtree(user.directory, ignore_errors=True)


@pytest.fixture
def other(user, scratch) -> User:
    return User(user.uid + 1, scratch)


class Listener:
    """Poses as a server, as user @uid, on @path, and counts its connections."""

    CODE = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    data = connection.recv(100)
    print("got", len(data), flush=True)
    connection.close()
"""

    def __init__(self, path: Path, uid: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, path], user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self.process.stdout.readline() == "listens\n"
        path.chmod(0o777)

    def end(self) -> list[str]:
        """Ends it, and returns the lines that it printed."""
        self.process.kill()
        said = self.process.communicate()[0]
        return said.splitlines()


PYTHON = "import sys; sys.path.insert(0, sys.argv[1]); import embtier; embtier.connect(arena_bytes=0, timeout=60); print('connected')"


def clients(user: User, **more: str) -> list[subprocess.CompletedProcess[str]]:
    """The results of the command line and of the Python package."""
    return [
        user.run(CLI, "--timeout", "60", "status", **more),
        user.run("/usr/bin/python3", "-c", PYTHON, TREE / "client/python", **more),
    ]


def test_a_user_s_own_server_is_found_and_served(user):
    for more in ({}, {"XDG_RUNTIME_DIR": str(user.home / "run")}):
        with user.server(**more):
            socket_path = Path(more["XDG_RUNTIME_DIR"]) / "embtier.sock" if more else user.socket
            assert stat.S_IMODE(socket_path.parent.stat().st_mode) & 0o022 == 0
            assert all(done.returncode == 0 for done in clients(user, **more)), clients(user, **more)
            check = user.run(CLI, "config", "check", user.config(), **more)
            assert check.returncode == 0, check


def traps(user: User, other: User) -> dict:
    """Ways in which another user can come first, each with the message about it."""

    def owned(directory: Path) -> None:
        directory.mkdir()
        os.chown(directory, other.uid, other.uid)

    def link(directory: Path) -> None:
        aside = other.home / "aside"
        aside.mkdir()
        os.chown(aside, user.uid, user.uid)
        directory.symlink_to(aside)

    def writable(directory: Path) -> None:
        directory.mkdir()
        os.chown(directory, user.uid, user.uid)
        directory.chmod(0o777)

    return {"owned": (owned, f"belongs to user {other.uid}"), "link": (link, "is a symbolic link"),
            "writable": (writable, "can be written to by others")}  # fmt: skip


@pytest.mark.parametrize("trap", ["owned", "link", "writable"])
@pytest.mark.parametrize("below", ["/tmp", "XDG_RUNTIME_DIR"])
def test_a_directory_that_another_user_can_have_made_is_not_used(user, other, trap, below):
    make, said = traps(user, other)[trap]
    directory, more = user.directory, {}
    if below != "/tmp":
        directory = other.home / "run"
        more = {"XDG_RUNTIME_DIR": str(directory)}
        other.home.chmod(0o755)
    make(directory)
    listener = Listener(directory / "embtier.sock", other.uid if trap != "link" else 0)
    cli, python = clients(user, **more)
    check = user.run(CLI, "config", "check", user.config(), **more)
    start = user.run(EMBTIERD, "--config", user.config(), **more)
    assert listener.end() == []  # no client has sent it anything
    assert cli.returncode == 1 and said in cli.stderr and "EMBTIER_SOCKET" in cli.stderr, cli
    assert python.returncode == 1 and "PermissionError" in python.stderr and said in python.stderr, python
    assert check.returncode == 1 and "socket.path" in check.stderr and str(directory) in check.stderr, check
    assert start.returncode == 1 and "socket.path" in start.stderr and str(directory) in start.stderr, start
    if trap != "owned":
        assert said in check.stderr and said in start.stderr
    if below == "/tmp":
        shutil.rmtree(directory) if not directory.is_symlink() else directory.unlink()


def test_a_server_of_another_user_in_one_s_own_directory_is_not_used(user, other):
    """The socket was made while the directory was writable for others."""
    user.directory.mkdir()
    user.directory.chmod(0o777)
    listener = Listener(user.socket, other.uid)
    user.directory.chmod(0o755)
    os.chown(user.directory, user.uid, user.uid)
    done = clients(user)
    assert all(one.returncode == 1 and f"belongs to user {other.uid}" in one.stderr for one in done), done
    assert [line for line in listener.end() if line != "got 0"] == []  # clients have connected, but sent nothing


def test_a_socket_that_is_named_may_be_anybody_s(user, other):
    other.home.chmod(0o755)
    path = other.home / "s.sock"
    with other.server(EMBTIER_SOCKET=str(path)):
        path.chmod(0o777)
        assert all(done.returncode == 0 for done in clients(user, EMBTIER_SOCKET=str(path)))
        done = user.run(CLI, "--timeout", "60", "-s", path, "status")
        assert done.returncode == 0, done
    assert not user.directory.exists()


def test_a_missing_server_is_reported(user):
    for directory in (None, user.directory):
        if directory:
            directory.mkdir()
            os.chown(directory, user.uid, user.uid)
        assert user.run(CLI, "status").returncode == 3


def test_without_a_home_no_data_are_kept_in_tmp(user):
    """With a folder named by XDG the data are kept there."""
    before = Path("/tmp/.local").exists()
    config = user.config()
    for home in ("", "relative"):
        for command in ([CLI, "config", "check", config], [EMBTIERD, "--config", config], [EMBTIERD, "--check", "--config", config]):
            done = user.run(*command, HOME=home)
            assert done.returncode == 1 and "HOME" in done.stderr and "data.directories" in done.stderr, done
    assert Path("/tmp/.local").exists() == before
    with user.server(HOME="", XDG_STATE_HOME=str(user.home / "state")):
        assert (user.home / "state/embtier").is_dir()
