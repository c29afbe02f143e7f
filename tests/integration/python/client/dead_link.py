# SPDX-License-Identifier: Apache-2.0
"""A client and a server, each in a network of its own, and the link between them. Run by test_dead_link.py in the client's network.

Arguments: the daemon's program, a folder for it. Prints what happened, a line for each step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import embtier

LIMIT_S = 60
CLIENT, SERVER, PORT = "10.99.0.1", "10.99.0.2", 7411

CONFIG = """\
data: {{directories: [{folder}/rows], shards_per_directory: 2, reserve_bytes: 4MiB}}
lanes: {{count: 1, request_bytes: 8MiB, ticket_bytes: 4MiB, write_queue_bytes: 4MiB}}
cache: {{tiers: [{{name: dram, kind: dram, bytes: 16MiB}}]}}
rocksdb: {{memtable_bytes: 16MiB, metadata_cache_bytes: 8MiB}}
socket: {{path: {folder}/s}}
rpc: {{listen: ["tcp://{server}:{port}"], insecure: yes}}
"""


def run(*command: object) -> None:
    subprocess.run([str(one) for one in command], check=True)


def say(what: str) -> None:
    print(what, flush=True)


class Link:
    """A cable from this network to that of a process, which has no other."""

    def __init__(self, pid: int) -> None:
        self._there = ("nsenter", "-t", pid, "-n")
        run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", pid)
        run("ip", "address", "add", f"{CLIENT}/24", "dev", "here")
        run("ip", "link", "set", "here", "up")
        run(*self._there, "ip", "address", "add", f"{SERVER}/24", "dev", "there")
        self.set("up")

    def set(self, state: str) -> None:
        run(*self._there, "ip", "link", "set", "there", state)


def expect_disconnected(what: str, wait: Callable[[], object]) -> None:
    began = time.monotonic()
    try:
        wait()
        say(f"{what}: an answer came")
    except embtier.DisconnectedError:
        took = time.monotonic() - began
        say(f"{what}: disconnected" if took < LIMIT_S else f"{what}: only after {took:.0f} s")


def lose(client: embtier.Server, idle: embtier.Server, watcher: embtier.Server, link: Link) -> None:
    """The server's side finds out too: over its Unix socket, which is no part of the network, it tells how many sessions it has."""
    table = client.create_table("t", dim=4, rows=10)
    batch = client.batch([(table, 1)])
    batch.ids(0)[:], batch.rows(0)[:] = [1], 1
    assert watcher.status()["metrics"]["sessions"] == 3
    link.set("down")
    batch.submit_set()
    expect_disconnected("request", lambda: batch.wait(3 * LIMIT_S))
    deadline = time.monotonic() + LIMIT_S
    while watcher.status()["metrics"]["sessions"] > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    say(f"sessions: {watcher.status()['metrics']['sessions']:.0f}")
    expect_disconnected("idle client", idle.tables)
    link.set("up")
    client.reconnect()
    say(f"rows: {table.get([1]).tolist()}")


def main() -> None:
    program, folder = sys.argv[1], Path(sys.argv[2])
    (folder / "rows").mkdir()
    (folder / "config").write_text(CONFIG.format(folder=folder, server=SERVER, port=PORT))
    run("ip", "link", "set", "lo", "up")
    wait_for_link = f"until ip address | grep -q {SERVER}; do sleep 0.05; done"
    with (folder / "log").open("wb") as log, subprocess.Popen(
        ["unshare", "-n", "sh", "-c", f'echo; {wait_for_link}; exec "$0" --init --config "$1"', program, folder / "config"],
        stderr=log, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        try:
            assert server.stdout and server.stdout.read(1)  # it has its network
            link = Link(server.pid)
            watcher = None
            deadline = time.monotonic() + LIMIT_S
            while watcher is None:
                try:
                    watcher = embtier.connect(str(folder / "s"), timeout=LIMIT_S, arena_bytes=0)
                except embtier.UnreachableError:
                    assert time.monotonic() < deadline and server.poll() is None, (folder / "log").read_text()
                    time.sleep(0.1)
            options = {"timeout": LIMIT_S, "reconnect_timeout": LIMIT_S, "arena_bytes": 1 << 20}
            client, idle = (embtier.connect(f"tcp://{SERVER}:{PORT}", **options) for _ in range(2))
            lose(client, idle, watcher, link)
        finally:
            server.kill()


main()
