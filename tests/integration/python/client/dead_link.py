# SPDX-License-Identifier: Apache-2.0
"""A client and a server, each in a network of its own, and the link between them. Run by test_dead_link.py in the client's network.

Arguments: the daemon's program, a folder for it, its `rpc.io_uring`. Clients come over TCP and over TLS. Prints what
happened, a line for each step."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import embtier
from certificates import Authority

LIMIT_S = 60
CLIENT, SERVER = "10.99.0.1", "10.99.0.2"
PORTS = {"tcp": 7411, "tls": 7412}

CONFIG = """\
data: {{directories: [{folder}/rows], shards_per_directory: 2, reserve_bytes: 4MiB}}
lanes: {{count: 1, request_bytes: 8MiB, ticket_bytes: 4MiB, write_queue_bytes: 4MiB}}
cache: {{tiers: [{{name: dram, kind: dram, bytes: 16MiB}}]}}
rocksdb: {{memtable_bytes: 16MiB, metadata_cache_bytes: 8MiB}}
socket: {{path: {folder}/s}}
rpc: {{listen: [{listen}], insecure: yes, io_uring: {io_uring}}}
tls: {{certificate: {folder}/tls/server.crt, key: {folder}/tls/server.key}}
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


class Pair:
    """Two clients over one transport: one that asks, and one that waits."""

    def __init__(self, kind: str, ca: Path) -> None:
        self.kind = kind
        address = f"{kind}://{SERVER}:{PORTS[kind]}" + (f"?ca={ca}" if kind == "tls" else "")
        options = {"timeout": LIMIT_S, "reconnect_timeout": LIMIT_S, "arena_bytes": 1 << 20}
        self.client, self.idle = (embtier.connect(address, **options) for _ in range(2))
        self.table = self.client.create_table(kind, dim=4, rows=10)
        self.batch = self.client.batch([(self.table, 1)])
        self.batch.ids(0)[:], self.batch.rows(0)[:] = [1], 1


def lose(pairs: list[Pair], watcher: embtier.Server, link: Link) -> None:
    """The server's side finds out too: over its Unix socket, which is no part of the network, it tells how many sessions it has."""
    assert watcher.status()["metrics"]["sessions"] == 1 + 2 * len(pairs)
    link.set("down")
    for pair in pairs:
        pair.batch.submit_set()
    for pair in pairs:
        expect_disconnected(f"{pair.kind}, request", functools.partial(pair.batch.wait, 3 * LIMIT_S))
    deadline = time.monotonic() + LIMIT_S
    while watcher.status()["metrics"]["sessions"] > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    say(f"sessions: {watcher.status()['metrics']['sessions']:.0f}")
    for pair in pairs:
        expect_disconnected(f"{pair.kind}, idle client", pair.idle.tables)
    link.set("up")
    for pair in pairs:
        pair.client.reconnect()
        say(f"{pair.kind}, rows: {pair.table.get([1]).tolist()}")


def main() -> None:
    program, folder, io_uring = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    (folder / "rows").mkdir()
    authority = Authority(folder / "tls")
    authority.sign("server", f"IP:{SERVER}")
    listen = ", ".join(f'"{kind}://{SERVER}:{port}"' for kind, port in PORTS.items())
    (folder / "config").write_text(CONFIG.format(folder=folder, listen=listen, io_uring=io_uring))
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
            lose([Pair(kind, authority.certificate) for kind in PORTS], watcher, link)
        finally:
            server.kill()


main()
