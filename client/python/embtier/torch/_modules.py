# SPDX-License-Identifier: Apache-2.0
"""The modules: torch.nn.Modules whose rows are in the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import errors
from .._arguments import flag, integer, kind_of, learning_rate, number, seconds, short, shown
from .._batch import Batch
from .._connection import table_of
from .._group import STEP_MAX, Group
from .._server import Table
from .._types import one_of
from . import _compiled
from ._bags import Bag, Given, Input, given_of
from ._nested import bags_of
from ._optimizer import Optimizer
from ._prefetcher import Ahead
from ._rooms import Room, Rooms, Ticket
from ._rows import Rows, RowsList, warn_user

UPDATES = ("backward", "step")
REDUCTIONS = ("mean", "sum")
TIMEOUT_S = 120.0


def rows(batch: Batch, part: int) -> torch.Tensor:
    """Returns the rows of @part, without state, as a tensor [count, dim] of the table's dtype, also bfloat16. It is not
    a copy but memory of the shared arena, and valid as long as the NumPy view."""
    if not isinstance(batch, Batch):
        raise TypeError(f"batch must be an embtier.Batch, not {kind_of(batch)} {shown(batch)}")
    return as_tensor(batch.table(part), batch.rows(part))


def as_tensor(table: Table, rows: np.ndarray) -> torch.Tensor:
    """Returns @rows of @table, a result of :meth:`Table.get`, as a tensor of the table's dtype, without a copy. NumPy
    has bfloat16 as bits."""
    table_of("table", table)
    if table.dtype == "bf16":
        return torch.from_numpy(rows.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(rows)


class _PooledLookup(torch.autograd.Function):
    """forward() returns pooled bags, one tensor per feature. backward() gets their gradients, all at once. The other
    arguments are only for autograd: the module's rows, and weights of samples."""

    @staticmethod
    def forward(
        ctx: Any, module: EmbeddingBagCollection, given: list[Given], trains: bool, *_: torch.Tensor | None
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.module, ctx.given = module, given
        outputs, ctx.ticket = module._lookup(given, trains and module.update == "backward")
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if torch.is_grad_enabled():  # true with create_graph=True
            return _PooledLookup._backward_once(ctx, *gradients)
        return _PooledLookup._backward(ctx, *gradients)

    @staticmethod
    def _backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        count = len(ctx.module._rows)
        wanted = [needed and g is not None for needed, g in zip(ctx.needs_input_grad[3 + count :], gradients)]
        trains = any(  # false if they were frozen since the forward pass
            needed and _is_wanted(function)
            for needed, (function, _) in zip(ctx.needs_input_grad[3 : 3 + count], ctx.next_functions)
        )
        trains = trains and ctx.module._is_trained()
        with ctx.module._rooms.server._connection.turn:
            found = ctx.module._backward(ctx.given, ctx.ticket, gradients, wanted, trains)
        return None, None, None, *[None] * count, *found

    _backward_once = staticmethod(torch.autograd.function.once_differentiable(_backward.__func__))


def _is_wanted(rows: Any) -> bool:
    """True if this backward pass reaches the @rows. torch.autograd.grad() for weights does not."""
    try:
        return torch._C._will_engine_execute_node(rows)
    except AttributeError:  # this torch does not have it
        return True
    except RuntimeError:
        raise RuntimeError(
            "torch.autograd.grad() cannot return gradients of rows: backward() pushes them, or gathers them in rows.grad with "
            'update="step"'
        ) from None


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


_NO_LR = "lr is missing: the learning rate of the tables' optimizers, such as lr=0.1; passes under torch.no_grad(), and frozen modules, need none"
_NO_WEIGHT = (
    "the rows are in the server, so the module has no weight: table.get(ids) and table.set(ids, rows) read and write "
    "rows, Server.import_table() imports a file"
)


def _compare(feature: str, saved: dict[str, Any], ours: dict[str, Any]) -> None:
    """Compares the description of a feature in a state_dict() with that of the module."""
    for key, value in saved.items():
        if key not in ("note", "steps", "uuid", "table_step") and value != ours.get(key):
            raise ValueError(f"{shown(feature)} was saved with {shown(key)} {shown(value)}, here it is {shown(ours.get(key))}")
    table, uuid, step = ours["table"], saved.get("uuid"), saved.get("table_step")
    if uuid and ours["uuid"] and uuid != ours["uuid"]:
        raise ValueError(
            f"{shown(feature)} was saved with the rows of another table {table!r}, made as {shown(uuid)}: this one was made as "
            f"{ours['uuid']}, and has other rows. Bring those back, with restore_checkpoint() or import_table(); or, for the rest of "
            'the state alone, leave out the keys that end with "_extra_state" and load with strict=False'
        )
    if None not in (step, ours["table_step"]) and step != ours["table_step"]:
        warn_user(
            f"{shown(feature)} was saved when table {table!r} was at step {shown(step)}, and its rows are those of step "
            f"{ours['table_step']} now: they do not belong to the rest of the state. To bring rows back, drop the table and "
            "restore_checkpoint() before the module is made (docs/torch.md)"
        )


class EmbeddingBagCollection(torch.nn.Module):
    """Many embedding bags with one request for all.

    @bags: a :class:`Bag` for each name of a feature, or a Table for a Bag with the defaults. All tables belong to one
    connection; a table may be in several bags.
    @lr: learning rate; a pass that is trained from needs one, given here or assigned later.
    @update: "backward" or "step"; see the text of embtier.torch.
    @frozen: like requires_grad_(False); tables need no optimizer.
    @group: group of trainers, one for each module; see "Groups of trainers" in the text of embtier.torch.
    @reduce: "mean" averages the gradients of the group's members, "sum" adds them up; without a group it has no effect.
    @timeout: seconds that a pass waits for the server before it raises TimeoutError; None: for ever. A push of a group
    waits for the other members as long as the server does.
    """

    def __init__(
        self,
        bags: Mapping[str, Bag | Table],
        *,
        lr: float | None = None,
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
        self._has_lr = lr is not None
        self._trainable = False
        self._rooms = Rooms(tables[0].server)
        distinct = {table.name: table for table in tables}
        self._rows = {name: Rows(table, not frozen) for name, table in distinct.items()}
        self.rows = RowsList(self._rows.values())
        steps = max(table.step for table in distinct.values())
        self.optimizer = Optimizer(list(self._rows.values()), self._rooms, lr or 0.0, update == "step", reduce == "mean", steps)
        if not frozen:
            self._check_tables()
        self.group = group
        self.timeout = timeout
        self._number = _compiled.number_of(self)
        self._features = {feature: i for i, feature in enumerate(self.bags)}
        self._dims = [bag.table.dim for bag in self.bags.values()]
        self._ends = [int(bag.include_last_offset) for bag in self.bags.values()]
        self._pass = -1  # the last backward pass that pushed, by torch's number
        # Ties a pass into a compiled graph. It is in a list, so that it is no parameter of the module.
        self._anchor = [torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))]
        self._ahead: Ahead | None = None  # for the next forward pass with a ticket

    def _check_tables(self) -> None:
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
                    f'table {table.name!r} has bags with mode "max" and others: these cannot be trained together'
                )

    def _check_trainable(self) -> None:
        self._check_tables()
        if not self._has_lr and not self.lr:
            raise ValueError(_NO_LR)
        self._trainable = True

    def forward(self, inputs: Mapping[str, Input]) -> dict[str, torch.Tensor]:
        """Pools bags. @inputs: for any of the features, ids, or (ids, offsets), or (ids, offsets, per_sample_weights),
        as torch.nn.EmbeddingBag takes them: ids [bags, length] with no offsets (or None), or [total] with offsets
        [bags] ([bags + 1] if include_last_offset). Returns float32 [bags, dim] for each, on the device of its ids.
        Makes one pooled lookup, or none if there are no ids at all. TicketsFullError if the server has no memory for
        one more ticket.

        Ids may be a nested tensor [bags, lengths] of the layout torch.jagged, with no offsets. per_sample_weights are
        then nested too."""
        inputs = self._flat(inputs)
        if _compiled.is_compiling():
            _compiled.refuse_export()
            return _compiled.forward(self, inputs)
        _compiled.refuse_transforms()
        given = self._given(inputs)
        weights = [None if isinstance(one, torch.Tensor) else (*one, None, None)[2] for one in inputs.values()]
        with_gradients = torch.is_grad_enabled()
        trains = with_gradients and self._is_trained()
        if trains and not self._trainable:
            self._check_trainable()
        if trains or (with_gradients and any(w is not None and w.requires_grad for w in weights)):
            outputs = _PooledLookup.apply(self, given, trains, *self._rows.values(), *weights)
        else:
            outputs, _ = self._lookup(given, False)
        return dict(zip(inputs, outputs))

    def _lookup(self, given: list[Given], wants_ticket: bool) -> tuple[list[torch.Tensor], Ticket | None]:
        """Returns copies of the bags, and the ticket if it was wanted and there was an id."""
        if not any(one.sizes[0] for one in given):
            empty = [torch.zeros(one.sizes[1], one.bag.table.dim, dtype=torch.float32, device=one.device) for one in given]
            return empty, None
        self.optimizer.wait_for_push()
        self.optimizer.look_at_session()
        room = self._rooms.take(given)
        try:
            room.fill(given)
            advice = "run passes without a backward pass under torch.no_grad()"
            with errors.hint("TICKETS_FULL", advice), errors.hint("PERMISSION" if wants_ticket else "", advice):
                room.batch.lookup(self.timeout, ticket=wants_ticket)
        except BaseException:
            self._rooms.abandon(room)
            raise
        ticket = None
        if wants_ticket:
            ahead, self._ahead = self._ahead, None
            ticket = Ticket(self._rooms, room, ahead)
        outputs = [room.bags[i][: one.sizes[1]].to(one.device, copy=True) for i, one in enumerate(given)]
        if ticket is None:
            self._rooms.give(room)
        return outputs, ticket

    def _given(self, inputs: Mapping[str, Input]) -> list[Given]:
        if not isinstance(inputs, Mapping):
            raise TypeError(f"inputs must be a dict of ids by feature, not {kind_of(inputs)} {shown(inputs)}")
        unknown = inputs.keys() - self.bags.keys()
        if unknown:
            raise KeyError(f"no such feature: {short(', '.join(sorted(map(str, unknown))))}")
        return [given_of(k, self.bags[k], one) for k, one in inputs.items()]

    def _flat(self, inputs: Mapping[str, Input]) -> Mapping[str, Input]:
        """Returns @inputs with values and offsets in place of nested tensors."""
        if not isinstance(inputs, Mapping):
            return inputs
        return {k: bags_of(self.bags[k], one) if k in self.bags else one for k, one in inputs.items()}

    def _ids_of(self, inputs: Mapping[str, Input]) -> tuple[list[str], list[Table], list[torch.Tensor]]:
        """Returns the features whose rows forward() would look up, their tables, and their ids, int64 [count] each."""
        given = [one for one in self._given(self._flat(inputs)) if one.sizes[0]]
        return [one.feature for one in given], [one.bag.table for one in given], [one.ids for one in given]

    def _backward(
        self,
        given: list[Given],
        ticket: Ticket | None,
        gradients: Sequence[torch.Tensor | None],
        wanted: list[bool],
        trains: bool,
    ) -> list[torch.Tensor | None]:
        """Updates rows if @trains. Returns the gradients of weights where @wanted."""
        if trains and self.update == "backward" and ticket is not None:
            self._tell_of_second_push()
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

    def _tell_of_second_push(self) -> None:
        """Warns once if this backward pass has pushed before, because torch makes one step of all calls of a module."""
        number_of = getattr(torch._C, "_current_graph_task_id", None)  # torch 2 has it
        before, self._pass = self._pass, number_of() if number_of is not None else -1
        if self._pass >= 0 and before == self._pass and not self._told_of_second_push:
            self._told_of_second_push = True
            warn_user(
                f"the module of table {next(iter(self._rows))!r} was called several times before this backward pass, and each call is a "
                "step of its own; torch's optimizers make one step of all, and so does update=\"step\""
            )

    _told_of_second_push = False

    def _push(
        self,
        room: Room,
        ahead: Ahead | None,
        given: list[Given],
        gradients: Sequence[torch.Tensor | None],
        wanted: list[bool],
    ) -> list[torch.Tensor | None]:
        goes = [g is not None and self._rows_of(one).requires_grad for one, g in zip(given, gradients)]
        found = self._weight_gradients(given, gradients, [w and not g for w, g in zip(wanted, goes)])
        if self.group is None and not any(goes):
            return found
        scale = self._scale() * self.optimizer.divisor
        for i, gradient in enumerate(gradients):
            if gradient is None or not goes[i]:
                room.batch.skip(i)
                continue
            view = room.bags[i][: gradient.shape[0]].copy_(gradient)
            if scale != 1:
                view.mul_(1 / scale)
        come = [w and g for w, g in zip(wanted, goes)]
        pushed = self.optimizer.push(room.batch, ahead, weight_gradients=any(come))
        for i, one in enumerate(given):
            if not come[i]:
                continue
            values = room.weights[i]
            assert values is not None
            values = values[: len(one.ids)] * (scale if pushed else float("nan"))
            found[i] = one.weight_gradient(values)
        return found

    def _rows_of(self, one: Given) -> Rows:
        return self._rows[one.bag.table.name]

    def _is_trained(self) -> bool:
        return any(rows.requires_grad for rows in self._rows.values())

    @property
    def grad_scale(self) -> float | Callable[[], float]:
        """Gradients are divided on arrival by this number, or by this function's result. May be assigned."""
        return self.optimizer.scale

    @grad_scale.setter
    def grad_scale(self, scale: float | Callable[[], float]) -> None:
        self.optimizer.scale = scale if callable(scale) else number("grad_scale", scale)

    def _scale(self) -> float:
        scale = number("grad_scale", self.grad_scale() if callable(self.grad_scale) else self.grad_scale)
        if scale == 0:
            raise ValueError("grad_scale is 0, by which no gradient can be divided")
        return scale

    def _gather(self, given: list[Given], gradients: Sequence[torch.Tensor | None]) -> None:
        scale = self._scale()
        for one, gradient in zip(given, gradients):
            rows = self._rows_of(one)
            if gradient is None or not one.sizes[0] or not rows.requires_grad:
                continue
            expanded = one.of_ids(gradient if scale == 1 else gradient * (1 / scale))
            if one.weights is not None:
                expanded = expanded * one.weights.to(expanded.device).unsqueeze(1)
            rows.add_gradients(one.ids, expanded)

    def _weight_gradients(
        self, given: list[Given], gradients: Sequence[torch.Tensor | None], wanted: list[bool]
    ) -> list[torch.Tensor | None]:
        """Computes the gradients of weights from rows, which one GET reads for all features."""
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
                batch.get(self.timeout)
            for part, (i, (_, back)) in enumerate(zip(chosen, places)):
                gradient = gradients[i]
                assert gradient is not None
                values = rows(batch, part).float()[back] * given[i].of_ids(gradient.cpu())
                found[i] = given[i].weight_gradient(values.sum(1))
        return found

    @property
    def lr(self) -> float:
        """The learning rate; may be assigned at any time."""
        return self.optimizer.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self.optimizer.param_groups[0]["lr"] = learning_rate("lr", lr)

    @property
    def steps(self) -> int:
        """The step of the tables. A module starts with the greatest step of its tables, and counts its own steps. With
        a group it is the group's step. May be assigned."""
        return self.optimizer.steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self.optimizer.steps = steps

    @property
    def group(self) -> Group | None:
        """The group of trainers that this module steps with. May be assigned, for example after joining again with
        ``step=module.steps``."""
        return self.optimizer.group

    @group.setter
    def group(self, group: Group | None) -> None:
        self.optimizer.group = group

    @property
    def timeout(self) -> float | None:
        """Seconds that a pass waits for the server; None: for ever. May be assigned."""
        return self.optimizer.timeout

    @timeout.setter
    def timeout(self, timeout: float | None) -> None:
        self.optimizer.timeout = self._rooms.timeout = seconds("timeout", timeout)

    @property
    def skipped_pushes(self) -> int:
        """The number of pushes that the server refused for NaN or infinity, of this member or another of its group."""
        return self.optimizer.skipped_pushes

    def step(self) -> None:
        """Applies the gradients gathered with ``update="step"``: one push for all tables. Without gradients it does
        nothing, except in a group, whose other members wait for a push. After an error the gradients are forgotten."""
        self.optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients gathered with ``update="step"``; @set_to_none has no effect."""
        self.optimizer.zero_grad(set_to_none)

    def _table_steps(self) -> dict[str, int | None]:
        """Returns steps by the tables' names, or None for all if they are unknown. That must not prevent saving the
        rest of a model. After the first failure the server is not asked again."""
        unknown = dict.fromkeys(self._rows)
        if not self._rooms.server._connection.is_open or not self.optimizer.settle():
            return unknown
        try:
            return {name: rows.table.step for name, rows in self._rows.items()}
        except (errors.Error, RuntimeError):
            return unknown

    def _description(self) -> dict[str, dict[str, Any]]:
        table_steps, steps = self._table_steps(), self.steps
        return {
            k: {
                "table": bag.table.name,
                "rows": bag.table.rows,
                "dim": bag.table.dim,
                "dtype": bag.table.dtype,
                "optimizer": bag.table.spec.optimizer,
                "mode": bag.mode,
                "padding_idx": bag.padding_idx,
                "steps": steps,
                "uuid": bag.table.spec.uuid,
                "table_step": table_steps[bag.table.name],
                "note": "the rows are in embtierd, not here",
            }
            for k, bag in self.bags.items()
        }

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: list, unexpected: list, errors: list
    ) -> None:  # fmt: skip
        if f"{prefix}weight" in state_dict:  # also with strict=False, because nothing would load it
            errors.append(
                f'"{prefix}weight" has the rows of a module of torch: load it before replace(), or write it with table.set()'
            )
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def get_extra_state(self) -> torch.Tensor:
        """Returns the module's part of state_dict(): the description of the tables and the steps, as the bytes of a
        JSON text, uint8. It is a tensor because safetensors and others save nothing else."""
        return torch.frombuffer(bytearray(json.dumps(self._description()).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        ours = self._description()
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8 or state.dim() != 1:
            raise TypeError(f"state must be a result of get_extra_state(), not {kind_of(state)} {shown(state)}")
        try:
            saved_features = json.loads(bytes(state.tolist()))
            if not all(isinstance(saved, dict) for saved in saved_features.values()):
                raise ValueError
        except (ValueError, AttributeError):
            raise ValueError("state is not a result of get_extra_state(): not a JSON text of features") from None
        if saved_features.keys() != ours.keys():
            raise ValueError(
                f"state was saved with features {shown(list(saved_features))}, here are {shown(list(ours))}"
            )
        for feature, saved in saved_features.items():
            _compare(feature, saved, ours[feature])
        steps = max(integer("steps", saved.get("steps", 0), 0, STEP_MAX) for saved in saved_features.values())
        if self.group is None:  # a group's step is made only once
            steps = max(steps, *(one["table_step"] or 0 for one in ours.values()))
        self.steps = steps

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

    def __prepare_scriptable__(self) -> Any:
        raise RuntimeError(
            "torch.jit.script does not support rows that are in embtierd: script the model without this module"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "rows are in embtierd: a copy would update the same tables. Make another module of them, and use "
            "state_dict() for the rest of the model"
        )
