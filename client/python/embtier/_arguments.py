# SPDX-License-Identifier: Apache-2.0
"""The types of C's arguments. ctypes cuts a value that does not fit: it makes 5 of 2**64 + 5, and C reads "users" for
"users\\0old". So each argument of a function and each field of a struct has a type of this module, which takes a value
whole or refuses it.

One rule holds for all types. TypeError: the value is of another type, such as a float or a bool for a number of rows.
ValueError: the type is right and the value does not fit, such as a number out of range, NaN for a time, a zero byte in
a string, or half of a surrogate pair. The message names the argument and the value.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

_SHOWN = 60  # characters of a value in a message
_REASON = 200  # and of a foreign message in one
TIMEOUT_MS_MAX = 2**32 - 1


def short(text: str, most: int = _SHOWN) -> str:
    """Returns a foreign @text for a message: one line of at most @most characters, all of which a terminal shows."""
    is_cut = len(text) > most
    text = text[: most - 1] if is_cut else text
    if not text.isprintable():
        text = "".join(one if one.isprintable() else " " if one in "\n\r\t" else "?" for one in text)
    return f"{text}…" if is_cut else text


def shown(value: Any) -> str:
    """Returns @value for a message, never longer than a line. All messages show callers' values through this
    function."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    try:
        if isinstance(value, np.generic):
            value = value.item()  # every NumPy shows a Python number alike; newer ones add their type's name to 2.0
        if type(value) in (str, bytes, bytearray, list, tuple) and len(value) > _SHOWN:
            value = value[:_SHOWN]  # the rest would be cut off
        elif isinstance(value, np.ndarray) and value.size > 1000:
            return short(f"an array of {value.dtype} {value.shape}")
        return short(repr(value))
    except Exception:
        return f"a {kind_of(value)}"


def kind_of(value: Any) -> str:
    """Returns the name of the type of @value, for a message."""
    return short(type(value).__name__)


def reason(error: Exception) -> str:
    """Returns the text of @error, which may contain a value, for a message."""
    return short(str(error), _REASON)


def _limit(number: int) -> str:
    """Returns a text such as "2**64 - 1", rather than 20 digits."""
    power = abs(number).bit_length() - (number < 0)
    if number >= 2**16 and number == 2**power - 1:
        return f"2**{power} - 1"
    return f"-2**{power}" if number <= -(2**16) and number == -(2**power) else str(number)


def is_bool(value: Any) -> bool:
    """True for bools of Python, NumPy and torch, all of which have an __index__()."""
    return isinstance(value, (bool, np.bool_)) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def integer(what: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Returns @value, an integer of Python, NumPy or torch, as an int."""
    if type(value) is not int:
        if is_bool(value) or isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{what} must be an integer, not {shown(value)}")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{what} must be an integer, not {kind_of(value)} {shown(value)}") from None
    if (least is not None and value < least) or (most is not None and value > most):
        above = "" if most is None else f" to {_limit(most)}"
        raise ValueError(f"{what} must be from {_limit(least or 0)}{above}, not {shown(value)}")
    return value


def number(what: str, value: Any) -> float:
    """Returns @value, a real number, as a float. ValueError if it is finite and the float would not be."""
    if type(value) is float:
        return value
    dtype = getattr(value, "dtype", None)
    is_array = isinstance(dtype, np.dtype) and (dtype.kind not in "fiu" or np.ndim(value) > 0)
    is_text = isinstance(value, (str, bytes, bytearray))
    if is_text or is_array or is_bool(value) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} must be a number, not {kind_of(value)} {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"{what} is more than a float holds: {shown(value)}") from None
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{what} must be a number, not {kind_of(value)} {shown(value)}") from None
    if math.isinf(found) and value != found:
        raise ValueError(f"{what} is more than a float holds: {shown(value)}")
    return found


def learning_rate(what: str, value: Any) -> float:
    """Returns @value, a real number that is not negative and finite in float32, as a float."""
    found = number(what, value)
    if not math.isfinite(ctypes.c_float(found).value) or found < 0:
        raise ValueError(f"{what} must be a number that is finite in float32 and not negative, not {shown(value)}")
    return found


def flag(what: str, value: Any) -> bool:
    """Returns @value, a bool or 0 or 1, as a bool. It refuses the word "no", which Python takes for true."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    try:
        return bool(integer(what, value, 0, 1))
    except TypeError:
        raise TypeError(f"{what} must be True or False, not {kind_of(value)} {shown(value)}") from None


def encoded(what: str, value: bytes) -> bytes:
    if b"\0" in value:
        raise ValueError(f"{what} must not hold a zero byte: {shown(value)}")
    return value


def text(what: str, value: Any) -> bytes:
    """Returns @value, a str, in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {kind_of(value)} {shown(value)}")
    if "\0" in value:
        raise ValueError(f"{what} must not hold a zero byte: {shown(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} must be Unicode text; U+{ord(value[error.start]):04X} at position {error.start} is half of a "
            f"surrogate pair: {shown(value)}"
        ) from None


def path(what: str, value: Any) -> bytes:
    """Returns @value, a str, bytes or os.PathLike, in the file system's encoding."""
    try:
        return encoded(what, os.fsencode(value))
    except TypeError:
        raise TypeError(f"{what} must be a path, not {kind_of(value)} {shown(value)}") from None
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} must be a path of this file system; the character at position {error.start} is not in its "
            f"encoding: {shown(value)}"
        ) from None


