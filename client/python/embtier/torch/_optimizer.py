# SPDX-License-Identifier: Apache-2.0
"""Steps of the tables' optimizers in the form that torch expects."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import torch

from .. import errors
from .._arguments import flag, integer, kind_of, learning_rate, number, several, shown
from .._batch import BagBatch, PushBatch
from .._group import STEP_MAX, Group
from .._server import Table
from ._prefetcher import Ahead, push_with
from ._rooms import Rooms
from ._rows import Rows, not_here, warn_user

_PASSED_BY = (
    "the rows of table {0!r} are updated in the backward pass, with the lr of their module: this {1} does not reach "
    "them, and neither do its learning rate, schedulers and weight decay. embtier.torch.CombinedOptimizer(optimizer, "
    "model) steps both"
)
_NOT_SEEN = (
    "{1}() sees no gradient of the rows of table {0!r}, which were updated in the backward pass. A module made with "
    'update="step" has gradients that can be clipped, scaled and read'
)
_PART_SEEN = (
    "{1}() sees this member's part of the gradients of the rows of table {0!r}; those of the group are averaged in the server. Members "
    "that clip by such a norm clip differently, and their models drift apart: clip_norm= of the table bounds its gradients"
)
_SCALED = (
    "the rows of table {0!r} were updated in the backward pass, by gradients of the scaled loss: make the module with "
    'update="step", or assign module.grad_scale = scaler.get_scale'
)
_TOLD_OPTIMIZERS: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
_TOLD_FUNCTIONS: set[tuple[str, bool]] = set()


def _self_of(frame: FrameType) -> Any:
    """Returns the object on which the method of @frame was called, or None."""
    if frame.f_code.co_varnames[:1] != ("self",):
        return None
    found = frame.f_locals
    method_of = found.get("self")
    if sys.version_info < (3, 13):
        found.clear()  # this copy stays in the frame, and would keep the locals and their tickets alive
    return method_of


def _without_comprehensions(frame: FrameType) -> FrameType:
    while frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _user_of(frame: FrameType) -> tuple[FrameType, str]:
    """Returns the frame of the user's code that called torch's code, to which @frame belongs, and the name of torch's
    function."""
    function = frame.f_code.co_name
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("torch.", "embtier.")):
        if not frame.f_code.co_name.startswith("_"):  # else a decorator's function
            function = frame.f_code.co_name
        frame = frame.f_back
    return _without_comprehensions(frame), function


_ALTERNATIONS_TOLD = 2


def _is_in_step(frame: FrameType | None, optimizer: torch.optim.Optimizer) -> bool:
    """True if @frame, of a method of @optimizer, is below the optimizer's step(). Other methods, such as one that logs
    norms, only read."""
    while frame is not None:
        if frame.f_code.co_name == "step" and _self_of(frame) is optimizer:
            return True
        frame = frame.f_back
    return False


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """Returns the result of a step's @closure, which makes the passes; None without a closure."""
    if closure is None:
        return None
    if not callable(closure):
        raise TypeError(f"closure must be a function or None, not {kind_of(closure)} {shown(closure)}")
    with torch.enable_grad():
        return closure()


def unscale(optimizer: torch.optim.Optimizer, scaler: Any) -> bool:
    """Unscales gradients, which a GradScaler leaves to the step() of an optimizer that _step_supports_amp_scaling.
    Before torch 2.0 the scaler passes itself as an argument. Newer ones set their scale as an attribute, unless
    unscale_() has been called. Returns False if the scaler has found gradients that are not finite."""
    if scaler is not None:
        state = scaler._per_optimizer_states[id(optimizer)]
        if state["stage"].value == 0:
            scaler.unscale_(optimizer)
        return not any(float(found) for found in state.get("found_inf_per_device", {}).values())
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for gradient in [one.grad for one in parameters]:
            if gradient is not None:
                gradient.detach().mul_(1 / float(scale))
    return not float(getattr(optimizer, "found_inf", 0))


