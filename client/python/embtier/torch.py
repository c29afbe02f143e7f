# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for torch.nn.EmbeddingBag whose rows live in embtierd, which pools and trains them.

    users = server.create_table("users", dim=64, optimizer="adagrad", init=("normal", 0, 0.1))
    bag = embtier.torch.EmbeddingBag(users, mode="mean", lr=0.1)
    loss(bag(input, offsets)).backward()     # a pooled lookup in forward, a push of gradients in backward

A model with several tables uses :class:`EmbeddingBagCollection`, which makes one request per forward
and one per backward for all of them.

How rows are updated
    By the table's optimizer, in the server, once for each distinct row; what is chosen here is ``lr``
    and when:

    ``update="backward"`` (the default)
        Each backward pass is a step: one push of the gradients of the bags, by the ticket of the
        forward pass. Features whose output got no gradient stay as they are.
    ``update="step"``
        Gradients of any number of backward passes add up in the module until :meth:`step` applies
        them, once, or :meth:`zero_grad` (the module's own: an optimizer does not know it) forgets
        them. step() uses them up. They are gradients of rows, added up here: more work, and no mode
        "max" (ValueError).

    A table with optimizer "none" is a ValueError, unless the module is made with ``frozen=True``; so is
    one with mode "max" in one bag and another mode in another.
Learning rates, schedulers, steps
    ``lr`` is an attribute. ``optimizer`` is what torch.optim.lr_scheduler takes: a torch.optim.Optimizer
    whose learning rate is ``lr`` and whose step() and zero_grad() are the module's. With
    ``update="backward"`` there is nothing left for step() to do, but schedulers want to see it called.
    ``steps`` counts the steps made, as Adam must know; state_dict() has it.
GradScaler
    ``update="step"``: use ``optimizer`` as any other: scaler.unscale_(module.optimizer),
    scaler.step(module.optimizer); torch.nn.utils.clip_grad_norm_ too takes the parameters of its
    groups after a backward pass, whose gradients are those of the distinct rows of each table. They are
    where the outputs are: torch before 2.3 unscales nothing in the memory of the processor.
    ``update="backward"``: gradients are applied before a scaler could see them, so that scaler.step()
    and unscale_() are not for it. Assign ``module.grad_scale = scaler.get_scale``: a number, or a
    function that returns one, by which gradients are divided as they arrive.
Gradients with NaN or infinity
    A push that the server refuses for them, or since it would make a finite row NaN or infinite
    (NonfiniteError), changes no row and is no step: it is
    counted in ``skipped_pushes``, with a warning the first time. Gradients of weights of samples that
    were to come with it are NaN. Tables made with ``allow_nonfinite`` take such gradients.
Several forward passes before a backward pass
    Each has its ticket, and each push is made to the rows as they are then. Rows are not copied here,
    so nobody's updates are lost.
The same table in several bags of a collection
    Its rows are updated once, by the sum of the gradients.
Backward twice through one graph (``retain_graph=True``)
    With ``update="step"`` adds up twice, as in torch. With ``update="backward"`` RuntimeError: the
    ticket is used up by the first. Gradients of gradients raise RuntimeError.
Graphs that no backward pass goes through
    Their tickets are given back with the next request, once the graph is gone. The server keeps
    tickets for a limited time: a backward pass that comes later raises TicketExpiredError.
no_grad(), inference_mode(), requires_grad_(False) on the module or its parent
    Lookups without a ticket; nothing is ever written. eval() changes nothing, as in torch.
Weights of samples (per_sample_weights)
    With "sum" as in torch, and with "mean": the weighted sum divided by the number of ids. Their
    gradients come with the push. Where there is none (the module is frozen, ``update="step"``,
    torch.autograd.grad() for the weights alone) one GET brings the rows, as they are at the time.
Rows that are read ahead
    :class:`Prefetcher` goes over a data loader and has the server bring the rows of its next batches into
    DRAM.
Groups of trainers
    Processes that each train a copy of the model with a part of every batch, data parallel, give each of
    its modules a group: ``group=server.join("model.items", size=world, member=rank)``. A push is then the
    member's part of a step: it returns when those of all have come, gradients are averaged over all, in the
    order of the members, and each row is changed once. torch.nn.parallel.DistributedDataParallel averages the
    gradients of the rest of the model in the same way, so the loss stays the mean over the member's part
    of the batch. ``reduce="sum"`` adds gradients up instead.

    * ``steps`` is the group's. A training that goes on joins with ``step=`` what was saved; load_state_dict()
      raises ValueError if the group is at another step.
    * Every member pushes every step: each backward pass through the module with ``update="backward"``, each
      step() with ``update="step"``. A member without ids, or without gradients, takes part with a push
      of nothing, but a backward pass that does not come to the module at all pushes nothing, and
      the others wait for it (``lanes.group_seconds`` of the server's configuration), as they do for one that
      has more batches than they have. To add up the gradients of several backward passes in one step,
      or of several forward passes, use ``update="step"``; with ``update="backward"`` each pass is a step,
      which is fine only if all members make the same number of them.
    * Each module has a group of its own (ValueError), with the same settings and learning rates on all
      members (MismatchError). Several on one connection push in the order of the backward pass, which is the
      same for the same model; if control flow depends on the data it may differ, and then members wait for
      each other until the time is over.
    * NaN or infinity in one member's gradients keep the step from all: all skip it, count it in
      ``skipped_pushes`` and go on with their next batches. A GradScaler's step(module.optimizer) with
      ``update="step"`` calls step() then too, to let the others know; the members' scales may
      differ after it, which does no harm. Tables made with ``allow_nonfinite`` take such gradients, with
      a scaler too. Other refusals raise GroupRefusedError on the others.
    * GroupBrokenError, TimeoutError: a member has gone, nothing was applied. All join anew, with
      ``step=module.steps``, and assign ``module.group``.
    * Prefetches are released after the push, by a request of their own.
parameters()
    One of no elements, ``anchor``: it ties the module into the graph, and freezes it with the rest of
    a model. Optimizers may have it; its gradient is None.
state_dict()
    Holds what the tables are and the number of steps, not the rows: these are the server's.
    load_state_dict() raises ValueError unless the module's tables are like those that were saved.
copy.deepcopy(), pickle
    TypeError: two modules would update one table. Make another module of the same tables.
to(device), half(), double()
    Bags are fetched to the processor and moved to the device of the ids; results are float32 for
    tables of every dtype.
Ids
    int32 or int64 tensors; a negative one is a ValueError, one past the table's rows IdRangeError.
    Unbounded tables have ids up to 2**64 - 1, which torch has no dtype for (signed ones reach
    2**63 - 1): ``unsigned_ids=True`` takes ids as the bits of unsigned numbers, -1 as 2**64 - 1.

Threads: of the tables' connection, one at a time; a backward pass may run on a thread of torch's while
its caller waits. Graphs may be freed on any thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from . import errors
from ._arguments import flag, integer, kind_of, learning_rate, number, seconds, short, shown
from ._batch import BagBatch, Bags, Batch
from ._connection import table_of
from ._group import STEP_MAX, Group
from ._ids import as_dtype, as_ids
from ._optimizer import Optimizer
from ._prefetcher import Ahead, IdRoom, Prefetcher
from ._server import Server, Table
from ._types import POOL_NUMBERS, one_of

Input = torch.Tensor | tuple[torch.Tensor | None, ...]

MODES = tuple(POOL_NUMBERS)
UPDATES = ("backward", "step")
REDUCTIONS = ("mean", "sum")
TIMEOUT_S = 120.0

__all__ = ["Bag", "EmbeddingBag", "EmbeddingBagCollection", "Input", "Optimizer", "Prefetcher", "rows"]


def rows(batch: Batch, part: int) -> torch.Tensor:
    """The rows, without state, of @part as a tensor [count, dim] of the table's dtype, bfloat16 too, in the shared
    arena: no copy, and good as long as the NumPy view is."""
    if not isinstance(batch, Batch):
        raise TypeError(f"batch must be an embtier.Batch, not {kind_of(batch)} {shown(batch)}")
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
        table_of("table", self.table)
        one_of("mode", MODES, self.mode)
        for field in ("include_last_offset", "unsigned_ids"):
            setattr(self, field, flag(field, getattr(self, field)))
        if self.padding_idx is None:
            return
        least = -(2**63) if self.unsigned_ids else -(2**64)
        self.padding_idx = integer("padding_idx", self.padding_idx, least, 2**64 - 1)
        limit = self.table.rows
        if limit is not None and not -limit <= self.padding_idx < limit:
            raise ValueError(f"padding_idx {self.padding_idx} is not within the {limit} rows")
        if self.padding_idx < 0 and not self.unsigned_ids:
            if limit is None:
                raise ValueError("padding_idx of an unbounded table cannot count from the end")
            self.padding_idx += limit


# ---- What a forward pass is given ----


@dataclass
class _Given:
    """Ids of one feature in bags, as the server takes them: without padding, in the memory of the processor."""

    feature: str
    bag: Bag
    ids: torch.Tensor  # int64 [count], the bits of uint64
    offsets: torch.Tensor  # int64 [bags + 1]
    weights: torch.Tensor | None  # float32 [count]
    kept: torch.Tensor | None  # bool: which of the caller's ids these are; None: all
    device: torch.device  # of the caller's ids
    caller_weights: torch.Tensor | None  # as they came

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.ids), len(self.offsets) - 1

    def of_ids(self, gradient: torch.Tensor) -> torch.Tensor:
        """@gradient [bags, dim] laid out by id, [count, dim], before weights."""
        counts = self.offsets.diff().to(gradient.device)
        if self.bag.mode == "mean":
            gradient = gradient / counts.clamp(min=1).unsqueeze(1)
        return gradient.repeat_interleave(counts, dim=0)

    def weight_gradient(self, values: torch.Tensor) -> torch.Tensor:
        """@values, one for each of the ids, in the shape of the caller's weights; padding has 0."""
        assert self.caller_weights is not None
        if self.kept is None:
            return values.view(self.caller_weights.shape).to(self.caller_weights)
        gradient = torch.zeros(len(self.kept))
        gradient[self.kept] = values
        return gradient.view(self.caller_weights.shape).to(self.caller_weights)


def _given(feature: str, bag: Bag, one: Input) -> _Given:
    arguments = one if isinstance(one, (tuple, list)) else (one,)
    if not 1 <= len(arguments) <= 3:
        raise ValueError(f"ids, offsets and per_sample_weights are 1 to 3 tensors, not {len(arguments)}")
    caller_ids, caller_offsets, caller_weights = (*arguments, None, None)[:3]
    _check_tensor(f"the ids of {shown(feature)}", caller_ids)
    assert caller_ids is not None
    ids = _signed_ids(bag, caller_ids)
    offsets = _offsets(bag, caller_ids, caller_offsets)
    weights = None
    if caller_weights is not None:
        _check_tensor(f"the per_sample_weights of {shown(feature)}", caller_weights)
        if bag.mode == "max":
            raise NotImplementedError("per_sample_weights are for the modes sum and mean, not for max")
        if caller_weights.shape != caller_ids.shape or not caller_weights.is_floating_point():
            raise ValueError(
                "per_sample_weights must be floating-point numbers of the ids' shape "
                f"{tuple(caller_ids.shape)}, not {caller_weights.dtype} {shown(tuple(caller_weights.shape))}"
            )
        caller_weights = caller_weights.detach()
        weights = _f32_weights(caller_weights.reshape(-1))
    kept = None
    if bag.padding_idx is not None:
        kept = ids != (bag.padding_idx + 2**63) % 2**64 - 2**63
    if offsets[-1] < len(ids):  # as in torch, which does not look at what is behind the last bag
        kept = torch.ones(len(ids), dtype=torch.bool) if kept is None else kept
        kept[offsets[-1] :] = False
    if kept is not None:
        ids = ids[kept]
        weights = None if weights is None else weights[kept]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), kept.cumsum(0)])[offsets]
    return _Given(feature, bag, ids, offsets, weights, kept, caller_ids.device, caller_weights)


