# SPDX-License-Identifier: Apache-2.0
"""What may be given to C, and what is said of the rest. ctypes cuts what does not fit: of 2**64 + 5 it
makes 5, of "users\\0old" C reads "users". So each argument of a function, and each field of a struct, has
a type of this module, which takes a value whole or not at all.

One rule for all. TypeError: the value is of another kind, such as a float or a bool for a number of
rows. ValueError: it is of the right kind and does not fit: out of range, NaN for a time, a zero byte or half
of a surrogate pair in a string. The message names the argument and the value.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

_SHOWN = 60  # characters of a value in a message
TIMEOUT_MS_MAX = 2**32 - 1


def shown(value: Any) -> str:
    """@value for a message, never longer than a line."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _limit(number: int) -> str:
    """2**64 - 1 rather than 20 digits."""
    power = abs(number).bit_length() - (number < 0)
    if number >= 2**16 and number == 2**power - 1:
        return f"2**{power} - 1"
    return f"-2**{power}" if number <= -(2**16) and number == -(2**power) else str(number)


def is_bool(value: Any) -> bool:
    """NumPy's and torch's too, which Python counts as the integers 0 and 1."""
    return isinstance(value, (bool, np.bool_)) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def integer(what: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """An integer of Python, NumPy or torch."""
    if type(value) is not int:
        if is_bool(value) or isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{what} must be an integer, not {shown(value)}")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError(f"{what} must be an integer, not {type(value).__name__} {shown(value)}") from None
    if (least is not None and value < least) or (most is not None and value > most):
        above = "" if most is None else f" to {_limit(most)}"
        raise ValueError(f"{what} must be from {_limit(least or 0)}{above}, not {shown(value)}")
    return value


def number(what: str, value: Any) -> float:
    """A real number, as a float. One so large that it would become infinite is a ValueError."""
    if type(value) is float:
        return value
    dtype = getattr(value, "dtype", None)
    is_array = isinstance(dtype, np.dtype) and (dtype.kind not in "fiu" or np.ndim(value) > 0)
    is_text = isinstance(value, (str, bytes, bytearray))
    if is_text or is_array or is_bool(value) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{what} must be a number, not {type(value).__name__} {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(f"{what} is more than a float holds: {shown(value)}") from None
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{what} must be a number, not {type(value).__name__} {shown(value)}") from None
    if math.isinf(found) and value != found:
        raise ValueError(f"{what} is more than a float holds: {shown(value)}")
    return found


def flag(what: str, value: Any) -> bool:
    """A bool, or 0 or 1. A word such as "no" is none, although Python takes it for true."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    try:
        return bool(integer(what, value, 0, 1))
    except TypeError:
        raise TypeError(f"{what} must be True or False, not {type(value).__name__} {shown(value)}") from None


def encoded(what: str, value: bytes) -> bytes:
    if b"\0" in value:
        raise ValueError(f"{what} must not hold a zero byte: {shown(value)}")
    return value


def text(what: str, value: Any) -> bytes:
    """A str, in UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__} {shown(value)}")
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
    """A str, bytes or os.PathLike, as the file system has it."""
    try:
        return encoded(what, os.fsencode(value))
    except TypeError:
        raise TypeError(f"{what} must be a path, not {type(value).__name__} {shown(value)}") from None
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} must be a path of this file system; the character at position {error.start} is none of its "
            f"encoding: {shown(value)}"
        ) from None


# ---- Times ----


def seconds(what: str, value: Any) -> float:
    """A time to wait; None is for ever, as infinity is. A negative one and NaN are ValueErrors."""
    if value is None:
        return math.inf
    found = number(what, value)
    if not found >= 0:
        raise ValueError(f"{what} must be 0 or more seconds, or None, not {shown(value)}")
    return found


def deadline_of(timeout: float | None) -> float:
    """On the clock of time.monotonic()."""
    if timeout is None:
        return math.inf
    return time.monotonic() + seconds("timeout", timeout)


def milliseconds_left(deadline: float, most: int) -> int:
    """Rounded up, so that a wait does not end early; at most @most."""
    if deadline == math.inf:
        return most
    left = deadline - time.monotonic()
    return most if left * 1000 >= most else max(0, math.ceil(left * 1000))


def timeout_ms(what: str, value: Any) -> int:
    """Milliseconds, rounded up; 0 is for ever: so are None, 0 and infinity. More than C can count is a
    ValueError."""
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
    """@ctype: what C gets. check() says what is given to it, or raises; @what: the name of the argument."""

    ctype: ClassVar[Any]

    @classmethod
    def check(cls, what: str, value: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def from_param(cls, value: Any) -> Any:
        """For ctypes."""
        return cls.ctype(cls.check("an argument", value))


class Integer(Argument):
    least: ClassVar[int]
    most: ClassVar[int]

    @classmethod
    def check(cls, what: str, value: Any) -> int:
        return integer(what, value, cls.least, cls.most)

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if value.__class__ is int and cls.least <= value <= cls.most:  # nearly all, and quickly
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
    """They begin with 1. Of 0 C says, as of any that there is not, that it is not found."""

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
    """NaN and infinity are C's to judge: it knows the parameter, and names it."""

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
    """Encoded before."""

    ctype = ctypes.c_char_p

    @classmethod
    def check(cls, what: str, value: Any) -> bytes | None:
        if not isinstance(value, bytes):
            raise TypeError(f"{what} must be bytes, not {type(value).__name__} {shown(value)}")
        return encoded(what, value)


class OptionalText(Text):
    """None: NULL. So are the next two."""

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
        raise TypeError(f"{what} must be a handle of the library, not {type(value).__name__} {shown(value)}")

    @classmethod
    def from_param(cls, value: Any) -> Any:
        if value.__class__ is cls.ctype and value:
            return value
        return cls.check("an argument", value)


class OptionalHandle(Handle):
    """None: NULL."""

    @classmethod
    def check(cls, what: str, value: Any) -> Any:
        return None if value is None else Handle.check(what, value)


def chars(length: int) -> type[Argument]:
    """An array of @length chars, with the zero byte that ends them."""

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
    """A pointer or a function, of which ctypes itself takes nothing but its own type; None: NULL."""

    class Pointer(Argument):
        @classmethod
        def check(cls, what: str, value: Any) -> Any:
            if value is None:
                return cls.ctype()
            try:
                cls.ctype.from_param(value)
            except TypeError:
                kind = cls.ctype.__name__
                raise TypeError(f"{what} must be a {kind}, not {type(value).__name__} {shown(value)}") from None
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
    """A struct of the library's, whose fields are declared as ``arguments`` = [(name, Argument), ...] and
    checked whenever one is assigned, by the constructor too."""

    arguments: ClassVar[Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        argument = self.arguments.get(name)
        if argument is None:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        super().__setattr__(name, argument.check(name, value))


def checked(function: Any, result: Any, arguments: dict[str, type[Argument]]) -> Callable[..., Any]:
    """@function of the library, with its types. Of a wrong argument ctypes would tell the text of the error, in
    an error of its own: here it is raised itself, with the argument's name."""
    function.restype = result
    function.argtypes = list(arguments.values())
    error_of_ctypes = ctypes.ArgumentError

    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except error_of_ctypes:
            for (what, argument), value in zip(arguments.items(), values):
                argument.check(what, value)
            raise

    call.__name__ = function.__name__
    call.argtypes, call.restype = function.argtypes, result  # type: ignore[attr-defined]
    return call
