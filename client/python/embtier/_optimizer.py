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

    def __init__(
        self, tables: Sequence[Table], rooms: _Rooms, lr: float, gathers: bool, averages: bool = True
    ) -> None:
        tables = [table_of("one of the tables", table) for table in several("tables", tables)]
        self._tables = {table.name: table for table in tables}
        self._rooms = rooms
        self._gathers = flag("gathers", gathers)  # update="step": step() makes the steps
        self._averages = flag("averages", averages)  # gradients of the members of a group
        self._sums = {name: torch.nn.Parameter(torch.empty(0, t.dim)) for name, t in self._tables.items()}
        # Ids, int64 [distinct rows], and their gradients; good while these are the parameter's.
        self._gathered: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {name: [] for name in self._tables}
        self._steps = 0
        self._pushing: BagBatch | PushBatch | None = None  # of the push that was not noted yet
        self.timeout: float | None = None  # seconds for a push without a group, whose end others may delay
        self._group: Group | None = None
        self.skipped_pushes = 0
        super().__init__(list(self._sums.values()), {"lr": learning_rate("lr", lr)})

    @property
    def lr(self) -> float:
        return self.param_groups[0]["lr"]

    @property
    def steps(self) -> int:
        """How many were made: with a group, by all of its members together."""
        self._note_push()
        return self._steps if self._group is None else self._group.step

    @steps.setter
    def steps(self, steps: int) -> None:
        steps = integer("steps", steps, 0, STEP_MAX)
        if self._group is not None and steps != self._group.step:
            raise ValueError(
                f"group {self._group.name!r} is at step {self._group.step}: to go on from {steps}, its "
                f"members join with step={steps}"
            )
        self._pushing = None
        self._steps = steps

    @property
    def divisor(self) -> int:
        """What this member's gradients are divided by before they are added to those of the group's others."""
        return self._group.size if self._group is not None and self._averages else 1

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
        before = self._gathered_of(table.name)
        if before is not None:
            ids = torch.cat([before[0], ids])
            gradient = torch.cat([before[1].to(gradient.device), gradient])
        distinct, places = torch.unique(ids, return_inverse=True)
        added = torch.zeros(len(distinct), table.dim, device=gradient.device)
        added.index_add_(0, places.to(gradient.device), gradient)
        known = self._gathered[table.name]
        known[:] = [*([] if before is None else [before]), (distinct, added)]
        total.data = added.new_empty(1).expand(added.shape)  # of the shape, without the memory
        total.grad = added  # from here on it is this that is gathered

    def _gathered_of(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Ids and gradients. The gradient may be one that others have put in the place of ours, of its shape."""
        gradient = self._sums[name].grad
        if gradient is None or not len(gradient):
            return None
        known = self._gathered[name]
        for ids, ours in known:
            if ours is gradient:
                return ids, gradient
        if not known or known[-1][1].shape != gradient.shape:
            raise RuntimeError(f"the gradient of table {name!r} is of rows that nothing was gathered for")
        return known[-1][0], gradient

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
        try:
            gathered = {name: self._gathered_of(name) for name in self._sums}
            given = {name: one for name, one in gathered.items() if one is not None}
            if given:
                self._push_rows(given)
            elif self._gathers and self._group is not None:
                self.push_nothing()
        finally:
            self.zero_grad()
        return loss

    def _push_rows(self, given: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> None:
        parts = [(self._tables[name], len(ids)) for name, (ids, _) in given.items()]
        batch = self._rooms.made(lambda: self._rooms.server.push_batch(parts))
        for i, (ids, gradient) in enumerate(given.values()):
            batch.ids(i)[:] = ids.numpy().view(np.uint64)
            pushed = torch.from_numpy(batch.gradients(i)).copy_(gradient)
            if self.divisor != 1:
                pushed.mul_(1 / self.divisor)
        self.push(batch)

    def push_nothing(self) -> None:
        """This member's part of a step to which it has no gradients."""
        self.push(self._rooms.made(lambda: self._rooms.server.push_batch([])))

    def push(self, batch: BagBatch | PushBatch, ahead: Ahead | None = None, **options: Any) -> bool:
        """One step, which releases what @ahead has. False if the server refused it for numbers that are
        not finite, be they another member's of the group."""
        if not isinstance(batch, (BagBatch, PushBatch)):
            raise TypeError(f"batch must be a BagBatch or a PushBatch, not {kind_of(batch)} {shown(batch)}")
        if ahead is not None and not isinstance(ahead, Ahead):
            raise TypeError(f"ahead must be what a Prefetcher has, not {kind_of(ahead)} {shown(ahead)}")
        self.wait_for_push()
        step = self.steps + 1
        self._pushing = batch
        try:
            if self._group is None:
                options["timeout"] = self.timeout
            push_with(ahead, batch, number("lr", self.lr), step, group=self._group, **options)
        except (errors.NonfiniteError, errors.GroupRefusedError) as error:  # type: ignore[attr-defined]
            if getattr(error, "err", "NONFINITE") != "NONFINITE":
                raise
            self.skipped_pushes += 1
            if self.skipped_pushes == 1:
                warnings.warn(f"skipped a push: {error}; more are counted in skipped_pushes", stacklevel=2)
            return False
        self._note_push()
        return True

    def _note_push(self) -> None:
        """Counts the step of the last push, if that has been applied. Any number of times."""
        if self._pushing is not None and not self._pushing._in_flight:
            self._steps = max(self._steps, self._pushing._pushed_step)
            self._pushing = None

    def wait_for_push(self) -> None:
        """Waits for a push that an interrupt has left under way: it is a step, though nobody has seen its end. Other
        requests must not use its batch before."""
        if self._pushing is not None and self._pushing._in_flight:
            try:
                self._pushing.wait(self.timeout if self._group is None else None)
            except errors.Error:
                if self._pushing._in_flight:
                    raise
                # It is no step; the next push is told if no other can be.
        self._note_push()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets what was gathered."""
        flag("set_to_none", set_to_none)
        for name, total in self._sums.items():
            total.grad = None  # from here on nothing is gathered
            self._gathered[name].clear()
            total.data = torch.empty(0, total.shape[1])

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("the optimizer's state is in embtierd: save state_dict() of the module")
