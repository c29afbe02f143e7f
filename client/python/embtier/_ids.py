# SPDX-License-Identifier: Apache-2.0
"""Checks row ids and other numbers that go into the shared arena. NumPy alters wrong values silently: in an array of
uint64 -1 becomes 2**64 - 1 and 2.7 becomes 2. A complex number loses its imaginary part."""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from ._arguments import is_bool, kind_of, number, reason, short, shown
from ._types import NUMPY_DTYPES

ID_MAX = 2**64 - 1
_F16, _F32, _I64, _U32, _U64 = (np.dtype(name) for name in ("f2", "f4", "i8", "u4", "u8"))
_UNREADABLE = {  # attributes of torch tensors that NumPy cannot read
    "is_quantized": "a quantized tensor; .int_repr() and .dequantize() have its numbers",
    "is_meta": "a tensor of the device meta, which has no numbers",
}


def as_ids(ids: Any) -> np.ndarray:
    """Turns integers of any kind and shape into a uint64 array of that shape; copies only if it must.

    Takes NumPy arrays of integers of any dtype, or of objects that are integers; torch tensors of integers of any
    dtype, on any device; Python integers and sequences of them. ValueError for a negative id or one over 2**64 - 1.
    TypeError for any other value, such as a float or a bool, even for 1.0 and True. Both name the first wrong value and
    its position.
    """
    if type(ids) is np.ndarray:
        if ids.dtype is _U64:
            return ids
        if ids.dtype is _I64 and not (ids.size and ids.min() < 0):
            return ids.view(_U64)
    return _integers("row id", ids, _U64, ID_MAX)


def as_offsets(offsets: Any) -> np.ndarray:
    """Turns offsets of bags into uint32 as :func:`as_ids` does. It also takes whole floats, because NumPy's cumsum() of
    an empty list has floats."""
    if type(offsets) is not np.ndarray:
        offsets = _to_array("offsets", offsets)
    if offsets.dtype.kind == "f":
        offsets = offsets.astype(object)
    if offsets.dtype.kind == "O":
        whole = np.empty(offsets.size, object)
        for position, one in enumerate(offsets.reshape(-1)):
            whole[position] = _whole(one)
        offsets = whole.reshape(offsets.shape)
    return _integers("offset", offsets, _U32, 2**32 - 1)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, (float, np.floating)) and float(value).is_integer() else value


def _integers(what: str, values: Any, dtype: np.dtype, most: int) -> np.ndarray:
    if type(values) is not np.ndarray:
        values = _to_array(f"{what}s", values)
    kind = values.dtype.kind
    if kind == "O":
        return _from_objects(what, values, dtype, most)
    if kind not in "iu":
        raise TypeError(f"{what}s must be integers, not {_first(values)}")
    if kind == "i" and values.size and values.min() < 0:
        _refuse(what, values, values < 0, most)
    if most < ID_MAX and values.size and values.max() > most:
        _refuse(what, values, values > most, most)
    return values.astype(dtype, copy=False)


def _first(values: np.ndarray) -> str:
    """Shows the dtype of @values and the first of them."""
    return short(str(values.dtype)) + (f" such as {shown(values.reshape(-1)[0])}" if values.size else "")


