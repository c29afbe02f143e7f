# SPDX-License-Identifier: Apache-2.0
"""libembtier through ctypes: where it is found, and the prototypes of embtier.h.

Searched in this order: the file named by ``EMBTIER_LIBRARY``; beside this package, where a wheel
has it; the build folders ``build*/client`` of the source tree this package lies in; the system's
library path.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p,
)  # fmt: skip
from pathlib import Path

from ._types import HYPERPARAMETERS

TABLE_NAME_MAX = 127  # EMBTIER_TABLE_NAME_MAX
NAMES = ("libembtier.so.0", "libembtier.so")

ProgressFunction = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_char_p)


class ConnectOptions(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("socket_path", c_char_p),
        ("arena_bytes", c_uint64),
        ("max_in_flight", c_uint32),
        ("timeout_ms", c_uint32),
        ("client_name", c_char_p),
    ]


class TableOptions(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("rows", c_uint64),
        ("dim", c_uint32),
        ("dtype", c_int),
        ("optimizer", c_int),
        ("init", c_int),
        ("init_first", c_double),
        ("init_second", c_double),
        ("seed", c_uint64),
        ("eager", c_int),
        ("if_not_exists", c_int),
        ("progress", ProgressFunction),
        ("progress_context", c_void_p),
        *((name, c_double) for name in HYPERPARAMETERS),
        ("rounds_to_nearest", c_int),
        ("allows_nonfinite", c_int),
        ("durability", c_int),
    ]


class TableInfo(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("table_id", c_uint32),
        ("rows", c_uint64),
        ("dim", c_uint32),
        ("dtype", c_int),
        ("optimizer", c_int),
        ("init", c_int),
        ("init_first", c_double),
        ("init_second", c_double),
        ("seed", c_uint64),
        ("eager", c_int),
        ("weight_bytes", c_uint32),
        ("state_bytes", c_uint32),
        ("state", c_char_p),
        ("updated_rows", c_uint64),
        ("flush_bytes", c_uint64),
        ("compaction_bytes", c_uint64),
        *((name, c_double) for name in HYPERPARAMETERS),
        ("rounds_to_nearest", c_int),
        ("allows_nonfinite", c_int),
        ("durability", c_int),
    ]


class CheckpointOptions(Structure):
    _fields_ = [
        ("has_step", c_int),
        ("step", c_uint64),
        ("metadata", c_char_p),
        ("keep", c_uint32),
        ("automatic", c_int),
    ]


class CheckpointInfo(Structure):
    _fields_ = [
        ("id", c_uint64),
        ("created_ms", c_uint64),
        ("automatic", c_int),
        ("has_step", c_int),
        ("step", c_uint64),
        ("metadata", c_char_p),
        ("table_count", c_uint32),
        ("tables", POINTER(c_char_p)),
        ("bytes", c_uint64),
        ("new_bytes", c_uint64),
        ("pause_us", c_uint64),
        ("held_rows", c_uint64),
        ("spent_ms", c_uint64),
        ("tries", c_uint64),
        ("cut_updates", c_uint64),
    ]


class ExportOptions(Structure):
    _fields_ = [
        ("checkpoint", c_uint64),
        ("with_state", c_int),
        ("all_rows", c_int),
        ("npy", c_int),
        ("file_bytes", c_uint64),
    ]


class ExportedInfo(Structure):
    _fields_ = [
        ("checkpoint", c_uint64),
        ("rows", c_uint64),
        ("bytes", c_uint64),
        ("parts", c_uint32),
    ]


class ImportOptions(Structure):
    _fields_ = [
        ("table", POINTER(TableOptions)),
        ("durability", c_int),
        ("without_state", c_int),
        ("tensor", c_char_p),
        ("ids_path", c_char_p),
        ("rows", c_uint64),
    ]


class ImportedInfo(Structure):
    _fields_ = [
        ("name", c_char * (TABLE_NAME_MAX + 1)),
        ("rows", c_uint64),
        ("bytes", c_uint64),
    ]


class Part(Structure):
    _fields_ = [("table", c_void_p), ("count", c_uint32)]


class BagPart(Structure):
    _fields_ = [
        ("table", c_void_p),
        ("count", c_uint32),
        ("bag_count", c_uint32),
        ("mode", c_int),
        ("weighted", c_int),
    ]


class PushOptions(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("learning_rate", c_double),
        ("learning_rates", POINTER(c_double)),
        ("step", c_uint64),
        ("weight_gradients", c_int),
        ("prefetch", c_void_p),
        ("group", c_void_p),
    ]


class GroupOptions(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("size", c_uint32),
        ("member", c_uint32),
        ("step", c_uint64),
    ]


class Metric(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("help", c_char_p),
        ("counter", c_int),
        ("label", c_char_p),
        ("label_value", c_char_p),
        ("value", c_double),
    ]


_HANDLE_OUT = POINTER(c_void_p)

# name: (result, arguments)
_PROTOTYPES = {
    "embtier_err_name": (c_char_p, [c_int]),
    "embtier_err_text": (c_char_p, [c_int]),
    "embtier_message": (c_char_p, [c_void_p]),
    "embtier_version": (c_char_p, []),
    "embtier_connect": (c_int, [POINTER(ConnectOptions), _HANDLE_OUT]),
    "embtier_disconnect": (None, [c_void_p]),
    "embtier_reconnect": (c_int, [c_void_p]),
    "embtier_table_create": (c_int, [c_void_p, POINTER(TableOptions), _HANDLE_OUT]),
    "embtier_table_open_as": (c_int, [c_void_p, c_char_p, c_uint32, c_int, _HANDLE_OUT]),
    "embtier_table_drop": (c_int, [c_void_p, c_char_p, ProgressFunction, c_void_p]),
    "embtier_table_info": (POINTER(TableInfo), [c_void_p]),
    "embtier_table_close": (None, [c_void_p]),
    "embtier_table_list": (c_int, [c_void_p, _HANDLE_OUT]),
    "embtier_table_list_count": (c_size_t, [c_void_p]),
    "embtier_table_list_at": (POINTER(TableInfo), [c_void_p, c_size_t]),
    "embtier_table_list_free": (None, [c_void_p]),
    "embtier_checkpoint_create": (
        c_int,
        [c_void_p, POINTER(CheckpointOptions), ProgressFunction, c_void_p, _HANDLE_OUT],
    ),
    "embtier_checkpoint_list": (c_int, [c_void_p, _HANDLE_OUT]),
    "embtier_checkpoint_show": (c_int, [c_void_p, c_uint64, _HANDLE_OUT]),
    "embtier_checkpoint_verify": (c_int, [c_void_p, c_uint64, ProgressFunction, c_void_p]),
    "embtier_checkpoint_restore": (
        c_int,
        [c_void_p, c_uint64, POINTER(c_char_p), c_size_t, c_char_p, ProgressFunction, c_void_p, _HANDLE_OUT],
    ),
    "embtier_checkpoint_delete": (c_int, [c_void_p, c_uint64]),
    "embtier_checkpoint_list_count": (c_size_t, [c_void_p]),
    "embtier_checkpoint_list_at": (POINTER(CheckpointInfo), [c_void_p, c_size_t]),
    "embtier_checkpoint_list_free": (None, [c_void_p]),
    "embtier_export": (
        c_int,
        [
            c_void_p, c_char_p, c_char_p, POINTER(ExportOptions), ProgressFunction, c_void_p,
            POINTER(ExportedInfo),
        ],  # fmt: skip
    ),
    "embtier_import": (
        c_int,
        [
            c_void_p, c_char_p, c_char_p, POINTER(ImportOptions), ProgressFunction, c_void_p,
            POINTER(ImportedInfo),
        ],  # fmt: skip
    ),
    "embtier_batch_new": (c_int, [c_void_p, POINTER(Part), c_uint32, _HANDLE_OUT]),
    "embtier_batch_new_with_state": (c_int, [c_void_p, POINTER(Part), c_uint32, _HANDLE_OUT]),
    "embtier_batch_row_bytes": (c_uint32, [c_void_p, c_uint32]),
    "embtier_batch_state": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_free": (c_int, [c_void_p]),
    "embtier_batch_set_count": (c_int, [c_void_p, c_uint32, c_uint32]),
    "embtier_batch_ids": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_rows": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_new_bags": (c_int, [c_void_p, POINTER(BagPart), c_uint32, _HANDLE_OUT]),
    "embtier_batch_set_bags": (c_int, [c_void_p, c_uint32, c_uint32, c_uint32]),
    "embtier_batch_offsets": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_weights": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_bags": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_ticket": (c_uint64, [c_void_p]),
    "embtier_batch_set_skipped": (c_int, [c_void_p, c_uint32, c_int]),
    "embtier_batch_new_push": (c_int, [c_void_p, POINTER(Part), c_uint32, _HANDLE_OUT]),
    "embtier_batch_new_prefetch": (c_int, [c_void_p, POINTER(Part), c_uint32, _HANDLE_OUT]),
    "embtier_batch_gradients": (c_void_p, [c_void_p, c_uint32]),
    "embtier_batch_coalesce": (c_int, [c_void_p]),
    "embtier_batch_count": (c_uint32, [c_void_p, c_uint32]),
    "embtier_batch_set_group": (c_int, [c_void_p, c_void_p, c_uint64]),
    "embtier_batch_blamed_member": (c_uint32, [c_void_p]),
    "embtier_batch_blamed_err": (c_int, [c_void_p]),
    "embtier_group_join": (c_int, [c_void_p, POINTER(GroupOptions), _HANDLE_OUT]),
    "embtier_group_free": (None, [c_void_p]),
    "embtier_group_step": (c_uint64, [c_void_p]),
    "embtier_batch_hit_rows": (c_uint64, [c_void_p]),
    "embtier_submit": (c_int, [c_void_p, c_int]),
    "embtier_submit_push": (c_int, [c_void_p, POINTER(PushOptions)]),
    "embtier_poll": (c_int, [c_void_p]),
    "embtier_wait": (c_int, [c_void_p, c_uint32]),
    "embtier_status": (c_int, [c_void_p, _HANDLE_OUT]),
    "embtier_status_version": (c_char_p, [c_void_p]),
    "embtier_status_uptime_ms": (c_uint64, [c_void_p]),
    "embtier_status_count": (c_size_t, [c_void_p]),
    "embtier_status_at": (POINTER(Metric), [c_void_p, c_size_t]),
    "embtier_status_free": (None, [c_void_p]),
}


def _candidates() -> list[str]:
    named = os.environ.get("EMBTIER_LIBRARY")
    if named:
        return [named]
    package = Path(__file__).resolve().parent
    folders = [package, package.parent / ".embtier.mesonpy.libs"]
    tree = package.parents[2]  # TREE/client/python/embtier
    if (tree / "client" / "embtier.h").exists():
        folders += sorted(folder / "client" for folder in tree.glob("build*"))
    found = [str(folder / name) for folder in folders for name in NAMES if (folder / name).exists()]
    return found + list(NAMES)


def load() -> ctypes.CDLL:
    """Loads the library and declares its functions. ImportError says where it was looked for."""
    failures = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(str(error))
            continue
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        return library
    raise ImportError("no libembtier: " + "; ".join(failures) + " (set EMBTIER_LIBRARY to its path)")


lib = load()
