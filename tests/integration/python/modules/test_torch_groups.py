# SPDX-License-Identifier: Apache-2.0
"""Copies of a model, each trained on a part of every batch, train as one model whose gradients are added up."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import TREE
from prefetching import await_pinned

import embtier

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402

DIM = 6
ROWS = 40
LR = 0.5
LIMIT_S = 60
BOTH = range(2)


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def make_table(server: embtier.Server, name: str, **options) -> embtier.Table:
    options = {"optimizer": "sgd", "init": ("normal", 0, 1), "seed": 5} | options
    return server.create_table(name, DIM, ROWS, **options)


def all_rows(table: embtier.Table) -> np.ndarray:
    return table.get(np.arange(table.rows))


@pytest.fixture
def members(daemon, name) -> Iterator[Callable[..., list[et.EmbeddingBag]]]:
    """Makes a module per member over one table, each with its own membership and connection."""
    servers: list[embtier.Server] = []

    def make(table: str = name, count: int = 2, step: int = 0, **options) -> list[et.EmbeddingBag]:
        some = []
        for member in range(count):
            servers.append(daemon.connect())
            group = servers[-1].join(table, count, member, step)
            options = {"lr": LR, "mode": "sum", "reduce": "sum"} | options
            some.append(et.EmbeddingBag(servers[-1].open_table(table), group=group, **options))
        return some

    yield make
    for server in servers:
        server.close()


def together(train: Callable[[int], object], count: int = 2) -> list:
    """Runs @train for each member, in a thread of its own."""
    with ThreadPoolExecutor(count) as pool:
        return [one.result(LIMIT_S) for one in [pool.submit(train, member) for member in range(count)]]


def some_ids(step: int, member: int) -> torch.Tensor:
    return torch.randint(0, ROWS, (4, 5), generator=torch.Generator().manual_seed(step * 10 + member))


def loss_of(out: torch.Tensor) -> torch.Tensor:
    return (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() + out.square().sum() / 4


def reference(table: embtier.Table, steps: int) -> None:
    """The same by one trainer with all parts: adds up the members' sums in their order, and applies SGD by hand."""
    bag = et.EmbeddingBag(table, mode="sum", frozen=True)
    for step in range(steps):
        total = np.zeros((ROWS, DIM), np.float32)
        for member in BOTH:
            ids = some_ids(step, member)
            out = bag(ids).requires_grad_()
            loss_of(out).backward()
            of_member = np.zeros_like(total)
            for one, gradient in zip(ids.numpy(), out.grad.numpy()):
                for row in one:
                    of_member[row] += gradient
            total += of_member
        table.set(np.arange(ROWS), all_rows(table) - np.float32(LR) * total)


# ---- Training ----


@pytest.mark.parametrize("update", et.UPDATES)
def test_copies_train_to_the_bytes_of_a_reference(server, members, name, update):
    table, expected = make_table(server, name), make_table(server, f"{name}_reference")
    bags = members(update=update)

    def train(member: int) -> list[float]:
        losses = []
        for step in range(8):
            loss = loss_of(bags[member](some_ids(step, member)))
            loss.backward()
            bags[member].step()
            assert bags[member].steps == step + 1
            losses.append(loss.item())
        return losses

    losses = together(train)
    assert losses[0] != losses[1]
    reference(expected, 8)
    np.testing.assert_array_equal(all_rows(table).view(np.uint32), all_rows(expected).view(np.uint32))


# For processes that import this file.
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join(str(TREE / folder) for folder in ("client/python", "tests/integration/python", "tests/integration/python/modules"))
}
_TRAINS = """\
import sys
import torch, embtier, embtier.torch, test_torch_groups as t
torch.set_num_threads(1)
with embtier.connect(sys.argv[1], timeout=60) as server:
    group = server.join(sys.argv[2], 2, 1)
    bag = embtier.torch.EmbeddingBag(server.open_table(sys.argv[2]), mode="sum", lr=t.LR, group=group, reduce="sum")
    print("joined", flush=True)
    for step in range(5):
        t.loss_of(bag(t.some_ids(step, 1))).backward()
    print(bag.steps)
"""