class Optimizer(torch.optim.Optimizer):
    """The optimizers of a module's tables, as schedulers and gradient scalers see them. Each module makes its own; see
    the text of embtier.torch. It has one group, with "lr"; its parameters are the module's :class:`Rows`."""

    def __init__(
        self, rows: Sequence[Rows], rooms: Rooms, lr: float, gathers: bool, averages: bool = True, steps: int = 0
    ) -> None:
        rows = several("rows", rows)
        if not isinstance(rooms, Rooms):
            raise TypeError(f"rooms must be the Rooms of a module, not {kind_of(rooms)} {shown(rooms)}")
        for one in rows:
            if not isinstance(one, Rows):
                raise TypeError(f"one of the rows must be a Rows, not {kind_of(one)} {shown(one)}")
            one._optimizer = weakref.ref(self)
        self._rows = {one.table.name: one for one in rows}
        self._rooms = rooms
        self.gathers = flag("gathers", gathers)  # update="step": step() makes the steps
        self._averages = flag("averages", averages)  # gradients of the members of a group
        self._steps = self._steps_found = integer("steps", steps, 0, STEP_MAX)  # _steps_found: the tables' step at the start
        self._pushing: BagBatch | PushBatch | None = None  # the batch of a push that was not counted yet
        self._session = rooms.server._connection.session
        self._table_step = self._steps  # the tables' last known step in that session
        self._has_pushed = False
        self._alternations = 0  # between this module and others
        self.timeout: float | None = None  # seconds for a push without a group; in a group other members may delay its end
        self.scale: float | Callable[[], float] = 1.0  # of the loss; a GradScaler assigns a grad_scale of its own
        self._group: Group | None = None
        self.skipped_pushes = 0
        super().__init__(list(self._rows.values()), {"lr": learning_rate("lr", lr)})

    @property
    def lr(self) -> float:
        return self.param_groups[0]["lr"]

    @property
    def steps(self) -> int:
        """The number of steps; with a group, the number of the group's steps."""
        self._note_push()
        return self._steps if self._group is None else self._group.step

    @steps.setter
    def steps(self, steps: int) -> None:
        steps = integer("steps", steps, 0, STEP_MAX)
        if self._group is not None and steps != self._group.step:
            raise ValueError(
                f"group {self._group.name!r} is at step {self._group.step}: to continue from {steps}, its "
                f"members must join with step={steps}"
            )
        self._pushing = None
        self._steps = steps

    @property
    def divisor(self) -> int:
        """Divides this member's gradients before they are added to those of the group's other members."""
        return self._group.size if self._group is not None and self._averages else 1

    @property
    def group(self) -> Group | None:
        """The group of trainers that makes these steps; may be assigned, such as one that was joined again."""
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
                f"group {group.name!r} belongs to another module: a group takes one push per member and step, so "
                "join one group for each module"
            )
        steps = self.steps
        if steps in (0, group.step):
            return
        said = f"the module's tables are at step {steps}, and group {group.name!r} at {group.step}: join it with step={steps}"
        if steps != self._steps_found:
            raise ValueError(said.replace("'s tables are", " is", 1))
        if any(one.table.spec.beta1 is not None for one in self._rows.values()):
            warn_user(f"{said}, as Adam corrects by it, unless load_state_dict() goes back to another")

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """True asks a GradScaler to call step() even if a gradient is not finite. The other members of a group wait for
        the push, and its refusal informs them."""
        return self._group is not None

    def _tell_reader(self, rows: Rows, frame: FrameType) -> None:
        """Tells the code of @frame, which asks for the gradient of @rows, that there is none, or only this member's
        part. Raises RuntimeError, or warns once for each optimizer and function."""
        frame = _without_comprehensions(frame)
        method_of = _self_of(frame)
        if frame.f_code.co_name in ("zero_grad", "_apply") or method_of is self or not rows.requires_grad:
            return
        steps = isinstance(method_of, torch.optim.Optimizer) and _is_in_step(frame, method_of)
        if self.gathers and (steps or self._group is None or rows.gathered() is None or "unscale" in frame.f_code.co_name):
            if steps and rows.gathered() is not None:
                raise RuntimeError(not_here(rows))
            return
        if "unscale" in frame.f_code.co_name:
            if not callable(self.scale) and self.scale == 1:
                raise RuntimeError(_SCALED.format(rows.table.name))
            return
        user, function = _user_of(frame)
        if steps and method_of not in _TOLD_OPTIMIZERS:
            _TOLD_OPTIMIZERS.add(method_of)
            warn_user(_PASSED_BY.format(rows.table.name, kind_of(method_of)), user)
        elif not steps and (function, self.gathers) not in _TOLD_FUNCTIONS:
            _TOLD_FUNCTIONS.add((function, self.gathers))
            warn_user((_PART_SEEN if self.gathers else _NOT_SEEN).format(rows.table.name, function), user)

    def step(self, closure: Callable[[], Any] | None = None, **scaling: Any) -> Any:
        """Applies the gathered gradients with one push for all tables, and forgets them, also after an error. Without
        gradients it does nothing, except in a group, whose other members wait for a push."""
        loss = loss_of(closure)
        unscale(self, scaling.get("grad_scaler"))
        try:
            gathered = [(rows.table, rows.gathered()) for rows in self._rows.values()]
            given = [(table, *one) for table, one in gathered if one is not None]
            if given:
                self._push_rows(given)
            elif self.gathers and self._group is not None:
                self.push_nothing()
        finally:
            for rows in self._rows.values():
                rows.clear()
        return loss

    def refuse_step(self) -> None:
        """Makes this member's part of a step that a GradScaler skips: a push that the server refuses, which informs
        the others. A table made with allow_nonfinite would accept it, so if all tables are such, the part is an
        empty push."""
        for rows in self._rows.values():
            rows.clear()
            if not rows.table.spec.allow_nonfinite:
                nan = torch.full((1, rows.table.dim), float("nan"), dtype=torch.float32, device="cpu")
                rows.add_gradients(torch.zeros(1, dtype=torch.int64, device="cpu"), nan)
        self.step()

    def _push_rows(self, given: list[tuple[Table, torch.Tensor, torch.Tensor]]) -> None:
        parts = [(table, len(ids)) for table, ids, _ in given]
        batch = self._rooms.made(lambda: self._rooms.server.push_batch(parts))
        for i, (_, ids, gradient) in enumerate(given):
            batch.ids(i)[:] = ids.numpy().view(np.uint64)
            pushed = torch.from_numpy(batch.gradients(i)).copy_(gradient.detach())
            if self.divisor != 1:
                pushed.mul_(1 / self.divisor)
        self.push(batch)

    def push_nothing(self) -> None:
        """Makes this member's part of a step for which it has no gradients."""
        self.push(self._rooms.made(lambda: self._rooms.server.push_batch([])))

    def push(self, batch: BagBatch | PushBatch, ahead: Ahead | None = None, **options: Any) -> bool:
        """Makes one step, which releases the prefetch of @ahead. False if the server refused it for numbers that are
        not finite, of this member or another one of the group."""
        if not isinstance(batch, (BagBatch, PushBatch)):
            raise TypeError(f"batch must be a BagBatch or a PushBatch, not {kind_of(batch)} {shown(batch)}")
        if ahead is not None and not isinstance(ahead, Ahead):
            raise TypeError(f"ahead must be a Prefetcher's, not {kind_of(ahead)} {shown(ahead)}")
        self.wait_for_push()
        self.look_at_session()
        self._tell_of_others()
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
                warn_user(f"skipped a push: {error}; more are counted in skipped_pushes")
            return False
        self._note_push()
        return True

    def look_at_session(self) -> None:
        """Checks after Server.reconnect() if the rows have gone back to an earlier step, as after a server's crash. If
        so, warns and continues from their step."""
        session = self._rooms.server._connection.session
        if session == self._session or self._group is not None:
            return
        steps = []
        for rows in self._rows.values():
            with contextlib.suppress(errors.NoTableError):  # type: ignore[attr-defined]  # a pass over the table reports it
                steps.append(rows.table.step)
        self._session = session
        step, known = max(steps, default=self._table_step), self._table_step
        self._table_step = step
        if step < known:
            warn_user(
                f"the rows of table {next(iter(self._rows))!r} are of step {step} since the reconnect to the server, "
                "and this module "
                f"is at step {self._steps}: the server has gone back to a checkpoint. Rows and the rest of the model belong together "
                "again when the state that was saved with that checkpoint is loaded (docs/torch.md)"
            )
            self._steps = step
        elif step > known:  # pushes of others, or one of this module whose answer was lost
            self._steps = max(self._steps, step)

    def _tell_of_others(self) -> None:
        """Warns once if this module and others of this process take turns to train a table."""
        if self._group is not None:
            return
        pushers = self._rooms.server._connection.pushers
        found = [pushers[name]() for name in self._rows if name in pushers]
        others = [one for one in found if one is not None and one is not self and one._group is None]
        self._alternations += bool(others and self._has_pushed)
        if others and self._alternations == _ALTERNATIONS_TOLD:
            warn_user(
                f"several modules train table {next(iter(others[0]._rows))!r}, and each counts and makes its own "
                "steps: an EmbeddingBagCollection of their bags makes one step"
            )
        self._has_pushed = True
        for name in self._rows:
            pushers[name] = weakref.ref(self)

    def _note_push(self) -> None:
        """Counts the step of the last push if it has been applied. Further calls have no effect."""
        if self._pushing is not None and not self._pushing._in_flight:
            self._steps = max(self._steps, self._pushing._pushed_step)
            self._table_step = max(self._table_step, self._pushing._pushed_step)
            self._pushing = None

    def wait_for_push(self) -> None:
        """Waits for a push that an interrupt has left in flight. It is a step, though no caller has seen its end. Other
        requests must not use its batch before it ends."""
        if self._pushing is not None and self._pushing._in_flight:
            try:
                self._pushing.wait(self.timeout if self._group is None else None)
            except errors.Error:
                if self._pushing._in_flight:
                    raise
                # It is no step. If no other step can be made either, the next push reports it.
        self._note_push()

    def settle(self) -> bool:
        """True if the step of the rows is known. Waits for a push that an interrupt has left in flight, unless it is a
        group's, whose other members may be away."""
        pushing = self._pushing
        if pushing is not None and pushing._in_flight and self._group is not None:
            return False
        try:
            self.wait_for_push()
        except (errors.Error, RuntimeError):
            return False
        return True

    @property
    def rows(self) -> list[Rows]:
        return list(self._rows.values())

    def has_gathered(self) -> bool:
        return any(rows.gathered() is not None for rows in self._rows.values())

    def clear(self) -> None:
        """Forgets gathered gradients in a way that does not count as a mistake of the program."""
        for rows in self._rows.values():
            rows.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets gathered gradients."""
        flag("set_to_none", set_to_none)
        for rows in self._rows.values():
            rows.grad = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("the optimizer's state is in embtierd: save state_dict() of the module")