def several(what: str, values: Any) -> list[Any]:
    """Returns the values of a list, a tuple or another iterable. A text is one value, and a mapping is refused."""
    if isinstance(values, (str, bytes, bytearray, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list or the like, not {kind_of(values)} {shown(values)}")
    return list(values)


# ---- Times ----


def seconds(what: str, value: Any) -> float:
    """Returns @value, a time to wait, as a float. None and infinity mean for ever; a negative time and NaN are
    ValueErrors."""
    if value is None:
        return math.inf
    found = number(what, value)
    if not found >= 0:
        raise ValueError(f"{what} must be 0 or more seconds, or None, not {shown(value)}")
    return found


def deadline_of(timeout: float | None) -> float:
    """Returns the time on the clock of time.monotonic() when @timeout ends."""
    if timeout is None:
        return math.inf
    return time.monotonic() + seconds("timeout", timeout)


def milliseconds_left(deadline: float, most: int) -> int:
    """Returns the milliseconds until @deadline, at most @most. Rounds up, so that a wait does not end early."""
    if deadline == math.inf:
        return most
    left = deadline - time.monotonic()
    return most if left * 1000 >= most else max(0, math.ceil(left * 1000))


def timeout_ms(what: str, value: Any) -> int:
    """Returns @value in milliseconds, rounded up. None, 0 and infinity mean for ever, which is 0. ValueError if
    the number does not fit in C."""
    found = seconds(what, value)
    if math.isinf(found):
        return 0
    if found * 1000 > TIMEOUT_MS_MAX:
        raise ValueError(
            f"{what} must be at most {TIMEOUT_MS_MAX / 1000} seconds, or None for no limit, not {shown(value)}"
        )
    return math.ceil(found * 1000)


# ---- Arguments of functions, and fields of structs ----


class Argument:
    """A type of arguments. @ctype is the type that C gets. check() returns the value for it, or raises an error that
    names the argument, @what."""

    ctype: ClassVar[Any]

    @classmethod
    def check(cls, what: str, value: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def from_param(cls, value: Any) -> Any:
        """Called by ctypes."""
        return cls.ctype(cls.check("an argument", value))


class Integer(Argument):
    least: ClassVar[int]
    most: ClassVar[int]

    @classmethod
    def check(cls, what: str, value: Any) -> int:
        return integer(what, value, cls.least, cls.most)

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if value.__class__ is int and cls.least <= value <= cls.most:  # the usual case
            return cls.ctype(value)
        return cls.ctype(cls.check("an argument", value))


class U32(Integer):
    ctype, least, most = ctypes.c_uint32, 0, 2**32 - 1


class U64(Integer):
    ctype, least, most = ctypes.c_uint64, 0, 2**64 - 1


class Size(Integer):
    ctype, least, most = ctypes.c_size_t, 0, 2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1


class Int(Integer):
    """C's int, and its enums."""

    ctype = ctypes.c_int
    least, most = -(2 ** (8 * ctypes.sizeof(ctypes.c_int) - 1)), 2 ** (8 * ctypes.sizeof(ctypes.c_int) - 1) - 1


class CheckpointId(U64):
    """Ids begin with 1. C answers 0 with NOT_FOUND, like any other id that does not exist."""

    @classmethod
    def check(cls, what: str, value: Any) -> int:
        found = integer(what, value)
        return found if found == 0 else integer(what, found, 1, cls.most)


class Flag(Argument):
    ctype = ctypes.c_int

    @classmethod
    def check(cls, what: str, value: Any) -> bool:
        return flag(what, value)


class Double(Argument):
    """C refuses NaN and infinity where they have no meaning, and names the parameter."""

    ctype = ctypes.c_double

    @classmethod
    def check(cls, what: str, value: Any) -> float:
        return number(what, value)


class Text(Argument):
    ctype = ctypes.c_char_p

    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        return text(what, value)


class Path(Argument):
    ctype = ctypes.c_char_p

    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        return path(what, value)


class Bytes(Argument):
    """A string that has been encoded."""

    ctype = ctypes.c_char_p

    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        if not isinstance(value, bytes):
            raise TypeError(f"{what} must be bytes, not {kind_of(value)} {shown(value)}")
        return encoded(what, value)


class OptionalText(Text):
    """None is NULL, also in the next two classes."""

    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        return None if value is None else text(what, value)


class OptionalPath(Path):
    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        return None if value is None else path(what, value)


class OptionalBytes(Bytes):
    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        return None if value is None else Bytes.check(what, value)


class Handle(Argument):
    """A pointer that the library has given, never NULL."""

    ctype = ctypes.c_void_p

    @classmethod
    def check(cls, what: str, value: Any) -> Any:
        if isinstance(value, cls.ctype) and value:
            return value
        raise TypeError(f"{what} must be a handle of the library, not {kind_of(value)} {shown(value)}")

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if value.__class__ is cls.ctype and value:
            return value
        return cls.check("an argument", value)


class OptionalHandle(Handle):
    """None is NULL."""

    @classmethod
    def check(cls, what: str, value: Any) -> Any:
        return None if value is None else Handle.check(what, value)


def chars(length: int) -> type[Argument]:
    """Returns the type of an array of @length chars, the last of which is a zero byte."""

    class Chars(Bytes):
        ctype = ctypes.c_char * length

        @classmethod
        def check(cls, what: str, value: Any) -> bytes:
            found = Bytes.check(what, value)
            assert found is not None
            if len(found) >= length:
                raise ValueError(f"{what} must be at most {length - 1} bytes, not {len(found)}: {shown(value)}")
            return found

    return Chars


def pointer(ctype: Any) -> type[Argument]:
    """Returns the type of a pointer or function. ctypes takes no other type for it; None is NULL."""

    class Pointer(Argument):
        @classmethod
        def check(cls, what: str, value: Any) -> Any:
            if value is None:
                return cls.ctype()
            try:
                cls.ctype.from_param(value)
            except TypeError:
                kind = cls.ctype.__name__
                raise TypeError(f"{what} must be a {kind}, not {kind_of(value)} {shown(value)}") from None
            return value

        @classmethod
        def from_param(cls, value: Any) -> Any:
            return cls.ctype.from_param(value)

    Pointer.ctype = ctype
    return Pointer


class _RecordType(type(ctypes.Structure)):  # type: ignore[misc]
    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if "arguments" in body:
            body["arguments"] = dict(body["arguments"])
            body["_fields_"] = [(field, argument.ctype) for field, argument in body["arguments"].items()]
        return super().__new__(mcs, name, bases, body)


class Record(ctypes.Structure, metaclass=_RecordType):
    """A struct of the library. A class declares its fields as ``arguments`` = [(name, Argument), ...]. Each assignment
    checks its value, and the constructor does too."""

    arguments: ClassVar[Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        argument = self.arguments.get(name)
        if argument is None:
            raise AttributeError(f"{type(self).__name__} has no field {shown(name)}")
        super().__setattr__(name, argument.check(name, value))


def checked(function: Any, result: Any, arguments: dict[str, type[Argument]]) -> Callable[..., Any]:
    """Declares the types of @function and returns a function that calls it. For a wrong argument ctypes raises an
    ArgumentError. The returned function raises the argument's own error instead, with its name."""
    function.restype = result
    function.argtypes = list(arguments.values())
    error_of_ctypes = ctypes.ArgumentError

    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except error_of_ctypes as error:
            for (what, argument), value in zip(arguments.items(), values):
                argument.check(what, value)
            if "KeyboardInterrupt" in str(error):  # it came in a from_param(), and ctypes replaced it by its own error
                raise KeyboardInterrupt from None
            raise

    call.__name__ = function.__name__
    call.argtypes, call.restype = function.argtypes, result  # type: ignore[attr-defined]
    return call
