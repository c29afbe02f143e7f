# SPDX-License-Identifier: Apache-2.0
"""Rows are parameters of a model: torch.optim, clip_grad_norm_, scalers, schedulers and zero_grad() treat them as the weights of
torch's own modules. Otherwise an error or a warning says so."""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402
from embtier.torch import _optimizer  # noqa: E402

DIM, ROWS, LR = 6, 40, 0.05
STEPS = 12


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """Starts each test as in a new process, where nothing was warned about yet. Every warning is an error."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    _optimizer._TOLD_FUNCTIONS.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def make_table(server, name) -> Callable:
    made = []

    def make(**options):
        made.append(server.create_table(f"{name}_{len(made)}", DIM, ROWS, optimizer="sgd", **({"init": ("normal", 0, 1)} | options)))
        return made[-1]

    return make


def all_rows(table) -> torch.Tensor:
    return torch.from_numpy(table.get(np.arange(ROWS)))


class Model(torch.nn.Module):
    """A dense layer over two tables, with torch's modules or with ours."""

    def __init__(self, users: torch.nn.Module, items: torch.nn.Module) -> None:
        super().__init__()
        self.users, self.items = users, items
        self.dense = torch.nn.Linear(2 * DIM, 1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.users(users), self.items(items)], 1)).square().mean()


def make_models(make_table, **options) -> tuple[Model, Model]:
    """Our model, and the same one with torch's modules."""
    tables = make_table(), make_table()
    ours = Model(*(et.EmbeddingBag(table, mode="sum", lr=LR, **options) for table in tables))
    twins = [torch.nn.EmbeddingBag.from_pretrained(all_rows(table).clone(), freeze=False, mode="sum") for table in tables]
    theirs = Model(*twins)
    theirs.dense.load_state_dict(ours.dense.state_dict())
    return ours, theirs


def some_ids() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, ROWS, (5, 3)), torch.randint(0, ROWS, (5, 2))


def assert_same(ours: Model, theirs: Model) -> None:
    for bag, twin in ((ours.users, theirs.users), (ours.items, theirs.items)):
        torch.testing.assert_close(all_rows(bag.bags["bag"].table), twin.weight.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.dense.weight, theirs.dense.weight, rtol=1e-5, atol=1e-6)


# ---- One optimizer for the whole model ----


@pytest.mark.parametrize("update", et.UPDATES)
def test_model_trains_with_one_optimizer_and_scheduler_as_torch_s(make_table, update):
    models = make_models(make_table, update=update)
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    schedulers = [torch.optim.lr_scheduler.LambdaLR(one, lambda step: (step + 1) / STEPS) for one in optimizers]
    for _ in range(STEPS):
        ids = some_ids()
        for model, optimizer, scheduler in zip(models, optimizers, schedulers):
            optimizer.zero_grad()
            model(*ids).backward()
            if update == "step":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            scheduler.step()
    assert_same(*models)
    assert models[0].users.lr == models[0].items.lr == optimizers[1].param_groups[0]["lr"]
    assert models[0].users.steps == STEPS


def test_state_of_one_optimizer_is_loaded_and_scheduled_on(make_table):
    models = make_models(make_table, update="step")
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9) for model in models]
    with pytest.warns(UserWarning, match="has the optimizer 'sgd', not 'momentum'"):
        optimizer = et.CombinedOptimizer(optimizers[0], models[0])
    with pytest.raises(TypeError, match="save its state_dict"):
        optimizer.__reduce_ex__(2)
    models[0](*some_ids()).backward()
    optimizer.step()
    assert set(optimizer.state) == set(models[0].dense.parameters())
    models[0].items.lr = 0.125
    saved = optimizer.state_dict()
    models[0].items.lr = models[0].users.lr = 7
    optimizer.load_state_dict(saved)
    assert (models[0].users.lr, models[0].items.lr) == (LR, 0.125)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 2.0**-step)
    optimizer.step()
    scheduler.step()
    assert (models[0].users.lr, models[0].items.lr, optimizers[0].param_groups[0]["lr"]) == (LR / 2, 0.0625, LR / 2)
    for wrong in (optimizers[1].state_dict(), {**saved, "rows": saved["rows"][:1]}, 5):
        with pytest.raises(ValueError, match="CombinedOptimizer of 2 modules"):
            optimizer.load_state_dict(wrong)


