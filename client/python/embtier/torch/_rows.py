# SPDX-License-Identifier: Apache-2.0
"""The parameters of a module that stand for rows, as torch.optim, clip_grad_norm_ and GradScaler see them."""

from __future__ import annotations

import sys
import warnings
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from .._arguments import flag, kind_of, shown
from .._connection import table_of
from .._server import Table

if TYPE_CHECKING:
    from ._optimizer import Optimizer

_GRADIENT_OF = "_embtier_ids"  # attribute of a gathered gradient: the ids of its rows
_DISCARDS_TOLD = 3
_ADDS_TOLD = 100


def warn_user(text: str, frame: FrameType | None = None) -> None:
    """Warns with the place of the line that called torch's code or ours, starting from @frame, or from the caller."""
    frame = frame or sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("torch.", "embtier.")):
        frame = frame.f_back
    warnings.warn_explicit(text, UserWarning, frame.f_code.co_filename, frame.f_lineno)


class Rows(torch.nn.Parameter):
    """Stands for the rows of @table among the parameters of a module. It is float32 [0], because the server has the
    weights.

    :attr:`grad` is the gradient that torch.optim and clip_grad_norm_ read. It has the gradients gathered with
    ``update="step"``, float32 [distinct rows, dim], on the device of the outputs. :attr:`ids` has their rows. It is a
    Python property, so that the shape of the parameter, which DistributedDataParallel relies on, never changes.

    Only the table's optimizer changes rows. Code that would change them here, such as the step() of a torch.optim
    optimizer, gets a RuntimeError. With ``update="backward"`` there is never a gradient, because backward has pushed
    it. Code that asks for one is warned that it does not train the rows, once for each optimizer and each function. So
    the property looks at its caller; zero_grad() may ask without a warning. In a group of trainers the gradient is this
    member's part."""

    table: Table
    ids: torch.Tensor | None  # int64 [distinct rows] of the gradient; None without a gradient

    def __new__(cls, table: Table, requires_grad: bool) -> Rows:
        table_of("table", table)
        data = torch.empty(0, dtype=torch.float32)
        if data.is_meta:  # meta is the default device; to_empty() could not move data from there
            data = torch.empty(0, dtype=torch.float32, device="cpu")
        return super().__new__(cls, data, flag("requires_grad", requires_grad))

    def __init__(self, table: Table, requires_grad: bool) -> None:
        self.table = table
        self.ids = None
        self._gradient: torch.Tensor | None = None
        self._was_zero = False  # when it was assigned or gathered
        self._optimizer: weakref.ref[Optimizer] | None = None  # the optimizer that has these rows
        self._discards = 0  # gradients forgotten in a row without a step
        self._adds = 0  # backward passes since the last step

    def __repr__(self, *_: object, **__: object) -> str:
        return f"<embtier.torch.Rows of {self.table!r}>"

    @property
    def grad(self) -> torch.Tensor | None:  # type: ignore[override]
        optimizer = None if self._optimizer is None else self._optimizer()
        if optimizer is not None:
            optimizer._tell_reader(self, sys._getframe(1))
        return self._gradient

    @grad.setter
    def grad(self, gradient: torch.Tensor | None) -> None:
        """None forgets the gradient. A new gradient is for the same rows as the one before, unless it was gathered
        itself."""
        if gradient is None:
            self._discard()
            return
        ids = getattr(gradient, _GRADIENT_OF, self.ids)
        if not isinstance(gradient, torch.Tensor):
            raise TypeError(f"grad must be a torch.Tensor or None, not {kind_of(gradient)} {shown(gradient)}")
        if ids is None or gradient.shape != (len(ids), self.table.dim):
            raise RuntimeError(f"the gradient of table {self.table.name!r} is of rows that have no gathered gradients")
        self.ids, self._gradient, self._was_zero = ids, gradient, not gradient.any()

    @grad.deleter
    def grad(self) -> None:
        self._discard()

    def add_gradients(self, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adds gradients, [count, dim], of the rows @ids, int64 [count], to the gathered ones."""
        for what, tensor in (("ids", ids), ("gradient", gradient)):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"{what} must be a torch.Tensor, not {kind_of(tensor)} {shown(tensor)}")
        if self._gradient is not None and self.gathered() is None:
            self._forget()
        if self._gradient is not None:
            assert self.ids is not None
            ids = torch.cat([self.ids, ids])
            gradient = torch.cat([self._gradient.to(gradient.device), gradient])
        distinct, places = torch.unique(ids, return_inverse=True)
        added = torch.zeros(len(distinct), self.table.dim, dtype=torch.float32, device=gradient.device)
        added.index_add_(0, places.to(gradient.device), gradient)
        setattr(added, _GRADIENT_OF, distinct)
        self._adds += 1
        if self._adds == _ADDS_TOLD:
            self._say_not_stepped(f"were added up in {_ADDS_TOLD} backward passes")
        self.ids, self._gradient, self._was_zero = distinct, added, not added.any()

    def gathered(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Returns ids and gradients for a step, or None. Gradients that zero_grad(set_to_none=False) has made zero do
        not count."""
        if self._gradient is None or self.ids is None or (not self._was_zero and not self._gradient.any()):
            return None
        return self.ids, self._gradient

    def clear(self) -> None:
        """Forgets the gradient after a step."""
        self.ids = self._gradient = None
        self._discards = self._adds = 0

    def _discard(self) -> None:
        """Forgets the gradient without a step. A scaler does so with gradients that are not finite, which is no
        mistake."""
        gradient = self._gradient
        if gradient is None or not gradient.isfinite().all():
            self.ids = self._gradient = None
            self._adds = 0
            return
        self._forget()

    def _forget(self) -> None:
        self.ids = self._gradient = None
        self._adds = 0
        self._discards += 1
        if self._discards == _DISCARDS_TOLD:
            self._say_not_stepped(f"were forgotten {_DISCARDS_TOLD} times")

    def _say_not_stepped(self, happened: str) -> None:
        warn_user(
            f"gradients of the rows of table {self.table.name!r} {happened} without a step, so nothing is trained: "
            "call the "
            "module's step(), or that of a CombinedOptimizer, not that of the optimizer it was given"
        )

    def register_hook(self, hook: Any) -> Any:
        raise TypeError("hooks of rows are never called: change rows.grad before step(), with update=\"step\"")

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        self.register_hook(hook)

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("rows are in embtierd: a copy would stand for the same rows")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("rows are in embtierd: save state_dict() of the module")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        changed = args[0] if args else (kwargs or {}).get("tensor")  # functions of torch.nn.init
        if isinstance(changed, (list, tuple)):  # torch._foreach_add_() and similar
            changed = next((one for one in changed if isinstance(one, Rows)), None)
        if isinstance(changed, Rows) and _changes(function):
            raise RuntimeError(
                f"the rows of table {changed.table.name!r} are in the server, and cannot be written here: init= of "
                "the table draws them, table.set() writes them, and the table's optimizer trains them"
            )
        # No with statement: an interrupt between its parts would leave it in force.
        return torch._C._disabled_torch_function_impl(function, types, args, kwargs or {})


def _changes(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    return name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "share_memory_")


_replaced: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}  # by id(): weights that tables replace, and their names


