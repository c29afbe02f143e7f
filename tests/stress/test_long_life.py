# SPDX-License-Identifier: Apache-2.0
"""A server that runs for long, while clients, tables, checkpoints and scans come and go, stays as it was in memory, descriptors,
threads and files.

It is measured again and again in the same quiet state: no client is connected, and the same tables and checkpoint exist.
EMBTIER_TEST_LONG=1: for ten minutes."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from daemons import LONG, SANITIZED
from failing_alloc import Allocations
from scans import Scan
from stores import checkpoint_under_load

import embtier

ROUNDS = 20 if LONG else 4
ROUND_S = 27 if LONG else 4
WARM_UP = 4 if LONG else 1  # rounds in which things that are made only once are made
# Memory in use varies with write buffers and open files, and resident memory also with the arenas that the allocator keeps. The
# number of files varies with compactions that are still to come, in each of the sixteen databases. RocksDB keeps its files open,
# so the number of open files varies with it. Few open files may have lost their names, and none of them may be open more often
# than at first.
SLACK = {"used": 8 << 20, "resident": 96 << 20, "files": 400, "nameless": 20, "open_most": 2}
RING = "anon_inode:[io_uring]"
ROWS = 5000
IDS = np.arange(ROWS)
STEADY = {"replay": "adam", "async": "sgd", "sync": "none"}  # durability, which is also the name: optimizer

# Forks clients that get somewhere and kill themselves. It is a process of its own, since the test has threads.
_MORTALS = """
import os, random, signal, sys, time, traceback
sys.path[:0] = sys.argv[1].split(':')
import daemons, embtier, numpy as np
from scans import Scan
path, seed, end = sys.argv[2], int(sys.argv[3]), time.monotonic() + float(sys.argv[4])
rng = random.Random(seed)

def live():
    server = embtier.connect(path, arena_bytes=rng.choice([1, 4, 8]) << 20, timeout=60)
    table = server.open_table(rng.choice(["replay", "async", "sync"]))
    batches = [server.batch([(table, 500)]) for _ in range(4)]
    for batch in batches:
        batch.ids(0)[:] = rng.randrange(10**9) + np.arange(500) if table.rows is None else np.arange(500)
        batch.submit_get()
    point = rng.randrange(6)
    if point == 1:
        prefetch = server.prefetch_batch([(table, 500)])
        prefetch.ids(0)[:] = np.arange(500)
        prefetch.prefetch()
    elif point == 2:
        bags = server.bag_batch([embtier.Bags(table, 500, 500, "sum")])
        bags.ids(0)[:] = np.arange(500)
        bags.offsets(0)[:] = np.arange(501)
        bags.lookup(ticket=True)
    elif point == 3:
        server.join(f"group-{os.getpid()}", 2, 0)
    elif point == 4:
        Scan(server, "replay").next()
    elif point == 5:
        server.create_table(f"of-{os.getpid()}", 4, 100)

lives = 0
while time.monotonic() < end:
    child = os.fork()
    if child == 0:
        rng.seed(seed + lives)
        code = 1
        try:
            live()
            os.kill(os.getpid(), signal.SIGKILL)
        except (embtier.NotFoundError, embtier.PinsFullError, embtier.TicketsFullError):
            code = 0  # no checkpoint just now; or the dead before it are not all gone
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and status != 0:
        sys.exit(f"a child ended by itself: {status}")
    lives += 1
    time.sleep(0.01)
