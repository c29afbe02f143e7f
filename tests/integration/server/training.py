# SPDX-License-Identifier: Apache-2.0
"""The results that pushes must have, in NumPy: lookups, gradients of rows, and the optimizers' published formulas, for rows that
have a gradient (the "lazy" form)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import embtier

# Modes, and whether ids have weights.
POOLS = {
    "sum": ("sum", False),
    "mean": ("mean", False),
    "max": ("max", False),
    "weighted_sum": ("sum", True),
    "weighted_mean": ("mean", True),
}

BAG_LENGTHS = np.repeat([0, 1, 2, 4, 8], 16)


@dataclass
class Step:
    """One step's input for one table. Gradients are multiples of 2^-14, weights multiples of 1/8, and lengths of bags powers of
    two. So a row's gradient is exact in float32, in any order of adding up. It is never the remainder of numbers that cancel out,
    which optimizers would blow up."""

    ids: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray
    gradients: np.ndarray

    @classmethod
    def random(cls, rng: np.random.Generator, rows: int, dim: int, all_rows: bool = False) -> Step:
        lengths = rng.permutation(BAG_LENGTHS)
        count = lengths.sum()
        ids = (rows * rng.random(count) ** 3).astype(np.uint64)  # the first ids often
        if all_rows:
            ids[:rows] = np.arange(rows)
        return cls(
            rng.permutation(ids),
            np.concatenate([[0], np.cumsum(lengths)]),
            rng.integers(-16, 17, count) / 8,
            rng.integers(-512, 513, (len(lengths), dim)) / 2**14,
        )

    def without_ties(self, rows: np.ndarray) -> Step:
        """For maxima: zeroes gradients where two of @rows are so close that float32 and float64 might find different maxima."""
        for bag, (first, end) in enumerate(zip(self.offsets, self.offsets[1:])):
            greatest = np.sort(rows[np.unique(self.ids[first:end])], axis=0)[-2:]
            if len(greatest) == 2:
                self.gradients[bag, greatest[1] - greatest[0] < 1e-5] = 0
        return self


def batch_for(server: embtier.Server, tables: dict[str, embtier.Table], step: Step) -> embtier.BagBatch:
    """A batch with a part for each of POOLS, in that order, for steps as long as @step."""
    return server.bag_batch([
        embtier.Bags(tables[pool], len(step.ids), len(step.offsets) - 1, mode, weighted)
        for pool, (mode, weighted) in POOLS.items()
    ])  # fmt: skip


def look_up(batch: embtier.BagBatch, steps: list[Step]) -> list[np.ndarray]:
    """Looks up with a ticket, then puts the gradients into the batch."""
    for part, step in enumerate(steps):
        batch.ids(part)[:] = step.ids
        batch.offsets(part)[:] = step.offsets
        if list(POOLS.values())[part][1]:
            batch.weights(part)[:] = step.weights
    batch.lookup(ticket=True)
    found = [batch.bags(part).copy() for part in range(len(steps))]
    for part, step in enumerate(steps):
        batch.gradients(part)[:] = step.gradients
    return found


# ---- Numbers of tables ----


def numbers_of(table: embtier.Table, rows: np.ndarray) -> np.ndarray:
    """Rows of the table's dtype, as float32."""
    if table.dtype == "bf16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)


def nearest(dtype: str, numbers: np.ndarray) -> np.ndarray:
    """@numbers rounded to the dtype, half to even."""
    if dtype == "f16":
        return numbers.astype(np.float16).astype(numbers.dtype)
    if dtype == "bf16":
        bits = numbers.astype(np.float32).view(np.uint32)
        bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
        return bits.astype(np.uint32).view(np.float32).astype(numbers.dtype)
    return numbers


def places(dtype: str, numbers: np.ndarray) -> np.ndarray:
    """The rank of each number among all numbers of f16 or bf16: neighbours differ by one."""
    if dtype == "f16":
        bits = numbers.astype(np.float16).view(np.uint16).astype(np.int64)
    else:
        bits = (numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.int64)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