def test_optimizer_of_no_module_of_ours_needs_no_other(make_table):
    dense = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"model has no module of embtier\.torch: replace\(\)"):
        et.CombinedOptimizer(torch.optim.SGD(dense.parameters(), lr=1), dense)
    model, _ = make_models(make_table)
    combined = et.CombinedOptimizer(torch.optim.SGD(model.parameters(), lr=LR), model)
    for wrong in (combined, model.users.optimizer, torch.optim.LBFGS(model.dense.parameters())):
        with pytest.raises(TypeError, match="optimizer cannot be a"):
            et.CombinedOptimizer(wrong, model)
    assert len(model.users.optimizer.param_groups[0]["params"]) == 1


def test_optimizer_that_would_train_rows_otherwise_is_told(make_table):
    for make, said in (
        (lambda p: torch.optim.Adam(p, lr=LR), "has the optimizer 'sgd'"),
        (lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9), "has the optimizer 'sgd', not 'momentum'"),
        (lambda p: torch.optim.RMSprop(p, lr=LR, momentum=0.9), "has the optimizer 'sgd', not 'rmsprop'"),
        (lambda p: torch.optim.SGD(p, lr=LR, weight_decay=0.1), "has weight_decay 0, not 0.1|has weight_decay 0.0, not 0.1"),
        (lambda p: torch.optim.SGD(p, lr=LR / 2), f"has the learning rate {LR} of its module, not {LR / 2}"),
    ):
        model, _ = make_models(make_table)
        with pytest.warns(UserWarning, match=f"rows are not trained as .* would: .*{said}") as told:
            et.CombinedOptimizer(make(model.parameters()), model)
        assert len(told) == 1 and told[0].filename == __file__
        et.CombinedOptimizer(make(model.dense.parameters()), model)  # this optimizer gets no rows, so no warning


@pytest.mark.parametrize(
    "make, options, said",
    [
        (torch.optim.SGD, {"momentum": 0.5}, "has momentum 0.9, not 0.5"),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, "has no nesterov"),
        (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1}, "has no dampening"),
        (torch.optim.RMSprop, {"momentum": 0.9}, "has momentum 0, not 0.9"),
        (torch.optim.Adam, {"betas": (0.9, 0.99)}, "has beta2 0.999, not 0.99"),
        (torch.optim.Adam, {"eps": 1e-6}, "has eps 1e-08, not 1e-06"),
        (torch.optim.AdamW, {"weight_decay": 0.1}, "has weight_decay 0.01, not 0.1"),
        (torch.optim.SparseAdam, {"eps": 1e-6}, "has eps 1e-08, not 1e-06"),
    ],
    ids=str,
)
def test_optimizers_of_one_kind_that_differ_are_told(server, name, make, options, said):
    kinds = {"Adam": "adam", "AdamW": "adamw", "SparseAdam": "sparse_adam", "RMSprop": "rmsprop", "SGD": "momentum"}
    bag = et.EmbeddingBag(server.create_table(name, DIM, 10, optimizer=kinds[make.__name__]), lr=LR)
    model = torch.nn.Sequential(bag)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = {"momentum": 0.9} if make is torch.optim.SGD else {}
        et.CombinedOptimizer(make(list(model.parameters()), lr=LR, **same), model)
    with pytest.warns(UserWarning, match=said):
        et.CombinedOptimizer(make(list(model.parameters()), lr=LR, **options), model)


def test_schedulers_keep_their_groups(make_table):
    model, _ = make_models(make_table, update="step")
    inner = torch.optim.Adam([{"params": model.users.parameters()}, {"params": model.dense.parameters(), "lr": 1e-3}], lr=LR)
    with pytest.warns(UserWarning, match="has the optimizer 'sgd'"):
        optimizer = et.CombinedOptimizer(inner, model)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, LR, LR]
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 2.0**-step)
    optimizer.step()
    scheduler.step()
    more = torch.nn.Linear(2, 2)
    optimizer.add_param_group({"params": [*more.parameters(), *model.items.parameters()], "lr": 1e-4})
    assert [group["lr"] for group in optimizer.param_groups] == [5e-4, LR / 2, LR / 2, 1e-4]
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 1, 1, 2]
    with pytest.warns(UserWarning):
        optimizer = et.CombinedOptimizer(torch.optim.Adam(model.parameters(), lr=LR), model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=5)
    for _ in range(4):
        model(*some_ids()).backward()
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("whose", ["parent", "optimizer", "by hand"])
def test_gathered_gradients_are_forgotten_with_the_others(make_table, whose):
    models = make_models(make_table, update="step")
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    for ids in (some_ids(), some_ids()):
        for model, optimizer in zip(models, optimizers):
            if whose == "parent":
                model.zero_grad()
            elif whose == "optimizer":
                optimizer.zero_grad()
            else:
                for parameter in model.parameters():
                    parameter.grad = None
            model(*ids).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert_same(*models)


