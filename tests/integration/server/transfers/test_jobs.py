# SPDX-License-Identifier: Apache-2.0
"""Long work does not hold up other requests, and ends when no client wants it any more.

A table with so many rows that no test lasts until it is filled stands for one that takes hours."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from control_requests import KINDS
from daemons import CLI, SANITIZED, Daemon
from raw_client import GET, RawClient, field, fields
from stores import run_cli

import embtier

ROOT = Path(__file__).resolve().parents[4]
NOBODY = 65534
LIMIT_S = 60
MANY_ROWS = 100_000_000  # of one number each; filling them takes minutes
FILLS, OF_ONE_USER = 4, 3  # tables that are filled at a time
WAITING_MOST = 128
BUSY, TIMEOUT = 12, 13
CHECKPOINT_DELETE = 12
CREATE, CHECKPOINT_CREATE, LOAD_OPEN, LOAD_END = 3, 9, 18, 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def await_that(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # @what may start a process


def command(daemon: Daemon, *words: str) -> list:
    return [CLI, "--socket", daemon.socket, "-t", "0", *words]


def jobs(daemon: Daemon) -> list[dict]:
    done = subprocess.run(command(daemon, "-o", "json", "jobs"), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def job_of(daemon: Daemon, table: str) -> dict | None:
    return next((job for job in jobs(daemon) if job["what"] == table), None)


def state_of(daemon: Daemon, table: str) -> str | None:
    return (job_of(daemon, table) or {}).get("state")


def cancel(daemon: Daemon, id: int, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(daemon, "jobs", "cancel", str(id)), capture_output=True, text=True, **options
    )


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts clients that run during the test, and end with it."""
    clients: list[subprocess.Popen] = []

    def begin(daemon: Daemon, *words: str, **options) -> subprocess.Popen:
        clients.append(
            subprocess.Popen(
                command(daemon, *words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL, text=True, **options,
            )
        )  # fmt: skip
        return clients[-1]

    yield begin
    for client in clients:
        if client.poll() is None:
            client.kill()
        client.wait()
        client.stderr.close()


def fill(begin: Callable, daemon: Daemon, name: str, rows: int = MANY_ROWS, **options) -> subprocess.Popen:
    return begin(daemon, "table", "create", name, "--rows", str(rows), "--dim", "1", "--eager", **options)


@pytest.fixture
def open_daemon(make_daemon) -> Daemon:
    """A daemon that every user can reach."""
    daemon = make_daemon({"socket": {"mode": "0666"}})
    Path(daemon.path).parent.chmod(0o755)
    daemon.start()
    return daemon


def test_a_fill_of_hours_holds_up_no_client_and_can_be_cancelled(own_daemon, begin):
    client = fill(begin, own_daemon, "huge")
    await_that(lambda: state_of(own_daemon, "huge") == "running")
    with own_daemon.connect() as server:
        small = server.create_table("small", 4)
        small.set([1, 2], np.ones((2, 4)))
        made = server.checkpoint()
        assert "huge" not in server.checkpoint_info(made.id).tables
        server.create_table("eager", 4, rows=100, eager=True)
        server.restore_checkpoint(made.id, ["small"], name="restored")
        assert (server.open_table("restored").get([1, 2]) == 1).all()
        server.drop_table("small")
        job = job_of(own_daemon, "huge")
        assert job["state"] == "running" and job["kind"] == "table create" and job["pid"] == client.pid
        assert server.status()["metrics"]["jobs"] == {"waiting": 0, "running": 1}
        assert cancel(own_daemon, job["id"]).returncode == 0
        assert client.wait(LIMIT_S) == 1
        assert "cancelled" in client.stderr.read()
        assert {info.name for info in server.tables()} == {"restored", "eager"}
        server.create_table("huge", 4)
    assert jobs(own_daemon) == []
    own_daemon.stop()


def test_what_is_filled_ends_with_its_client_and_with_the_server(own_daemon, begin):
    client = fill(begin, own_daemon, "left")
    await_that(lambda: state_of(own_daemon, "left") == "running")
    client.kill()
    await_that(lambda: not jobs(own_daemon))
    fill(begin, own_daemon, "kept")
    await_that(lambda: state_of(own_daemon, "kept") == "running")
    own_daemon.stop()
    own_daemon.start()
    with own_daemon.connect() as server:
        assert list(server.tables()) == []


def test_tables_made_and_dropped_meanwhile_are_in_a_checkpoint_whole_or_not_at_all(own_daemon):
    ids, over, users = np.arange(500), threading.Event(), 3
    counts = [0] * users  # of tables that have come
    failures: list[BaseException] = []

    def come_and_go(user: int) -> None:
        try:
            with own_daemon.connect() as server:
                for i in range(10**6):
                    if over.is_set():
                        return
                    name = f"t{user}.{i}"
                    durability = ("replay", "async")[i % 2]
                    server.create_table(name, 8, durability=durability).set(ids, np.full((500, 8), i + 1))
                    counts[user] += 1
                    if i % 3:
                        server.drop_table(name)
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    try:
        await_that(lambda: min(counts) > 0 or failures)
        with own_daemon.connect() as server:
            made = [server.checkpoint() for _ in range(4 if SANITIZED else 8)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures
    seen = 0
    with own_daemon.connect() as server:
        for checkpoint in made:
            for name in server.checkpoint_info(checkpoint.id).tables[-4:]:
                server.restore_checkpoint(checkpoint.id, [name], name="then")
                numbers = set(np.unique(server.open_table("then").get(ids)).tolist())
                assert numbers <= {0, int(name.split(".")[1]) + 1}, name
                assert len(numbers) == 1 or checkpoint.cut_updates, name  # it has a part of an update, on a very busy machine
                server.drop_table("then")
                seen += 1
    assert seen > 0


def test_a_table_dropped_while_a_checkpoint_writes_its_rows_is_not_half_in_it(own_daemon):
    """All tables have their rows before the checkpoint begins, so a table that is in it has them too. While a client asks for
    rows, a checkpoint is slow on few cores, so tables are dropped in the middle of it."""
    ids, names = np.arange(500), [f"t{i}" for i in range(24)]
    many = 50_000 if SANITIZED else 100_000
    seen, over = 0, threading.Event()

    def ask() -> None:
        with own_daemon.connect() as server:
            table = server.open_table("dirty")
            while not over.is_set():
                if slow.wait(1):
                    table.get([1])
                    time.sleep(0.001)

    asking, slow = threading.Thread(target=ask), threading.Event()
    with contextlib.ExitStack() as stack:
        server, other = (stack.enter_context(own_daemon.connect()) for _ in range(2))
        stack.callback(lambda: over.set() or (asking.ident and asking.join()))
        dirty = server.create_table("dirty", 8)
        for round_ in range(1 if SANITIZED else 2):
            dirty.set(np.arange(many), np.full((many, 8), round_))
            if not asking.ident:
                asking.start()
            for name in names:
                server.create_table(name, 8).set(ids, np.ones((500, 8)))
            made: list[int] = []
            thread = threading.Thread(target=lambda made=made: made.append(other.checkpoint().id))
            slow.set()
            thread.start()
            for name in names:
                server.drop_table(name)
            slow.clear()  # the tables are dropped by now
            thread.join()
            tables = server.checkpoint_info(made[0]).tables
            for name in set(names) & set(tables):
                server.restore_checkpoint(made[0], [name], name="then")
                assert (server.open_table("then").get(ids) == 1).all(), name
                server.drop_table("then")
                seen += 1
            assert "dirty" in tables
    print(f"{seen} of them were in a checkpoint")


@pytest.fixture
def held_drop(make_daemon, begin) -> Iterator[Daemon]:
    """A daemon with table `held`, whose drop has begun and waits for a GET that does not end, and table `waiting`."""
    daemon = make_daemon({"cache": {"tiers": [Daemon.dram()]}})
    trigger = daemon.folder / "slow"
    daemon.with_fault(
        "slow_reads", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_READ_MS="3600000",
        EMBTIER_FAULT_THREAD="reader",
    )  # fmt: skip
    daemon.start()
    with daemon.connect() as server:
        server.create_table("held", 8, 1000).set(np.arange(1000), np.ones((1000, 8)))
        server.create_table("waiting", 8, 1000)
    daemon.restart()
    with RawClient(daemon.path) as client:
        trigger.touch()
        at = client.payload + 4096
        client.write(at, np.arange(1).tobytes())
        client.submit(GET, [(client.handle("held"), at, at + 64, 1)])
        await_that(lambda: daemon.metrics()["reading_rows"] > 0)
        begin(daemon, "table", "drop", "held")
        await_that(lambda: state_of(daemon, "held") == "running")
        yield daemon


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_drop_that_waits_is_withdrawn_with_its_client(held_drop, begin, how):
    client = begin(held_drop, "table", "drop", "waiting")
    await_that(lambda: state_of(held_drop, "waiting") == "waiting")
    client.send_signal(how)
    client.wait(LIMIT_S)
    await_that(lambda: state_of(held_drop, "waiting") is None)
    if how == signal.SIGINT:
        assert "cancels work that still waits" in client.stderr.read()
    with held_drop.connect() as server:
        table = server.open_table("waiting")
        table.set([1], np.ones((1, 8)))
        assert (table.get([1]) == 1).all()
        states = {info.name: info.state for info in server.tables()}
        assert states["waiting"] == "live" and states.get("held") != "live"


def kinds_that_stop() -> set[str]:
    """From the server's sources: a job of such a kind can be cancelled while it runs."""
    kinds = set()
    for source in (ROOT / "daemon" / "jobs").rglob("*_job.c"):
        for body in re.findall(r"struct job_kind \w+ = \{(.*?)\};", source.read_text(), re.DOTALL):
            if ".stops = true" in body:
                kinds.add(re.search(r'\.word = "([^"]+)"', body)[1])
    return kinds


def test_the_help_tells_how_each_kind_of_job_ends_that_runs():
    kinds = kinds_that_stop()
    assert {"reshard", "import"} <= kinds
    text = subprocess.run([CLI, "jobs", "cancel", "--help"], check=True, capture_output=True, text=True).stdout
    listed = text.partition("by its kind:\n")[2].partition("All other kinds")[0]
    told = {kind for line in listed.splitlines() for kind in re.split(r" {2,}", line.strip())[0].split(", ")}
    assert kinds <= told


def test_a_drop_that_waits_can_be_cancelled_and_one_that_has_begun_cannot(held_drop, begin):
    client = begin(held_drop, "table", "drop", "waiting")
    await_that(lambda: state_of(held_drop, "waiting") == "waiting")
    refused = cancel(held_drop, job_of(held_drop, "held")["id"])
    assert refused.returncode == 1 and "has begun" in refused.stderr
    assert cancel(held_drop, job_of(held_drop, "waiting")["id"]).returncode == 0
    assert client.wait(LIMIT_S) == 1 and "before it had begun" in client.stderr.read()
    with held_drop.connect() as server:
        server.open_table("waiting").set([1], np.ones((1, 8)))
    assert "there is no job" in cancel(held_drop, 10**6).stderr


@pytest.mark.parametrize("name", ["\u202e\x9b2J", "\u202e" * 42, "a/b"], ids=["controls", "long", "slash"])
def test_a_scan_of_a_name_that_no_table_can_have_is_listed_without_it(make_daemon, name):
    """The scan waits for another one, which waits until its checkpoint's files are opened."""
    daemon = make_daemon({"checkpoints": {"interval_seconds": 0}})
    trigger = daemon.folder / "slow"
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_PATH="/checkpoints/")
    daemon.start()
    with daemon.connect() as server:
        server.create_table("rows", 8).set([1], np.ones((1, 8)))
        server.checkpoint()
    with RawClient(daemon.path) as first, RawClient(daemon.socket) as second:
        trigger.touch()
        first.send(KINDS["scan_open"].number, field(2, "rows"))
        await_that(lambda: state_of(daemon, "rows") == "running")
        second.send(KINDS["scan_open"].number, field(2, name))
        await_that(lambda: len(jobs(daemon)) == 2)
        found = [(job["kind"], job["what"], job["state"]) for job in jobs(daemon)]
        assert found == [("export", "rows", "running"), ("export", "", "waiting")]
        trigger.unlink()
        assert 12 in first.receive_last()
        assert fields(second.receive_last()[3][0])[1] == [embtier.errors.code_of("NO_TABLE")]
    await_that(lambda: not jobs(daemon))


# ---- Imports and exports ----


@pytest.fixture
def numbers(tmp_path) -> Path:
    np.save(tmp_path / "rows.npy", np.zeros((400_000, 16), np.float32))  # takes some hundred jobs
    return tmp_path / "rows.npy"


TRIES = 50  # a transfer may have ended before the test has seen it


def seen(daemon: Daemon, client: subprocess.Popen, kind: str) -> dict | None:
    """The transfer among the jobs, or None if it has ended."""
    deadline = time.monotonic() + LIMIT_S
    while client.poll() is None:
        assert time.monotonic() < deadline
        for job in jobs(daemon):
            if job["kind"] == kind:
                return job
    return None


def forget(daemon: Daemon, client: subprocess.Popen, made: Path | None) -> None:
    """Removes the result of a finished transfer, so that it can be tried again."""
    client.send_signal(signal.SIGCONT)
    assert client.wait(LIMIT_S) == 0, client.stderr.read()
    if made:
        shutil.rmtree(made)
    else:
        with daemon.connect(arena_bytes=0) as server:
            server.drop_table("t")


def stopped(daemon: Daemon, begin: Callable, kind: str, *words: str, made: Path | None = None):
    """Starts a transfer and stops its client in the middle of it, in any step. Returns the client and the job."""
    for _ in range(TRIES):
        client = begin(daemon, *words)
        job = seen(daemon, client, kind)
        if job:
            client.send_signal(signal.SIGSTOP)
        if job and client.poll() is None and [found["id"] for found in jobs(daemon)] == [job["id"]]:
            return client, job
        forget(daemon, client, made)
    raise AssertionError(f"no {kind} was seen")


def test_an_import_is_one_job_that_can_be_cancelled(own_daemon, begin, numbers):
    client, first = stopped(own_daemon, begin, "import", "import", str(numbers), "--as", "t")
    for _ in range(5):
        (job,) = jobs(own_daemon)
        assert (job["id"], job["kind"], job["pid"]) == (first["id"], "import", client.pid)
        assert job["age_ms"] >= first["age_ms"]
    done = cancel(own_daemon, first["id"])
    assert done.returncode == 0 and "stops soon, and no table is made" in done.stdout, done
    await_that(lambda: not jobs(own_daemon))
    client.send_signal(signal.SIGCONT)
    assert client.wait(LIMIT_S) == 1
    assert "cancelled" in client.stderr.read()
    with own_daemon.connect() as server:
        await_that(lambda: not server.tables())
        server.create_table("t", 2)  # the name is free
    assert cancel(own_daemon, first["id"]).returncode == 1


def test_an_import_that_runs_is_cancelled_by_its_number(own_daemon, begin, numbers):
    for _ in range(TRIES):
        client = begin(own_daemon, "import", str(numbers), "--as", "t")
        job = seen(own_daemon, client, "import")
        if job and cancel(own_daemon, job["id"]).returncode == 0 and client.wait(LIMIT_S) == 1:
            break
        forget(own_daemon, client, None)
    else:
        raise AssertionError("no import was cancelled")
    assert "cancelled" in client.stderr.read()
    with own_daemon.connect() as server:
        await_that(lambda: not server.tables())


def test_an_export_is_one_job_that_can_be_cancelled(own_daemon, begin, numbers, tmp_path):
    subprocess.run(command(own_daemon, "import", numbers, "--as", "t"), check=True, stdout=subprocess.DEVNULL)
    words = ("export", "t", str(tmp_path / "out"))
    client, job = stopped(own_daemon, begin, "export", *words, made=tmp_path / "out")
    assert cancel(own_daemon, job["id"]).returncode == 0
    await_that(lambda: not jobs(own_daemon))
    client.send_signal(signal.SIGCONT)
    assert client.wait(LIMIT_S) == 1 and "cancelled" in client.stderr.read()
    assert not (tmp_path / "out").exists()


@needs_root
def test_no_user_cancels_another_users_import(open_daemon, begin, numbers):
    client, job = stopped(open_daemon, begin, "import", "import", str(numbers), "--as", "t")
    done = cancel(open_daemon, job["id"], user=65534, group=65534, extra_groups=[])
    assert done.returncode == 1 and "another user" in done.stderr, done
    client.send_signal(signal.SIGCONT)
    assert client.wait(LIMIT_S) == 0, client.stderr.read()


@needs_root
def test_twenty_jobs_of_one_user_do_not_keep_another_user_waiting(open_daemon, begin):
    for i in range(20):
        fill(begin, open_daemon, f"root.{i}")
    await_that(lambda: len(jobs(open_daemon)) == 20)
    await_that(lambda: sum(job["state"] == "running" for job in jobs(open_daemon)) == OF_ONE_USER)
    other = fill(begin, open_daemon, "other", rows=1000, user=NOBODY)
    assert other.wait(LIMIT_S) == 0, other.stderr.read()
    mine = jobs(open_daemon)[0]
    refused = cancel(open_daemon, mine["id"], user=NOBODY)
    assert refused.returncode == 1 and "another user" in refused.stderr
    other = fill(begin, open_daemon, "long", user=NOBODY)
    await_that(lambda: state_of(open_daemon, "long") == "running")
    assert cancel(open_daemon, job_of(open_daemon, "long")["id"], user=NOBODY).returncode == 0
    assert other.wait(LIMIT_S) == 1


@needs_root
def test_users_take_turns_where_one_job_runs_at_a_time(open_daemon):
    """Twenty jobs of one user wait when another user's comes, which must not be the last. One of several tries is enough, since
    the twenty may be done before it is sent."""
    with open_daemon.connect() as server, contextlib.ExitStack() as stack:
        server.create_table("rows", 8).set(np.arange(50_000), np.ones((50_000, 8)))
        clients = [stack.enter_context(RawClient(open_daemon.path, arena_bytes=0)) for _ in range(20)]
        os.seteuid(NOBODY)
        try:
            other = stack.enter_context(RawClient(open_daemon.path, arena_bytes=0))
        finally:
            os.seteuid(0)
        for _ in range(20):
            for client in clients:
                client.send(CHECKPOINT_CREATE, b"")
            server.status()  # when this is answered, the server has taken in the requests
            other.send(CHECKPOINT_CREATE, b"")
            ids = [id_of(client) for client in [*clients, other]]
            assert len(set(ids)) == 21
            if ids[-1] < sorted(ids)[10]:
                return
    raise AssertionError(ids)


def id_of(client: RawClient) -> int:
    """The id of the checkpoint that this client asked for."""
    return fields(client.receive_last()[10][0])[1][0]


def test_a_user_has_no_more_than_so_many_jobs_waiting(own_daemon):
    def spec(name: str) -> bytes:
        return field(1, field(1, name) + field(2, MANY_ROWS) + field(3, 1) + field(4, 1) + field(5, 1) + field(6, 1)
                     + field(10, 1))  # fmt: skip

    with contextlib.ExitStack() as stack:
        for i in range(OF_ONE_USER + WAITING_MOST):
            client = stack.enter_context(RawClient(own_daemon.path, arena_bytes=0))
            client.send(CREATE, spec(f"t{i}"))
            if i < OF_ONE_USER:
                await_that(lambda i=i: own_daemon.metrics()["jobs"]["running"] == i + 1)
        await_that(lambda: own_daemon.metrics()["jobs"]["waiting"] == WAITING_MOST)
        client = stack.enter_context(RawClient(own_daemon.path, arena_bytes=0))
        error = client.call(CREATE, spec("one.more"))[3][0]
        assert error[1] == BUSY and b"jobs of this user wait" in error, error
        with own_daemon.connect() as server:
            server.create_table("at.once", 4)  # this is not a long job
    await_that(lambda: own_daemon.metrics()["jobs"] == {"waiting": 0, "running": 0})


def test_jobs_of_one_name_run_one_after_the_other(own_daemon, begin):
    """A client that creates a table which is just being created waits for it, as if it had come later."""
    client = fill(begin, own_daemon, "same")
    await_that(lambda: state_of(own_daemon, "same") == "running")
    words = ["table", "create", "same", "--rows", "7", "--dim", "4", "--if-not-exists"]
    second = begin(own_daemon, *words)
    await_that(lambda: len(jobs(own_daemon)) == 2)
    assert [job["state"] for job in jobs(own_daemon)] == ["running", "waiting"]
    client.kill()
    assert second.wait(LIMIT_S) == 0
    with own_daemon.connect() as server:
        assert server.open_table("same").spec.dim == 4


def test_when_the_servers_checkpoint_is_cancelled_another_one_is_due(make_daemon, tmp_path):
    daemon = make_daemon({"checkpoints": {"interval_seconds": 1, "keep": 1}})
    trigger = tmp_path / "trigger"
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_PATH="checkpoints/")
    daemon.start()

    def automatic(server: embtier.Server) -> int:
        return max((made.id for made in server.checkpoints() if made.automatic), default=0)

    def waiting() -> dict | None:
        return next((job for job in jobs(daemon) if job["kind"] == "checkpoint create"), None)

    with daemon.connect(timeout=LIMIT_S) as server, RawClient(daemon.path, arena_bytes=0) as other:
        table = server.create_table("t", 4)
        first = server.checkpoint()
        server.checkpoint()
        trigger.touch()
        other.send(CHECKPOINT_DELETE, field(1, first.id))  # checkpoints wait in the same line
        await_that(Path(f"{trigger}.waits").exists)
        table.set([1], np.ones((1, 4)))
        await_that(waiting)
        assert waiting()["state"] == "waiting"
        assert cancel(daemon, waiting()["id"]).returncode == 0
        trigger.unlink()
        await_that(lambda: daemon.logged("a checkpoint of the server's own was cancelled"))
        before = automatic(server)

        def is_made() -> bool:
            table.set([1], np.ones((1, 4)))
            return automatic(server) > before

        await_that(is_made)


@pytest.mark.parametrize("is_set_live", [False, True])
def test_a_client_that_says_nothing_does_not_hold_an_import_for_ever(make_daemon, is_set_live):
    daemon = make_daemon({} if is_set_live else {"checkpoints": {"transfer_idle_seconds": 1}})
    daemon.start()
    spec = field(1, "held") + field(3, 4) + field(4, 1) + field(5, 1) + field(6, 1)
    with RawClient(daemon.path) as client, daemon.connect() as server:
        reply = client.call(LOAD_OPEN, field(1, spec))
        assert 6 in reply, reply
        if is_set_live:
            assert run_cli(daemon, "knob", "set", "checkpoints.transfer_idle_seconds", "1").returncode == 0

        def is_free() -> bool:
            try:
                server.create_table("held", 4)
            except (embtier.ExistsError, embtier.BusyError):
                return False
            return True

        await_that(is_free)
        error = client.call(LOAD_END)[3][0]
        assert error[1] == TIMEOUT and b"checkpoints.transfer_idle_seconds" in error
        assert 6 in client.call(LOAD_OPEN, field(1, spec.replace(b"held", b"next")))  # the client can begin another load
    assert daemon.logged("its client sent nothing")
