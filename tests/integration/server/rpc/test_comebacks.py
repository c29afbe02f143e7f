# SPDX-License-Identifier: Apache-2.0
"""A client that was told that its connection is lost, and comes back with a new one. Nothing of the old one takes effect any more."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doors import DIM, LIMIT_S, MIB, NETWORK, TABLE, UNIX, Door, bare, open_table, reset, wait_until
from plain_client import CALL, HELLO, HELLO_REPLY, SUBMIT, TABLE_INFO, TABLE_OPEN, Client, fields_of, frame, message

import embtier

PROGRESS, PUSH = 4, 4
IDS = [1, 2, 3]
LATE = "late" * 25  # more than a head of a frame and of a record


# ---- A relay that can keep bytes ----


class Relay:
    """Stands between a client and a server. It may keep the client's bytes, and pass them on when the client has long gone."""

    def __init__(self, door: Door) -> None:
        if door.kind == "unix":
            self._listener, self.at = socket.socket(socket.AF_UNIX), f"{door.address}.{time.monotonic_ns()}"
            self._listener.bind(self.at)
            self._listener.listen()
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.at = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._address = door.address
        self._stop, self._holds = threading.Event(), False
        self.held = b""
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.client, _ = self._listener.accept()
        self._listener.close()
        self.server = bare(self._address)
        while not self._stop.is_set():
            for ready in select.select([self.client, self.server], [], [], 0.05)[0]:
                data = ready.recv(65536)
                if ready is self.server:
                    self.client.sendall(data)
                elif self._holds:
                    self.held += data
                else:
                    self.server.sendall(data)

    def hold(self) -> None:
        self._holds = True

    def cut(self) -> None:
        """The client loses its connection; that to the server stays."""
        self._stop.set()
        self._thread.join()
        reset(self.client)

    def release(self) -> None:
        """Passes on what was kept. The server must have ended that connection: at most it says so in TLS."""
        with contextlib.suppress(ConnectionError):
            while self.held:
                self.held = self.held[self.server.send(self.held) :]
            while self.server.recv(65536):
                pass

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        for stream in (self._listener, self.client, self.server):
            stream.close()


@pytest.fixture
def relay(door: Door) -> Iterator[Relay]:
    with contextlib.closing(Relay(door)) as made:
        yield made


def past(relay: Relay, door: Door) -> str:
    """The addresses of a client that goes through the relay, and past it once that is cut."""
    scheme, _, query = door.url.partition("?")
    through = scheme[: scheme.index("://") + 3] if "://" in scheme else UNIX
    return f"{through}{relay.at}{'?' + query if query else ''},{door.url}"


# ---- A trainer ----


class Trainer:
    def __init__(self, address: str) -> None:
        self.server = embtier.connect(address, timeout=LIMIT_S, arena_bytes=4 * MIB)
        self.table = self.server.open_table(TABLE)
        self.batch = self.server.push_batch([(self.table, len(IDS))])

    def submit(self, step: int) -> None:
        self.batch.ids(0)[:] = IDS
        self.batch.gradients(0)[:] = 1.0
        self.batch.submit_push(1.0, step)

    def push(self) -> int:
        """Makes the table's next step."""
        step = self.table.step + 1
        self.submit(step)
        self.batch.wait(LIMIT_S)
        return step

    def rows(self) -> list[float]:
        return self.table.get(IDS)[:, 0].tolist()

    def lose(self) -> None:
        with pytest.raises(embtier.DisconnectedError):
            self.batch.wait(LIMIT_S)


@pytest.fixture
def trainer(door: Door, relay: Relay) -> Iterator[Trainer]:
    made = Trainer(past(relay, door))
    yield made
    made.server.close()


def test_a_push_that_was_on_its_way_takes_no_effect_after_a_reconnect(door: Door, relay: Relay, trainer: Trainer):
    step, rows = trainer.push(), trainer.rows()
    relay.hold()
    trainer.submit(step + 1)
    wait_until(lambda: len(relay.held) > len(IDS) * DIM * 4)
    relay.cut()
    trainer.lose()
    trainer.server.reconnect()
    assert trainer.table.step == step  # so the trainer makes this step again
    relay.release()
    assert (trainer.table.step, trainer.rows()) == (step, rows)
    assert trainer.push() == step + 1
    assert trainer.rows() == [row - 1 for row in rows]


def test_a_control_message_that_was_on_its_way_takes_no_effect_after_a_reconnect(door: Door, relay: Relay, trainer: Trainer):
    relay.hold()
    lost = []

    def create() -> None:
        try:
            trainer.server.create_table(LATE, DIM)
        except embtier.DisconnectedError as error:
            lost.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    wait_until(lambda: len(relay.held) > len(LATE))
    relay.cut()
    thread.join(LIMIT_S)
    assert lost
    trainer.server.reconnect()
    relay.release()
    assert LATE not in [spec.name for spec in trainer.server.tables()]


# ---- A session is named by its number and secret ----


def key_of(granted: dict) -> bytes:
    return message({1: granted[3], 2: granted[480]})


def session(door: Door, replaces: bytes | None = None, arena_bytes: int = 65536) -> tuple[Client, bytes]:
    """A new session, with its key."""
    client = Client(door.connect())
    granted = client.hello(arena_bytes, more={480: replaces} if replaces else {})
    return client, key_of(granted)


