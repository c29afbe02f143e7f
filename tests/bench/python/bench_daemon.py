# SPDX-License-Identifier: Apache-2.0
"""Daemons for benchmarks in Python, with any configuration. Importing this finds the package `embtier` and its library."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("EMBTIER_BUILD_ROOT", ROOT)) / "build"
os.environ.setdefault("EMBTIER_LIBRARY", str(BUILD / "client/libembtier.so.0"))
sys.path[:0] = [str(ROOT / "client/python"), str(ROOT / "tests/integration/python")]

from certificates import Authority  # noqa: E402

import embtier  # noqa: E402

LOOPBACK = "127.0.0.1"


def options(description: str, figures: list[str], turns: int) -> argparse.Namespace:
    """Parses the arguments that tools/bench may give; `names` has all @figures if it names none."""
    parser = argparse.ArgumentParser(description=description.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(figures))
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("--seconds", type=float, help="of a turn, where one is not as long as its batches")
    parser.add_argument("--scale", type=float, default=1)
    given = parser.parse_args()
    given.names = given.names or figures
    return given


def connect(process: subprocess.Popen, log: TextIO, socket: str, arena_bytes: int) -> embtier.Server:
    """Waits until the server takes clients: its socket's file is there a moment before."""
    while True:
        try:
            return embtier.connect(socket, arena_bytes=arena_bytes)
        except embtier.UnreachableError:
            if process.poll() is not None:
                log.seek(0)
                sys.exit(f"benchmark: embtierd ended: {log.read()}")
            time.sleep(0.05)


@contextlib.contextmanager
def started(directory: str, config: dict) -> Iterator[tuple[subprocess.Popen, TextIO]]:
    """Starts a server on @directory; it may not serve yet."""
    network = os.environ.get("EMBTIER_SERVER_NETWORK")  # tests/integration/network_link.py
    wrapper = ["nsenter", f"--net={network}"] if network else []
    Path(f"{directory}/embtierd.yaml").write_text(json.dumps(config))
    daemon = os.environ.get("EMBTIERD", str(BUILD / "daemon/embtierd"))
    with open(f"{directory}/log", "w+") as log:
        process = subprocess.Popen([*wrapper, daemon, "--init", "--config", f"{directory}/embtierd.yaml"], stderr=log)
        try:
            yield process, log
        finally:
            process.kill()  # no client needs the rows any more
            process.wait()


@dataclass(frozen=True)
class Listening:
    """A server that clients reach in two ways. @connection: with control messages only."""

    process: subprocess.Popen
    socket: str  # shared memory
    address: str  # TCP or TLS
    connection: embtier.Server


def listen_keys(host: str, directory: str) -> tuple[dict, str]:
    """Returns keys of the configuration for a server that listens at @host, and what a client adds to the address."""
    insecure = "no" if host == LOOPBACK else "yes"  # the servers' network has no other hosts
    if "EMBTIER_BENCH_TLS" not in os.environ:
        return {"rpc": {"listen": [f"tcp://{host}:0"], "insecure": insecure}}, ""
    authority = Authority(Path(directory, "keys"))
    certificate, key = authority.sign("server", f"IP:{host}")
    tls = {"certificate": str(certificate), "key": str(key)}
    return {"rpc": {"listen": [f"tls://{host}:0"], "insecure": insecure}, "tls": tls}, f"?ca={authority.certificate}"


@contextlib.contextmanager
def listening(config: dict) -> Iterator[Listening]:
    """A server that also listens over TCP, or TLS with EMBTIER_BENCH_TLS, with one lane and few files. @config: further keys, or
    other values."""
    host = os.environ.get("EMBTIER_SERVER_HOST", LOOPBACK)
    with tempfile.TemporaryDirectory(prefix="embtier-bench.") as directory:
        os.mkdir(f"{directory}/rows")
        socket = f"{directory}/socket"
        keys, addition = listen_keys(host, directory)
        whole = {
            "data": {"directories": [f"{directory}/rows"], "shards_per_directory": 1},
            "lanes": {"count": 1},
            "rocksdb": {"memtable_bytes": "64MiB", "metadata_cache_bytes": "16MiB"},
            **keys,
            **config,
            "socket": {"path": socket, **config.get("socket", {})},
        }
        with started(directory, whole) as (process, log), connect(process, log, socket, 0) as connection:
            log.seek(0)
            address = re.search(r'"(t(?:cp|ls)://[^"]*)"', log.read())
            assert address, "embtierd does not say where it listens"
            yield Listening(process, socket, address[1] + addition, connection)