class Scaler:
    """Does as torch.cuda.amp.GradScaler does, which in this torch needs a GPU."""

    def __init__(self) -> None:
        self.scale = 1024.0

    def step(self, optimizer: torch.optim.Optimizer) -> bool:
        if not self._unscale_grads_(optimizer):
            self.scale /= 2
            return False
        optimizer.step()
        return True

    def _unscale_grads_(self, optimizer: torch.optim.Optimizer) -> bool:
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.grad.mul_(1 / self.scale)
                finite = finite and bool(parameter.grad.isfinite().all())
        return finite


def test_scaler_has_the_whole_model(make_table):
    models = make_models(make_table, update="step")
    optimizers = [torch.optim.SGD(model.parameters(), lr=LR) for model in models]
    optimizers[0] = et.CombinedOptimizer(optimizers[0], models[0])
    scalers = Scaler(), Scaler()
    done = []
    for step in range(4):
        ids = some_ids()
        for model, optimizer, scaler in zip(models, optimizers, scalers):
            optimizer.zero_grad()
            (model(*ids) * (scaler.scale if step != 1 else math.inf)).backward()
            done.append(scaler.step(optimizer))
    assert done == [True, True, False, False, True, True, True, True]
    assert_same(*models)


def test_scaler_whose_scale_the_module_does_not_know_is_refused(make_table):
    model, _ = make_models(make_table, update="backward")
    optimizer, scaler = et.CombinedOptimizer(torch.optim.SGD(model.parameters(), lr=LR), model), Scaler()
    (model(*some_ids()) * scaler.scale).backward()
    with pytest.raises(RuntimeError, match=r"gradients of the scaled loss.*update=\"step\".*grad_scale = scaler\.get_scale"):
        scaler.step(optimizer)
    model.users.grad_scale = model.items.grad_scale = lambda: scaler.scale
    (model(*some_ids()) * scaler.scale).backward()
    assert scaler.step(optimizer)


# ---- Optimizers of torch's that get rows ----


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_optimizer_of_torch_s_does_not_step_rows(make_table, kind):
    model, _ = make_models(make_table, update="step")
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=LR)
    before = all_rows(model.users.bags["bag"].table)
    model(*some_ids()).backward()
    with pytest.raises(RuntimeError, match=r"trained by the table's optimizer in the server.*CombinedOptimizer"):
        optimizer.step()
    assert model.users.rows[0].grad is not None
    torch.testing.assert_close(all_rows(model.users.bags["bag"].table), before, rtol=0, atol=0)


def test_rows_are_not_written_here(make_table):
    (rows,) = et.EmbeddingBag(make_table(), lr=LR).rows
    with torch.no_grad():
        for write in (
            lambda: rows.add_(1), lambda: rows.zero_(), lambda: torch._foreach_add_([torch.zeros(1), rows], 1.0),
            lambda: torch.nn.init.normal_(rows), lambda: rows.mul_(0.5),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="in the server, and cannot be written here"):
                write()
    assert rows.requires_grad_() is rows and "Rows of" in repr(rows)


def test_optimizer_that_passes_rows_by_says_so_once(make_table):
    model, _ = make_models(make_table, update="backward")
    for _ in range(2):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        for step in range(3):
            optimizer.zero_grad()
            model.zero_grad()
            model(*some_ids()).backward()
            if step == 0:
                with pytest.warns(UserWarning, match="this SGD does not reach them.*CombinedOptimizer") as told:
                    optimizer.step()
                assert len(told) == 1 and told[0].filename == __file__
            else:
                optimizer.step()


def test_clipping_of_rows_that_were_updated_says_so_once(make_table):
    model, _ = make_models(make_table, update="backward")
    model(*some_ids()).backward()
    with pytest.warns(UserWarning, match=r"clip_grad_norm_\(\) sees no gradient.*update=\"step\"") as told:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert len(told) == 1
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    frozen = et.EmbeddingBag(make_table(), frozen=True)
    _optimizer._TOLD_FUNCTIONS.clear()
    assert torch.nn.utils.clip_grad_norm_(frozen.parameters(), 0.1) == 0


