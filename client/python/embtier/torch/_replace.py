# SPDX-License-Identifier: Apache-2.0
"""Puts stand-ins in the place of a model's embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .._arguments import integer, kind_of, learning_rate, shown, text
from .._server import Server, Table
from .._types import one_of
from ._embeddings import Embedding, EmbeddingBag
from ._modules import UPDATES

_ARGUMENTS = {
    torch.nn.EmbeddingBag: (EmbeddingBag, ("mode", "include_last_offset", "padding_idx")),
    torch.nn.Embedding: (Embedding, ("padding_idx",)),
}


@dataclass
class Replaced:
    """What :func:`replace` did with one module of torch's."""

    path: str  #: of the module in the model, "features.users"
    rows: int
    dim: int
    table: Table | None  #: None: the module stays
    reason: str  #: why it does, or ""

    def __str__(self) -> str:
        said = f"stays: {self.reason}" if self.table is None else f"table {self.table.name}"
        return f"{self.path}: {self.rows:,} x {self.dim}, {said}"


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
    """Puts an :class:`EmbeddingBag` or an :class:`Embedding` in the place of each torch.nn.EmbeddingBag and torch.nn.Embedding
    of @model that has @min_rows rows or more, and copies its rows to a table of its own, which is named @prefix and its path in
    the model. Returns what was done, one for each; ``print(*replaced, sep="\\n")`` tells it.

    The model trains as before with ``CombinedOptimizer(torch.optim.SGD(model.parameters(), lr), model)``, made afterwards; the
    optimizer of the tables, ``optimizer=`` of @options, is to be the same ("sgd" unless told). @lr, @update: of the new
    modules. @options: further ones of them, and of :meth:`Server.create_table`.

    Modules stay that have a weight which is another's too, max_norm, scale_grad_by_freq, or a dtype no table has; so do those
    of classes derived from torch's, and the model itself. If one cannot be replaced for another reason, the model stays as
    it was, tables that were made are dropped, and the error is raised.
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
    found, stand_ins = [], {}
    try:
        for path, module in model.named_modules():
            if not isinstance(module, tuple(_ARGUMENTS)):
                continue
            reason = _reason_to_stay(path, module, min_rows, uses)
            table = None
            if not reason:
                stand_ins[path] = _stand_in(module, server, prefix + path, {"lr": lr, "update": update, **options})
                table = stand_ins[path].table
            found.append(Replaced(path, module.num_embeddings, module.embedding_dim, table, reason))
    except BaseException:
        for one in stand_ins.values():
            server.drop_table(one.table.name)
        raise
    for path, one in stand_ins.items():
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, one)
    return found


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
        f"its class is {type(module).__name__}": type(module) not in _ARGUMENTS,
        f"fewer than {min_rows:,} rows": module.num_embeddings < min_rows,
        "its weight is another module's too": uses[id(weight)] > 1,
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
