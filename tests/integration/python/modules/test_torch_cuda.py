# SPDX-License-Identifier: Apache-2.0
"""Models on a GPU, with ids and gradients on the GPU and rows in the server, train as torch's models do there. Skipped where
torch has no GPU."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from test_torch_compile import compiles
from test_torch_replace import Dcn, DeepFm, Dlrm, Sequence, Towers

import embtier

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import embtier.torch as et  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has no GPU here")

ROWS, DIM, LR = 50, 6, 0.1
STEPS = 100
FORMS = ["bag", "embedding", "collection"]


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def table(server, name) -> embtier.Table:
    return server.create_table(name, DIM, ROWS, optimizer="sgd", init=("normal", 0, 1))


def all_rows(table: embtier.Table) -> torch.Tensor:
    return torch.from_numpy(table.get(np.arange(table.rows)))


def on_gpu() -> contextlib.AbstractContextManager:
    """Puts new tensors on the GPU (torch 2.0 and newer)."""
    return torch.device("cuda") if hasattr(torch.device, "__enter__") else pytest.skip("this torch has no default device")


def twins(server: embtier.Server, name: str, kind: type[nn.Module], **options) -> tuple[nn.Module, nn.Module]:
    """A model of torch's on the GPU, and the same model with our stand-ins."""
    theirs, ours = kind(), kind()
    ours.load_state_dict(theirs.state_dict())
    et.replace(ours, server, lr=LR, prefix=f"{name}.", optimizer="sgd", min_rows=5, **options)
    return ours.cuda(), theirs.cuda()


