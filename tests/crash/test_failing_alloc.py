# SPDX-License-Identifier: Apache-2.0
"""When any allocation of the server's own code fails, first or hundredth, only that request (or start) is refused, and the error
says why.

One allocation fails at a time: each in turn with EMBTIER_TEST_LONG=1, else a sample. Afterwards the same request succeeds, rows
are unchanged, and as much memory and as many files are in use as before."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest
from daemons import CLI, LONG, SANITIZED, Daemon, log_fields
from failing_alloc import Allocations
from scans import Scan
from stores import has_lost_server

import embtier
pytestmark = pytest.mark.skipif(SANITIZED, reason="a sanitizer's allocator cannot be failed")

SAMPLED_STARTS = 6  # per kind, in the short form
SAMPLED_REQUESTS = 5
SMALL = {
    "data": {"shards_per_directory": 2},
    "checkpoints": {"interval_seconds": 3600},  # no periodic checkpoint while requests are made
}
ROWS = 400
IDS = np.arange(ROWS)
NAMES = {"steady", "pushed", "replayed"}


def sample(rng, calls: int, most: int) -> list[int]:
    every = range(1, calls + 1)
    return list(every) if LONG or calls <= most else sorted(rng.sample(every, most))


def beyond(calls: int) -> Iterator[int]:
    """Further numbers, until no allocation fails. The number of allocations varies a little, in checkpoints with the number of
    files."""
    n = calls + 1
    while n < 20 * calls + 100:
        yield n
        n += n // 4 + 1
    pytest.fail("however late, one fails")


# ---- Requests ----


class World:
    """A server with some tables and checkpoints, and one client of it."""

    def __init__(self, daemon, allocations) -> None:
        self.daemon, self.allocations = daemon, allocations
        self.n = 0  # the allocation that fails in attempt()
        self.calls, self.failed = 0, False
        self.errors: collections.Counter = collections.Counter()
        self.pushes = 0
        with daemon.connect() as server:
            server.create_table("steady", 16, ROWS, optimizer="adam", durability="async")
            server.create_table("pushed", 4, ROWS, optimizer="sgd", durability="sync")
            server.create_table("replayed", 300, ROWS)
            self.rows = {
                "steady": np.arange(ROWS * 16, dtype=np.float32).reshape(ROWS, 16),
                "replayed": np.arange(ROWS * 300, dtype=np.float32).reshape(ROWS, 300),
            }
            for name, rows in self.rows.items():
                server.open_table(name).set(IDS, rows)
            self.checkpoint = server.checkpoint(step=1, metadata={"first": True}).id
            server.checkpoint()
        self.server = daemon.connect(arena_bytes=4 << 20)

    def connect(self):
        return self.daemon.connect(arena_bytes=1 << 20)

    def attempt(self, act, again=None, server=None):
        """Returns the result of @act, in which the n-th allocation fails. If @act fails, returns that of @again (default:
        @act), in which none fails. A server without memory for its reply closes the connection; this is @server's if given,
        else ours."""
        server, again = server or self.server, again or act
        self.allocations.fail(self.n)
        error, result = None, None
        try:
            result = act()
        except embtier.Error as raised:
            error = raised
        self.calls, self.failed = self.allocations.calls, self.allocations.end()
        if self.failed:
            assert self.daemon.is_running, self.daemon.log.read_text()[-3000:]
            try:
                server.status()
            except embtier.DisconnectedError:  # an act that succeeds may not have noticed
                server.reconnect()
        if not error:
            return result
        assert self.failed, error
        assert isinstance(error, (embtier.NoMemoryError, embtier.DisconnectedError)), repr(error)
        self.errors[error.name] += 1
        if isinstance(error, embtier.DisconnectedError):
            self.await_end_of_jobs()
        return again()

    def await_end_of_jobs(self) -> None:
        """Waits for the jobs of a client that has lost its connection. They are finished or undone without it."""
        command = [CLI, "--socket", self.daemon.path, "--timeout", "60", "--output", "json", "jobs"]
        deadline = time.monotonic() + 60
        while jobs := json.loads(subprocess.run(command, capture_output=True, check=True).stdout):
            assert time.monotonic() < deadline, jobs
            time.sleep(0.01)

    def tidy(self, last: int) -> None:
        """Deletes the checkpoints after the first, up to @last."""
        for info in self.server.checkpoints():
            if self.checkpoint < info.id <= last:
                self.server.delete_checkpoint(info.id)

    def check(self) -> None:
        with self.daemon.connect() as server:
            for name, rows in self.rows.items():
                assert (server.open_table(name).get(IDS) == rows).all(), name
            assert (server.open_table("pushed").get(IDS) == -self.pushes).all()
            assert {spec.name for spec in server.tables()} == NAMES


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("embtierd"), SMALL, lanes=1)
    allocations = Allocations(daemon)
    daemon.start()
    world = World(daemon, allocations)
    yield world
    try:
        world.server.close()
        daemon.stop()
        assert allocations.live == 0, "something that the requests left is not free after a clean stop"
    finally:
        daemon.end()


def connect(w):
    w.attempt(lambda: w.connect().close())


def close_until_noticed(w, server):
    """The server closes a session's arena after all else of the session has ended, its place in a group included."""
    server.close()
    deadline = time.monotonic() + 60
    while arena_count(w) > 1 and time.monotonic() < deadline:  # that of w.server
        time.sleep(0.001)


