# SPDX-License-Identifier: Apache-2.0
"""A model trains over any address by a change of one string, and goes on after its server was restarted: each step is made once."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import LANES, Daemon

import embtier

torch = pytest.importorskip("torch")
import embtier.torch as et  # noqa: E402

ROWS, DIM, STEPS, BAGS = 200, 8, 40, 16
ALL = np.arange(ROWS, dtype=np.uint64)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that also listens to TCP."""
    assert LANES
    daemon = Daemon(tmp_path)
    config = tmp_path / "embtierd.yaml"
    config.write_text(config.read_text().replace('  listen: ["', '  listen: ["tcp://127.0.0.1:0", "'))
    daemon.start()
    yield daemon
    daemon.close()


def addresses_of(daemon: Daemon) -> dict[str, str]:
    tcp = re.findall(r'msg="listening" address="(tcp://127\.0\.0\.1:\d+)"', daemon.log.read_text())
    return {"shm": daemon.path, "rpc": f"unix+rpc:{daemon.path}.rpc", "tcp": tcp[-1]}


class Training:
    """A small model with bags of two tables, one of them by rows. Its numbers are the same each time."""

    def __init__(self, server: embtier.Server, prefix: str) -> None:
        torch.manual_seed(1)
        torch.set_num_threads(1)
        options = {"optimizer": "adagrad", "init": ("uniform", -0.1, 0.1), "durability": "async", "if_not_exists": True}
        self.server = server
        self.tables = [server.create_table(f"{prefix}_{i}", DIM, ROWS, seed=i, **options) for i in range(2)]
        self.collection = et.EmbeddingBagCollection({"a": et.Bag(self.tables[0], "sum"), "b": et.Bag(self.tables[1], "mean")}, lr=0.1)
        self.over = torch.nn.Linear(2 * DIM, 1)

    def step(self, number: int) -> None:
        made = torch.Generator().manual_seed(number)
        ids = torch.randint(0, ROWS, (4 * BAGS,), generator=made)
        offsets = torch.arange(0, 4 * BAGS, 4)
        bags = self.collection({"a": (ids, offsets), "b": (ids.flip(0), offsets)})
        torch.nn.functional.softplus(self.over(torch.cat([bags["a"], bags["b"]], 1))).mean().backward()

    def rows(self) -> list[bytes]:
        return [array.tobytes() for table in self.tables for array in table.get_with_state(ALL)]


def test_a_model_trains_the_same_at_each_address(listening, name):
    found = {}
    for way, address in addresses_of(listening).items():
        with embtier.connect(address, timeout=60, arena_bytes=1 << 20) as server:
            training = Training(server, name)
            for number in range(STEPS):
                training.step(number)
            found[way] = training.rows()
            for table in training.tables:
                server.drop_table(table.name)
    assert found["tcp"] == found["shm"] == found["rpc"]


def test_a_training_goes_on_after_its_server_was_restarted(listening, name, rng):
    """The program makes a step again if the tables' step says that its push was lost. A stop leaves whole steps; after a kill a step
    that was under way may have reached some rows, and a training that must not care goes back to a checkpoint."""
    with listening.connect() as server:
        undisturbed = Training(server, f"{name}_a")
        for number in range(STEPS):
            undisturbed.step(number)
        expected = undisturbed.rows()
    server = listening.connect(reconnect_timeout=60)
    training = Training(server, f"{name}_b")
    losses = 0
    restarts = rng.sample(range(STEPS), 5)
    for number in range(STEPS):
        if number in restarts:
            restart = threading.Timer(rng.random() * 0.004, lambda: (listening.stop(), listening.start()))
            restart.start()
        lost = False
        while training.collection.steps <= number:
            try:
                if lost:
                    server.reconnect()
                    training.collection.steps = max(table.step for table in training.tables)
                    lost = False
                else:
                    training.step(number)
            except embtier.DisconnectedError:  # also of a new session, which a server that stops may still have begun
                lost = True
                losses += 1
        if number in restarts:
            restart.join()
    assert losses > 0 and training.collection.steps == STEPS
    server.close()  # the last restart may have come after the last step, so that this session does not know of it
    with listening.connect() as server:
        assert Training(server, f"{name}_b").rows() == expected
