# SPDX-License-Identifier: Apache-2.0
"""A double of TorchRec, for machines without it: its documented configurations and jagged tensors, as far as collections need."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from .sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor


class PoolingType(enum.Enum):
    SUM = "SUM"
    MEAN = "MEAN"
    NONE = "NONE"


class DataType(enum.Enum):
    FP32 = "FP32"
    FP16 = "FP16"
    BF16 = "BF16"
    INT8 = "INT8"


@dataclass
class EmbeddingConfig:
    num_embeddings: int
    embedding_dim: int
    name: str = ""
    data_type: DataType = DataType.FP32
    feature_names: list[str] = field(default_factory=list)


@dataclass
class EmbeddingBagConfig(EmbeddingConfig):
    pooling: PoolingType = PoolingType.SUM


__all__ = [
    "DataType", "EmbeddingBagConfig", "EmbeddingConfig", "JaggedTensor", "KeyedJaggedTensor", "KeyedTensor", "PoolingType",
]  # fmt: skip