print(lives)
"""


class Churn:
    """Runs clients of @daemon on threads for @seconds."""

    def __init__(self, daemon, rng, seconds: float) -> None:
        self.daemon = daemon
        self.end = time.monotonic() + seconds
        self.failures: list[BaseException] = []
        self.done = dict.fromkeys(("clients", "tables", "imports", "checkpoints", "scans", "mortals"), 0)
        works = (self.clients, self.tables, self.imports, self.checkpoints)
        threads = [
            threading.Thread(target=self.run, args=(work, random.Random(rng.randrange(2**32))))
            for work in works
        ]
        tests = Path(__file__).resolve().parents[1]
        here = f"{tests / 'integration/server'}:{tests / 'crash'}"
        arguments = [here, daemon.socket, str(rng.randrange(2**32)), str(seconds)]
        with subprocess.Popen(
            [sys.executable, "-c", _MORTALS, *arguments], stdout=subprocess.PIPE, text=True
        ) as mortals:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            told, _ = mortals.communicate(timeout=120)
            assert mortals.returncode == 0
        self.done["mortals"] = int(told)
        assert not self.failures, self.failures

    def run(self, work, rng) -> None:
        try:
            while time.monotonic() < self.end and not self.failures:
                work(rng)
        except BaseException as error:  # passed on to the test's thread
            self.failures.append(error)

    def connect(self, rng):
        return self.daemon.connect(arena_bytes=rng.choice([4, 16, 32]) << 20, timeout=120)

    def clients(self, rng) -> None:
        with self.connect(rng) as server:
            name = rng.choice(list(STEADY))
            table = server.open_table(name)
            ids = np.arange(500) + rng.randrange(ROWS - 500)
            table.get(ids)
            if name == "sync":
                table.set(ids, np.full((500, table.dim), 1))
                table.get(np.arange(500) + rng.randrange(2**40))  # never written
            else:
                with server.push_batch([(table, 500)]) as batch:
                    batch.ids(0)[:] = ids
                    batch.gradients(0)[:] = 1
                    batch.push(0.1, 1)
        self.done["clients"] += 1

    def tables(self, rng) -> None:
        with self.connect(rng) as server:
            name, dim = f"made-{rng.randrange(5)}", rng.choice([3, 40, 300])
            table = server.create_table(
                name, dim, ROWS, durability=rng.choice(list(STEADY)), eager=rng.random() < 0.2,
                optimizer=rng.choice(["none", "adam", "rowwise_adagrad"]),
            )  # fmt: skip
            rows = np.full((2000, dim), rng.randrange(2**20), np.float32)
            table.set(IDS[:2000], rows)
            assert (table.get(IDS[:2000]) == rows).all()
            server.drop_table(name)
        self.done["tables"] += 1

    def imports(self, rng) -> None:
        """Imports a file; some files are not tables."""
        path = self.daemon.folder / "rows.npy"
        with self.connect(rng) as server:
            chance = rng.random()
            if chance < 0.3:
                path = path.with_name("ids.npy")  # it has one dimension only
            try:
                server.import_table(path, "imported", durability=rng.choice(list(STEADY)), optimizer="adagrad")
            except embtier.MismatchError:
                assert chance < 0.3
            else:
                assert (server.open_table("imported").get(IDS[::50]) == IDS[::50, None]).all()
                server.drop_table("imported")
        self.done["imports"] += 1

    def checkpoints(self, rng) -> None:
        with self.connect(rng) as server:
            made = checkpoint_under_load(
                server, step=rng.randrange(2**32), metadata={"x": "y" * rng.randrange(1000)}
            )
            chance = rng.random()
            if chance < 0.2:
                server.verify_checkpoint(made.id)
            elif chance < 0.4:
                name = server.restore_checkpoint(made.id, ["replay"], "restored")[0].name
                server.drop_table(name)
            elif chance < 0.7:
                scan = Scan(server, rng.choice(list(STEADY)), made.id)
                scan.next()
                if rng.random() < 0.5:
                    scan.close()  # else the end of the connection closes it
                self.done["scans"] += 1
        with self.connect(rng) as server:
            for info in server.checkpoints()[: -rng.randint(1, 3)]:
                with contextlib.suppress(embtier.BusyError, embtier.NotFoundError):
                    server.delete_checkpoint(info.id)
        self.done["checkpoints"] += 1
        time.sleep(rng.uniform(0, 0.2))


def status_of(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    threads = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            threads += not (task / "comm").read_text().startswith("iou-wrk")  # the kernel's threads come and go
    return {"resident": int(fields["RssAnon"].split()[0]) << 10, "threads": threads}


def delete_but_one(server) -> None:
    """Deletes all checkpoints but one. The server closes a scan that a client left only after its session has gone, which takes a
    moment. Its own periodic checkpoint may come after ours, and may delete some too."""
    checkpoint_under_load(server)
    deadline = time.monotonic() + 60
    while len(infos := server.checkpoints()) > 1:
        for info in infos[:-1]:
            with contextlib.suppress(embtier.BusyError, embtier.NotFoundError):
                server.delete_checkpoint(info.id)
        assert time.monotonic() < deadline, "a checkpoint is still being read"


def figures(daemon, allocations) -> collections.Counter:
    """The figures that must never grow: descriptors by kind, threads, and the live allocations of our own code."""
    threads, live = status_of(daemon.pid)["threads"], allocations.live if allocations else 0
    found = collections.Counter(daemon.descriptors(), threads=threads, live=live)
    found[RING] = max(0, found[RING] - threads)  # each thread may make one, with its first read
    return found


def settled_figures(daemon, allocations, first) -> collections.Counter:
    """The figures when none is above @first, or when time is up: things that are freed late, as with the last connection, are not
    growth. @first None: these will be the first figures, so the least of several measurements is taken."""
    found, deadline = figures(daemon, allocations), time.monotonic() + (2 if first is None else 60)
    while (first is None or found - first) and time.monotonic() < deadline:
        time.sleep(0.05)
        now = figures(daemon, allocations)
        found = found & now if first is None else now
    return found


def quiet_state(daemon, allocations, first) -> dict:
    with daemon.connect(arena_bytes=0, timeout=120) as server:
        for spec in server.tables():
            if spec.name not in STEADY:
                server.drop_table(spec.name)
        delete_but_one(server)
    wanted = ("session_arena_bytes", "reading_rows", "write_queue_rows", "cache_pinned_rows", "groups")
    for name in (*wanted, "store_compacting_shards"):
        daemon.await_metric(name, 0, 60)
    daemon.await_metric("sessions", 1)  # the one that asks
    used = 0
    if allocations:
        with daemon.connect(arena_bytes=0) as server:
            used = allocations.used_bytes(server.status)
    settled = settled_figures(daemon, allocations, first)
    files = [file for _, _, files in os.walk(daemon.folder / "rows") for file in files]
    names = []
    for number in os.listdir(f"/proc/{daemon.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            names.append(os.readlink(f"/proc/{daemon.pid}/fd/{number}"))
    names = [path for path in names if path.startswith(f"{daemon.folder}/rows/")]
    nameless = sum(path.endswith(" (deleted)") for path in names)
    return {
        **status_of(daemon.pid),
        "used": used,
        "live": settled["live"],
        "files": len(files),
        "nameless": nameless,
        "open_most": max(collections.Counter(names).values()),  # of the same file
        "figures": settled,
    }


def test_a_long_life_lets_nothing_grow(make_daemon, rng):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 5}})
    allocations = None if SANITIZED else Allocations(daemon)
    daemon.start()
    with daemon.connect() as server:
        for durability, optimizer in STEADY.items():
            rows = None if durability == "sync" else ROWS
            table = server.create_table(durability, 64, rows, durability=durability, optimizer=optimizer)
            table.set(IDS, np.ones((ROWS, 64)))
    np.save(daemon.folder / "rows.npy", np.repeat(IDS[:, None].astype(np.float32), 24, axis=1))
    np.save(daemon.folder / "ids.npy", IDS)
    states, done = [], {}
    for turn in range(ROUNDS):
        churn = Churn(daemon, rng, ROUND_S)
        done = {name: done.get(name, 0) + count for name, count in churn.done.items()}
        first = states[WARM_UP]["figures"] if turn > WARM_UP else None
        states.append(quiet_state(daemon, allocations, first))
        print(f"round {turn}:", {name: value for name, value in states[-1].items() if name != "figures"})
    print("in all:", done)
    states = states[WARM_UP:]
    third = max(1, len(states) // 3)
    for name, slack in SLACK.items():
        series = [state[name] for state in states]
        grown = statistics.median(series[-third:]) - statistics.median(series[:third])
        if not (SANITIZED and name == "resident"):  # a sanitizer keeps freed memory for a while, to detect its use
            assert grown <= slack, f"{name}: {series}"
    for state in states:
        assert not state["figures"] - states[0]["figures"], [state["figures"] for state in states]
    daemon.stop()
    if allocations:
        assert allocations.live == 0
