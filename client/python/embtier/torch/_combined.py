# SPDX-License-Identifier: Apache-2.0
"""One optimizer for a model with rows in embtierd and other parameters in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .._arguments import flag, kind_of, learning_rate, short, shown
from ._modules import EmbeddingBagCollection
from ._optimizer import Optimizer, loss_of, unscale
from ._rows import Rows, replaced_by, warn_user

_KINDS = {
    "SGD": "sgd", "Adagrad": "adagrad", "Adam": "adam", "AdamW": "adamw", "SparseAdam": "sparse_adam", "RMSprop": "rmsprop",
}  # fmt: skip
_NOT_HERE = ("dampening", "nesterov", "amsgrad", "centered", "lr_decay", "initial_accumulator_value", "maximize")


class CombinedOptimizer(torch.optim.Optimizer):
    """Steps @optimizer, which has the parameters of this process, and the tables' optimizers of all modules of
    embtier.torch in @model::

        optimizer = CombinedOptimizer(torch.optim.Adam(model.parameters(), lr=1e-3), model)

    Schedulers, GradScaler, clip_grad_norm_(model.parameters()) and zero_grad() then reach the whole model, as with an
    optimizer over torch's weights; rows have gradients with ``update="step"`` only. ``param_groups`` are those of
    @optimizer, without the modules' :class:`Rows`, followed by one for each module with the module's "lr". A scheduler
    made over this optimizer scales each group's own "lr". Other settings of a group of @optimizer, such as
    weight_decay, do not apply to rows, whose table has its own. A warning names differing settings if @optimizer had
    the rows. LBFGS is refused (TypeError). Modules with ``update="backward"`` make their step in the backward pass,
    with this learning rate.

    state_dict() is that of @optimizer, with the groups of the rows as "rows"; the state of rows is in the server."""

    _is_made = False

    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer must be a torch.optim.Optimizer, not {kind_of(optimizer)} {shown(optimizer)}")
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)} {shown(model)}")
        if isinstance(optimizer, (CombinedOptimizer, Optimizer, torch.optim.LBFGS)):
            raise TypeError(
                f"optimizer cannot be a {kind_of(optimizer)}: its step() must run once, with the tables' optimizers"
            )
        modules = [one for one in model.modules() if isinstance(one, EmbeddingBagCollection)]
        if not modules:
            raise ValueError(
                "model has no module of embtier.torch: replace(), before this, puts them in (see its result); "
                "without any, use an optimizer of torch alone"
            )
        self.optimizer = optimizer
        self._of_rows = [module.optimizer for module in modules]
        self._first = 0  # number of the optimizer's groups that come before the rows' groups
        _tell_of_old_weights(optimizer)
        differences = [text for module in modules for text in _differences(optimizer, module)]
        if differences:
            warnings.warn(
                f"rows are not trained as {kind_of(optimizer)} would: {short('; '.join(differences), 500)}. See docs/torch.md", stacklevel=2
            )
        for group in optimizer.param_groups:
            for one in group["params"]:
                if isinstance(one, Rows):
                    optimizer.state.pop(one, None)  # torch's Adagrad makes it early
            group["params"] = [one for one in group["params"] if not isinstance(one, Rows)]
        # Groups that had only rows stay in @optimizer, because schedulers over it count its groups. They are left out
        # of param_groups.
        empty = {i for i, group in enumerate(optimizer.param_groups) if not group["params"]}
        self._left_out = empty if len(empty) < len(optimizer.param_groups) else empty - {0}
        self._first = len(optimizer.param_groups) - len(self._left_out)
        self._told_of_scheduler = False
        self._look_for_scheduler()
        super().__init__([torch.nn.Parameter(torch.empty(0))], dict(optimizer.defaults))
        for one in self._of_rows:  # schedulers cycle these with the learning rate; rows have none
            one.param_groups[0].update({key: optimizer.defaults[key] for key in ("momentum", "betas") if key in optimizer.defaults})
        self._is_made = True

    def _look_for_scheduler(self) -> None:
        """Warns if a scheduler was made over @optimizer alone. A scheduler wraps the step() of its optimizer to count
        the calls, which leaves a mark on it."""
        step = self.optimizer.step
        if not any(rows.requires_grad for one in self._of_rows for rows in one.rows):
            return
        if not self._told_of_scheduler and (getattr(step, "_with_counter", False) or getattr(step, "_wrapped_by_lr_sched", False)):
            self._told_of_scheduler = True
            warn_user(
                f"a scheduler was made over the {kind_of(self.optimizer)} that the CombinedOptimizer has: it does not reach the learning rates "
                "of rows. Make it over the CombinedOptimizer"
            )

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        own = [group for i, group in enumerate(self.optimizer.param_groups) if i not in self._left_out]
        of_rows = [group for one in self._of_rows for group in one.param_groups]
        return [*own[: self._first], *of_rows, *own[self._first :]]  # groups keep their places, on which schedulers rely

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
        """Refuses assignments. The base class makes some while it is constructed; these have no effect."""
        if self._is_made:
            raise TypeError(f"{what} are those of the optimizers that were combined, not {kind_of(value)} {shown(value)}")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters of this process to @optimizer; rows already have their groups."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, not {kind_of(param_group)} {shown(param_group)}")
        if not self._is_made:
            return
        given = param_group.get("params", [])
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        own = [one for one in given if not isinstance(one, Rows)]
        if own or not given:
            self.optimizer.add_param_group({**param_group, "params": own})

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Like that of the modules' optimizers: the other members of a group wait for the push."""
        return any(one._step_supports_amp_scaling for one in self._of_rows)

    def step(self, closure: Callable[[], Any] | None = None, **scaling: Any) -> Any:
        """Makes one step of all parameters. With a group of trainers a GradScaler also calls it for gradients that are
        not finite; then no member steps anything. If a group refuses the rows' step for one member's gradients, the
        other parameters do not change either."""
        self._look_for_scheduler()
        loss = loss_of(closure)
        is_finite = unscale(self, scaling.get("grad_scaler"))
        refused = False
        for one in self._of_rows:
            if is_finite or (one.group is not None and one.gathers):
                before = one.skipped_pushes
                one.step() if is_finite else one.refuse_step()
                refused = refused or (one.group is not None and one.skipped_pushes > before)
            else:
                one.zero_grad()
        if is_finite and not refused:
            self.optimizer.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        flag("set_to_none", set_to_none)
        if any(one.has_gathered() for one in self._of_rows) and not self._is_finite():
            for one in self._of_rows:  # a scaler has skipped the step for them, so this is no mistake of the program
                one.clear()
        self.optimizer.zero_grad(set_to_none=set_to_none)
        for one in self._of_rows:
            one.zero_grad()

    def _is_finite(self) -> bool:
        gradients = (one.grad for group in self.optimizer.param_groups for one in group["params"])
        return all(bool(one.isfinite().all()) for one in gradients if one is not None and not one.is_sparse)

    def state_dict(self) -> dict[str, Any]:
        groups = [{key: value for key, value in one.param_groups[0].items() if key != "params"} for one in self._of_rows]
        return {**self.optimizer.state_dict(), "rows": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        groups = state_dict.get("rows") if isinstance(state_dict, Mapping) else None
        if not isinstance(groups, list) or len(groups) != len(self._of_rows):
            raise ValueError(
                f"state_dict must be of a CombinedOptimizer of {len(self._of_rows)} modules of embtier.torch"
            )
        rates = [learning_rate("lr", group["lr"]) for group in groups]
        self.optimizer.load_state_dict({key: value for key, value in state_dict.items() if key != "rows"})
        for one, group, rate in zip(self._of_rows, groups, rates):
            one.param_groups[0].update({**group, "lr": rate})

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a CombinedOptimizer cannot be copied or pickled: the rows of its modules are in embtierd; save its "
            "state_dict()"
        )


