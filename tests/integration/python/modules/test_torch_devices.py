# SPDX-License-Identifier: Apache-2.0
"""Modules train as usual where torch makes new tensors on another device or of another dtype, and where a backward pass has
several threads. test_torch_cuda.py has the tests on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402
from embtier.torch import _bags, _compiled  # noqa: E402

ROWS, DIM, LR = 40, 6, 0.1
HAS_DEFAULT_DEVICE = hasattr(torch, "set_default_device")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    _bags._equal_offsets.cache_clear()
    yield
    torch.set_default_dtype(torch.float32)
    if HAS_DEFAULT_DEVICE:
        torch.set_default_device(None)
    if _compiled.HAS_OPERATORS:
        torch._dynamo.reset()
    _bags._equal_offsets.cache_clear()


def make_tables(server, name) -> list:
    return [server.create_table(f"{name}_{i}", DIM, ROWS, optimizer="sgd", init=("normal", 0, 1)) for i in range(3)]


def all_rows(table) -> np.ndarray:
    return table.get(np.arange(ROWS))


def make_modules(tables, update: str) -> tuple:
    return (
        et.EmbeddingBag(tables[0], mode="sum", padding_idx=3, lr=LR, update=update),
        et.EmbeddingBagCollection({"a": et.Bag(tables[1], "mean"), "b": et.Bag(tables[1], "sum")}, lr=LR, update=update),
        et.Embedding(tables[2], padding_idx=0, lr=LR, update=update),
    )


def passes(modules, ids, offsets, weights) -> torch.Tensor:
    bag, collection, embedding = modules
    both = collection({"a": ids, "b": (ids.view(-1)[:4], offsets)})
    outputs = [bag(ids.view(-1), offsets, weights), both["a"], both["b"], embedding(ids)]
    return torch.stack([one.square().sum() for one in outputs]).sum()


def train(tables, update: str, call=passes, modules=None) -> tuple[list[float], list[np.ndarray], np.ndarray]:
    """Returns the losses, the rows afterwards, and the last gradients of weights."""
    modules = modules or make_modules(tables, update)
    generator = torch.Generator("cpu").manual_seed(7)
    losses = []
    for _ in range(3):
        ids = torch.randint(0, ROWS, (5, 3), generator=generator, device="cpu")
        offsets = torch.tensor([0, 1, 1, 4], device="cpu")
        weights = torch.rand(15, generator=generator, dtype=torch.float32, device="cpu").requires_grad_()
        loss = call(modules, ids, offsets, weights)
        loss.backward()
        for module in modules:
            module.step()
        losses.append(loss.item())
    return losses, [all_rows(table) for table in tables], weights.grad.numpy()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("default", ["float64", "meta"])
def test_default_device_and_dtype_change_nothing(server, name, update, default, compiled):
    if default == "meta" and not HAS_DEFAULT_DEVICE:
        pytest.skip("this torch has no default device")
    if compiled and not _compiled.HAS_OPERATORS:
        pytest.skip("this torch has no custom operators")
    wanted = train(make_tables(server, name), update)
    tables = make_tables(server, f"{name}_other")
    _bags._equal_offsets.cache_clear()
    modules = make_modules(tables, update)
    if default == "meta":  # tensors without numbers, so that reading one fails
        torch.set_default_device("meta")
    else:
        torch.set_default_dtype(torch.float64)
    call = torch.compile(passes, backend="aot_eager") if compiled else passes
    found = train(tables, update, call, modules)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for ours, theirs in zip(found[1], wanted[1]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-5)


@pytest.mark.skipif(not HAS_DEFAULT_DEVICE, reason="this torch has no default device")
def test_model_that_was_made_on_another_device_trains(server, name):
    wanted = train(make_tables(server, name), "step")
    tables = make_tables(server, f"{name}_other")
    with torch.device("meta"):
        modules = make_modules(tables, "step")
    modules = tuple(one.to("meta").to_empty(device="cpu") for one in modules)
    assert [rows.device.type for one in modules for rows in one.rows] == ["cpu"] * 3
    found = train(tables, "step", modules=modules)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


@pytest.mark.parametrize("update", et.UPDATES)
def test_threads_of_backward_passes_take_turns(server, name, update):
    """Backward passes on several devices have a thread each; here each thread has its own graph."""
    tables = make_tables(server, name)
    before = [all_rows(table) for table in tables]
    modules = [et.EmbeddingBag(table, mode="sum", lr=LR, update=update) for table in tables]
    graphs = [[module(torch.tensor([[1, 2]])) for _ in range(100)] for module in modules]
    weights = [torch.ones(1, 2, requires_grad=True) for _ in modules]
    graphs = [[*g, m(torch.tensor([[1, 2]]), per_sample_weights=w)] for g, m, w in zip(graphs, modules, weights)]
    begin = threading.Barrier(len(tables))
    errors: list[BaseException] = []

    def run(outputs: list[torch.Tensor]) -> None:
        begin.wait(60)
        try:
            for output in outputs:
                output.sum().backward()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(outputs,)) for outputs in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for module, table, rows in zip(modules, tables, before):
        module.step()
        rows[[1, 2]] -= 101 * np.float32(LR)
        np.testing.assert_allclose(all_rows(table), rows, rtol=1e-4, atol=1e-4)
    assert all(one.grad is not None for one in weights)