def added_up(numbers: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
    """@count rows: each is the sum of those of @numbers with its place. Sorted, so that NumPy adds whole runs."""
    sums = np.zeros((count, numbers.shape[1]), numbers.dtype)
    order = np.argsort(places, kind="stable")
    found, first = np.unique(places[order], return_index=True)
    if len(found):
        sums[found] = np.add.reduceat(numbers[order], first, axis=0)
    return sums


# ---- Optimizers ----


def updated(
    spec: embtier.TableSpec, w: np.ndarray, state: np.ndarray, g: np.ndarray, lr: float, step: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows @w after gradients @g, and their state, in the precision of the arguments."""
    if spec.clip_norm:
        norms = np.sqrt(np.sum(np.square(g, dtype=np.float64), axis=1, keepdims=True))
        with np.errstate(divide="ignore"):
            g = g * np.minimum(1, spec.clip_norm / norms).astype(g.dtype)
    if spec.weight_decay and spec.optimizer != "adamw":
        g = g + spec.weight_decay * w
    if spec.optimizer == "sgd":
        return w - lr * g, state
    if spec.optimizer == "adagrad":
        state = state + g * g
        return w - lr * (g / (np.sqrt(state) + spec.eps)), state
    if spec.optimizer == "rowwise_adagrad":
        mean = np.mean(np.square(g, dtype=np.float64), axis=1, keepdims=True)
        state = state + mean.astype(g.dtype)
        return w - lr * (g / (np.sqrt(state) + spec.eps)), state
    if spec.optimizer == "rmsprop":
        state = spec.alpha * state + (1 - spec.alpha) * (g * g)
        return w - lr * (g / (np.sqrt(state) + spec.eps)), state
    if spec.optimizer == "momentum":
        state = spec.momentum * state + g
        return w - lr * state, state
    assert spec.optimizer in ("adam", "adamw", "sparse_adam")
    if spec.optimizer == "adamw":
        w = w * (1 - lr * spec.weight_decay)
    m, v = np.split(state, 2, axis=1)
    m = spec.beta1 * m + (1 - spec.beta1) * g
    v = spec.beta2 * v + (1 - spec.beta2) * (g * g)
    step_size = lr / (1 - spec.beta1**step)
    fix = float(np.sqrt(1 - spec.beta2**step))
    eps = spec.eps / fix if spec.optimizer == "sparse_adam" else spec.eps
    return w - step_size * (m / (np.sqrt(v) / fix + eps)), np.concatenate([m, v], axis=1)


class Reference:
    """All rows of a table with their state, first as they are now, then as pushes must change them."""

    def __init__(self, table: embtier.Table, pool: str, real: type = np.float64) -> None:
        rows, state = table.get_with_state(np.arange(table.rows))
        self.table = table
        self.mode, self.weighted = POOLS[pool]
        self.weights = numbers_of(table, rows).astype(real)
        self.state = state.astype(real)

    def look_up(self, step: Step) -> np.ndarray:
        """Returns the bags, and keeps the values that push() needs."""
        lengths = np.diff(step.offsets)
        self.bag_of = np.repeat(np.arange(len(lengths)), lengths)
        self.scales = step.weights if self.weighted else np.ones(len(step.ids))
        if self.mode == "mean":
            self.scales = self.scales / lengths[self.bag_of]
        rows = self.weights[step.ids]
        shares = np.zeros_like(rows)  # of a bag's gradient, for each id
        if self.mode == "max":
            for first, end in zip(step.offsets, step.offsets[1:]):
                if first < end:
                    winners = first + rows[first:end].argmax(axis=0)
                    shares[winners, np.arange(rows.shape[1])] = 1
        else:
            shares[:] = self.scales[:, None]
        self.shares = shares
        return added_up(rows * shares, self.bag_of, len(lengths))

    def push(self, step: Step, lr: float, number: int) -> None:
        """Applies the gradients; look_up() must come first."""
        touched, which = np.unique(step.ids, return_inverse=True)
        shares = step.gradients[self.bag_of].astype(self.weights.dtype) * self.shares
        gradients = added_up(shares, which, len(touched))
        weights, self.state[touched] = updated(
            self.table.spec, self.weights[touched], self.state[touched], gradients, lr, number
        )
        self.weights[touched] = nearest(self.table.dtype, weights)

    def compare(self, rtol: float = 1e-5, atol: float = 1e-7) -> None:
        rows, state = self.table.get_with_state(np.arange(self.table.rows))
        says = self.table.name
        np.testing.assert_allclose(numbers_of(self.table, rows), self.weights, rtol, atol, err_msg=says)
        np.testing.assert_allclose(state, self.state, rtol, atol, err_msg=f"state of {says}")
