# SPDX-License-Identifier: Apache-2.0
"""Is everything that Python gives to C taken whole or refused, and never cut? The first half needs no server: it
walks all functions, all structs and all dtypes there are."""

from __future__ import annotations

import ctypes
import decimal
import fractions
import math
import re
import signal
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TREE

import embtier
import embtier.torch as et
from embtier import _arguments, _ids, _library

PACKAGE = Path(embtier.__file__).parent
HEADER = re.sub(r"/\*.*?\*/|\\\n", " ", "".join(file.read_text() for file in (TREE / "client/include").glob("*.h")), flags=re.DOTALL)
PROTOTYPE = re.compile(
    r"^EMBTIER_PUBLIC (?:EMBTIER_MUST_CHECK )?([\w *]+?)\s*\b(embtier_\w+)\((.*?)\);", re.MULTILINE | re.DOTALL
)
RECORDS = {
    "embtier_connect_options": _library.ConnectOptions,
    "embtier_table_options": _library.TableOptions,
    "embtier_table_info": _library.TableInfo,
    "embtier_checkpoint_options": _library.CheckpointOptions,
    "embtier_checkpoint": _library.CheckpointInfo,
    "embtier_export_options": _library.ExportOptions,
    "embtier_exported": _library.ExportedInfo,
    "embtier_import_options": _library.ImportOptions,
    "embtier_imported": _library.ImportedInfo,
    "embtier_load_buffer": _library.LoadBuffer,
    "embtier_part": _library.Part,
    "embtier_bag_part": _library.BagPart,
    "embtier_push_options": _library.PushOptions,
    "embtier_group_options": _library.GroupOptions,
    "embtier_account": _library.Account,
    "embtier_metric": _library.Metric,
}
HUGE = 2**40_000  # more digits than Python prints


def ctype_of(declared: str) -> type | None:
    """Of a C type of the header; None: some pointer."""
    words = declared.replace("const", "").split()
    if words[:2] == ["char", "*"] and len(words) == 2:
        return ctypes.c_char_p
    if "*" in words or "*[]" in words or "(" in declared:
        return None
    if words[0] == "enum":
        return ctypes.c_int
    return {
        "int": ctypes.c_int, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
        "double": ctypes.c_double, "void": None,
    }[words[0]]  # fmt: skip


def split(declaration: str) -> tuple[str, str]:
    """Type and name of a parameter or field."""
    declaration = " ".join(declaration.split())
    if found := re.fullmatch(r"(.*)\(\*(\w+)\)\((.*)\)", declaration):
        return "(function)", found[2]
    found = re.fullmatch(r"(.*?)(\w+)(\[.*\])?", declaration)
    return found[1].replace("*", " * ") + (" *[]" if found[3] else ""), found[2]


def parameters_of(text: str) -> list[tuple[str, str]]:
    text = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"(*\1)()", text)
    return [split(one) for one in text.split(",") if one.strip() != "void"]


def prototypes() -> dict[str, tuple[str, list[tuple[str, str]]]]:
    return {name: (result, parameters_of(text)) for result, name, text in PROTOTYPE.findall(HEADER)}


def fields_of(struct: str) -> list[tuple[str, str]]:
    body = re.search(rf"^struct {struct} {{\n(.*?)^}};", HEADER, re.MULTILINE | re.DOTALL)[1]
    return [split(re.sub(r"\)\([^)]*\)", ")()", one)) for one in body.split(";") if one.strip()]


def matches(argument: type, declared: str) -> bool:
    wanted = ctype_of(declared)
    if wanted is not None:
        return argument.ctype is wanted
    if "[]" in declared:
        return issubclass(argument.ctype, ctypes.Array)
    return argument.ctype in (ctypes.c_void_p, _library.ProgressFunction) or hasattr(argument.ctype, "contents")


# ---- Functions ----


def test_the_header_is_read_as_it_is_written():
    found = prototypes()
    assert len(found) == len(re.findall(r"^EMBTIER_PUBLIC", HEADER, re.M)) > 80
    assert found["embtier_table_open_as"] == (
        "enum embtier_err",
        [("struct embtier  * ", "server"), ("const char  * ", "name"), ("uint32_t ", "dim"), ("int ", "dtype"),
         ("struct embtier_table  *  * ", "ret_table")],
    )  # fmt: skip


