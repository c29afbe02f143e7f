# SPDX-License-Identifier: Apache-2.0
"""Connects to a server."""

from __future__ import annotations

import os
from ctypes import byref, c_void_p, sizeof

from . import _arguments, errors
from ._connection import Connection, Patience
from ._library import ConnectOptions, lib
from ._server import Server


def connect(
    socket: str | os.PathLike[str] | None = None,
    *,
    arena_bytes: int = 64 << 20,
    max_in_flight: int = 64,
    timeout: float | None = 10.0,
    client_name: str | None = None,
    reconnect_timeout: float | None = 0.0,
    request_timeout: float | None = None,
    retry_reads: bool = False,
) -> Server:
    """Connects to embtierd.

    @socket: the server's address: a path or ``unix:PATH`` (shared memory), ``unix+rpc:PATH``, ``tcp://HOST:PORT``,
    ``tcp://[IPV6]:PORT``, or ``tls://HOST:PORT?ca=FILE&cert=FILE&key=FILE`` or ``…?ca=FILE&token=FILE``. Or up to 8 of them with commas between, which are tried in turn; the last one that worked
    comes first. None: ``$EMBTIER_SOCKET``, else the server's default.
    @arena_bytes: memory for the ids and rows of all batches, shared with the server or, over a network, as much on both
    sides; 0: none, and no batches.
    @max_in_flight: largest number of requests in flight, 1 to 1024. The server grants the next power of two.
    @timeout: seconds for connecting and for control messages, rounded up to whole milliseconds; None, 0 or infinity:
    wait for ever. At most 4,294,967.295.
    @client_name: name in the server's log, at most 128 bytes of UTF-8.
    @reconnect_timeout: seconds for which :meth:`Server.reconnect` begins new attempts; 0: it makes one; None: for ever.
    @request_timeout: seconds for requests that are given no timeout of their own, except pushes of groups; None: for
    ever. After a TimeoutError the request continues. Modules of embtier.torch have a timeout of their own.
    @retry_reads: calls that cannot change rows, and end because the connection is lost, reconnect and are made once
    more. These are lookups without a ticket or a group, prefetches, :meth:`Server.open_table`, lists and the status.
    Requests that were submitted by themselves are not repeated, and nothing else ever is. After a crash of the server
    the repeated call returns rows that may be older, and raises nothing: :attr:`Server.session_number` has grown.

    Raises UnreachableError if no server listens.
    """
    is_unnamed = client_name is None or (isinstance(client_name, str) and not client_name)
    options = ConnectOptions(
        struct_bytes=sizeof(ConnectOptions),
        socket_path=_arguments.OptionalPath.check("socket", socket),
        arena_bytes=arena_bytes,
        max_in_flight=max_in_flight,
        timeout_ms=_arguments.timeout_ms("timeout", timeout),
        client_name=f"python {lib.embtier_version().decode()}" if is_unnamed else client_name,
    )
    reconnect_timeout = _arguments.seconds("reconnect_timeout", reconnect_timeout)
    request_timeout = _arguments.seconds("request_timeout", request_timeout)
    retry_reads = _arguments.flag("retry_reads", retry_reads)
    handle = c_void_p()
    code = lib.embtier_connect(byref(options), byref(handle))
    if code:
        raise errors.make(code, lib.embtier_message(None).decode(errors="replace"))
    return Server(Connection(handle, Patience(reconnect_timeout, request_timeout, retry_reads)))