# ---- Training ----


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("kind", [Towers, Dlrm, DeepFm, Dcn, Sequence])
def test_model_has_the_losses_of_torch_s(server, name, kind, update):
    models = twins(server, name, kind, update=update)
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    for _ in range(STEPS):
        with on_gpu():
            ids, dense = torch.randint(1, ROWS, (8, 4)), torch.rand(8, 3)
            losses = []
            for model, one in zip(models, optimizers):
                one.zero_grad()
                losses.append(model(ids, dense))
                losses[-1].backward()
                if update == "step":
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                one.step()
        assert losses[0].is_cuda
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_scaler_of_torch_s_scales_autocast_s_losses(server, name, fused):
    models = twins(server, name, Towers)
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR, fused=fused) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    scalers = [torch.amp.GradScaler("cuda", init_scale=2.0**40) for _ in models]
    for _ in range(60):
        with on_gpu():
            ids, dense = torch.randint(1, ROWS, (8, 4)), torch.rand(8, 3)
            losses = []
            for model, one, scaler in zip(models, optimizers, scalers):
                one.zero_grad()
                with torch.autocast("cuda", dtype=torch.float16):
                    losses.append(model(ids, dense))
                scaler.scale(losses[-1]).backward()
                scaler.step(one)
                scaler.update()
        torch.testing.assert_close(*losses, rtol=2e-2, atol=2e-2)
    assert scalers[0].get_scale() == scalers[1].get_scale() < 2.0**30  # both skipped some steps
    trained = all_rows(models[0].item.bags["rows"].table)
    torch.testing.assert_close(trained, models[1].item.weight.detach().cpu(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("device_of_weights", ["cpu", "cuda"])
def test_weights_of_samples_get_their_gradients(table, update, device_of_weights):
    ours = et.EmbeddingBag(table, mode="sum", lr=LR, update=update).cuda()
    theirs = nn.EmbeddingBag.from_pretrained(all_rows(table), freeze=False, mode="sum").cuda()
    ids = torch.randint(0, ROWS, (5, 3), device="cuda")
    weights = [torch.rand(5, 3, device=device_of_weights).requires_grad_()]
    weights.append(weights[0].detach().cuda().requires_grad_())
    outputs = ours(ids, per_sample_weights=weights[0]), theirs(ids, per_sample_weights=weights[1])
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    ours.step()
    assert weights[0].grad.device.type == device_of_weights
    torch.testing.assert_close(weights[0].grad.cuda(), weights[1].grad)
    torch.testing.assert_close(all_rows(table), (theirs.weight - LR * theirs.weight.grad).detach().cpu())


@pytest.mark.parametrize("update", et.UPDATES)
def test_passes_of_both_devices_train_together(server, name, table, update):
    """In a backward pass each device has its own thread."""
    tables = [table, *(server.create_table(f"{name}{i}", DIM, ROWS, optimizer="sgd", init=("normal", 0, 1)) for i in range(5))]
    bags = [et.EmbeddingBag(one, mode="sum", lr=LR, update=update) for one in tables]
    before = [all_rows(one) for one in tables]
    for _ in range(50):
        outputs = [bag(torch.tensor([[3, 4]], device=device)) for bag, device in zip(bags, ["cuda", "cpu"] * 3)]
        sum(one.sum().cpu() for one in outputs).backward()
        for bag in bags:
            bag.step()
    for one, rows in zip(tables, before):
        rows[[3, 4]] -= 50 * LR
        torch.testing.assert_close(all_rows(one), rows, rtol=1e-4, atol=1e-4)


def test_gathered_gradients_lie_where_outputs_do(table):
    bag = et.EmbeddingBag(table, mode="sum", lr=LR, update="step").cuda()
    bag(torch.tensor([[1, 2], [2, 3]], device="cuda")).sum().backward()
    (rows,) = bag.rows
    assert rows.is_cuda and rows.grad.is_cuda and rows.ids.tolist() == [1, 2, 3]
    bag(torch.tensor([[1, 2]])).sum().backward()  # another pass, with ids in main memory
    assert rows.grad[:, 0].tolist() == [2, 3, 1]
    norm = torch.nn.utils.clip_grad_norm_(bag.parameters(), 1.0)
    assert float(norm) == pytest.approx((14 * DIM) ** 0.5)
    before = all_rows(table)
    bag.step()
    before[[1, 2, 3]] -= LR * torch.tensor([[2.0], [3.0], [1.0]]) / norm.cpu()
    torch.testing.assert_close(all_rows(table), before)


# ---- torch.compile ----


@compiles
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("kind", [Dlrm, DeepFm])
def test_compiled_model_has_the_losses_of_torch_s(server, name, kind, update, mode):
    """"reduce-overhead" records CUDA graphs, which cannot hold a request."""
    models = twins(server, name, kind, update=update)
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    compiled = torch.compile(models[0], fullgraph=True, mode=mode)
    warnings.simplefilter("ignore")  # the compiler's own warnings
    for _ in range(20):
        with on_gpu():
            ids, dense = torch.randint(1, ROWS, (8, 4)), torch.rand(8, 3)
            losses = []
            for call, one in zip((compiled, models[1]), optimizers):
                one.zero_grad()
                losses.append(call(ids, dense).clone())
                losses[-1].backward()
                one.step()
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


# ---- Rows and states ----


def test_rows_are_read_and_written_by_tensors_on_the_gpu(table):
    ids = torch.tensor([4, 2, 9], device="cuda")
    rows = torch.randn(3, DIM, device="cuda")
    table.set(ids, rows)
    np.testing.assert_array_equal(table.get(ids), rows.cpu().numpy())
    with table.server.push_batch([(table, 3)]) as batch:
        batch.ids(0)[:] = ids
        batch.gradients(0)[:] = torch.ones(3, DIM, device="cuda")
        batch.push(1, 1)
    np.testing.assert_allclose(table.get(ids), rows.cpu().numpy() - 1, rtol=1e-6)
    bf16 = table.server.create_table(f"{table.name}_bf16", DIM, ROWS, dtype="bf16")
    bf16.set(ids, rows.bfloat16())
    np.testing.assert_array_equal(bf16.get(ids).view(np.int16), rows.bfloat16().view(torch.int16).cpu().numpy())


def test_state_that_was_loaded_onto_the_gpu_is_taken(table):
    model = nn.ModuleDict({"bag": et.EmbeddingBag(table, lr=LR), "dense": nn.Linear(DIM, 1)}).cuda()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, map_location="cuda")
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    assert all(value.is_cuda for value in state.values())


def test_weights_on_the_gpu_become_rows(server, name):
    weights = torch.randn(ROWS, DIM, device="cuda")
    table = server.create_table(name, DIM, ROWS)
    ours = et.Embedding.from_pretrained(weights, server=server, name=f"{name}_pretrained")
    torch.testing.assert_close(ours(torch.arange(ROWS, device="cuda")), weights, rtol=0, atol=0)
    table.set(range(ROWS), weights)
    torch.testing.assert_close(all_rows(table), weights.cpu(), rtol=0, atol=0)


@pytest.mark.skipif(not hasattr(torch.nested, "nested_tensor_from_jagged"), reason="this torch has no jagged tensors")
def test_nested_ids_on_the_gpu(server, name, table):
    ids = torch.nested.nested_tensor([torch.tensor(one, dtype=torch.int64) for one in ([3, 4], [], [5])], layout=torch.jagged, device="cuda")
    bag, embedding = et.EmbeddingBag(table, mode="sum", lr=LR), et.Embedding(table, lr=LR)
    weight = all_rows(table).cuda()
    torch.testing.assert_close(bag(ids), torch.nn.functional.embedding_bag(ids, weight, mode="sum"))
    found = embedding(ids)
    assert found.is_cuda and found.layout == torch.jagged
    torch.testing.assert_close(found.values(), weight[[3, 4, 5]])
    found.values().sum().backward()
    weight[[3, 4, 5]] -= LR
    torch.testing.assert_close(all_rows(table), weight.cpu())


@pytest.mark.parametrize("update", et.UPDATES)
def test_models_with_a_default_device_train(server, name, update):
    """The model is made, gets ids and trains where new tensors lie on the GPU."""
    with on_gpu():
        ours = et.EmbeddingBag(ROWS, DIM, mode="sum", padding_idx=2, server=server, name=name, lr=LR, optimizer="sgd", update=update)
        theirs = nn.EmbeddingBag.from_pretrained(all_rows(ours.bags["bag"].table).cuda(), freeze=False, mode="sum", padding_idx=2)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=LR)
        for _ in range(5):
            ids, offsets = torch.randint(0, ROWS, (12,)), torch.tensor([0, 4, 4])
            outputs = ours(ids, offsets), theirs(ids, offsets)
            torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
            optimizer.zero_grad()
            for output in outputs:
                output.square().sum().backward()
            ours.step()
            optimizer.step()
    torch.testing.assert_close(all_rows(ours.bags["bag"].table), theirs.weight.detach().cpu(), rtol=1e-4, atol=1e-4)


