# SPDX-License-Identifier: Apache-2.0
"""A training over TCP or TLS whose link fails in the middle. It goes on, or is told so and reconnects; either way each step of it takes
effect once.

Server and trainer are in network namespaces of their own, joined by a pair of interfaces."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from certificates import Authority
from daemons import Daemon

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from network_link import SERVER, Link, NoRightError  # noqa: E402

import embtier  # noqa: E402

ROWS, DIM, IDS, BAGS, STEPS = 50, 4, 12, 3, 30
FAILING_STEP = 11
LIMIT_S = 60


@pytest.fixture
def link() -> Iterator[Link]:
    try:
        made = Link()
    except NoRightError as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    with contextlib.closing(made), made.at_client():
        yield made


@pytest.fixture(scope="session")
def authority(tmp_path_factory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("server", f"IP:{SERVER}")
    return made


@pytest.fixture(params=["tcp", "tls"])
def kind(request) -> str:
    return request.param


@pytest.fixture(params=["io_uring", "epoll"])
def daemon(request, link, kind, authority, make_daemon) -> Daemon:
    tls = {"certificate": f"{authority.folder}/server.crt", "key": f"{authority.folder}/server.key"}
    rpc = {"listen": [f"{kind}://{SERVER}:0"], "insecure": "yes", "io_uring": "auto" if request.param == "io_uring" else "off"}
    made = make_daemon({"rpc": rpc} | ({"tls": tls} if kind == "tls" else {}))
    made.launch(wrapper=("nsenter", f"--net={link.server_network}"))
    made.await_ready()
    return made


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---- The training ----


def ids_of(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(0, ROWS, IDS)


def gradients_of(bags: np.ndarray) -> np.ndarray:
    """Whole numbers that depend on the rows, so that each step depends on all before it."""
    return -(bags % 3 + 1)


def rows_after(steps: int) -> np.ndarray:
    """The rows after so many steps, each of which took effect once."""
    rows = np.zeros((ROWS, DIM), np.float32)
    for step in range(1, steps + 1):
        ids = ids_of(step).reshape(BAGS, -1)
        gradients = gradients_of(rows[ids].sum(1))
        np.add.at(rows, ids, -gradients[:, None, :])
    return rows


class Trainer:
    def __init__(self, address: str) -> None:
        self.server = embtier.connect(address, timeout=LIMIT_S, arena_bytes=1 << 20)
        self.table = self.server.create_table("trained", DIM, ROWS, optimizer="sgd")
        self.batch = self.server.bag_batch([embtier.Bags(self.table, IDS, BAGS)])

    def look_up(self, step: int) -> None:
        self.batch.ids(0)[:] = ids_of(step)
        self.batch.offsets(0)[:] = np.arange(0, IDS + 1, IDS // BAGS)
        self.batch.lookup(ticket=True)
        self.batch.gradients(0)[:] = gradients_of(self.batch.bags(0))

    def train(self, step: int) -> None:
        self.look_up(step)
        self.batch.push(lr=1.0, step=step)

    def reconnect(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return self.server.reconnect()
            except embtier.Error:  # the link, or the room that the old session still has
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def must_have_trained(self) -> None:
        assert (self.table.get(np.arange(ROWS)) == rows_after(STEPS)).all()


@pytest.fixture
def trainer(daemon, kind, authority) -> Iterator[Trainer]:
    address = next(fields["address"] for fields in daemon.logged("listening") if kind in fields["address"])
    made = Trainer(f"{address}?ca={authority.certificate}" if kind == "tls" else address)
    yield made
    made.server.close()


def retransmitted() -> int:
    names, values = (line.split() for line in Path("/proc/thread-self/net/snmp").read_text().splitlines() if line.startswith("Tcp:"))
    return int(dict(zip(names, values))["RetransSegs"])


def step_in_server(daemon: Daemon) -> int:
    """Asked over shared memory, which has no link."""
    with daemon.connect(arena_bytes=0) as server:
        return server.open_table("trained").step


# ---- Tests ----


def test_a_training_goes_on_after_a_short_cut(link, trainer):
    for step in range(1, STEPS + 1):
        if step != FAILING_STEP:
            trainer.train(step)
            continue
        trainer.look_up(step)
        before = retransmitted()
        link.cut()
        trainer.batch.submit_push(lr=1.0, step=step)
        wait_until(lambda: retransmitted() > before)
        assert not trainer.batch.poll()
        link.mend()
        trainer.batch.wait(LIMIT_S)
    trainer.must_have_trained()


@pytest.mark.parametrize("call", ["lookup", "push"])
def test_a_trainer_repeats_a_step_that_was_cut_off(link, trainer, call):
    for step in range(1, FAILING_STEP):
        trainer.train(step)
    if call == "push":
        trainer.look_up(FAILING_STEP)
    before = retransmitted()
    link.cut()
    if call == "push":
        trainer.batch.submit_push(lr=1.0, step=FAILING_STEP)
    else:
        trainer.batch.submit_lookup(ticket=True)
    wait_until(lambda: retransmitted() > before)
    link.end_connections()
    with pytest.raises(embtier.DisconnectedError):
        trainer.batch.wait(LIMIT_S)
    link.mend()
    trainer.reconnect()
    assert trainer.table.step == FAILING_STEP - 1
    for step in range(FAILING_STEP, STEPS + 1):
        trainer.train(step)
    trainer.must_have_trained()


def test_a_trainer_learns_that_a_push_without_an_answer_took_effect(link, daemon, trainer):
    for step in range(1, FAILING_STEP):
        trainer.train(step)
    trainer.look_up(FAILING_STEP)
    link.cut_to_clients()
    trainer.batch.submit_push(lr=1.0, step=FAILING_STEP)
    wait_until(lambda: step_in_server(daemon) == FAILING_STEP)
    link.end_connections()
    with pytest.raises(embtier.DisconnectedError):
        trainer.batch.wait(LIMIT_S)
    link.mend()
    trainer.reconnect()
    assert trainer.table.step == FAILING_STEP
    for step in range(FAILING_STEP + 1, STEPS + 1):
        trainer.train(step)
    trainer.must_have_trained()
