# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libembtier with ctypes, and declares the structs and prototypes of embtier.h. _arguments.py checks
each field and argument. No other module calls C.

The package looks for the library in four places: the file that ``EMBTIER_LIBRARY`` names, the package's own folder, the
build folders ``build*/client`` of the source tree, and the system's library path. A wheel has it in the second place.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ._arguments import (
    U32, U64, Argument, CheckpointId, Double, Flag, Handle, Int, OptionalBytes, OptionalHandle, OptionalPath, OptionalText,
    Path, Record, Size, Text, chars, checked, pointer,
)  # fmt: skip
from ._types import HYPERPARAMETERS

TABLE_NAME_MAX = 127  # EMBTIER_TABLE_NAME_MAX
NAMES = ("libembtier.so.0", "libembtier.so")

ProgressFunction = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_char_p)
Progress = pointer(ProgressFunction)


class ConnectOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("socket_path", OptionalPath),
        ("arena_bytes", U64),
        ("max_in_flight", U32),
        ("timeout_ms", U32),
        ("client_name", OptionalText),
        ("reconnect_ms", U32),
        ("request_timeout_ms", U32),
        ("retry_reads", Flag),
        ("unused", Int),
    ]


class TableOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("name", Text),
        ("rows", U64),
        ("dim", U32),
        ("dtype", Int),
        ("optimizer", Int),
        ("init", Int),
        ("init_first", Double),
        ("init_second", Double),
        ("seed", U64),
        ("eager", Flag),
        ("if_not_exists", Flag),
        ("progress", Progress),
        ("progress_context", OptionalHandle),
        *((name, Double) for name in HYPERPARAMETERS if name != "momentum"),  # momentum came later
        ("rounds_to_nearest", Flag),
        ("allows_nonfinite", Flag),
        ("durability", Int),
        ("momentum", Double),
        ("home", Int),
        ("home_tier", OptionalText),
    ]


class TableInfo(Record):
    arguments = [
        ("name", OptionalBytes),
        ("table_id", U32),
        ("rows", U64),
        ("dim", U32),
        ("dtype", Int),
        ("optimizer", Int),
        ("init", Int),
        ("init_first", Double),
        ("init_second", Double),
        ("seed", U64),
        ("eager", Flag),
        ("weight_bytes", U32),
        ("state_bytes", U32),
        ("state", OptionalBytes),
        ("updated_rows", U64),
        ("flush_bytes", U64),
        ("compaction_bytes", U64),
        *((name, Double) for name in HYPERPARAMETERS if name != "momentum"),  # momentum came later
        ("rounds_to_nearest", Flag),
        ("allows_nonfinite", Flag),
        ("durability", Int),
        ("momentum", Double),
        ("home", Int),
        ("home_tier", OptionalBytes),
        ("uuid", OptionalBytes),
        ("step", U64),
        ("hot_rows", U64),
        ("lookup_rows", U64),
        ("missed_lookup_rows", U64),
        ("read_lookup_rows", U64),
        ("lookup_ns", U64),
        ("import_bytes", U64),
        ("log_bytes", U64),
        ("initial_bytes", U64),
        ("history_ms", U64),
        ("history_bytes", U64),
        ("daily_bytes_now", Double),
        ("daily_bytes_hour", Double),
        ("daily_bytes_day", Double),
        ("daily_bytes_week", Double),
    ]


class MoveOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("home", Int),
        ("home_tier", OptionalText),
        ("rate_bytes", U64),
        ("progress", Progress),
        ("progress_context", OptionalHandle),
        ("hot_rows", OptionalHandle),
        ("hot_row_count", U64),
    ]


class MovedInfo(Record):
    arguments = [("rows", U64), ("was_there", Flag)]


class CheckpointOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("has_step", Flag),
        ("step", U64),
        ("metadata", OptionalBytes),
        ("keep", U32),
        ("automatic", Flag),
    ]


class CheckpointInfo(Record):
    arguments = [
        ("id", U64),
        ("created_ms", U64),
        ("automatic", Flag),
        ("has_step", Flag),
        ("step", U64),
        ("metadata", OptionalBytes),
        ("table_count", U32),
        ("tables", pointer(POINTER(c_char_p))),
        ("bytes", U64),
        ("new_bytes", U64),
        ("pause_us", U64),
        ("held_rows", U64),
        ("spent_ms", U64),
        ("tries", U64),
        ("cut_updates", U64),
        ("uid", U32),
        ("user", OptionalBytes),
    ]


class ExportOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("checkpoint", U64),
        ("with_state", Flag),
        ("all_rows", Flag),
        ("npy", Flag),
        ("file_bytes", U64),
    ]


class ExportedInfo(Record):
    arguments = [
        ("checkpoint", U64),
        ("rows", U64),
        ("bytes", U64),
        ("parts", U32),
    ]


class ImportOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("table", pointer(POINTER(TableOptions))),
        ("durability", Int),
        ("without_state", Flag),
        ("tensor", OptionalText),
        ("ids_path", OptionalPath),
        ("rows", U64),
        ("home", Int),
        ("home_tier", OptionalText),
    ]


class ImportedInfo(Record):
    arguments = [
        ("name", chars(TABLE_NAME_MAX + 1)),
        ("rows", U64),
        ("bytes", U64),
    ]


class Part(Record):
    arguments = [("table", Handle), ("count", U32)]


class BagPart(Record):
    arguments = [
        ("table", Handle),
        ("count", U32),
        ("bag_count", U32),
        ("mode", Int),
        ("weighted", Flag),
    ]


class PushOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("learning_rate", Double),
        ("learning_rates", pointer(POINTER(c_double))),
        ("step", U64),
        ("weight_gradients", Flag),
        ("prefetch", OptionalHandle),
        ("group", OptionalHandle),
    ]


class GroupOptions(Record):
    arguments = [
        ("struct_bytes", Size),
        ("name", Text),
        ("size", U32),
        ("member", U32),
        ("step", U64),
    ]


class Metric(Record):
    arguments = [
        ("name", OptionalBytes),
        ("help", OptionalBytes),
        ("counter", Flag),
        ("label", OptionalBytes),
        ("label_value", OptionalBytes),
        ("value", Double),
    ]


class Latency(Record):
    arguments = [
        ("op", OptionalBytes),
        ("transport", OptionalBytes),
        ("requests", U64),
        ("seconds", Double),
        ("bound_count", Size),
        ("bounds", OptionalHandle),
        ("counts", OptionalHandle),
    ]


class Account(Record):
    arguments = [
        ("uid", U32),
        ("name", OptionalBytes),
        ("what", OptionalBytes),
        ("is_bytes", Flag),
        ("used", U64),
        ("most", U64),
        ("user", OptionalBytes),
    ]


class ProfileInfo(Record):
    arguments = [
        ("runs", Flag),
        ("is_exact", Flag),
        ("age_ms", U64),
        ("memory_bytes", U64),
        ("lookups", U64),
        ("samples", U64),
        ("lost_samples", U64),
        ("tables", U32),
    ]


class LoadBuffer(Record):
    arguments = [
        ("ids", OptionalHandle),
        ("rows", OptionalHandle),
        ("capacity", U32),
        ("row_bytes", U32),
    ]


_NEW = pointer(POINTER(c_void_p))  # where C writes a handle
_PROGRESS = {"progress": Progress, "progress_context": OptionalHandle}
_BATCH, _LIST = {"batch": Handle}, {"list": Handle}
_PART = _BATCH | {"part": U32}
_PARTS = {"server": Handle, "parts": pointer(POINTER(Part)), "part_count": U32, "ret_batch": _NEW}