def test_copies_in_processes_of_their_own_train_the_same(server, daemon, name):
    table, expected = make_table(server, name), make_table(server, f"{name}_reference")
    command = [sys.executable, "-c", _TRAINS, daemon.socket, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as other:
        assert other.stdout.readline() == "joined\n"  # it loads torch first, and a push waits for a minute at most
        bag = et.EmbeddingBag(table, mode="sum", lr=LR, group=server.join(name, 2, 0), reduce="sum")
        for step in range(5):
            loss_of(bag(some_ids(step, 0))).backward()
        assert other.communicate(timeout=LIMIT_S)[0] == "5\n"
    assert bag.steps == bag.group.step == 5
    reference(expected, 5)
    np.testing.assert_array_equal(all_rows(table), all_rows(expected))


def test_each_module_of_a_model_has_its_group(daemon, server, name):
    tables = {k: make_table(server, f"{name}_{k}") for k in "abc"}
    before = {k: all_rows(table) for k, table in tables.items()}

    def train(member: int) -> None:
        with daemon.connect() as own:
            mine = {k: own.open_table(table.name) for k, table in tables.items()}
            groups = [own.join(f"{name}_{i}", 2, member) for i in range(2)]
            first = et.EmbeddingBagCollection({k: et.Bag(mine[k], "sum") for k in "ab"}, lr=LR, group=groups[0], reduce="sum")
            second = et.EmbeddingBag(mine["c"], mode="sum", lr=LR, group=groups[1], reduce="sum")
            for step in range(3):
                out = first({k: torch.tensor([[member], [2]]) for k in "ab"})
                (out["a"] + out["b"] + second(torch.tensor([[member], [2]]))).sum().backward()
                assert first.steps == second.steps == step + 1

    together(train)
    for k, table in tables.items():
        before[k][[0, 1]] -= np.float32(LR)
        before[k][2] -= np.float32(2 * LR)
        for _ in range(2):
            before[k][[0, 1]] -= np.float32(LR)
            before[k][2] -= np.float32(2 * LR)
        np.testing.assert_array_equal(all_rows(table), before[k])


@pytest.mark.parametrize("update", et.UPDATES)
def test_a_member_without_ids_or_gradients_takes_part(server, members, name, update):
    table = make_table(server, name, init="zeros")
    bags = members(update=update)
    none = torch.empty(2, 0, dtype=torch.int64)
    given = {0: [torch.tensor([[1]]), none, none], 1: [none, torch.tensor([[2]]), none]}

    def train(member: int) -> None:
        for ids in given[member]:
            bags[member](ids).sum().backward()
            bags[member].step()

    together(train)
    assert all_rows(table)[:4, 0].tolist() == [0, -LR, -LR, 0]
    assert [bag.steps for bag in bags] == [3, 3]
    if update == "step":
        together(lambda member: bags[member].step())
        assert [bag.steps for bag in bags] == [4, 4]


def test_gradients_of_several_passes_are_one_step_with_update_step(server, members, name):
    table = make_table(server, name, init="zeros")
    bags = members(update="step")

    def train(member: int) -> None:
        for _ in range(1 + member):
            bags[member](torch.tensor([[1]])).sum().backward()
        bags[member].step()

    together(train)
    assert all_rows(table)[1, 0] == -3 * LR and [bag.steps for bag in bags] == [1, 1]


def test_gradients_of_weights_come_with_the_push(server, members, name):
    table = make_table(server, name)
    rows, bags = all_rows(table), members()

    def train(member: int) -> torch.Tensor:
        weights = torch.ones(1, 2, requires_grad=True)
        bags[member](torch.tensor([[1, 2 + member]]), per_sample_weights=weights).sum().backward()
        return weights.grad

    for member, found in enumerate(together(train)):
        np.testing.assert_allclose(found.numpy()[0], rows[[1, 2 + member]].sum(axis=1), rtol=1e-5)


def test_prefetches_are_released_after_the_push(server, members, name):
    table = make_table(server, name)
    bags = members()

    def train(member: int) -> None:
        loader = [some_ids(step, member) for step in range(6)]
        prefetcher = et.Prefetcher(loader, bags[member], lambda ids: ids, ahead=2)
        for ids in prefetcher:
            loss_of(bags[member](ids)).backward()
        assert prefetcher.skipped_prefetches == 0

    together(train)
    await_pinned(server, 0)
    expected = make_table(server, f"{name}_reference")
    reference(expected, 6)
    np.testing.assert_array_equal(all_rows(table), all_rows(expected))


# ---- Gradients that are not finite ----


@pytest.mark.parametrize("late", BOTH)
@pytest.mark.parametrize("update", et.UPDATES)
def test_one_member_s_infinity_is_skipped_by_all(server, members, name, update, late):
    table = make_table(server, name)
    before, bags = all_rows(table), members(update=update)
    grads: dict[int, torch.Tensor] = {}

    def train(member: int, factor: float) -> None:
        weights = torch.ones(1, 1, requires_grad=True)
        out = bags[member](torch.tensor([[1]]), per_sample_weights=weights)
        (out * (factor if member == late else 1)).sum().backward()
        bags[member].step()
        grads[member] = weights.grad

    with pytest.warns(UserWarning, match="skipped a push.*skipped_pushes") as told:
        together(lambda member: train(member, float("inf")))
    assert len(told) == 2
    blamed = [f"member {late}'s push" in str(one.message) for one in told]
    assert sorted(blamed) == [False, True]
    np.testing.assert_array_equal(all_rows(table), before)
    if update == "backward":
        assert all(gradient.isnan().all() for gradient in grads.values())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together(lambda member: train(member, float("nan")))
        together(lambda member: train(member, 1))
    assert [(bag.steps, bag.skipped_pushes) for bag in bags] == [(1, 2)] * 2
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))


