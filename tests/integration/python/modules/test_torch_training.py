# SPDX-License-Identifier: Apache-2.0
"""embtier.torch's modules train as the tables' optimizers, schedules and scalers say, and keep track of their tickets."""

from __future__ import annotations

import pickle
import threading
import warnings

import numpy as np
import pytest

import embtier

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402

DIM = 6
ROWS = 40
NORMAL = ("normal", 0, 1)
TICKETS_MAX = 1024  # per session at a time; the next lookup that wants one is refused


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def make_table(server: embtier.Server, name: str, optimizer: str = "sgd", **options) -> embtier.Table:
    return server.create_table(name, DIM, ROWS, optimizer=optimizer, **({"init": NORMAL} | options))


def all_rows(table: embtier.Table) -> np.ndarray:
    return table.get(np.arange(table.rows))


def twin_of(table: embtier.Table, **options) -> torch.nn.EmbeddingBag:
    bag = torch.nn.EmbeddingBag(table.rows, table.dim, **options)
    with torch.no_grad():
        bag.weight.copy_(torch.from_numpy(all_rows(table)))
    return bag


def assert_close(ours, theirs) -> None:
    """Equal, except for rounding."""
    ours, theirs = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def some_ids(*shape: int) -> torch.Tensor:
    return torch.randint(0, ROWS, shape)


def loss_of(out: torch.Tensor) -> torch.Tensor:
    return (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum() + out.square().sum()


@pytest.fixture
def lookups(monkeypatch) -> list[bool]:
    """For each lookup, whether it wanted a ticket."""
    seen = []
    real = embtier.BagBatch.lookup

    def lookup(self, timeout=None, *, ticket=False):
        seen.append(ticket)
        return real(self, timeout, ticket=ticket)

    monkeypatch.setattr(embtier.BagBatch, "lookup", lookup)
    return seen


# ---- Optimizers ----


@pytest.mark.parametrize("scale", (1.0, 1e-6))
@pytest.mark.parametrize("optimizer", ("sgd", "sparse_adam"))
def test_lazy_optimizers_are_those_of_torch(server, name, optimizer, scale):
    """Only some rows have gradients in a step; with the small @scale these are as small as eps."""
    ours = et.EmbeddingBag(make_table(server, name, optimizer), mode="sum", lr=0.05)
    theirs = twin_of(ours.table, mode="sum", sparse=True)
    make = {"sgd": torch.optim.SGD, "sparse_adam": torch.optim.SparseAdam}[optimizer]
    step = make(list(theirs.parameters()), lr=0.05)
    for _ in range(30):
        ids = some_ids(4, 3)
        for bag in (ours, theirs):
            (loss_of(bag(ids)) * scale).backward()
        step.step()
        step.zero_grad()
    assert_close(all_rows(ours.table), theirs.weight)

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}),
    "adagrad": (torch.optim.Adagrad, {"eps": 1e-6}),
    "adam": (torch.optim.SparseAdam, {"eps": 1e-12}),  # torch adds eps before the correction of bias
}


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_table_s_optimizer_runs_with_its_state_and_step(server, name, optimizer, update):
    make, options = OPTIMIZERS[optimizer]
    table = make_table(server, name, optimizer, **options)
    ours, theirs = et.EmbeddingBag(table, lr=0.1, update=update), twin_of(table, sparse=optimizer == "adam")
    reference = make(theirs.parameters(), lr=0.1, **options)
    for step in range(1, 5):
        ids = some_ids(5, 3)
        reference.zero_grad()
        for bag in (ours, theirs):
            loss_of(bag(ids)).backward()
        reference.step()
        ours.step()
        assert ours.steps == step
        assert_close(all_rows(table), theirs.weight)


