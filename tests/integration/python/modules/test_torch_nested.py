# SPDX-License-Identifier: Apache-2.0
"""For nested tensors of ids, modules give and train the same as torch's modules."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import embtier.torch as et  # noqa: E402

if not hasattr(torch.nested, "nested_tensor_from_jagged"):
    pytest.skip("this torch has no jagged tensors", allow_module_level=True)

ROWS, DIM, LR = 40, 6, 0.1


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)


@pytest.fixture
def make_table(server, name) -> Callable:
    made = []

    def make():
        made.append(server.create_table(f"{name}_{len(made)}", DIM, ROWS, optimizer="sgd", init=("normal", 0, 1)))
        return made[-1]

    return make


def all_rows(table) -> torch.Tensor:
    return torch.from_numpy(table.get(np.arange(ROWS)))


def nested(lengths: list[int], dtype=torch.int64) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.randint(0, ROWS, (n,), dtype=dtype) for n in lengths], layout=torch.jagged)


LENGTHS = [3, 0, 5, 1]


def step(optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def twin_of(kind: type[nn.Module], table, **options) -> nn.Module:
    return kind.from_pretrained(all_rows(table).clone(), freeze=False, **options)


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("padding_idx", [None, 7])
def test_embedding_gives_rows_nested_as_ids_are(make_table, update, dtype, padding_idx):
    table = make_table()
    ours, theirs = et.Embedding(table, padding_idx=padding_idx, lr=LR, update=update), twin_of(nn.Embedding, table, padding_idx=padding_idx)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
    for lengths in (LENGTHS, [2], [4, 4, 9]):
        ids = nested(lengths, dtype)
        outputs = ours(ids), theirs(ids)
        assert outputs[0].shape == outputs[1].shape and outputs[0].layout == torch.jagged
        torch.testing.assert_close(outputs[0].values(), outputs[1].values())
        (outputs[0] + outputs[1].detach()).values().square().sum().backward()  # both lengths are the same symbol
        ours.step()
        step(optimizer, (outputs[1] + outputs[1].detach()).values().square().sum())
    torch.testing.assert_close(all_rows(table), theirs.weight.detach(), rtol=1e-5, atol=1e-5)


def test_embedding_takes_ids_with_more_dimensions(make_table):
    table = make_table()
    ids = torch.nested.nested_tensor([torch.randint(0, ROWS, (n, 2)) for n in (3, 1)], layout=torch.jagged)
    found, wanted = et.Embedding(table, lr=LR)(ids), twin_of(nn.Embedding, table)(ids)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found.values(), wanted.values())


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("mode", et.MODES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_bags_are_pooled_and_trained_as_torch_s(make_table, mode, update, weighted, include_last_offset):
    if (weighted and mode != "sum") or (update == "step" and mode == "max"):
        pytest.skip("refused")
    table = make_table()
    ours = et.EmbeddingBag(table, mode=mode, include_last_offset=include_last_offset, lr=LR, update=update)
    theirs = twin_of(nn.EmbeddingBag, table, mode=mode)
    ids = nested(LENGTHS)
    weights = [None, None]
    if weighted:
        values = torch.rand(len(ids.values()))
        leaves = [values.clone().requires_grad_() for _ in range(2)]
        weights = [torch.nested.nested_tensor_from_jagged(one, offsets=ids.offsets()) for one in leaves]
    outputs = ours(ids, per_sample_weights=weights[0]), theirs(ids, per_sample_weights=weights[1])
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    ours.step()
    if weighted:
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    torch.testing.assert_close(all_rows(table), (theirs.weight - LR * theirs.weight.grad).detach())


def test_collection_takes_nested_and_other_features(make_table):
    tables = make_table(), make_table()
    bags = et.EmbeddingBagCollection({"a": et.Bag(tables[0], "sum"), "b": et.Bag(tables[1], "mean")}, lr=LR)
    a, b = nested(LENGTHS), torch.randint(0, ROWS, (4, 2))
    found = bags({"a": a, "b": b})
    torch.testing.assert_close(found["a"], twin_of(nn.EmbeddingBag, tables[0], mode="sum")(a))
    torch.testing.assert_close(found["b"], twin_of(nn.EmbeddingBag, tables[1], mode="mean")(b))
    torch.testing.assert_close(bags({"a": (a, None, None)})["a"], found["a"])


@pytest.mark.parametrize("kind", [et.Embedding, et.EmbeddingBag])
def test_prefetcher_reads_nested_ids_ahead(make_table, kind):
    module = kind(make_table(), lr=LR)
    loader = [nested(LENGTHS) for _ in range(5)]
    prefetcher = et.Prefetcher(loader, module, lambda ids: ids)
    seen = []
    for ids in prefetcher:
        output = module(ids)
        (output.values() if kind is et.Embedding else output).sum().backward()
        seen.append(ids)
    assert all(one is other for one, other in zip(seen, loader)) and len(seen) == 5 and prefetcher.skipped_prefetches == 0


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("update", et.UPDATES)
def test_compiled_modules_take_nested_ids(make_table, update, backend):
    tables = make_table(), make_table()
    bag, embedding = et.EmbeddingBag(tables[0], mode="sum", lr=LR, update=update), et.Embedding(tables[1], lr=LR, update=update)
    twins = twin_of(nn.EmbeddingBag, tables[0], mode="sum"), twin_of(nn.Embedding, tables[1])
    optimizer = torch.optim.SGD([one.weight for one in twins], lr=LR)

    def loss(bag, embedding, ids):
        return bag(ids).square().sum() + embedding(ids).values().square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for lengths in (LENGTHS, [5, 6, 1], [2, 2, 2, 2]):
        ids = nested(lengths)
        losses = compiled(bag, embedding, ids), loss(*twins, ids)
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
        losses[0].backward()
        bag.step()
        embedding.step()
        step(optimizer, losses[1])
    for table, twin in zip(tables, twins):
        torch.testing.assert_close(all_rows(table), twin.weight.detach(), rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_other_nested_tensors_are_refused(make_table):
    bag, embedding = et.EmbeddingBag(make_table(), mode="sum", lr=LR), et.Embedding(make_table(), lr=LR)
    ids = nested(LENGTHS)
    holes = torch.nested.narrow(torch.arange(12).view(3, 4), 1, torch.tensor([0, 1, 2]), torch.tensor([2, 3, 1]), layout=torch.jagged)
    for module in (bag, embedding):
        with pytest.raises(ValueError, match=r"must be contiguous: .* narrow\(\)"):
            module(holes)
    torch.testing.assert_close(bag(holes.contiguous())[2], embedding(torch.tensor(10)) * 0 + all_rows(bag.bags["bag"].table)[10])
    with pytest.raises(TypeError, match="takes no offsets"):
        bag(ids, torch.tensor([0]))
    weights = torch.rand(len(ids.values()))
    with pytest.raises(TypeError, match="per_sample_weights that are nested"):
        bag(ids, per_sample_weights=weights)
    others = torch.nested.nested_tensor_from_jagged(weights, offsets=torch.tensor([0, 2, 3, 8, 9]))
    with pytest.raises(ValueError, match="the lengths of the ids"):
        bag(ids, per_sample_weights=others)
    behind = torch.nested.nested_tensor_from_jagged(torch.arange(10), offsets=torch.tensor([0, 3, 5]))
    with pytest.raises(ValueError, match="the number of its values, 10, not 5"):
        bag(behind)
    with pytest.raises(ValueError, match="two dimensions"):
        bag(torch.nested.nested_tensor([torch.ones(3, 2, dtype=torch.int64)], layout=torch.jagged))
    strided = torch.nested.nested_tensor([torch.tensor([1]), torch.tensor([2, 3])])
    for module in (bag, embedding):
        with pytest.raises(TypeError, match=r"layout=torch\.jagged"):
            module(strided)