def _place(position: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return ""
    index = [int(i) for i in np.unravel_index(position, shape)]
    return f" at position {index[0] if len(index) == 1 else tuple(index)}"


def _wrong(what: str, value: int, most: int, place: str) -> ValueError:
    limit = "2**64 - 1" if most == ID_MAX else "2**32 - 1"
    return ValueError(f"{what} {shown(value)}{place} is {'negative' if value < 0 else f'over {limit}'}")


def _refuse(what: str, values: np.ndarray, wrong: np.ndarray, most: int) -> None:
    position = int(np.argmax(wrong))  # the first
    raise _wrong(what, int(values.reshape(-1)[position]), most, _place(position, values.shape))


def _from_objects(what: str, objects: np.ndarray, dtype: np.dtype, most: int) -> np.ndarray:
    numbers = np.empty(objects.shape, dtype)
    flat = numbers.reshape(-1)
    for position, value in enumerate(objects.reshape(-1)):
        if type(value) is not int:
            try:
                if is_bool(value) or isinstance(value, np.ma.MaskedArray):
                    raise TypeError
                value = operator.index(value)
            except TypeError:
                place = _place(position, objects.shape)
                raise TypeError(f"{what}s must be integers, not {kind_of(value)} {shown(value)}{place}") from None
        if not 0 <= value <= most:
            raise _wrong(what, value, most, _place(position, objects.shape))
        flat[position] = value
    return numbers


# ---- Values that are no plain array ----


def _to_array(what: str, values: Any) -> np.ndarray:
    """Returns @values as a plain array, which has dtype object if the values are Python's."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{what} are a masked array, which has no values where it is masked: give the unmasked ones")
    if isinstance(values, (np.ndarray, np.generic)):
        return np.asarray(values)
    if hasattr(values, "numpy"):
        return _from_tensor(what, values)
    if isinstance(values, range):
        numbers = (values.start, values.stop, values.step)
        if all(-(2**63) <= one < 2**63 for one in numbers):
            return np.arange(*numbers, dtype=np.int64)
    if isinstance(values, (list, tuple)):
        _refuse_within(what, values)
    if _is_text(values):
        one = np.empty(1, object)
        one[0] = values
        return one.reshape(())
    try:
        return np.array(values, dtype=object)
    except (TypeError, ValueError, RuntimeError) as error:  # tensors that NumPy cannot read, values of different shapes
        raise TypeError(f"{what} are a {kind_of(values)} that cannot be read: {reason(error)}") from error


def _is_text(value: Any) -> bool:
    """True for bytes, which NumPy would turn into a number each. A memoryview that was cast to numbers is no text:
    memoryview.cast("q")."""
    if isinstance(value, memoryview):
        return isinstance(value.obj, (bytes, bytearray)) and value.format in ("B", "b", "c")
    return isinstance(value, bytearray)


def _refuse_within(what: str, values: Any) -> None:
    """Refuses values in a list that NumPy would misread: it drops the masks of masked arrays, and makes numbers of
    bytes."""
    for value in values:
        if isinstance(value, np.ma.MaskedArray):
            _to_array(what, value)
        if isinstance(value, (bytearray, memoryview)) and _is_text(value):
            raise TypeError(f"{what} must be numbers, not {kind_of(value)} {shown(value)}")
        if isinstance(value, (list, tuple)):
            _refuse_within(what, value)


def _from_tensor(what: str, tensor: Any) -> np.ndarray:
    """Reads a torch tensor, or another object with a numpy() method."""
    if "sparse" in str(getattr(tensor, "layout", "")):
        raise TypeError(f"{what} are a sparse tensor; .to_dense() has its numbers")
    for attribute, text in _UNREADABLE.items():
        if getattr(tensor, attribute, False) is True:
            raise TypeError(f"{what} are {text}")
    try:
        if hasattr(tensor, "detach"):
            tensor = tensor.detach()
        if getattr(getattr(tensor, "device", None), "type", "cpu") != "cpu":
            tensor = tensor.cpu()
        if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":  # NumPy has no bfloat16; float32 has all of its numbers
            tensor = tensor.float()
        array = tensor.numpy()
    except (TypeError, RuntimeError, NotImplementedError) as error:
        raise TypeError(f"{what} are a {kind_of(tensor)} that cannot be read: {reason(error)}") from error
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{what} are a {kind_of(tensor)}, whose numpy() is no array")
    return np.asarray(array)


def as_numbers(what: str, values: Any) -> np.ndarray:
    """Turns real numbers of any type and shape into an array. It keeps a NumPy dtype. TypeError for values that NumPy
    would convert: bools, texts, times, None, complex numbers."""
    if type(values) is float or type(values) is int:
        return np.asarray(number(what, values))
    if type(values) is not np.ndarray:
        values = _to_array(what, values)
    if values.dtype.kind == "O":
        return _numbers_from_objects(what, values)
    if values.dtype.kind not in "fiu":
        raise TypeError(f"{what} must be numbers, not {_first(values)}")
    return values


def _numbers_from_objects(what: str, objects: np.ndarray) -> np.ndarray:
    kinds = set(map(type, objects.reshape(-1).tolist()))
    try:
        if kinds == {int}:
            return objects.astype(np.int64)
        if kinds <= {int, float}:
            return objects.astype(np.float64)
    except OverflowError:
        pass  # the loop below reports the place
    numbers = np.empty(objects.shape, np.float64)
    flat = numbers.reshape(-1)
    for position, value in enumerate(objects.reshape(-1)):
        try:
            flat[position] = number(what, value)
        except (TypeError, ValueError) as error:
            if not objects.shape:
                raise
            place = _place(position, objects.shape)
            if isinstance(error, TypeError):
                raise TypeError(f"{what} must be numbers, not {kind_of(value)} {shown(value)}{place}") from None
            raise ValueError(f"{error}{place}") from None
    return numbers


def as_dtype(what: str, values: Any, dtype: np.dtype) -> np.ndarray:
    """Turns real numbers into an array of @dtype, rounded to nearest; copies only if it must. ValueError for a finite
    number that is too large for @dtype, with its place. Infinity and NaN do not change."""
    given = as_numbers(what, values)
    if given.dtype == dtype:
        return given
    with np.errstate(over="ignore"):
        numbers = given.astype(dtype)
    if dtype.kind == "f" and not np.can_cast(given.dtype, dtype):
        too_large = np.isinf(numbers) & np.isfinite(given)
        if too_large.any():
            position = int(np.argmax(too_large))
            raise ValueError(
                f"{what}: {given.reshape(-1)[position]}{_place(position, given.shape)} does not fit in {dtype}, which "
                f"holds at most {np.finfo(dtype).max}"
            )
    return numbers


def as_shape(what: str, values: np.ndarray, shape: tuple[int, ...], table: str) -> np.ndarray:
    """Returns @values repeated to @shape, as NumPy broadcasts. ValueError with both shapes if that does not fit."""
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(
            f"the shape of {what} is {values.shape}; table {shown(table)} needs {shape}, or an array that broadcasts to it"
        ) from None


# ---- Views of the arena ----


class IdArray(np.ndarray):
    """The ids of a batch in the shared arena: a uint64 array into which only ids can be assigned.

    ``ids[...] = values`` checks @values as :func:`as_ids` does, and so does ``ids.fill(value)``. ``np.copyto`` and
    ufuncs with ``out=`` bypass the check, as for any subclass of ndarray.
    """

    def __setitem__(self, key: Any, values: Any) -> None:
        if self.dtype is _U64 or self.dtype == _U64:  # other dtypes: the array was computed from ids and is the caller's
            values = as_ids(values)
        super().__setitem__(key, values)

    def fill(self, value: Any) -> None:
        self[...] = value


class OffsetArray(np.ndarray):
    """The offsets of a part's bags: a uint32 array with checks like those of :class:`IdArray`."""

    def __setitem__(self, key: Any, values: Any) -> None:
        if self.dtype is _U32 or self.dtype == _U32:
            values = as_offsets(values)
        super().__setitem__(key, values)

    def fill(self, value: Any) -> None:
        self[...] = value


class NumberArray(np.ndarray):
    """Rows, state, gradients, or weights of ids: an array of float32 or float16. An assignment takes only real numbers
    that fit, and rounds them. It also takes tensors of any device and any real dtype. The bits of bfloat16 are not
    checked."""

    def __setitem__(self, key: Any, values: Any) -> None:
        if self.dtype is _F32 or self.dtype in (_F32, _F16):
            values = as_dtype("numbers", values, self.dtype)
        super().__setitem__(key, values)

    def fill(self, value: Any) -> None:
        self[...] = value


def as_rows(dtype: str, rows: Any) -> np.ndarray:
    """Turns rows for a table of @dtype into numbers of its dtype, or into the bits of bfloat16."""
    if dtype == "bf16" and str(getattr(rows, "dtype", "")) == "torch.bfloat16":
        rows = rows.detach().cpu().view(sys.modules["torch"].int16).numpy().view(np.uint16)
    rows = as_numbers("rows", rows)
    if dtype == "bf16" and rows.dtype != NUMPY_DTYPES[dtype]:
        raise TypeError(f"rows of a bf16 table are given as a torch.bfloat16 tensor or as uint16 bits, not {rows.dtype}")
    return as_dtype("rows", rows, NUMPY_DTYPES[dtype])
