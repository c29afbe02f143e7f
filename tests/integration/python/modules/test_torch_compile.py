# SPDX-License-Identifier: Apache-2.0
"""torch.compile takes modules into its graph, and a compiled model trains as the module alone does. Other ways to record or
transform a model are refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402
from embtier.torch import _compiled  # noqa: E402

ROWS, DIM, LR = 40, 6, 0.05

compiles = pytest.mark.skipif(not _compiled.HAS_OPERATORS, reason="this torch has no custom operators")


@pytest.fixture(autouse=True)
def _fixed_seed() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    yield
    if _compiled.HAS_OPERATORS:
        torch._dynamo.reset()


@pytest.fixture
def tables(server, name):
    return [server.create_table(f"{name}_{i}", DIM, ROWS, optimizer="sgd", init=("normal", 0, 1)) for i in range(4)]


def all_rows(table) -> np.ndarray:
    return table.get(np.arange(ROWS))


class Model(torch.nn.Module):
    def __init__(self, bag, collection, embedding) -> None:
        super().__init__()
        self.bag, self.collection, self.embedding = bag, collection, embedding
        self.dense = torch.nn.Linear(4 * DIM, 1)

    def forward(self, ids, offsets, weights):
        both = self.collection({"a": ids, "b": (ids[:, 0] + 1, offsets, weights)})
        rows = self.embedding(ids % 7).mean(1)
        return self.dense(torch.cat([self.bag(ids), both["a"], both["b"], rows], 1)).square().mean()


def make_model(tables, update: str) -> Model:
    torch.manual_seed(3)
    return Model(
        et.EmbeddingBag(tables[0], mode="mean", padding_idx=2, lr=LR, update=update),
        et.EmbeddingBagCollection({"a": et.Bag(tables[1], "sum"), "b": et.Bag(tables[2], "sum", True)}, lr=LR, update=update),
        et.Embedding(tables[3], padding_idx=0, lr=LR, update=update),
    )


def train(model, call, shapes, update: str) -> tuple[list[float], list[np.ndarray]]:
    torch.manual_seed(5)
    optimizer = et.CombinedOptimizer(torch.optim.SGD(model.parameters(), lr=LR), model)
    losses, gradients = [], []
    for count in shapes:
        ids = torch.randint(0, ROWS - 1, (count, 3))
        offsets = torch.tensor([*range(count), count])
        weights = torch.rand(count, requires_grad=True)
        optimizer.zero_grad()
        loss = call(ids, offsets, weights)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        gradients.append(weights.grad.numpy().copy())
    return losses, gradients


def _need(backend: str) -> None:
    headers = Path(torch.__file__).parent / "include/ATen"
    if backend == "inductor" and not (headers.exists() and shutil.which("g++")):
        pytest.skip("no C++ compiler, or none of torch's headers")


@compiles
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("update", et.UPDATES)
def test_compiled_model_trains_as_it_does_by_itself(server, name, tables, update, backend):
    _need(backend)
    shapes = [8] * 4 + [5, 7, 5]
    before = [all_rows(table) for table in tables]
    by_itself = make_model(tables, update)
    losses, gradients = train(by_itself, by_itself, shapes, update)
    after = [all_rows(table) for table in tables]
    for table, rows in zip(tables, before):
        table.set(np.arange(ROWS), rows)
    model = make_model(tables, update)
    compiled_losses, compiled_gradients = train(model, torch.compile(model, fullgraph=True, backend=backend), shapes, update)
    np.testing.assert_allclose(compiled_losses, losses, rtol=1e-5)
    for ours, theirs in zip(compiled_gradients, gradients):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    for table, rows in zip(tables, after):
        np.testing.assert_allclose(all_rows(table), rows, rtol=1e-5, atol=1e-5)
    assert by_itself.bag.steps == len(shapes) and model.bag.steps == 2 * len(shapes)  # tables count the steps of both models


@compiles
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("update", et.UPDATES)
def test_module_that_is_called_twice_gets_both_gradients(tables, update, backend):
    _need(backend)
    bag, ids = et.EmbeddingBag(tables[0], mode="sum", lr=1, update=update), torch.tensor([[1, 2, 1]])
    before = all_rows(tables[0])
    call = torch.compile(lambda: (bag(ids) + 2 * bag(ids)).sum(), fullgraph=True, backend=backend)
    call().backward()
    bag.step()
    before[[1, 2]] -= [[6], [3]]
    np.testing.assert_allclose(all_rows(tables[0]), before, rtol=1e-5, atol=1e-5)
    assert bag.steps == (2 if update == "backward" else 1)


@compiles
def test_compiled_passes_without_a_backward_pass_give_their_tickets_back(tables):
    bag = et.EmbeddingBag(tables[0], mode="sum", lr=LR)
    compiled = torch.compile(bag, fullgraph=True, backend="aot_eager")
    ids = torch.tensor([[1, 2]])
    for _ in range(1100):  # more tickets than a session may have
        compiled(ids)
    with torch.no_grad():
        torch.testing.assert_close(compiled(ids), bag(ids))
    before = all_rows(tables[0])
    compiled(ids).sum().backward()
    before[[1, 2]] -= np.float32(LR)
    np.testing.assert_allclose(all_rows(tables[0]), before, rtol=1e-6)
    bag.requires_grad_(False)
    (compiled(ids) * torch.ones(1, requires_grad=True)).sum().backward()
    np.testing.assert_allclose(all_rows(tables[0]), before, rtol=1e-6)


def test_recording_and_transforms_are_refused(tables):
    bag, ids = et.EmbeddingBag(tables[0], lr=LR), torch.tensor([[1, 2]])
    with pytest.raises(RuntimeError, match="torch.jit.script does not support rows that are in embtierd"):
        torch.jit.script(torch.nn.Sequential(bag))
    with pytest.raises(RuntimeError, match="torch.jit.trace would record rows as constants"):
        torch.jit.trace(bag, (ids,))
    if _compiled.HAS_OPERATORS:
        with pytest.raises(RuntimeError, match="torch.func .* does not support rows that are in embtierd"):
            torch.func.vmap(bag)(ids.unsqueeze(0))
    if hasattr(torch.compiler, "is_exporting") if _compiled.HAS_OPERATORS else False:
        with pytest.raises(Exception, match="torch.export does not support rows that are in embtierd"):
            torch.export.export(bag, (ids,), strict=False)