def _tell_of_old_weights(optimizer: torch.optim.Optimizer) -> None:
    """Warns if @optimizer has weights that replace() has replaced by tables."""
    for one in (one for group in optimizer.param_groups for one in group["params"]):
        table = replaced_by(one)
        if table is not None:
            warn_user(
                f"the {kind_of(optimizer)} has a parameter {tuple(one.shape)} that replace() has put table {table!r} in the place of: make the "
                "optimizer after replace()"
            )


def _hyperparameters(group: dict[str, Any]) -> dict[str, float]:
    """Returns the hyperparameters of a @group of torch's optimizers that tables have too."""
    beta1, beta2 = group.get("betas", (None, None))
    given = {key: group.get(key) for key in ("eps", "alpha", "momentum", "weight_decay")} | {"beta1": beta1, "beta2": beta2}
    given["weight_decay"] = group.get("weight_decay", 0)
    return {key: float(value) for key, value in given.items() if value is not None}


def _differences(optimizer: torch.optim.Optimizer, module: EmbeddingBagCollection) -> list[str]:
    """Returns the differences between @optimizer's settings for the module's rows, if it has them, and those of the
    tables."""
    found = []
    for rows in module.rows:
        group = next((one for one in optimizer.param_groups if any(rows is have for have in one["params"])), None)
        if group is None or not rows.requires_grad:
            continue
        spec, name = rows.table.spec, f"table {rows.table.name!r}"
        kind = type(optimizer).__name__
        wanted = "momentum" if kind == "SGD" and group.get("momentum") else _KINDS.get(kind)
        if wanted not in (None, spec.optimizer):
            found.append(f"{name} has the optimizer {spec.optimizer!r}, not {wanted!r}")
            continue
        if group.get("lr") != module.lr:
            found.append(f"{name} has the learning rate {module.lr} of its module, not {group.get('lr')}")
        for key, value in _hyperparameters(group).items():
            have = getattr(spec, key) or 0
            if have != value and (value or key != "momentum"):
                found.append(f"{name} has {key} {have}, not {value}")
        found += [f"{name} has no {key}" for key in _NOT_HERE if group.get(key)]
    return found
