# SPDX-License-Identifier: Apache-2.0
"""Training loops leave the rows that PyTorch and the published formulas give, and the same bytes whatever the lanes, the cache,
the homes of the tables and the restarts."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from daemons import LONG, SANITIZED, Daemon
from training import POOLS, Reference, Step, batch_for, look_up, nearest, numbers_of, places

import embtier
from embtier import _types

pytestmark = pytest.mark.usefixtures("random_homes")

OPTIMIZERS = [optimizer for optimizer in _types.OPTIMIZER_NUMBERS if optimizer != "none"]
RATES = {
    "sgd": 1, "adagrad": 0.05, "rowwise_adagrad": 0.05, "rmsprop": 0.002, "adam": 0.01, "momentum": 0.03, "adamw": 0.01, "sparse_adam": 0.01,
}  # fmt: skip
# Sanitizers get one for each size of state: none, a number for the row, one and two for each of its numbers.
if SANITIZED:
    OPTIMIZERS = ["sgd", "rowwise_adagrad", "momentum", "adam"]
# Powers of two, which the table stores exactly; eps is so large that errors of clipping stay small.
DECAY_AND_CLIPPING = {
    "weight_decay": 2**-7, "clip_norm": 2**-4, "eps": 2**-10, "alpha": 0.875, "beta1": 0.75, "beta2": 0.9375,
    "momentum": 0.875,
}  # fmt: skip
STEPS = 10 if SANITIZED else 100 if LONG else 40
DIM = 8
MAX = list(POOLS).index("max")


def make_tables(server, name, optimizer, hyper, rows, **options) -> dict[str, embtier.Table]:
    """A table for each of POOLS, with different rows."""
    has = _types.OPTIMIZER_HYPERPARAMETERS[optimizer]
    return {
        pool: server.create_table(
            f"{name}_{pool}", DIM, rows, optimizer=optimizer, init=("uniform", 0.5, 1), seed=seed,
            **{k: v for k, v in hyper.items() if k in has}, **options,
        )
        for seed, pool in enumerate(POOLS)
    }  # fmt: skip


def rate_of(optimizer: str, step: int) -> float:
    """A schedule of learning rates."""
    return RATES[optimizer] * 0.99**step


# ---- The formulas ----


class Torch:
    """A dense nn.EmbeddingBag with PyTorch's optimizer, in float64."""

    def __init__(self, table: embtier.Table, pool: str) -> None:
        self.torch = torch = pytest.importorskip("torch")
        self.spec = spec = table.spec
        self.mode, self.weighted = POOLS[pool]
        mode = "sum" if self.weighted else self.mode  # PyTorch's mean takes no weights
        rows = torch.from_numpy(table.get(np.arange(table.rows)).astype(np.float64))
        self.module = torch.nn.EmbeddingBag.from_pretrained(
            rows, freeze=False, mode=mode, include_last_offset=True
        )
        make, own = {
            "sgd": (torch.optim.SGD, {}),
            "adagrad": (torch.optim.Adagrad, {"eps": spec.eps}),
            "rmsprop": (torch.optim.RMSprop, {"eps": spec.eps, "alpha": spec.alpha}),
            "adam": (torch.optim.Adam, {"eps": spec.eps, "betas": (spec.beta1, spec.beta2)}),
            "adamw": (torch.optim.AdamW, {"eps": spec.eps, "betas": (spec.beta1, spec.beta2)}),
            "momentum": (torch.optim.SGD, {"momentum": spec.momentum}),
            "sparse_adam": (torch.optim.SparseAdam, {"eps": spec.eps, "betas": (spec.beta1, spec.beta2)}),
        }[spec.optimizer]
        own |= {} if spec.optimizer == "sparse_adam" else {"weight_decay": spec.weight_decay}
        self.optimizer = make(list(self.module.parameters()), lr=1, **own)

    def look_up(self, step: Step) -> np.ndarray:
        torch = self.torch
        weights = None
        if self.weighted:
            self.weights = weights = torch.tensor(step.weights, requires_grad=True)
            if self.mode == "mean":
                lengths = np.diff(step.offsets)
                weights = weights / torch.from_numpy(np.repeat(lengths, lengths))
        ids, offsets = (torch.from_numpy(a.astype(np.int64)) for a in (step.ids, step.offsets))
        self.bags = self.module(ids, offsets, weights)
        return self.bags.detach().numpy()

    def push(self, step: Step, lr: float) -> None:
        self.optimizer.zero_grad()
        self.bags.backward(self.torch.from_numpy(step.gradients))
        if self.spec.clip_norm:  # row by row, for which PyTorch has no function
            gradients = self.module.weight.grad
            norms = gradients.norm(dim=1, keepdim=True)
            gradients *= (self.spec.clip_norm / norms).clamp(max=1)
        if self.spec.optimizer == "sparse_adam":  # SparseAdam has no decay of its own
            weight, places = self.module.weight, self.torch.arange(len(self.module.weight))
            gradients = weight.grad + self.spec.weight_decay * weight.detach()
            weight.grad = self.torch.sparse_coo_tensor(places.unsqueeze(0), gradients)  # rows with gradient 0, too
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()

    def state(self) -> np.ndarray:
        names = {"adagrad": ["sum"], "rmsprop": ["square_avg"], "momentum": ["momentum_buffer"]}
        names |= dict.fromkeys(("adam", "adamw", "sparse_adam"), ["exp_avg", "exp_avg_sq"])
        state = self.optimizer.state[self.module.weight]
        found = [state[k].numpy() for k in names.get(self.spec.optimizer, [])]
        return np.concatenate([np.empty((self.module.num_embeddings, 0)), *found], axis=1)


