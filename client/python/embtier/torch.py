# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch.nn.EmbeddingBag whose rows live in embtierd.

    users = server.create_table("users", dim=64, init=("normal", 0, 0.1))
    bag = embtier.torch.EmbeddingBag(users, mode="mean", lr=0.1)
    loss(bag(input, offsets)).backward()     # GET in forward; new rows by SGD, through SET, here

A model with several tables uses :class:`EmbeddingBagCollection`, which makes one request per forward
and one per backward for all of them.

How rows are updated
    ``row - lr * gradient``, plain SGD, once for each distinct row. With ``update="backward"`` (the
    default) this is done in each backward pass, so each backward is a step of the tables, and no
    optimizer knows of them. With ``update="step"`` the gradients of any number of backward passes
    add up in the module until :meth:`step` writes the new rows, or :meth:`zero_grad` (the module's
    own: an optimizer does not know it) forgets them: call both where the optimizer's are called, and
    the result is torch.optim.SGD's without momentum, weight decay, or dampening. ``lr`` is an
    attribute: a schedule assigns it.
Several forward passes before a backward pass
    Each has its own rows. An update is always made to the rows as they are then: if this connection
    has written to the table since the forward pass, they are read again first. So no update of this
    process is lost. Updates of other processes to the same rows at the same time can be: one trainer
    per table, until the server runs the optimizer.
The same table in several bags of a collection
    Its distinct rows are fetched once, and updated once, by the sum of the gradients.
Backward twice through one graph (``retain_graph=True``)
    Updates twice, as torch accumulates twice. Gradients of gradients (``create_graph=True`` and
    another backward through this module) raise RuntimeError.
no_grad(), inference_mode(), requires_grad_(False) on the module or its parent
    GET only; nothing is ever written. eval() changes nothing, as in torch.
parameters()
    One of no elements, ``anchor``: it ties the module into the graph, and freezes it with the rest of
    a model. Optimizers may have it; its gradient is None.
state_dict()
    Holds what the tables are, not their rows: these are the server's. load_state_dict() raises
    ValueError unless the module's tables are like those that were saved.
copy.deepcopy(), pickle
    TypeError: two modules would update one table. Make another module of the same tables.
to(device), half(), double()
    Rows are fetched to the processor and moved to the device of the ids; results are float32 for
    tables of every dtype, and rows are rounded to the table's when they are stored.
Ids
    int32 or int64 tensors; a negative one is a ValueError, one past the table's rows IdRangeError.
    Unbounded tables have ids up to 2**64 - 1, which torch has no dtype for (signed ones reach
    2**63 - 1): ``unsigned_ids=True`` takes ids as the bits of unsigned numbers, -1 as 2**64 - 1.

Threads: of the tables' connection, one at a time; backward passes run on the thread that calls them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ._batch import Batch
from ._ids import as_ids
from ._server import Table
from ._types import POOL_NUMBERS

Input = torch.Tensor | tuple[torch.Tensor | None, ...]

MODES = tuple(POOL_NUMBERS)
UPDATES = ("backward", "step")


