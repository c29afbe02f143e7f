# SPDX-License-Identifier: Apache-2.0
"""The cases that torch's own tests of its embeddings cover, each with torch's module and with ours. Results and the rows after a
step are the same, or both refuse, or they differ as docs/torch.md says. The table there is this list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from conftest import TREE

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import embtier  # noqa: E402
import embtier.torch as et  # noqa: E402

ROWS, DIM, LR = 12, 4, 0.5
REFUSALS = (ValueError, TypeError, RuntimeError, IndexError, AssertionError, NotImplementedError, embtier.Error)


@dataclass
class Case:
    """@inputs: of the forward pass. @made: arguments of the module. @loss: computed from its result."""

    name: str
    inputs: Callable[[], tuple]
    made: dict[str, Any] = field(default_factory=dict)
    kind: str = "EmbeddingBag"
    modes: tuple[str, ...] = ("sum", "mean", "max")
    loss: Callable[[torch.Tensor], torch.Tensor] = lambda out: (out * torch.linspace(-1, 2, out.numel()).view(out.shape)).sum()
    torch_s: str = "a result"  # or "refused"
    ours: str = "the same"  # or the difference


def ids_of(*ids: int) -> torch.Tensor:
    return torch.tensor(ids, dtype=torch.int64)


IDS, OFFSETS = ids_of(1, 2, 3, 3, 5, 1, 7), ids_of(0, 2, 2, 5)
WEIGHTS = torch.linspace(-1, 2, 7)
CASES = [
    Case("bags of ids and offsets, one of them empty", lambda: (IDS, OFFSETS)),
    Case("empty bags first and last", lambda: (IDS, ids_of(0, 0, 3, 7))),
    Case("no ids and no bags", lambda: (ids_of(), ids_of())),
    Case("no ids in several bags", lambda: (ids_of(), ids_of(0, 0))),
    Case("bags of one length, in two dimensions", lambda: (IDS[:6].view(2, 3),)),
    Case("two dimensions without ids", lambda: (IDS[:0].view(3, 0),), torch_s="refused", ours="zeros"),
    Case("ids and offsets of int32", lambda: (IDS.int(), OFFSETS.int())),
    Case("ids of int32, offsets of int64", lambda: (IDS.int(), OFFSETS)),
    Case("ids and offsets with strides", lambda: (IDS.repeat_interleave(2)[::2], OFFSETS.repeat_interleave(3)[::3])),
    Case("ids in the order of columns", lambda: (IDS[:6].view(3, 2).t(),)),
    Case("one id many times in a bag", lambda: (ids_of(4, 4, 4, 4, 5), ids_of(0, 3))),
    Case("include_last_offset", lambda: (IDS, ids_of(0, 2, 2, 7)), {"include_last_offset": True}),
    Case("include_last_offset without ids", lambda: (ids_of(), ids_of(0)), {"include_last_offset": True}),
    Case("padding_idx in bags, one of them all padding", lambda: (ids_of(3, 1, 3, 3, 2), ids_of(0, 2, 4)), {"padding_idx": 3}),
    Case("padding_idx from the end", lambda: (ids_of(ROWS - 1, 1, 2), ids_of(0, 2)), {"padding_idx": -1}),
    Case("padding_idx outside of the rows", lambda: (IDS, OFFSETS), {"padding_idx": ROWS}, torch_s="refused"),
    Case("per_sample_weights", lambda: (IDS, OFFSETS, WEIGHTS.clone().requires_grad_()), modes=("sum",)),
    Case("per_sample_weights in two dimensions", lambda: (IDS[:6].view(2, 3), None, WEIGHTS[:6].view(2, 3).clone().requires_grad_()),
         modes=("sum",)),
    Case("per_sample_weights and padding_idx", lambda: (IDS, OFFSETS, WEIGHTS.clone().requires_grad_()), {"padding_idx": 3}, modes=("sum",)),
    Case("per_sample_weights and a mean", lambda: (IDS, OFFSETS, WEIGHTS), modes=("mean",), torch_s="refused",
         ours="the weighted sum divided by the number of ids"),
    Case("per_sample_weights and a maximum", lambda: (IDS, OFFSETS, WEIGHTS), modes=("max",), torch_s="refused"),
    Case("per_sample_weights of another shape", lambda: (IDS, OFFSETS, WEIGHTS[:3]), modes=("sum",), torch_s="refused"),
    Case("gradients of one number for all (expanded)", lambda: (IDS, OFFSETS), loss=lambda out: out.sum()),
    Case("gradients with strides", lambda: (IDS, OFFSETS), loss=lambda out: (out.t() * torch.arange(4.0 * DIM).view(DIM, 4)).sum()),
    Case("gradients of some bags only", lambda: (IDS, OFFSETS), loss=lambda out: out[1:3].square().sum()),
    Case("one dimension without offsets", lambda: (IDS,), torch_s="refused"),
    Case("two dimensions with offsets", lambda: (IDS[:6].view(2, 3), OFFSETS), torch_s="refused"),
    Case("offsets of two dimensions", lambda: (IDS, OFFSETS.view(2, 2)), torch_s="refused"),
    Case("first offset not 0", lambda: (IDS, ids_of(1, 3)), torch_s="refused"),
    Case("an offset behind the ids", lambda: (IDS, ids_of(0, 8)), torch_s="refused"),
    Case("ids of three dimensions", lambda: (IDS[:6].view(1, 2, 3),), torch_s="refused"),
    Case("ids of float32", lambda: (IDS.float(), OFFSETS), torch_s="refused"),
    Case("an id outside of the rows", lambda: (ids_of(1, ROWS), ids_of(0)), torch_s="refused"),
    Case("a negative id", lambda: (ids_of(1, -2), ids_of(0)), torch_s="refused"),
    Case("max_norm", lambda: (IDS, OFFSETS), {"max_norm": 1.0}, ours="refused"),
    Case("scale_grad_by_freq", lambda: (IDS, OFFSETS), {"scale_grad_by_freq": True}, modes=("sum", "mean"), ours="refused"),
    Case("one id, of no dimension", lambda: (torch.tensor(3),), kind="Embedding"),
    Case("ids of any shape", lambda: (IDS[:6].view(1, 3, 2),), kind="Embedding"),
    Case("no ids, in a shape", lambda: (IDS[:0].view(2, 0, 3),), kind="Embedding"),
    Case("ids of int32", lambda: (IDS.int(),), kind="Embedding"),
    Case("padding_idx: the row, and no gradient", lambda: (ids_of(3, 1, 3),), {"padding_idx": 3}, "Embedding"),
    Case("an id outside of the rows", lambda: (ids_of(ROWS),), kind="Embedding", torch_s="refused"),
    Case("ids of float32", lambda: (IDS.float(),), kind="Embedding", torch_s="refused"),
    Case("max_norm", lambda: (IDS,), {"max_norm": 1.0}, "Embedding", ours="refused"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _fixed_seed() -> Iterator[None]:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    yield


def result_of(make: Callable[[], tuple[Any, Callable[[], torch.Tensor]]], case: Case, mode: str) -> Any:
    """The output, the gradient of the weights and the rows after a step; None if the module refuses."""
    try:
        module, step = make()
        inputs = case.inputs()
        out = module(*inputs)
        if out.requires_grad and out.numel():
            case.loss(out).backward()
        weights = inputs[2] if len(inputs) > 2 else None
        return out.detach(), None if weights is None else weights.grad, step()
    except REFUSALS:
        return None


@pytest.mark.parametrize("case", CASES, ids=[f"{case.kind}: {case.name}" for case in CASES])
def test_case(server, request, case):
    table = server.create_table(f"case{CASES.index(case)}", DIM, ROWS, optimizer="sgd")
    for mode in case.modes if case.kind == "EmbeddingBag" else ("",):
        first = torch.randn(ROWS, DIM)
        made = case.made | ({"mode": mode} if mode else {})

        def theirs():
            module = getattr(nn, case.kind)(ROWS, DIM, **made)
            with torch.no_grad():
                module.weight.copy_(first)
            optimizer = torch.optim.SGD(module.parameters(), lr=LR)
            return module, lambda: (optimizer.step(), module.weight.detach())[1]

        def ours():
            table.set(range(ROWS), first)
            module = getattr(et, case.kind)(table, lr=LR, **made)
            return module, lambda: torch.from_numpy(table.get(np.arange(ROWS)))

        expected, found = result_of(theirs, case, mode), result_of(ours, case, mode)
        assert ("refused" if expected is None else "a result") == case.torch_s, mode
        if case.ours == "refused" or (case.ours == "the same" and case.torch_s == "refused"):
            assert found is None, mode
        else:
            assert found is not None, mode
        if case.ours == "the same" and expected is not None:
            for a, b in zip(found, expected):
                assert (a is None) == (b is None), mode
                if a is not None:
                    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_page_has_the_cases() -> None:
    lines = [f"| `{case.kind}` | {case.name} | {case.torch_s} | {case.ours} |" for case in CASES]
    page = (TREE / "docs/torch.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith(("| `EmbeddingBag` |", "| `Embedding` |"))] == lines, "\n".join(lines)