def test_steps_that_are_forgotten_are_told(make_table):
    bag = et.EmbeddingBag(make_table(), lr=LR, update="step")

    def backward(by: float = 1) -> None:
        bag.zero_grad()
        (bag(some_ids()[0]) * by).sum().backward()

    backward()
    for _ in range(9):
        backward(math.inf)  # a scaler's first step is often like this
    backward()
    bag.step()
    for _ in range(3):
        backward()
    with pytest.warns(UserWarning, match="forgotten 3 times without a step, so nothing is trained"):
        backward()
    for _ in range(9):
        backward()


def test_steps_that_never_come_are_told(make_table):
    bag = et.EmbeddingBag(make_table(), lr=LR, update="step")
    for _ in range(99):
        bag(some_ids()[0]).sum().backward()
    with pytest.warns(UserWarning, match="added up in 100 backward passes without a step") as told:
        bag(some_ids()[0]).sum().backward()
    assert len(told) == 1 and told[0].filename == __file__
    bag.step()
    bag(some_ids()[0]).sum().backward()


@pytest.mark.parametrize("update", et.UPDATES)
def test_gradients_of_rows_alone_are_refused_without_effect(make_table, update):
    model, _ = make_models(make_table, update=update)
    before = all_rows(model.users.table)
    for inputs in (list(model.parameters()), [model.users.rows[0]]):
        for unused in (False, True):
            with pytest.raises(RuntimeError, match="autograd.grad.. cannot return gradients of rows"):
                torch.autograd.grad(model(*some_ids()), inputs, allow_unused=unused)
    assert model.users.steps == 0 and model.users.rows[0].gathered() is None
    torch.testing.assert_close(all_rows(model.users.table), before, rtol=0, atol=0)
    torch.autograd.grad(model(*some_ids()), [model.dense.weight])
    assert model.users.steps == 0 and model.users.rows[0].gathered() is None


def test_gradients_that_were_made_zero_are_no_step(server, name):
    table = server.create_table(name, DIM, ROWS, optimizer="adam", init=("normal", 0, 1))
    bag = et.EmbeddingBag(table, mode="sum", lr=LR, update="step")
    bag(torch.tensor([[1, 2]])).sum().backward()
    bag.step()
    before = all_rows(table)
    bag(torch.tensor([[1, 3]])).sum().backward()
    for parameter in bag.parameters():  # zero_grad() in torch 1 does this
        parameter.grad.detach_()
        parameter.grad.zero_()
    bag.step()
    torch.testing.assert_close(all_rows(table), before, rtol=0, atol=0)
    bag(torch.tensor([[1, 3]])).sum().backward()
    bag.rows[0].grad.zero_()
    bag(torch.tensor([[5, 5]])).sum().backward()
    bag.step()
    changed = (all_rows(table) != before).any(1).nonzero()[:, 0].tolist()
    assert bag.steps == 2 and changed == [5]


def test_reading_a_gradient_keeps_nothing_alive(make_table):
    bag = et.EmbeddingBag(make_table(), mode="sum", lr=LR, update="step")

    class Trainer:
        def step(self):
            kept = torch.ones(3)
            watch = weakref.ref(kept)
            bag(torch.tensor([[1]])).sum().backward()
            norm = bag.rows[0].grad.norm()
            del kept
            gc.collect()
            assert watch() is None
            return norm

    assert Trainer().step() > 0


def test_hooks_and_copies_of_rows_are_refused(make_table):
    bag = et.EmbeddingBag(make_table(), lr=LR)
    with pytest.raises(TypeError, match="hooks of rows are never called"):
        bag.rows[0].register_hook(lambda gradient: gradient)
    with pytest.raises(TypeError, match="a copy would stand for the same rows"):
        copy.deepcopy(list(bag.parameters()))
    with pytest.raises(TypeError, match="save state_dict"):
        pickle.dumps(bag.rows[0])
    bag.share_memory()