def arena_count(w) -> int:
    return sum(count for kind, count in w.daemon.descriptors().items() if "embtier-arena" in kind)


def disconnect(w):
    server = w.connect()
    server.open_table("steady").get(IDS)
    w.attempt(lambda: close_until_noticed(w, server))


def create(w, **options):
    def make(**also):
        return w.server.create_table("made", 4, 500, init=("constant", 3), **options, **also)

    table = w.attempt(make, lambda: make(if_not_exists=True))
    assert (table.get(np.arange(500)) == 3).all()
    del table
    w.server.drop_table("made")


def create_eager(w):
    create(w, eager=True)


def create_logged(w):
    create(w, durability="sync", optimizer="rowwise_adagrad")


def create_that_is_there(w):
    w.attempt(lambda: w.server.create_table("pushed", 4, ROWS, optimizer="sgd", durability="sync",
                                            if_not_exists=True))  # fmt: skip


def drop(w):
    """A failed drop has still begun: the name is free, and the next start removes the rows."""
    w.server.create_table("dropped", 8, ROWS).set(IDS, np.ones((ROWS, 8)))

    def drop_unless_gone():
        with contextlib.suppress(embtier.NoTableError):
            w.server.drop_table("dropped")

    w.attempt(lambda: w.server.drop_table("dropped"), drop_unless_gone)


def drop_of_none(w):
    def refused():
        with pytest.raises(embtier.NoTableError):
            w.server.drop_table("no_table")

    w.attempt(refused)


def list_tables(w):
    assert len(w.attempt(w.server.tables)) == 3


def open_table(w):
    assert w.attempt(lambda: w.server.open_table("steady")).dim == 16


def status(w):
    assert w.attempt(w.server.status)["metrics"]["tables"] >= 3


def get(w):
    table = w.server.open_table("steady")
    assert (w.attempt(lambda: table.get(IDS)) == w.rows["steady"]).all()


def get_never_written(w):
    table = w.server.create_table("unwritten", 64, init=("constant", 2))
    assert (w.attempt(lambda: table.get(IDS)) == 2).all()
    del table
    w.server.drop_table("unwritten")


def set_rows(w):
    for name, rows in w.rows.items():
        table = w.server.open_table(name)
        rows += 1
        w.attempt(lambda table=table, rows=rows: table.set(IDS, rows))


def get_with_state(w):
    table = w.server.open_table("steady")
    rows, state = w.attempt(lambda: table.get_with_state(IDS))
    assert (rows == w.rows["steady"]).all() and (state == 0).all()


def set_with_state(w):
    table = w.server.create_table("of_state", 4, ROWS, optimizer="adagrad")
    rows, state = np.full((ROWS, 4), 3, np.float32), np.full((ROWS, 4), 5, np.float32)
    with w.server.batch([(table, ROWS)], state=True) as batch:
        batch.ids(0)[:] = IDS
        batch.rows(0)[:], batch.state(0)[:] = rows, state
        w.attempt(batch.set)
    found = table.get_with_state(IDS)
    assert (found[0] == rows).all() and (found[1] == state).all()
    del table
    w.server.drop_table("of_state")