def test_a_table_without_an_optimizer_is_for_frozen_modules(server, name):
    table = make_table(server, name, "none")
    with pytest.raises(ValueError, match=f"'{name}' of 'bag' has no optimizer.*frozen=True"):
        et.EmbeddingBag(table, lr=0.01)
    bag = et.EmbeddingBag(table, frozen=True)
    ids = some_ids(4, 3)
    assert_close(bag(ids), twin_of(table)(ids))
    bag.requires_grad_(True)
    with pytest.raises(ValueError, match="has no optimizer"):
        bag(ids)
    with torch.no_grad():
        bag(ids)


def test_what_cannot_be_trained_is_refused_when_made(server, name):
    table = make_table(server, name)
    with pytest.raises(ValueError, match="max.*backward"):
        et.EmbeddingBag(table, mode="max", update="step", lr=0.01)
    bags = {"a": et.Bag(table, "max"), "b": et.Bag(table, "sum")}
    with pytest.raises(ValueError, match="cannot be trained together"):
        et.EmbeddingBagCollection(bags, lr=0.01)
    out = et.EmbeddingBagCollection(bags, frozen=True)({k: torch.tensor([[1, 2]]) for k in bags})
    assert_close(out["a"][0], all_rows(table)[[1, 2]].max(axis=0))
    assert_close(out["b"][0], all_rows(table)[[1, 2]].sum(axis=0))


# ---- Learning rates and steps ----


@pytest.mark.parametrize("update", et.UPDATES)
def test_schedulers_set_the_learning_rate(server, name, update):
    table = make_table(server, name)
    ours, theirs = et.EmbeddingBag(table, lr=0.2, update=update), twin_of(table)
    optimizers = ours.optimizer, torch.optim.SGD(theirs.parameters(), lr=0.2)
    schedulers = [torch.optim.lr_scheduler.StepLR(one, step_size=2, gamma=0.5) for one in optimizers]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            ids = some_ids(5, 3)
            for bag, optimizer, scheduler in zip((ours, theirs), optimizers, schedulers):
                optimizer.zero_grad()
                bag(ids).square().sum().backward()
                optimizer.step()
                scheduler.step()
    assert ours.lr == pytest.approx(0.2 * 0.5**2)
    assert_close(all_rows(table), theirs.weight)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(ours.optimizer, patience=0, factor=0.1)
    for loss in (1.0, 2.0):
        plateau.step(loss)
    assert ours.lr == pytest.approx(0.005)


def test_steps_are_saved_with_the_module(server, name):
    table = make_table(server, name)
    bag = et.EmbeddingBag(table, lr=0.01)
    for _ in range(3):
        bag(some_ids(2, 2)).sum().backward()
    other = et.EmbeddingBag(table, lr=0.01)
    other.load_state_dict(pickle.loads(pickle.dumps(bag.state_dict())))
    assert other.steps == bag.steps == 3
    saved = bag.optimizer.state_dict()
    other.lr = 7
    other.optimizer.load_state_dict(saved)
    assert other.lr == bag.lr
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(bag.optimizer)


def test_norms_of_gathered_gradients_are_clipped_as_torch_s(server, name):
    tables = [make_table(server, f"{name}_{i}") for i in range(2)]
    ours = et.EmbeddingBagCollection(dict(zip("ab", tables)), lr=0.5, update="step")
    twins = dict(zip("ab", map(twin_of, tables)))
    weights = [t.weight for t in twins.values()]
    ids = {k: some_ids(5, 3) for k in "ab"}
    for _ in range(2):
        sum(loss_of(out) for out in ours(ids).values()).backward()
        sum(loss_of(twin(ids[k])) for k, twin in twins.items()).backward()
    parameters = [p for group in ours.optimizer.param_groups for p in group["params"]]
    norms = [torch.nn.utils.clip_grad_norm_(p, 0.1) for p in (parameters, weights)]
    assert_close(*norms)
    ours.optimizer.step()
    torch.optim.SGD(weights, lr=0.5).step()
    for table, weight in zip(tables, weights):
        assert_close(all_rows(table), weight)
    assert ours.steps == 1
    ours.optimizer.step()
    assert ours.steps == 1


