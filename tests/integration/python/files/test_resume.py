# SPDX-License-Identifier: Apache-2.0
"""A trainer that resumes from a checkpoint ends, bit for bit, like one that was never disturbed."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
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
import paced_training  # noqa: E402
import train_online_retail as training  # noqa: E402
import training_checkpoint  # noqa: E402
from dlrm_model import Dlrm  # noqa: E402

pytestmark = pytest.mark.usefixtures("random_homes")

STEPS = 60
BATCH = 128
DIM = 16
PREFIX = "resume."
ROWS_AT_ONCE = 10_000
# One table for each optimizer with state, so that a state that is not restored shows.
OPTIMIZERS = ["adam", "adagrad", "rowwise_adagrad", "rmsprop", "sgd", "momentum", "adamw"]


class Training:
    """The model of the examples, at step :attr:`done`. Dense weights and their optimizer's state go to a file of torch's, and the
    checkpoint's metadata has its name."""

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


def rows_of(tables: dict[str, embtier.Table], retail: online_retail.Retail) -> dict[str, bytes]:
    """All rows, with state; of an unbounded table those whose ids occur."""
    return {name: rows_of_one(table, training.occurring_ids(retail, name)) for name, table in tables.items()}


def rows_of_one(table: embtier.Table, occurring: np.ndarray) -> bytes:
    ids = occurring if table.rows is None else np.arange(table.rows)
    parts = [table.get_with_state(ids[i : i + ROWS_AT_ONCE]) for i in range(0, len(ids), ROWS_AT_ONCE)]
    return b"".join(array.tobytes() for part in parts for array in part)


