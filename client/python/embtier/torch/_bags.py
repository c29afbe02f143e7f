# SPDX-License-Identifier: Apache-2.0
"""Bags, and the ids for them in a forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from .._arguments import flag, integer, kind_of, shown
from .._connection import table_of
from .._ids import as_dtype, as_ids
from .._server import Table
from .._types import POOL_NUMBERS, one_of

Input = torch.Tensor | tuple[torch.Tensor | None, ...]

MODES = tuple(POOL_NUMBERS)


@dataclass
class Bag:
    """Describes how one feature pools rows of a table. The fields are those of torch.nn.EmbeddingBag."""

    table: Table
    mode: str = "mean"
    include_last_offset: bool = False
    padding_idx: int | None = None
    unsigned_ids: bool = False

    def __post_init__(self) -> None:
        table_of("table", self.table)
        one_of("mode", MODES, self.mode)
        for field in ("include_last_offset", "unsigned_ids"):
            setattr(self, field, flag(field, getattr(self, field)))
        if self.padding_idx is None:
            return
        least = -(2**63) if self.unsigned_ids else -(2**64)
        self.padding_idx = integer("padding_idx", self.padding_idx, least, 2**64 - 1)
        limit = self.table.rows
        if limit is not None and not -limit <= self.padding_idx < limit:
            raise ValueError(f"padding_idx {self.padding_idx} is not within the {limit} rows")
        if self.padding_idx < 0 and not self.unsigned_ids:
            if limit is None:
                raise ValueError("padding_idx of an unbounded table cannot count from the end")
            self.padding_idx += limit


@dataclass
class Given:
    """Ids of one feature in bags, in the form that the server takes: without padding, in the processor's memory."""

    feature: str
    bag: Bag
    ids: torch.Tensor  # int64 [count], the bits of uint64
    offsets: torch.Tensor  # int64 [bags + 1]
    weights: torch.Tensor | None  # float32 [count]
    kept: torch.Tensor | None  # bool: the caller's ids that were kept; None: all
    device: torch.device  # of the caller's ids
    caller_weights: torch.Tensor | None  # as the caller gave them

    def __post_init__(self) -> None:
        self.sizes = self.ids.shape[0], self.offsets.shape[0] - 1

    def of_ids(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns @gradient [bags, dim] laid out by id, [count, dim], before weights."""
        counts = self.offsets.diff().to(gradient.device)
        if self.bag.mode == "mean":
            gradient = gradient / counts.clamp(min=1).unsqueeze(1)
        return gradient.repeat_interleave(counts, dim=0)

    def weight_gradient(self, values: torch.Tensor) -> torch.Tensor:
        """Returns @values, one for each id, in the shape of the caller's weights. Padding has 0."""
        assert self.caller_weights is not None
        if self.kept is None:
            return values.view(self.caller_weights.shape).to(self.caller_weights)
        gradient = torch.zeros(len(self.kept), dtype=torch.float32, device="cpu")
        gradient[self.kept] = values
        return gradient.view(self.caller_weights.shape).to(self.caller_weights)


def given_of(feature: str, bag: Bag, one: Input) -> Given:
    arguments = one if isinstance(one, (tuple, list)) else (one,)
    if not 1 <= len(arguments) <= 3:
        raise ValueError(f"ids, offsets and per_sample_weights are 1 to 3 tensors, not {len(arguments)}")
    caller_ids, caller_offsets, caller_weights = (*arguments, None, None)[:3]
    _check_tensor(f"the ids of {shown(feature)}", caller_ids)
    assert caller_ids is not None
    ids = _signed_ids(bag, caller_ids)
    offsets, end = _offsets(bag, caller_ids, caller_offsets)
    weights = None
    if caller_weights is not None:
        _check_tensor(f"the per_sample_weights of {shown(feature)}", caller_weights)
        if bag.mode == "max":
            raise NotImplementedError("per_sample_weights are for the modes sum and mean, not for max")
        if caller_weights.shape != caller_ids.shape or not caller_weights.is_floating_point():
            raise ValueError(
                "per_sample_weights must be floating-point numbers of the ids' shape "
                f"{tuple(caller_ids.shape)}, not {caller_weights.dtype} {shown(tuple(caller_weights.shape))}"
            )
        caller_weights = caller_weights.detach()
        weights = _f32_weights(caller_weights.reshape(-1))
    kept = None
    if bag.padding_idx is not None:
        kept = ids != (bag.padding_idx + 2**63) % 2**64 - 2**63
    if end < ids.shape[0]:  # as in torch, which ignores ids behind the last bag
        kept = torch.ones(len(ids), dtype=torch.bool, device="cpu") if kept is None else kept
        kept[end:] = False
    if kept is not None:
        ids = ids[kept]
        weights = None if weights is None else weights[kept]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64, device="cpu"), kept.cumsum(0)])[offsets]
    return Given(feature, bag, ids, offsets, weights, kept, caller_ids.device, caller_weights)