def rows(batch: Batch, part: int) -> torch.Tensor:
    """The rows, without state, of @part as a tensor [count, dim] of the table's dtype, bfloat16 too, in the shared
    arena: no copy, and good as long as the NumPy view is."""
    if batch.table(part).dtype == "bf16":
        return torch.from_numpy(batch.rows(part).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(batch.rows(part))


@dataclass
class Bag:
    """How one feature pools rows of a table; the fields are torch.nn.EmbeddingBag's."""

    table: Table
    mode: str = "mean"
    include_last_offset: bool = False
    padding_idx: int | None = None
    unsigned_ids: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.padding_idx is None:
            return
        limit = self.table.rows
        if limit is not None and not -limit <= self.padding_idx < limit:
            raise ValueError(f"padding_idx {self.padding_idx} is not within the {limit} rows")
        if self.padding_idx < 0 and not self.unsigned_ids:
            if limit is None:
                raise ValueError("padding_idx of an unbounded table cannot count from the end")
            self.padding_idx += limit


@dataclass
class _Fetched:
    """Distinct rows of a table as a forward pass got them."""

    table: Table
    ids: np.ndarray  # uint64 [rows], distinct
    rows: torch.Tensor  # float32 [rows, dim]
    writes: int  # table.writes when they were read


@dataclass
class _Gradient:
    fetched: _Fetched
    gradient: torch.Tensor  # float32 [rows, dim]


class _Fetch(torch.autograd.Function):
    """Rows go out of it in forward, one tensor per table; their gradients come back in backward, all
    tables at once. @anchor is what makes autograd call backward."""

    @staticmethod
    def forward(ctx: Any, rows: _TableRows, ids: list[np.ndarray], anchor: torch.Tensor) -> Any:
        ctx.table_rows = rows
        ctx.fetched = rows.fetch(ids)
        # Where there is no row, a row of zeros: torch pools from at least one.
        zero = [torch.zeros(1, table.dim) for table in rows.tables]
        return tuple(torch.cat([f.rows, z]) for f, z in zip(ctx.fetched, zero))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        pairs = zip(ctx.fetched, gradients)
        ctx.table_rows.add([_Gradient(f, g[:-1]) for f, g in pairs if g is not None and len(f.ids)])
        return None, None, None


class _TableRows:
    """Reads rows of some tables of one connection, gathers their gradients, and writes new rows."""

    def __init__(self, tables: Sequence[Table], lr: float, update: str) -> None:
        if update not in UPDATES:
            raise ValueError(f"update must be one of {', '.join(UPDATES)}, not {update!r}")
        if len({id(table._connection) for table in tables}) > 1:
            raise ValueError("the tables of a collection belong to one connection")
        self.tables = list({table.name: table for table in tables}.values())
        self.server = self.tables[0].server
        self.lr = lr
        self.update = update
        self.pending: dict[str, list[_Gradient]] = {}

    def fetch(self, ids: Sequence[np.ndarray]) -> list[_Fetched]:
        """One GET for the distinct @ids of each table."""
        return _get(self.server, list(zip(self.tables, ids)))

    def add(self, gradients: list[_Gradient]) -> None:
        for one in gradients:
            self.pending.setdefault(one.fetched.table.name, []).append(one)
        if self.update == "backward":
            self.step()

    def step(self) -> None:
        """One SET for all tables, after one GET for those whose rows may have changed. What was
        pending is gone, also if this fails."""
        pending, self.pending = list(self.pending.values()), {}
        if not pending:
            return
        totals = [_total(gradients) for gradients in pending]
        stale = [i for i, one in enumerate(totals) if one.fetched.writes != one.fetched.table.writes]
        again = _get(self.server, [(totals[i].fetched.table, totals[i].fetched.ids) for i in stale])
        for i, fetched in zip(stale, again):
            totals[i].fetched = fetched
        with self.server.batch([(t.fetched.table, len(t.fetched.ids)) for t in totals]) as batch:
            for i, one in enumerate(totals):
                batch.ids(i)[:] = one.fetched.ids
                new = torch.add(one.fetched.rows, one.gradient, alpha=-self.lr)
                rows(batch, i).copy_(new)
            batch.set()


def _get(server: Any, parts: list[tuple[Table, np.ndarray]]) -> list[_Fetched]:
    """One GET for all parts that have ids, if any has."""
    fetched = [_Fetched(table, ids, torch.zeros(0, table.dim), table.writes) for table, ids in parts]
    wanted = [one for one in fetched if len(one.ids)]
    if wanted:
        with server.batch([(one.table, len(one.ids)) for one in wanted]) as batch:
            for i, one in enumerate(wanted):
                batch.ids(i)[:] = one.ids
            batch.get()
            for i, one in enumerate(wanted):
                one.rows = rows(batch, i).to(torch.float32, copy=True)
    return fetched


def _total(gradients: list[_Gradient]) -> _Gradient:
    """Adds up gradients of one table, in the order they came. Rows of several forward passes are of
    several times: they are marked as to be read again."""
    if len(gradients) == 1:
        return gradients[0]
    table = gradients[0].fetched.table
    ids, places = np.unique(np.concatenate([one.fetched.ids for one in gradients]), return_inverse=True)
    total = torch.zeros(len(ids), table.dim)
    total.index_add_(0, torch.from_numpy(places), torch.cat([one.gradient for one in gradients]))
    return _Gradient(_Fetched(table, ids, torch.empty(0), writes=-1), total)


def _distinct(bags: Sequence[Bag], inputs: Sequence[torch.Tensor]) -> tuple[np.ndarray, list[torch.Tensor]]:
    """The distinct ids of all @inputs, uint64 and, as torch orders them, ascending; and each input
    with its ids replaced by their places among these. Padding gets the place behind the last, where
    there is a row of zeros."""
    flat = [_signed_ids(bag, ids) for bag, ids in zip(bags, inputs)]
    kept = [ids if bag.padding_idx is None else ids[ids != bag.padding_idx] for bag, ids in zip(bags, flat)]
    distinct, places = torch.unique(torch.cat(kept), return_inverse=True)
    remapped = []
    for bag, ids, part, shape in zip(bags, flat, places.split([len(k) for k in kept]), inputs):
        if len(part) != len(ids):
            padded = torch.full_like(ids, len(distinct))
            padded[ids != bag.padding_idx] = part
            part = padded
        remapped.append(part.view(shape.shape))
    return distinct.numpy().view(np.uint64), remapped


def _signed_ids(bag: Bag, ids: torch.Tensor) -> torch.Tensor:
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"row ids must be int32 or int64, not {ids.dtype}")
    flat = ids.detach().reshape(-1).to("cpu", torch.int64)
    if not bag.unsigned_ids:
        as_ids(flat)
    return flat