def pooled(w):
    table = w.server.open_table("steady")
    with w.server.bag_batch([embtier.Bags(table, ROWS, 4, "sum")]) as batch:
        batch.ids(0)[:] = IDS
        batch.offsets(0)[:] = [0, 100, 200, 300, 400]
        w.attempt(batch.lookup)
        wanted = w.rows["steady"].reshape(4, 100, 16).sum(1, dtype=np.float64)
        assert np.allclose(batch.bags(0), wanted)


def push_by_ticket(w):
    table = w.server.open_table("pushed")
    with w.server.bag_batch([embtier.Bags(table, ROWS, ROWS, "sum")]) as batch:
        batch.ids(0)[:] = IDS
        batch.offsets(0)[:] = np.arange(ROWS + 1)

        def both():
            batch.lookup(ticket=True)
            batch.gradients(0)[:] = 1
            batch.push(1.0, 1)

        w.attempt(both)
        w.pushes += 1


def push_rows(w):
    table = w.server.open_table("pushed")
    with w.server.push_batch([(table, ROWS)]) as batch:
        batch.ids(0)[:] = IDS
        batch.gradients(0)[:] = 1
        w.attempt(lambda: batch.push(1.0, 1))
        w.pushes += 1


def prefetch(w):
    table = w.server.open_table("replayed")
    with w.server.prefetch_batch([(table, 100)]) as batch:
        batch.ids(0)[:] = IDS[:100]

        def both():
            batch.prefetch()
            batch.release()

        w.attempt(both)


def join(w):
    server = w.connect()

    def join_when_the_lost_session_has_gone():
        deadline = time.monotonic() + 60
        while True:
            try:
                return server.join("trainers", 2, 0)
            except embtier.ExistsError:
                assert time.monotonic() < deadline
                time.sleep(0.001)

    w.attempt(lambda: server.join("trainers", 2, 0), join_when_the_lost_session_has_gone, server)
    close_until_noticed(w, server)  # else the next group would still find this member


def push_of_a_group(w):
    server = w.connect()
    group = server.join("alone", 1, 0)
    table = server.open_table("pushed")
    with server.push_batch([(table, ROWS)]) as batch:
        batch.ids(0)[:] = IDS
        batch.gradients(0)[:] = 1
        w.attempt(lambda: batch.push(1.0, group.step + 1, group=group))
        w.pushes += 1
    del group, table
    close_until_noticed(w, server)


def checkpoint_create(w):
    w.server.open_table("replayed").set(IDS, w.rows["replayed"])  # so that the checkpoint has rows to save
    made = w.attempt(lambda: w.server.checkpoint(step=7, metadata={"a": "b"}))
    w.server.verify_checkpoint(made.id)
    w.server.checkpoint()  # the newest cannot be deleted
    w.tidy(made.id)


def checkpoint_list(w):
    assert w.checkpoint in [info.id for info in w.attempt(w.server.checkpoints)]


def checkpoint_show(w):
    assert len(w.attempt(lambda: w.server.checkpoint_info(w.checkpoint)).tables) == 3


def checkpoint_verify(w):
    w.attempt(lambda: w.server.verify_checkpoint(w.checkpoint))


def checkpoint_restore(w):
    def restore():
        w.server.restore_checkpoint(w.checkpoint, ["replayed"], "restored")

    def restore_unless_there():
        with contextlib.suppress(embtier.ExistsError):
            restore()

    w.attempt(restore, restore_unless_there)
    wanted = np.arange(ROWS * 300, dtype=np.float32).reshape(ROWS, 300)
    assert (w.server.open_table("restored").get(IDS) == wanted).all()
    w.server.drop_table("restored")
    w.tidy(w.server.checkpoints()[-1].id - 1)  # a restore makes one