def test_every_function_is_called_with_the_types_of_the_header():
    header = prototypes()
    for name, (result, arguments) in _library.FUNCTIONS.items():
        declared_result, declared = header[name]
        assert list(arguments) == [parameter for _, parameter in declared], name
        for (what, argument), (type_text, _) in zip(arguments.items(), declared):
            assert matches(argument, type_text), (name, what)
        if re.fullmatch(r"struct \w+", declared_result):  # by value
            wanted = RECORDS[declared_result.removeprefix("struct ")]
        else:
            wanted = ctype_of(declared_result)
        if declared_result == "void" or wanted is not None:
            assert result is wanted, name
        else:
            assert result is ctypes.c_void_p or hasattr(result, "contents"), name
        function = getattr(_library.lib, name)
        assert function.argtypes == list(arguments.values()) and function.restype is result


def test_no_function_is_called_without_types():
    used = set()
    for file in PACKAGE.glob("*.py"):
        text = file.read_text()
        used |= set(re.findall(r"\b_?lib\.(\w+)", text))
        assert file.name == "_library.py" or not re.search(r"CDLL|cdll|pythonapi|dlsym|PyDLL|CFUNCTYPE", text)
    assert used == set(_library.FUNCTIONS)
    for name in used:
        assert all(hasattr(argument, "check") for argument in getattr(_library.lib, name).argtypes), name


# ---- Structs ----


def structures() -> list[type]:
    """All of the package, whatever they derive from."""
    found, waiting = [], [ctypes.Structure, ctypes.Union, ctypes.BigEndianStructure]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("embtier"):
            found.append(kind)
    return found


def test_every_struct_checks_its_fields():
    found = set(structures())
    assert found == {_arguments.Record, *RECORDS.values()}
    for struct, record in RECORDS.items():
        declared = fields_of(struct)
        assert [name for name, _ in record._fields_] == list(record.arguments) == [name for _, name in declared]
        for (type_text, name), argument in zip(declared, record.arguments.values()):
            assert matches(argument, type_text), (struct, name)
            assert dict(record._fields_)[name] is argument.ctype


OBJECTS = (object(), [], {}, 1j, np.complex128(1), np.datetime64(1, "s"), np.array([1, 2]), np.ma.masked)
NO_NUMBERS = (*OBJECTS, None, "1", b"1", True, np.True_, torch.tensor(True))
WRONG = {  # of a kind of argument: what is of the wrong type, what does not fit
    _arguments.Integer: ((*NO_NUMBERS, 1.0, np.float32(1), decimal.Decimal(1)), (HUGE, -HUGE)),
    _arguments.Flag: ((*OBJECTS, None, "no", 1.0, 0.5), (2, -1, HUGE)),
    _arguments.Double: (NO_NUMBERS, (HUGE, decimal.Decimal("1e400"), np.longdouble("1e400"))),
    _arguments.Text: ((*OBJECTS, b"x", 5, 1.5, True), ("users\0old", "\0", "a\ud800b", "\udcff")),
    _arguments.Path: ((*OBJECTS, 5, 1.5, True), ("a\0b", b"a\0b", "a\ud800b", Path("a\0b"))),
    _arguments.Bytes: ((*OBJECTS, "x", 5, True), (b"a\0b",)),
    _arguments.Handle: ((*OBJECTS, 5, "x", ctypes.c_void_p(), ctypes.c_uint64(5)), ()),
}


def kind_of(argument: type) -> type | None:
    return next((kind for kind in WRONG if issubclass(argument, kind)), None)