def test_a_step_may_have_a_closure(server, name):
    table = make_table(server, name, init="zeros")
    bag = et.EmbeddingBag(table, lr=1, update="step")

    def closure():
        loss = bag(torch.tensor([[1]])).sum()
        loss.backward()
        return loss

    assert bag.optimizer.step(closure).item() == 0
    assert (table.get([1]) == -1).all()


# ---- Scalers, and numbers that are not finite ----


@pytest.mark.parametrize("given", [1024.0, lambda: 1024.0], ids=["number", "function"])
@pytest.mark.parametrize("update", et.UPDATES)
def test_grad_scale_divides_gradients_of_rows_and_not_of_weights(server, name, update, given):
    table = make_table(server, name)
    ours, theirs = et.EmbeddingBag(table, mode="sum", lr=0.5, update=update), twin_of(table, mode="sum")
    ours.grad_scale = given
    ids = some_ids(5, 3)
    w, v = (torch.linspace(-1, 2, 15).view(5, 3).requires_grad_() for _ in range(2))
    (loss_of(ours(ids, per_sample_weights=w)) * 1024).backward()
    ours.step()
    loss_of(theirs(ids, per_sample_weights=v)).backward()
    torch.optim.SGD(theirs.parameters(), lr=0.5).step()
    assert_close(all_rows(table), theirs.weight)
    np.testing.assert_allclose(w.grad, v.grad * 1024, rtol=1e-5, atol=1e-3)


def test_a_scaler_unscales_what_was_gathered_and_skips_the_step_as_it_does_for_torch(server, name):
    """Does by hand as torch.cuda.amp.GradScaler does with an optimizer: the scaler of this torch needs a GPU."""
    table = make_table(server, name)
    ours, theirs = et.EmbeddingBag(table, lr=0.5, update="step"), twin_of(table)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for scale in (1024.0, float("inf"), 512.0):
        ids = some_ids(5, 3)
        for bag, optimizer in ((ours, ours.optimizer), (theirs, reference)):
            optimizer.zero_grad()
            (loss_of(bag(ids)) * scale).backward()
            gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            assert gradients
            for gradient in gradients:
                gradient.mul_(1 / scale)
            if all(gradient.isfinite().all() for gradient in gradients):
                optimizer.step()
    assert_close(all_rows(table), theirs.weight)
    assert ours.steps == 2 and ours.skipped_pushes == 0


@pytest.mark.parametrize("update", et.UPDATES)
def test_pushes_that_are_not_finite_are_skipped_and_counted_with_one_warning(server, name, update):
    table = make_table(server, name)
    bag = et.EmbeddingBag(table, mode="sum", update=update, lr=0.01)
    before, ids = all_rows(table), some_ids(4, 2)
    weights = torch.ones(4, 2, requires_grad=True)
    with pytest.warns(UserWarning, match="skipped a push.*skipped_pushes"):
        (bag(ids, per_sample_weights=weights) * float("inf")).sum().backward()
        bag.step()
    assert not weights.grad.isfinite().any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(2, 5):
            (bag(ids) * float("nan")).sum().backward()
            bag.step()
            assert bag.skipped_pushes == i
    assert bag.steps == 0
    np.testing.assert_array_equal(all_rows(table), before)
    bag(ids).sum().backward()
    bag.step()
    assert bag.steps == 1 and bag.skipped_pushes == 4
    assert (all_rows(table) != before).any()


def test_tickets_of_skipped_pushes_are_given_back(server, name):
    bag = et.EmbeddingBag(make_table(server, name), lr=0.01)
    with pytest.warns(UserWarning):
        for _ in range(TICKETS_MAX + 10):
            (bag(torch.tensor([[1]])) * float("inf")).sum().backward()