class OldScaler:
    """Does as torch.cuda.amp.GradScaler before torch 2.0 does, up to an optimizer's step()."""

    def __init__(self, scale: float, optimizer: torch.optim.Optimizer, unscaled: bool) -> None:
        self.scale = scale
        stage = torch.cuda.amp.grad_scaler.OptState.UNSCALED if unscaled else torch.cuda.amp.grad_scaler.OptState.READY
        self._per_optimizer_states = {id(optimizer): {"stage": stage}}

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self.scale)


@pytest.mark.parametrize("protocol", ["argument", "argument, unscaled", "attribute", "attribute, unscaled"])
def test_a_scaler_s_skip_of_one_member_is_one_of_all(server, members, name, protocol):
    """Does by hand as a GradScaler does with an optimizer that asks for it: the scaler of this torch needs a GPU."""
    table = make_table(server, name)
    before, bags = all_rows(table), members(update="step")
    unscaled = protocol.endswith("unscaled")

    def train(member: int, bad: int, scale: float) -> None:
        optimizer = bags[member].optimizer
        assert optimizer._step_supports_amp_scaling
        out = bags[member](torch.tensor([[1]]))
        (out * (float("inf") if member == bad else scale)).sum().backward()
        scaler = OldScaler(scale, optimizer, unscaled)
        if unscaled:
            scaler.unscale_(optimizer)
        if protocol.startswith("argument"):
            optimizer.step(grad_scaler=scaler)
        else:
            optimizer.grad_scale = None if unscaled else torch.tensor([scale])
            optimizer.found_inf = torch.tensor([float(member == bad)])
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf

    with pytest.warns(UserWarning, match="skipped a push"):
        together(lambda member: train(member, 1, 1024.0))
    np.testing.assert_array_equal(all_rows(table), before)
    together(lambda member: train(member, -1, 512.0 * (1 + member)))  # the members' scales may differ
    assert [(bag.steps, bag.skipped_pushes) for bag in bags] == [(1, 1)] * 2
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))
    alone = et.EmbeddingBag(table, update="step", lr=0.01)
    assert not alone.optimizer._step_supports_amp_scaling


def test_refusals_for_other_reasons_are_raised(server, members, name):
    table = make_table(server, name)
    before, bags = all_rows(table), members()
    bags[1].lr = LR / 2
    outs = [bag(torch.tensor([[1]])).sum() for bag in bags]

    def train(member: int) -> None:
        with pytest.raises(embtier.MismatchError, match="different learning rates"):
            outs[member].backward()

    together(train)
    bags[1].lr = LR
    assert [(bag.steps, bag.skipped_pushes) for bag in bags] == [(0, 0)] * 2
    np.testing.assert_array_equal(all_rows(table), before)
    together(lambda member: bags[member](torch.tensor([[1]])).sum().backward())
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))


# ---- Groups and modules ----


def test_a_group_is_one_module_s(server, daemon, name):
    table, other = make_table(server, name), make_table(server, f"{name}_other")
    group = server.join(name, 1, 0)
    bag = et.EmbeddingBag(table, group=group, lr=0.01)
    assert bag.group is group and repr(group) in repr(bag)
    with pytest.raises(ValueError, match=f"group '{name}' belongs to another module.*one group for each module"):
        et.EmbeddingBag(other, group=group, lr=0.01)
    with pytest.raises(TypeError, match="must be an embtier.Group, not a str"):
        et.EmbeddingBag(other, group=name, lr=0.01)
    with daemon.connect() as elsewhere:
        with pytest.raises(ValueError, match="joined by another connection"):
            et.EmbeddingBag(elsewhere.open_table(name), group=group, lr=0.01)
    bag.group = group
    del bag
    assert et.EmbeddingBag(other, group=group, lr=0.01).group is group


