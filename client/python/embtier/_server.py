# SPDX-License-Identifier: Apache-2.0
"""A connection to a server, and tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_double, c_uint64, c_void_p, sizeof
from typing import Any

import numpy as np

from . import _arguments, _checkpoint, _export, _load, _profile, _specs, _types, errors
from ._access import Access
from ._batch import BagBatch, Bags, Batch, PrefetchBatch, PushBatch
from ._checkpoint import Checkpoint
from ._connection import Connection, Opened, connection_of, repeated
from ._export import Exported, Imported
from ._group import Group
from ._ids import as_dtype, as_ids, as_rows, as_shape
from ._library import ExportedInfo, ImportedInfo, Latency, MovedInfo, MoveOptions, ProfileInfo, lib
from ._profile import ProfileState
from ._progress import Progress, Reports
from ._types import TableSpec


class Server(Access):
    """A connection to embtierd, made by :func:`connect`; a context manager that closes it.

    Threads: only one at a time may use a connection; a second one gets a RuntimeError. Connections are independent, so
    make one per thread. A connection does not survive fork(): the child's calls raise RuntimeError.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection_of(connection)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the connection. The session itself ends when the last view of its memory is gone. Requests in
        flight are then abandoned. Closing twice is allowed."""
        self._connection.close()

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def reconnect(self) -> None:
        """Makes a new session after DisconnectedError. Tables are opened again by name. Batches keep their ids and rows
        and can be submitted again. Requests that were in flight have failed, and may have taken effect or not. Tickets
        and memberships of groups are gone: NoTicketError, NoGroupError. MismatchError if a table has a different dim or
        dtype, or a different optimizer while a batch holds its state. After a crash the server has restored a
        checkpoint if a table's durability is "replay": Table.step shows that, and modules of embtier.torch warn.

        Keeps trying for ``reconnect_timeout`` of :func:`connect`, with random pauses that grow from 50 ms to 5 s.
        Afterwards UnreachableError, TimeoutError, BusyError or ShutdownError; other errors end it at once. Ctrl-C does
        too."""
        self._connection.reconnect()

    @property
    def session_number(self) -> int:
        """Number of the session, from 1. Each reconnect makes the next one, also that of a call which ``retry_reads``
        of :func:`connect` repeats. After a crash of the server, rows and :attr:`Table.step` may be older in it."""
        with self._connection as handle:
            return int(lib.embtier_session_number(handle))

    # ---- Tables ----

    def create_table(
        self,
        name: str,
        dim: int,
        rows: int | None = None,
        *,
        dtype: str = "f32",
        optimizer: str = "none",
        init: str | tuple = "zeros",
        seed: int = 0,
        eager: bool = False,
        if_not_exists: bool = False,
        progress: Progress | None = None,
        eps: float | None = None,
        alpha: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        rounding: str = "stochastic",
        allow_nonfinite: bool = False,
        durability: str = "replay",
        home: str = "cache",
        tier: str | None = None,
    ) -> Table:
        """Makes a table of @rows x @dim numbers.

        @rows: number of rows; None: unbounded, any id from 0 to 2**64 - 1 is a row.
        @dtype: "f32", "f16" or "bf16".
        @optimizer: the optimizer that pushes run, and whose state the server keeps: "none", "sgd", "adagrad",
        "rowwise_adagrad", "rmsprop", "adam", "adamw", "sparse_adam" or "momentum" (SGD with momentum).
        @init: "zeros", ("constant", value), ("uniform", low, high) or ("normal", mean, stddev).
        @eager: write every row now, instead of when it is first updated.
        @if_not_exists: succeed if a table with the same description exists.
        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends.
        @eps, @alpha, @beta1, @beta2, @momentum, @weight_decay, @clip_norm: hyperparameters of the optimizer; None: its
        default. InvalidError for one that the optimizer does not have; the message names those it has.
        @rounding: rounding of updated f16 and bf16 weights: "stochastic" or "nearest".
        @allow_nonfinite: accept gradients with NaN or infinity, and updates that make a row NaN or infinite; else such
        a push is refused as a whole.
        @durability: the failures that an acknowledged update survives. "replay": a clean stop of the server, "async":
        the death of its process, "sync": loss of power.
        @home: place of the rows in memory: "cache": the row cache; "array": memory that the server's configuration
        keeps for arrays, in which each row has its own place. An array needs @rows.
        @tier: the tier whose memory an array takes; None: the fastest tier with room.

        Raises ExistsError, MismatchError, InvalidError. For an array also TooLargeError: the tier keeps less memory for
        arrays; NoMemoryError: other tables use it.
        """
        options = _specs.table_options(
            name, dim, rows, dtype, optimizer, init, seed, rounding, allow_nonfinite, durability, home, tier,
            eps=eps, alpha=alpha, beta1=beta1, beta2=beta2, momentum=momentum, weight_decay=weight_decay,
            clip_norm=clip_norm,
        )  # fmt: skip
        options.eager = eager
        options.if_not_exists = if_not_exists
        pointer = c_void_p()
        with Reports(progress) as reports:
            options.progress = reports.function
            with self._connection as handle:
                code = lib.embtier_table_create(handle, byref(options), byref(pointer))
                with errors.hint("EXISTS", "open_table() opens it; so does if_not_exists=True if the table is the same"):
                    self._connection.check(code)
            return Table(self._connection, pointer)

    @repeated
    def open_table(self, name: str, dim: int | None = None, dtype: str | None = None) -> Table:
        """Opens a table. NoTableError; MismatchError unless it has this @dim and @dtype, if given."""
        number = 0 if dtype is None else _types.number_of("dtype", _types.DTYPE_NUMBERS, dtype)
        dim = 0 if dim is None else _arguments.integer("dim", dim, 1, 2**32 - 1)  # 0 means any in C
        pointer = c_void_p()
        with self._connection as handle:
            code = lib.embtier_table_open_as(handle, name, dim, number, byref(pointer))
            self._connection.check(code)
        return Table(self._connection, pointer)

    def drop_table(self, name: str, progress: Progress | None = None) -> None:
        """Drops a table and returns when all of its rows are gone. NoTableError. Requests to it that are in progress
        end first or fail with DroppedError. @progress: as in :meth:`create_table`."""
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_table_drop(handle, name, reports.function, None)
            self._connection.check(code)

    def move_table(
        self,
        name: str,
        home: str,
        tier: str | None = None,
        rate: int = 0,
        progress: Progress | None = None,
        hot_rows: Any = None,
    ) -> int:
        """Moves a table's rows to another home in memory while all clients go on, and returns how many rows have moved
        when all are there.

        @home: "cache", "array" or "split"; @tier: of an array or a split; None: the one that the table is in, or the
        fastest with room.
        @hot_rows: for "split": ids of the rows that get a place in its array, all different, in any order. All others
        are in the cache. The ids go through the session's arena, which needs 8 bytes for each while the table moves.
        @rate: most bytes of rows a second; 0: as fast as a fifth of the time of each of the server's lanes allows.
        @progress: as in :meth:`create_table`. Its unit is "hot rows" while their ids are stored, "pinned rows" while
        prefetches of the table, also the caller's, keep it waiting, "rows", and "rows back" while a move is undone.

        A table that has this home is left as it is. After an error it is whole in its old home, unless the message says
        that it is in its new one. NoTableError. BusyError: it is being made or moved. InvalidError: no such tier, or an
        array of an unbounded table, or a hot row named twice, or a table that is split already, by other rows or in
        another tier. IdRangeError: the table has no such hot row. TooLargeError, NoMemoryError: too little memory for arrays. CancelledError:
        ``embtier jobs cancel``. DroppedError: a drop of the table ended the move.
        """
        moved = MovedInfo()
        ids = None if hot_rows is None else np.ascontiguousarray(as_ids(hot_rows))
        with Reports(progress) as reports:
            options = MoveOptions(
                struct_bytes=sizeof(MoveOptions),
                home=_types.number_of("home", _types.HOME_NUMBERS, home),
                home_tier=tier,
                rate_bytes=_arguments.integer("rate", rate, 0, 2**64 - 1),
                progress=reports.function,
                hot_rows=None if ids is None else c_void_p(ids.ctypes.data),
                hot_row_count=0 if ids is None else ids.size,
            )
            with self._connection as handle:
                self._connection.check(lib.embtier_table_move(handle, name, byref(options), byref(moved)))
        return moved.rows

    @repeated
    def tables(self) -> list[TableSpec]:
        """Lists all tables of the server."""
        pointer = c_void_p()
        with self._connection as handle:
            self._connection.check(lib.embtier_table_list(handle, byref(pointer)))
            return _specs.specs_of(pointer)

    # ---- Checkpoints ----

    def checkpoint(
        self,
        step: int | None = None,
        metadata: Any = None,
        keep: int = 0,
        progress: Progress | None = None,
    ) -> Checkpoint:
        """Saves all tables at one moment between two requests, with the optimizers' state, and returns when the
        checkpoint is complete on disk. The server keeps serving all clients. After a crash, tables of durability
        "replay" have the rows of the newest checkpoint.

        @step: any number from 0 to 2**64 - 1 by which the trainer finds the checkpoint.
        @metadata: any argument of json.dumps(), at most 4,096 bytes of JSON in ASCII; read back as json.loads() returns
        it. None: none.
        @keep: then delete this user's oldest checkpoints beyond this number; 0: delete none.
        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends.

        After an error there is no new checkpoint. TypeError, ValueError: @metadata is not JSON. InvalidError: it is too
        long. TimeoutError: updates in progress did not end. BusyError: the user has as many checkpoints as it may. Also
        NoSpaceError, IoError, ShutdownError. After a DisconnectedError, or a TimeoutError because
        the server was silent for the connection's timeout, the outcome is unknown: the checkpoint may be complete, or
        may still complete. :meth:`checkpoints` shows the current state.
        """
        options = _checkpoint.options_of(step, metadata, keep)
        pointer = c_void_p()
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_checkpoint_create(handle, byref(options), reports.function, None, byref(pointer))
            self._connection.check(code)
            return _checkpoints(pointer)[0]

    @repeated
    def checkpoints(self) -> list[Checkpoint]:
        """Lists all checkpoints of the server, oldest first, without the names of their tables."""
        pointer = c_void_p()
        with self._connection as handle:
            self._connection.check(lib.embtier_checkpoint_list(handle, byref(pointer)))
            return _checkpoints(pointer)

    @repeated
    def checkpoint_info(self, id: int) -> Checkpoint:
        """Describes one checkpoint, with the names of its tables. NotFoundError."""
        pointer = c_void_p()
        with self._connection as handle:
            self._connection.check(lib.embtier_checkpoint_show(handle, id, byref(pointer)))
            return _checkpoints(pointer)[0]

    def verify_checkpoint(self, id: int, progress: Progress | None = None) -> None:
        """Reads every byte of a checkpoint's files and compares checksums. NotFoundError; CorruptError, whose message
        names the file.

        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends."""
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_checkpoint_verify(handle, id, reports.function, None)
            self._connection.check(code)

    def restore_checkpoint(
        self,
        id: int,
        tables: Iterable[str] | None = None,
        name: str | None = None,
        progress: Progress | None = None,
    ) -> list[TableSpec]:
        """Restores tables from a checkpoint as new tables, with the optimizers' state, and returns their descriptions.
        The server keeps serving requests to other tables; existing tables do not change.

        @tables: their names; None: all of the checkpoint.
        @name: name of the restored table, if @tables names one; None: its old name.
        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends.

        After an error no table is restored: tables can be opened only when all are complete and safe from a crash.
        ExistsError: a name is taken. NoTableError: the checkpoint has no such table. NotFoundError: there is no such
        checkpoint. InvalidError: a table is named twice, or a name is invalid. BusyError: there is no memory for it
        now. TooLargeError: memory will never suffice. NoSpaceError, IoError, CorruptError. After a DisconnectedError,
        or a TimeoutError because the server was silent for the connection's timeout, the outcome is unknown: the tables
        may exist, or may still appear. :meth:`tables` shows the current state.
        """
        names = _checkpoint.names_of(tables, name)
        pointer = c_void_p()
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_checkpoint_restore(
                handle, id, names, len(names), name, reports.function, None, byref(pointer)
            )
            self._connection.check(code)
            return _specs.specs_of(pointer)

    def delete_checkpoint(self, id: int) -> None:
        """Deletes a checkpoint. NotFoundError. InvalidError: it is the newest, which a crash restores. BusyError: it is
        being verified. PermissionError: another user made it, and this user is neither root nor the server's."""
        with self._connection as handle:
            self._connection.check(lib.embtier_checkpoint_delete(handle, id))

    # ---- Profiles ----

    def start_profile(self, memory_bytes: int = 0) -> ProfileState:
        """Begins a profile of the lookups of all clients: GETs and pooled lookups, and the rows that pushes and SETs
        change. Prefetches do not count. The server makes one at a time, and forgets the results of the last one. It
        goes on when this connection ends.

        @memory_bytes: memory that the server may use; about 1.1 MiB a table is of use; 0: the server chooses.

        BusyError: a profile is being made, or there is no memory now. TooLargeError: the memory is too little for the
        server's tables, or more than it has (checkpoints.transfer_bytes)."""
        return self._profile(lib.embtier_profile_start, _arguments.integer("memory_bytes", memory_bytes, 0, 2**64 - 1))

    def stop_profile(self) -> ProfileState:
        """Ends the profile. Its results stay until the next start, or the server's end. NotFoundError: none is being
        made. PermissionError: another user began it, and this one is neither root nor the server's."""
        return self._profile(lib.embtier_profile_stop)

    def _profile(self, function: Any, *arguments: int) -> ProfileState:
        info = ProfileInfo()
        with self._connection as handle:
            self._connection.check(function(handle, *arguments, byref(info)))
        return _profile.state_of(info)

    def save_profile(self, path: str | os.PathLike[str]) -> None:
        """Saves the profile, so far or of the last run, into the new file @path, which ``embtier profile show`` reads.
        The file appears whole or not at all. ExistsError: there was one. NotFoundError: the server has no results, or no
        table was looked up. BusyError: another client had results made meanwhile. IoError, NoSpaceError and
        PermissionError: the file cannot be written."""
        with self._connection as handle:
            self._connection.check(lib.embtier_profile_save(handle, path))

    # ---- Export and import ----

    def export_table(
        self,
        table: Table | str,
        path: str | os.PathLike[str],
        *,
        checkpoint: int | str | None = None,
        state: bool = False,
        all_rows: bool = False,
        format: str = "safetensors",
        file_bytes: int | None = None,
        progress: Progress | None = None,
    ) -> Exported:
        """Writes a table to the folder @path, which it makes, and returns when the folder is complete on disk. The
        server keeps serving all clients. The folder has files of the tensor ``weight``, [rows, dim] in the table's
        dtype. With @state they also have ``state``, [rows, state_numbers] in float32. Unless all rows are exported,
        they have ``ids``, [rows], ordered by id. Its table.json describes the table, for :meth:`import_table`.

        @table: the table, or its name.
        @checkpoint: the id of the checkpoint to read, or "newest"; None: a new checkpoint of the current rows.
        @state: also export the optimizer's state.
        @all_rows: also export rows that were never written, with their initial values; not for an unbounded table.
        @format: "safetensors", or "npy": one NumPy file for each tensor, bf16 weights as uint16 bits.
        @file_bytes: rough limit of a file's size; None: 4 GiB.
        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends. A total of 0 is unknown.

        The export takes buffers from the connection's arena and gives them back. After an error @path does not exist.
        ExistsError: @path existed before, or PATH.partial, where the folder is made, has files that are not left from
        an unfinished export of this user. LockedError: another export is making it. NoTableError. NotFoundError: there
        is no such checkpoint. InvalidError: all rows of an unbounded table; @path is empty or ends in .partial;
        @file_bytes are so small that each tensor would need more than 16,384 files. BusyError: the server has eight
        exports in progress, or six of this user (three quarters of what others leave), or no memory for one more.
        TooLargeError: memory will never suffice (checkpoints.transfer_bytes). ArenaFullError, NoSpaceError, IoError,
        CorruptError, and the errors of :meth:`checkpoint`. An export that is killed leaves PATH.partial; the next
        export to @path starts afresh there.
        """
        options = _export.export_options_of(checkpoint, state, all_rows, format, file_bytes)
        name = table.name if isinstance(table, Table) else table
        info = ExportedInfo()
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_export(
                handle, name, path, byref(options), reports.function, None, byref(info)
            )
            self._connection.check(code)
        return _export.exported_of(info)

    def import_table(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        state: bool = True,
        durability: str | None = None,
        home: str = "cache",
        tier: str | None = None,
        tensor: str | None = None,
        ids_path: str | os.PathLike[str] | None = None,
        ids_column: str | None = None,
        rows: int | str | None = None,
        optimizer: str | None = None,
        init: str | tuple | None = None,
        seed: int | None = None,
        eps: float | None = None,
        alpha: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        rounding: str | None = None,
        allow_nonfinite: bool | None = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Makes a table from files and returns when it is complete and safe from a crash; :meth:`open_table` then opens
        it. The server keeps serving requests to other tables.

        @path: a folder that :meth:`export_table` made, a safetensors or .npy file, or a folder of safetensors files
        with an index like that of Hugging Face's libraries. Weights are [rows, dim] of float32, float16 or, in
        safetensors, bfloat16. State is [rows, state_numbers] of float32. Ids are [rows] of int64 or uint64, in any
        order. If an id occurs again, its last row counts.
        @name: name of the table; None: the export's name. A file that is not an export needs one.
        @state: False: ignore state in the files; it begins as zeros.
        @durability: None: the export's; for other files the default of :meth:`create_table`.
        @home, @tier: as in :meth:`create_table`. An import ignores an export's home, because homes belong to a server.

        The other arguments are for files that are not an export; an export describes its own table:
        @tensor: the tensor of a safetensors file that holds the weights; None: ``weight``, or the only two-dimensional
        one.
        @ids_path: a .npy file of the rows' ids; None: the file's tensor ``ids``; without either they are rows 0, 1, and
        so on.
        @ids_column: for a Parquet file, which needs pyarrow: the column of ids; None: ``id``, or rows 0, 1, and so on.
        @tensor then names the column of the vectors, which are lists of float32 or float16 of one length; None: the
        only such column.
        @rows: a number, or "unbounded"; None: as many as the file has, or unbounded if it has ids.
        @optimizer and the rest: as in :meth:`create_table`; None: its default.
        @progress: called with (done, total, unit) now and then; it must not call the connection. If it raises, the call
        raises the same when it ends.

        The import takes buffers from the connection's arena and gives them back. After an error there is no table.
        ExistsError: the name is taken. NotFoundError, InvalidError, MismatchError, UnsupportedError, VersionError,
        TooLargeError, CorruptError (an export's file was changed): a mistake in the files, with the reason in the
        message. InvalidError also for one file of an export whose rows would get the ids of others. IdRangeError: an id
        is negative or not below @rows, or the file has more rows. BusyError: the server has eight imports in progress,
        or six of this user (three quarters of what others leave), or no memory for one more. TooLargeError: memory will
        never suffice. ArenaFullError, NoSpaceError, IoError. After a DisconnectedError or a TimeoutError behind the
        last row the outcome is unknown: the table may exist, or may still appear. :meth:`tables` shows the current
        state.
        """
        words = {
            "optimizer": optimizer, "init": init, "seed": seed, "rounding": rounding,
            "allow_nonfinite": allow_nonfinite, "eps": eps, "alpha": alpha, "beta1": beta1, "beta2": beta2,
            "momentum": momentum, "weight_decay": weight_decay, "clip_norm": clip_norm,
        }  # fmt: skip
        words = {word: value for word, value in words.items() if value is not None}
        if _load.is_parquet(path):
            if ids_path is not None:
                raise ValueError("ids_path: the ids of a Parquet file are one of its columns: name it with ids_column")
            words |= {"home": home, "tier": tier} | ({} if durability is None else {"durability": durability})
            return self._import_parquet(_load.Parquet(path, tensor, ids_column), name, rows, words, progress)
        if ids_column is not None:
            raise ValueError(f"ids_column: {os.fspath(path)!r} is not a Parquet file, so it has no columns")
        table = _specs.table_options("", 0, None, **words) if words else None
        options = _export.import_options_of(table, state, durability, home, tier, tensor, ids_path, rows)
        info = ImportedInfo()
        with Reports(progress) as reports, self._connection as handle:
            code = lib.embtier_import(
                handle, name, path, byref(options), reports.function, None, byref(info)
            )
            self._connection.check(code)
        return _export.imported_of(info)

    def _import_parquet(
        self, file: _load.Parquet, name: str | None, rows: int | str | None, words: dict[str, Any], progress: Progress | None
    ) -> Imported:
        if name is None:
            raise ValueError("name is missing: a Parquet file does not name its table")
        if isinstance(rows, str) and rows != "unbounded":
            raise ValueError(f"rows must be a number, 'unbounded' or None, not {_arguments.shown(rows)}")
        count = None if rows == "unbounded" or (rows is None and file.ids_column) else file.rows if rows is None else rows
        Reports(progress)  # TypeError unless it is a function
        return self.load_table(name, file.dim, file.pieces(progress), count, dtype=file.dtype, progress=progress, **words)

    def load_table(
        self,
        name: str,
        dim: int,
        pieces: Iterable[Sequence[Any]],
        rows: int | None = None,
        *,
        state: bool = False,
        dtype: str = "f32",
        optimizer: str = "none",
        init: str | tuple = "zeros",
        seed: int = 0,
        eps: float | None = None,
        alpha: float | None = None,
        beta1: float | None = None,
        beta2: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        clip_norm: float | None = None,
        rounding: str = "stochastic",
        allow_nonfinite: bool = False,
        durability: str = "replay",
        home: str = "cache",
        tier: str | None = None,
        progress: Progress | None = None,
    ) -> Imported:
        """Makes a table from the caller's rows, and returns when it is complete and safe from a crash;
        :meth:`open_table` then opens it. The server keeps serving requests to other tables, also over this connection.

        @pieces: yields (ids, rows) of any size, as :meth:`Table.set` takes them; with @state (ids, rows, state). If an
        id occurs again, its last row counts; missing rows have their first values.
        @state: rows have their optimizer's state, [n, state_numbers] of float32.

        The other arguments are those of :meth:`create_table`; @progress covers only the end of the load, which may take
        long. If @pieces or anything else fails, there is no table. Errors as for :meth:`import_table`."""
        options = _specs.table_options(
            name, dim, rows, dtype, optimizer, init, seed, rounding, allow_nonfinite, durability, home, tier,
            eps=eps, alpha=alpha, beta1=beta1, beta2=beta2, momentum=momentum, weight_decay=weight_decay,
            clip_norm=clip_norm,
        )  # fmt: skip
        Reports(progress)  # TypeError unless it is a function
        taken, size = _load.load(self._connection, options, pieces, _arguments.flag("state", state), progress)
        return Imported(name, taken, size)

    # ---- Requests ----

    def batch(self, parts: Sequence[tuple[Table, int]], *, state: bool = False) -> Batch:
        """Makes a batch, with room in the shared arena for ``[(table, count of ids), …]``. Several parts may name the
        same table. ArenaFullError if there is no room, TooLargeError if the server accepts fewer ids in one request.

        @state: rows have their optimizer's state: see :meth:`Batch.state`."""
        return Batch(self._connection, parts, state)

    def bag_batch(self, parts: Sequence[Bags]) -> BagBatch:
        """As :meth:`batch`, for embedding bags that the server pools: see :class:`BagBatch`."""
        return BagBatch(self._connection, parts)

    def push_batch(self, parts: Sequence[tuple[Table, int]]) -> PushBatch:
        """As :meth:`batch`, for gradients by row, which the server's optimizers apply: see
        :class:`PushBatch`."""
        return PushBatch(self._connection, parts)

    def prefetch_batch(self, parts: Sequence[tuple[Table, int]]) -> PrefetchBatch:
        """As :meth:`batch`, for ids whose rows the server brings into DRAM: see :class:`PrefetchBatch`."""
        return PrefetchBatch(self._connection, parts)

    def join(self, name: str, size: int, member: int, step: int = 0) -> Group:
        """Joins a group of trainers until the session ends: see :class:`Group`.

        @name: rules as for a table's name.
        @size: number of members, 1 to 256.
        @member: number of this member, from 0.
        @step: the last step that is done, the same for all members; 0: none.

        The call does not wait for the others; pushes do. InvalidError. MismatchError: the group has another size, or is
        at another step. ExistsError: the number is taken, or this session is already a member. GroupFullError: the
        group has all its members. TooLargeError: this session has joined too many groups."""
        return Group(self._connection, name, size, member, step)

    @repeated
    def status(self) -> dict[str, Any]:
        """Returns the server's metrics::

            {"version": "0.1.0", "uptime_ms": 1234, "libraries": ["rocksdb 7.8.3", "memkind"],
             "metrics": {name: value, name with a label: {label value: value}},
             "latencies": [{"op": "get", "transport": "shm", "requests": 7, "seconds": 0.0012,
                            "bounds": [1.024e-06, ...], "counts": [0, ...]}]}

        ``latencies`` tell how long requests took since the server's start, from its first look at
        a request to its answer. Range *i* ends at ``bounds[i]`` seconds and has ``counts[i]``
        requests. The last range has no end, so there is one count more than bounds. An older
        server reports none.
        """
        pointer = c_void_p()
        with self._connection as handle:
            self._connection.check(lib.embtier_status(handle, byref(pointer)))
            try:
                metrics: dict[str, Any] = {}
                for i in range(lib.embtier_status_count(pointer)):
                    metric = lib.embtier_status_at(pointer, i).contents
                    name = metric.name.decode()
                    if metric.label:
                        metrics.setdefault(name, {})[metric.label_value.decode()] = metric.value
                    else:
                        metrics[name] = metric.value
                return {
                    "version": lib.embtier_status_version(pointer).decode(),
                    "uptime_ms": lib.embtier_status_uptime_ms(pointer),
                    "libraries": [
                        lib.embtier_status_library_at(pointer, i).decode()
                        for i in range(lib.embtier_status_library_count(pointer))
                    ],
                    "metrics": metrics,
                    "latencies": [
                        latency_of(lib.embtier_status_latency_at(pointer, i).contents)
                        for i in range(lib.embtier_status_latency_count(pointer))
                    ],
                }
            finally:
                lib.embtier_status_free(pointer)

    def __reduce__(self) -> Any:
        raise TypeError("a Server cannot be copied or pickled: it is a connection of this process; connect again")


def latency_of(latency: Latency) -> dict[str, Any]:
    """Copies what a status lends."""
    ranges = latency.bound_count
    return {
        "op": latency.op.decode(),
        "transport": latency.transport.decode(),
        "requests": latency.requests,
        "seconds": latency.seconds,
        "bounds": list((c_double * ranges).from_address(latency.bounds)),
        "counts": list((c_uint64 * (ranges + 1)).from_address(latency.counts)),
    }


class Table(Opened):
    """A table of one connection, made by :meth:`Server.create_table` or :meth:`Server.open_table`."""

    def __init__(self, connection: Connection, pointer: c_void_p) -> None:
        self._connection = connection_of(connection)
        info = lib.embtier_table_info(pointer)
        self._pointer = pointer
        self.spec = _specs.spec_of(info.contents)
        connection.tables.add(self)

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            self._connection.discard(lib.embtier_table_close, self._pointer)

    def __repr__(self) -> str:
        return f"<embtier.Table {self.name!r} {self.rows or 'unbounded'} x {self.dim} {self.dtype}>"

    def _read_spec(self) -> None:
        self.spec = _specs.spec_of(lib.embtier_table_info(self._pointer).contents)

    def _handle(self) -> c_void_p:
        return self._pointer

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def rows(self) -> int | None:
        """The number of rows; None: unbounded."""
        return self.spec.rows

    @property
    def dim(self) -> int:
        return self.spec.dim

    @property
    def dtype(self) -> str:
        """ "f32", "f16" or "bf16"."""
        return self.spec.dtype

    @property
    def numpy_dtype(self) -> np.dtype:
        """float32, float16, or uint16 for the bits of bfloat16."""
        return self.spec.numpy_dtype

    @property
    def state_numbers(self) -> int:
        """The number of state values that the optimizer keeps for a row; 0: none."""
        return self.spec.state_numbers

    @property
    def step(self) -> int:
        """The greatest step of a push that changed rows, which the server is asked for. 0: there was none, or an import
        left out the optimizer's state. After a crash it is the step of the remaining rows."""
        spec = self.server.open_table(self.name).spec
        if spec.uuid != self.spec.uuid:
            raise errors.make(errors.code_of(
                "NO_TABLE"
            ), f"table {self.name!r} was dropped and created again: open it again")
        return spec.step

    @property
    def server(self) -> Server:
        """A Server for the connection that opened the table."""
        return Server(self._connection)

    @property
    def writes(self) -> int:
        """Grows with every SET and push to this table over this connection, so that a program with copies of rows knows
        when to read them again. Other connections are not counted."""
        return self._connection.writes[self.name]

    def get(self, ids: Any) -> np.ndarray:
        """Returns copies of rows: ids of any shape S give [*S, dim]. Makes one request if it fits into the arena and
        the server's limit of ids (``socket.max_batch_rows``), else several."""
        ids = as_ids(ids)
        flat, rows = ids.reshape(-1), np.empty((ids.size, self.dim), self.numpy_dtype)

        def get(begin: int, end: int) -> None:
            with Batch(self._connection, [(self, end - begin)]) as batch:
                batch.ids(0)[:] = flat[begin:end]
                rows[begin:end] = batch.get().rows(0)

        _in_pieces(ids.size, get)
        return rows.reshape(*ids.shape, self.dim)

    def get_with_state(self, ids: Any) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`get`, with the optimizer's state: two arrays, [*S, dim] of the table's dtype and
        [*S, state_numbers] of float32."""
        ids = as_ids(ids)
        flat, rows = ids.reshape(-1), np.empty((ids.size, self.dim), self.numpy_dtype)
        state = np.empty((ids.size, self.state_numbers), np.float32)

        def get(begin: int, end: int) -> None:
            with Batch(self._connection, [(self, end - begin)], state=True) as batch:
                batch.ids(0)[:] = flat[begin:end]
                batch.get()
                rows[begin:end], state[begin:end] = batch.rows(0), batch.state(0)

        _in_pieces(ids.size, get)
        return rows.reshape(*ids.shape, self.dim), state.reshape(*ids.shape, self.state_numbers)

    def set(self, ids: Any, rows: Any, state: Any = None) -> None:
        """Stores rows: ids of shape S, rows [*S, dim] or an array that broadcasts to it. Makes one request if it fits,
        as for :meth:`get`, else several, one after another. If one of them fails, those before it are stored.

        @state: the optimizer's state, [*S, state_numbers] or an array that broadcasts to it, rounded to float32; None:
        the state does not change.

        Rows for f32 and f16 tables are numbers, rounded to the table's dtype. Rows for a bf16 table are a
        torch.bfloat16 tensor, or uint16 with the bits of bfloat16; other types are a TypeError. NaN and infinity are
        stored as given. A finite number that does not fit is a ValueError, and nothing is stored.
        """
        ids = as_ids(ids)
        rows = as_shape("rows", as_rows(self.dtype, rows), (*ids.shape, self.dim), self.name)
        if state is not None:
            state = as_dtype("state", state, np.dtype("<f4"))
            state = as_shape("state", state, (*ids.shape, self.state_numbers), self.name)
        flat, rows = ids.reshape(-1), rows.reshape(ids.size, self.dim)
        if state is not None:
            state = state.reshape(ids.size, self.state_numbers)

        def store(begin: int, end: int) -> None:
            with Batch(self._connection, [(self, end - begin)], state is not None) as batch:
                batch.ids(0)[:] = flat[begin:end]
                batch.rows(0)[:] = rows[begin:end]
                if state is not None:
                    batch.state(0)[:] = state[begin:end]
                batch.set()

        _in_pieces(ids.size, store)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Table cannot be copied or pickled: it belongs to a connection of this process; open it again by name"
        )


def _in_pieces(count: int, do: Callable[[int, int], None]) -> None:
    """Calls @do for consecutive ranges of [0, @count), each as long as there is room for."""
    begin, size = 0, count
    while True:
        try:
            do(begin, min(begin + size, count))
        except (errors.ArenaFullError, errors.TooLargeError):  # type: ignore[attr-defined]
            if size <= 1:
                raise
            size = -(-size // 2)
            continue
        begin += size
        if begin >= count:
            return


def _checkpoints(pointer: c_void_p) -> list[Checkpoint]:
    """Reads a list of the library and frees it."""
    try:
        count = lib.embtier_checkpoint_list_count(pointer)
        infos = [lib.embtier_checkpoint_list_at(pointer, i).contents for i in range(count)]
        return [_checkpoint.checkpoint_of(info) for info in infos]
    finally:
        lib.embtier_checkpoint_list_free(pointer)