# ---- Gradients of weights ----


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("how", ["push", "step", "frozen", "grad"])
def test_gradients_of_weights_are_torch_s(server, name, how, mode, padding):
    """torch has no weighted mean. Ours is the weighted sum divided by the number of ids."""
    table = make_table(server, name)
    options = {"update": "step" if how == "step" else "backward", "frozen": how == "frozen"}
    ours = et.EmbeddingBag(table, mode=mode, padding_idx=padding, lr=0.5, **options)
    theirs = twin_of(table, mode="sum", padding_idx=padding)
    ids, offsets = some_ids(12), torch.tensor([0, 4, 4, 9])
    ids[1] = ids[6] = 3
    kept = [ids[a:b] != (-1 if padding is None else padding) for a, b in ((0, 4), (4, 4), (4, 9), (9, 12))]
    counts = torch.tensor([int(one.sum()) for one in kept])
    values = torch.randn(12)
    w, v = (values.clone().requires_grad_() for _ in range(2))
    out, expected = ours(ids, offsets, w), theirs(ids, offsets, v)
    if mode == "mean":
        expected = expected / counts.clamp(min=1).unsqueeze(1)
    assert_close(out, expected)
    loss_of(expected).backward()
    before = all_rows(table)
    if how == "grad":
        (found,) = torch.autograd.grad(loss_of(out), w)
    else:
        loss_of(out).backward()
        found = w.grad
    assert_close(found, v.grad)
    ours.step()
    if how in ("frozen", "grad"):
        np.testing.assert_array_equal(all_rows(table), before)
    else:
        torch.optim.SGD(theirs.parameters(), lr=0.5).step()
        assert_close(all_rows(table), theirs.weight)


def test_weights_of_other_dtypes_get_gradients_of_theirs(server, name):
    bag = et.EmbeddingBag(make_table(server, name), mode="sum", lr=0.01)
    weights = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    out = bag(some_ids(4, 3), per_sample_weights=weights)
    out.sum().backward()
    assert out.dtype == torch.float32 and weights.grad.dtype == torch.float64


# ---- Features without a gradient ----


@pytest.mark.parametrize("update", et.UPDATES)
def test_features_without_a_gradient_stay_as_they_are(server, name, update):
    """A gradient of zeros would decay their weights."""
    tables = {k: make_table(server, f"{name}_{k}", weight_decay=0.5) for k in "abc"}
    before = {k: all_rows(table) for k, table in tables.items()}
    collection = et.EmbeddingBagCollection(tables, update=update, lr=0.01)
    out = collection({k: some_ids(4, 3) for k in tables})
    (out["a"].sum() + out["c"].sum()).backward()
    collection.step()
    changed = {k: (all_rows(table) != before[k]).any() for k, table in tables.items()}
    assert changed == {"a": True, "b": False, "c": True}


def test_gradients_of_gradients_leave_no_update_behind(server, name):
    table = make_table(server, name)
    bag = et.EmbeddingBag(table, lr=0.01)
    for _ in range(2):
        out = bag(some_ids(4, 3))
        (gradient,) = torch.autograd.grad(out.square().sum(), out)
        assert gradient.shape == out.shape
    assert table.writes == bag.steps == 0


# ---- Tickets and batches ----


def test_only_forwards_that_train_take_a_ticket(server, name, lookups):
    table = make_table(server, name)
    bag, ids = et.EmbeddingBag(table, lr=0.01), some_ids(4, 3)
    with torch.no_grad():
        bag(ids)
    with torch.inference_mode():
        bag(ids)
    bag.requires_grad_(False)
    bag(ids)
    et.EmbeddingBag(table, frozen=True)(ids)
    et.EmbeddingBag(table, update="step", lr=0.01)(ids)
    assert lookups == [False] * 5
    bag.requires_grad_(True)
    bag(ids)
    assert lookups == [False] * 5 + [True]


def test_tickets_of_graphs_that_are_dropped_are_given_back(server, name):
    bag = et.EmbeddingBag(make_table(server, name), lr=0.01)
    for _ in range(TICKETS_MAX + 10):
        bag(torch.tensor([[1]]))
    kept = [bag(torch.tensor([[1]])) for _ in range(TICKETS_MAX - 1)]
    more = [bag(torch.tensor([[1]]))]
    with pytest.raises(embtier.TicketsFullError):
        more += [bag(torch.tensor([[1]])) for _ in range(3)]
    kept[0].sum().backward()
    del more
    bag(torch.tensor([[1]]))


