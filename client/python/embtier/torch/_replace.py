# SPDX-License-Identifier: Apache-2.0
"""Replaces a model's embeddings with stand-ins."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import torch

from .. import errors
from .._arguments import integer, kind_of, learning_rate, shown, text
from .._server import Server, Table
from .._types import one_of
from ._embeddings import Embedding, EmbeddingBag
from ._modules import UPDATES
from ._rows import note_replaced

_ARGUMENTS = {
    torch.nn.EmbeddingBag: (EmbeddingBag, ("mode", "include_last_offset", "padding_idx")),
    torch.nn.Embedding: (Embedding, ("padding_idx",)),
}


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HOOKS_OF_WEIGHTS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass
class Replaced:
    """The result of :func:`replace` for one of torch's modules."""

    path: str  #: path of the module in the model, "features.users"
    row_count: int
    dim: int
    table: Table | None  #: None: the module stays
    reason: str  #: reason why it stays, or ""
    copied: bool  #: False: the table already existed and keeps its rows

    def __str__(self) -> str:
        if self.table is None:
            said = f"stays: {self.reason}"
        else:
            said = f"table {self.table.name}" + ("" if self.copied else ", which already existed: with its rows, not the model's")
        return f"{self.path}: {self.row_count:,} x {self.dim}, {said}"


def replace(
    model: torch.nn.Module,
    server: Server,
    *,
    lr: float,
    min_rows: int = 0,
    prefix: str = "",
    update: str = "step",
    **options: Any,
) -> list[Replaced]:
    """Replaces each torch.nn.EmbeddingBag and torch.nn.Embedding of @model that has @min_rows rows or more with an
    :class:`EmbeddingBag` or an :class:`Embedding`. Copies its rows to a new table, whose name is @prefix and the
    module's path. Returns one result for each; ``print(*replaced, sep="\\n")`` shows them.

    The model trains as before with ``CombinedOptimizer(torch.optim.SGD(model.parameters(), lr), model)``, made
    afterwards. The optimizer of the tables, ``optimizer=`` of @options, must be the same ("sgd" by default). @lr and
    @update are those of the new modules. @options are further arguments of the modules and of
    :meth:`Server.create_table`. ``group=`` is a function of a path and the table's step, because each module has its
    own group: ``lambda path, step: server.join(path, size=world, member=rank, step=step)``. If a group cannot be
    joined, replace() leaves those it has joined.

    Some modules are not replaced: the model itself, modules of classes derived from torch's, and modules that share
    their weight with another. Modules with hooks, max_norm, scale_grad_by_freq, or a dtype that no table has are not
    replaced either. If a module cannot be replaced for another reason, the model does not change, the new tables are
    dropped, and the error is raised.

    A second run finds the tables of the first (ExistsError). With ``if_not_exists=True`` it uses them with their
    trained rows, and copies nothing.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)} {shown(model)}")
    if not isinstance(server, Server):
        raise TypeError(f"server must be an embtier.Server, not {kind_of(server)} {shown(server)}")
    min_rows = integer("min_rows", min_rows, 0)
    prefix = text("prefix", prefix).decode()
    learning_rate("lr", lr)
    one_of("update", UPDATES, update)
    uses = _uses_of_parameters(model)
    join = options.pop("group") if callable(options.get("group")) else None
    found, stand_ins, made, names = [], {}, {}, {}
    try:
        for path, module in model.named_modules(remove_duplicate=False):
            if not isinstance(module, tuple(_ARGUMENTS)):
                continue
            reason = _reason_to_stay(path, module, min_rows, uses)
            if not reason and update == "step" and getattr(module, "mode", "") == "max":
                reason = 'mode "max", which is trained with update="backward" only'
            table, copied = None, False
            if not reason and id(module) in made:  # the module is also at another path
                stand_ins[path] = made[id(module)]
            elif not reason:
                stand_ins[path] = made[id(module)] = _stand_in(module, server, prefix + path, {"lr": lr, "update": update, **options})
                names[id(module)] = path
            if not reason:
                table, copied = stand_ins[path].table, stand_ins[path].has_new_table
            found.append(Replaced(path, module.num_embeddings, module.embedding_dim, table, reason, copied))
    except errors.ExistsError as error:  # type: ignore[attr-defined]
        _drop(server, made)
        error.args = (f"{str(error).split(';')[0]}: replace() uses it if if_not_exists=True; drop it to start afresh",)
        raise
    except BaseException:
        _drop(server, made)
        raise
    if join is not None:
        _join(join, names, made, server)
    for path, one in stand_ins.items():
        note_replaced(model.get_submodule(path).weight, one.table.name)
    for path, one in stand_ins.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, one)
    return found


def _join(join: Any, names: dict[int, str], made: dict[int, Any], server: Server) -> None:
    """Gives each module its group, at the step of its table. All modules get one, or none."""
    joined = []
    try:
        for number, one in made.items():
            joined.append(join(names[number], one.steps))
            one.group = joined[-1]
    except BaseException:
        for group in joined:
            with contextlib.suppress(errors.Error, AttributeError):
                group.leave()
        _drop(server, made)
        raise


def _drop(server: Server, made: dict[int, Any]) -> None:
    """Drops the tables that were made for the modules."""
    for one in made.values():
        if one.has_new_table:
            server.drop_table(one.table.name)


def _uses_of_parameters(model: torch.nn.Module) -> dict[int, int]:
    uses: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    return uses


def _reason_to_stay(path: str, module: Any, min_rows: int, uses: dict[int, int]) -> str:
    weight = module.weight
    reasons = {
        "it is the model itself": not path,
        "its weight is not a parameter": "weight" not in module._parameters,
        "it has hooks": any(getattr(module, one, None) for one in _HOOKS),
        "its weight has hooks": any(getattr(weight, one, None) for one in _HOOKS_OF_WEIGHTS),
        f"its class is {type(module).__name__}": type(module) not in _ARGUMENTS,
        f"fewer than {min_rows:,} rows": module.num_embeddings < min_rows,
        "its weight is shared with another module": uses.get(id(weight), 0) > 1,
        "max_norm": module.max_norm is not None,
        "scale_grad_by_freq": module.scale_grad_by_freq,
        f"dtype {weight.dtype}": weight.dtype not in (torch.float32, torch.float16, torch.bfloat16),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _stand_in(module: Any, server: Server, name: str, options: dict[str, Any]) -> EmbeddingBag | Embedding:
    kind, attributes = _ARGUMENTS[type(module)]
    own = {key: getattr(module, key) for key in attributes}
    frozen = not module.weight.requires_grad
    made = kind.from_pretrained(module.weight.detach(), freeze=frozen, server=server, name=name, **own, **options)
    return made.train(module.training)