@pytest.mark.parametrize("update", et.UPDATES)
def test_default_dtype_changes_nothing(make_table, update):
    bag = et.EmbeddingBag(make_table(), mode="sum", lr=LR, update=update)
    weights = torch.ones(2, 2, requires_grad=True)
    torch.set_default_dtype(torch.float64)
    try:
        out = bag(torch.tensor([[1, 2], [3, 4]]), per_sample_weights=weights)
        out.sum().backward()
        bag.step()
        assert bag(torch.empty(2, 0, dtype=torch.int64)).dtype == out.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    assert bag.steps == 1


@pytest.mark.parametrize("frozen", [True, False])
def test_module_without_a_learning_rate_is_not_trained(make_table, frozen):
    bag = et.EmbeddingBag(make_table(), frozen=frozen)
    with torch.no_grad():
        bag(some_ids()[0])
    bag.requires_grad_(True)
    with pytest.raises(ValueError, match="lr is missing"):
        bag(some_ids()[0])
    bag.lr = LR
    bag(some_ids()[0]).sum().backward()
    assert bag.steps == 1


# ---- Gradients that others change, frozen tables, states ----


def test_gradient_in_the_place_of_another_is_of_the_same_rows(make_table):
    bag = et.EmbeddingBag(make_table(init="zeros"), mode="sum", lr=1, update="step")
    table, (rows,) = bag.bags["bag"].table, bag.rows
    bag(torch.tensor([[3, 5]])).sum().backward()
    first = rows.grad
    assert rows.ids.tolist() == [3, 5] and first.shape == (2, DIM)
    rows.grad = first * 2
    rows.grad = rows.grad + 1
    for wrong in (torch.zeros(3, DIM), torch.zeros(0, DIM)):
        with pytest.raises(RuntimeError, match="rows that have no gathered gradients"):
            rows.grad = wrong
    with pytest.raises(TypeError, match="grad must be a torch.Tensor or None"):
        rows.grad = 5
    bag.step()
    assert table.get([3, 5]).tolist() == [[-3] * DIM] * 2
    with pytest.raises(RuntimeError, match="rows that have no gathered gradients"):
        rows.grad = torch.zeros(2, DIM)
    bag(torch.tensor([[7, 8]])).sum().backward()
    rows.grad = first  # a gradient that still has its rows' ids
    bag.step()
    assert table.get([3, 5, 7, 8]).tolist() == [[-4] * DIM] * 2 + [[0] * DIM] * 2
    bag(torch.tensor([[7, 8]])).sum().backward()
    del rows.grad
    bag.step()
    assert bag.steps == 2 and not table.get([7]).any()


@pytest.mark.parametrize("update", et.UPDATES)
def test_one_table_of_a_collection_may_be_frozen(make_table, update):
    tables = {"a": make_table(), "b": make_table()}
    ours = et.EmbeddingBagCollection({k: et.Bag(t, "sum") for k, t in tables.items()}, lr=LR, update=update)
    twins = {k: torch.nn.EmbeddingBag.from_pretrained(all_rows(t).clone(), freeze=False, mode="sum") for k, t in tables.items()}
    ours.rows[0].requires_grad_(False)
    optimizer = torch.optim.SGD([twins["b"].weight], lr=LR)
    for given in (("a", "b"), ("b",), ("a",), ("a", "b")):
        ids = {k: torch.randint(0, ROWS, (4, 3)) for k in given}
        weights = [{k: one.clone().requires_grad_() for k, one in made.items()} for made in [{k: torch.randn(4, 3) for k in given}] * 2]
        out = ours({k: (ids[k], None, weights[0][k]) for k in given})
        sum(one.square().sum() for one in out.values()).backward()
        ours.step()
        optimizer.zero_grad()
        sum(twins[k](ids[k], per_sample_weights=weights[1][k]).square().sum() for k in given).backward()
        optimizer.step()
        for k in given:
            torch.testing.assert_close(weights[0][k].grad, weights[1][k].grad, rtol=1e-4, atol=1e-4)
    for k, table in tables.items():
        torch.testing.assert_close(all_rows(table), twins[k].weight.detach(), rtol=1e-4, atol=1e-4)


def test_rows_are_no_part_of_the_state(make_table):
    model, _ = make_models(make_table)
    assert [key for key in model.state_dict() if not key.startswith("dense")] == ["users._extra_state", "items._extra_state"]
    assert [key for key, _ in model.named_parameters()][:2] == ["users.rows.0", "items.rows.0"]
    model.load_state_dict(model.state_dict())


