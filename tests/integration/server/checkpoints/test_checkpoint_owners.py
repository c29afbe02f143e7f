# SPDX-License-Identifier: Apache-2.0
"""Each user has checkpoints of its own, as many as it may, and no other user deletes them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from daemons import CLI, Daemon
from raw_client import RawClient, field
from test_bad_checkpoints import forged

NOBODY = 65534
ROOT = 0
SCAN_OPEN, SCAN = 15, 12  # the numbers of a request and of a reply

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def open_daemon(make_daemon, request) -> Daemon:
    """A daemon that every user can reach."""
    changes = {"socket": {"mode": "0666"}, "checkpoints": getattr(request, "param", {})}
    daemon = make_daemon(changes)
    Path(daemon.path).parent.chmod(0o755)
    daemon.start()
    with daemon.connect() as server:
        server.create_table("t", 4)
    return daemon


def checkpoint(daemon: Daemon, *words: str, user: int = ROOT) -> subprocess.CompletedProcess:
    command = [CLI, "--socket", daemon.socket, "-t", "0", "-o", "json", "checkpoint", *words]
    return subprocess.run(command, capture_output=True, text=True, user=user, stdin=subprocess.DEVNULL)


def make(daemon: Daemon, *words: str, user: int = ROOT) -> int:
    done = checkpoint(daemon, "create", *words, user=user)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["uid"] == user
    return made["id"]


def ids_of(daemon: Daemon, user: int) -> list[int]:
    listed = json.loads(checkpoint(daemon, "list").stdout)
    return [made["id"] for made in listed if made["made_by"] == "user" and made["uid"] == user]


def ids(daemon: Daemon) -> set[int]:
    return {made["id"] for made in json.loads(checkpoint(daemon, "list").stdout)}


def record_of(daemon: Daemon, id: int) -> Path:
    return Path(daemon.config["data"]["directories"][0]) / f"checkpoints/{id:06}/checkpoint.json"


@pytest.mark.parametrize("open_daemon", [{"max_checkpoints": 4, "max_user_checkpoints": 3}], indirect=True)
def test_one_user_makes_no_more_than_it_may_and_others_still_some(open_daemon):
    made = [make(open_daemon, user=NOBODY) for _ in range(3)]
    refused = checkpoint(open_daemon, "create", user=NOBODY)
    assert refused.returncode == 1 and "checkpoints.max_user_checkpoints" in refused.stderr
    make(open_daemon)
    refused = checkpoint(open_daemon, "create")
    assert refused.returncode == 1 and "checkpoints.max_checkpoints" in refused.stderr
    assert ids_of(open_daemon, NOBODY) == made

    open_daemon.stop()  # existing checkpoints count, even if their user is not connected
    open_daemon.start()
    assert checkpoint(open_daemon, "create", user=NOBODY).returncode == 1
    assert checkpoint(open_daemon, "create", "--keep", "3", user=NOBODY).returncode == 1
    last = make(open_daemon, "--keep", "2", user=NOBODY)  # --keep deletes more than this one adds
    assert ids_of(open_daemon, NOBODY) == [made[-1], last]
    make(open_daemon)
    assert checkpoint(open_daemon, "delete", str(last), user=NOBODY).returncode == 0
    make(open_daemon, user=NOBODY)


@pytest.mark.parametrize("open_daemon", [{"max_checkpoints": 20, "max_user_checkpoints": 3}], indirect=True)
def test_a_user_whose_old_ones_cannot_be_deleted_does_not_go_on_making(open_daemon):
    made = [make(open_daemon, user=NOBODY) for _ in range(3)]
    with contextlib.ExitStack() as readers:
        for id in made:  # a checkpoint stays while it is read
            reader = readers.enter_context(RawClient(open_daemon.path, arena_bytes=0))
            assert SCAN in reader.call(SCAN_OPEN, field(1, id) + field(2, "t"))
        over = make(open_daemon, "--keep", "1", user=NOBODY)
        assert ids_of(open_daemon, NOBODY) == [*made, over]
        for keep in ("1", "2", "3"):
            refused = checkpoint(open_daemon, "create", "--keep", keep, user=NOBODY)
            assert refused.returncode == 1 and "checkpoints.max_user_checkpoints" in refused.stderr
        assert ids_of(open_daemon, NOBODY) == [*made, over]
        assert checkpoint(open_daemon, "create").returncode == 0  # other users go on
    # Until no job reads that checkpoint any more.
    while checkpoint(open_daemon, "delete", str(made[0]), user=NOBODY).returncode != 0:
        time.sleep(0.02)
    last = make(open_daemon, "--keep", "1", user=NOBODY)
    assert ids_of(open_daemon, NOBODY) == [last]


def test_a_user_deletes_its_own_only_and_the_servers_user_all(open_daemon):
    roots, nobodys = make(open_daemon), make(open_daemon, user=NOBODY)
    make(open_daemon)  # no user can delete the newest
    servers = min(ids(open_daemon) - {roots, nobodys}, default=roots)
    for other in {roots, servers}:
        refused = checkpoint(open_daemon, "delete", str(other), user=NOBODY)
        assert refused.returncode == 1 and "belongs to user 0" in refused.stderr
    assert {roots, nobodys, servers} <= ids(open_daemon)
    second = make(open_daemon, user=NOBODY)
    third = make(open_daemon, "--keep", "1", user=NOBODY)
    assert ids_of(open_daemon, NOBODY) == [third]
    assert {roots, servers} <= ids(open_daemon) and not {nobodys, second} & ids(open_daemon)
    kept = make(open_daemon, "--keep", "1")
    assert ids_of(open_daemon, ROOT) == [kept]
    assert third in ids(open_daemon)
    make(open_daemon)
    assert checkpoint(open_daemon, "delete", str(third)).returncode == 0


def test_one_of_a_version_that_noted_no_user_is_the_servers(open_daemon):
    old, newest = make(open_daemon, user=NOBODY), make(open_daemon, user=NOBODY)
    open_daemon.stop()
    forged(f'"uid":{NOBODY},', "")(record_of(open_daemon, old))
    open_daemon.start()
    assert ids_of(open_daemon, ROOT) == [old] and ids_of(open_daemon, NOBODY) == [newest]
    assert checkpoint(open_daemon, "delete", str(old), user=NOBODY).returncode == 1
    make(open_daemon, "--keep", "1", user=NOBODY)
    assert checkpoint(open_daemon, "verify", str(old)).returncode == 0
    assert checkpoint(open_daemon, "delete", str(old)).returncode == 0


def test_a_damaged_one_is_deleted_by_the_servers_user_only(open_daemon):
    damaged = make(open_daemon, user=NOBODY)
    make(open_daemon, user=NOBODY)
    path = record_of(open_daemon, damaged)
    open_daemon.stop()
    path.write_text(path.read_text()[:-10])
    open_daemon.start()
    assert checkpoint(open_daemon, "delete", str(damaged), user=NOBODY).returncode == 1
    assert checkpoint(open_daemon, "delete", str(damaged)).returncode == 0