def note_replaced(weight: torch.Tensor, table: str) -> None:
    """Records that replace() has put @table in place of @weight."""
    number = id(weight)
    _replaced[number] = (weakref.ref(weight, lambda _: _replaced.pop(number, None)), table)


def replaced_by(weight: torch.Tensor) -> str | None:
    """Returns the table that replace() has put in place of @weight, or None."""
    of, table = _replaced.get(id(weight), (lambda: None, ""))
    return table if of() is weight else None


def not_here(rows: Rows) -> str:
    return (
        f"the rows of table {rows.table.name!r} are trained by the table's optimizer in the server, and no other "
        "optimizer steps them. embtier.torch.CombinedOptimizer(optimizer, model) steps both"
    )


class RowsList(torch.nn.ParameterList):
    """The rows of a module. Its state_dict() has no entries, because the weights are in the server."""

    def _apply(self, function: Any, *_: Any, **__: Any) -> RowsList:
        """Conversions do not replace the parameters. They move the parameters' empty data, except to the device
        meta."""
        for rows in self:
            moved = function(rows.data)
            if not moved.is_meta:
                rows.data = moved
        return self

    def _save_to_state_dict(self, *_: Any) -> None:
        pass

    def _load_from_state_dict(self, *_: Any) -> None:
        pass