def test_rows_of_torch_s_module_are_not_left_out_in_silence(make_table):
    ours, theirs = make_models(make_table)
    with pytest.raises(RuntimeError, match=r'"users.weight" has the rows of a module of torch: load it before replace\(\)'):
        ours.load_state_dict(theirs.state_dict(), strict=False)


def test_state_is_of_tensors_alone(make_table, tmp_path):
    model, _ = make_models(make_table, update="backward")
    model(*some_ids()).backward()
    state = model.state_dict()
    assert all(isinstance(one, torch.Tensor) for one in state.values())
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        torch.save(state, tmp_path / "state")
        state = torch.load(tmp_path / "state")
    else:
        save_file(state, tmp_path / "state")
        state = load_file(tmp_path / "state")
    model.users.steps = 7
    model.load_state_dict(state)
    assert model.users.steps == 1
    for wrong in (torch.zeros(3), torch.zeros(3, dtype=torch.uint8), torch.tensor([91, 93], dtype=torch.uint8), {}):
        with pytest.raises((TypeError, ValueError), match="state"):
            model.users.set_extra_state(wrong)
    other = et.EmbeddingBag(model.users.table, mode="mean", lr=LR)
    with pytest.raises(ValueError, match="saved with 'mode' 'sum', here it is 'mean'"):
        other.load_state_dict(model.users.state_dict())


def test_state_of_a_table_that_was_made_anew_is_refused(server, name):
    """Both tables have the same name and options, so only their identity differs."""
    options = {"dim": DIM, "rows": 50, "optimizer": "adam"}
    state = et.EmbeddingBag(server.create_table(name, **options), lr=LR).state_dict()
    server.drop_table(name)
    again = et.EmbeddingBag(server.create_table(name, **options), lr=LR)
    with pytest.raises(ValueError, match="saved with the rows of another table .* leave out the keys that end with"):
        again.load_state_dict(state)
    model = torch.nn.Sequential(again, torch.nn.Linear(DIM, 1))
    saved = model.state_dict() | {"0._extra_state": state["_extra_state"]}
    with pytest.raises(ValueError, match="another table"):
        model.load_state_dict(saved)
    model.load_state_dict({k: v for k, v in saved.items() if not k.endswith("_extra_state")}, strict=False)


