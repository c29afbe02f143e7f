# SPDX-License-Identifier: Apache-2.0
"""Modules built like torch's, and models whose embeddings were replaced, give and train the same as torch's."""

from __future__ import annotations

import contextlib
import copy
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from conftest import TREE

import embtier

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import embtier.torch as et  # noqa: E402

ROWS, DIM, LR = 50, 6, 0.1
STEPS = 100


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def all_rows(table: embtier.Table) -> torch.Tensor:
    return torch.from_numpy(table.get(np.arange(table.rows)))


# ---- Models, written from scratch ----


class Towers(nn.Module):
    """Two towers, whose scores are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.item = nn.EmbeddingBag(ROWS, DIM, mode="mean"), nn.Embedding(ROWS, DIM)
        self.left, self.right = nn.Linear(DIM, 4), nn.Linear(DIM, 4)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        scores = self.left(self.query(ids)) @ self.right(self.item(ids[:, 0])).T
        return nn.functional.cross_entropy(scores, torch.arange(len(ids)))


class Dlrm(nn.Module):
    """Bags of several features, and their products with each other and with the dense features."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(ROWS + i, DIM, mode="sum") for i in range(3))
        self.bottom, self.top = nn.Linear(3, DIM), nn.Linear(6 + DIM, 1)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.bottom(dense))
        features = [low]
        for i, bag in enumerate(self.bags):
            features.append(bag(ids[:, i:].reshape(-1), torch.arange(len(ids)) * (ids.shape[1] - i)))
        stacked = torch.stack(features, 1)
        pairs = torch.tril_indices(4, 4, -1)
        products = (stacked @ stacked.transpose(1, 2))[:, pairs[0], pairs[1]]
        return nn.functional.binary_cross_entropy_with_logits(self.top(torch.cat([low, products], 1))[:, 0], dense[:, 0].round())


class DeepFm(nn.Module):
    """First-order weights and factors of the same ids, and a network over the factors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.factors = nn.EmbeddingBag(ROWS, 1, mode="sum"), nn.Embedding(ROWS, DIM)
        self.deep = nn.Sequential(nn.Linear(4 * DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        factors = self.factors(ids)
        second = (factors.sum(1).square() - factors.square().sum(1)).sum(1, keepdim=True) / 2
        score = self.first(ids) + second + self.deep(factors.flatten(1))
        return nn.functional.binary_cross_entropy_with_logits(score[:, 0], dense[:, 0].round())


class Dcn(nn.Module):
    """Crosses of the embedded features with themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.ModuleDict({"a": nn.Embedding(ROWS, DIM), "b": nn.Embedding(ROWS, DIM)})
        self.cross = nn.ModuleList(nn.Linear(2 * DIM + 3, 2 * DIM + 3) for _ in range(2))
        self.out = nn.Linear(2 * DIM + 3, 1)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        first = x = torch.cat([self.features["a"](ids[:, 0]), self.features["b"](ids[:, 1]), dense], 1)
        for layer in self.cross:
            x = first * layer(x) + x
        return (self.out(x)[:, 0] - dense[:, 1]).square().mean()


