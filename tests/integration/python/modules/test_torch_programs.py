# SPDX-License-Identifier: Apache-2.0
"""Programs may call modules in every order that torch allows. It works as with torch's modules, or an error or a warning says why
not."""

from __future__ import annotations

import io
import signal
import threading
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import embtier

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import embtier.torch as et  # noqa: E402
from embtier.torch import _compiled  # noqa: E402

ROWS, DIM, LR = 40, 6, 0.1
HAS_GRAPH_TASKS = hasattr(torch._C, "_current_graph_task_id")


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def make_table(server, name) -> Callable:
    made = []

    def make(**options):
        made.append(server.create_table(f"{name}_{len(made)}", DIM, ROWS, **({"optimizer": "sgd", "init": ("normal", 0, 1)} | options)))
        return made[-1]

    return make


def all_rows(table) -> torch.Tensor:
    return torch.from_numpy(table.get(np.arange(ROWS)))


IDS, OFFSETS = torch.tensor([1, 2, 2, 5]), torch.tensor([0, 3])


# ---- Passes ----


@pytest.mark.parametrize("update", et.UPDATES)
@pytest.mark.parametrize("kind", ["bag", "weighted", "equal", "embedding"])
def test_module_trains_after_a_pass_under_inference_mode(make_table, kind, update):
    table = make_table()
    module = (et.Embedding if kind == "embedding" else lambda *a, **k: et.EmbeddingBag(*a, mode="sum", **k))(table, lr=LR, update=update)
    given = {
        "bag": (IDS, OFFSETS), "weighted": (IDS, OFFSETS, torch.ones(4)), "equal": (IDS.view(2, 2),), "embedding": (IDS,),
    }[kind]  # fmt: skip
    before = all_rows(table)
    with torch.inference_mode():
        first = module(*given)
    second = module(*given)
    torch.testing.assert_close(first.clone(), second.detach())
    second.sum().backward()
    module.step()
    before.index_add_(0, IDS, torch.full((4, DIM), -LR))
    torch.testing.assert_close(all_rows(table), before)
    with torch.inference_mode():
        module(*given)


@pytest.mark.skipif(not HAS_GRAPH_TASKS, reason="this torch does not number its backward passes")
def test_module_that_is_called_twice_before_a_backward_pass_warns_once(make_table):
    bag = et.EmbeddingBag(make_table(), mode="sum", lr=LR)
    with pytest.warns(UserWarning, match=r"called several times .* so does update=\"step\"") as told:
        for _ in range(3):
            (bag(IDS, OFFSETS).sum() + bag(IDS, OFFSETS).sum()).backward()
    assert len(told) == 1 and bag.steps == 6
    gathers = et.EmbeddingBag(make_table(), mode="sum", lr=LR, update="step")
    (gathers(IDS, OFFSETS).sum() + gathers(IDS, OFFSETS).sum()).backward()
    gathers.step()
    for _ in range(2):
        bag(IDS, OFFSETS).sum().backward()


@pytest.mark.parametrize("frozen", [False, True])
def test_forward_mode_is_refused(make_table, frozen):
    bag = et.EmbeddingBag(make_table(), mode="sum", lr=LR, frozen=frozen)
    warnings.simplefilter("ignore")  # torch's own warnings
    with torch.autograd.forward_ad.dual_level():
        weights = torch.autograd.forward_ad.make_dual(torch.ones(4), torch.ones(4))
        with pytest.raises(RuntimeError, match="forward-mode derivatives .* rows that are in embtierd"):
            bag(IDS, OFFSETS, weights)
    bag(IDS, OFFSETS, torch.ones(4))


def test_padding_that_no_int32_can_be_is_not_compared_as_one(server, name):
    table = server.create_table(name, DIM, optimizer="sgd")
    module = et.Embedding(table, padding_idx=2**32 + 5, lr=LR)
    module(torch.tensor([5], dtype=torch.int32)).sum().backward()
    np.testing.assert_allclose(table.get([5]), np.full((1, DIM), -LR), rtol=1e-6)