def checkpoint_restore_all(w):
    """Restores all tables. Their names must be free, so the test makes a checkpoint and drops them first."""
    made = w.server.checkpoint()
    for name in sorted(NAMES):
        w.server.drop_table(name)

    def restore_unless_there():
        with contextlib.suppress(embtier.ExistsError):
            w.server.restore_checkpoint(made.id)

    w.attempt(lambda: w.server.restore_checkpoint(made.id), restore_unless_there)
    assert {spec.name for spec in w.server.tables()} == NAMES
    w.tidy(w.server.checkpoints()[-1].id - 1)  # a restore makes one


def import_rows(w):
    path = w.daemon.folder / "import.npy"
    np.save(path, w.rows["replayed"])

    def load(name="imported"):
        w.server.import_table(path, name, optimizer="adagrad")

    def load_unless_there():
        try:
            load()
        except embtier.ExistsError:  # a failed import may be ended only with the client's next one
            load("another")
            w.server.drop_table("another")
            if "imported" not in {spec.name for spec in w.server.tables()}:  # half of it was made, and was still to be removed
                load()

    w.attempt(load, load_unless_there)
    assert (w.server.open_table("imported").get(IDS) == w.rows["replayed"]).all()
    w.server.drop_table("imported")
    w.tidy(w.server.checkpoints()[-1].id - 1)  # an import makes one


def checkpoint_delete(w):
    made = w.server.checkpoint()
    w.server.checkpoint()

    def delete_unless_gone():
        with contextlib.suppress(embtier.NotFoundError):
            w.server.delete_checkpoint(made.id)

    w.attempt(lambda: w.server.delete_checkpoint(made.id), delete_unless_gone)
    w.tidy(made.id)


def scan(w, all_rows=False):
    def read() -> np.ndarray:
        scan = Scan(w.server, "replayed", w.checkpoint, all_rows)
        try:
            parts = []
            while len(part := scan.next()) > 0:
                parts.append(part)
            return np.concatenate(parts)
        finally:
            scan.close()

    wanted = np.arange(ROWS * 300, dtype=np.float32).reshape(ROWS, 300)
    assert (w.attempt(read) == wanted).all()


def scan_all_rows(w):
    scan(w, all_rows=True)


def by_command(w, *words: str) -> None:
    done = subprocess.run([CLI, "--socket", w.daemon.path, *words], capture_output=True, text=True, check=False)
    if "out of memory" in done.stderr or "Cannot allocate memory" in done.stderr:  # malloc(), mmap()
        raise embtier.NoMemoryError(done.stderr)
    if has_lost_server(done):
        raise embtier.DisconnectedError(done.stderr)
    assert done.returncode == 0, done.stderr


def knobs(w):
    """One whose new value needs threads, and one of all databases."""
    for name, value, before in (("lanes.readers_per_lane", "5", "2"), ("rocksdb.compaction_trigger_files", "8", "4")):
        w.attempt(lambda name=name, value=value: by_command(w, "knob", "set", name, value))
        by_command(w, "knob", "set", name, before)


def reshard(w):
    """Comes last: each move makes checkpoints, and the first one goes for them."""

    def move(shards: int = 1) -> None:
        by_command(w, "reshard", "--shards", str(shards), "--rate", "0")

    w.attempt(move)
    move(2)


