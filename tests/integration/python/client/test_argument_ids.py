# SPDX-License-Identifier: Apache-2.0
"""Ids of every dtype, shape and place in memory are taken whole or refused, and never cut. No server is needed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from odd_values import HUGE, TORCH_DTYPES, TORCH_INTEGERS, tensor_of

from embtier import _ids

# ---- Ids ----

CODES = np.typecodes["All"]


@pytest.mark.parametrize("order", ["=", "<", ">"])
@pytest.mark.parametrize("code", CODES)
def test_ids_of_every_dtype_of_numpy(code, order):
    dtype = np.dtype(code) if code not in "SUVMm" else np.dtype({"M": "M8[s]", "m": "m8[s]"}.get(code, f"{code}8"))
    if order != "=":  # else this dtype would differ from the native one that most arrays have
        dtype = dtype.newbyteorder(order)
    given = np.array([[1, 2, 3]], dtype) if code not in "V" else np.zeros((1, 3), dtype)
    shapes = [given, given[:, ::2], given.T, np.asfortranarray(given), given[:, :0], np.array(given[0, 0], dtype)]
    if dtype.kind not in "iuO":
        for one in (*shapes, given[0, 0], [given[0, 0]]):
            if isinstance(one, list) and dtype.kind == "V":
                continue
            with pytest.raises(TypeError, match="row ids must be integers, not "):
                _ids.as_ids(one)
        return
    for one in shapes:
        found = _ids.as_ids(one)
        assert found.dtype == np.uint64 and found.dtype.isnative
        assert found.shape == one.shape and type(found) is np.ndarray
        assert found.tolist() == one.tolist()
    read_only = given.copy()
    read_only.flags.writeable = False
    assert _ids.as_ids(read_only).tolist() == [[1, 2, 3]]
    if dtype.kind == "O":
        return
    limits = np.iinfo(dtype)
    assert _ids.as_ids(np.array([limits.max], dtype)).tolist() == [limits.max]
    if dtype.kind == "i":
        for wrong in (-1, limits.min):
            with pytest.raises(ValueError, match=rf"row id {wrong} at position \(1, 0\) is negative"):
                _ids.as_ids(np.array([[7, 8], [wrong, -1]], dtype))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_ids_of_every_dtype_of_torch(dtype):
    try:
        tensor = tensor_of(dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        pytest.skip(f"this torch makes no tensors of {dtype}")
    if str(dtype) not in TORCH_INTEGERS:
        with pytest.raises(TypeError, match="row ids"):
            _ids.as_ids(tensor)
        if "x" not in str(dtype).removeprefix("torch.complex"):  # torch cannot index qint4x2 and the like
            with pytest.raises(TypeError, match="row ids"):
                _ids.as_ids(list(tensor.reshape(-1)))
        return
    for one in (tensor, tensor.t(), tensor[:, ::2], tensor[:, :0], tensor[0, 0], torch.nn.Parameter(tensor, False)):
        assert _ids.as_ids(one).tolist() == one.tolist() and _ids.as_ids(one).dtype == np.uint64
    assert _ids.as_ids(list(tensor[0])).tolist() == [1, 2, 3]
    if "uint" not in str(dtype):
        with pytest.raises(ValueError, match="row id -1 at position 1 is negative"):
            _ids.as_ids(torch.tensor([5, -1]).to(dtype))


@pytest.mark.filterwarnings("ignore")
def test_ids_of_tensors_of_other_kinds():
    ids = torch.tensor([1, 0, 2])
    tensors = [
        (ids.to_sparse(), "are a sparse tensor; .to_dense"),
        (ids.reshape(1, 3).to_sparse_csr(), "are a sparse tensor; .to_dense"),
        (torch.empty(3, dtype=torch.int64, device="meta"), "of the device meta, which has no numbers"),
        (torch.quantize_per_tensor(torch.ones(2), 1, 0, torch.qint32), "are a quantized tensor; .int_repr"),
    ]
    for tensor, message in tensors:
        with pytest.raises(TypeError, match=f"^row ids .*{message}"):
            _ids.as_ids(tensor)
        with pytest.raises(TypeError, match=f"gradients .*{message}"):
            _ids.as_numbers("gradients", tensor)
    with pytest.raises(TypeError, match="row ids must be integers, not float32"):
        _ids.as_ids(torch.ones(3, requires_grad=True))

    class Far:  # like one of a GPU
        device, dtype = torch.device("cuda:0"), torch.int64

        def detach(self):
            return self

        def cpu(self):
            return ids

        def numpy(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    assert _ids.as_ids(Far()).tolist() == [1, 0, 2]
    if torch.cuda.is_available():
        assert _ids.as_ids(ids.cuda()).tolist() == [1, 0, 2]
    assert _ids.as_numbers("gradients", torch.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert _ids.as_numbers("gradients", torch.tensor([1.5, -2]).bfloat16()).tolist() == [1.5, -2]


IDS = [
    [], (), 5, [5], (5, 6), [[1, 2], [3, 4]], range(5), range(5, 0, -2), range(0), range(2**64 - 1, 2**64 - 3, -1),
    range(2**63 - 2, 2**63 + 5, 100), range(5, 6, 2**70), range(2**62, 2**62 + 3), range(2**63 - 3, 2**63 - 1),
    [2**64 - 1], np.uint64(2**64 - 1), np.int8(5), [np.int8(5), 2**63, np.uint64(2**64 - 1), torch.tensor(7)],
    np.array([2**64 - 1, 5], object), np.array(5, object), np.empty((0, 3), np.int64), [np.array([1, 2])] * 2,
    np.array([1, 2]).view(np.recarray), memoryview(np.array([1, 2])), memoryview(b"a" * 16).cast("q"),
]  # fmt: skip


@pytest.mark.parametrize("ids", IDS, ids=map(str, range(len(IDS))))
def test_ids_of_every_shape(ids):
    found = _ids.as_ids(ids)
    wanted = np.array(list(ids) if isinstance(ids, range) else ids, object)
    assert found.dtype == np.uint64 and found.shape == wanted.shape and type(found) is np.ndarray
    assert [int(one) for one in found.reshape(-1)] == [int(one) for one in wanted.reshape(-1)]


NO_IDS = [
    ([1, -1], ValueError, "row id -1 at position 1 is negative"),
    ([[1, 2], [3, 2**64]], ValueError, r"row id 18446744073709551616 at position \(1, 1\) is over 2\*\*64 - 1"),
    (-5, ValueError, "row id -5 is negative"),
    (HUGE, ValueError, r"row id a number of 40001 bits is over"),
    (-HUGE, ValueError, r"row id a number of 40001 bits is negative"),
    (range(3, -3, -1), ValueError, "row id -1 at position 4 is negative"),
    (range(2**64, 2**64 + 2), ValueError, "row id 18446744073709551616 at position 0 is over"),
    (np.array([7, -1], object), ValueError, "row id -1 at position 1 is negative"),
    ([1, 2.0], TypeError, "row ids must be integers, not float 2.0 at position 1"),
    ([1, True], TypeError, "not bool True at position 1"),
    ([1, np.True_], TypeError, "at position 1"),
    ([1, torch.tensor(True)], TypeError, "at position 1"),
    ([1, None], TypeError, "not NoneType None at position 1"),
    (["7"], TypeError, "not str '7' at position 0"),
    ([1, np.timedelta64(5, "s")], TypeError, "not timedelta64 .* at position 1"),
    ([[1, 2], [3]], TypeError, r"not list \[1, 2\] at position 0"),
    (np.array([1, 2.5], object), TypeError, "not float 2.5 at position 1"),
    (None, TypeError, "not NoneType None$"),
    ("12", TypeError, "not str '12'$"),
    (b"12", TypeError, "not bytes b'12'$"),
    ({1}, TypeError, r"not set \{1\}$"),
    ((i for i in range(3)), TypeError, "not generator"),
    (np.ma.array([1, 2], mask=[False, True]), TypeError, "masked array"),
    (np.ma.array([1, 2]), TypeError, "masked array"),
    ([np.ma.array([1, 2], mask=[False, True])], TypeError, "masked array"),
    ([[1], [np.ma.masked]], TypeError, "masked array"),
    (np.zeros(2, [("id", "i8")]), TypeError, r"row ids must be integers, not \[\('id', '<i8'\)\]"),
    (np.array([2.0**63]), TypeError, "not float64 such as 9.2"),
]


@pytest.mark.parametrize(("ids", "error", "message"), NO_IDS, ids=map(str, range(len(NO_IDS))))
def test_what_is_no_id_is_named_with_its_place(ids, error, message):
    with pytest.raises(error, match=message):
        _ids.as_ids(ids)
    view = np.zeros(2, np.uint64)
    with pytest.raises((TypeError, ValueError)):
        view.view(_ids.IdArray)[...] = ids
    assert not view.any()


def test_ids_in_a_file_are_read_through_its_map(tmp_path):
    np.array([1, 2, 2**64 - 1], np.uint64).tofile(tmp_path / "ids")
    assert _ids.as_ids(np.memmap(tmp_path / "ids", np.uint64, "r")).tolist() == [1, 2, 2**64 - 1]
    np.array([1, -2]).tofile(tmp_path / "ids")
    with pytest.raises(ValueError, match="row id -2 at position 1"):
        _ids.as_ids(np.memmap(tmp_path / "ids", np.int64, "r"))


def test_ids_are_not_copied_where_they_lie_as_they_should():
    for dtype in (np.int64, np.uint64):
        ids = np.arange(10, dtype=dtype)
        assert np.shares_memory(_ids.as_ids(ids), ids)


def test_views_of_the_arena_take_nothing_that_they_would_cut():
    ids, offsets, numbers = (
        np.zeros(2, dtype).view(kind)
        for dtype, kind in ((np.uint64, _ids.IdArray), (np.uint32, _ids.OffsetArray), (np.float32, _ids.NumberArray))
    )
    for view, wrong in [
        (ids, [-1, 2**64, 1.0, True, "1", None]),
        (offsets, [-1, 2**32, 2**32 + 5, 1.5, True, "1", None, np.array([0, 2**32]), np.array([0, -1], np.int8), math.nan,
                   np.array([0, 0.5]), np.array([0, -1.0]), np.array([0, 2.0**32]), [0, math.inf], np.float16("inf")]),
        (numbers, ["1", True, None, 1j, np.array([1j, 2]), np.array(["1", "2"]), np.array([True, False]), [1, "2"],
                   np.array([1, 2], "m8[s]"), np.ma.array([1, 2], mask=[0, 1]), HUGE, [0.5, HUGE]]),
    ]:  # fmt: skip
        for value in wrong:
            with pytest.raises((TypeError, ValueError)):
                view[:] = value
            with pytest.raises((TypeError, ValueError)):
                view[0] = value
            if np.ndim(value) == 0:
                with pytest.raises((TypeError, ValueError)):
                    view.fill(value)
        assert not view.any()
    offsets[:] = [0, 2**32 - 1]
    offsets[:] = np.concatenate([np.cumsum([]), [2**32 - 1], [5]])  # NumPy makes floats of this
    assert offsets.tolist() == [2**32 - 1, 5]
    offsets[:] = torch.tensor([3, 4])
    assert offsets.tolist() == [3, 4]
    tensor = torch.tensor([1.5, 2]).bfloat16()
    for value in (2, 0.5, [1, 2.5], np.float64(0.25), np.int8(3), tensor, np.array([1, 2], "O")):
        numbers[:] = value
    assert numbers.tolist() == [1, 2]
    own = numbers > 1  # no view of the arena any more
    own[0] = True
    mine = ids.astype(np.int64)
    mine[0] = -1
    assert own.tolist() == [True, True] and mine.tolist() == [-1, 0]