def test_steps_are_the_group_s_and_a_training_goes_on_from_them(server, name):
    table = make_table(server, name, init="zeros")
    bag = et.EmbeddingBag(table, lr=LR, mode="sum", group=server.join(name, 1, 0))
    for _ in range(3):
        bag(torch.tensor([[1]])).sum().backward()
    assert bag.steps == bag.group.step == 3
    saved = pickle.loads(pickle.dumps(bag.state_dict()))
    for step in (0, 4):
        wrong = et.EmbeddingBag(table, mode="sum", group=server.join(f"{name}_{step}", 1, 0, step), lr=0.01)
        with pytest.raises(ValueError, match=f"at step {step}: to continue from 3, its members must join with step=3"):
            wrong.load_state_dict(saved)
        with pytest.raises(ValueError, match="join with step=7"):
            wrong.steps = 7
    again = et.EmbeddingBag(table, lr=LR, mode="sum", group=server.join(f"{name}_again", 1, 0, 3))
    again.load_state_dict(saved)
    again(torch.tensor([[1]])).sum().backward()
    assert again.steps == 4 and all_rows(table)[1, 0] == -4 * LR
    alone = et.EmbeddingBag(table, lr=LR, mode="sum")
    alone(torch.tensor([[1]])).sum().backward()
    with pytest.raises(ValueError, match="module is at step 5, and group .* at 0: join it with step=5"):
        alone.group = server.join(f"{name}_late", 1, 0)
    alone.group = server.join(f"{name}_right", 1, 0, step=alone.steps)
    alone(torch.tensor([[1]])).sum().backward()
    assert alone.steps == 6
    alone.group = None
    alone(torch.tensor([[1]])).sum().backward()
    assert alone.steps == table.step == 7


@pytest.mark.parametrize("update", et.UPDATES)
def test_a_member_that_goes_is_told_and_training_goes_on_when_all_have_joined_anew(
    server, members, name, daemon, update
):
    table = make_table(server, name)
    bags = members(update=update)

    def train(member: int) -> None:
        bags[member](torch.tensor([[1]])).sum().backward()
        bags[member].step()

    together(train)
    before = all_rows(table)
    out = bags[0](torch.tensor([[1]])).sum()
    bags[1]._rooms.server.close()
    bags[1] = None  # and its batches, which keep the session alive
    gc.collect()
    with pytest.raises(embtier.GroupBrokenError, match="member 1 has gone; nothing was applied"):
        out.backward()
        bags[0].step()
    np.testing.assert_array_equal(all_rows(table), before)
    assert bags[0].steps == 1
    with daemon.connect() as own:
        bags[0].group = bags[0]._rooms.server.join(name, 2, 0, step=bags[0].steps)
        group = own.join(name, 2, 1, step=1)
        bags[1] = et.EmbeddingBag(own.open_table(name), lr=LR, mode="sum", update=update, group=group, reduce="sum")
        together(train)
        assert [bag.steps for bag in bags] == [2, 2]
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - np.float32(2 * LR))


