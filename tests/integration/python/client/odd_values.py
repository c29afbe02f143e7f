# SPDX-License-Identifier: Apache-2.0
"""Values that tests of arguments share."""

from __future__ import annotations

import torch

HUGE = 2**40_000  # more digits than Python prints
TORCH_DTYPES = sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str)
TORCH_INTEGERS = {f"torch.{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def tensor_of(dtype: torch.dtype) -> torch.Tensor:
    if str(dtype).startswith("torch.q"):
        scales = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 1, 0, dtype)
        assert scales.is_quantized
        return scales
    return torch.tensor([[1, 2, 3]]).to(dtype)
