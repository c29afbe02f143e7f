# SPDX-License-Identifier: Apache-2.0
"""A server gets exactly the arguments that Python was given, or none of them."""

from __future__ import annotations

import fractions
import math
import signal

import numpy as np
import pytest
import torch
from odd_values import HUGE, TORCH_DTYPES, tensor_of

import embtier
import embtier.torch as et

# ---- With a server ----


def test_names_with_a_zero_byte_name_nothing(server, name, tmp_path):
    table = server.create_table(name, 2)
    checkpoint = server.checkpoint()
    no_texts = [(wrong, TypeError) for wrong in (name.encode(), None, 5)]
    for cut, error in ((f"{name}\0old", ValueError), (f"{name}\ud800", ValueError), *no_texts):
        for call in (
            lambda: server.drop_table(cut),
            lambda: server.open_table(cut),
            lambda: server.create_table(cut, 2),
            lambda: server.create_table(cut, 2, if_not_exists=True),
            lambda: server.export_table(cut, tmp_path / "e"),
            lambda: server.restore_checkpoint(checkpoint.id, [cut]),
            lambda: server.join(cut, 1, 0),
        ):
            with pytest.raises(error):
                call()
    for cut in (f"{name}\0old", f"{name}\ud800"):
        for call in (
            lambda: server.restore_checkpoint(checkpoint.id, [name], name=cut),
            lambda: server.export_table(name, f"{tmp_path}/{cut}"),
            lambda: server.import_table(f"{tmp_path}/{cut}", name),
            lambda: server.import_table(tmp_path, cut),
            lambda: server.import_table(tmp_path, tensor=cut),
            lambda: server.import_table(tmp_path, ids_path=cut),
            lambda: embtier.connect(f"/tmp/{cut}"),
            lambda: embtier.connect(client_name=cut),
        ):
            with pytest.raises(ValueError):
                call()
    assert [spec.name for spec in server.tables()] == [table.name]
    assert not list(tmp_path.iterdir())


NUMBERS = {  # argument: values that it refuses
    "rows": (0, -1, 2**64, 2**64 + 5, 5.0, "5", True, HUGE),
    "dim": (0, -1, 2**32, 2**32 + 2, 2.0, "2", True, None),
    "seed": (-1, 2**64, 2**64 + 5, 1.5, None, True),
    "eager": ("no", 2, None, 0.5),
    "if_not_exists": ("no", 2, None),
    "allow_nonfinite": ("no", -1, None),
    "dtype": (1, None, "f64", np.float32),
    "optimizer": (1, None, "adams"),
    "rounding": (True, "up"),
    "durability": (0, "all"),
    "init": (0, None, (), ("uniform", 1), *(("constant", wrong) for wrong in ("1", True, HUGE, math.nan))),
    "eps": ("1", True, -1e300, math.nan, math.inf, HUGE, 1j, [1]),
    "clip_norm": (-1e300, -1),
}


@pytest.mark.parametrize("argument", NUMBERS)
def test_a_table_is_made_as_it_was_asked_for_or_not_at_all(server, name, argument):
    words = {"dim": 2, "optimizer": "adam"}
    for wrong in NUMBERS[argument]:
        with pytest.raises((TypeError, ValueError)):
            server.create_table(name, **(words | {argument: wrong}))
    assert name not in [spec.name for spec in server.tables()]


def test_numpy_s_numbers_are_taken_as_python_s(server, name):
    made = server.create_table(
        name, np.int8(2), np.uint64(2**64 - 1), optimizer="adam", seed=np.uint64(2**64 - 1), eps=np.float32(0.5),
        init=("constant", np.float16(2)),
    )  # fmt: skip
    spec = made.spec
    assert (spec.rows, spec.dim, spec.seed, spec.eps, spec.init) == (2**64 - 1, 2, 2**64 - 1, 0.5, ("constant", 2.0))
    assert server.open_table(name, np.int64(2)).dim == 2
    with server.batch([(made, np.int32(3))]) as batch:
        batch.set_count(0, np.uint8(2))
        assert batch.get().rows(0).tolist() == [[2, 2]] * 2