# name: (result, arguments), in the order of embtier.h
FUNCTIONS: dict[str, tuple[Any, dict[str, type[Argument]]]] = {
    "embtier_err_name": (c_char_p, {"err": Int}),
    "embtier_err_text": (c_char_p, {"err": Int}),
    "embtier_message": (c_char_p, {"server": OptionalHandle}),
    "embtier_version": (c_char_p, {}),
    "embtier_connect": (c_int, {"options": pointer(POINTER(ConnectOptions)), "ret_server": _NEW}),
    "embtier_disconnect": (None, {"server": Handle}),
    "embtier_reconnect_within": (c_int, {"server": Handle, "timeout_ms": U32}),
    "embtier_session_number": (c_uint64, {"server": Handle}),
    "embtier_table_create": (
        c_int, {"server": Handle, "options": pointer(POINTER(TableOptions)), "ret_table": _NEW},
    ),
    "embtier_table_open_as": (
        c_int, {"server": Handle, "name": Text, "dim": U32, "dtype": Int, "ret_table": _NEW},
    ),
    "embtier_table_drop": (c_int, {"server": Handle, "name": Text} | _PROGRESS),
    "embtier_table_move": (
        c_int,
        {
            "server": Handle, "name": Text, "options": pointer(POINTER(MoveOptions)),
            "ret_moved": pointer(POINTER(MovedInfo)),
        },
    ),
    "embtier_table_info": (POINTER(TableInfo), {"table": Handle}),
    "embtier_table_close": (None, {"table": Handle}),
    "embtier_table_list": (c_int, {"server": Handle, "ret_list": _NEW}),
    "embtier_table_list_count": (c_size_t, _LIST),
    "embtier_table_list_at": (POINTER(TableInfo), _LIST | {"index": Size}),
    "embtier_table_list_free": (None, _LIST),
    "embtier_checkpoint_create": (
        c_int,
        {"server": Handle, "options": pointer(POINTER(CheckpointOptions))} | _PROGRESS | {"ret_list": _NEW},
    ),
    "embtier_checkpoint_list": (c_int, {"server": Handle, "ret_list": _NEW}),
    "embtier_checkpoint_show": (c_int, {"server": Handle, "id": CheckpointId, "ret_list": _NEW}),
    "embtier_checkpoint_verify": (c_int, {"server": Handle, "id": CheckpointId} | _PROGRESS),
    "embtier_checkpoint_restore": (
        c_int,
        {
            "server": Handle, "id": CheckpointId, "tables": pointer(POINTER(c_char_p)), "table_count": Size,
            "name": OptionalText,
        } | _PROGRESS | {"ret_list": _NEW},
    ),
    "embtier_checkpoint_delete": (c_int, {"server": Handle, "id": CheckpointId}),
    "embtier_checkpoint_list_count": (c_size_t, _LIST),
    "embtier_checkpoint_list_at": (POINTER(CheckpointInfo), _LIST | {"index": Size}),
    "embtier_checkpoint_list_free": (None, _LIST),
    "embtier_export": (
        c_int,
        {"server": Handle, "table": Text, "path": Path, "options": pointer(POINTER(ExportOptions))}
        | _PROGRESS | {"ret_exported": pointer(POINTER(ExportedInfo))},
    ),
    "embtier_import": (
        c_int,
        {"server": Handle, "name": OptionalText, "path": Path, "options": pointer(POINTER(ImportOptions))}
        | _PROGRESS | {"ret_imported": pointer(POINTER(ImportedInfo))},
    ),
    "embtier_load_open": (
        c_int,
        {
            "server": Handle, "table": pointer(POINTER(TableOptions)), "with_state": Flag, "buffer_bytes": U64,
            "ret_load": _NEW,
        },
    ),
    "embtier_load_buffer": (LoadBuffer, {"load": Handle}),
    "embtier_load_rows": (c_int, {"load": Handle, "count": U32}),
    "embtier_load_end": (c_int, {"load": Handle} | _PROGRESS),
    "embtier_load_close": (None, {"load": Handle}),
    "embtier_profile_start": (
        c_int, {"server": Handle, "memory_bytes": U64, "ret_info": pointer(POINTER(ProfileInfo))},
    ),
    "embtier_profile_stop": (c_int, {"server": Handle, "ret_info": pointer(POINTER(ProfileInfo))}),
    "embtier_profile_save": (c_int, {"server": Handle, "path": Path}),
    "embtier_batch_new": (c_int, _PARTS),
    "embtier_batch_new_with_state": (c_int, _PARTS),
    "embtier_batch_row_bytes": (c_uint32, _PART),
    "embtier_batch_state": (c_void_p, _PART),
    "embtier_batch_free": (c_int, _BATCH),
    "embtier_batch_set_count": (c_int, _PART | {"count": U32}),
    "embtier_batch_ids": (c_void_p, _PART),
    "embtier_batch_rows": (c_void_p, _PART),
    "embtier_batch_new_bags": (c_int, _PARTS | {"parts": pointer(POINTER(BagPart))}),
    "embtier_batch_set_bags": (c_int, _PART | {"count": U32, "bag_count": U32}),
    "embtier_batch_offsets": (c_void_p, _PART),
    "embtier_batch_weights": (c_void_p, _PART),
    "embtier_batch_bags": (c_void_p, _PART),
    "embtier_batch_ticket": (c_uint64, _BATCH),
    "embtier_batch_pushed_step": (c_uint64, _BATCH),
    "embtier_batch_set_skipped": (c_int, _PART | {"skipped": Flag}),
    "embtier_batch_new_push": (c_int, _PARTS),
    "embtier_batch_new_prefetch": (c_int, _PARTS),
    "embtier_batch_gradients": (c_void_p, _PART),
    "embtier_batch_coalesce": (c_int, _BATCH),
    "embtier_batch_count": (c_uint32, _PART),
    "embtier_batch_set_group": (c_int, _BATCH | {"group": OptionalHandle, "step": U64}),
    "embtier_batch_blamed_member": (c_uint32, _BATCH),
    "embtier_batch_blamed_err": (c_int, _BATCH),
    "embtier_group_join": (
        c_int, {"server": Handle, "options": pointer(POINTER(GroupOptions)), "ret_group": _NEW},
    ),
    "embtier_group_leave": (c_int, {"group": Handle}),
    "embtier_group_free": (None, {"group": Handle}),
    "embtier_group_step": (c_uint64, {"group": Handle}),
    "embtier_batch_hit_rows": (c_uint64, _BATCH),
    "embtier_submit": (c_int, _BATCH | {"op": Int}),
    "embtier_submit_push": (c_int, _BATCH | {"options": pointer(POINTER(PushOptions))}),
    "embtier_poll": (c_int, _BATCH),
    "embtier_wait": (c_int, _BATCH | {"timeout_ms": U32}),
    "embtier_status": (c_int, {"server": Handle, "ret_status": _NEW}),
    "embtier_status_version": (c_char_p, {"status": Handle}),
    "embtier_status_uptime_ms": (c_uint64, {"status": Handle}),
    "embtier_status_library_count": (c_size_t, {"status": Handle}),
    "embtier_status_library_at": (c_char_p, {"status": Handle, "index": Size}),
    "embtier_status_count": (c_size_t, {"status": Handle}),
    "embtier_status_at": (POINTER(Metric), {"status": Handle, "index": Size}),
    "embtier_status_latency_count": (c_size_t, {"status": Handle}),
    "embtier_status_latency_at": (POINTER(Latency), {"status": Handle, "index": Size}),
    "embtier_status_free": (None, {"status": Handle}),
    "embtier_user": (c_char_p, {"server": Handle}),
    "embtier_reload": (c_int, {"server": Handle, "ret_users": pointer(POINTER(c_uint32))}),
    "embtier_account_list": (c_int, {"server": Handle, "ret_list": _NEW}),
    "embtier_account_list_count": (c_size_t, _LIST),
    "embtier_account_list_at": (POINTER(Account), _LIST | {"index": Size}),
    "embtier_account_list_free": (None, _LIST),
}  # fmt: skip


def _candidates() -> list[str]:
    named = os.environ.get("EMBTIER_LIBRARY")
    if named:
        return [named]
    package = pathlib.Path(__file__).resolve().parent
    folders = [package, package.parent / ".embtier.mesonpy.libs"]
    tree = package.parents[2]  # TREE/client/python/embtier
    if (tree / "client" / "include" / "embtier.h").exists():
        folders += sorted(folder / "client" for folder in tree.glob("build*"))
    found = [str(folder / name) for folder in folders for name in NAMES if (folder / name).exists()]
    return found + list(NAMES)


def load() -> ctypes.CDLL:
    """Loads the library and declares its functions. ImportError names the places that it looked in."""
    failures = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(str(error))
            continue
        for name, (result, arguments) in FUNCTIONS.items():
            setattr(library, name, checked(getattr(library, name), result, arguments))
        return library
    raise ImportError("no libembtier: " + "; ".join(failures) + " (set EMBTIER_LIBRARY to its path)")


lib = load()
