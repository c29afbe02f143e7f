#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions that embtierd runs for each row of a request, in one build or in several.

A rate on a shared machine varies by tens of per cent from run to run. A count of instructions hardly varies, so it shows a change of
one per cent. It says nothing of waits for memory. Each server runs in valgrind with one lane and all rows in its cache. Several
requests are always under way, so the lane never polls in vain. Only embtierd's own instructions count, not those of libraries.

    count_instructions.py /tmp/before/build build      # two build folders, the first the older one"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROWS = 40_000  # of the table; its cache holds them all
DIM = 32
IDS = 8192  # of a request
BAGS = IDS // 8
UNDER_WAY = 4  # requests at a time
WARM, COUNTED = 20, 200  # requests before and during the count
START_S = 120
SHOWN = 12  # functions, with --functions
# Operation: the requests of a batch, one after the other. A push follows a lookup, which is counted with it.
OPERATIONS = {
    "get": (lambda batch, step: batch.submit_get(),),
    "set": (lambda batch, step: batch.submit_set(),),
    "pooled": (lambda batch, step: batch.submit_lookup(),),
    "push": (
        lambda batch, step: batch.submit_lookup(ticket=True),
        lambda batch, step: batch.submit_push(lr=0.01, step=step),
    ),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD", help="build folder")
    parser.add_argument("--functions", action="store_true", help=f"also the {SHOWN} dearest functions of each operation")
    parser.add_argument("--client", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- The client: a process of its own, with the library of the build that is counted ----


def batches_of(server: object, table: object, operation: str) -> list:
    import embtier  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(1)
    has_bags = operation in ("pooled", "push")
    batches = []
    for _ in range(UNDER_WAY):
        batch = server.bag_batch([embtier.Bags(table, IDS, BAGS)]) if has_bags else server.batch([(table, IDS)])
        batch.ids(0)[:] = random.integers(0, ROWS, IDS).astype(np.uint64)
        if has_bags:
            batch.offsets(0)[:] = np.arange(0, IDS + 1, IDS // BAGS)
            batch.bags(0)[:] = 1e-3
        else:
            batch.rows(0)[:] = 1
        batches.append(batch)
    return batches


def send(batches: list, operation: str, count: int) -> None:
    """Sends about @count requests of each kind, UNDER_WAY at a time."""
    requests = OPERATIONS[operation]
    for step in range(1, count // UNDER_WAY + 1):
        for request in requests:
            for batch in batches:
                if step > 1 or request is not requests[0]:
                    batch.wait()
                request(batch, step)
    for batch in batches:
        batch.wait()


def serve_requests(socket: str) -> None:
    """Reads lines "operation count" from standard input, and answers each when its requests are done."""
    import embtier  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    with embtier.connect(socket) as server:
        table = server.create_table("counted", dim=DIM, rows=ROWS, optimizer="sgd")
        for first in range(0, ROWS, IDS):
            ids = np.arange(first, min(first + IDS, ROWS), dtype=np.uint64)
            table.set(ids, np.ones((len(ids), DIM), np.float32))
        batches = {operation: batches_of(server, table, operation) for operation in OPERATIONS}
        for line in sys.stdin:
            operation, count = line.split()
            send(batches[operation], operation, int(count))
            print("done", flush=True)


# ---- The counts ----


def own_counts(path: Path, program: str) -> Counter:
    """Returns the instructions of each function of @program, without its callees, from a file in callgrind's format."""
    counts: Counter = Counter()
    objects: dict[str, str] = {}
    functions: dict[str, str] = {}
    place, function, is_call = "", "", False

    def named(names: dict[str, str], text: str) -> str:
        number, _, name = text.partition(" ")
        return names.setdefault(number, name)

    for line in path.read_text().splitlines():
        key, _, rest = line.partition("=")
        if key in ("ob", "cob"):
            name = named(objects, rest)
            place = name if key == "ob" else place
        elif key in ("fn", "cfn"):
            name = named(functions, rest)
            function = name if key == "fn" else function
        elif key == "calls":
            is_call = True  # the next line has the callee's instructions
        elif re.match(r"[+*\d-]", line):
            if not is_call and place == program:
                counts[function] += int(line.split()[1])
            is_call = False
    return counts


def wait_for(socket: Path, server: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_S
    while not socket.exists():
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{Path(sys.argv[0]).stem}: the server did not start; start it by hand to see why")
        time.sleep(0.1)


def client_environment(build: Path) -> dict[str, str]:
    """The variables with which a client has the library of that build, and the package of its source."""
    source = json.loads((build / "meson-info/meson-info.json").read_text())["directories"]["source"]
    return os.environ | {
        "PYTHONPATH": f"{source}/client/python",
        "EMBTIER_LIBRARY": str(build.resolve() / "client/libembtier.so"),
    }


def ask(client: subprocess.Popen, operation: str, count: int) -> None:
    print(operation, count, file=client.stdin, flush=True)
    if client.stdout.readline() != "done\n":
        raise SystemExit(f"count_instructions: the client failed in {operation}; its message is above")


def dump(server: subprocess.Popen, folder: str, number: int) -> Path:
    """Has callgrind write what it has counted since the last time."""
    said = subprocess.run(
        ["callgrind_control", "--dump", str(server.pid)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout
    path = Path(folder, f"counts.{number}")
    if not path.exists():
        raise SystemExit(f"count_instructions: callgrind wrote no counts; callgrind_control says: {said.strip()}")
    return path


def count_build(build: Path) -> dict[str, Counter]:
    """Returns the instructions per row of each function, for each operation."""
    with tempfile.TemporaryDirectory(prefix="embtier-count.") as folder:
        socket, config = Path(folder, "socket"), Path(folder, "embtierd.yaml")
        Path(folder, "data").mkdir()
        config.write_text(
            f"data: {{directories: [{folder}/data]}}\n"
            "cache: {tiers: [{name: dram, kind: dram, bytes: 96MiB}]}\n"
            f"lanes: {{count: 1}}\nsocket: {{path: {socket}}}\n"
        )
        embtierd = build.resolve() / "daemon/embtierd"
        if not shutil.which("valgrind"):
            raise SystemExit("count_instructions: there is no valgrind; install it: tools/install-packages bench")
        server = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts", embtierd, "--config", config, "--init"],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(socket, server)
            client = subprocess.Popen(
                [sys.executable, __file__, socket, "--client"],
                env=client_environment(build), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            counts = {}
            with client:
                for number, operation in enumerate(OPERATIONS):
                    ask(client, operation, WARM)
                    dump(server, folder, 2 * number + 1)
                    ask(client, operation, COUNTED)
                    counted = own_counts(dump(server, folder, 2 * number + 2), str(embtierd))
                    counts[operation] = Counter({name: count / (COUNTED * IDS) for name, count in counted.items()})
                client.stdin.close()
            return counts
        finally:
            if server.poll() is None:
                server.send_signal(signal.SIGTERM)
            server.wait()


def main() -> None:
    given = arguments()
    if given.client:
        serve_requests(str(given.builds[0]))
        return
    builds = [count_build(build) for build in given.builds]
    print(f"{'operation':<10}" + "".join(f"{str(build)[-24:]:>26}" for build in given.builds) + "   last / first")
    for operation in OPERATIONS:
        counts = [build[operation] for build in builds]
        totals = [sum(count.values()) for count in counts]
        print(f"{operation:<10}" + "".join(f"{total:>26.1f}" for total in totals) + f"{totals[-1] / totals[0]:>15.3f}")
        for name, _ in counts[-1].most_common(SHOWN if given.functions else 0):
            print(f"{'':<10}" + "".join(f"{count[name]:>26.2f}" for count in counts) + f"   {name}")


if __name__ == "__main__":
    main()
