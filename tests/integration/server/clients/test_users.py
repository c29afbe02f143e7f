# SPDX-License-Identifier: Apache-2.0
"""Another user's client can neither harm shared memory nor take other users' resources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import HELPERS, LONG

import embtier

NOBODY = 65534
ROUNDS = 10_000 if LONG else 1000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_daemon(make_daemon, request):
    """A daemon that every user can reach."""
    daemon = make_daemon({"socket": {"mode": "0666"} | getattr(request, "param", {})})
    Path(daemon.path).parent.chmod(0o755)
    daemon.start()
    yield daemon
    daemon.stop()


_AS_NOBODY = """
import ctypes, fcntl, mmap, os, struct, sys
sys.path.insert(0, sys.argv[1])
from raw_client import GET, SET, RawClient
path, rounds = sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
PUNCH_HOLE, KEEP_SIZE, COLLAPSE, ZERO = 2, 1, 8, 16
ADD_SEALS, SEAL_WRITE, SEAL_FUTURE_WRITE = 1033, 8, 16
os.setgid(65534)
os.setuid(65534)

def refused(what):
    try:
        what()
    except OSError:
        return
    raise SystemExit("something was allowed that must not be")

def fallocate(fd, mode, offset, size):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")

def rights(fd):
    size = os.fstat(fd).st_size
    for length in (0, size // 2, size - 1, size + 1, size + 4096, 1 << 40):
        refused(lambda: os.ftruncate(fd, length))
    refused(lambda: fallocate(fd, 0, size, 4096))
    refused(lambda: fallocate(fd, COLLAPSE, 0, 4096))
    for seal in (SEAL_WRITE, SEAL_FUTURE_WRITE):
        refused(lambda: fcntl.fcntl(fd, ADD_SEALS, seal))

with RawClient(path, arena_bytes=1 << 20) as client:
    table = client.handle("shared")
    control, arena, _ = client.descriptors
    at = client.payload + 4096
    ids = struct.pack("<100Q", *range(100))
    view = mmap.mmap(arena, client.arena_bytes)  # a second mapping of the same
    for round_ in range(rounds):
        rights(arena)
        rights(control)
        for open_one in (lambda: control, lambda: os.open(f"/proc/self/fd/{control}", os.O_RDWR)):
            try:
                fd = open_one()
            except OSError:
                continue
            refused(lambda: mmap.mmap(fd, 4096))
            refused(lambda: os.pwrite(fd, b"x", 0))
            refused(lambda: fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096))
            refused(lambda: fallocate(fd, ZERO, 0, 4096))
            if fd != control:
                os.close(fd)
        # The arena is the client's own to spoil, also while the server is at it.
        client.write(at, ids)
        number = client.submit(SET if round_ % 2 else GET, [(table, at, at + 832, 100)])
        fallocate(arena, PUNCH_HOLE | KEEP_SIZE, 0x2000, client.arena_bytes - 0x2000)
        view[at : at + 800] = ids
        if round_ % 100 == 0:
            view.close()
            view = mmap.mmap(arena, client.arena_bytes)
        assert client.wait(number).err in (0, 9, 10)
print("done")
"""


@needs_root
def test_an_unprivileged_client_cannot_take_memory_from_under_the_server(open_daemon):
    with open_daemon.connect() as server:
        table = server.create_table("own", 8)
        table.set(np.arange(1000), np.repeat(np.arange(1000)[:, None], 8, axis=1))
        server.create_table("shared", 8, rows=100)
        with subprocess.Popen(
            [sys.executable, "-c", _AS_NOBODY, HELPERS, open_daemon.socket, str(ROUNDS)],
            stdout=subprocess.PIPE,
            text=True,
        ) as client:
            while client.poll() is None:
                assert (table.get(np.arange(1000)) == np.arange(1000)[:, None]).all()
            assert client.stdout.read() == "done\n"
    assert open_daemon.is_running


_CONNECT_AS_NOBODY = """
import sys
sys.path.insert(0, sys.argv[1])
import embtier, os
os.setgid(65534)
os.setuid(65534)
with embtier.connect(sys.argv[2], arena_bytes=1 << 20, timeout=60) as server:
    server.open_table("t").get([1])
"""


def nobody_connects(daemon) -> bool:
    python = str(Path(embtier.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", _CONNECT_AS_NOBODY, python, daemon.socket], stderr=subprocess.PIPE)
    return done.returncode == 0


@needs_root
@pytest.mark.parametrize(
    "open_daemon", [{"max_user_arena_bytes": "4MiB", "max_arena_bytes": "4MiB"}], indirect=True
)
def test_one_user_gets_no_more_memory_than_allowed_and_others_still_some(open_daemon):
    with open_daemon.connect(arena_bytes=3 << 20) as server:
        server.create_table("t", 4)
        with pytest.raises(embtier.BusyError, match="max_user_arena_bytes"):
            open_daemon.connect(arena_bytes=2 << 20)
        assert nobody_connects(open_daemon)
    open_daemon.await_metric("session_arena_bytes", 0)
    open_daemon.connect(arena_bytes=3 << 20).close()


@needs_root
@pytest.mark.parametrize("open_daemon", [{"max_sessions": 8, "max_user_sessions": 3}], indirect=True)
def test_one_user_gets_no_more_sessions_than_allowed_and_others_still_some(open_daemon):
    with open_daemon.connect() as first, open_daemon.connect() as second:
        first.create_table("t", 4)
        with open_daemon.connect():
            with pytest.raises(embtier.Error):
                open_daemon.connect()
            assert nobody_connects(open_daemon)
        assert (second.open_table("t").get([1]) == 0).all()
    assert open_daemon.logged("too many sessions of one user")


_TAKES_ALL = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[3]))
from raw_client import RawClient
kept = []
try:
    while True:
        kept.append(RawClient(sys.argv[2], arena_bytes=int(sys.argv[4])))
except Exception as error:
    print(len(kept), error, flush=True)
sys.stdin.read()
"""


def takes_all(daemon, uid: int, arena_bytes: int) -> subprocess.Popen:
    """Connects as user @uid as often as it may, prints the number, and keeps all until its input ends."""
    command = [sys.executable, "-c", _TAKES_ALL, HELPERS, daemon.socket, str(uid), str(arena_bytes)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@needs_root
@pytest.mark.parametrize(
    ("open_daemon", "arena_bytes", "parts"),
    [
        ({"max_sessions": 64, "max_user_sessions": None}, 0, [48, 12, 3]),
        ({"max_total_arena_bytes": "64MiB"}, 1 << 20, [48, 12, 3]),
        ({"max_sessions": 64, "max_user_sessions": 24}, 0, [24, 24, 16]),  # the operator's choice
    ],
    indirect=["open_daemon"],
    ids=["sessions", "memory", "set"],
)
def test_users_that_take_all_they_may_leave_some_to_the_next(open_daemon, arena_bytes, parts):
    clients = []
    try:
        for i, part in enumerate(parts):
            clients.append(takes_all(open_daemon, 3000 + i, arena_bytes))
            count, _, why = clients[-1].stdout.readline().partition(" ")
            assert int(count) == part, (i, count, why)
            if arena_bytes and i == 0:
                assert "three quarters of what others leave (socket.max_user_arena_bytes)" in why
    finally:
        for client in clients:
            client.stdin.close()
            client.wait()
    if arena_bytes == 0:
        refused = open_daemon.logged("too many sessions of one user")
        assert (refused[0]["uid"], refused[0]["limit"]) == ("3000", str(parts[0]))
    open_daemon.await_metric("session_arena_bytes", 0)
