# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as the server describes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from ctypes import Array, c_char_p, sizeof
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from ._arguments import reason, several, shown, text
from ._library import CheckpointInfo, CheckpointOptions

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NO_UID = 2**32 - 1


@dataclass(frozen=True)
class Checkpoint:
    """All tables of the server at one moment between two requests, with the optimizers' state: see
    :meth:`Server.checkpoint`.

    @id: counts up.
    @created: time in UTC.
    @automatic: made by the server itself.
    @step, @metadata: as the trainer gave them; None: none.
    @tables: their names; None in a list.
    @table_count: number of tables.
    @bytes: size of its files on SSD.
    @new_bytes: size of the files that it does not share with the checkpoint before.
    @pause: longest time in seconds in which no update could begin.
    @tries: number of such pauses, which look for a moment without updates; 0: made by an older server, in one
    try.
    @cut_updates: updates of which it has some rows and lacks others; each row is whole.
    @held_rows: updates that found no room while its rows were written, and waited.
    @spent: its duration in seconds.
    @uid: uid of the user that asked for it; the server's for its own; None: that user came over a network.
    @user: its name in the access file; None: it has none.
    """

    id: int
    created: datetime
    automatic: bool
    step: int | None
    metadata: Any
    tables: tuple[str, ...] | None
    table_count: int
    bytes: int
    new_bytes: int
    pause: float
    held_rows: int
    spent: float
    tries: int = 0
    cut_updates: int = 0
    uid: int | None = 0
    user: str | None = None


def checkpoint_of(info: CheckpointInfo) -> Checkpoint:
    tables = None
    if info.tables:
        tables = tuple(info.tables[i].decode() for i in range(info.table_count))
    return Checkpoint(
        id=info.id,
        created=_EPOCH + timedelta(milliseconds=info.created_ms),
        automatic=bool(info.automatic),
        step=info.step if info.has_step else None,
        metadata=_read_metadata(info.metadata),
        tables=tables,
        table_count=info.table_count,
        bytes=info.bytes,
        new_bytes=info.new_bytes,
        pause=info.pause_us / 1e6,
        held_rows=info.held_rows,
        spent=info.spent_ms / 1e3,
        tries=info.tries,
        cut_updates=info.cut_updates,
        uid=info.uid if info.uid != _NO_UID else None,
        user=info.user.decode() if info.user else None,
    )


def options_of(step: int | None, metadata: Any, keep: int) -> CheckpointOptions:
    return CheckpointOptions(
        struct_bytes=sizeof(CheckpointOptions),
        has_step=step is not None,
        step=0 if step is None else step,
        metadata=_write_metadata(metadata),
        keep=keep,
    )


def names_of(tables: Iterable[str] | None, name: str | None) -> Array:
    """Returns the names of tables to restore, for C. No names mean all tables."""
    if isinstance(tables, str):
        raise TypeError(f"tables must be a list of names: [{shown(tables)}]")
    names = [] if tables is None else [text("one of the tables", table) for table in several("tables", tables)]
    if tables is not None and not names:
        raise ValueError("tables is empty; None restores all")
    if name is not None and len(names) != 1:
        raise ValueError(f"name needs exactly one named table, not {len(names)}")
    return (c_char_p * len(names))(*names)


def _write_metadata(metadata: Any) -> bytes | None:
    if metadata is None:
        return None
    # The result is ASCII. json.dumps() leaves one control character in it as it is, which the protocol
    # refuses; it is escaped below.
    try:
        json_text = json.dumps(metadata, separators=(",", ":"), allow_nan=False)
    except TypeError as error:
        raise TypeError(f"metadata must be convertible to JSON: {reason(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"metadata must be convertible to JSON: {reason(error)}") from None
    return json_text.replace("\x7f", "\\u007f").encode()


def _read_metadata(given: bytes | None) -> Any:
    """Returns metadata. If Python cannot parse another client's metadata, returns their text."""
    if given is None:
        return None
    try:
        return json.loads(given.decode(errors="replace"))
    except (ValueError, RecursionError):
        return given.decode(errors="replace")