def test_tables_are_opened_as_they_were_asked_for(server, name):
    server.create_table(name, 5)
    for wrong in (0, -1, 2**32, 2**32 + 5, 5.0, True, "5"):  # for C 0 means any dim
        with pytest.raises((TypeError, ValueError)):
            server.open_table(name, dim=wrong)
    with pytest.raises(embtier.MismatchError):
        server.open_table(name, dim=2**32 - 1)
    for wrong in (0, 1, "f64"):
        with pytest.raises((TypeError, ValueError)):
            server.open_table(name, dtype=wrong)


def test_counts_of_batches_are_not_cut(server, name):
    table = server.create_table(name, 2, optimizer="sgd")
    for wrong in (-1, 2**32, 2**32 + 3, 3.0, "3", None, True):
        for make in (server.batch, server.push_batch, server.prefetch_batch):
            with pytest.raises((TypeError, ValueError)):
                make([(table, wrong)])
        for bags in (embtier.Bags(table, wrong, 1), embtier.Bags(table, 1, wrong)):
            with pytest.raises((TypeError, ValueError)):
                server.bag_batch([bags])
        with server.batch([(table, 5)]) as batch, server.bag_batch([embtier.Bags(table, 5, 5)]) as bags:
            with pytest.raises((TypeError, ValueError)):
                batch.set_count(0, wrong)
            with pytest.raises((TypeError, ValueError)):
                bags.set_bags(0, wrong, 1)
            with pytest.raises((TypeError, ValueError)):
                bags.set_bags(0, 1, wrong)
            assert batch.count(0) == bags.count(0) == 5
    for wrong in ("yes", 2, None):
        with pytest.raises((TypeError, ValueError)):
            server.bag_batch([embtier.Bags(table, 1, 1, weighted=wrong)])
    for wrong in (5, "users", None):
        with pytest.raises(TypeError, match="Table"):
            server.batch([(wrong, 1)])
    with pytest.raises(TypeError, match=r"embtier.Bags\(table, count, bag_count\), not tuple"):
        server.bag_batch([(table, 1)])


