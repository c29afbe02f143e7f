# SPDX-License-Identifier: Apache-2.0
"""Scans through ctypes; the Python client has none yet."""

from __future__ import annotations

import ctypes

import numpy as np
from daemons import embtier  # noqa: F401  (it says where the client lies)

from embtier._library import lib

lib.embtier_scan_close.argtypes = [ctypes.c_void_p]
lib.embtier_scan_close.restype = None


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", ctypes.c_size_t),
        ("checkpoint", ctypes.c_uint64),
        ("with_state", ctypes.c_int),
        ("all_rows", ctypes.c_int),
        ("buffer_bytes", ctypes.c_uint64),
    ]


class Rows(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint32),
        ("ids", ctypes.POINTER(ctypes.c_uint64)),
        ("first_id", ctypes.c_uint64),
        ("rows", ctypes.POINTER(ctypes.c_float)),
        ("row_bytes", ctypes.c_uint32),
    ]


class Scan:
    """A scan of a table's weights in a checkpoint (0: the newest). Close it before its server."""

    def __init__(self, server, name: str, checkpoint: int = 0, all_rows: bool = False) -> None:
        self._connection, self._scan = server._connection, ctypes.c_void_p()
        options = Options(
            struct_bytes=ctypes.sizeof(Options), checkpoint=checkpoint, all_rows=all_rows, buffer_bytes=100_000
        )
        with self._connection as handle:
            code = lib.embtier_scan_open(
                handle, name.encode(), ctypes.byref(options), ctypes.byref(self._scan)
            )
            self._connection.check(code)

    def next(self) -> np.ndarray:
        """Returns some rows; none at the end."""
        rows = Rows()
        with self._connection:
            self._connection.check(lib.embtier_scan_next(self._scan, ctypes.byref(rows)))
        if rows.count == 0:
            return np.empty((0, 0), np.float32)
        return np.ctypeslib.as_array(rows.rows, (rows.count, rows.row_bytes // 4)).copy()

    def close(self) -> None:
        lib.embtier_scan_close(self._scan)