def _check_tensor(what: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {kind_of(tensor)} {shown(tensor)}")
    if tensor.layout != torch.strided or tensor.is_meta:
        raise TypeError(f"{what} must be a dense tensor with numbers, not one of {tensor.layout} on {tensor.device}")


def _f32_weights(weights: torch.Tensor) -> torch.Tensor:
    """A copy: the caller may write over his before the backward pass."""
    if weights.dtype == torch.float64:
        return torch.from_numpy(as_dtype("per_sample_weights", weights, np.dtype("<f4")))
    return weights.to("cpu", torch.float32, copy=True)


def _signed_ids(bag: Bag, ids: torch.Tensor) -> torch.Tensor:
    """A copy: the caller may write over his before the backward pass."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"row ids must be int32 or int64, not {ids.dtype}")
    flat = ids.detach().reshape(-1).to("cpu", torch.int64, copy=True)
    if not bag.unsigned_ids:
        as_ids(flat)
    return flat


def _offsets(bag: Bag, ids: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    """With the last one."""
    if ids.dim() == 2:
        if offsets is not None:
            raise ValueError("ids of two dimensions are bags of one length: they take no offsets")
        return torch.arange(ids.shape[0] + 1) * ids.shape[1]
    if ids.dim() != 1:
        raise ValueError(f"ids have 1 or 2 dimensions, not {ids.dim()}")
    if offsets is not None:
        _check_tensor("offsets", offsets)
    if offsets is None or offsets.dim() != 1:
        raise ValueError("ids of one dimension need offsets of one dimension")
    if offsets.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"offsets must be int32 or int64, not {offsets.dtype}")
    if bag.include_last_offset and len(offsets) == 0:
        raise ValueError("include_last_offset: there is at least one offset, the last")
    offsets = offsets.detach().to("cpu", torch.int64, copy=True)
    if bag.include_last_offset and 0 <= offsets[-1] < len(ids):
        raise ValueError(
            f"include_last_offset: the last offset is the number of ids, {len(ids)}, not {offsets[-1]}; versions of "
            "torch differ in what they make of the ids behind it"
        )
    if not bag.include_last_offset:
        offsets = torch.cat([offsets, torch.tensor([len(ids) if len(offsets) else 0])])
    if offsets[0] != 0:
        raise RuntimeError(f"offsets[0] has to be 0, not {offsets[0]}")
    if not 0 <= offsets[-1] <= len(ids) or (offsets.diff() < 0).any():
        raise RuntimeError(f"offsets must not decrease, nor be more than the {len(ids)} ids")
    return offsets


# ---- Batches ----


class _Room:
    """A BagBatch, and tensors of all of its memory: it serves one forward pass after the other."""

    def __init__(self, server: Server, key: tuple, parts: list[Bags]) -> None:
        self.key = key
        self.most = [(part.count, part.bag_count) for part in parts]
        self.sizes: list[tuple[int, int]] | None = self.most
        self.batch: BagBatch = server.bag_batch(parts)
        batch = self.batch
        places = range(len(parts))
        self.ids = [torch.from_numpy(batch.ids(i).view(np.ndarray).view(np.int64)) for i in places]
        self.offsets = [torch.from_numpy(batch.offsets(i).view(np.int32)) for i in places]
        self.bags = [torch.from_numpy(batch.bags(i)) for i in places]
        self.weights = [
            torch.from_numpy(batch.weights(i)) if part.weighted else None for i, part in enumerate(parts)
        ]

    def fill(self, given: Sequence[_Given]) -> None:
        sizes, self.sizes = self.sizes, None  # not known before the end, should this be interrupted
        for i, one in enumerate(given):
            if sizes is None or sizes[i] != one.sizes:
                self.batch.set_bags(i, *one.sizes)
            count, bag_count = one.sizes
            self.ids[i][:count] = one.ids
            self.offsets[i][: bag_count + 1] = one.offsets
            if one.weights is not None:
                self.weights[i][:count] = one.weights  # type: ignore[index]
        self.sizes = [one.sizes for one in given]


class _Rooms:
    """The batches of one module. One that has a ticket is with its graph, and comes back after its
    push, or is abandoned."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._free: dict[tuple, list[Any]] = {}  # of _Room, and of IdRoom
        self._abandoned: deque[_Room | IdRoom] = deque()

    def take(self, given: Sequence[_Given]) -> _Room:
        """One with room for @given. First gives the tickets of abandoned ones back."""
        self._release_abandoned()
        key = tuple((one.feature, one.weights is not None) for one in given)
        sizes = [one.sizes for one in given]
        most = sizes
        free = self._free.get(key)
        if free:
            room = free.pop()
            if all(a <= c and b <= d for (a, b), (c, d) in zip(sizes, room.most)):
                return room
            most = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(sizes, room.most)]
            del room
        roomy = [(_rounded(count), bag_count) for count, bag_count in most]
        try:
            return _Room(self.server, key, _parts(given, roomy))
        except (errors.ArenaFullError, errors.TooLargeError):  # type: ignore[attr-defined]
            self._free.clear()
        return _Room(self.server, key, _parts(given, sizes))

    def take_ids(self, features: list[str], tables: list[Table], ids: list[torch.Tensor]) -> IdRoom:
        """One with room for @ids of each of the @features."""
        key = ("ahead", *features)
        free = self._free.get(key)
        if free:
            room = free.pop()
            if all(len(one) <= most for one, most in zip(ids, room.most)):
                return room
        parts = [(table, _rounded(len(one))) for table, one in zip(tables, ids)]
        return self.made(lambda: IdRoom(self.server, key, parts))

    def give(self, room: _Room | IdRoom) -> None:
        """Takes back one without a ticket and not in flight."""
        self._free.setdefault(room.key, []).append(room)

    def abandon(self, room: _Room | IdRoom) -> None:
        """Takes back one that may have a ticket or be in flight. Any thread, at any time."""
        self._abandoned.append(room)

    def _release_abandoned(self) -> None:
        for _ in range(len(self._abandoned)):
            try:
                room = self._abandoned.popleft()
            except IndexError:  # another thread is here, too
                return
            try:
                room.batch.release()
            except errors.BusyError:  # type: ignore[attr-defined]
                self._abandoned.append(room)  # in flight: the next time
            except errors.Error:
                pass  # disconnected: it is freed, and its ticket expires
            else:
                self.give(room)

    def made(self, make: Callable[[], Any]) -> Any:
        """The batch that @make makes, in the room of free ones if it must be."""
        self._release_abandoned()
        try:
            return make()
        except errors.ArenaFullError:  # type: ignore[attr-defined]
            self._free.clear()
        return make()