def test_connections_are_made_as_they_were_asked_for(daemon):
    for words in (
        {"arena_bytes": -1}, {"arena_bytes": 2**64}, {"arena_bytes": 2**64 + (1 << 20)}, {"arena_bytes": 1e6},
        {"arena_bytes": True}, {"max_in_flight": 0}, {"max_in_flight": 2**32 + 1}, {"max_in_flight": -1},
        {"max_in_flight": 1.0}, {"client_name": 5}, {"client_name": b"x"}, {"client_name": "x" * 129},
        {"client_name": "é" * 65}, {"timeout": -1}, {"timeout": 2**32},
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            daemon.connect(**words)
    for words in ({"client_name": "é" * 64}, {"client_name": ""}, *({"timeout": t} for t in (None, math.inf, 0))):
        daemon.connect(**words).close()


def test_waits_take_any_time_but_none_that_is_none(daemon, server, name):
    table = server.create_table(name, 2)
    with server.batch([(table, 1)]) as batch:
        for timeout in (None, 60, math.inf, 1e12, 1e308, np.float32(60), fractions.Fraction(60)):
            assert batch.get(timeout) is batch
            batch.submit_get()
            batch.wait(timeout)
        for wrong in (-1, -0.5, math.nan, -math.inf, "1", True, 1j, [1]):
            with pytest.raises((TypeError, ValueError)):
                batch.get(wrong)  # and the batch has not begun
            with pytest.raises((TypeError, ValueError)):
                batch.wait(wrong)
        batch.get()
        daemon.freeze()
        try:
            batch.submit_get()
            for timeout in (0, 0.0004, 1e-300):
                with pytest.raises(embtier.TimeoutError, match="no answer within"):
                    batch.wait(timeout)
        finally:
            daemon.signal(signal.SIGCONT)
        batch.wait(60)


def test_a_push_is_of_the_numbers_that_were_given(server, name):
    table = server.create_table(name, 2, optimizer="sgd", init=("constant", 1))
    with server.push_batch([(table, 1)]) as batch:
        batch.ids(0)[:] = 5
        batch.gradients(0)[:] = 1
        masked = np.ma.array([0.1], mask=[1])
        for lr in ("0.1", True, None, 1j, np.complex64(1), [True], ["0.1"], np.array(["0.1"]), masked, HUGE, [HUGE]):
            with pytest.raises((TypeError, ValueError)):
                batch.push(lr, 1)
        for step in (0, -1, 2**53, 2**64 + 1, 1.0, True, "1", None):
            with pytest.raises((TypeError, ValueError)):
                batch.push(0.1, step)
        assert table.get([5]).tolist() == [[1, 1]]
        quarter = fractions.Fraction(1, 4)
        for lr in (0.25, np.float32(0.25), [0.25], torch.tensor(0.25), np.array([0.25], object), (quarter,)):
            batch.push(lr, np.int64(1))
        assert table.get([5]).tolist() == [[-0.5, -0.5]]


def test_checkpoints_and_files_are_those_that_were_asked_for(server, name, tmp_path):
    server.create_table(name, 2)
    checkpoint = server.checkpoint(step=2**64 - 1, keep=np.int8(100))
    assert checkpoint.step == 2**64 - 1
    before = server.checkpoints()
    cut = checkpoint.id + 2**64
    for call in (
        lambda: server.checkpoint_info(cut), lambda: server.verify_checkpoint(cut), lambda: server.delete_checkpoint(cut),
        lambda: server.restore_checkpoint(cut), lambda: server.checkpoint_info(True), lambda: server.checkpoint_info(1.0),
        lambda: server.export_table(name, tmp_path / "e", checkpoint=cut),
        lambda: server.export_table(name, tmp_path / "e", checkpoint=True),
        lambda: server.export_table(name, tmp_path / "e", file_bytes=2**64 + 5),
        lambda: server.export_table(name, tmp_path / "e", state="no"),
        lambda: server.export_table(name, tmp_path / "e", all_rows="no"),
        lambda: server.export_table(name, 5),
        lambda: server.checkpoint(step=2**64 + 5), lambda: server.checkpoint(step=True), lambda: server.checkpoint(keep=2**32 + 1),
        lambda: server.checkpoint(keep=None), lambda: server.import_table(tmp_path, rows=2**64 + 5),
        lambda: server.import_table(tmp_path, rows=2**64 - 1), lambda: server.import_table(tmp_path, rows=True),
        lambda: server.import_table(tmp_path, state="no"), lambda: server.import_table(tmp_path, seed=2**64),
        lambda: server.import_table(5),
        lambda: server.join(name, 2**32 + 1, 0), lambda: server.join(name, 1, True), lambda: server.join(name, 1, 0, 2**64),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            call()
    assert server.checkpoints() == before and not list(tmp_path.iterdir())


def test_offsets_and_weights_of_bags_are_not_cut(server, name):
    table = server.create_table(name, 2, optimizer="sgd")
    with server.bag_batch([embtier.Bags(table, 2, 1, "sum", True)]) as batch:
        batch.ids(0)[:] = [1, 2]
        for wrong in ([0, -1], [0, 2**32 + 2], [0.5, 2.0], [False, True]):
            with pytest.raises((TypeError, ValueError), match="offset"):
                batch.offsets(0)[:] = wrong
        for wrong in ([1j, 2], ["1", "2"], [True, 2], None):
            with pytest.raises((TypeError, ValueError)):
                batch.weights(0)[:] = wrong
        batch.offsets(0)[:] = [0, 2]
        batch.weights(0)[:] = [1, 2]
        assert batch.lookup(ticket=True).bags(0).shape == (1, 2)
        with pytest.raises(TypeError):
            batch.gradients(0)[:] = np.array([[1j, 2]])
        batch.gradients(0)[:] = torch.ones(1, 2, requires_grad=True)
        batch.push(0.1, 1)


# ---- torch ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_modules_take_ids_of_two_dtypes(server, name, dtype):
    bag = et.EmbeddingBag(server.create_table(name, 2, if_not_exists=True), frozen=True)
    try:
        ids = tensor_of(dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        pytest.skip(f"this torch makes no tensors of {dtype}")
    if dtype in (torch.int32, torch.int64):
        assert bag(ids).shape == (1, 2)
        assert bag(ids.reshape(-1), torch.tensor([0, 1]).to(dtype)).shape == (2, 2)
        return
    with pytest.raises(TypeError, match="must be int32 or int64"):
        bag(ids)
    with pytest.raises(TypeError, match="offsets must be int32 or int64"):
        bag(torch.tensor([1, 2]), ids.reshape(-1))


@pytest.mark.filterwarnings("ignore")
def test_modules_take_tensors_and_nothing_else(server, name):
    table = server.create_table(name, 2, 100, optimizer="sgd")
    bag = et.EmbeddingBag(table, lr=0.01)
    ids, offsets = torch.tensor([1, 2]), torch.tensor([0])
    meta = torch.empty(2, dtype=torch.int64, device="meta")
    for wrong in (5, [1, 2], np.array([1, 2]), "1", None, ids.to_sparse(), meta):
        with pytest.raises(TypeError):
            bag(wrong, offsets)
        if wrong is not None:
            with pytest.raises(TypeError):
                bag(ids, wrong)
            with pytest.raises(TypeError):
                bag(ids.view(1, 2), None, wrong)
    unbounded = server.create_table(f"{name}.u", 2, optimizer="sgd")
    for wrong in (1.5, "1", True, 2**64 + 5, HUGE, -(2**64) - 1):
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(table, padding_idx=wrong, lr=0.01)
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(unbounded, padding_idx=wrong, unsigned_ids=True, lr=0.01)
    with pytest.raises(TypeError):
        et.EmbeddingBag(table, unsigned_ids="no", lr=0.01)
    for wrong in (-1, 1.5, 2**53, True, "1", None):
        with pytest.raises((TypeError, ValueError)):
            bag.steps = wrong
    for wrong in (math.nan, 2.5, "2", True, None, 0, -1):
        with pytest.raises((TypeError, ValueError)):
            et.Prefetcher([], bag, lambda batch: batch, ahead=wrong)
    for wrong in ("0.1", True, 1j, [0.1], HUGE):  # None: the rate is set later
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(table, lr=wrong)
    for wrong in ("0.1", True, None, 1j, [0.1], HUGE):
        with pytest.raises((TypeError, ValueError)):
            bag.lr = wrong
        with pytest.raises((TypeError, ValueError), match="grad_scale"):
            bag.grad_scale = wrong
        bag.grad_scale = lambda wrong=wrong: wrong
        with pytest.raises((TypeError, ValueError), match="grad_scale"):
            bag(ids, offsets).sum().backward()
    bag.grad_scale = 0
    with pytest.raises(ValueError, match="grad_scale is 0"):
        bag(ids, offsets).sum().backward()
    assert bag.steps == 0 and bag.lr == 0.01 and not table.get([1, 2]).any()


def test_progress_is_a_function(server, name):
    for wrong in (5, "print", []):
        for call in (
            lambda: server.create_table(name, 2, progress=wrong),
            lambda: server.checkpoint(progress=wrong),
            lambda: server.drop_table(name, progress=wrong),
        ):
            with pytest.raises(TypeError, match="progress must be a function"):
                call()
    assert name not in [spec.name for spec in server.tables()]
