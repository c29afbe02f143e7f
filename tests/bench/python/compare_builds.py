#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the rates of two builds: of the same requests, in turn.

A rate on a shared machine varies by tens of per cent from one minute to the next, but little within a second. So a server of each
build runs at the same time, and the two take short turns. A server's rate also varies with the place of its memory, so all begins
anew several times. A ratio is the median of all pairs of turns; quartiles show how sure it is. Where a build is compared with
itself, ratios between 0.97 and 1.03 are usual.

    compare_builds.py /tmp/before/build build              # two build folders, the first the older one
    compare_builds.py /tmp/before/build build pooled push --restarts 9"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from count_instructions import client_environment, wait_for

TABLES, ROWS, DIM = 2, 200_000, 64  # the tables, and the rows of each
IDS, FEW_IDS = 8192, 8  # of a request for rows
BAGS, GATHERS = 400, 80  # of each table in a request for bags
DRAWS = 4  # different requests for bags, used round and round
ROW_DRAWS = 2_000_000  # ids of requests for rows: ten times the rows of a table


@dataclass(frozen=True)
class Figure:
    operations: tuple[str, ...]  # of Client, one after the other
    lanes: int = 1
    cache_mib: int = 256  # 256: all rows; else few of them
    is_zipf: bool = False


FIGURES = {
    "get": Figure(("get",)),
    "get-lanes": Figure(("get",), lanes=2),
    "small-get": Figure(("small_get",)),
    "set": Figure(("set",)),
    "mixed": Figure(("get", "set"), cache_mib=48, is_zipf=True),
    "cold-get": Figure(("get",), cache_mib=32),
    "pooled": Figure(("pooled",)),
    "pooled-zipf": Figure(("pooled",), is_zipf=True),
    "push": Figure(("push",)),
    "push-zipf": Figure(("push",), is_zipf=True),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("builds", nargs=2, type=Path, metavar="BUILD", help="build folder: the older one, and the newer one")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"figures (default: all): {', '.join(FIGURES)}")
    parser.add_argument("--restarts", type=int, default=4, help="pairs of servers for each figure (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=9, help="turns of each server (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn (default: %(default)s)")
    given = parser.parse_args()
    for name in given.names:
        if name not in FIGURES:
            parser.error(f"there is no figure '{name}'; there are {', '.join(FIGURES)}")
    return given


# ---- The client: a process of its own, with the library of the build that is measured ----


class Client:
    """Each operation returns the seconds of some requests, and their rows."""

    def __init__(self, server: object, is_zipf: bool) -> None:
        import embtier  # noqa: PLC0415
        import numpy as np  # noqa: PLC0415

        tables = [
            server.create_table(f"t{i}", DIM, ROWS, optimizer="sgd", init=("uniform", -0.1, 0.1), eager=True) for i in range(TABLES)
        ]
        for table in tables:
            for ids in np.array_split(np.arange(ROWS), ROWS // IDS):
                table.get(ids)
        weights = np.arange(1, ROWS + 1) ** (-1.05 if is_zipf else 0.0)
        steps, random = np.cumsum(weights / weights.sum()), np.random.default_rng(1)

        def drawn(count: int) -> np.ndarray:
            ranks = np.minimum(np.searchsorted(steps, random.random(count)), ROWS - 1)
            return np.random.default_rng(7).permutation(ROWS)[ranks].astype(np.uint64)

        self.bag_ids = [[drawn(BAGS * GATHERS) for _ in tables] for _ in range(DRAWS)]
        self.row_ids = drawn(ROW_DRAWS)
        self.rows, self.few = server.batch([(tables[0], IDS)]), server.batch([(tables[0], FEW_IDS)])
        self.bags = server.bag_batch([embtier.Bags(table, BAGS * GATHERS, BAGS) for table in tables])
        self.offsets = np.arange(0, BAGS * GATHERS + 1, GATHERS)
        self.number = self.step = 0
        self.rows.ids(0)[:] = self.ids(IDS)
        self.rows.get()  # so a SET has numbers to store

    def ids(self, count: int) -> object:
        """The next @count of the ids that were drawn."""
        self.number += 1
        first = self.number * count % (ROW_DRAWS - count)
        return self.row_ids[first : first + count]

    def timed(self, request: Callable[[], object], rows: int) -> tuple[float, int]:
        began = time.perf_counter()
        request()
        return time.perf_counter() - began, rows

    def get(self) -> tuple[float, int]:
        self.rows.ids(0)[:] = self.ids(IDS)
        return self.timed(self.rows.get, IDS)

    def small_get(self) -> tuple[float, int]:
        self.few.ids(0)[:] = self.ids(FEW_IDS)
        return self.timed(self.few.get, FEW_IDS)

    def set(self) -> tuple[float, int]:
        self.rows.ids(0)[:] = self.ids(IDS)
        return self.timed(self.rows.set, IDS)

    def lay_out_bags(self) -> int:
        self.number += 1
        for part, ids in enumerate(self.bag_ids[self.number % DRAWS]):
            self.bags.ids(part)[:] = ids
            self.bags.offsets(part)[:] = self.offsets
        return TABLES * BAGS * GATHERS

    def pooled(self) -> tuple[float, int]:
        rows = self.lay_out_bags()
        return self.timed(self.bags.lookup, rows)

    def push(self) -> tuple[float, int]:
        """Times the push alone, and not its lookup."""
        rows = self.lay_out_bags()
        self.bags.lookup(ticket=True)
        for part in range(TABLES):
            self.bags.gradients(part)[:] = 1e-3
        self.step += 1
        return self.timed(lambda: self.bags.push(0.01, self.step), rows)


def serve_turns(socket: str, name: str) -> None:
    """Prints "ready". Reads the seconds of a turn from each line of standard input, and answers with rows a second."""
    import embtier  # noqa: PLC0415

    with embtier.connect(socket, arena_bytes=256 << 20) as server:
        client = Client(server, FIGURES[name].is_zipf)
        print("ready", flush=True)
        for line in sys.stdin:
            spent, rows = 0.0, 0
            while spent < float(line):
                for operation in FIGURES[name].operations:
                    seconds, count = getattr(client, operation)()
                    spent, rows = spent + seconds, rows + count
            print(rows / spent, flush=True)


# ---- Two servers ----


@contextlib.contextmanager
def client_of(build: Path, name: str) -> Iterator[subprocess.Popen]:
    """Gives a client that takes turns for a figure on a server of its own."""
    figure = FIGURES[name]
    with tempfile.TemporaryDirectory(prefix="embtier-compare.") as folder:
        socket, config = Path(folder, "socket"), Path(folder, "embtierd.yaml")
        Path(folder, "data").mkdir()
        config.write_text(
            f"data: {{directories: [{folder}/data]}}\n"
            f"cache: {{tiers: [{{name: dram, kind: dram, bytes: {figure.cache_mib}MiB}}]}}\n"
            f"lanes: {{count: {figure.lanes}, ticket_bytes: 64MiB}}\n"
            f"socket: {{path: {socket}, max_arena_bytes: 512MiB}}\nlog: {{level: error}}\n"
        )
        server = subprocess.Popen([build.resolve() / "daemon/embtierd", "--config", config, "--init"])
        try:
            wait_for(socket, server)
            with subprocess.Popen(
                [sys.executable, __file__, "--client", socket, name],
                env=client_environment(build), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            ) as client:
                if client.stdout.readline() != "ready\n":
                    raise SystemExit("compare_builds: the client failed; its message is above")
                yield client
                client.stdin.close()
        finally:
            server.kill()  # no client needs the rows any more
            server.wait()


def turn(client: subprocess.Popen, seconds: float) -> float:
    print(seconds, file=client.stdin, flush=True)
    answer = client.stdout.readline()
    if not answer:
        raise SystemExit("compare_builds: the client failed; its message is above")
    return float(answer)


def pairs_of(name: str, given: argparse.Namespace) -> Iterator[tuple[float, float]]:
    """Gives the rates of the older and of the newer build, pair by pair. Each build is first in every other pair."""
    for restart in range(given.restarts):
        order = (0, 1) if restart % 2 == 0 else (1, 0)
        with contextlib.ExitStack() as stack:
            clients = {side: stack.enter_context(client_of(given.builds[side], name)) for side in order}
            for side in order:
                turn(clients[side], given.seconds)  # a first turn warms caches up
            for number in range(given.turns):
                rates = {side: turn(clients[side], given.seconds) for side in (order if number % 2 == 0 else order[::-1])}
                yield rates[0], rates[1]


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        serve_turns(*sys.argv[2:])
        return
    given = arguments()
    print(f"{'figure':<12} {'before':>14} {'after':>14}   ratio (quartiles, pairs)")
    for name in given.names or FIGURES:
        pairs = list(pairs_of(name, given))
        low, middle, high = statistics.quantiles([after / before for before, after in pairs], n=4, method="inclusive")
        before, after = (statistics.median(side) for side in zip(*pairs))
        print(f"{name:<12} {before:>10,.0f} r/s {after:>10,.0f} r/s   {middle:.3f} ({low:.3f} to {high:.3f}, {len(pairs)})", flush=True)


if __name__ == "__main__":
    main()
