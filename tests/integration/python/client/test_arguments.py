# SPDX-License-Identifier: Apache-2.0
"""Everything that Python passes to C is taken whole or refused, and never cut. No server is needed. The tests walk all functions
and structs, and check times."""

from __future__ import annotations

import ctypes
import decimal
import fractions
import math
import re
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TREE
from odd_values import HUGE

import embtier
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
    "embtier_moved_info": _library.MovedInfo,
    "embtier_move_options": _library.MoveOptions,
    "embtier_profile_info": _library.ProfileInfo,
    "embtier_import_options": _library.ImportOptions,
    "embtier_imported": _library.ImportedInfo,
    "embtier_load_buffer": _library.LoadBuffer,
    "embtier_part": _library.Part,
    "embtier_bag_part": _library.BagPart,
    "embtier_push_options": _library.PushOptions,
    "embtier_group_options": _library.GroupOptions,
    "embtier_account": _library.Account,
    "embtier_metric": _library.Metric,
    "embtier_latency": _library.Latency,
}


def ctype_of(declared: str) -> type | None:
    """The ctypes type for a C type of the header; None for a pointer."""
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
    """The type and name of a parameter or field."""
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
    """All structures of the package, whatever they derive from."""
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
WRONG = {  # a kind of argument: values of a wrong type, and values that do not fit
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
    if kind is None:  # a pointer; all pointers have one type
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
    """Pairs: the given value, and the one that C gets."""
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
            with pytest.raises(RuntimeError, match=error.__name__):  # ctypes raises it when it makes one of a tuple
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
    handle = ctypes.c_void_p(8)  # never used
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
    """0.4 ms must not be rounded to 0, which means for ever. The server in this test never answers."""
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
