# SPDX-License-Identifier: Apache-2.0
"""A client or user leaves part of every finite resource to others, and gives its own part back."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from daemons import CLI, HELPERS, SANITIZED, Daemon
from raw_client import RawClient, field, fields

import embtier

LIMIT_S = 60
COMMAND = [CLI, "--timeout", str(LIMIT_S)]
STEP_BYTES = 8 << 20
LARGE = 64 << 20
PROGRESS, TABLE, TABLES, CHECKPOINT, CHECKPOINTS, JOBS = 4, 6, 7, 10, 11, 280  # numbers of fields in a reply
LOAD_OPEN = 18
CREATE, LIST_TABLES, LIST_CHECKPOINTS, SHOW, LIST_JOBS = 3, 5, 10, 13, 280  # numbers of requests
AFTER, MOST, MORE = 260, 261, 260
PAGE = 128


def await_that(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# ---- Shared memory ----

_CONNECTS = """
import sys
sys.path.insert(0, sys.argv[1])
from raw_client import RawClient
RawClient(sys.argv[2], arena_bytes=int(sys.argv[3]))
"""


class SlowSystem:
    """A daemon some of whose system calls wait (tests/faults/held_calls.c) while a file exists."""

    def __init__(self, daemon: Daemon, folder: Path, **calls: str) -> None:
        self.daemon = daemon
        self._trigger = folder / "trigger"
        self.clients: list[subprocess.Popen] = []
        daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(self._trigger), **calls)

    def hold(self) -> None:
        self._trigger.touch()

    def let_go(self) -> None:
        self._trigger.unlink(missing_ok=True)

    def is_held(self) -> bool:
        return Path(f"{self._trigger}.waits").exists()

    def begin(self) -> subprocess.Popen:
        """Starts a client that asks for much memory."""
        self.clients.append(
            subprocess.Popen([sys.executable, "-c", _CONNECTS, HELPERS, self.daemon.socket, str(LARGE)])
        )
        return self.clients[-1]


@pytest.fixture
def slow_memory(make_daemon, tmp_path) -> Iterator[SlowSystem]:
    daemon = make_daemon({"socket": {"max_arena_bytes": LARGE}})
    slow = SlowSystem(daemon, tmp_path, EMBTIER_FAULT_BYTES=str(STEP_BYTES))
    slow.daemon.start()
    yield slow
    slow.let_go()
    for client in slow.clients:
        client.kill()
        client.wait()


def test_memory_that_is_slow_to_come_holds_up_no_client_and_is_given_back(slow_memory):
    daemon = slow_memory.daemon
    with daemon.connect(arena_bytes=1 << 20) as server:
        table = server.create_table("t", 4)
        table.set([1], np.ones((1, 4)))
        with daemon.connect(arena_bytes=0) as other:
            had, descriptors = other.status()["metrics"], daemon.all_descriptors()
        slow_memory.hold()
        client = slow_memory.begin()
        await_that(slow_memory.is_held)
        with daemon.connect(arena_bytes=0) as other:  # while the call waits
            now = other.status()["metrics"]
            assert now["session_arena_bytes"] >= had["session_arena_bytes"] + LARGE  # it counts from the beginning
        assert (table.get([1]) == 1).all()
        client.kill()
        client.wait()
        assert slow_memory.is_held()
        assert (table.get([1]) == 1).all()
        slow_memory.let_go()
        daemon.await_metric("sessions", had["sessions"])
        daemon.await_metric("session_arena_bytes", had["session_arena_bytes"])
        with daemon.connect(arena_bytes=0):
            daemon.must_have_closed_all_but(descriptors)
        with RawClient(daemon.path, arena_bytes=LARGE) as again:
            assert again.arena_bytes >= LARGE


def test_a_client_that_waits_for_memory_is_told(slow_memory):
    slow_memory.hold()
    client = RawClient(slow_memory.daemon.socket, hello=False)
    heard = threading.Event()
    receive = client.receive

    def listen():
        reply = receive()
        if PROGRESS in reply:
            heard.set()
        return reply

    client.receive = listen
    thread = threading.Thread(target=client.hello, args=(LARGE, 8))
    thread.start()
    try:
        assert heard.wait(LIMIT_S)
    finally:
        slow_memory.let_go()
        thread.join()
    assert client.arena_bytes >= LARGE
    client.close()


def test_a_stop_while_memory_comes_slowly_is_a_stop(slow_memory):
    daemon = slow_memory.daemon
    with daemon.connect() as server:
        server.create_table("t", 4, rows=10).set([1], np.ones((1, 4)))
    slow_memory.hold()
    client = slow_memory.begin()
    await_that(slow_memory.is_held)
    with ThreadPoolExecutor() as pool:
        stop = pool.submit(daemon.stop)
        await_that(lambda: not Path(daemon.path).exists())  # the stop has begun
        slow_memory.let_go()
        stop.result()
    assert client.wait(LIMIT_S) != 0
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("t").get([1]) == 1).all()


KEPT = 4 << 20


def bytes_of(descriptors: list[int]) -> int:
    return sum(os.fstat(fd).st_blocks for fd in descriptors) * 512


@pytest.fixture
def limited_daemon(make_daemon) -> Daemon:
    """A daemon that has shared memory for two clients of one user."""
    limits = {"max_arena_bytes": KEPT, "max_user_arena_bytes": 2 * KEPT, "max_total_arena_bytes": 4 * KEPT}
    daemon = make_daemon({"socket": limits})
    daemon.start()
    return daemon


def test_a_client_that_hangs_up_and_keeps_descriptors_keeps_no_memory(limited_daemon):
    kept: list[RawClient] = []
    try:
        for _ in range(10):
            client = RawClient(limited_daemon.path, arena_bytes=KEPT)
            kept.append(client)
            client.write(client.payload, b"its own")
            client.socket.close()
            limited_daemon.await_metric("session_arena_bytes", 0)
            assert bytes_of([fd for one in kept for fd in one.descriptors]) <= 2 * KEPT
        assert bytes_of([one.descriptors[1] for one in kept]) == 0
        assert kept[0].read(kept[0].payload, 7) == bytes(7)
    finally:
        for client in kept:
            client.close()


def test_completions_of_many_slots_count_too(limited_daemon):
    with RawClient(limited_daemon.path, arena_bytes=KEPT, slots=1024):
        beyond = 64 * (1024 - 64)  # bytes of completions beyond those of a usual session
        assert limited_daemon.metrics()["session_arena_bytes"] >= KEPT + beyond
        with RawClient(limited_daemon.path, hello=False) as other:
            refused = other.call(2, field(1, 1) + field(2, 1) + field(3, KEPT) + field(4, 8))
            assert fields(refused[3][0])[1] == [embtier.errors.code_of("BUSY")]
    limited_daemon.await_metric("session_arena_bytes", 0)


def test_a_client_that_is_dropped_has_its_answers_until_it_hangs_up_and_they_count(limited_daemon):
    client, me = RawClient(limited_daemon.path, arena_bytes=KEPT), str(os.geteuid())
    client.write(client.payload, b"its own")
    client.socket.sendall(bytes(64))  # not a frame
    with pytest.raises(ConnectionError):
        while client.receive():
            pass
    for _ in range(10):  # whenever the lanes let go of it
        assert users(limited_daemon)[me]["arena_bytes"]["used"] >= KEPT
        assert client.read(client.payload, 7) == b"its own"
    with RawClient(limited_daemon.path, arena_bytes=KEPT):  # there is room for two clients
        with RawClient(limited_daemon.path, hello=False) as third:
            refused = third.call(2, field(1, 1) + field(2, 1) + field(3, KEPT) + field(4, 8))
            assert fields(refused[3][0])[1] == [embtier.errors.code_of("BUSY")]
    client.socket.close()
    limited_daemon.await_metric("session_arena_bytes", 0)
    assert bytes_of([client.descriptors[1]]) == 0
    client.close()


def spec_state(daemon: Daemon, name: str) -> str:
    with daemon.connect(arena_bytes=0) as server:
        return next((info.state for info in server.tables() if info.name == name), "")


@pytest.mark.parametrize("key", ["max_sessions", "max_user_sessions"])
def test_a_client_over_the_limit_of_sessions_is_told_which(make_daemon, key):
    daemon = make_daemon({"socket": {"max_sessions": 4 if key == "max_sessions" else 9, "max_user_sessions": 4}})
    daemon.start()
    with contextlib.ExitStack() as kept:
        for _ in range(4):
            kept.enter_context(daemon.connect(arena_bytes=0))
        for _ in range(20):  # refused before or after its hello
            with pytest.raises(embtier.BusyError, match=f"socket.{key}"):
                daemon.connect(arena_bytes=0)
        done = subprocess.run([*COMMAND, "--socket", daemon.socket, "status"], capture_output=True, text=True)
        assert done.returncode != 0 and f"socket.{key}" in done.stderr, done

    def is_free() -> bool:
        with contextlib.suppress(embtier.BusyError):
            daemon.connect(arena_bytes=0).close()
            return True
        return False

    await_that(is_free)


def half_closed(daemon: Daemon, *sent_before: bytes, shuts: bool = True) -> RawClient:
    """A client that has not received its descriptors, and will send nothing more."""
    client = RawClient(daemon.path, hello=False)
    client.send(2, field(1, 1) + field(2, 1) + field(3, KEPT // 4) + field(4, 8))
    await_that(lambda: embtier.__version__.encode() in client.socket.recv(1 << 16, socket.MSG_PEEK))
    for data in sent_before:
        client.socket.sendall(data)
        await_that(lambda: daemon.logged("client dropped"))
    if shuts:
        client.socket.shutdown(socket.SHUT_WR)
    return client


def test_descriptors_that_are_not_received_count_until_they_are(limited_daemon):
    """The system limits the descriptors in flight of the server's user (RLIMIT_NOFILE): beyond that, other clients' could not be
    sent."""
    me = str(os.geteuid())

    def sessions() -> int:
        return users(limited_daemon)[me]["sessions"]["used"] - 1  # without that of the request itself

    clients = [half_closed(limited_daemon), half_closed(limited_daemon), half_closed(limited_daemon, bytes(64))]
    limited_daemon.await_metric("session_arena_bytes", 0)
    for _ in range(10):  # whenever the server looks
        assert sessions() == 3
    with pytest.raises(ConnectionError):
        while clients[0].receive():
            pass
    assert len(clients[0].descriptors) == 3
    await_that(lambda: sessions() == 2)
    for client, left in zip(clients[1:], (1, 0), strict=True):
        client.close()
        await_that(lambda left=left: sessions() == left)
    clients[0].close()


def test_a_client_that_sends_its_own_socket_does_not_count_for_ever(limited_daemon):
    """The message comes when the server no longer reads from the client; no other process could close that socket."""
    me = str(os.geteuid())
    client = half_closed(limited_daemon, shuts=False)
    spec = field(1, "long") + field(2, 10**8) + field(3, 1) + field(4, F32) + field(5, NONE) + field(6, ZEROS)
    client.send(CREATE, field(1, spec + field(10, 1)))  # while a job is under way the server receives nothing
    await_that(lambda: spec_state(limited_daemon, "long"))
    socket.send_fds(client.socket, [b"x"], [client.socket.fileno()])
    client.socket.shutdown(socket.SHUT_WR)
    client.close()
    await_that(lambda: users(limited_daemon)[me]["sessions"]["used"] == 1)


def test_answers_that_a_dropped_client_does_not_read_count_no_more(limited_daemon):
    me = str(os.geteuid())
    client = RawClient(limited_daemon.path, arena_bytes=KEPT // 4)
    client.socket.setblocking(False)
    try:
        while True:
            client.send(7, b"")
    except BlockingIOError:
        pass
    await_that(lambda: users(limited_daemon)[me]["answer_bytes"]["used"] > 0)
    await_that(lambda: limited_daemon.logged("client dropped"))
    assert users(limited_daemon)[me]["sessions"]["used"] == 2
    await_that(lambda: users(limited_daemon)[me]["answer_bytes"]["used"] == 0)
    client.close()


def test_descriptors_that_are_not_received_do_not_hold_up_a_stop(limited_daemon):
    client = half_closed(limited_daemon)
    limited_daemon.await_metric("session_arena_bytes", 0)
    limited_daemon.stop()
    client.close()


def test_a_stop_leaves_a_client_its_answers(limited_daemon):
    client = RawClient(limited_daemon.path, arena_bytes=KEPT)
    dropped = RawClient(limited_daemon.path, arena_bytes=KEPT)
    for one in (client, dropped):
        one.write(one.payload, b"its own")
    dropped.socket.sendall(bytes(64))
    with pytest.raises(ConnectionError):
        while dropped.receive():
            pass
    limited_daemon.stop()
    for one in (client, dropped):
        assert one.read(one.payload, 7) == b"its own"
        one.close()


# ---- The control thread waits for no disk ----

F32, NONE, ZEROS = 1, 0, 0


def spec_of(name: str) -> bytes:
    return field(1, name) + field(3, 4) + field(4, F32) + field(5, NONE) + field(6, ZEROS)


def is_answered(daemon: Daemon) -> None:
    """Requests that need no disk are answered."""
    with daemon.connect(arena_bytes=1 << 20, timeout=LIMIT_S) as server:
        assert server.status()["metrics"]["tables"] >= 1
        assert (server.open_table("t").get([1]) == 1).all()
        assert "t" in [info.name for info in server.tables()]
    done = subprocess.run([*COMMAND, "--socket", daemon.socket, "-o", "json", "jobs"], stdout=subprocess.PIPE)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("path", "request_body", "payload", "reply_body"),
    [
        ("/checkpoint.json", LIST_CHECKPOINTS, b"", CHECKPOINTS),
        ("/checkpoint.json", SHOW, field(1, 1), CHECKPOINT),
        ("/checkpoint.json", 11, field(1, 1), CHECKPOINT),  # verify
        ("catalog", CREATE, field(1, spec_of("made")), TABLE),
        ("catalog", 6, field(1, "old"), TABLE),  # drop
        ("checkpoints/", 9, b"", CHECKPOINT),  # create a checkpoint
    ],
    ids=["list", "show", "verify", "create", "drop", "checkpoint"],
)
def test_a_disk_that_is_slow_holds_up_no_other_answer(
    make_daemon, tmp_path, path, request_body, payload, reply_body
):
    daemon = make_daemon()
    slow = SlowSystem(daemon, tmp_path, EMBTIER_FAULT_PATH=path)
    daemon.start()
    with daemon.connect() as server:
        server.create_table("t", 4).set([1], np.ones((1, 4)))
        server.create_table("old", 4)
        server.checkpoint()
    with RawClient(daemon.path, arena_bytes=0) as client:
        client.socket.settimeout(LIMIT_S)
        slow.hold()
        client.send(request_body, payload)
        await_that(slow.is_held)
        is_answered(daemon)
        assert slow.is_held()
        slow.let_go()
        reply = client.receive_last()
        assert reply_body in reply, reply


def test_an_import_of_a_client_that_has_gone_counts_until_it_is_cleaned_up(make_daemon, tmp_path):
    daemon, me = make_daemon(), str(os.geteuid())
    slow = SlowSystem(daemon, tmp_path, EMBTIER_FAULT_PATH="catalog")
    daemon.start()
    with daemon.connect():  # so that the user stays known
        client = RawClient(daemon.path)
        assert TABLE in client.call(LOAD_OPEN, field(1, spec_of("imported")))
        slow.hold()
        client.close()
        await_that(slow.is_held)
        assert users(daemon)[me]["loads"]["used"] == 1
        slow.let_go()
        await_that(lambda: users(daemon)[me]["loads"]["used"] == 0)


# ---- Lists come in pages ----


def pages_of(client: RawClient, request: int, reply: int, id_of: Callable[[dict], int], most: int) -> list[list[dict]]:
    pages, after = [], 0
    while True:
        page = fields(client.call(request, field(AFTER, after) + field(MOST, most))[reply][0])
        pages.append([fields(item) for item in page.get(1, [])])
        assert len(pages[-1]) <= min(most, PAGE)
        if MORE not in page:
            return pages
        after = id_of(pages[-1][-1])


@pytest.fixture
def many_tables(own_daemon) -> list[str]:
    names = [f"t{i:03}" for i in range(PAGE + 20)]
    with own_daemon.connect() as server:
        for name in names:
            server.create_table(name, 4)
    return names


def test_tables_are_listed_in_pages_that_clients_put_together(own_daemon, many_tables):
    with RawClient(own_daemon.path, arena_bytes=0) as client:
        whole = fields(client.call(LIST_TABLES)[TABLES][0])  # asks as a client that does not know pages
        assert len(whole[1]) == PAGE and whole[MORE] == [1]
        pages = pages_of(client, LIST_TABLES, TABLES, lambda info: info[2][0], 20)
        assert [len(page) for page in pages] == [20] * 7 + [8]
        names = [fields(info[3][0])[1][0].decode() for page in pages for info in page]
        assert names == many_tables
        assert len(pages_of(client, LIST_TABLES, TABLES, lambda info: info[2][0], 2**32 - 1)) == 2
        none = fields(client.call(LIST_TABLES, field(AFTER, 2**32 - 1))[TABLES][0])
        assert none == {}
    with own_daemon.connect() as server:
        assert [info.name for info in server.tables()] == many_tables
    done = subprocess.run(
        [*COMMAND, "--socket", own_daemon.socket, "-o", "json", "table", "list"], stdout=subprocess.PIPE
    )
    assert [table["name"] for table in json.loads(done.stdout)] == many_tables


def test_tables_of_a_checkpoint_are_named_and_restored_however_many(own_daemon, many_tables):
    long_names = [f"{'n' * 120}{i:03}" for i in range(500)]  # more than a page of names
    with own_daemon.connect() as server:
        for name in long_names:
            server.create_table(name, 4)
        made = server.checkpoint()
        assert sorted(made.tables) == sorted(many_tables + long_names)
        assert list(server.checkpoint_info(made.id).tables) == list(made.tables)
        with RawClient(own_daemon.path, arena_bytes=0) as client:
            shown = fields(client.call(SHOW, field(1, made.id))[CHECKPOINT][0])
            assert len(shown[6]) < len(made.tables) and shown[MORE] == [1]
        for name in many_tables:
            server.drop_table(name)
        restored = server.restore_checkpoint(made.id, many_tables)
        assert [info.name for info in restored] == many_tables
        assert all(info.state == "live" for info in restored)


def test_a_restore_names_no_more_tables_than_jobs_are_compared_by(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 4)
        made = server.checkpoint().id
        with pytest.raises(embtier.TooLargeError, match="1025 tables are named, and at most 1024"):
            server.restore_checkpoint(made, ["a"] * 1025)
        with pytest.raises(embtier.NoTableError):
            server.restore_checkpoint(made, ["a"] * 1024)
        assert [info.name for info in server.tables()] == ["t"]


def test_checkpoints_are_listed_in_pages_with_all_of_their_metadata(own_daemon):
    metadata = "m" * 4000
    with own_daemon.connect() as server:
        server.create_table("t", 4)
        made = [server.checkpoint(step=i, metadata=metadata).id for i in range(20)]
        listed = {c.id: c for c in server.checkpoints()}
        assert set(made) <= set(listed)
        assert all(listed[id].metadata == metadata for id in made)
    with RawClient(own_daemon.path, arena_bytes=0) as client:
        whole = client.call(LIST_CHECKPOINTS)[CHECKPOINTS][0]
        assert len(whole) < 70_000 and fields(whole)[MORE] == [1]
        pages = pages_of(client, LIST_CHECKPOINTS, CHECKPOINTS, lambda info: info[1][0], 7)
        assert [info[1][0] for page in pages for info in page] == sorted(listed)
        assert all(len(page) == 7 for page in pages[:-1])


def test_jobs_are_listed_in_pages(own_daemon):
    with own_daemon.connect() as server:
        server.create_table("t", 4)
    # One table takes minutes to be filled; others wait for it, since they have the same name.
    spec = field(1, "huge") + field(2, 10**8) + field(3, 1) + field(4, F32) + field(5, NONE) + field(6, ZEROS)
    clients = [RawClient(own_daemon.path, arena_bytes=0) for _ in range(12)]
    try:
        for client in clients:
            client.send(CREATE, field(1, spec + field(10, 1)))
        with RawClient(own_daemon.path, arena_bytes=0) as client:
            await_that(lambda: len(fields(client.call(LIST_JOBS)[JOBS][0]).get(1, [])) == len(clients))
            pages = pages_of(client, LIST_JOBS, JOBS, lambda job: job[1][0], 5)
            assert [len(page) for page in pages] == [5, 5, 2]
            ids = [job[1][0] for page in pages for job in page]
            assert ids == sorted(set(ids))
    finally:
        for client in clients:
            client.close()


# ---- The account of each user ----


def users(daemon: Daemon) -> dict:
    """The users in `embtier stats`."""
    command = [*COMMAND, "--socket", daemon.socket, "-o", "json", "stats"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["users"]


def test_stats_say_what_each_user_has_and_may_have(make_daemon):
    daemon = make_daemon({"checkpoints": {"max_checkpoints": 8}, "socket": {"max_user_sessions": 9}})
    daemon.start()
    me = str(os.geteuid())
    with daemon.connect(arena_bytes=1 << 20) as server, daemon.connect(arena_bytes=1 << 20) as other:
        server.create_table("t", 4)
        server.checkpoint()
        server.join("g", 2, 0)
        other.join("g", 2, 1)
        found = users(daemon)
        assert set(found) == {me}
        mine = found[me]
        assert mine["sessions"] == {"used": 3, "most": 9}  # with that of the status request itself
        assert mine["arena_bytes"]["used"] >= 2 << 20
        assert mine["arena_bytes"]["used"] <= mine["arena_bytes"]["most"]
        assert mine["checkpoints"] == {"used": 1, "most": 6}
        assert mine["groups"]["used"] == 1 and mine["group_members"]["used"] == 2
        text = subprocess.run([*COMMAND, "--socket", daemon.socket, "stats"], stdout=subprocess.PIPE, text=True).stdout
        lines = [line.split() for line in text[text.index("\nusers\n") :].splitlines()]
        assert [me, "sessions", "3", "9"] in lines and [me, "checkpoints", "1", "6"] in lines
        assert not any("imports" in line for line in lines)  # there are none
        assert server.users()[int(me)]["checkpoints"] == {"used": 1, "most": 6}
    await_that(lambda: users(daemon)[me]["sessions"]["used"] == 1)
    mine = users(daemon)[me]
    await_that(lambda: users(daemon)[me]["arena_bytes"]["used"] == 0)
    assert mine["checkpoints"]["used"] == 1 and mine["groups"]["used"] == 0


CONNECTIONS, ASKED = 250, 40  # 10,000 lists of 64 KiB


def test_lists_that_are_asked_for_and_not_read_take_no_more_than_the_users_part(own_daemon):
    me = str(os.geteuid())
    with own_daemon.connect() as server:
        server.create_table("t", 4)
        for _ in range(16):  # so that a list fills a page
            server.checkpoint(metadata="m" * 4000)
        before = server.status()["metrics"]["process_resident_bytes"]
        clients = [RawClient(own_daemon.path, arena_bytes=0) for _ in range(CONNECTIONS)]
        try:
            most = users(own_daemon)[me]["answer_bytes"]["most"]
            seen = []
            for client in clients:
                for _ in range(ASKED):
                    client.send(LIST_CHECKPOINTS, b"")
                if len(seen) < 10 or client is clients[-1]:
                    seen.append(users(own_daemon)[me]["answer_bytes"]["used"])
            await_that(lambda: is_settled(own_daemon, me, seen))
            assert 0 < max(seen) <= most
            with own_daemon.connect(arena_bytes=0) as other:  # must be answered all the while
                grown = other.status()["metrics"]["process_resident_bytes"] - before
            assert grown < 4 * most or SANITIZED
        finally:
            for client in clients:
                client.close()
        await_that(lambda: users(own_daemon)[me]["answer_bytes"]["used"] == 0)


def is_settled(daemon: Daemon, user: str, seen: list[int]) -> bool:
    """True if nothing changes any more, whether the clients were dropped or not."""
    seen.append(users(daemon)[user]["answer_bytes"]["used"])
    return seen[-1] == seen[-2] and daemon.metrics()["jobs"]["waiting"] == 0


# ---- Groups ----

_FILLS_GROUPS = """
import sys
sys.path.insert(0, sys.argv[1])
import os
os.setgid(65534)
os.setuid(65534)
import numpy as np
import embtier
kept, refused = [], 0
try:
    for i in range(64):
        server = embtier.connect(sys.argv[2], arena_bytes=4 << 20, timeout=60)
        group = server.join(f"never.{i}", 2, 0)
        batch = server.push_batch([(server.open_table("t"), 60000)])
        batch.ids(0)[:] = np.arange(60000)
        batch.gradients(0)[:] = 1
        batch.submit_push(0.5, 1, group=group)
        kept.append((server, group, batch))
        try:
            batch.wait(0.1)
        except embtier.BusyError:
            refused += 1
        except TimeoutError:
            pass  # it waits for its group
    while not refused:
        for _, _, batch in kept:
            try:
                batch.wait(0.1)
            except embtier.BusyError:
                refused += 1
            except TimeoutError:
                pass
