# SPDX-License-Identifier: Apache-2.0
"""Row ids from Python: unsigned 64-bit, and a negative one is an error, not a large number."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

ID_MAX = 2**64 - 1


def as_ids(ids: Any) -> np.ndarray:
    """Turns integers of any kind and shape into a uint64 array of that shape; copies only if it must.

    Takes NumPy arrays, torch tensors, Python integers and sequences of them. ValueError for a
    negative id or one over 2**64 - 1, TypeError for anything that is no integer.
    """
    if not isinstance(ids, (np.ndarray, np.generic)):
        ids = ids.numpy() if hasattr(ids, "numpy") else _from_python(ids)
    kind = ids.dtype.kind
    if kind not in "iu":
        raise TypeError(f"row ids must be integers, not {ids.dtype}")
    if kind == "i" and ids.size and ids.min() < 0:
        raise ValueError(f"row id {ids.min()} is negative")
    return np.asarray(ids).astype(np.uint64, copy=False)


def _from_python(ids: Any) -> np.ndarray:
    try:
        objects = np.array(ids, dtype=object)
        numbers = [_checked(value) for value in objects.reshape(-1)]
    except TypeError:
        raise TypeError(f"row ids must be integers, not {type(ids).__name__} {ids!r:.60}") from None
    return np.array(numbers, dtype=np.uint64).reshape(objects.shape)


def _checked(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    number = operator.index(value)
    if not 0 <= number <= ID_MAX:
        raise ValueError(f"row id {number} is {'negative' if number < 0 else 'over 2**64 - 1'}")
    return number


class IdArray(np.ndarray):
    """The ids of a batch in the shared arena: a uint64 array into which only ids can be assigned.

    ``ids[...] = values`` checks @values as :func:`as_ids` does. ``np.copyto`` and ufuncs with
    ``out=`` go around the check, as they do for any array.
    """

    def __setitem__(self, key: Any, values: Any) -> None:
        super().__setitem__(key, as_ids(values))
