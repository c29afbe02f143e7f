# SPDX-License-Identifier: Apache-2.0
"""Doubles of TorchRec's tensors, by their documentation."""

from __future__ import annotations

import torch


class JaggedTensor:
    """Values of bags of any length."""

    def __init__(self, values, weights=None, lengths=None, offsets=None) -> None:
        self._values, self._weights, self._lengths, self._offsets = values, weights, lengths, offsets

    def values(self):
        return self._values

    def weights_or_none(self):
        return self._weights

    def lengths(self):
        return self._lengths

    def offsets(self):
        return torch.cat([torch.zeros(1, dtype=self._lengths.dtype), self._lengths.cumsum(0)])


class KeyedJaggedTensor:
    """Jagged tensors with equally many bags, by key."""

    def __init__(self, keys, values, weights=None, lengths=None) -> None:
        self._keys, self._values, self._weights, self._lengths = list(keys), values, weights, lengths

    @classmethod
    def from_lengths_sync(cls, keys, values, lengths, weights=None):
        return cls(keys, values, weights, lengths)

    def keys(self):
        return self._keys

    def __getitem__(self, key):
        place, stride = self._keys.index(key), len(self._lengths) // len(self._keys)
        begin = int(self._lengths[: place * stride].sum())
        lengths = self._lengths[place * stride : (place + 1) * stride]
        end = begin + int(lengths.sum())
        weights = None if self._weights is None else self._weights[begin:end]
        return JaggedTensor(self._values[begin:end], weights, lengths)


class KeyedTensor:
    """Columns of one tensor, by key."""

    def __init__(self, keys, length_per_key, values) -> None:
        self._keys, self._lengths, self._values = keys, length_per_key, values

    def keys(self):
        return self._keys

    def length_per_key(self):
        return self._lengths

    def values(self):
        return self._values

    def __getitem__(self, key):
        return torch.split(self._values, self._lengths, 1)[self._keys.index(key)]
