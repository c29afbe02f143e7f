# SPDX-License-Identifier: Apache-2.0
"""embtier.torch's bags behave as torch.nn.EmbeddingBag, forward and backward, on tables whose optimizer is SGD."""

from __future__ import annotations

import copy
import pickle
import signal
import warnings

import numpy as np
import pytest

import embtier

torch = pytest.importorskip("torch")

import embtier.torch as et  # noqa: E402

DIM = 12
ROWS = 50
NORMAL = ("normal", 0, 1)


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(1)
    torch.set_num_threads(1)


def twin_of(table: embtier.Table, **options) -> torch.nn.EmbeddingBag:
    """torch's own module, with the same rows at first."""
    bag = torch.nn.EmbeddingBag(table.rows, table.dim, **options)
    with torch.no_grad():
        bag.weight.copy_(torch.from_numpy(table.get(np.arange(table.rows)).astype(np.float32)))
    return bag


def sgd_table(
    server: embtier.Server, name: str, dim: int = DIM, rows: int | None = ROWS, **options
) -> embtier.Table:
    return server.create_table(name, dim, rows, **({"optimizer": "sgd", "init": NORMAL} | options))


def assert_close(ours, theirs) -> None:
    """Equal, except for rounding."""
    ours, theirs = (x.detach().numpy() if isinstance(x, torch.Tensor) else x for x in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def assert_rows(table: embtier.Table, twin: torch.nn.EmbeddingBag) -> None:
    assert_close(table.get(np.arange(table.rows)), twin.weight)


def bags_1d(last_offset: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight bags with repeated ids, empty ones first, in the middle and last."""
    offsets = torch.tensor([0, 0, 3, 3, 10, 11, 20, 20])
    ids = torch.randint(0, ROWS, (20,))
    ids[4] = ids[5] = ids[12]
    return ids, torch.cat([offsets, torch.tensor([20])]) if last_offset else offsets


CASES = [
    pytest.param(
        mode, shape, weighted, padding, sparse, id=f"{mode}-{shape}-w{weighted:d}-p{padding:d}-s{sparse:d}"
    )
    for mode in ("sum", "mean", "max")
    for shape in ("2d", "offsets", "last_offset")
    for weighted in (False, True)
    for padding in (False, True)
    for sparse in (False, True)
    if (mode == "sum" or not weighted) and not (mode == "max" and sparse)  # the cases that torch has
]


@pytest.mark.parametrize("mode, shape, weighted, padding, sparse", CASES)
def test_outputs_gradients_and_new_rows_are_torchs(server, name, mode, shape, weighted, padding, sparse):
    table = sgd_table(server, name)
    options = {"mode": mode, "include_last_offset": shape == "last_offset"}
    for _ in range(3):
        ids, offsets = bags_1d(options["include_last_offset"])
        arguments = (torch.randint(0, ROWS, (6, 4)),) if shape == "2d" else (ids, offsets)
        options["padding_idx"] = int(arguments[0].reshape(-1)[2]) if padding else None
        ours = et.EmbeddingBag(table, lr=0.1, **options)
        theirs = twin_of(table, sparse=sparse, **options)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        weights = torch.randn(arguments[0].shape) if weighted else None
        results = []
        for bag in (ours, theirs):
            w = None if weights is None else weights.clone().requires_grad_()
            out = bag(*arguments, **({} if w is None else {"per_sample_weights": w}))
            (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
            results.append((out, None if w is None else w.grad))
        optimizer.step()
        assert_close(results[0][0], results[1][0])
        if weighted:
            assert_close(results[0][1], results[1][1])
        assert_rows(table, theirs)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_tables_pool_in_f32_and_round_when_stored(server, name, dtype):
    table = sgd_table(server, name, dtype=dtype, rounding="nearest")
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    with server.batch([(table, ROWS)]) as batch:
        batch.ids(0)[:] = np.arange(ROWS)
        before = et.rows(batch.get(), 0).clone()
        assert before.dtype == kind
        ids = torch.randint(0, ROWS, (5, 3))
        out = et.EmbeddingBag(table, mode="sum", lr=0.25)(ids)
        weight = before.float().requires_grad_()
        assert_close(out, torch.nn.functional.embedding_bag(ids, weight, mode="sum"))
        (out.sum() + torch.nn.functional.embedding_bag(ids, weight, mode="sum").sum()).backward()
        after = et.rows(batch.get(), 0)
        assert torch.equal(after, (weight.detach() - 0.25 * weight.grad).to(kind))


# ---- The time at which rows are updated ----


def test_nothing_is_written_without_a_gradient(server, name):
    table = sgd_table(server, name)
    bag = et.EmbeddingBag(table, lr=0.01)
    ids = torch.randint(0, ROWS, (4, 3))
    with torch.no_grad():
        assert not bag(ids).requires_grad
    with torch.inference_mode():
        bag(ids)
    parent = torch.nn.Sequential(bag)
    parent.requires_grad_(False)
    assert not bag(ids).requires_grad
    parent.requires_grad_(True)
    weights = torch.ones(4, 3, requires_grad=True)
    out = et.EmbeddingBag(table, mode="sum", lr=0.01)(ids, per_sample_weights=weights)
    torch.autograd.grad(out.sum(), weights)
    assert not et.EmbeddingBag(table, frozen=True)(ids).requires_grad
    assert table.writes == 0
    bag.eval()
    bag(ids).sum().backward()
    assert table.writes == 1


def test_padding_rows_are_neither_read_nor_written(server, name):
    table = sgd_table(server, name)
    bag = et.EmbeddingBag(table, padding_idx=-1, lr=0.01)
    before = server.status()["metrics"]["request_rows"]
    bag(torch.tensor([[1, ROWS - 1], [ROWS - 1, ROWS - 1]])).sum().backward()
    after = server.status()["metrics"]["request_rows"]
    assert sum(after.values()) - sum(before.values()) == 2, (before, after)


def test_two_forwards_then_two_backwards_lose_no_update(server, name):
    table = sgd_table(server, name)
    ours, theirs = et.EmbeddingBag(table, lr=0.5, mode="sum"), twin_of(table, mode="sum")
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    a, b = torch.randint(0, ROWS, (2, 6, 4))
    for bag in (ours, theirs):
        first, second = bag(a).sum(), bag(b).sum()
        first.backward()
        second.backward()
    optimizer.step()
    assert_rows(table, theirs)


def test_a_graph_walked_twice_updates_twice_by_step_and_is_refused_by_backward(server, name):
    table = sgd_table(server, name)
    once = et.EmbeddingBag(table, lr=0.5)
    loss = once(torch.tensor([[1]])).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="ticket is used up"):
        loss.backward()
    assert table.writes == once.steps == 1
    ours, theirs = et.EmbeddingBag(table, lr=0.5, update="step"), twin_of(table)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    ids = torch.randint(0, ROWS, (6, 4))
    for bag in (ours, theirs):
        loss = bag(ids).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    optimizer.step()
    ours.step()
    assert_rows(table, theirs)


def test_gradients_of_gradients_are_refused(server, name):
    table = sgd_table(server, name)
    bag = et.EmbeddingBag(table, mode="sum", lr=0.01)
    weights = torch.ones(4, 3, requires_grad=True)
    out = bag(torch.randint(0, ROWS, (4, 3)), per_sample_weights=weights).square().sum()
    (gradient,) = torch.autograd.grad(out, weights, create_graph=True)
    with pytest.raises(RuntimeError):
        gradient.sum().backward()
    assert table.writes == 0


def test_update_step_gathers_gradients_as_an_optimizer_does(server, name):
    table = sgd_table(server, name)
    ours, theirs = et.EmbeddingBag(table, lr=0.3, update="step"), twin_of(table)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        ours.zero_grad()
        for _ in range(2):
            ids, offsets = bags_1d(False)
            assert_close(ours(ids, offsets), theirs(ids, offsets))
            for bag in (ours, theirs):
                bag(ids, offsets).square().sum().backward()
        optimizer.step()
        ours.step()
        assert_rows(table, theirs)
    ours(ids, offsets).sum().backward()
    ours.zero_grad()
    ours.step()
    assert_rows(table, theirs)


def test_a_schedule_assigns_lr(server, name):
    table = sgd_table(server, name, 1, init="zeros")
    bag = et.EmbeddingBag(table, mode="sum", lr=1)
    bag(torch.tensor([[3]])).sum().backward()
    bag.lr = 0.5
    bag(torch.tensor([[3]])).sum().backward()
    assert table.get(3) == -1.5


def test_a_backward_pass_says_that_the_server_is_gone_and_training_goes_on(own_daemon, name):
    server = own_daemon.connect()
    table = sgd_table(server, name)
    bag = et.EmbeddingBag(table, lr=1)
    ids = torch.tensor([[1]])
    before = table.get([1])
    loss = bag(ids).sum()
    own_daemon.stop()
    with pytest.raises(embtier.DisconnectedError):
        loss.backward()
    own_daemon.start()
    server.reconnect()
    bag(ids).sum().backward()
    np.testing.assert_array_equal(table.get([1]), before - 1)


# ---- Collections ----


def test_a_collection_makes_one_request_each_way(server, name):
    tables = {f"t{i}": sgd_table(server, f"{name}_{i}", 4 + i) for i in range(5)}
    ours = et.EmbeddingBagCollection(tables, lr=0.1)
    twins = {k: twin_of(table) for k, table in tables.items()}
    inputs = {k: bags_1d(False) for k in tables}
    before = server.status()["metrics"]["requests"]
    out = ours(inputs)
    sum((o.square()).sum() for o in out.values()).backward()
    assert server.status()["metrics"]["requests"] - before == 2
    optimizer = torch.optim.SGD([p for t in twins.values() for p in t.parameters()], lr=0.1)
    for k, twin in twins.items():
        expected = twin(*inputs[k])
        assert_close(out[k], expected)
        expected.square().sum().backward()
    optimizer.step()
    for k, twin in twins.items():
        assert_rows(tables[k], twin)


def test_a_table_in_two_bags_gets_both_gradients(server, name):
    table = sgd_table(server, name)
    ours = et.EmbeddingBagCollection(
        {"seen": et.Bag(table, "sum", padding_idx=3), "now": et.Bag(table, "mean")}, lr=0.1
    )
    theirs = twin_of(table)
    a, b = torch.randint(0, ROWS, (2, 6, 4))
    a[0, 0] = b[1, 1] = 3
    out = ours({"seen": a, "now": b})
    (out["seen"].sum() + out["now"].square().sum()).backward()
    f = torch.nn.functional.embedding_bag
    seen, now = f(a, theirs.weight, mode="sum", padding_idx=3), f(b, theirs.weight)
    assert_close(out["seen"], seen)
    assert_close(out["now"], now)
    (seen.sum() + now.square().sum()).backward()
    torch.optim.SGD(theirs.parameters(), lr=0.1).step()
    assert_rows(table, theirs)


def test_some_features_may_be_left_out_and_unknown_ones_may_not(server, name):
    tables = {k: sgd_table(server, f"{name}_{k}") for k in "ab"}
    collection = et.EmbeddingBagCollection(tables, lr=0.01)
    out = collection({"a": torch.tensor([[1]])})
    assert out.keys() == {"a"}
    out["a"].sum().backward()
    assert tables["a"].writes == 1 and tables["b"].writes == 0
    with pytest.raises(KeyError, match="c"):
        collection({"c": torch.tensor([[1]])})


def test_tables_of_two_connections_are_refused(daemon, server, name):
    table = sgd_table(server, name)
    with daemon.connect() as other:
        for theirs in (other.open_table(name), sgd_table(other, name + "_2")):
            with pytest.raises(ValueError, match="one connection"):
                et.EmbeddingBagCollection({"a": table, "b": theirs}, lr=0.01)


# ---- Inputs ----


def test_bad_inputs_raise_what_they_raise_in_torch(server, name):
    table = sgd_table(server, name)
    bag = et.EmbeddingBag(table, lr=0.01)
    ids = torch.tensor([1, 2, 3])
    with pytest.raises(ValueError):
        bag(ids)
    with pytest.raises(ValueError):
        bag(ids.view(1, 3), torch.tensor([0]))
    with pytest.raises(RuntimeError, match="offsets"):
        bag(ids, torch.tensor([1, 2]))
    for bad in ([0, 4], [0, 2, 1], [0, -1]):
        with pytest.raises(RuntimeError, match="must not decrease"):
            bag(ids, torch.tensor(bad))
    with pytest.raises(NotImplementedError):
        et.EmbeddingBag(table, mode="max", lr=0.01)(ids.view(1, 3), per_sample_weights=torch.ones(1, 3))
    with pytest.raises(ValueError, match="shape"):
        bag(ids.view(1, 3), per_sample_weights=torch.ones(3))
    with pytest.raises(ValueError, match="negative"):
        bag(torch.tensor([[-1]]))
    with pytest.raises(IndexError, match=str(ROWS)):
        bag(torch.tensor([[ROWS]]))
    with pytest.raises(TypeError):
        bag(torch.tensor([[1.0]]))
    with pytest.raises(ValueError, match="mode"):
        et.EmbeddingBag(table, mode="median", lr=0.01)
    with pytest.raises(ValueError, match="padding_idx"):
        et.EmbeddingBag(table, padding_idx=ROWS, lr=0.01)
    with pytest.raises(ValueError, match="update"):
        et.EmbeddingBag(table, update="never", lr=0.01)


def test_last_offset_that_leaves_ids_out_is_refused(server, name):
    """torch 1 leaves out the ids after the last offset; torch 2 counts them in the last bag."""
    bag = et.EmbeddingBag(sgd_table(server, name), include_last_offset=True, lr=0.01)
    with pytest.raises(ValueError, match="the last offset is the number of ids, 3, not 2"):
        bag(torch.tensor([1, 2, 3]), torch.tensor([0, 2]))
    assert bag(torch.tensor([1, 2, 3]), torch.tensor([0, 2, 3])).shape == (2, DIM)


@pytest.mark.parametrize("lr", [-0.1, -1e-30, float("nan")])
def test_learning_rate_that_is_negative_or_no_number_is_refused(server, name, lr):
    bag = et.EmbeddingBag(sgd_table(server, name), lr=0.01)
    with pytest.raises(ValueError, match="lr must be a number that is finite in float32 and not negative"):
        et.EmbeddingBag(bag.bags["bag"].table, lr=lr)
    with pytest.raises(ValueError, match="not negative"):
        bag.lr = lr


def test_weight_says_where_the_rows_are(server, name):
    bag = et.EmbeddingBag(sgd_table(server, name), lr=0.01)
    assert not hasattr(bag, "weight")
    with pytest.raises(AttributeError, match=r"table\.get\(ids\) and table\.set\(ids, rows\)"):
        bag.weight = torch.nn.Parameter(torch.zeros(ROWS, DIM))
    assert [name for name, _ in bag.named_parameters()] == ["rows.0"]


def test_pass_waits_for_a_stopped_server_for_a_limited_time(own_daemon, name):
    with own_daemon.connect() as server:
        table = sgd_table(server, name)
        bag, ids = et.EmbeddingBag(table, mode="sum", lr=1, timeout=0.2), torch.tensor([[1, 2]])
        assert et.EmbeddingBag(table, lr=0.01).timeout == 120
        before = table.get(np.arange(ROWS))
        out = bag(ids).sum()
        own_daemon.freeze()
        try:
            with pytest.raises(TimeoutError, match="no answer within 0.2 seconds.*Is the server stopped"):
                bag(ids)
            with pytest.raises(TimeoutError, match="no answer within 0.2 seconds"):
                out.backward()
        finally:
            own_daemon.signal(signal.SIGCONT)
        bag.timeout = None
        bag(ids).sum().backward()  # the earlier push has been applied, late
        assert bag.steps == 2
        before[[1, 2]] -= 2
        assert_close(table.get(np.arange(ROWS)), before)
    with pytest.raises(ValueError, match="timeout must be 0 or more seconds"):
        bag.timeout = -1


@pytest.mark.parametrize("update", et.UPDATES)
def test_module_frozen_between_forward_and_backward_stays_as_it_is(server, name, update):
    table = sgd_table(server, name)
    before = table.get(np.arange(ROWS))
    bag, twin = et.EmbeddingBag(table, lr=1, update=update), twin_of(table)
    for module in (bag, twin):
        out = module(torch.tensor([[1, 2]])).sum()
        module.requires_grad_(False)
        (out + torch.zeros(1, requires_grad=True)).backward()
    assert twin.weight.grad is None
    bag.step()
    np.testing.assert_array_equal(table.get(np.arange(ROWS)), before)
    assert bag.steps == 0
    bag.requires_grad_(True)
    bag(torch.tensor([[1, 2]])).sum().backward()
    bag.step()
    assert bag.steps == 1


def test_backward_after_one_that_failed_does_not_say_that_rows_were_updated(server, name):
    table = sgd_table(server, name)
    before = table.get(np.arange(ROWS))
    bag = et.EmbeddingBag(table, lr=1)
    out = bag(torch.tensor([[1, 2]])).sum()
    bag.grad_scale = 0
    with pytest.raises(ValueError, match="grad_scale is 0"):
        out.backward(retain_graph=True)
    bag.grad_scale = 1
    with pytest.raises(RuntimeError, match="earlier backward pass through this graph has failed.*forward pass again"):
        out.backward()
    np.testing.assert_array_equal(table.get(np.arange(ROWS)), before)


def test_errors_say_what_to_do(server, daemon, name):
    table = sgd_table(server, name)
    with pytest.raises(embtier.ExistsError, match="open_table.*if_not_exists=True"):
        sgd_table(server, name)
    bag, held = et.EmbeddingBag(table, lr=0.01), []
    with pytest.raises(embtier.TicketsFullError, match=r"torch\.no_grad\(\)"):
        for _ in range(10000):
            held.append(bag(torch.randint(0, ROWS, (20000, 20))))
    held.clear()
    with daemon.connect() as other:
        other.drop_table(name)
        sgd_table(other, name)
    with pytest.raises(embtier.NoTableError, match="dropped or created again since it was opened; open it again"):
        bag(torch.tensor([[1]]))
    with daemon.connect(arena_bytes=1 << 20) as small:
        with pytest.raises(embtier.ArenaFullError, match="smaller batches, or connect with more arena_bytes"):
            small.batch([(small.open_table(name), 30000)])


def test_bfloat16_tensors_are_rows_of_a_bf16_table(server, name):
    table = server.create_table(name, DIM, ROWS, dtype="bf16")
    rows = torch.randn(3, DIM).bfloat16()
    table.set([4, 5, 6], rows)
    with server.batch([(table, 3)]) as batch:
        batch.ids(0)[:] = [4, 5, 6]
        batch.get()
        assert torch.equal(et.rows(batch, 0), rows)
    with pytest.raises(TypeError, match=r"torch\.bfloat16 tensor or as uint16 bits, not float32"):
        table.set([4], torch.zeros(1, DIM))


def test_no_ids_at_all_give_zeros_and_no_request(server, name):
    bag = et.EmbeddingBag(sgd_table(server, name), lr=0.01)
    before = server.status()["metrics"]["requests"]
    out = bag(torch.empty(0, dtype=torch.int64), torch.tensor([0, 0]))
    assert torch.equal(out, torch.zeros(2, DIM))
    out.sum().backward()
    assert server.status()["metrics"]["requests"] == before


def test_unsigned_ids_reach_the_upper_half(server, name):
    table = sgd_table(server, name, rows=None)
    out = et.EmbeddingBag(table, unsigned_ids=True, lr=0.01)(torch.tensor([[-1], [7]]))
    np.testing.assert_array_equal(out.detach().numpy(), table.get([2**64 - 1, 7]))
    padded = et.EmbeddingBag(table, unsigned_ids=True, padding_idx=2**64 - 1, lr=0.01)(torch.tensor([[-1, 7], [-1, -1]]))
    np.testing.assert_array_equal(padded.detach().numpy(), [table.get(7), np.zeros(DIM)])


def test_int32_ids_and_offsets(server, name):
    table = sgd_table(server, name)
    ids, offsets = bags_1d(False)
    bag = et.EmbeddingBag(table, lr=0.01)
    assert torch.equal(bag(ids.int(), offsets.int()), bag(ids, offsets))


# ---- State ----


def test_state_dict_says_what_the_tables_are_and_holds_no_rows(server, name):
    table = sgd_table(server, name)
    model = torch.nn.Sequential(et.EmbeddingBag(table, lr=0.01), torch.nn.Linear(DIM, 1))
    state = pickle.loads(pickle.dumps(model.state_dict()))
    assert sum(v.numel() for v in state.values() if v.is_floating_point()) == DIM + 1
    model.load_state_dict(state)
    other = sgd_table(server, name + "_other", DIM, ROWS + 1)
    with pytest.raises(ValueError, match="saved with"):
        torch.nn.Sequential(et.EmbeddingBag(other, lr=0.01), torch.nn.Linear(DIM, 1)).load_state_dict(state)


def test_modules_are_neither_pickled_nor_copied(server, name):
    bag = et.EmbeddingBag(sgd_table(server, name), lr=0.01)
    with pytest.raises(TypeError, match="same tables"):
        copy.deepcopy(bag)
    with pytest.raises(TypeError, match="same tables"):
        pickle.dumps(torch.nn.Sequential(bag))
    assert "EmbeddingBag" in repr(bag) and name in repr(bag)


def test_an_optimizer_may_have_the_module_s_parameters(server, name):
    bag = et.EmbeddingBag(sgd_table(server, name), lr=0.01)
    model = torch.nn.Sequential(bag, torch.nn.Linear(DIM, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randint(0, ROWS, (4, 3))).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # test_torch_parameters.py tests these warnings
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.to("cpu").half().float().zero_grad()


def test_a_weight_that_float32_does_not_hold_is_refused(server, name):
    bag = et.EmbeddingBag(server.create_table(name, 2, optimizer="sgd"), mode="sum", lr=0.01)
    ids = torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match=r"per_sample_weights: 1e.39 at position 1 does not fit in float32"):
        bag(ids, per_sample_weights=torch.tensor([[1, 1e39]], dtype=torch.float64))
    assert bag(ids, per_sample_weights=torch.tensor([[1, np.inf]], dtype=torch.float64)).shape == (1, 2)


def test_maxima_of_infinite_rows_are_torch_s(server, name):
    inf, nan = float("inf"), float("nan")
    rows = torch.tensor([[-inf, 1], [-inf, -inf], [3, -inf], [nan, 2], [inf, 0]])
    table = server.create_table(name, 2, 5, optimizer="sgd", allow_nonfinite=True)
    ours, theirs = et.EmbeddingBag(table, mode="max", lr=1), torch.nn.EmbeddingBag(5, 2, mode="max")
    optimizer = torch.optim.SGD(theirs.parameters(), lr=1)
    for ids in ([[0, 1]], [[1, 1]], [[1, 2]], [[0, 2]], [[3, 4]], [[4, 3]], [[2, 3]], [[1, 0], [2, 4]]):
        table.set(range(5), rows)
        with torch.no_grad():
            theirs.weight.copy_(rows)
        out = [module(torch.tensor(ids)) for module in (ours, theirs)]
        torch.testing.assert_close(*out, equal_nan=True)
        for one in out:
            one.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(torch.from_numpy(table.get(range(5))), theirs.weight.detach(), equal_nan=True)