def wrong_values(argument: type) -> list[tuple[type[Exception], object]]:
    kind = kind_of(argument)
    if kind is None:  # a pointer, of which there is one type
        return [(TypeError, value) for value in (5, 2**64, "x", object(), ctypes.c_int(5))]
    types, values = WRONG[kind]
    found = [(TypeError, value) for value in types] + [(ValueError, value) for value in values]
    if "Optional" not in argument.__name__ and kind is not _arguments.Integer:
        found.append((TypeError, None))
    if kind is _arguments.Integer:
        found += [(ValueError, argument.least - 1), (ValueError, argument.most + 1)]
        found += [(ValueError, argument.most + 6), (ValueError, np.array(-1, np.int64))] if argument.least == 0 else []
    return found


def right_values(argument: type) -> list[tuple[object, object]]:
    """What is given, and what C gets."""
    if issubclass(argument, _arguments.Integer):
        most = argument.most
        given = [argument.least, 0, most, np.int8(7), np.uint16(7), torch.tensor(7), np.array(7)]
        return [(value, int(value)) for value in given]
    if issubclass(argument, _arguments.Flag):
        return [(value, int(value)) for value in (True, False, np.True_, 1, 0)]
    if issubclass(argument, _arguments.Double):
        given = [0.5, -1e308, 7, np.float32(0.5), np.int8(3), fractions.Fraction(1, 2), torch.tensor(0.5), math.inf]
        return [(value, float(value)) for value in given]
    if issubclass(argument, _arguments.Text):
        return [("", b""), ("näme", "näme".encode()), (np.str_("x"), b"x")]
    if issubclass(argument, _arguments.Path):
        return [("a/b", b"a/b"), (Path("a"), b"a"), (b"a\xff", b"a\xff"), ("\udcff", b"\xff")]
    if issubclass(argument, _arguments.Bytes):
        return [(b"", b""), (b"\xff{}", b"\xff{}")]
    return []


FIELDS = [(record, name, argument) for record in RECORDS.values() for name, argument in record.arguments.items()]


@pytest.mark.parametrize(("record", "name", "argument"), FIELDS, ids=[f"{r.__name__}.{n}" for r, n, _ in FIELDS])
def test_a_field_takes_a_value_whole_or_not_at_all(record, name, argument):
    for error, value in wrong_values(argument):
        one = record()
        before = bytes(one)
        with pytest.raises(error, match=rf"\b{name}\b"):
            setattr(one, name, value)
        assert bytes(one) == before
        with pytest.raises(error, match=rf"\b{name}\b"):
            record(**{name: value})
        if list(record.arguments)[0] == name:
            with pytest.raises(error):
                record(value)
            with pytest.raises(RuntimeError, match=error.__name__):  # as ctypes makes one of a tuple
                (record * 1)((value,))
    for value, wanted in right_values(argument):
        assert getattr(record(**{name: value}), name) == wanted, value


def test_a_struct_has_no_other_fields():
    with pytest.raises(AttributeError, match="'row'"):
        _library.TableOptions(row=5)
    with pytest.raises(AttributeError, match="'keeps'"):
        _library.CheckpointOptions().keeps = 5


def test_an_array_of_chars_keeps_room_for_its_end():
    assert _library.ImportedInfo(name=b"x" * 127).name == b"x" * 127
    with pytest.raises(ValueError, match="at most 127 bytes, not 128"):
        _library.ImportedInfo(name=b"x" * 128)


ARGUMENTS = [(name, what, a) for name, (_, all_) in _library.FUNCTIONS.items() for what, a in all_.items()]


@pytest.mark.parametrize(("function", "what", "argument"), ARGUMENTS, ids=[f"{f}-{w}" for f, w, _ in ARGUMENTS])
def test_an_argument_is_taken_whole_or_not_at_all(function, what, argument):
    kind = kind_of(argument)
    for error, value in wrong_values(argument):
        if kind is None and value == 2**64:
            continue
        with pytest.raises((error, TypeError) if kind is None else error):
            argument.from_param(value)
    for value, wanted in right_values(argument):
        found = argument.from_param(value)
        assert getattr(found, "value", found) == wanted