def step_of(client: Client) -> int:
    return fields_of(client.call(TABLE_OPEN, {1: TABLE}, TABLE_INFO)[3]).get(391, 0)


def push_frame(client: Client, step: int, ids: list[int]) -> bytes:
    at, gradients = 64, 1024
    ids_bytes = struct.pack(f"<{len(ids)}Q", *ids)
    segment = struct.pack("<QQQQdII16x", open_table(client), 256, gradients, 0, 1.0, len(ids), DIM)
    values = struct.pack("<f", 1.0) * DIM * len(ids)
    body = message({1: PUSH, 3: 1, 4: at, 5: step, 9: [at, 64, 256, len(ids_bytes), gradients, len(values)]})
    return frame(SUBMIT, 0, body, segment + ids_bytes + values)


def test_half_a_push_is_given_up_when_its_client_comes_back(door: Door):
    old, key = session(door)
    step = step_of(old)
    push = push_frame(old, step + 1, IDS)
    old.send(push[:-4])
    with contextlib.closing(session(door, key)[0]) as client:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            old.send(push[-4:])
        assert old.is_closed()
        assert step_of(client) == step
    old.close()


NARROW = {"max_total_arena_bytes": "64MiB", "max_user_arena_bytes": "64MiB"}


@pytest.mark.parametrize("kind", NETWORK, indirect=True)  # a Unix stream tells at once that its client has gone
@pytest.mark.parametrize("limits, arena_bytes", [({"max_user_sessions": 4}, 0), ({"max_user_sessions": 4}, MIB), (NARROW, 40 * MIB)])
def test_a_user_that_has_all_it_may_can_come_back(make_door: Callable[..., Door], limits: dict, arena_bytes: int):
    """The new session finds the room of the old one."""
    door = make_door(limits)
    with door.clients(3):
        old, key = session(door, arena_bytes=arena_bytes)
        for _ in range(3):
            client, key = session(door, key, arena_bytes=arena_bytes)
            assert old.is_closed()
            old.close()
            old = client
        old.close()
    door.daemon.stop()


def test_a_comeback_waits_for_the_memory_of_a_session_that_has_ended(make_daemon: Callable, changes: dict, kind: str):
    daemon = make_daemon(changes | {"socket": NARROW})
    trigger = daemon.folder / "held"
    daemon.with_fault("held_calls", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_FREED_BYTES=str(MIB))
    daemon.start()
    door = Door(daemon, kind)
    old, key = session(door, arena_bytes=40 * MIB)
    trigger.touch()
    reset(old.socket)
    wait_until(Path(f"{trigger}.waits").exists)
    client = Client(door.connect())
    client.send(frame(CALL, 0, message({1: 7, HELLO: message({1: 1, 2: 1, 3: 40 * MIB, 4: 4, 480: key})})))
    first = client.receive()[2]
    trigger.unlink()
    assert PROGRESS in first, first
    while not (reply := client.receive()[2]).get(2):
        pass
    assert HELLO_REPLY in reply, reply
    client.close()
    daemon.stop()


def test_keys_that_are_wrong_or_of_sessions_that_have_ended_end_nothing(door: Door):
    ended, old_key = session(door)
    other, key = session(door)
    ended.close()
    number = fields_of(key)[1]
    wrong = [
        old_key,
        message({1: number}),
        message({1: number, 2: bytes(32)}),
        message({1: number, 2: fields_of(key)[2][:-1]}),
        message({1: number, 2: fields_of(key)[2] + b"x"}),
        message({1: number + 1000, 2: fields_of(key)[2]}),
        message({1: fields_of(old_key)[1], 2: fields_of(key)[2]}),
        b"",
    ]
    for replaces in wrong:
        session(door, replaces or None)[0].close()
    step_of(other)
    session(door, key)[0].close()
    assert other.is_closed()
    other.close()


def test_secrets_differ_and_are_in_no_log(door: Door):
    clients = [session(door) for _ in range(8)]
    secrets = {fields_of(key)[2] for _, key in clients}
    assert len(secrets) == 8
    session(door, clients[0][1])[0].close()
    for client, _ in clients:
        client.close()
    log = "\n".join(door.daemon.log_lines())
    assert not any(secret.hex()[:16] in log.lower() for secret in secrets)


def test_a_comeback_waits_for_a_push_in_lanes(make_daemon: Callable, changes: dict, kind: str):
    """Reads take seconds, so the push is under way when the client comes back. It then sees that the push took effect."""
    daemon = make_daemon(changes)
    trigger = daemon.folder / "slow"
    daemon.with_fault("slow_reads", EMBTIER_FAULT_TRIGGER=str(trigger), EMBTIER_FAULT_READ_MS="3000")
    daemon.start()
    Door(daemon, kind)
    daemon.restart()  # all rows are on SSD alone
    door = Door(daemon, kind, makes_table=False)
    old, key = session(door)
    push = push_frame(old, step_of(old) + 1, IDS)
    trigger.touch()
    old.send(push)
    wait_until(lambda: daemon.metrics()["reading_rows"] > 0 or select.select([old.socket], [], [], 0)[0])  # or it is over
    client, _ = session(door, key)
    step = step_of(client)
    trigger.unlink()
    assert step == 1
    client.close()
    with daemon.connect() as server:
        assert server.open_table(TABLE).get(IDS)[:, 0].tolist() == [one - 1 for one in IDS]
    old.close()
