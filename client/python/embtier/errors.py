# SPDX-License-Identifier: Apache-2.0
"""Exceptions, one class per error of embtier_err.h, made from the library's own table.

``NO_TABLE`` is :class:`NoTableError`, and so on; all derive from :class:`Error`. Those with a counterpart in Python
also derive from the counterpart: :class:`IdRangeError` is an IndexError. An error that another member of a group of
trainers caused has that member's number as ``member``.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator

from ._library import lib

__all__ = ["Error"]


class Error(Exception):
    """An error of the server or the library. @code is its number in embtier_err.h, @name its name there; the message is
    one line that describes the error."""

    code = 0
    name = "OK"


_ALSO = {
    "NO_MEMORY": builtins.MemoryError,
    "INVALID": builtins.ValueError,
    "NOT_FOUND": builtins.LookupError,
    "NO_TABLE": builtins.LookupError,
    "ID_RANGE": builtins.IndexError,
    "TIMEOUT": builtins.TimeoutError,
    "DISCONNECTED": builtins.ConnectionError,
    "UNREACHABLE": builtins.ConnectionError,
    "PERMISSION": builtins.PermissionError,
}

# Further attributes of some errors, None if unknown: see :class:`embtier.Group`.
_BESIDES: dict[str, dict[str, int | str | None]] = {
    "TIMEOUT": {"member": None},
    "GROUP_REFUSED": {"member": None, "err": None},
    "GROUP_BROKEN": {"member": None},
}


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_")) + "Error"


def _make_classes() -> dict[int, type[Error]]:
    classes = {}
    code = 1
    while (name := lib.embtier_err_name(code).decode()) != "UNKNOWN":
        bases = (Error, _ALSO[name]) if name in _ALSO else (Error,)
        text = lib.embtier_err_text(code).decode()
        body = {"code": code, "name": name, "__doc__": f"{name}: {text}.", "__module__": __name__}
        body |= _BESIDES.get(name, {})
        classes[code] = type(_class_name(name), bases, body)
        code += 1
    return classes


_CLASSES = _make_classes()
for _class in _CLASSES.values():
    globals()[_class.__name__] = _class
    __all__.append(_class.__name__)


def code_of(name: str) -> int:
    """Returns the number of an error by its name in embtier_err.h."""
    return next(code for code, found in _CLASSES.items() if found.name == name)


def name_of(code: int) -> str:
    """Returns the name of an error in embtier_err.h by its number."""
    return lib.embtier_err_name(code).decode()


@contextlib.contextmanager
def hint(name: str, text: str) -> Iterator[None]:
    """Adds @text, which says what to do, to the message of an error named @name."""
    try:
        yield
    except Error as error:
        if error.name == name:
            error.args = (f"{error}; {text}",)
        raise


def make(code: int, message: str) -> Error:
    """Returns the exception for @code. A newer library's unknown code gives a plain Error."""
    error = _CLASSES.get(code, Error)(message)
    error.code = code
    return error