@pytest.mark.skipif(not _compiled.HAS_OPERATORS, reason="this torch has no custom operators")
def test_shapes_in_a_graph_follow_from_its_operators_alone(make_table):
    """torch keeps compiled graphs on disk, found by operators and their arguments. Another process that loads one has other
    modules."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    module = et.EmbeddingBagCollection({"a": et.Bag(make_table(), include_last_offset=True)}, lr=LR)
    with FakeTensorMode():
        ids, offsets = torch.empty(4, dtype=torch.int64), torch.empty(3, dtype=torch.int64)
        for dim, end in ((DIM, 1), (16, 0)):
            found = torch.ops.embtier.lookup(torch.empty(1), module._number + 10**9, 1, False, [0], [dim], [end], [-1], [ids], [offsets], [])
            assert tuple(found[1].shape) == (3 - end, dim)


# ---- A server that does not answer ----


@pytest.mark.parametrize("what", ["abandoned", "prefetched"])
def test_time_limit_holds_for_what_is_given_back_too(own_daemon, what):
    with own_daemon.connect() as server:
        bag = et.EmbeddingBag(server.create_table("t", DIM, ROWS, optimizer="sgd"), mode="sum", lr=LR, timeout=60)
        if what == "abandoned":
            bag(IDS, OFFSETS)  # no backward pass uses the ticket
            own_daemon.freeze()
            bag.timeout = 0.2
            with pytest.raises(TimeoutError):
                bag(IDS, OFFSETS)
        else:
            loader = et.Prefetcher([(IDS, OFFSETS)] * 3, bag, lambda batch: batch)
            output = bag(*next(iter(loader)))
            own_daemon.freeze()
            bag.timeout = 0.2
            with pytest.raises(TimeoutError):
                output.sum().backward()
        own_daemon.signal(signal.SIGCONT)
        bag.timeout = 60
        bag(IDS, OFFSETS).sum().backward()


def test_rows_that_went_back_with_the_server_are_told(own_daemon):
    with own_daemon.connect() as server:
        tables = [server.create_table(name, DIM, ROWS, optimizer="adam") for name in "ab"]
        bags = [et.EmbeddingBag(table, mode="sum", lr=LR) for table in tables]
        for step in range(6):
            if step == 2:
                server.checkpoint(step=2)
            for bag in bags:
                bag(IDS, OFFSETS).sum().backward()
        own_daemon.kill()
        own_daemon.start()
        with pytest.raises(embtier.DisconnectedError, match="reconnect"):
            bags[0](IDS, OFFSETS)
        server.reconnect()
        with pytest.warns(UserWarning, match="table 'a' are of step 2 since .* this module is at step 6: the server has gone back"):
            bags[0](IDS, OFFSETS).sum().backward()
        assert bags[0].steps == tables[0].step == 3
        with pytest.warns(UserWarning, match="table 'b' are of step 2"):
            bags[1](IDS, OFFSETS)
        own_daemon.stop()  # a clean stop loses nothing
        own_daemon.start()
        with pytest.raises(embtier.DisconnectedError):
            bags[0](IDS, OFFSETS)
        server.reconnect()
        bags[0](IDS, OFFSETS).sum().backward()
        assert bags[0].steps == 4


# ---- Steps ----


@pytest.mark.parametrize("optimizer", ["sparse_adam", "sgd"])
def test_step_of_gradients_that_are_all_zero_is_a_step(make_table, optimizer):
    tables = [make_table(optimizer=optimizer, **({"weight_decay": 0.5} if optimizer == "sgd" else {})) for _ in et.UPDATES]
    tables[1].set(range(ROWS), all_rows(tables[0]))
    for table, update in zip(tables, et.UPDATES):
        bag = et.EmbeddingBag(table, mode="sum", lr=LR, update=update)
        for scale in (1, 0, 1):
            (bag(IDS, OFFSETS).sum() * scale).backward()
            bag.step()
        assert bag.steps == 3
    torch.testing.assert_close(all_rows(tables[0]), all_rows(tables[1]))


def test_zeroed_gradients_count_as_forgotten(make_table):
    table = make_table()
    bag = et.EmbeddingBag(table, mode="sum", lr=LR, update="step")
    (rows,) = bag.rows
    before = all_rows(table)
    bag(IDS, OFFSETS).sum().backward()
    rows.grad.zero_()
    bag.step()
    torch.testing.assert_close(all_rows(table), before, rtol=0, atol=0)
    with pytest.warns(UserWarning, match="were forgotten 3 times without a step"):
        for _ in range(4):
            bag(IDS, OFFSETS).sum().backward()
            rows.grad.zero_()


def test_modules_that_take_turns_to_train_a_table_are_told(make_table):
    table = make_table()
    first, second = (et.EmbeddingBag(table, mode="sum", lr=LR) for _ in range(2))
    with pytest.warns(UserWarning, match="several modules train table .* an EmbeddingBagCollection of their bags makes one") as told:
        for module in (first, second) * 3:
            module(torch.tensor([[1]])).sum().backward()
    assert len(told) == 2 and first.steps == second.steps == 3


def test_replace_never_takes_a_busy_server_for_a_table_that_is_there(server, name, monkeypatch):
    """The server may refuse an import because six of the user's are under way. The model's rows then wait, and zeros do not
    replace them."""
    real, calls = embtier.Server.import_table, []

    def busy(self, *arguments, **options):
        calls.append(1)
        if len(calls) < 4:
            raise embtier.BusyError("six loads are under way")
        return real(self, *arguments, **options)

    monkeypatch.setattr(embtier.Server, "import_table", busy)
    model = Model()
    weight = model.bag.weight.detach().clone()
    (found,) = et.replace(model, server, lr=LR, prefix=f"{name}.", if_not_exists=True)
    assert found.copied and len(calls) == 4
    torch.testing.assert_close(all_rows(found.table), weight, rtol=0, atol=0)


def test_hooks_of_rows_are_refused(make_table):
    (rows,) = et.EmbeddingBag(make_table(), lr=LR).rows
    for register in (rows.register_hook, rows.register_post_accumulate_grad_hook):
        with pytest.raises(TypeError, match="are never called"):
            register(print)


# ---- Optimizers and schedulers ----


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.dense = nn.EmbeddingBag(ROWS, DIM, mode="sum"), nn.Linear(DIM, 1)

    def forward(self) -> torch.Tensor:
        return self.dense(self.bag(IDS, OFFSETS)).square().sum()


def replaced(server, name, **options) -> Model:
    model = Model()
    et.replace(model, server, **({"lr": LR, "prefix": f"{name}."} | options))
    return model


def train(model, optimizer) -> None:
    optimizer.zero_grad()
    model().backward()
    optimizer.step()


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Adam", "RMSprop"])
def test_combined_optimizer_is_saved_whatever_torch_s_is(server, name, kind):
    words = {"SGD": "sgd", "Adagrad": "adagrad", "Adam": "adam", "RMSprop": "rmsprop"}
    model = replaced(server, name, optimizer=words[kind])
    make = lambda: et.CombinedOptimizer(getattr(torch.optim, kind)(model.parameters(), lr=LR), model)  # noqa: E731
    optimizer = make()
    train(model, optimizer)
    state = optimizer.state_dict()
    other = make()
    other.load_state_dict(state)
    train(model, other)
    assert len(other.state) <= 2 and not any(isinstance(one, et.Rows) for one in other.state)


def test_groups_of_rows_alone_keep_the_places_of_the_others(server, name):
    model = replaced(server, name)
    groups = [{"params": list(model.bag.parameters()), "lr": LR}, {"params": list(model.dense.parameters()), "lr": 0.01}]
    inner = torch.optim.SGD(groups, lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda step: 1.0)
    with pytest.warns(UserWarning, match="a scheduler was made over the SGD .* Make it over the CombinedOptimizer"):
        optimizer = et.CombinedOptimizer(inner, model)
    for _ in range(2):
        train(model, optimizer)
        scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, LR]
    assert len(inner.param_groups) == 2
    other = et.CombinedOptimizer(torch.optim.SGD(groups, lr=1.0), model)
    other.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in other.param_groups] == [0.01, LR]


def test_scheduler_that_comes_later_over_the_inner_optimizer_is_told_once(server, name):
    model = replaced(server, name)
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    optimizer = et.CombinedOptimizer(inner, model)
    torch.optim.lr_scheduler.StepLR(inner, 1)
    with pytest.warns(UserWarning, match="does not reach the learning rates of rows") as told:
        for _ in range(3):
            train(model, optimizer)
    assert len(told) == 1


def test_optimizer_that_has_the_weights_of_before_is_told(server, name):
    model = Model()
    inner = torch.optim.SGD(model.parameters(), lr=LR)
    et.replace(model, server, lr=LR, prefix=f"{name}.")
    with pytest.warns(UserWarning, match=r"a parameter \(40, 6\) that replace\(\) has put table .* make the optimizer after replace\(\)"):
        et.CombinedOptimizer(inner, model)
    et.CombinedOptimizer(torch.optim.SGD(model.dense.parameters(), lr=LR), model)


@pytest.mark.parametrize("update", et.UPDATES)
def test_method_of_an_optimizer_that_only_reads_gradients_is_no_step(server, name, update):
    class Logging(torch.optim.SGD):
        def norms(self) -> list[float]:
            return [float(p.grad.norm()) for group in self.param_groups for p in group["params"] if p.grad is not None]

    model = replaced(server, name, update=update)
    optimizer = Logging(model.parameters(), lr=LR)
    model().backward()
    if update == "step":
        assert len(optimizer.norms()) == 3
        with pytest.raises(RuntimeError, match="no other optimizer steps them"):
            optimizer.step()
    else:
        warnings.simplefilter("ignore")
        assert len(optimizer.norms()) == 2


# ---- replace() ----


def test_weights_with_hooks_stay(server, name):
    model = Model()
    model.bag.weight.register_hook(lambda gradient: gradient * 0)
    assert et.replace(model, server, lr=LR, prefix=name)[0].reason == "its weight has hooks"


def test_trainers_that_replace_at_once_get_one_table_and_groups_of_their_own(daemon, name):
    errors, models = [], [nn.ModuleDict({"a": nn.Embedding(50_000, 32), "b": nn.Embedding(ROWS, DIM)}) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    begin = threading.Barrier(2)

    def run(member: int) -> None:
        try:
            with daemon.connect() as server:
                begin.wait(60)
                join = lambda path, step: server.join(f"{name}.{path}", size=2, member=member, step=step)  # noqa: E731
                et.replace(models[member], server, lr=LR, prefix=f"{name}.", if_not_exists=True, group=join)
                models[member]["b"](torch.tensor([member])).sum().backward()
                models[member]["b"].step()
                assert models[member]["a"].group.name == f"{name}.a"
                begin.wait(60)
        except BaseException as error:
            errors.append(error)
            begin.abort()

    threads = [threading.Thread(target=run, args=(member,)) for member in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


# ---- bfloat16 ----


def test_bf16_modules_have_padding_and_are_drawn_anew(server, name):
    module = et.Embedding(ROWS, DIM, padding_idx=3, dtype=torch.bfloat16, server=server, name=name, lr=LR)
    assert not module(torch.tensor([3])).any() and module(torch.arange(ROWS)).any()
    before = module(torch.arange(ROWS)).detach()
    module.reset_parameters()
    after = module(torch.arange(ROWS)).detach()
    assert not after[3].any() and (after != before).any()



# ---- Going on, as docs/torch.md says ----


def test_training_goes_back_to_what_was_saved(server, name):
    def made():
        torch.manual_seed(2)
        model = Model()
        found = et.replace(model, server, lr=LR, prefix=f"{name}.", optimizer="adagrad", if_not_exists=True)
        return model, et.CombinedOptimizer(torch.optim.Adagrad(model.parameters(), lr=LR), model), [one.table.name for one in found]

    model, optimizer, tables = made()
    for _ in range(3):
        train(model, optimizer)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "checkpoint": server.checkpoint(step=3).id}
    saved = torch.load(_stored(saved))
    losses = [(train(model, optimizer), model().item())[1] for _ in range(3)]
    for table in tables:
        server.drop_table(table)
    server.restore_checkpoint(saved["checkpoint"], tables)
    model, optimizer, _ = made()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    assert [(train(model, optimizer), model().item())[1] for _ in range(3)] == losses


def _stored(state) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


# ---- No warnings without a fault ----


def test_optimizer_of_two_models_has_no_weights_of_before(server, name):
    model, other = replaced(server, name), nn.Linear(DIM, ROWS)  # this weight has the table's shape
    et.CombinedOptimizer(torch.optim.SGD([*model.parameters(), *other.parameters()], lr=LR), model)


def test_scheduler_where_no_row_is_trained_is_not_told(server, name):
    model = replaced(server, name)
    model.bag.requires_grad_(False)
    inner = torch.optim.SGD(model.dense.parameters(), lr=LR)
    torch.optim.lr_scheduler.StepLR(inner, 1)
    et.CombinedOptimizer(inner, model)


def test_steps_that_are_skipped_for_the_dense_part_are_not_told(server, name):
    model = replaced(server, name)
    optimizer = et.CombinedOptimizer(torch.optim.SGD(model.parameters(), lr=LR), model)
    for _ in range(4):
        model().backward()
        model.dense.weight.grad.fill_(float("inf"))  # a scaler does this where the loss is too large
        optimizer.zero_grad()
    train(model, optimizer)
    assert model.bag.steps == 1


def test_modules_that_train_a_table_in_phases_are_not_told(make_table):
    table = make_table()
    first, second = (et.EmbeddingBag(table, mode="sum", lr=LR) for _ in range(2))
    for module in (first, first, second, second, first):
        module(IDS, OFFSETS).sum().backward()


def test_second_call_without_ids_is_no_second_step(make_table):
    bag = et.EmbeddingBag(make_table(), mode="sum", lr=LR)
    nothing = torch.empty(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    (bag(IDS, OFFSETS).sum() + bag(*nothing).sum()).backward()
    assert bag.steps == 1


def test_gradients_that_are_zeroed_in_any_way_are_forgotten(make_table):
    table = make_table()
    bag = et.EmbeddingBag(table, mode="sum", lr=LR, update="step")
    bag(IDS, OFFSETS).sum().backward()
    bag.rows[0].grad.data.zero_()
    before = all_rows(table)
    bag.step()
    assert bag.steps == 0
    with torch.inference_mode():
        bag.rows[0].grad = None
    bag(IDS, OFFSETS).sum().backward()
    with torch.inference_mode():
        bag.rows[0].grad = bag.rows[0].grad.clamp(-1, 1)
    bag.step()
    assert bag.steps == 1 and (all_rows(table) != before).any()


def test_count_that_was_assigned_outlives_a_clean_stop(own_daemon):
    with own_daemon.connect() as server:
        bag = et.EmbeddingBag(server.create_table("t", DIM, ROWS, optimizer="sgd"), mode="sum", lr=LR)
        bag(IDS, OFFSETS).sum().backward()
        bag.steps = 100
        own_daemon.stop()
        own_daemon.start()
        with pytest.raises(embtier.DisconnectedError):
            bag(IDS, OFFSETS)
        server.reconnect()
        bag(IDS, OFFSETS).sum().backward()
        assert bag.steps == 101


# ---- replace() once more ----


def test_groups_go_on_from_the_step_of_their_tables(server, name):
    for steps in (0, 1):
        model = Model()
        join = lambda path, step: server.join(f"{name}.{path}", size=1, member=0, step=step)  # noqa: E731
        et.replace(model, server, lr=LR, prefix=f"{name}.", optimizer="adam", if_not_exists=True, group=join)
        assert model.bag.steps == model.bag.group.step == steps
        model().backward()
        model.bag.step()
        model.bag.group.leave()


def test_groups_are_left_where_one_cannot_be_joined(server, name):
    model = nn.ModuleDict({"a": nn.Embedding(ROWS, DIM), "b": nn.Embedding(ROWS, DIM)})

    def join(path, step):
        if path == "b":
            raise LookupError(path)
        return server.join(f"{name}.{path}", size=1, member=0, step=step)

    for _ in range(2):
        with pytest.raises(LookupError):
            et.replace(model, server, lr=LR, prefix=f"{name}.", group=join)
    assert isinstance(model["a"], nn.Embedding) and not [one for one in server.tables() if one.name.startswith(f"{name}.")]


def test_rows_that_are_there_are_not_written_to_a_file_again(server, name, monkeypatch):
    model = Model()
    replaced(server, name)
    monkeypatch.setattr(embtier.Server, "import_table", None)
    (found,) = et.replace(model, server, lr=LR, prefix=f"{name}.", if_not_exists=True)
    assert not found.copied