KINDS = [
    connect, disconnect, create, create_eager, create_logged, create_that_is_there, drop, drop_of_none,
    list_tables, open_table, status, get, get_never_written, get_with_state, set_rows, set_with_state, pooled,
    push_by_ticket, push_rows, prefetch, join, push_of_a_group, checkpoint_create, checkpoint_list, checkpoint_show,
    checkpoint_verify, checkpoint_restore, checkpoint_restore_all, import_rows, checkpoint_delete, scan, scan_all_rows,
    knobs, reshard,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_request_whose_allocation_fails_is_refused_and_harms_nothing(world, rng, kind):
    w = world
    w.n = 0
    for _ in range(2):  # things that are made only once are made now
        kind(w)
        calls = w.calls
    w.check()
    live = w.allocations.settled_live()
    descriptors = w.daemon.settled_descriptors()
    before = w.allocations.live_sites(w.server.tables) if LONG else None
    errors_before, failures, unharmed = w.errors.copy(), 0, collections.Counter()
    for n in itertools.chain(sample(rng, calls, SAMPLED_REQUESTS), beyond(calls)):
        w.n, w.failed = n, False
        refused = w.errors.total()
        kind(w)
        failed, w.n = w.failed, 0
        site = w.allocations.failed_site if failed else ""
        w.check()
        if (count := w.allocations.await_at_most(live)) > live:
            now = w.allocations.live_sites(w.server.tables)
            left = now - before if before else now
            pytest.fail(f"allocation {n} ({site}) failed, {count - live} are left: {left}")
        if count < live:
            live = min(live, w.allocations.settled_live())
        w.daemon.must_have_closed_all_but(descriptors)
        if n > calls and not failed:
            break
        failures += failed
        if failed and w.errors.total() == refused:
            unharmed[site.split(" ", 1)[-1]] += 1
    errors = dict(w.errors - errors_before)
    print(f"{kind.__name__}: {calls} allocations, {failures} failed, {errors}; done without {dict(unharmed)}")


def test_a_data_directory_is_added_although_memory_lacked_first(world, rng):
    """Its databases stay open, so this is no kind of request above."""
    w = world

    def add(name: str) -> subprocess.CompletedProcess:
        command = [CLI, "--socket", w.daemon.path, "data", "add", f"{w.daemon.folder}/{name}", "--rate", "0"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def must(done: subprocess.CompletedProcess) -> None:
        assert done.returncode == 0 or "already data directory" in done.stderr, done.stderr

    w.allocations.fail(0)
    must(add("more"))
    calls = w.allocations.calls
    w.allocations.end()
    for n in rng.sample(range(1, calls + 1), SAMPLED_REQUESTS):
        w.allocations.fail(n)
        done = add(f"more-{n}")
        w.allocations.end()
        assert w.daemon.is_running, w.daemon.log.read_text()[-3000:]
        assert done.returncode == 0 or "out of memory" in done.stderr or has_lost_server(done), done.stderr
        w.await_end_of_jobs()
        must(add(f"more-{n}"))
        w.server.reconnect()
        w.check()


# ---- Starts and stops ----

START_ROWS = np.arange(ROWS * 20, dtype=np.float32).reshape(ROWS, 20)


def make_data(daemon, how: str) -> list[str]:
    """Makes data as a clean stop or a crash leaves it. Returns the arguments of the later starts."""
    if how == "nothing":
        return []
    daemon.start()
    with daemon.connect() as server:
        for name in ("replay", "async", "sync"):
            table = server.create_table(name, 20, ROWS, durability=name, optimizer="adagrad")
            table.set(IDS, START_ROWS)
        made = server.checkpoint(step=3, metadata="m")
    if how == "clean":
        daemon.stop()
        return []
    with daemon.connect() as server:
        server.open_table("replay").set(IDS, START_ROWS * 0)
        if how == "restore":
            server.open_table("async").set(IDS, START_ROWS * 0)
    daemon.kill()
    if how == "restore_from":  # the later starts begin with an empty store beside it
        rows, other = daemon.folder / "rows", daemon.folder / "other"
        rows.rename(other)
        rows.mkdir()
        return ["--restore-from", str(other)]
    return ["--restore", str(made.id)] if how == "restore" else []


def check_data(daemon, how: str) -> None:
    with daemon.connect() as server:
        if how == "nothing":
            assert server.tables() == []
            return
        for name in ("replay", "async", "sync"):
            assert (server.open_table(name).get(IDS) == START_ROWS).all(), name


def await_ready_or_end(daemon, seen: int) -> bool:
    """False if the daemon ended. Reads this from the log, since a client would make the server allocate more."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not daemon.is_running:
            return False
        if any(' msg="ready" ' in line for line in daemon.log_lines()[seen:]):
            return True
        time.sleep(0.002)
    raise AssertionError("neither ready nor ended:\n" + daemon.log.read_text()[-3000:])


def end_of(daemon, lines: list[str]) -> str:
    """The reason of a start that failed: its status must be 1, and one line must say why."""
    daemon.await_end(1)
    errors = [log_fields(line) for line in lines if log_fields(line)["level"] == "error"]
    assert len(errors) == 1 and errors[0]["msg"] == "embtierd ends", lines
    assert errors[0]["why"], lines
    return f"{errors[0]['err']}: {errors[0]['why']}"


@pytest.mark.parametrize("how", ["nothing", "clean", "crash", "restore", "restore_from"])
def test_a_start_whose_allocation_fails_says_so_and_the_next_one_works(make_daemon, rng, how):
    daemon = make_daemon(SMALL, lanes=1)
    arguments = make_data(daemon, how)
    allocations = Allocations(daemon)
    rows, kept = daemon.folder / "rows", daemon.folder / "kept"
    shutil.copytree(rows, kept)

    def start(n: int) -> bool:
        """True if the n-th allocation failed (0: none fails)."""
        shutil.rmtree(rows)
        shutil.copytree(kept, rows)
        allocations.forget()
        allocations.fail(n)
        seen = len(daemon.log_lines())
        daemon.launch(*arguments)
        ready = await_ready_or_end(daemon, seen)
        failed = allocations.end()
        if not ready:
            assert failed
            reasons.add(end_of(daemon, daemon.log_lines()[seen:]))
            assert not allocations.left(), f"{n}: {allocations.left()}"
            allocations.forget()
            # --restore-from makes some things only once: the log of the next start says so too.
            is_made = how == "restore_from" and any(
                log_fields(line)["msg"] == "table created" for line in daemon.log_lines()[seen:]
            )
            daemon.start(*([] if is_made else arguments))
        elif failed:
            fallbacks.append(allocations.failed_site)
        check_data(daemon, how)
        daemon.stop()
        assert not allocations.left(), f"{n}: {allocations.left()}"
        return failed

    reasons, fallbacks = set(), []
    assert not start(0)
    calls = count_calls(daemon, allocations, arguments, rows, kept)
    for n in sample(rng, calls, SAMPLED_STARTS):
        start(n)
    for n in beyond(calls):
        if not start(n):
            break
    print(f"{how}: {calls} allocations, fallbacks {fallbacks}, reasons {sorted(reasons)}")


def count_calls(daemon, allocations, arguments, rows, kept) -> int:
    shutil.rmtree(rows)
    shutil.copytree(kept, rows)
    allocations.forget()
    seen = len(daemon.log_lines())
    daemon.launch(*arguments)
    assert await_ready_or_end(daemon, seen)
    calls = allocations.calls
    daemon.stop()
    return calls


def test_a_stop_whose_allocation_fails_loses_nothing_or_says_so(make_daemon, rng):
    daemon = make_daemon(SMALL, lanes=1)
    make_data(daemon, "clean")
    allocations = Allocations(daemon)
    outcomes = {}

    def stop(n: int) -> bool:
        allocations.forget()
        daemon.start()
        with daemon.connect() as server:
            for name in ("replay", "async", "sync"):
                server.open_table(name).set(IDS, START_ROWS)
        time.sleep(0.05)
        allocations.fail(n)
        seen = len(daemon.log_lines())
        daemon._process.terminate()
        code = daemon._process.wait(60)
        failed = allocations.end()
        lines = [log_fields(line) for line in daemon.log_lines()[seen:]]
        errors = [line for line in lines if line["level"] == "error"]
        assert code in (0, 1), (n, code, lines)
        assert bool(errors) == (code == 1), (n, lines)
        assert failed or code == 0
        outcomes[code] = outcomes.get(code, 0) + 1
        assert not allocations.left(), f"{n}: {allocations.left()}"
        allocations.forget()
        daemon.start()
        check_data(daemon, "clean")
        daemon.stop()
        return failed

    stop(0)
    allocations.forget()
    daemon.start()
    with daemon.connect() as server:
        server.open_table("replay").set(IDS, START_ROWS)
    time.sleep(0.05)
    allocations.fail(0)
    daemon.stop()
    calls = allocations.calls
    for n in sample(rng, calls, SAMPLED_STARTS):
        stop(n)
    for n in beyond(calls):
        if not stop(n):
            break
    print(f"stop: {calls} allocations, exit codes {outcomes}")