def test_prefetcher_has_batches_that_lie_on_the_gpu(table):
    bag = et.EmbeddingBag(table, mode="sum", lr=LR).cuda()
    loader = [torch.randint(0, ROWS, (4, 3), device="cuda") for _ in range(10)]
    twin = nn.EmbeddingBag.from_pretrained(all_rows(table), freeze=False, mode="sum").cuda()
    optimizer = torch.optim.SGD(twin.parameters(), lr=LR)
    for ids in et.Prefetcher(loader, bag, lambda batch: batch):
        optimizer.zero_grad()
        outputs = bag(ids), twin(ids)
        torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
        for output in outputs:
            output.square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(all_rows(table), twin.weight.detach().cpu(), rtol=1e-4, atol=1e-4)


def test_graph_of_cuda_s_with_a_request_in_it_is_refused(table):
    bag = et.EmbeddingBag(table, mode="sum", lr=LR).cuda()
    ids = torch.tensor([[1, 2]], device="cuda")
    bag(ids)
    warnings.simplefilter("ignore")  # torch warns that the graph is empty
    with pytest.raises(RuntimeError, match="a CUDA graph cannot record requests"), torch.no_grad():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            bag(ids)
    torch.cuda.synchronize()
    assert bag(ids).shape == (1, DIM)