except embtier.TicketsFullError:  # which pushes take too
    refused += 1
print(len(kept), refused, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_groups_that_never_fill_leave_others_their_steps(make_daemon):
    daemon = make_daemon({"socket": {"mode": "0666"}, "lanes": {"ticket_bytes": "64MiB"}})
    Path(daemon.path).parent.chmod(0o755)
    daemon.start()
    python = str(Path(embtier.__file__).parents[1])
    with daemon.connect() as server:
        server.create_table("t", 8, rows=60000, optimizer="sgd")
        with subprocess.Popen(
            [sys.executable, "-c", _FILLS_GROUPS, python, daemon.socket],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:  # fmt: skip
            many, refused = (int(word) for word in other.stdout.readline().split())
            assert many > 10 and refused > 0, (many, refused)
            trainers = [daemon.connect() for _ in range(2)]
            groups = [trainer.join("ours", 2, i) for i, trainer in enumerate(trainers)]
            for step in range(1, 4):
                batches = []
                for trainer, group in zip(trainers, groups):
                    batch = trainer.push_batch([(trainer.open_table("t"), 60000)])
                    batch.ids(0)[:] = np.arange(60000)
                    batch.gradients(0)[:] = 1
                    batch.submit_push(0.5, step, group=group)
                    batches.append(batch)
                for batch in batches:
                    batch.wait(LIMIT_S)
            found = users(daemon)
            assert found[str(65534)]["group_bytes"]["used"] > 0
            for trainer in trainers:
                trainer.close()
            other.stdin.close()
        assert (server.open_table("t").get([0]) == -3).all()


# ---- Prefetches ----

_PREFETCHES_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
import os
os.setgid(65534)
os.setuid(65534)
import numpy as np
import embtier
server = embtier.connect(sys.argv[2], timeout=60)
table, kept, why = server.open_table("t"), [], ""
while not why:
    batch = server.prefetch_batch([(table, 64)])
    batch.ids(0)[:] = np.arange(64) + 64 * len(kept)
    try:
        kept.append(batch.prefetch())
    except embtier.PinsFullError as error:
        why = str(error)
print(64 * len(kept), why, flush=True)
sys.stdin.readline()
for batch in kept:
    batch.release()
batch.prefetch()
print(batch.ticket, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_prefetches_of_one_user_leave_room_to_others(make_daemon):
    daemon = make_daemon({"socket": {"mode": "0666"}})
    Path(daemon.path).parent.chmod(0o755)
    daemon.start()
    tier = daemon.config["cache"]["tiers"][0]
    cache_mib = int(tier["bytes"].removesuffix("MiB")) - int(tier["array_bytes"].removesuffix("MiB"))
    row_bytes, half = 1024, cache_mib << 19
    python = str(Path(embtier.__file__).parents[1])
    with daemon.connect() as server:
        table = server.create_table("t", row_bytes // 4, rows=100_000)
        with subprocess.Popen(
            [sys.executable, "-c", _PREFETCHES_ALL, python, daemon.socket],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as other:  # fmt: skip
            rows, _, why = other.stdout.readline().partition(" ")
            assert "your user's prefetches may use" in why, why
            assert half * 3 // 4 - 64 * row_bytes < int(rows) * row_bytes <= half * 3 // 4
            found = users(daemon)[str(65534)]["pinned_bytes"]
            assert found == {"used": int(rows) * row_bytes, "most": half * 3 // 4}
            for count in (1, 64):  # another user's prefetches
                with server.prefetch_batch([(table, count)]) as batch:
                    batch.ids(0)[:] = np.arange(90_000, 90_000 + count)
                    assert batch.prefetch().ticket > 0
            other.stdin.write("\n")  # the user gives all back, and at once may make the prefetch that was refused
            other.stdin.flush()
            assert int(other.stdout.readline()) > 0
            other.stdin.close()
        await_that(lambda: server.status()["metrics"]["cache_pinned_rows"] == 0)
        await_that(lambda: str(65534) not in users(daemon))
