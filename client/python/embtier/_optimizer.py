# SPDX-License-Identifier: Apache-2.0
"""Steps of the tables' optimizers, as torch sees them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import errors
from ._arguments import flag, integer, kind_of, learning_rate, number, several, shown
from ._batch import BagBatch, PushBatch
from ._connection import table_of
from ._group import STEP_MAX, Group
from ._prefetcher import Ahead, push_with
from ._server import Table

if TYPE_CHECKING:
    from .torch import _Rooms


class Optimizer(torch.optim.Optimizer):
    """What schedulers and gradient scalers see of the tables' optimizers; modules make theirs, see the
    text of embtier.torch. One group, with "lr"; its parameters stand for the tables, and have the gradients
    gathered with ``update="step"``, float32 [distinct rows, dim]."""

    def __init__(self, tables: Sequence[Table], rooms: _Rooms, lr: float, gathers: bool) -> None:
        tables = [table_of("one of the tables", table) for table in several("tables", tables)]
        self._tables = {table.name: table for table in tables}
        self._rooms = rooms
        self._gathers = flag("gathers", gathers)  # update="step": step() makes the steps
        self._sums = {name: torch.nn.Parameter(torch.empty(0, t.dim)) for name, t in self._tables.items()}
        self._ids: dict[str, torch.Tensor] = {}  # int64 [distinct rows] of those in _sums
        self._steps = 0
        self._group: Group | None = None
        self.skipped_pushes = 0
        super().__init__(list(self._sums.values()), {"lr": learning_rate("lr", lr)})

    @property
    def lr(self) -> float:
        return self.param_groups[0]["lr"]

    @property
    def steps(self) -> int:
        """How many were made: with a group, by all of its members together."""
        return self._steps if self._group is None else self._group.step

    @steps.setter
    def steps(self, steps: int) -> None:
        steps = integer("steps", steps, 0, STEP_MAX)
        if self._group is not None and steps != self._group.step:
            raise ValueError(
                f"group {self._group.name!r} is at step {self._group.step}: to go on from {steps}, its "
                f"members join with step={steps}"
            )
        self._steps = steps

    @property
    def group(self) -> Group | None:
        """Of trainers, whose steps these are; may be assigned, such as one that was joined anew."""
        return self._group

    @group.setter
    def group(self, group: Group | None) -> None:
        if group is not None:
            self._check_group(group)
            group._owner = weakref.ref(self)
        steps, self._group = self.steps, group
        self._steps = steps

    def _check_group(self, group: Group) -> None:
        if not isinstance(group, Group):
            raise TypeError(f"group must be an embtier.Group, not a {kind_of(group)}")
        group._handle(self._rooms.server._connection)
        owner = None if group._owner is None else group._owner()
        if owner not in (None, self):
            raise ValueError(
                f"group {group.name!r} is another module's: each pushes by itself, and a group has one push "
                "of a member and step, so join one for each module"
            )
        if self.steps not in (0, group.step):
            raise ValueError(
                f"the module has made {self.steps} steps, and group {group.name!r} {group.step}: join it with "
                f"step={self.steps}"
            )

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Asks a GradScaler to call step() even if a gradient is not finite: the other members of a group
        wait for the push, whose refusal tells them."""
        return self._group is not None

    def _unscale(self, scaler: Any) -> None:
        """What a GradScaler leaves to such a step(). Before torch 2.0 it gives itself as an argument, from
        then on its scale as an attribute, unless unscale_() has been called."""
        if scaler is not None:
            if scaler._per_optimizer_states[id(self)]["stage"].value == 0:
                scaler.unscale_(self)
            return
        scale = getattr(self, "grad_scale", None)
        for total in self._sums.values():
            if scale is not None and total.grad is not None:
                total.grad.mul_(1 / float(scale))

    def add(self, table: Table, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adds gradients, [count, dim], of rows, int64 [count]."""
        total = self._sums[table_of("table", table).name]
        for what, tensor in (("ids", ids), ("gradient", gradient)):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"{what} must be a torch.Tensor, not {kind_of(tensor)} {shown(tensor)}")
        if total.grad is not None:
            ids = torch.cat([self._ids[table.name], ids])
            gradient = torch.cat([total.grad.to(gradient.device), gradient])
        distinct, places = torch.unique(ids, return_inverse=True)
        added = torch.zeros(len(distinct), table.dim, device=gradient.device)
        added.index_add_(0, places.to(gradient.device), gradient)
        self._ids[table.name] = distinct
        total.grad = None
        total.data = added.new_empty(1).expand(added.shape)  # of the shape, without the memory
        total.grad = added

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, **scaling: Any) -> Any:
        """Applies what was gathered, by one push for all tables, and forgets it, also if that fails.
        If there is nothing it does nothing, but for a group, whose other members wait for a push."""
        loss = None
        if closure is not None and not callable(closure):
            raise TypeError(f"closure must be a function or None, not {kind_of(closure)} {shown(closure)}")
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._unscale(scaling.get("grad_scaler"))
        given = [name for name, total in self._sums.items() if total.grad is not None and len(total)]
        try:
            if given:
                self._push_rows(given)
            elif self._gathers and self._group is not None:
                self.push_nothing()
        finally:
            self.zero_grad()
        return loss

    def _push_rows(self, names: Sequence[str]) -> None:
        parts = [(self._tables[name], len(self._ids[name])) for name in names]
        with self._rooms.made(lambda: self._rooms.server.push_batch(parts)) as batch:
            for i, name in enumerate(names):
                batch.ids(i)[:] = self._ids[name].numpy().view(np.uint64)
                torch.from_numpy(batch.gradients(i)).copy_(self._sums[name].grad)
            self.push(batch)

    def push_nothing(self) -> None:
        """This member's part of a step to which it has no gradients."""
        with self._rooms.made(lambda: self._rooms.server.push_batch([])) as batch:
            self.push(batch)

    def push(self, batch: BagBatch | PushBatch, ahead: Ahead | None = None, **options: Any) -> bool:
        """One step, which releases what @ahead has. False if the server refused it for numbers that are
        not finite, be they another member's of the group."""
        if not isinstance(batch, (BagBatch, PushBatch)):
            raise TypeError(f"batch must be a BagBatch or a PushBatch, not {kind_of(batch)} {shown(batch)}")
        if ahead is not None and not isinstance(ahead, Ahead):
            raise TypeError(f"ahead must be what a Prefetcher has, not {kind_of(ahead)} {shown(ahead)}")
        try:
            push_with(ahead, batch, number("lr", self.lr), self.steps + 1, group=self._group, **options)
        except (errors.NonfiniteError, errors.GroupRefusedError) as error:  # type: ignore[attr-defined]
            if getattr(error, "err", "NONFINITE") != "NONFINITE":
                raise
            self.skipped_pushes += 1
            if self.skipped_pushes == 1:
                warnings.warn(f"skipped a push: {error}; more are counted in skipped_pushes", stacklevel=2)
            return False
        self._steps += 1
        return True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets what was gathered."""
        flag("set_to_none", set_to_none)
        self._ids.clear()
        for total in self._sums.values():
            total.grad = None
            total.data = torch.empty(0, total.shape[1])

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("the optimizer's state is in embtierd: save state_dict() of the module")