def refuse_nested(what: str, tensor: torch.Tensor) -> None:
    if tensor.is_nested:
        raise TypeError(f"{what} must have the layout torch.jagged, which nested_tensor() makes by layout=torch.jagged")


def _check_tensor(what: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {kind_of(tensor)} {shown(tensor)}")
    refuse_nested(what, tensor)
    if tensor.layout != torch.strided or tensor.is_meta:
        raise TypeError(f"{what} must be a dense tensor with numbers, not one of {tensor.layout} on {tensor.device}")


def _f32_weights(weights: torch.Tensor) -> torch.Tensor:
    """Returns a copy, because the caller may change the original before the backward pass."""
    if weights.dtype == torch.float64:
        return torch.from_numpy(as_dtype("per_sample_weights", weights, np.dtype("<f4")))
    return weights.to("cpu", torch.float32, copy=True)


def _signed_ids(bag: Bag, ids: torch.Tensor) -> torch.Tensor:
    """Returns a copy, because the caller may change the original before the backward pass."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"row ids must be int32 or int64, not {ids.dtype}")
    flat = ids.detach().reshape(-1).to("cpu", torch.int64, copy=True)
    if not bag.unsigned_ids and flat.numel() and int(flat.min()) < 0:
        as_ids(flat)  # raises an error that names the id
    return flat


@lru_cache(maxsize=64)
def _equal_offsets(count: int, length: int, is_inference: bool) -> torch.Tensor:
    """Returns a shared tensor that no code may write. @is_inference keeps tensors of inference_mode() within that
    mode."""
    return torch.arange(count + 1, dtype=torch.int64, device="cpu") * length


def _offsets(bag: Bag, ids: torch.Tensor, offsets: torch.Tensor | None) -> tuple[torch.Tensor, int]:
    """Returns all offsets, with the last one, and the last one."""
    if ids.dim() == 2:
        if offsets is not None:
            raise ValueError("ids of two dimensions are bags of one length: they take no offsets")
        return _equal_offsets(*ids.shape, torch.is_inference_mode_enabled()), ids.numel()
    if ids.dim() != 1:
        raise ValueError(f"ids have 1 or 2 dimensions, not {ids.dim()}")
    if offsets is not None:
        _check_tensor("offsets", offsets)
    if offsets is None or offsets.dim() != 1:
        raise ValueError("ids of one dimension need offsets of one dimension")
    if offsets.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"offsets must be int32 or int64, not {offsets.dtype}")
    if bag.include_last_offset and len(offsets) == 0:
        raise ValueError("include_last_offset: at least one offset is needed, the last")
    offsets = offsets.detach().to("cpu", torch.int64, copy=True)
    if bag.include_last_offset and 0 <= offsets[-1] < len(ids):
        raise ValueError(
            f"include_last_offset: the last offset is the number of ids, {len(ids)}, not {offsets[-1]}; versions of "
            "torch treat ids behind it differently"
        )
    if not bag.include_last_offset:
        end = len(ids) if len(offsets) else 0
        offsets = torch.cat([offsets, torch.tensor([end], dtype=torch.int64, device="cpu")])
    if offsets[0] != 0:
        raise RuntimeError(f"offsets[0] must be 0, not {offsets[0]}")
    end = int(offsets[-1])
    if not 0 <= end <= len(ids) or (offsets.diff() < 0).any():
        raise RuntimeError(f"offsets must not decrease, nor be more than the {len(ids)} ids")
    return offsets, end


