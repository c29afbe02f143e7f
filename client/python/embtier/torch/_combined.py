# SPDX-License-Identifier: Apache-2.0
"""One optimizer for a model whose rows are in embtierd and whose other parameters are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._arguments import flag, kind_of, learning_rate, shown
from ._modules import EmbeddingBagCollection
from ._optimizer import unscale
from ._rows import Rows


class CombinedOptimizer(torch.optim.Optimizer):
    """Steps @optimizer, which has the parameters that are here, and the tables' optimizers of all modules of
    embtier.torch in @model::

        optimizer = CombinedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-3), model)

    Schedulers, GradScaler, clip_grad_norm_(model.parameters()) and zero_grad() then have the whole model, as with an
    optimizer over weights of torch's; the gradients of rows are there with ``update="step"`` only.
    ``param_groups`` are @optimizer's, without the modules' :class:`Rows`, and after them one for each
    module, whose "lr" is the module's: a scheduler scales each group's own. What else a group of @optimizer has,
    such as weight_decay, is not for rows: their table has its own. Modules with ``update="backward"`` make their step in the
    backward pass, and follow the learning rate.

    state_dict() is that of @optimizer, with the modules' learning rates as "rows_lr"; the state of rows is the
    server's."""

    _is_made = False

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {kind_of(optimizer)} {shown(optimizer)}")
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)} {shown(model)}")
        modules = [one for one in model.modules() if isinstance(one, EmbeddingBagCollection)]
        if not modules:
            raise ValueError("model has no module of embtier.torch: its optimizer needs nothing beside it")
        self.optimizer = optimizer
        self._of_rows = [module.optimizer for module in modules]
        for group in optimizer.param_groups:
            group["params"] = [one for one in group["params"] if not isinstance(one, Rows)]
        super().__init__([torch.nn.Parameter(torch.empty(0))], dict(optimizer.defaults))
        self._is_made = True

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for one in (self.optimizer, *self._of_rows) for group in one.param_groups]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._keep("param_groups", groups)

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self._keep("state", state)

    def _keep(self, what: str, value: Any) -> None:
        """The base class assigns its own when it is made."""
        if self._is_made:
            raise TypeError(f"{what} are those of the optimizers that were combined, not {kind_of(value)} {shown(value)}")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Of parameters that are here: to @optimizer's."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, not {kind_of(param_group)} {shown(param_group)}")
        if self._is_made:
            self.optimizer.add_param_group(param_group)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """As the modules' own: the other members of a group wait for the push."""
        return any(one._step_supports_amp_scaling for one in self._of_rows)

    def step(self, closure: Callable[[], Any] | None = None, **scaling: Any) -> Any:
        """One step of all. With a group of trainers a GradScaler has it called for gradients that are not finite, too:
        the other parameters stay as they are then."""
        loss = None
        if closure is not None and not callable(closure):
            raise TypeError(f"closure must be a function or None, not {kind_of(closure)} {shown(closure)}")
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if unscale(self, scaling.get("grad_scaler")):
            self.optimizer.step()
        for one in self._of_rows:
            one.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        flag("set_to_none", set_to_none)
        self.optimizer.zero_grad(set_to_none=set_to_none)
        for one in self._of_rows:
            one.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return {**self.optimizer.state_dict(), "rows_lr": [one.lr for one in self._of_rows]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        rates = state_dict.get("rows_lr") if isinstance(state_dict, Mapping) else None
        if not isinstance(rates, list) or len(rates) != len(self._of_rows):
            raise ValueError(
                f"state_dict must be of a CombinedOptimizer of {len(self._of_rows)} modules of embtier.torch"
            )
        self.optimizer.load_state_dict({key: value for key, value in state_dict.items() if key != "rows_lr"})
        for one, rate in zip(self._of_rows, rates):
            one.param_groups[0]["lr"] = learning_rate("rows_lr", rate)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a CombinedOptimizer belongs to modules whose rows are in embtierd: save its state_dict()")