def test_state_of_another_step_than_the_rows_is_told(server, name, tmp_path):
    table = server.create_table(name, DIM, 50, optimizer="adam")
    bag = et.EmbeddingBag(table, mode="sum", lr=LR)
    bag(torch.tensor([[1]])).sum().backward()
    state, checkpoint = bag.state_dict(), server.checkpoint()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bag.load_state_dict(state)
    bag(torch.tensor([[1]])).sum().backward()
    with pytest.warns(UserWarning, match="saved when table .* was at step 1, and its rows are those of step 2 now"):
        bag.load_state_dict(state)
    assert bag.steps == 2, "step 2 is not made twice"
    server.drop_table(name)
    server.restore_checkpoint(checkpoint.id, [name])
    back = et.EmbeddingBag(server.open_table(name), mode="sum", lr=LR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back.load_state_dict(state)
    assert back.steps == 1


@pytest.mark.parametrize("how", ("again", "two tables", "frozen first", "imported"))
def test_a_module_made_again_goes_on_from_the_step_of_its_tables(server, name, how, tmp_path):
    """Adam corrects its old moments by the table's step, not as if they were new."""
    table, other = (server.create_table(one, DIM, 50, optimizer="adam", eps=1e-3) for one in (name, f"{name}_other"))
    whole = torch.nn.Embedding(50, DIM, _weight=torch.zeros(50, DIM))
    optimizer = torch.optim.Adam(whole.parameters(), lr=LR, eps=1e-3)

    def steps(bag: torch.nn.Module, count: int) -> None:
        for _ in range(count):
            for module in (bag, whole):
                (module(torch.tensor([[1]])) * torch.arange(1.0, DIM + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    steps(et.EmbeddingBag(table, mode="sum", lr=LR), 4)
    if how == "imported":
        server.export_table(table, tmp_path / "one", state=True)
        table = server.open_table(server.import_table(tmp_path / "one", f"{name}_imported").name)
    if how == "two tables":
        both = et.EmbeddingBagCollection({"a": et.Bag(table, "sum"), "b": et.Bag(other)}, lr=LR)
        assert both.steps == 4
        steps(lambda ids: both({"a": ids})["a"], 3)
    else:
        bag = et.EmbeddingBag(table, mode="sum", lr=LR, frozen=how == "frozen first")
        bag.requires_grad_(True)
        steps(bag, 3)
        assert bag.steps == table.step == 7
    assert np.abs(table.get([1])[0] - whole.weight[1].detach().numpy()).max() < 1e-6
    assert other.step == 0


def test_a_group_of_adam_tables_begins_where_they_are(server, name):
    adam, sgd = (server.create_table(f"{name}_{one}", DIM, 50, optimizer=one) for one in ("adam", "sgd"))
    both = et.EmbeddingBagCollection({"a": et.Bag(adam), "s": et.Bag(sgd)}, lr=LR)
    both({"a": torch.tensor([[1]]), "s": torch.tensor([[1]])})["a"].sum().backward()
    for wrong in (0, 2):
        with pytest.warns(UserWarning, match=f"tables are at step 1, and group .* at {wrong}: join it with step=1, as Adam"):
            et.EmbeddingBag(adam, lr=LR, group=server.join(f"{name}_{wrong}", 1, 0, step=wrong))
    assert et.EmbeddingBag(adam, lr=LR, group=server.join(name, 1, 0, step=1)).steps == 1
    assert et.EmbeddingBag(sgd, lr=LR, group=server.join(f"{name}_sgd", 1, 0)).steps == 0


def test_state_is_saved_also_when_the_server_is_gone(own_daemon):
    with own_daemon.connect() as server:
        bag = et.EmbeddingBag(server.create_table("one", DIM, 50, optimizer="adam"), mode="sum", lr=LR)
        bag(torch.tensor([[1]])).sum().backward()
        own_daemon.kill()
        states = [bag.state_dict()]
    states.append(bag.state_dict())  # the state was saved on a connection that is closed now
    own_daemon.start()
    with own_daemon.connect() as server:
        server.drop_table("one")
        again = et.EmbeddingBag(server.create_table("one", DIM, 50, optimizer="adam"), mode="sum", lr=LR)
        for state in states:
            found = json.loads(bytes(state["_extra_state"].tolist()))["bag"]
            assert found["steps"] == 1 and found["table_step"] is None
            with pytest.raises(ValueError, match="another table"):
                again.load_state_dict(state)


def test_state_is_saved_by_any_thread_and_process(server, name):
    """Saving must not use the connection."""
    bag = et.EmbeddingBag(server.create_table(name, DIM, 50, optimizer="adam"), mode="sum", lr=LR)
    bag(torch.tensor([[1]])).sum().backward()
    found = []
    with bag.bags["bag"].table._connection:  # as if another call were under way
        thread = threading.Thread(target=lambda: found.append(bag.state_dict()))
        thread.start()
        thread.join()
    assert json.loads(bytes(found[0]["_extra_state"].tolist()))["bag"]["steps"] == 1
    process = os.fork()
    if process == 0:
        try:
            bag.state_dict()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(process, 0)[1] == 0


def test_a_group_goes_back_by_what_was_saved(server, name):
    """The warnings say: the group is joined at the state's step, and the table's rows may be of a later one."""
    table = server.create_table(name, DIM, 50, optimizer="adam")
    bag = et.EmbeddingBag(table, mode="sum", lr=LR)
    states = []
    for _ in range(3):
        states.append(bag.state_dict())
        bag(torch.tensor([[1]])).sum().backward()
    with pytest.warns(UserWarning, match="tables are at step 3, and group .* at 2"):
        again = et.EmbeddingBag(table, mode="sum", lr=LR, group=server.join(name, 1, 0, step=2))
    with pytest.warns(UserWarning, match="saved when table .* was at step 2, and its rows are those of step 3"):
        again.load_state_dict(states[2])
    assert again.steps == 2


@pytest.mark.parametrize("update", et.UPDATES)
def test_conversions_leave_rows_what_they_are(make_table, update):
    bag = et.EmbeddingBag(make_table(init="zeros"), mode="sum", lr=1, update=update)
    for convert in (bag.double, bag.half, bag.cpu, bag.float):
        convert()
        bag(torch.tensor([[3]])).sum().backward()
        bag.step()
    assert bag.bags["bag"].table.get([3]).tolist() == [[-4] * DIM]
    assert isinstance(bag.rows[0], et.Rows)
