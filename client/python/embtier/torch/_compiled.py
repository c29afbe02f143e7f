# SPDX-License-Identifier: Apache-2.0
"""The pooled lookup as an operator of torch, so that torch.compile has a module in its graph. Other transforms are
refused.

``embtier::lookup`` pools, and returns a token before its outputs; ``embtier::push`` is its backward pass. Both are
opaque to the compiler, which knows their shapes from a fake implementation. The token is a tensor whose memory owns the
ticket. So a graph without a backward pass gives the ticket back. This needs torch 2.4 or newer; in older versions the
graph breaks at a module."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from ._bags import Given, Input
from ._rooms import Ticket

if TYPE_CHECKING:
    from ._modules import EmbeddingBagCollection

HAS_OPERATORS = hasattr(torch.library, "custom_op")

_modules: weakref.WeakValueDictionary[int, EmbeddingBagCollection] = weakref.WeakValueDictionary()
_passes: weakref.WeakValueDictionary[int, _Pass] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class _Pass:
    """A forward pass, with the data that its backward pass needs."""

    def __init__(self, module: EmbeddingBagCollection, given: list[Given], ticket: Ticket | None) -> None:
        self.module, self.given, self.ticket = module, given, ticket


class _Token:
    """The base of an array that a tensor is made of. It lives as long as the tensor's memory, and keeps the pass
    alive."""

    def __init__(self, one: _Pass) -> None:
        self._pass = one
        self._number = np.array([next(_numbers)], np.int64)
        self.__array_interface__ = self._number.__array_interface__
        _passes[int(self._number[0])] = one

    def tensor(self) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self))


def number_of(module: EmbeddingBagCollection) -> int:
    """Returns the number by which an operator finds @module."""
    number = next(_numbers)
    _modules[number] = module
    return number


def is_compiling() -> bool:
    return HAS_OPERATORS and torch.compiler.is_compiling()


def refuse_transforms() -> None:
    """RuntimeError where a pass would be recorded, or would be run by something other than a call."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a CUDA graph cannot record requests, and rows are in embtierd: record the rest of the model without "
            "this module"
        )
    if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
        raise RuntimeError("forward-mode derivatives (torch.autograd.forward_ad) do not go through rows that are in embtierd")
    if torch.jit.is_tracing():
        raise RuntimeError(
            "torch.jit.trace would record rows as constants, and rows are in embtierd: trace the model without this "
            "module"
        )
    peek = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)
    if peek is not None and peek() is not None:
        raise RuntimeError(
            "torch.func (vmap, grad, jvp) does not support rows that are in embtierd: call this module outside of it"
        )


def refuse_export() -> None:
    """RuntimeError under torch.export, where torch 2.7 and newer set a flag. is_exporting() does not do: in 2.11 it is
    also true under torch.compile."""
    if getattr(torch.compiler, "_is_exporting_flag", False):
        raise RuntimeError(
            "torch.export does not support rows that are in embtierd: export the model without this module"
        )


def forward(module: EmbeddingBagCollection, inputs: Mapping[str, Input]) -> dict[str, torch.Tensor]:
    """Does the work of the module's forward() in a graph."""
    places, dims, ends, ids, offsets, weights = [], [], [], [], [], []
    weighted = [-1]  # never empty, because torch takes an empty list for one of tensors
    for feature, one in inputs.items():
        given = (one, None, None) if isinstance(one, torch.Tensor) else (*one, None, None)
        place = module._features[feature]
        places.append(place)
        dims.append(module._dims[place])
        ends.append(module._ends[place])
        ids.append(given[0])
        if given[1] is not None:
            offsets.append(given[1])
        if given[2] is not None:
            weighted.append(len(ids) - 1)
            weights.append(given[2])
    anchor = module._anchor[0]
    found = torch.ops.embtier.lookup(
        anchor, module._number, _call_number(), torch.is_grad_enabled(), places, dims, ends, weighted, ids, offsets, weights
    )
    return dict(zip(inputs, found[1:]))


def _inputs(
    module: EmbeddingBagCollection, places: list[int], weighted: list[int],
    ids: list[torch.Tensor], offsets: list[torch.Tensor], weights: list[torch.Tensor],
) -> dict[str, Input]:  # fmt: skip
    """Rebuilds the module's inputs from the operator's lists. Ids of two dimensions have no offsets."""
    names = list(module.bags)
    left = iter(offsets)
    found: dict[str, Input] = {}
    for i, place in enumerate(places):
        of_bags = next(left, None) if ids[i].dim() != 2 else None
        of_weights = weights[weighted.index(i) - 1] if i in weighted else None
        found[names[place]] = (ids[i], of_bags, of_weights)
    return found