def test_graphs_may_be_dropped_on_any_thread(server, name):
    bag = et.EmbeddingBag(make_table(server, name), lr=0.01)
    for _ in range(3):
        kept = [bag(torch.tensor([[1]])) for _ in range(TICKETS_MAX // 2)]
        thread = threading.Thread(target=kept.clear)
        thread.start()
        for _ in range(20):
            bag(torch.tensor([[2]])).sum().backward()
        thread.join()


def test_a_batch_serves_many_passes_and_outputs_are_copies(server, name, monkeypatch):
    table = make_table(server, name)
    bag = et.EmbeddingBag(table, lr=0)
    twin = twin_of(table)
    made = []
    real = embtier.Server.bag_batch
    monkeypatch.setattr(embtier.Server, "bag_batch", lambda self, parts: made.append(1) or real(self, parts))
    pairs = []
    for count in (50, 49, 3, 40):
        ids = some_ids(count)
        offsets = torch.tensor([0, 1, count // 2])
        loss_of(bag(ids, offsets)).backward()
        with torch.no_grad():
            pairs.append((bag(ids, offsets), twin(ids, offsets)))
    assert len(made) == 1
    for ours, theirs in pairs:
        assert_close(ours, theirs)
    in_flight = [(bag(ids), twin(ids)) for ids in (some_ids(3, 5) for _ in range(4))]
    for ours, theirs in in_flight:
        assert_close(ours, theirs)
        loss_of(ours).backward()
    many = len(made)
    for ours, _ in [(bag(ids), None) for ids in (some_ids(3, 5) for _ in range(4))]:
        loss_of(ours).backward()
    assert len(made) == many


def test_batches_of_other_shapes_make_room_in_the_arena(daemon, name):
    with daemon.connect(arena_bytes=1 << 20) as server:
        tables = {k: make_table(server, f"{name}_{k}") for k in "abcd"}
        for update in et.UPDATES:
            collection = et.EmbeddingBagCollection(tables, update=update, lr=0.01)
            for k in "abcd":
                for count in (5_000, 20_000):
                    loss_of(collection({k: (some_ids(count), torch.tensor([0]))})[k]).backward()
            collection.step()


@pytest.mark.parametrize("update", et.UPDATES)
def test_inputs_may_be_written_over_before_the_backward_pass(server, name, update):
    table = make_table(server, name, init="zeros")
    bag = et.EmbeddingBag(table, mode="sum", include_last_offset=True, lr=1, update=update)
    ids, offsets, weights = torch.tensor([1, 2]), torch.tensor([0, 1, 2]), torch.tensor([2.0, 3.0])
    out = bag(ids, offsets, weights)
    for one in (ids, offsets, weights):
        one.fill_(7)
    out.sum().backward()
    bag.step()
    assert all_rows(table)[[1, 2, 7], 0].tolist() == [-2, -3, 0]


def test_a_ticket_of_a_lost_session_is_told_and_training_goes_on(own_daemon, name):
    server = own_daemon.connect()
    table = make_table(server, name)
    bag = et.EmbeddingBag(table, lr=1)
    lost, dropped = bag(torch.tensor([[1]])), bag(torch.tensor([[2]]))
    before = all_rows(table)
    own_daemon.stop()
    own_daemon.start()
    with pytest.raises(embtier.DisconnectedError):
        bag(torch.tensor([[1]]))
    server.reconnect()
    del dropped
    with pytest.raises(RuntimeError, match="connection was renewed .* run the forward pass again"):
        lost.sum().backward()
    np.testing.assert_array_equal(all_rows(table), before)
    bag(torch.tensor([[1]])).sum().backward()
    np.testing.assert_array_equal(all_rows(table)[1], before[1] - 1)
    assert bag.steps == 1
