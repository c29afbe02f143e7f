# SPDX-License-Identifier: Apache-2.0
"""Ids in bags of different lengths as one nested tensor, of the layout torch.jagged. torch 2.4 or newer."""

from __future__ import annotations

from typing import Any

import torch

from ._bags import Bag, Input, refuse_nested
from ._compiled import is_compiling

_JAGGED = getattr(torch, "jagged", None) if hasattr(getattr(torch, "nested", None), "nested_tensor_from_jagged") else None


def is_jagged(tensor: Any) -> bool:
    return _JAGGED is not None and isinstance(tensor, torch.Tensor) and tensor.layout == _JAGGED


def values_of(what: str, tensor: torch.Tensor) -> torch.Tensor:
    """Returns all numbers of a jagged @tensor, [total, ...], one after another. Gradients go back through them."""
    if not tensor.is_contiguous():
        raise ValueError(f"{what} must be contiguous: a nested tensor of narrow() or transpose() is made so by contiguous()")
    return tensor.values()


def flat_ids(ids: torch.Tensor) -> torch.Tensor:
    """Returns the values of a jagged tensor, or other @ids unchanged."""
    if is_jagged(ids):
        return values_of("the ids", ids)
    refuse_nested("the ids", ids)
    return ids


def bags_of(bag: Bag, one: Input) -> Input:
    """Returns @one of a module's inputs. A jagged tensor of ids, [bags, lengths], becomes values and offsets."""
    given = one if isinstance(one, (tuple, list)) else (one,)
    if not any(map(is_jagged, given)):
        return one
    ids, offsets, weights = (*given, None, None)[:3]
    if not is_jagged(ids) or offsets is not None or not (weights is None or is_jagged(weights)):
        raise TypeError("a nested tensor of ids takes no offsets, and only per_sample_weights that are nested in the same way")
    if ids.dim() != 2:
        raise ValueError(f"a nested tensor of ids has two dimensions, [bags, lengths], not {ids.dim()}")
    values, ends = values_of("the ids", ids), ids.offsets()
    if not is_compiling() and int(ends[-1]) != len(values):
        raise ValueError(f"the last offset of a nested tensor of ids is the number of its values, {len(values)}, not {int(ends[-1])}")
    if weights is not None:
        if not is_compiling() and not torch.equal(weights.offsets(), ends):
            raise ValueError("per_sample_weights must have the lengths of the ids")
        weights = values_of("per_sample_weights", weights)
    return values, ends if bag.include_last_offset else ends[:-1], weights


def like(tensor: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Returns @rows, [total, ..., dim], nested like @tensor, so that the two can be added."""
    return torch.nested.nested_tensor_from_jagged(rows, offsets=tensor.offsets())