class Sequence(nn.Module):
    """Predicts the next item of a padded sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.position = nn.Embedding(ROWS, DIM, padding_idx=0), nn.Embedding(4, DIM)
        self.gru, self.out = nn.GRU(DIM, 8, batch_first=True), nn.Linear(8, ROWS)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        padded = torch.where(ids % 3 == 0, 0, ids)
        states, _ = self.gru(self.items(padded) + self.position(torch.arange(ids.shape[1])))
        return nn.functional.cross_entropy(self.out(states[:, -1]), ids[:, 0])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("kind", [Towers, Dlrm, DeepFm, Dcn, Sequence])
def test_model_with_stand_ins_has_the_losses_of_the_original(server, name, kind, optimizer):
    theirs, ours = kind(), kind()
    ours.load_state_dict(theirs.state_dict())
    embeddings = [path for path, module in ours.named_modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    replaced = et.replace(ours, server, lr=LR, prefix=f"{name}.", optimizer=optimizer, min_rows=5)
    assert [one.path for one in replaced] == embeddings
    assert [one.path for one in replaced if one.table is None] == [p for p in embeddings if p == "position"]
    assert all("fewer than 5 rows" in str(one) for one in replaced if one.table is None)
    make = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adagrad
    optimizers = et.CombinedOptimizer(make(ours.parameters(), lr=LR), ours), make(theirs.parameters(), lr=LR)
    for _ in range(STEPS):
        ids, dense = torch.randint(1, ROWS, (8, 4)), torch.rand(8, 3)
        losses = []
        for model, one in zip((ours, theirs), optimizers):
            one.zero_grad()
            losses.append(model(ids, dense))
            losses[-1].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            one.step()
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)


def test_modules_that_cannot_be_replaced_stay(server, name):
    class Mine(nn.Embedding):
        pass

    model = nn.ModuleDict({
        "mine": Mine(ROWS, DIM), "norm": nn.Embedding(ROWS, DIM, max_norm=1.0), "f64": nn.EmbeddingBag(ROWS, DIM).double(),
        "scaled": nn.EmbeddingBag(ROWS, DIM, scale_grad_by_freq=True), "tied": nn.Embedding(ROWS, DIM),
        "out": nn.Linear(DIM, ROWS), "frozen": nn.Embedding.from_pretrained(torch.randn(ROWS, DIM)), "few": nn.Embedding(4, DIM),
    })  # fmt: skip
    model["out"].weight = model["tied"].weight
    model.eval()
    before = dict(model.items())
    replaced = {one.path: one for one in et.replace(model, server, lr=LR, prefix=name, min_rows=5)}
    assert [path for path, one in replaced.items() if one.table is not None] == ["frozen"]
    for path, reason in (
        ("mine", "its class is Mine"), ("norm", "max_norm"), ("f64", "dtype torch.float64"), ("few", "fewer than 5 rows"),
        ("scaled", "scale_grad_by_freq"), ("tied", "its weight is shared with another module"),
    ):  # fmt: skip
        assert model[path] is before[path] and replaced[path].reason == reason
    frozen = model["frozen"]
    assert isinstance(frozen, et.Embedding) and not frozen.training and not frozen.rows[0].requires_grad
    torch.testing.assert_close(frozen(torch.tensor([3, 4])), before["frozen"](torch.tensor([3, 4])))
    alone = nn.Embedding(ROWS, DIM)
    assert "it is the model itself" in str(et.replace(alone, server, lr=LR)[0])


def test_module_at_two_places_is_replaced_at_both(server, name):
    item = nn.Embedding(ROWS, DIM)
    model = nn.ModuleDict({"enc": item, "dec": nn.ModuleDict({"item": item})})
    replaced = et.replace(model, server, lr=LR, prefix=name)
    assert [one.path for one in replaced] == ["enc", "dec.item"] and len({one.table.name for one in replaced}) == 1
    assert model["enc"] is model["dec"]["item"] and isinstance(model["enc"], et.Embedding)


def test_modules_with_more_than_a_weight_stay(server, name):
    hooked = nn.Embedding(ROWS, DIM)
    hooked.register_forward_hook(lambda *_: None)
    warnings.simplefilter("ignore")  # torch calls weight_norm() deprecated
    model = nn.ModuleDict({
        "norm": nn.utils.weight_norm(nn.Embedding(ROWS, DIM)), "hooked": hooked, "max": nn.EmbeddingBag(ROWS, DIM, mode="max"),
    })  # fmt: skip
    reasons = [one.reason for one in et.replace(model, server, lr=LR, prefix=name)]
    assert reasons == [
        "its weight is not a parameter", "it has hooks", 'mode "max", which is trained with update="backward" only'
    ]  # fmt: skip
    model = nn.ModuleDict({"max": model["max"]})
    assert et.replace(model, server, lr=LR, prefix=name, update="backward")[0].reason == ""


def test_second_run_goes_on_with_the_rows_of_the_first(server, name):
    model = nn.ModuleDict({"a": nn.Embedding(ROWS, DIM), "b": nn.EmbeddingBag(ROWS, DIM)})
    first = et.replace(copy.deepcopy(model), server, lr=LR, prefix=name)
    assert all(one.copied for one in first)
    first[0].table.set(range(ROWS), 7)
    with pytest.raises(embtier.ExistsError, match="replace.. uses it if if_not_exists=True"):
        et.replace(copy.deepcopy(model), server, lr=LR, prefix=name)
    second = et.replace(copy.deepcopy(model), server, lr=LR, prefix=name, if_not_exists=True)
    assert [one.copied for one in second] == [False, False] and "which already existed: with its rows" in str(second[0])
    assert (all_rows(second[0].table) == 7).all()
    with pytest.raises(embtier.MismatchError):  # fails at b, and does not drop a
        server.drop_table(f"{name}b")
        server.create_table(f"{name}b", DIM + 1, ROWS)
        et.replace(copy.deepcopy(model), server, lr=LR, prefix=name, if_not_exists=True)
    assert (all_rows(server.open_table(f"{name}a")) == 7).all()


KILLED = """
import sys, torch, embtier, embtier.torch as et
with embtier.connect(sys.argv[1], timeout=60) as server:
    print("ready", flush=True)
    et.replace(torch.nn.Sequential(torch.nn.Embedding(300_000, 64)), server, lr=0.1, prefix=sys.argv[2])
