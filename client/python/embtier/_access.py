# SPDX-License-Identifier: Apache-2.0
"""Methods of :class:`Server` about users, and what each may do and have."""

from __future__ import annotations

from ctypes import byref, c_uint32, c_void_p

from ._connection import Connection, repeated
from ._library import lib


class Access:
    """The part of :class:`Server` that is about users."""

    _connection: Connection

    def user(self) -> str:
        """Returns the name of the user that this client was when it connected. "": the server has no access file, or
        lets the client do all."""
        with self._connection as handle:
            return str(lib.embtier_user(handle).decode())

    def reload(self) -> int:
        """Has the server read its access file and its certificates again; returns the number of users in the access
        file, or 0 if there is none. Connections stay, and have their users' new rights at once; new ones get the new
        certificates.

        ConfigError: a file is wrong, and all old ones stay in force. PermissionError."""
        users = c_uint32()
        with self._connection as handle:
            self._connection.check(lib.embtier_reload(handle, byref(users)))
        return users.value

    @repeated
    def users(self) -> dict[int | str, dict[str, dict[str, int]]]:
        """Returns how much of each limited resource each user, by number or name, has, and how much it may have now::

            {1000: {"sessions": {"used": 2, "most": 768}, "arena_bytes": {"used": 134217728, "most": 3221225472}, ...}}
        """
        pointer = c_void_p()
        with self._connection as handle:
            self._connection.check(lib.embtier_account_list(handle, byref(pointer)))
            try:
                users: dict[int | str, dict[str, dict[str, int]]] = {}
                for i in range(lib.embtier_account_list_count(pointer)):
                    account = lib.embtier_account_list_at(pointer, i).contents
                    things = users.setdefault(account.user.decode() or account.uid, {})
                    things[account.name.decode()] = {"used": account.used, "most": account.most}
                return users
            finally:
                lib.embtier_account_list_free(pointer)