def test_the_error_names_the_argument_and_is_no_error_of_ctypes():
    handle = ctypes.c_void_p(8)  # is not looked at
    with pytest.raises(ValueError, match="^name must not hold a zero byte: 'users.x00old'$"):
        _library.lib.embtier_table_drop(handle, "users\0old", _library.ProgressFunction(), None)
    with pytest.raises(ValueError, match=r"^timeout_ms must be from 0 to 2\*\*32 - 1, not 4294967296$"):
        _library.lib.embtier_wait(handle, 2**32)
    with pytest.raises(TypeError, match="^batch must be a handle"):
        _library.lib.embtier_wait(None, 5)
    with pytest.raises(ValueError, match=r"^part must be .*, not a number of 40001 bits$"):
        _library.lib.embtier_batch_ids(handle, HUGE)
    with pytest.raises(ValueError, match=r"U\+D800 at position 1 is half of a surrogate pair"):
        _library.lib.embtier_table_drop(handle, "a\ud800", _library.ProgressFunction(), None)


def test_messages_are_not_as_long_as_what_was_given():
    for call in (
        lambda: _arguments.text("name", "x\0" * 1_000_000),
        lambda: _arguments.integer("rows", "5" * 1_000_000),
        lambda: _arguments.number("eps", ["5"] * 1_000_000),
        lambda: _ids.as_ids([1, "5" * 1_000_000]),
        lambda: _ids.as_ids([HUGE]),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert len(str(caught.value)) < 250


# ---- Times ----


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(0.0004, 1), (1e-300, 1), (0.001, 1), (0.0011, 2), (1.0001, 1001), (10, 10_000), (4294967.295, 2**32 - 1),
     (np.float32(0.5), 500), (np.int8(3), 3000), (fractions.Fraction(1, 3), 334), (decimal.Decimal("0.0001"), 1),
     (0, 0), (0.0, 0), (-0.0, 0), (None, 0), (math.inf, 0)],
)  # fmt: skip
def test_a_timeout_is_rounded_up(seconds, ms):
    assert _arguments.timeout_ms("timeout", seconds) == ms


@pytest.mark.parametrize("seconds", [-1, -1e-9, -math.inf, math.nan, 4294967.2951, 1e300, HUGE], ids=_arguments.shown)
def test_a_timeout_that_is_none_is_a_value_error(seconds):
    with pytest.raises(ValueError, match="timeout"):
        _arguments.timeout_ms("timeout", seconds)
    with pytest.raises(ValueError, match="timeout"):
        embtier.connect("/nowhere", timeout=seconds)


@pytest.mark.parametrize("seconds", ["1", b"1", True, 1j, [1], object()])
def test_a_timeout_of_another_type_is_a_type_error(seconds):
    with pytest.raises(TypeError, match="timeout"):
        embtier.connect("/nowhere", timeout=seconds)


def test_what_is_left_of_a_time_is_rounded_up_too(monkeypatch):
    monkeypatch.setattr(_arguments.time, "monotonic", lambda: 100.0)
    for timeout, ms in [(0, 0), (0.0004, 1), (0.0994, 100), (5, 100), (1e308, 100), (math.inf, 100), (None, 100)]:
        assert _arguments.milliseconds_left(_arguments.deadline_of(timeout), 100) == ms
    assert _arguments.milliseconds_left(99.0, 100) == 0