class EmbeddingBagCollection(torch.nn.Module):
    """Many embedding bags, one request for all.

    @bags: by the name of the feature: a :class:`Bag`, or a Table for one with the defaults. All
    tables belong to one connection; a table may be in several bags.
    @lr: learning rate; @update: "backward" or "step", see the module's text.
    """

    def __init__(
        self, bags: Mapping[str, Bag | Table], *, lr: float = 0.01, update: str = "backward"
    ) -> None:
        super().__init__()
        if not bags:
            raise ValueError("a collection needs a bag")
        self.bags = {k: bag if isinstance(bag, Bag) else Bag(bag) for k, bag in bags.items()}
        self._rows = _TableRows([bag.table for bag in self.bags.values()], lr, update)
        self.anchor = torch.nn.Parameter(torch.empty(0))

    def forward(self, inputs: Mapping[str, Input]) -> dict[str, torch.Tensor]:
        """Pools. @inputs: for any of the features, ids, or (ids, offsets), or (ids, offsets,
        per_sample_weights), as torch.nn.EmbeddingBag takes them: ids [bags, length] with no offsets
        (or None), or [total] with offsets [bags] ([bags + 1] if include_last_offset). Returns
        float32 [bags, dim] for each. One GET of the distinct rows."""
        unknown = inputs.keys() - self.bags.keys()
        if unknown:
            raise KeyError(f"no such feature: {', '.join(sorted(unknown))}")
        arguments = {k: _arguments(one) for k, one in inputs.items()}
        places: dict[str, torch.Tensor] = {}
        ids = [self._distinct_of(table, arguments, places) for table in self._rows.tables]
        fetched = _Fetch.apply(self._rows, ids, self.anchor.cpu())
        weights = {table.name: w for table, w in zip(self._rows.tables, fetched)}
        return {
            k: _pool(self.bags[k], weights[self.bags[k].table.name], places[k], *one)
            for k, one in arguments.items()
        }

    def _distinct_of(
        self, table: Table, arguments: Mapping[str, tuple], places: dict[str, torch.Tensor]
    ) -> np.ndarray:
        features = [k for k in arguments if self.bags[k].table.name == table.name]
        if not features:
            return np.empty(0, np.uint64)
        bags = [self.bags[k] for k in features]
        ids, remapped = _distinct(bags, [arguments[k][0] for k in features])
        places.update(zip(features, remapped))
        return ids

    @property
    def lr(self) -> float:
        """Learning rate; may be assigned at any time."""
        return self._rows.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._rows.lr = lr

    def step(self) -> None:
        """Writes new rows for the gradients gathered with ``update="step"``: one SET for all tables.
        Does nothing if there are none. If it fails, the gradients are forgotten."""
        self._rows.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients gathered with ``update="step"``."""
        self._rows.pending.clear()

    def get_extra_state(self) -> dict[str, dict[str, Any]]:
        return {
            k: {
                "table": bag.table.name,
                "rows": bag.table.rows,
                "dim": bag.table.dim,
                "dtype": bag.table.dtype,
                "mode": bag.mode,
                "padding_idx": bag.padding_idx,
                "note": "the rows are in embtierd, not here",
            }
            for k, bag in self.bags.items()
        }

    def set_extra_state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        ours = self.get_extra_state()
        if state.keys() != ours.keys():
            raise ValueError(f"saved with features {sorted(state)}, here are {sorted(ours)}")
        for feature, saved in state.items():
            for key, value in saved.items():
                if key != "note" and value != ours[feature].get(key):
                    raise ValueError(
                        f"{feature!r} was saved with {key} {value!r}, here it is {ours[feature].get(key)!r}"
                    )

    def extra_repr(self) -> str:
        lines = [f"{k}: {bag.table!r}, {bag.mode}" for k, bag in self.bags.items()]
        return "\n".join([*lines, f"lr={self.lr}, update={self._rows.update}"])

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "rows are in embtierd: a copy would update the same tables. Make another module of them, "
            "and use state_dict() for what is around it"
        )


class EmbeddingBag(EmbeddingBagCollection):
    """torch.nn.EmbeddingBag with its rows in @table: a collection of one.

    @mode, @include_last_offset, @padding_idx: as in torch. max_norm, norm_type, scale_grad_by_freq
    and sparse are not offered.
    """

    def __init__(
        self,
        table: Table,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        unsigned_ids: bool = False,
        lr: float = 0.01,
        update: str = "backward",
    ) -> None:
        bag = Bag(table, mode, include_last_offset, padding_idx, unsigned_ids)
        super().__init__({"bag": bag}, lr=lr, update=update)

    def forward(  # type: ignore[override]
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As torch.nn.EmbeddingBag.forward: float32 [bags, dim]."""
        return super().forward({"bag": (input, offsets, per_sample_weights)})["bag"]


def _arguments(one: Input) -> tuple:
    """(ids, offsets, per_sample_weights), the last two perhaps None."""
    arguments = (one,) if isinstance(one, torch.Tensor) else one
    if not 1 <= len(arguments) <= 3:
        raise ValueError(f"ids, offsets and per_sample_weights are 1 to 3 tensors, not {len(arguments)}")
    return (*arguments, None, None)[:3]


def _pool(
    bag: Bag,
    weight: torch.Tensor,
    places: torch.Tensor,
    ids: torch.Tensor,
    offsets: torch.Tensor | None,
    per_sample_weights: torch.Tensor | None,
) -> torch.Tensor:
    """Pools @weight, the distinct rows and one of zeros, by torch's own function: the same bits."""
    return functional.embedding_bag(
        places.to(ids.device),
        weight.to(ids.device),
        None if offsets is None else offsets.to(torch.int64),
        mode=bag.mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=bag.include_last_offset,
        padding_idx=None if bag.padding_idx is None else len(weight) - 1,
    )