@pytest.mark.parametrize("hyper", [{}, DECAY_AND_CLIPPING], ids=["defaults", "decay_and_clipping"])
@pytest.mark.parametrize("optimizer", [o for o in OPTIMIZERS if o != "rowwise_adagrad"])
def test_where_every_row_has_a_gradient_rows_are_those_of_pytorch(daemon, name, optimizer, hyper):
    rng = np.random.default_rng(1)
    rows = 100
    with daemon.connect() as server:
        tables = make_tables(server, name, optimizer, hyper, rows)
        models = [Torch(table, pool) for pool, table in tables.items()]
        batch = batch_for(server, tables, Step.random(rng, rows, DIM))
        for number in range(1, STEPS + 1):
            steps = [Step.random(rng, rows, DIM, all_rows=True) for _ in tables]
            steps[MAX].without_ties(models[MAX].module.weight.detach().numpy())
            lr = rate_of(optimizer, number)
            for found, model, step in zip(look_up(batch, steps), models, steps):
                np.testing.assert_allclose(found, model.look_up(step), rtol=1e-5, atol=1e-5)
                model.push(step, lr)
            batch.push(lr, number, weight_gradients=True)
            for part, model in enumerate(models):
                if model.weighted:
                    wanted = model.weights.grad.numpy()
                    np.testing.assert_allclose(batch.weights(part), wanted, rtol=1e-5, atol=1e-7)
        for table, model in zip(tables.values(), models):
            found, state = table.get_with_state(np.arange(rows))
            wanted = model.module.weight.detach().numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7, err_msg=table.name)
            np.testing.assert_allclose(state, model.state(), rtol=1e-5, atol=1e-7, err_msg=table.name)


