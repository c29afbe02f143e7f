# SPDX-License-Identifier: Apache-2.0
"""DLRM (Naumov et al., 2019, "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", section 2).

It has a bottom MLP on dense features, embedding bags, the dot product of each pair of these vectors, and a
top MLP. The caller chooses the source of the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

BagInput = tuple[torch.Tensor, torch.Tensor]  # ids, and offsets including the last one


def mlp(*widths: int) -> torch.nn.Sequential:
    """Linear layers with ReLU between them; the last layer is linear."""
    layers: list[torch.nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


class Dlrm(torch.nn.Module):
    """Maps dense features [samples, dense] and bags to logits [samples].

    @embeddings maps ``{feature: (ids, offsets)}`` to ``{feature: [samples, dim]}``, as
    embtier.torch.EmbeddingBagCollection does.
    """

    def __init__(self, embeddings: torch.nn.Module, features: list[str], dim: int, dense: int) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.features = features
        self.bottom = mlp(dense, 64, dim)
        vectors = len(features) + 1
        self.register_buffer("pairs", torch.triu_indices(vectors, vectors, 1), persistent=False)
        self.top = mlp(dim + self.pairs.shape[1], 64, 1)

    def forward(self, dense: torch.Tensor, bags: Mapping[str, BagInput]) -> torch.Tensor:
        pooled = self.embeddings(bags)
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom, *(pooled[name] for name in self.features)], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        interactions = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, interactions], dim=1)).squeeze(1)

    def mlp_parameters(self) -> list[torch.nn.Parameter]:
        return [*self.bottom.parameters(), *self.top.parameters()]
