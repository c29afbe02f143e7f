# SPDX-License-Identifier: Apache-2.0
"""A request of each kind in proto/control.proto, with all of its fields, for tests that bend them. Fields are encoded as the
.proto says. A test compares these requests with the .proto, so that a new kind or field is sent too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from raw_client import field, frame

PROTO = Path(__file__).resolve().parents[3] / "proto" / "control.proto"


class Field(NamedTuple):
    number: int
    type: str
    repeated: bool


def _messages(text: str) -> dict[str, dict[str, Field]]:
    text = re.sub(r"//.*", "", text)
    found = {}
    for part in re.split(r"^message ", text, flags=re.MULTILINE)[1:]:
        fields = re.findall(r"(repeated )?(\w+) (\w+) = (\d+);", part)
        found[part.split()[0]] = {name: Field(int(number), kind, bool(many)) for many, kind, name, number in fields}
    return found


MESSAGES = _messages(PROTO.read_text())
# The kinds of requests: the name, and the field with its message. Everything else in a request is its id or a flag.
KINDS = {name: field for name, field in MESSAGES["Request"].items() if field.type in MESSAGES}
FLAGS = [field.number for name, field in MESSAGES["Request"].items() if name not in ("id", *KINDS)]

ADAM = {
    "name": "t",
    "rows": 9,
    "dim": 4,
    "dtype": 1,
    "optimizer": 5,
    "init": 2,
    "init_first": -0.5,
    "init_second": 0.5,
    "seed": 7,
    "eager": True,
    "init_version": 1,
    "uuid": "00112233445566778899aabbccddeeff",
    "step": 3,
    "eps": 1e-6,
    "beta1": 0.5,
    "beta2": 0.5,
    "weight_decay": 0.25,
    "clip_norm": 2.0,
    "allows_nonfinite": True,
    "durability": 1,
}
ARRAY = {"name": "placed", "rows": 10, "dim": 3, "dtype": 1, "home": 1, "home_tier": "dram", "hot_rows": 0}
MOMENTUM = {"name": "thrown", "dim": 3, "dtype": 1, "optimizer": 6, "momentum": 0.75}
RMSPROP = {"name": "half", "dim": 3, "dtype": 2, "optimizer": 4, "alpha": 0.5, "rounds_to_nearest": True}

# In an order in which each finds the objects that it names.
REQUESTS: list[tuple[str, dict]] = [
    (
        "hello",
        {
            "protocol_min": 1,
            "protocol_max": 1,
            "arena_bytes": 65536,
            "slot_count": 8,
            "client": "bent",
            "pages": True,
            "token": "embt_0123456789012345678901234567890123456789-_A",
            "replaces": {"session": 1 << 40, "secret": bytes(range(32))},
        },
    ),
    ("hello", {"protocol_min": 1, "protocol_max": 1, "joins": {"session": 1 << 40, "secret": bytes(range(32))}}),
    ("table_create", {"spec": ADAM, "if_not_exists": True}),
    ("table_create", {"spec": RMSPROP, "if_not_exists": True}),
    ("table_create", {"spec": ARRAY, "if_not_exists": True}),
    ("table_create", {"spec": MOMENTUM, "if_not_exists": True}),
    ("table_open", {"name": "steady", "dim": 8, "dtype": 1}),
    ("table_list", {"after": 1, "most": 2}),
    ("group_join", {"name": "bent", "size": 2, "member": 1, "step": 3}),
    ("group_leave", {"handle": 1 << 50}),  # of no session
    ("checkpoint_create", {"step": 5, "metadata": '{"bent": "é"}', "keep": 2, "automatic": True}),
    ("checkpoint_create", {"metadata": "[]", "keep": 1}),
    ("checkpoint_list", {"after": 1, "most": 2}),
    ("checkpoint_show", {"id": 2, "tables_from": 1}),
    ("checkpoint_verify", {"id": 2}),
    ("checkpoint_restore", {"id": 2, "tables": ["half"], "name": "restored"}),
    ("checkpoint_delete", {"id": 1}),
    ("scan_open", {"checkpoint": 0, "table": "t", "with_state": True, "all_rows": True}),
    ("scan_next", {"offset": 4096, "bytes": 8192}),
    ("scan_close", {}),
    ("load_open", {"spec": ADAM | {"name": "loaded"}, "with_state": True, "row_count": 3}),
    ("load_rows", {"offset": 20480, "bytes": 8192, "rows": 2, "rows_at": 64}),
    ("load_end", {}),
    ("load_close", {}),
    ("account_list", {"from": 1, "most": 2}),
    ("job_list", {"after": 1, "most": 2}),
    ("plan_begin", {"generation": 2, "hash": 7, "tables": 3}),
    ("plan_show", {}),
    ("plan_end", {}),
    ("job_cancel", {"id": 1 << 40}),  # no job has come that far
    ("profile_start", {"memory_bytes": 1 << 26}),
    ("profile_read", {"snapshot": 1, "line": 2, "offset": 3}),
    ("profile_stop", {}),
    ("status", {}),
    ("session_list", {"after": 1, "most": 2}),
    ("session_end", {"number": 1 << 40}),  # of no client
    ("reload", {}),
    ("compaction_show", {"first": 1, "most": 2}),
    ("compaction_set", {"deferral": 1, "hours": "22:00-06:00,12:00-13:00"}),
    ("compaction_set", {"deferral": 2, "hours": "00:00-24:00"}),
    ("compaction_run", {}),
    ("compaction_run", {"full": True}),
    ("reshard", {"shards": 3, "rate_bytes": 1 << 40}),
    ("reshard", {}),
    ("reshard", {"add": "no/data"}),
    ("reshard", {"remove": "no/data", "deletes_checkpoints": True}),
    ("knob_list", {"after": 1, "name": "log.level", "with_file": True}),
    ("knob_list", {"text": b"lanes: {count: 1}", "file_name": "bent.yaml"}),
    ("knob_set", {"name": "log.level", "value": "info", "persist": True}),
    ("table_move", {"name": "placed", "home": 0}),
    ("table_move", {"name": "placed", "home": 2, "hot_rows": 1, "hot_rows_at": 1 << 15}),
    ("table_move", {"name": "placed", "home": 0}),  # its array is free for the next move
    ("table_move", {"name": "placed", "home": 1, "home_tier": "dram", "rate_bytes": 1 << 30}),
    ("table_drop", {"name": "t"}),
    ("table_drop", {"name": "restored"}),
    ("table_drop", {"name": "loaded"}),
]


def encode(message: str, values: dict) -> bytes:
    out = b""
    for name, value in values.items():
        number, kind, _ = MESSAGES[message][name]
        for one in value if isinstance(value, list) else [value]:
            out += field(number, encode(kind, one) if isinstance(one, dict) else one)
    return out


def request(kind: str, values: dict, request_id: int = 1) -> bytes:
    """A frame with this request."""
    number, message, _ = KINDS[kind]
    head = field(1, request_id) + b"".join(field(flag, True) for flag in FLAGS)
    return frame(head + field(number, encode(message, values)))