def test_a_short_timeout_is_not_for_ever(tmp_path):
    """0.4 ms were rounded to 0, which is for ever: here nobody ever answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        errors = []

        def connect() -> None:
            try:
                embtier.connect(tmp_path / "s", timeout=0.0004)
            except embtier.Error as error:
                errors.append(error)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive() and isinstance(errors[0], embtier.TimeoutError)
        assert "within 1 ms" in str(errors[0])


# ---- Ids ----


CODES = np.typecodes["All"]


@pytest.mark.parametrize("order", ["=", "<", ">"])
@pytest.mark.parametrize("code", CODES)
def test_ids_of_every_dtype_of_numpy(code, order):
    dtype = np.dtype(code) if code not in "SUVMm" else np.dtype({"M": "M8[s]", "m": "m8[s]"}.get(code, f"{code}8"))
    if order != "=":  # which would be a dtype of its own, and not the one that most arrays have
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


TORCH_DTYPES = sorted({one for one in vars(torch).values() if isinstance(one, torch.dtype)}, key=str)
TORCH_INTEGERS = {f"torch.{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def tensor_of(dtype: torch.dtype) -> torch.Tensor:
    if str(dtype).startswith("torch.q"):
        scales = torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 1, 0, dtype)
        assert scales.is_quantized
        return scales
    return torch.tensor([[1, 2, 3]]).to(dtype)


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
        if "x" not in str(dtype).removeprefix("torch.complex"):  # of qint4x2 and the like no part can be had
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

    class Far:  # as of a GPU
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
    offsets[:] = np.concatenate([np.cumsum([]), [2**32 - 1], [5]])  # of floats
    assert offsets.tolist() == [2**32 - 1, 5]
    offsets[:] = torch.tensor([3, 4])
    assert offsets.tolist() == [3, 4]
    tensor = torch.tensor([1.5, 2]).bfloat16()
    for value in (2, 0.5, [1, 2.5], np.float64(0.25), np.int8(3), tensor, np.array([1, 2], "O")):
        numbers[:] = value
    assert numbers.tolist() == [1, 2]
    own = numbers > 1  # is no view of the arena any more
    own[0] = True
    mine = ids.astype(np.int64)
    mine[0] = -1
    assert own.tolist() == [True, True] and mine.tolist() == [-1, 0]


# ---- With a server ----


def test_names_with_a_zero_byte_name_nothing(server, name, tmp_path):
    table = server.create_table(name, 2)
    checkpoint = server.checkpoint()
    no_texts = [(wrong, TypeError) for wrong in (name.encode(), None, 5)]
    for cut, error in ((f"{name}\0old", ValueError), (f"{name}\ud800", ValueError), *no_texts):
        for call in (
            lambda: server.drop_table(cut),
            lambda: server.open_table(cut),
            lambda: server.create_table(cut, 2),
            lambda: server.create_table(cut, 2, if_not_exists=True),
            lambda: server.export_table(cut, tmp_path / "e"),
            lambda: server.restore_checkpoint(checkpoint.id, [cut]),
            lambda: server.join(cut, 1, 0),
        ):
            with pytest.raises(error):
                call()
    for cut in (f"{name}\0old", f"{name}\ud800"):
        for call in (
            lambda: server.restore_checkpoint(checkpoint.id, [name], name=cut),
            lambda: server.export_table(name, f"{tmp_path}/{cut}"),
            lambda: server.import_table(f"{tmp_path}/{cut}", name),
            lambda: server.import_table(tmp_path, cut),
            lambda: server.import_table(tmp_path, tensor=cut),
            lambda: server.import_table(tmp_path, ids_path=cut),
            lambda: embtier.connect(f"/tmp/{cut}"),
            lambda: embtier.connect(client_name=cut),
        ):
            with pytest.raises(ValueError):
                call()
    assert [spec.name for spec in server.tables()] == [table.name]
    assert not list(tmp_path.iterdir())


NUMBERS = {  # argument: what it does not take
    "rows": (0, -1, 2**64, 2**64 + 5, 5.0, "5", True, HUGE),
    "dim": (0, -1, 2**32, 2**32 + 2, 2.0, "2", True, None),
    "seed": (-1, 2**64, 2**64 + 5, 1.5, None, True),
    "eager": ("no", 2, None, 0.5),
    "if_not_exists": ("no", 2, None),
    "allow_nonfinite": ("no", -1, None),
    "dtype": (1, None, "f64", np.float32),
    "optimizer": (1, None, "adams"),
    "rounding": (True, "up"),
    "durability": (0, "all"),
    "init": (0, None, (), ("uniform", 1), *(("constant", wrong) for wrong in ("1", True, HUGE, math.nan))),
    "eps": ("1", True, -1e300, math.nan, math.inf, HUGE, 1j, [1]),
    "clip_norm": (-1e300, -1),
}


@pytest.mark.parametrize("argument", NUMBERS)
def test_a_table_is_made_as_it_was_asked_for_or_not_at_all(server, name, argument):
    words = {"dim": 2, "optimizer": "adam"}
    for wrong in NUMBERS[argument]:
        with pytest.raises((TypeError, ValueError)):
            server.create_table(name, **(words | {argument: wrong}))
    assert name not in [spec.name for spec in server.tables()]


def test_numpy_s_numbers_are_taken_as_python_s(server, name):
    made = server.create_table(
        name, np.int8(2), np.uint64(2**64 - 1), optimizer="adam", seed=np.uint64(2**64 - 1), eps=np.float32(0.5),
        init=("constant", np.float16(2)),
    )  # fmt: skip
    spec = made.spec
    assert (spec.rows, spec.dim, spec.seed, spec.eps, spec.init) == (2**64 - 1, 2, 2**64 - 1, 0.5, ("constant", 2.0))
    assert server.open_table(name, np.int64(2)).dim == 2
    with server.batch([(made, np.int32(3))]) as batch:
        batch.set_count(0, np.uint8(2))
        assert batch.get().rows(0).tolist() == [[2, 2]] * 2


def test_tables_are_opened_as_they_were_asked_for(server, name):
    server.create_table(name, 5)
    for wrong in (0, -1, 2**32, 2**32 + 5, 5.0, True, "5"):  # 0 is any for C
        with pytest.raises((TypeError, ValueError)):
            server.open_table(name, dim=wrong)
    with pytest.raises(embtier.MismatchError):
        server.open_table(name, dim=2**32 - 1)
    for wrong in (0, 1, "f64"):
        with pytest.raises((TypeError, ValueError)):
            server.open_table(name, dtype=wrong)


def test_counts_of_batches_are_not_cut(server, name):
    table = server.create_table(name, 2, optimizer="sgd")
    for wrong in (-1, 2**32, 2**32 + 3, 3.0, "3", None, True):
        for make in (server.batch, server.push_batch, server.prefetch_batch):
            with pytest.raises((TypeError, ValueError)):
                make([(table, wrong)])
        for bags in (embtier.Bags(table, wrong, 1), embtier.Bags(table, 1, wrong)):
            with pytest.raises((TypeError, ValueError)):
                server.bag_batch([bags])
        with server.batch([(table, 5)]) as batch, server.bag_batch([embtier.Bags(table, 5, 5)]) as bags:
            with pytest.raises((TypeError, ValueError)):
                batch.set_count(0, wrong)
            with pytest.raises((TypeError, ValueError)):
                bags.set_bags(0, wrong, 1)
            with pytest.raises((TypeError, ValueError)):
                bags.set_bags(0, 1, wrong)
            assert batch.count(0) == bags.count(0) == 5
    for wrong in ("yes", 2, None):
        with pytest.raises((TypeError, ValueError)):
            server.bag_batch([embtier.Bags(table, 1, 1, weighted=wrong)])
    for wrong in (5, "users", None):
        with pytest.raises(TypeError, match="Table"):
            server.batch([(wrong, 1)])
    with pytest.raises(TypeError, match="a Bags, not tuple"):
        server.bag_batch([(table, 1)])


def test_connections_are_made_as_they_were_asked_for(daemon):
    for words in (
        {"arena_bytes": -1}, {"arena_bytes": 2**64}, {"arena_bytes": 2**64 + (1 << 20)}, {"arena_bytes": 1e6},
        {"arena_bytes": True}, {"max_in_flight": 0}, {"max_in_flight": 2**32 + 1}, {"max_in_flight": -1},
        {"max_in_flight": 1.0}, {"client_name": 5}, {"client_name": b"x"}, {"client_name": "x" * 129},
        {"client_name": "é" * 65}, {"timeout": -1}, {"timeout": 2**32},
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            daemon.connect(**words)
    for words in ({"client_name": "é" * 64}, {"client_name": ""}, *({"timeout": t} for t in (None, math.inf, 0))):
        daemon.connect(**words).close()


def test_waits_take_any_time_but_none_that_is_none(daemon, server, name):
    table = server.create_table(name, 2)
    with server.batch([(table, 1)]) as batch:
        for timeout in (None, 60, math.inf, 1e12, 1e308, np.float32(60), fractions.Fraction(60)):
            assert batch.get(timeout) is batch
            batch.submit_get()
            batch.wait(timeout)
        for wrong in (-1, -0.5, math.nan, -math.inf, "1", True, 1j, [1]):
            with pytest.raises((TypeError, ValueError)):
                batch.get(wrong)  # and it is not begun
            with pytest.raises((TypeError, ValueError)):
                batch.wait(wrong)
        batch.get()
        daemon.freeze()
        try:
            batch.submit_get()
            for timeout in (0, 0.0004, 1e-300):
                with pytest.raises(embtier.TimeoutError, match="no answer within"):
                    batch.wait(timeout)
        finally:
            daemon.signal(signal.SIGCONT)
        batch.wait(60)


def test_a_push_is_of_the_numbers_that_were_given(server, name):
    table = server.create_table(name, 2, optimizer="sgd", init=("constant", 1))
    with server.push_batch([(table, 1)]) as batch:
        batch.ids(0)[:] = 5
        batch.gradients(0)[:] = 1
        masked = np.ma.array([0.1], mask=[1])
        for lr in ("0.1", True, None, 1j, np.complex64(1), [True], ["0.1"], np.array(["0.1"]), masked, HUGE, [HUGE]):
            with pytest.raises((TypeError, ValueError)):
                batch.push(lr, 1)
        for step in (0, -1, 2**53, 2**64 + 1, 1.0, True, "1", None):
            with pytest.raises((TypeError, ValueError)):
                batch.push(0.1, step)
        assert table.get([5]).tolist() == [[1, 1]]
        quarter = fractions.Fraction(1, 4)
        for lr in (0.25, np.float32(0.25), [0.25], torch.tensor(0.25), np.array([0.25], object), (quarter,)):
            batch.push(lr, np.int64(1))
        assert table.get([5]).tolist() == [[-0.5, -0.5]]


def test_checkpoints_and_files_are_those_that_were_asked_for(server, name, tmp_path):
    server.create_table(name, 2)
    checkpoint = server.checkpoint(step=2**64 - 1, keep=np.int8(100))
    assert checkpoint.step == 2**64 - 1
    before = server.checkpoints()
    cut = checkpoint.id + 2**64
    for call in (
        lambda: server.checkpoint_info(cut), lambda: server.verify_checkpoint(cut), lambda: server.delete_checkpoint(cut),
        lambda: server.restore_checkpoint(cut), lambda: server.checkpoint_info(True), lambda: server.checkpoint_info(1.0),
        lambda: server.export_table(name, tmp_path / "e", checkpoint=cut),
        lambda: server.export_table(name, tmp_path / "e", checkpoint=True),
        lambda: server.export_table(name, tmp_path / "e", file_bytes=2**64 + 5),
        lambda: server.export_table(name, tmp_path / "e", state="no"),
        lambda: server.export_table(name, tmp_path / "e", all_rows="no"),
        lambda: server.export_table(name, 5),
        lambda: server.checkpoint(step=2**64 + 5), lambda: server.checkpoint(step=True), lambda: server.checkpoint(keep=2**32 + 1),
        lambda: server.checkpoint(keep=None), lambda: server.import_table(tmp_path, rows=2**64 + 5),
        lambda: server.import_table(tmp_path, rows=2**64 - 1), lambda: server.import_table(tmp_path, rows=True),
        lambda: server.import_table(tmp_path, state="no"), lambda: server.import_table(tmp_path, seed=2**64),
        lambda: server.import_table(5),
        lambda: server.join(name, 2**32 + 1, 0), lambda: server.join(name, 1, True), lambda: server.join(name, 1, 0, 2**64),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError)):
            call()
    assert server.checkpoints() == before and not list(tmp_path.iterdir())


def test_offsets_and_weights_of_bags_are_not_cut(server, name):
    table = server.create_table(name, 2, optimizer="sgd")
    with server.bag_batch([embtier.Bags(table, 2, 1, "sum", True)]) as batch:
        batch.ids(0)[:] = [1, 2]
        for wrong in ([0, -1], [0, 2**32 + 2], [0.5, 2.0], [False, True]):
            with pytest.raises((TypeError, ValueError), match="offset"):
                batch.offsets(0)[:] = wrong
        for wrong in ([1j, 2], ["1", "2"], [True, 2], None):
            with pytest.raises((TypeError, ValueError)):
                batch.weights(0)[:] = wrong
        batch.offsets(0)[:] = [0, 2]
        batch.weights(0)[:] = [1, 2]
        assert batch.lookup(ticket=True).bags(0).shape == (1, 2)
        with pytest.raises(TypeError):
            batch.gradients(0)[:] = np.array([[1j, 2]])
        batch.gradients(0)[:] = torch.ones(1, 2, requires_grad=True)
        batch.push(0.1, 1)


# ---- torch ----


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_modules_take_ids_of_two_dtypes(server, name, dtype):
    bag = et.EmbeddingBag(server.create_table(name, 2, if_not_exists=True), frozen=True)
    try:
        ids = tensor_of(dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        pytest.skip(f"this torch makes no tensors of {dtype}")
    if dtype in (torch.int32, torch.int64):
        assert bag(ids).shape == (1, 2)
        assert bag(ids.reshape(-1), torch.tensor([0, 1]).to(dtype)).shape == (2, 2)
        return
    with pytest.raises(TypeError, match="must be int32 or int64"):
        bag(ids)
    with pytest.raises(TypeError, match="offsets must be int32 or int64"):
        bag(torch.tensor([1, 2]), ids.reshape(-1))


@pytest.mark.filterwarnings("ignore")
def test_modules_take_tensors_and_nothing_else(server, name):
    table = server.create_table(name, 2, 100, optimizer="sgd")
    bag = et.EmbeddingBag(table, lr=0.01)
    ids, offsets = torch.tensor([1, 2]), torch.tensor([0])
    meta = torch.empty(2, dtype=torch.int64, device="meta")
    for wrong in (5, [1, 2], np.array([1, 2]), "1", None, ids.to_sparse(), meta):
        with pytest.raises(TypeError):
            bag(wrong, offsets)
        if wrong is not None:
            with pytest.raises(TypeError):
                bag(ids, wrong)
            with pytest.raises(TypeError):
                bag(ids.view(1, 2), None, wrong)
    unbounded = server.create_table(f"{name}.u", 2, optimizer="sgd")
    for wrong in (1.5, "1", True, 2**64 + 5, HUGE, -(2**64) - 1):
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(table, padding_idx=wrong, lr=0.01)
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(unbounded, padding_idx=wrong, unsigned_ids=True, lr=0.01)
    with pytest.raises(TypeError):
        et.EmbeddingBag(table, unsigned_ids="no", lr=0.01)
    for wrong in (-1, 1.5, 2**53, True, "1", None):
        with pytest.raises((TypeError, ValueError)):
            bag.steps = wrong
    for wrong in (math.nan, 2.5, "2", True, None, 0, -1):
        with pytest.raises((TypeError, ValueError)):
            et.Prefetcher([], bag, lambda batch: batch, ahead=wrong)
    for wrong in ("0.1", True, None, 1j, [0.1], HUGE):
        with pytest.raises((TypeError, ValueError)):
            et.EmbeddingBag(table, lr=wrong)
        with pytest.raises((TypeError, ValueError)):
            bag.lr = wrong
        with pytest.raises((TypeError, ValueError), match="grad_scale"):
            bag.grad_scale = wrong
        bag.grad_scale = lambda wrong=wrong: wrong
        with pytest.raises((TypeError, ValueError), match="grad_scale"):
            bag(ids, offsets).sum().backward()
    bag.grad_scale = 0
    with pytest.raises(ValueError, match="grad_scale is 0"):
        bag(ids, offsets).sum().backward()
    assert bag.steps == 0 and bag.lr == 0.01 and not table.get([1, 2]).any()


def test_progress_is_a_function(server, name):
    for wrong in (5, "print", []):
        for call in (
            lambda: server.create_table(name, 2, progress=wrong),
            lambda: server.checkpoint(progress=wrong),
            lambda: server.drop_table(name, progress=wrong),
        ):
            with pytest.raises(TypeError, match="progress must be a function"):
                call()
    assert name not in [spec.name for spec in server.tables()]
