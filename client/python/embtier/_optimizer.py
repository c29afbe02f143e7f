# SPDX-License-Identifier: Apache-2.0
"""Steps of the tables' optimizers, as torch sees them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import errors
from ._batch import BagBatch, PushBatch
from ._prefetcher import Ahead, push_with
from ._server import Table

if TYPE_CHECKING:
    from .torch import _Rooms


class Optimizer(torch.optim.Optimizer):
    """What schedulers and gradient scalers see of the tables' optimizers; modules make theirs, see the
    text of embtier.torch. One group, with "lr"; its parameters stand for the tables, and have the gradients
    gathered with ``update="step"``, float32 [distinct rows, dim]."""

    def __init__(self, tables: Sequence[Table], rooms: _Rooms, lr: float) -> None:
        self._tables = {table.name: table for table in tables}
        self._rooms = rooms
        self._sums = {name: torch.nn.Parameter(torch.empty(0, t.dim)) for name, t in self._tables.items()}
        self._ids: dict[str, torch.Tensor] = {}  # int64 [distinct rows] of those in _sums
        self.steps = 0
        self.skipped_pushes = 0
        super().__init__(list(self._sums.values()), {"lr": lr})

    @property
    def lr(self) -> float:
        return self.param_groups[0]["lr"]

    def add(self, table: Table, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        """Adds gradients, [count, dim], of rows, int64 [count]."""
        total = self._sums[table.name]
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
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Applies what was gathered, by one push for all tables, and forgets it, also if that fails.
        Does nothing if there is nothing."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        given = [name for name, total in self._sums.items() if total.grad is not None and len(total)]
        try:
            if given:
                self._push_rows(given)
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

    def push(self, batch: BagBatch | PushBatch, ahead: Ahead | None = None, **options: Any) -> bool:
        """One step, which releases what @ahead has. False if the server refused it for numbers that are not finite."""
        try:
            push_with(ahead, batch, float(self.lr), self.steps + 1, **options)
        except errors.NonfiniteError as error:  # type: ignore[attr-defined]
            self.skipped_pushes += 1
            if self.skipped_pushes == 1:
                warnings.warn(f"skipped a push: {error}; more are counted in skipped_pushes", stacklevel=2)
            return False
        self.steps += 1
        return True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets what was gathered."""
        self._ids.clear()
        for total in self._sums.values():
            total.grad = None
            total.data = torch.empty(0, total.shape[1])

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("the optimizer's state is in embtierd: save state_dict() of the module")