"""


@pytest.mark.parametrize("seconds", [0.05, 0.15, 0.3, 0.6])
def test_killed_replacing_leaves_a_whole_table_or_none(daemon, server, name, seconds):
    name = name.replace(".", "_")
    environment = os.environ | {"PYTHONPATH": str(TREE / "client/python")}
    one = subprocess.Popen([sys.executable, "-c", KILLED, daemon.socket, name], env=environment, stdout=subprocess.PIPE)
    assert one.stdout.readline() == b"ready\n"
    time.sleep(seconds)  # somewhere during the replacement
    one.kill()
    one.wait()
    one.stdout.close()
    rows, limit = None, time.monotonic() + 60
    while rows is None and f"{name}0" in {table.name for table in server.tables()}:
        with contextlib.suppress(embtier.BusyError, embtier.NoTableError):  # the table is being made, or taken back
            rows = server.open_table(f"{name}0").get(range(0, 300_000, 1000))
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert rows is None or rows.any(1).all()


def test_replacing_that_fails_leaves_all_as_it_was(server, name):
    model = nn.ModuleDict({"a": nn.Embedding(ROWS, DIM), "b": nn.EmbeddingBag(ROWS, DIM)})
    server.create_table(f"{name}b", 3)
    tables = {one.name for one in server.tables()}
    with pytest.raises(embtier.ExistsError):
        et.replace(model, server, lr=LR, prefix=name)
    with pytest.raises(ValueError, match="lr must be"):
        et.replace(model, server, lr=-1, prefix=f"{name}x")
    assert {one.name for one in server.tables()} == tables
    assert type(model["a"]) is nn.Embedding


# ---- Built like torch's ----


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 0, 3), (2, 3, 2)])
@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("padding", [None, 3, -1])
def test_embedding_gives_and_trains_what_torch_s_does(server, name, shape, update, padding):
    theirs = nn.Embedding(ROWS, DIM, padding)
    with torch.no_grad():
        theirs.weight.normal_()  # the row of padding, too
    ours = et.Embedding.from_pretrained(
        theirs.weight.detach(), False, padding_idx=padding, server=server, name=name, lr=1, update=update
    )
    assert ours.padding_idx == theirs.padding_idx
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1)
    for _ in range(3):
        ids = torch.randint(0, ROWS, shape)
        if padding is not None and ids.numel() > 1:
            ids.view(-1)[::2] = theirs.padding_idx
        out = []
        for module in (ours, theirs):
            out.append(module(ids))
        torch.testing.assert_close(*out)
        assert out[0].shape == (*shape, DIM)
        for one in out:
            one.square().sum().backward()
        ours.step()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(all_rows(ours.table), theirs.weight.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [et.EmbeddingBag, et.Embedding])
def test_module_is_built_as_torch_s(server, name, kind):
    torch_s = nn.EmbeddingBag if kind is et.EmbeddingBag else nn.Embedding
    ours, theirs = kind(ROWS, DIM, padding_idx=2, sparse=True, server=server, name=name, lr=LR), torch_s(ROWS, DIM, padding_idx=2)
    for attribute in ("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    if kind is et.EmbeddingBag:
        assert (ours.mode, ours.include_last_offset) == (theirs.mode, theirs.include_last_offset)
    spec = ours.table.spec
    assert (spec.name, spec.rows, spec.dim, spec.optimizer) == (name, ROWS, DIM, "sgd")
    rows = all_rows(ours.table)
    assert not rows[2].any() and 0.8 < rows.std() < 1.2
    ours.reset_parameters()
    again = all_rows(ours.table)
    assert not again[2].any() and 0.8 < again.std() < 1.2 and not torch.equal(again, rows)
    with pytest.raises(embtier.ExistsError):
        kind(ROWS, DIM, server=server, name=name, lr=LR)
    same = kind(ROWS, DIM, padding_idx=2, server=server, name=name, lr=LR, if_not_exists=True)
    torch.testing.assert_close(all_rows(same.table), again, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_module_of_pretrained_rows(server, name, dtype):
    rows = torch.randn(70_000, 64).to(dtype)  # more than one request takes
    ours = et.EmbeddingBag.from_pretrained(rows, mode="sum", server=server, name=name)
    assert not ours.rows[0].requires_grad and ours.table.spec.optimizer == "none"
    ids = torch.tensor([[0, 69_999], [65_536, 1]])
    torch.testing.assert_close(ours(ids), rows.float()[ids].sum(1))
    if dtype == torch.float32:
        ours.reset_parameters()
        assert not torch.equal(ours(ids), rows[ids].sum(1))


def test_arguments_that_fit_no_table_are_refused_and_leave_none(server, name):
    made = {one.name for one in server.tables()}
    table = server.create_table(name, DIM, ROWS, optimizer="sgd")
    here = {"server": server, "name": f"{name}_new", "lr": LR}
    for kind in (et.EmbeddingBag, et.Embedding):
        for arguments, error, said in (
            (((ROWS, DIM), {**here, "max_norm": 1.0}), ValueError, "max_norm is not supported"),
            (((ROWS, DIM), {**here, "scale_grad_by_freq": True}), ValueError, "scale_grad_by_freq is not supported"),
            (((ROWS,), here), ValueError, "a new table needs embedding_dim;"),
            (((ROWS, DIM), {"lr": LR}), ValueError, "a new table needs server and name;"),
            (((table, DIM), {"lr": LR}), ValueError, "embedding_dim: for a table that is made, and table .* is there"),
            (((True, DIM), here), TypeError, "num_embeddings must be a count of rows, or an embtier.Table"),
            (((0, DIM), here), ValueError, "num_embeddings"),
            (((ROWS, DIM), {**here, "dtype": torch.float64}), ValueError, "dtype must be one of"),
            (((ROWS, DIM), {**here, "_weight": torch.zeros(2, DIM)}), ValueError, "_weight must be of shape"),
            (((ROWS, DIM), {**here, "padding_idx": ROWS}), ValueError, "padding_idx"),
            (((ROWS, DIM), {**here, "padding_idx": 1.5}), TypeError, "padding_idx must be"),
            (((ROWS, DIM), {**here, "padding_idx": "1"}), TypeError, "padding_idx must be"),
            (((ROWS, DIM), {**here, "lr": -1}), ValueError, "lr must be"),
            (((ROWS, DIM), {**here, "optimiser": 1}), TypeError, "unexpected arguments: optimiser"),
            (((ROWS, DIM), {**here, "dtype": "f16", "_weight": torch.full((ROWS, DIM), 1e6)}), ValueError, "do not fit in f16"),
        ):  # fmt: skip
            with pytest.raises(error, match=said):
                kind(*arguments[0], **arguments[1])
        with pytest.raises(ValueError, match="embeddings must be floating-point numbers of 2 dimensions"):
            kind.from_pretrained(torch.zeros(3), **here)
    assert {one.name for one in server.tables()} == made | {name}


def test_replaced_tables_have_the_home_that_was_asked_for_and_move_while_the_model_trains(server, name):
    torch.manual_seed(1)
    model, twin = Towers(), Towers()
    twin.load_state_dict(model.state_dict())
    replaced = et.replace(model, server, lr=LR, min_rows=1, prefix=f"{name}.", home="array", tier="pmem")
    tables = [one.table for one in replaced]
    assert [(table.spec.home, table.spec.tier) for table in tables] == [("array", "pmem")] * 2
    optimizer = et.CombinedOptimizer(torch.optim.SGD(model.parameters(), lr=LR), model)
    plain = torch.optim.SGD(twin.parameters(), lr=LR)
    rng = np.random.default_rng(1)
    for step in range(6):
        if step == 3:
            server.move_table(tables[0].name, "cache")
        ids, dense = torch.from_numpy(rng.integers(0, ROWS, (8, 3))), torch.zeros(8, 1)
        losses = []
        for one, stepped in ((model, optimizer), (twin, plain)):
            stepped.zero_grad()
            loss = one(ids, dense)
            loss.backward()
            stepped.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert server.open_table(tables[0].name).spec.home == "cache"
    for table in tables:
        server.drop_table(table.name)