@pytest.mark.parametrize("hyper", [{}, DECAY_AND_CLIPPING], ids=["defaults", "decay_and_clipping"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_where_some_rows_have_a_gradient_they_follow_the_formula_and_the_others_stay(
    daemon, name, optimizer, hyper
):
    """The state follows too. The server does not count steps: Adam corrects by the pushed number."""
    rng = np.random.default_rng(2)
    rows = 3000
    with daemon.connect() as server:
        tables = make_tables(server, name, optimizer, hyper, rows)
        references = [Reference(table, pool) for pool, table in tables.items()]
        first = [reference.weights.copy() for reference in references]
        touched = np.zeros((len(tables), rows), bool)
        batch = batch_for(server, tables, Step.random(rng, rows, DIM))
        for number in range(3, 3 + 7 * STEPS, 7):
            steps = [Step.random(rng, rows, DIM) for _ in tables]
            steps[MAX].without_ties(references[MAX].weights)
            rates = [rate_of(optimizer, number) * (1 + part) / 4 for part in range(len(tables))]
            for part, found in enumerate(look_up(batch, steps)):
                wanted = references[part].look_up(steps[part])
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
                references[part].push(steps[part], rates[part], number)
                touched[part, steps[part].ids] = True
            batch.push(rates, number)
        for part, reference in enumerate(references):
            reference.compare()
            assert 0 < (~touched[part]).sum() < rows
            found, state = reference.table.get_with_state(np.flatnonzero(~touched[part]))
            assert (found == first[part][~touched[part]]).all() and not state.any()


def test_adam_corrects_its_bias_by_the_step_that_is_pushed(daemon, name):
    """Steps include the first and the last possible ones, and steps earlier than the previous push's."""
    with daemon.connect() as server:
        table = server.create_table(name, 2, 10, optimizer="adam", init=("uniform", 0.5, 1))
        step = Step(np.array([7]), np.array([0, 1]), np.ones(1), np.array([[0.25, -0.5]]))
        reference = Reference(table, "sum")
        batch = server.bag_batch([embtier.Bags(table, 1, 1)])
        for number in (1, 2, 2, 1000, 3, 2**53 - 1, 1):
            look_up(batch, [step])
            batch.push(0.01, number)
            reference.look_up(step)
            reference.push(step, 0.01, number)
            reference.compare()


def test_a_table_in_parts_of_several_modes_gets_one_update(daemon, name):
    """Its gradient is the sum over all parts."""
    with daemon.connect() as server:
        table = server.create_table(name, 2, 10, optimizer="adagrad", init=("constant", 1))
        batch = server.bag_batch([
            embtier.Bags(table, 2, 1, "sum"),
            embtier.Bags(table, 4, 2, "mean"),
            embtier.Bags(table, 0, 0),
            embtier.Bags(table, 2, 1, "mean", True),
        ])  # fmt: skip
        batch.ids(0)[:] = [3, 3]
        batch.offsets(0)[:] = [0, 2]
        batch.ids(1)[:] = [3, 4, 4, 4]
        batch.offsets(1)[:] = [0, 2, 4]
        batch.ids(3)[:] = [3, 5]
        batch.weights(3)[:] = [4, -2]
        batch.offsets(3)[:] = [0, 2]
        for number in (1, 2):
            batch.lookup(ticket=True)
            batch.gradients(0)[:] = 1
            batch.gradients(1)[:] = [[2], [4]]
            batch.gradients(3)[:] = 1
            batch.push(0, number)
        _, state = table.get_with_state([3, 4, 5, 6])
        assert (state == 2 * np.square([[2 + 1 + 2], [1 + 4], [-1], [0]])).all()


# ---- Rounding ----


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_rounded_to_nearest_are_within_one_unit_of_a_model_that_rounds_each_step(
    daemon, name, optimizer, dtype
):
    rng = np.random.default_rng(3)
    rows = 500
    rate = 4 * RATES[optimizer]  # steps large enough to survive rounding
    with daemon.connect() as server:
        tables = make_tables(server, name, optimizer, {}, rows, dtype=dtype, rounding="nearest")
        references = [Reference(table, pool, np.float32) for pool, table in tables.items()]
        first = [reference.weights.copy() for reference in references]
        batch = batch_for(server, tables, Step.random(rng, rows, DIM))
        for number in range(1, STEPS + 1):
            steps = [Step.random(rng, rows, DIM) for _ in tables]
            for part, found in enumerate(look_up(batch, steps)):
                wanted = references[part].look_up(steps[part])
                np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2)
                references[part].push(steps[part], rate, number)
            batch.push(rate, number)
        for reference, before in zip(references, first):
            table = reference.table
            found, state = table.get_with_state(np.arange(rows))
            found = places(dtype, numbers_of(table, found))
            assert abs(found - places(dtype, reference.weights)).max() <= 1, table.name
            assert (found != places(dtype, before)).mean() > 0.1
            np.testing.assert_allclose(state, reference.state, rtol=1e-5, atol=1e-7)


def push_to_all(table: embtier.Table, gradients: np.ndarray, number: int, lr: float = 1) -> None:
    batch = table.server.push_batch([(table, table.rows)])
    batch.ids(0)[:] = np.arange(table.rows)
    batch.gradients(0)[:] = gradients
    batch.push(lr, number)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_stochastic_rounding_is_unbiased(daemon, name, dtype):
    """Updates far smaller than a unit in the last place take effect on average; with rounding to nearest, none does. The limit is
    six standard deviations, so chance fails less than once in 10^8. The seed is fixed, so each run gives the same result."""
    rows = 4000 if SANITIZED else 40_000
    unit = 2**-11 if dtype == "f16" else 2**-8  # just below 1
    with daemon.connect() as server:
        for share in (1 / 64, 0.3, 0.5, 0.9):
            table = server.create_table(f"{name}_{share}", 2, rows, dtype=dtype, optimizer="sgd", init=("constant", 1))
            push_to_all(table, np.float32(share * unit), 1)
            found = numbers_of(table, table.get(np.arange(rows)))
            assert set(np.unique(found)) == {1 - unit, 1}
            moved = (found != 1).sum(axis=0)  # counted for each column
            assert (abs(moved - share * rows) < 6 * np.sqrt(share * (1 - share) * rows)).all()
            both = (found != 1).all(axis=1).sum()  # columns are rounded independently
            assert abs(both - share**2 * rows) < 6 * np.sqrt(share**2 * (1 - share**2) * rows)

        walked = rows // 4
        walk, still = (
            server.create_table(
                f"{name}_{rounding}", 2, count, dtype=dtype, optimizer="sgd", init=("constant", 1), rounding=rounding
            )
            for rounding, count in (("stochastic", walked), ("nearest", 1000))
        )
        for number in range(1, 21):
            for table in (walk, still):
                push_to_all(table, np.float32(-unit / 16), number)
        mean = numbers_of(walk, walk.get(np.arange(walked))).astype(np.float64).mean()
        # A step's variance is at most a quarter of the squared unit; above 1 the unit is 2 * unit.
        assert abs(mean - (1 + 20 * unit / 16)) < 6 * np.sqrt(20 / (2 * walked)) * unit
        assert (numbers_of(still, still.get(np.arange(still.rows))) == 1).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_stochastic_rounding_is_the_same_for_the_same_seed_and_another_for_another(daemon, name, dtype):
    """This holds however the rows are divided among pushes."""
    rows = 2000
    rng = np.random.default_rng(4)
    gradients = rng.standard_normal((rows, 3)).astype(np.float32)
    with daemon.connect() as server:

        def trained(number: int, seed: int, parts: int, first_step: int = 1) -> bytes:
            table = server.create_table(
                f"{name}_{number}", 3, rows, dtype=dtype, optimizer="adagrad", seed=seed, init=("constant", 0.7)
            )
            for step in range(first_step, first_step + 5):
                for ids in np.array_split(rng.permutation(rows), parts):
                    batch = server.push_batch([(table, len(ids))])
                    batch.ids(0)[:] = ids
                    batch.gradients(0)[:] = gradients[ids]
                    batch.push(0.01, step)
                    batch.free()
            found, state = table.get_with_state(np.arange(rows))
            exact = nearest(dtype, numbers_of(table, found))
            assert (exact == numbers_of(table, found)).all()
            return found.tobytes() + state.tobytes()

        once = trained(0, 5, 1)
        assert trained(1, 5, 1) == once
        assert trained(2, 5, 7) == once
        assert trained(3, 6, 1) != once
        assert trained(4, 5, 1, first_step=2) != once


# ---- The same bytes ----

BYTES_STEPS = 60 if SANITIZED else 1000 if LONG else 300
BYTES_ROWS, BYTES_DIM, BYTES_BAGS = 12_000, 256, 8
# (dtype, optimizer, mode, weighted, other options): 60 MiB in all.
BYTES_TABLES = [
    ("f32", "adam", "sum", True, {"weight_decay": 0.001}),
    ("bf16", "adagrad", "mean", False, {"clip_norm": 0.5}),
    ("f16", "rowwise_adagrad", "max", False, {}),
]


def trained_bytes(daemon, restarts: bool = False, missing: bool = False) -> str:
    """A hash of all rows and their state after a training. Gradients depend on the bags, so a single difference stays for ever.
    @missing: rows must be read from SSD."""
    rng = np.random.default_rng(5)
    daemon.start()
    server = daemon.connect()
    for i, (dtype, optimizer, _, _, options) in enumerate(BYTES_TABLES):
        server.create_table(
            f"t{i}", BYTES_DIM, BYTES_ROWS, dtype=dtype, optimizer=optimizer, seed=i, init=("normal", 0, 0.5), **options
        )

    def parts():
        tables = [server.open_table(f"t{i}") for i in range(len(BYTES_TABLES))]
        count = 8 * BYTES_BAGS
        return tables, server.bag_batch([
            embtier.Bags(table, count, BYTES_BAGS, mode, weighted)
            for table, (_, _, mode, weighted, _) in zip(tables, BYTES_TABLES)
        ])  # fmt: skip

    tables, batch = parts()
    used = [np.zeros(BYTES_ROWS, bool) for _ in tables]
    for number in range(1, BYTES_STEPS + 1):
        if restarts and number == BYTES_STEPS // 2:
            server.close()
            daemon.restart()
            server = daemon.connect()
            tables, batch = parts()
        for part, (_, _, _, weighted, _) in enumerate(BYTES_TABLES):
            count = batch.count(part)
            ids = rng.integers(0, BYTES_ROWS, count)
            batch.ids(part)[:] = np.where(rng.random(count) < 0.2, ids % 50, ids)
            used[part][batch.ids(part)] = True
            batch.offsets(part)[:] = [0, *np.sort(rng.integers(0, count, BYTES_BAGS - 1)), count]
            if weighted:
                batch.weights(part)[:] = rng.random(count)
        batch.lookup(ticket=True)
        for part in range(len(BYTES_TABLES)):
            targets = rng.standard_normal(batch.bags(part).shape)
            batch.gradients(part)[:] = 0.1 * (batch.bags(part) - targets)
        batch.push(0.01 * 0.999**number, number)
    if missing:
        metrics = daemon.metrics()
        cached = sum(spec.home == "cache" for spec in server.tables())  # rows of the others stay in memory
        assert metrics["store_rows_read"] - metrics["store_rows_absent"] > (10 * BYTES_STEPS if cached > 1 else -1)
    found = hashlib.sha256()
    for table, trained in zip(tables, used):
        all_ids = np.flatnonzero(trained) if SANITIZED else np.arange(BYTES_ROWS)  # the others would take longest, and have first values
        for ids in np.array_split(all_ids, 4):
            for array in table.get_with_state(ids):
                found.update(array.tobytes())
    server.close()
    daemon.stop()
    return found.hexdigest()


CACHE_MIB = 48 if SANITIZED else 128  # for all rows that the training reads


@pytest.fixture(scope="module")
def bytes_of_one_lane(tmp_path_factory):
    daemon = Daemon(tmp_path_factory.mktemp("one_lane"), lanes=1)
    daemon.configure({"cache": {"tiers": [daemon.dram(1, CACHE_MIB)]}})
    try:
        return trained_bytes(daemon)
    finally:
        daemon.end()


# Sanitizers get the two of them in which the most happens at once.
@pytest.mark.parametrize(
    "lanes, cached, restarts",
    [(2, True, False), (8, False, True)]
    + [(8, True, False), (1, False, False), (2, False, True), (1, True, True)] * (not SANITIZED),
)
def test_the_same_training_leaves_the_same_bytes(make_daemon, bytes_of_one_lane, lanes, cached, restarts):
    daemon = make_daemon(lanes=lanes)
    if cached:
        daemon.configure({"cache": {"tiers": [daemon.dram(1, CACHE_MIB)]}})
    else:  # the smallest cache allowed
        daemon.configure({"cache": {"tiers": [daemon.dram(lanes, 4)]}})
    assert trained_bytes(daemon, restarts, missing=not cached) == bytes_of_one_lane
