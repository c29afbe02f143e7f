# SPDX-License-Identifier: Apache-2.0
"""Does a trainer that goes on from a checkpoint end, bit for bit, as one that nothing happened to?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import embtier
import numpy as np
import pytest
from conftest import TREE, Daemon

torch = pytest.importorskip("torch")
sys.path.insert(0, str(TREE / "examples"))

import embtier.torch  # noqa: E402
import online_retail  # noqa: E402
import train_online_retail as training  # noqa: E402
from dlrm_model import Dlrm  # noqa: E402

STEPS = 60
BATCH = 128
DIM = 16
PREFIX = "resume."
# Of each optimizer with state a table, so that a state that is not put back shows.
OPTIMIZERS = ["adam", "adagrad", "rowwise_adagrad", "rmsprop", "sgd"]


class Training:
    """The model of the examples, at step :attr:`done`. Dense weights and their optimizer's state go
    to a file of torch's, whose name the checkpoint has."""

    def __init__(self, server: embtier.Server, retail: online_retail.Retail, folder: Path) -> None:
        self.server, self.retail, self.folder = server, retail, folder
        self.done = 0
        self.tables = {
            name: server.create_table(
                PREFIX + name, DIM, rows, optimizer=OPTIMIZERS[i % len(OPTIMIZERS)], init=("uniform", -0.1, 0.1),
                dtype="bf16" if i % 3 == 2 else "f32", seed=i, if_not_exists=True,
            )
            for i, (name, rows) in enumerate(retail.rows.items())
        }  # fmt: skip
        bags = {
            name: embtier.torch.Bag(table, "mean", include_last_offset=True) for name, table in self.tables.items()
        }
        torch.manual_seed(1)
        self.model = Dlrm(
            embtier.torch.EmbeddingBagCollection(bags, lr=0.05), list(self.tables), DIM, online_retail.DENSE
        )
        self.optimizer = torch.optim.Adam(self.model.mlp_parameters(), 1e-3)

    def save(self) -> embtier.Checkpoint:
        dense = self.folder / f"dense-{self.done}.pt"
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, dense)
        return self.server.checkpoint(step=self.done, metadata={"dense": str(dense)})

    def load(self, checkpoint: embtier.Checkpoint) -> None:
        dense = torch.load(checkpoint.metadata["dense"])
        self.model.load_state_dict(dense["model"])
        self.optimizer.load_state_dict(dense["optimizer"])
        self.done = checkpoint.step

    def steps(self, until: int) -> Iterator[bytes]:
        order = np.random.default_rng(1).permutation(len(self.retail.train))[self.done * BATCH : until * BATCH]
        for dense, bags, labels in training.batches(self.retail.train, order, BATCH):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.model(dense, bags), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.done += 1
            yield loss.detach().numpy().tobytes()


def rows_of(tables: dict[str, embtier.Table]) -> dict[str, bytes]:
    ids = {name: np.arange(table.spec.rows or 1) for name, table in tables.items()}
    return {name: b"".join(part.tobytes() for part in table.get_with_state(ids[name])) for name, table in tables.items()}


def drop_tables(server: embtier.Server) -> None:
    for spec in server.tables():
        if spec.name.startswith(PREFIX):
            server.drop_table(spec.name)


@pytest.fixture(scope="module")
def retail() -> online_retail.Retail:
    return online_retail.load(training.DATA)


def test_after_a_crash_training_goes_on_as_if_nothing_had_happened(daemon: Daemon, retail, tmp_path):
    with daemon.connect() as server:
        undisturbed = Training(server, retail, tmp_path)
        losses = list(undisturbed.steps(STEPS))
        rows = rows_of(undisturbed.tables)
        drop_tables(server)

    with daemon.connect() as server:
        first = Training(server, retail, tmp_path)
        assert list(first.steps(20)) == losses[:20]
        first.save()
        assert list(first.steps(37)) == losses[20:37], "a checkpoint changes nothing"
        daemon.kill()  # in the middle of the epoch; the trainer dies as well
    daemon.start()

    with daemon.connect() as server:
        resumed = Training(server, retail, tmp_path)
        resumed.load(server.checkpoints()[-1])
        assert resumed.done == 20
        assert list(resumed.steps(STEPS)) == losses[20:]
        assert rows_of(resumed.tables) == rows
        drop_tables(server)