def drop_tables(server: embtier.Server) -> None:
    for spec in server.tables():
        if spec.name.startswith(PREFIX):
            server.drop_table(spec.name)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Every fourth invoice of the sample. Each training reads all of its file, and tests the last days, whatever its steps."""
    path = tmp_path_factory.mktemp("data") / "retail.csv.gz"
    with gzip.open(training.DATA, "rt", newline="") as file:
        head, *lines = file
    with gzip.open(path, "wt", newline="", compresslevel=1) as file:
        file.writelines([head, *(line for line in lines if line.partition(",")[0][-1] in "048")])
    return path


@pytest.fixture(scope="module")
def retail(data) -> online_retail.Retail:
    retail = online_retail.load(data)
    assert len(retail.train) > EXAMPLE_STEPS * BATCH and len(retail.held_out) > BATCH
    return retail


def test_after_a_crash_training_goes_on_as_if_nothing_had_happened(daemon: Daemon, retail, tmp_path):
    with daemon.connect() as server:
        undisturbed = Training(server, retail, tmp_path)
        losses = list(undisturbed.steps(STEPS))
        rows = rows_of(undisturbed.tables, retail)
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
        assert rows_of(resumed.tables, retail) == rows
        drop_tables(server)


# ---- The examples' own files beside the server ----


def test_the_newest_of_the_trainer_is_found_and_files_of_older_ones_go(server, tmp_path):
    for step in range(training_checkpoint.KEPT + 2):
        training_checkpoint.save(server, "this", step, {"dim": 4}, {"step": step}, tmp_path)
    server.checkpoint(metadata="of another trainer")
    found = training_checkpoint.newest(server, "this", {"dim": 4})
    assert torch.load(found.metadata["dense"]) == {"step": found.step} == {"step": training_checkpoint.KEPT + 1}
    kept = [c for c in server.checkpoints() if isinstance(c.metadata, dict) and c.metadata.get("trainer") == "this"]
    assert sorted(str(path) for path in tmp_path.iterdir()) == sorted(c.metadata["dense"] for c in kept)
    assert training_checkpoint.newest(server, "other", {"dim": 4}) is None
    with pytest.raises(training_checkpoint.OtherOptions, match="'dim': 4"):
        training_checkpoint.newest(server, "this", {"dim": 8})


def test_a_file_that_a_newer_checkpoint_has_too_stays(own_daemon, tmp_path):
    """This is so if the server was restored to the first checkpoint, and made another one of that."""
    with own_daemon.connect() as server:
        for step in range(training_checkpoint.KEPT):
            training_checkpoint.save(server, "this", step, {}, {"step": step}, tmp_path)
        first = server.checkpoints()[0]
        server.checkpoint(step=first.step, metadata=first.metadata)
        for step in range(training_checkpoint.KEPT - 1):
            training_checkpoint.save(server, "this", step, {}, {"step": step}, tmp_path)
            assert first.id not in [checkpoint.id for checkpoint in server.checkpoints()]
            for checkpoint in server.checkpoints():
                if checkpoint.metadata:
                    assert Path(checkpoint.metadata["dense"]).exists(), checkpoint
        training_checkpoint.save(server, "this", 9, {}, {}, tmp_path)
        assert not Path(first.metadata["dense"]).exists()


# ---- The examples' program, as users run it ----

EXAMPLE = TREE / "examples/train_online_retail.py"
PACED = TREE / "tests/integration/python/files/paced_training.py"
EXAMPLE_STEPS = 100
EXAMPLE_EVERY = 20  # steps per checkpoint
STEPS_AFTER = 5  # steps after a checkpoint: then more may be made, or something is killed
LIMIT_S = 120  # for each wait


class Example:
    """The program as a process. Its rows have an optimizer with state, and it makes only the steps that it may."""

    def __init__(self, data: Path, socket: str, folder: Path, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        self.said = self.folder / "said"
        self.may(0)
        command = [
            sys.executable, PACED, self.folder / "may", self.folder / "at", "--data", data, "--socket", socket, "--dim", str(DIM),
            "--optimizer", "adam", "--lr", "0.01", "--steps", str(EXAMPLE_STEPS), "--checkpoint-dir", folder / "dense",
            "--keep", "-o", "json", *options,
        ]  # fmt: skip
        path = os.pathsep.join(filter(None, [str(TREE / "client/python"), os.environ.get("PYTHONPATH")]))
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=said, env=os.environ | {"PYTHONPATH": path}, cwd=folder
            )

    def may(self, steps: int) -> None:
        paced_training.write(self.folder / "may", steps)

    def make(self, steps: int) -> None:
        """Waits until it has made @steps steps, with their checkpoints; it makes no more."""
        self.may(steps)
        at, deadline = self.folder / "at", time.monotonic() + LIMIT_S
        while not at.exists() or int(at.read_text()) != steps:
            assert self.process.poll() is None, f"ended too early: {self.said.read_text()}"
            assert time.monotonic() < deadline, self.said.read_text()
            time.sleep(0.003)

    def end(self) -> tuple[int, dict]:
        """Its exit status, and its report, if any."""
        try:
            report, _ = self.process.communicate(timeout=LIMIT_S)
        finally:
            self.process.kill()
        return self.process.returncode, json.loads(report or b"{}")


def test_the_example_ends_the_same_whatever_was_killed_on_the_way(daemon, own_daemon, data, retail, tmp_path_factory):
    """First the trainer is killed. Then the server, which goes back to a checkpoint without a step. Then both."""
    undisturbed = Example(data, daemon.socket, tmp_path_factory.mktemp("undisturbed"))
    undisturbed.may(EXAMPLE_STEPS)
    folder = tmp_path_factory.mktemp("disturbed")
    every = ("--checkpoint-every", str(EXAMPLE_EVERY))

    first = Example(data, own_daemon.socket, folder, *every)
    first.make(EXAMPLE_EVERY + STEPS_AFTER)
    first.may(EXAMPLE_EVERY + 2 * STEPS_AFTER)
    first.process.kill()  # in the middle of one of these steps, or between two
    assert first.end() == (-signal.SIGKILL, {})

    second = Example(data, own_daemon.socket, folder, *every, "--resume")
    second.make(2 * EXAMPLE_EVERY + STEPS_AFTER)
    with own_daemon.connect() as server:
        server.checkpoint()
    second.may(2 * EXAMPLE_EVERY + 2 * STEPS_AFTER)
    own_daemon.kill()
    second.may(EXAMPLE_STEPS)  # so that it meets the server's death
    assert second.end() == (1, {}), second.said.read_text()
    own_daemon.start()

    third = Example(data, own_daemon.socket, folder, *every, "--resume")
    third.make(3 * EXAMPLE_EVERY + STEPS_AFTER)
    third.may(3 * EXAMPLE_EVERY + 2 * STEPS_AFTER)
    third.process.kill()
    own_daemon.kill()
    assert third.end() == (-signal.SIGKILL, {})
    own_daemon.start()

    with own_daemon.connect() as server:
        steps = [checkpoint.step for checkpoint in server.checkpoints() if checkpoint.step is not None]
    assert steps == [EXAMPLE_EVERY, 2 * EXAMPLE_EVERY, 3 * EXAMPLE_EVERY]
    last = Example(data, own_daemon.socket, folder, *every, "--resume")
    last.may(EXAMPLE_STEPS)
    status, report = last.end()
    assert status == 0, last.said.read_text()
    assert report["resumed_step"] == 3 * EXAMPLE_EVERY
    status, expected = undisturbed.end()
    assert status == 0, undisturbed.said.read_text()
    for number in ("steps", "loss_final", "loss_last", "auc"):  # JSON has all their digits
        assert report[number] == expected[number], number
    with own_daemon.connect() as server, daemon.connect() as other:
        ours, theirs = (
            rows_of({name: where.open_table(training.PREFIX + name) for name in retail.rows}, retail)
            for where in (server, other)
        )
        assert [name for name in ours if ours[name] != theirs[name]] == []
        training.drop_tables(other)


@pytest.fixture
def run_example(data, monkeypatch, capsys):
    """Runs the program in this process, which has torch already. Returns its exit status and what it told."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(embtier, "connect", functools.partial(embtier.connect, timeout=60))  # on a busy machine, silence may be long

    def run(*options: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--data", str(data), "--dim", "4", "--steps", "2", *map(str, options)])
        status = training.main()
        return status, capsys.readouterr().err

    yield run
    torch.set_num_threads(threads)


def test_a_training_from_the_start_does_not_push_out_checkpoints_unasked(own_daemon, run_example, tmp_path):
    options = (
        "--socket", own_daemon.socket, "--checkpoint-every", "1", "--checkpoint-dir", tmp_path / "dense", "--alone",
    )  # fmt: skip
    with own_daemon.connect() as server:
        others = server.checkpoint(step=1).id
        status, said = run_example(*options)
        assert status == 0, said
        before = [checkpoint.id for checkpoint in server.checkpoints()]
        status, said = run_example(*options)
        assert status != 0 and "--resume" in said and "--restart" in said
        assert [checkpoint.id for checkpoint in server.checkpoints()] == before
        status, said = run_example(*options, "--restart")
        assert status == 0, said
        assert others in [checkpoint.id for checkpoint in server.checkpoints()], "of somebody else"


def test_without_a_checkpoint_a_training_that_is_there_is_not_begun_anew_unasked(own_daemon, run_example, tmp_path):
    options = (
        "--socket", own_daemon.socket, "--keep", "--resume", "--checkpoint-every", "2", "--checkpoint-dir", tmp_path / "dense",
    )  # fmt: skip
    with own_daemon.connect() as server:
        status, said = run_example(*options)
        assert status == 0, f"there is nothing yet: {said}"
        rows = server.open_table(training.our_tables(server)[0]).get(range(100))
        server.checkpoint()  # the newest cannot be deleted
        for checkpoint in server.checkpoints()[:-1]:
            server.delete_checkpoint(checkpoint.id)
        status, said = run_example(*options)
        assert status == 1 and "no checkpoint" in said and "--restart" in said
        assert (server.open_table(training.our_tables(server)[0]).get(range(100)) == rows).all()
        status, said = run_example(*options, "--restart")
        assert status == 0, said
        status, said = run_example(*options)
        assert status == 0, f"it goes on from the one that was made now: {said}"