def _parts(given: Sequence[_Given], sizes: Sequence[tuple[int, int]]) -> list[Bags]:
    return [
        Bags(one.bag.table, *size, one.bag.mode, one.weights is not None) for one, size in zip(given, sizes)
    ]


def _rounded(count: int) -> int:
    """Up, by at most a quarter: the next batch is seldom of the same size."""
    step = 1 << max(0, count.bit_length() - 3)
    return -(-count // step) * step


class _Ticket:
    """A batch with a ticket, as the graph of a forward pass holds it; and the prefetch of its rows."""

    was_pushed = False

    def __init__(self, rooms: _Rooms, room: _Room, ahead: Ahead | None) -> None:
        self.ahead = ahead
        self._rooms = rooms
        self._room: _Room | None = room

    def take(self) -> _Room:
        room, self._room = self._room, None
        if room is None and not self.was_pushed:
            raise RuntimeError(
                "an earlier backward pass through this graph has failed, and its ticket is gone: make the "
                "forward pass again"
            )
        if room is None:
            raise RuntimeError(
                "the rows of this graph have been updated, and its ticket is used up: backward goes through "
                'it once, unless the module is made with update="step"'
            )
        return room

    def __del__(self) -> None:
        if self._room is not None:
            self._rooms.abandon(self._room)


# ---- Modules ----


class _PooledLookup(torch.autograd.Function):
    """Pooled bags go out of it in forward, one tensor per feature; their gradients come back in
    backward, all at once. @anchor is what makes autograd call backward."""

    @staticmethod
    def forward(
        ctx: Any, module: EmbeddingBagCollection, given: list[_Given], trains: bool, anchor: Any, *weights: Any
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.module, ctx.given = module, given
        outputs, ctx.ticket = module._lookup(given, trains and module.update == "backward")
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        wanted = [needed and g is not None for needed, g in zip(ctx.needs_input_grad[4:], gradients)]
        is_frozen = not ctx.module.anchor.requires_grad  # since the forward pass; torch's rows get no gradient then
        trains = ctx.needs_input_grad[3] and not is_frozen and _is_wanted(ctx.next_functions[0][0])
        return None, None, None, None, *ctx.module._backward(ctx.given, ctx.ticket, gradients, wanted, trains)


def _is_wanted(anchor: Any) -> bool:
    """Does this backward pass go on to the @anchor? Not if it is torch.autograd.grad() for weights."""
    try:
        return torch._C._will_engine_execute_node(anchor)
    except (AttributeError, RuntimeError):  # not in this torch; or what is asked for is the anchor
        return True


def _bags_of(bags: Any) -> dict[str, Bag]:
    if not isinstance(bags, Mapping):
        raise TypeError(f"bags must be a dict of bags by feature, not {kind_of(bags)} {shown(bags)}")
    if not bags:
        raise ValueError("bags is empty: a collection needs a bag")
    for feature, bag in bags.items():
        if not isinstance(bag, (Bag, Table)):
            raise TypeError(
                f"one of the bags, {shown(feature)}, must be a Bag or a Table, not {kind_of(bag)} {shown(bag)}"
            )
    return {feature: bag if isinstance(bag, Bag) else Bag(bag) for feature, bag in bags.items()}


_NO_WEIGHT = (
    "the rows are in the server, and no weight is here: table.get(ids) and table.set(ids, rows) read and write them, "
    "Server.import_table() takes a file"
)


class EmbeddingBagCollection(torch.nn.Module):
    """Many embedding bags, one request for all.

    @bags: by the name of the feature: a :class:`Bag`, or a Table for one with the defaults. All
    tables belong to one connection; a table may be in several bags.
    @lr: learning rate; @update: "backward" or "step", see the module's text.
    @frozen: made with requires_grad_(False); tables need no optimizer.
    @group: of trainers, this module's own: see "Groups of trainers" in the module's text. @reduce: "mean"
    averages the gradients of the group's members, "sum" adds them up; without a group it changes nothing.
    @timeout: seconds that a pass waits for the server, then TimeoutError; None: for ever. A push of a group waits
    for the other members as long as the server does.
    """

    def __init__(
        self,
        bags: Mapping[str, Bag | Table],
        *,
        lr: float = 0.01,
        update: str = "backward",
        frozen: bool = False,
        group: Group | None = None,
        reduce: str = "mean",
        timeout: float | None = TIMEOUT_S,
    ) -> None:
        super().__init__()
        self.bags = _bags_of(bags)
        one_of("update", UPDATES, update)
        one_of("reduce", REDUCTIONS, reduce)
        frozen = flag("frozen", frozen)
        tables = [bag.table for bag in self.bags.values()]
        if len({id(table._connection) for table in tables}) > 1:
            raise ValueError("the tables of a collection belong to one connection")
        self.update = update
        self._trainable = False
        if not frozen:
            self._check_trainable()
        self._rooms = _Rooms(tables[0].server)
        self.optimizer = Optimizer(tables, self._rooms, lr, gathers=update == "step", averages=reduce == "mean")
        self.group = group
        self.timeout = timeout
        self.grad_scale: float | Callable[[], float] = 1.0
        self._ahead: Ahead | None = None  # for the next forward pass that takes a ticket
        self.anchor = torch.nn.Parameter(torch.empty(0), requires_grad=not frozen)

    def _check_trainable(self) -> None:
        for feature, bag in self.bags.items():
            table = bag.table
            if table.spec.optimizer == "none":
                raise ValueError(
                    f"table {table.name!r} of {shown(feature)} has no optimizer: create it with one "
                    '(optimizer="sgd", ...), or make the module with frozen=True'
                )
            if bag.mode == "max" and self.update == "step":
                raise ValueError(f'{shown(feature)}: mode "max" is trained with update="backward" only')
            others = {b.mode for b in self.bags.values() if b.table.name == table.name}
            if bag.mode == "max" and len(others) > 1:
                raise ValueError(
                    f'table {table.name!r} has bags with mode "max" and others: these are not trained together'
                )
        self._trainable = True

    def forward(self, inputs: Mapping[str, Input]) -> dict[str, torch.Tensor]:
        """Pools. @inputs: for any of the features, ids, or (ids, offsets), or (ids, offsets,
        per_sample_weights), as torch.nn.EmbeddingBag takes them: ids [bags, length] with no offsets
        (or None), or [total] with offsets [bags] ([bags + 1] if include_last_offset). Returns
        float32 [bags, dim] for each, on the device of its ids. One pooled lookup; none if there are no
        ids at all. TicketsFullError if the server has no memory for one more ticket."""
        given = self._given(inputs)
        weights = [None if isinstance(one, torch.Tensor) else (*one, None, None)[2] for one in inputs.values()]
        with_gradients = torch.is_grad_enabled()
        trains = with_gradients and self.anchor.requires_grad
        if trains and not self._trainable:
            self._check_trainable()
        if trains or (with_gradients and any(w is not None and w.requires_grad for w in weights)):
            outputs = _PooledLookup.apply(self, given, trains, self.anchor, *weights)
        else:
            outputs, _ = self._lookup(given, False)
        return dict(zip(inputs, outputs))

    def _lookup(self, given: list[_Given], wants_ticket: bool) -> tuple[list[torch.Tensor], _Ticket | None]:
        """Copies of the bags; and the ticket, if it is wanted and there was an id."""
        if not any(len(one.ids) for one in given):
            empty = [torch.zeros(one.sizes[1], one.bag.table.dim, device=one.device) for one in given]
            return empty, None
        self.optimizer.wait_for_push()
        room = self._rooms.take(given)
        try:
            room.fill(given)
            with errors.hint("TICKETS_FULL", "passes without a backward pass go under torch.no_grad()"):
                room.batch.lookup(self.timeout, ticket=wants_ticket)
        except BaseException:
            self._rooms.abandon(room)
            raise
        ticket = None
        if wants_ticket:
            ahead, self._ahead = self._ahead, None
            ticket = _Ticket(self._rooms, room, ahead)
        outputs = [room.bags[i][: one.sizes[1]].to(one.device, copy=True) for i, one in enumerate(given)]
        if ticket is None:
            self._rooms.give(room)
        return outputs, ticket

    def _given(self, inputs: Mapping[str, Input]) -> list[_Given]:
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs must be a dict of ids by feature, not {kind_of(inputs)} {shown(inputs)}")
        unknown = inputs.keys() - self.bags.keys()
        if unknown:
            raise KeyError(f"no such feature: {short(', '.join(sorted(map(str, unknown))))}")
        return [_given(k, self.bags[k], one) for k, one in inputs.items()]

    def _ids_of(self, inputs: Mapping[str, Input]) -> tuple[list[str], list[Table], list[torch.Tensor]]:
        """The features that forward() would look rows up for, their tables, and ids: int64 [count] each."""
        given = [one for one in self._given(inputs) if len(one.ids)]
        return [one.feature for one in given], [one.bag.table for one in given], [one.ids for one in given]

    def _backward(
        self,
        given: list[_Given],
        ticket: _Ticket | None,
        gradients: Sequence[torch.Tensor | None],
        wanted: list[bool],
        trains: bool,
    ) -> list[torch.Tensor | None]:
        """Updates rows if it @trains; returns the gradients of weights, where @wanted."""
        if trains and ticket is not None:
            room = ticket.take()
            try:
                found = self._push(room, ticket.ahead, given, gradients, wanted)
                ticket.was_pushed = True
                return found
            finally:
                self._rooms.abandon(room)
        found = self._weight_gradients(given, gradients, wanted)
        if trains and self.update == "backward" and self.group is not None:
            self.optimizer.push_nothing()
        if trains and self.update == "step":
            self._gather(given, gradients)
        return found

    def _push(
        self,
        room: _Room,
        ahead: Ahead | None,
        given: list[_Given],
        gradients: Sequence[torch.Tensor | None],
        wanted: list[bool],
    ) -> list[torch.Tensor | None]:
        found: list[torch.Tensor | None] = [None] * len(given)
        if self.group is None and all(gradient is None for gradient in gradients):
            return found
        scale = self._scale() * self.optimizer.divisor
        for i, gradient in enumerate(gradients):
            if gradient is None:
                room.batch.skip(i)
                continue
            view = room.bags[i][: len(gradient)].copy_(gradient)
            if scale != 1:
                view.mul_(1 / scale)
        pushed = self.optimizer.push(room.batch, ahead, weight_gradients=any(wanted))
        for i, one in enumerate(given):
            if not wanted[i]:
                continue
            values = room.weights[i]
            assert values is not None
            values = values[: len(one.ids)] * (scale if pushed else float("nan"))
            found[i] = one.weight_gradient(values)
        return found

    def _scale(self) -> float:
        scale = number("grad_scale", self.grad_scale() if callable(self.grad_scale) else self.grad_scale)
        if scale == 0:
            raise ValueError("grad_scale is 0, by which no gradient can be divided")
        return scale

    def _gather(self, given: list[_Given], gradients: Sequence[torch.Tensor | None]) -> None:
        scale = self._scale()
        for one, gradient in zip(given, gradients):
            if gradient is None or not len(one.ids):
                continue
            expanded = one.of_ids(gradient if scale == 1 else gradient * (1 / scale))
            if one.weights is not None:
                expanded = expanded * one.weights.to(expanded.device).unsqueeze(1)
            self.optimizer.add(one.bag.table, one.ids, expanded)

    def _weight_gradients(
        self, given: list[_Given], gradients: Sequence[torch.Tensor | None], wanted: list[bool]
    ) -> list[torch.Tensor | None]:
        """From rows, by one GET for all."""
        found: list[torch.Tensor | None] = [None] * len(given)
        chosen = [i for i in range(len(given)) if wanted[i]]
        if not chosen:
            return found
        places = [torch.unique(given[i].ids, return_inverse=True) for i in chosen]
        parts = [(given[i].bag.table, len(distinct)) for i, (distinct, _) in zip(chosen, places)]
        with self._rooms.made(lambda: self._rooms.server.batch(parts)) as batch:
            for part, (distinct, _) in enumerate(places):
                batch.ids(part)[:] = distinct.numpy().view(np.uint64)
            if any(len(distinct) for distinct, _ in places):
                batch.get()
            for part, (i, (_, back)) in enumerate(zip(chosen, places)):
                gradient = gradients[i]
                assert gradient is not None
                values = rows(batch, part).float()[back] * given[i].of_ids(gradient.cpu())
                found[i] = given[i].weight_gradient(values.sum(1))
        return found

    @property
    def lr(self) -> float:
        """Learning rate; may be assigned at any time."""
        return self.optimizer.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self.optimizer.param_groups[0]["lr"] = learning_rate("lr", lr)

    @property
    def steps(self) -> int:
        """How many steps the tables' optimizers have made through this module; may be assigned."""
        return self.optimizer.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self.optimizer.steps = steps

    @property
    def group(self) -> Group | None:
        """Of trainers, whose steps this module makes together; may be assigned, such as one that was
        joined anew, with ``step=module.steps``."""
        return self.optimizer.group

    @group.setter
    def group(self, group: Group | None) -> None:
        self.optimizer.group = group

    @property
    def timeout(self) -> float | None:
        """Seconds that a pass waits for the server; may be assigned. None: for ever."""
        return self.optimizer.timeout

    @timeout.setter
    def timeout(self, timeout: float | None) -> None:
        self.optimizer.timeout = seconds("timeout", timeout)

    @property
    def skipped_pushes(self) -> int:
        """How many pushes the server refused for NaN or infinity, this member's of a group or another's."""
        return self.optimizer.skipped_pushes

    def step(self) -> None:
        """Applies the gradients gathered with ``update="step"``: one push for all tables. If there are
        none it does nothing, but for a group, whose other members wait for a push. If it fails, the gradients are forgotten."""
        self.optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients gathered with ``update="step"``; @set_to_none changes nothing."""
        self.optimizer.zero_grad(set_to_none)

    def get_extra_state(self) -> dict[str, dict[str, Any]]:
        return {
            k: {
                "table": bag.table.name,
                "rows": bag.table.rows,
                "dim": bag.table.dim,
                "dtype": bag.table.dtype,
                "mode": bag.mode,
                "padding_idx": bag.padding_idx,
                "steps": self.steps,
                "note": "the rows are in embtierd, not here",
            }
            for k, bag in self.bags.items()
        }

    def set_extra_state(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        ours = self.get_extra_state()
        if not isinstance(state, Mapping) or not all(isinstance(saved, Mapping) for saved in state.values()):
            raise TypeError(f"state must be what get_extra_state() gave, not {kind_of(state)} {shown(state)}")
        if state.keys() != ours.keys():
            raise ValueError(
                f"state was saved with features {shown(list(state))}, here are {shown(list(ours))}"
            )
        for feature, saved in state.items():
            for key, value in saved.items():
                if key not in ("note", "steps") and value != ours[feature].get(key):
                    raise ValueError(
                        f"{shown(feature)} was saved with {shown(key)} {shown(value)}, here it is {shown(ours[feature].get(key))}"
                    )
        self.steps = max(integer("steps", saved.get("steps", 0), 0, STEP_MAX) for saved in state.values())

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            raise AttributeError(_NO_WEIGHT)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight":
            raise AttributeError(_NO_WEIGHT)
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        lines = [f"{k}: {bag.table!r}, {bag.mode}" for k, bag in self.bags.items()]
        group = f", {self.group!r}" if self.group is not None else ""
        return "\n".join([*lines, f"lr={self.lr}, update={self.update}{group}"])

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
        frozen: bool = False,
        group: Group | None = None,
        reduce: str = "mean",
        timeout: float | None = TIMEOUT_S,
    ) -> None:
        bag = Bag(table, mode, include_last_offset, padding_idx, unsigned_ids)
        super().__init__(
            {"bag": bag}, lr=lr, update=update, frozen=frozen, group=group, reduce=reduce, timeout=timeout
        )

    def forward(  # type: ignore[override]
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As torch.nn.EmbeddingBag.forward: float32 [bags, dim]."""
        return super().forward({"bag": (input, offsets, per_sample_weights)})["bag"]

    def _ids_of(self, inputs: Input) -> tuple[list[str], list[Table], list[torch.Tensor]]:  # type: ignore[override]
        return super()._ids_of({"bag": inputs})