if HAS_OPERATORS:
    # A CUDA graph, which mode="reduce-overhead" records, cannot contain requests. Before torch had the tag, operators
    # with a tensor in CPU memory, like these two, were left out of such graphs anyway.
    _UNRECORDED = {"tags": [torch.Tag.cudagraph_unsafe]} if hasattr(torch.Tag, "cudagraph_unsafe") else {}

    @torch.compiler.assume_constant_result
    def _call_number() -> int:
        """Returns a different number for each call that is traced. The compiler would merge two identical calls."""
        return next(_numbers)

    @torch.library.custom_op(
        "embtier::lookup",
        mutates_args=(),
        **_UNRECORDED,
        schema="(Tensor anchor, int module, int call, bool trains, int[] places, int[] dims, int[] ends, int[] weighted, Tensor[] ids, "
        "Tensor[] offsets, Tensor[] weights) -> Tensor[]",
    )
    def lookup(anchor, module, call, trains, places, dims, ends, weighted, ids, offsets, weights):  # type: ignore[no-untyped-def]
        """@dims: dims of the outputs. @ends: number of offsets that begin no bag. Both are only for the fake
        implementation. They are arguments because a graph depends on them, and torch caches graphs on disk by their
        operators' arguments."""
        one = _modules[module]
        given = one._given(_inputs(one, places, weighted, ids, offsets, weights))
        trains = trains and one._is_trained()
        if trains and not one._trainable:
            one._check_trainable()
        outputs, ticket = one._lookup(given, trains and one.update == "backward")
        return [_Token(_Pass(one, given, ticket)).tensor(), *outputs]

    @lookup.register_fake
    def _(anchor, module, call, trains, places, dims, ends, weighted, ids, offsets, weights):  # type: ignore[no-untyped-def]
        found = [torch.empty(1, dtype=torch.int64, device="cpu")]
        left = iter(offsets)
        for i, dim in enumerate(dims):
            count = ids[i].shape[0] if ids[i].dim() == 2 else next(left).shape[0] - ends[i]
            found.append(ids[i].new_empty((count, dim), dtype=torch.float32))
        return found

    @torch.library.custom_op(
        "embtier::push",
        mutates_args=(),
        **_UNRECORDED,
        schema="(Tensor token, int[] places, Tensor[] gradients, int[] weighted, Tensor[] weights) -> Tensor[]",
    )
    def push(token, places, gradients, weighted, weights):  # type: ignore[no-untyped-def]
        """@gradients: gradients of the outputs at @places. @weighted: outputs whose @weights want a gradient. The first
        result is the anchor's gradient. It has an element, because torch could leave out an empty one, and the push
        with it."""
        one = _passes[int(token.item())]
        of_outputs: list[torch.Tensor | None] = [None] * len(one.given)
        for place, gradient in zip(places, gradients):
            of_outputs[place] = gradient
        wanted = [i in weighted and of_outputs[i] is not None for i in range(len(one.given))]
        with one.module._rooms.server._connection.turn:
            found = one.module._backward(one.given, one.ticket, of_outputs, wanted, one.module._is_trained())
        of_weights = [found[i] for i in weighted]
        return [torch.zeros(1, dtype=torch.float32, device="cpu"), *[torch.zeros_like(w) if g is None else g for g, w in zip(of_weights, weights)]]

    @push.register_fake
    def _(token, places, gradients, weighted, weights):  # type: ignore[no-untyped-def]
        return [torch.empty(1, dtype=torch.float32, device="cpu"), *map(torch.empty_like, weights)]

    def _setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
        *_, weighted, ids, offsets, weights = inputs
        ctx.save_for_backward(output[0], *weights)
        ctx.weighted, ctx.counts = list(weighted[1:]), (len(ids), len(offsets), len(weights))

    def _backward(ctx, gradients):  # type: ignore[no-untyped-def]
        token, *weights = ctx.saved_tensors
        needed = ctx.needs_input_grad[10]
        wanted = [j for j in range(len(weights)) if needed[j]]
        places = [i for i, gradient in enumerate(gradients[1:]) if gradient is not None]
        found = torch.ops.embtier.push(
            token, places, [gradients[1 + i] for i in places], [ctx.weighted[j] for j in wanted], [weights[j] for j in wanted]
        )
        of_weights = [None] * len(weights)
        for j, gradient in zip(wanted, found[1:]):
            of_weights[j] = gradient
        ids, offsets, _ = ctx.counts
        return found[0], None, None, None, None, None, None, None, [None] * ids, [None] * offsets, of_weights

    lookup.register_autograd(_backward, setup_context=_setup)