class Scaler:
    """Does as a GradScaler does with an optimizer whose step() supports it: found_inf and the scale are attributes."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        assert optimizer._step_supports_amp_scaling
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if self._unscale_reads(p)]
        optimizer.grad_scale = torch.tensor(self.scale)
        optimizer.found_inf = torch.tensor(float(not all(one.isfinite().all() for one in gradients)))
        optimizer.step()
        del optimizer.grad_scale, optimizer.found_inf

    def _unscale_reads(self, parameter: torch.nn.Parameter) -> bool:
        return parameter.grad is not None


@pytest.mark.parametrize("bad", ["dense of both", "rows of one"])
def test_scaler_s_skip_with_one_optimizer_is_one_of_all_members(server, members, name, bad):
    """One member's model must not make a step that the other's does not make."""
    table = make_table(server, name)
    before, bags = all_rows(table), members(update="step")
    own_tables = [make_table(bags[member].table.server, f"{name}_alone{member}") for member in BOTH]
    alone = [et.EmbeddingBag(own, lr=LR, update="step") for own in own_tables]
    models = [torch.nn.ModuleList([bags[member], alone[member], torch.nn.Linear(1, 1)]) for member in BOTH]
    optimizers = [et.CombinedOptimizer(torch.optim.SGD(model[2].parameters(), lr=LR), model) for model in models]
    dense_before = [model[2].weight.detach().clone() for model in models]
    alone_before = [all_rows(bag.table) for bag in alone]

    def train(member: int, is_bad: bool) -> None:
        grouped, own, dense = models[member]
        optimizers[member].zero_grad()
        in_rows = float("inf") if is_bad and bad == "rows of one" and member == 1 else 1.0
        in_dense = float("inf") if is_bad and bad == "dense of both" else 1.0
        ids = torch.tensor([[1]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (8 * (grouped(ids).sum() * in_rows + own(ids).sum() + dense(torch.ones(1, 1)).sum() * in_dense)).backward()
            Scaler(8.0).step(optimizers[member])

    together(lambda member: train(member, True))
    np.testing.assert_array_equal(all_rows(table), before)
    for member in BOTH:
        torch.testing.assert_close(models[member][2].weight.detach(), dense_before[member], rtol=0, atol=0)
        if bad == "dense of both":
            np.testing.assert_array_equal(all_rows(alone[member].table), alone_before[member])
    assert [bag.steps for bag in bags] == [0, 0]
    together(lambda member: train(member, False))
    assert [bag.steps for bag in bags] == [1, 1]
    np.testing.assert_allclose(all_rows(table)[1], before[1] - np.float32(2 * LR), rtol=1e-5)  # the sum of two members' gradients
    for member in BOTH:
        torch.testing.assert_close(models[member][2].weight.detach(), dense_before[member] - LR)


def test_skipped_step_writes_no_nan_to_a_table_that_takes_it(server, members, name):
    table = make_table(server, name, allow_nonfinite=True)
    before, bags = all_rows(table), members(update="step")
    together(lambda member: bags[member](torch.tensor([[1]])).sum().backward())
    together(lambda member: bags[member].optimizer.refuse_step())
    np.testing.assert_array_equal(all_rows(table), before)
    assert all(bag.rows[0].grad is None for bag in bags)


def test_clipping_by_one_member_s_gradients_is_told(server, members, name):
    from embtier.torch import _optimizer

    make_table(server, name)
    bags = members(update="step")
    _optimizer._TOLD_FUNCTIONS.clear()
    bags[0](torch.tensor([[1]])).sum().backward()
    with pytest.warns(UserWarning, match=r"clip_grad_norm_\(\) sees this member's part.*drift apart"):
        torch.nn.utils.clip_grad_norm_(bags[0].parameters(), 1.0)


# ---- With DistributedDataParallel ----


class Model(torch.nn.Module):
    """A dense layer over pooled rows, with torch's module or with ours."""

    def __init__(self, bag: torch.nn.Module) -> None:
        super().__init__()
        self.bag = bag
        self.dense = torch.nn.Linear(DIM, 3)
        with torch.no_grad():
            self.dense.weight.fill_(0.25)
            self.dense.bias.fill_(-0.5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dense(self.bag(ids)).square().mean()


STEPS = 6
PROCESS = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import embtier, embtier.torch, test_torch_groups as t
rank, store, address, name, update, out = int(sys.argv[1]), *sys.argv[2:]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
with embtier.connect(address, timeout=60) as server:
    table = server.open_table(name)
    first = torch.from_numpy(t.all_rows(table).copy())
    dist.barrier()  # both have read them
    theirs = t.Model(torch.nn.EmbeddingBag.from_pretrained(first, freeze=False, mode="mean"))
    ours = t.Model(embtier.torch.EmbeddingBag(table, lr=t.LR, update=update, group=server.join(name, 2, rank)))
    for model, parameters in ((theirs, theirs.parameters()), (ours, ours.dense.parameters())):
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(parameters, lr=t.LR)
        for step in range(t.STEPS):
            optimizer.zero_grad()
            parallel(t.some_ids(step, rank)).backward()  # the mean over this member's part of the batch
            optimizer.step()
            if model is ours and update == "step":
                ours.bag.step()
    dist.barrier()
    if rank == 0:
        rows = torch.from_numpy(t.all_rows(table))
        torch.save([theirs.bag.weight.detach(), theirs.dense.weight.detach(), rows, ours.dense.weight.detach()], out)
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
@pytest.mark.parametrize("update", et.UPDATES)
def test_training_is_that_of_torch_in_distributed_data_parallel(daemon, server, name, update, tmp_path):
    make_table(server, name)
    some = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), f"{tmp_path}/store", daemon.socket, name, update, f"{tmp_path}/out"],
            env=ENVIRONMENT,
        )
        for rank in BOTH
    ]
    try:
        assert [one.wait(2 * LIMIT_S) for one in some] == [0, 0]
    finally:
        for one in some:
            one.kill()
            one.wait()
    weight, dense, rows, our_dense = torch.load(f"{tmp_path}/out")
    np.testing.assert_allclose(rows.numpy(), weight.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(our_dense.numpy(), dense.numpy(), rtol=1e-5, atol=1e-6)
