#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a pair of interfaces: one for servers, one for clients. Needs root, and `ip`.

As a program: network_link.py COMMAND [ARGUMENT...] runs a command on the clients' side. Servers that the command starts belong on
the other side: EMBTIER_SERVER_NETWORK is the path of its namespace, EMBTIER_SERVER_HOST its address.

The namespaces have no names. So they and their interfaces vanish with the last process that has them, however it ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator

NETWORK, HOST = "EMBTIER_SERVER_NETWORK", "EMBTIER_SERVER_HOST"
SERVER, CLIENT = "192.0.2.1", "192.0.2.2"
SERVER_HARDWARE, CLIENT_HARDWARE = "02:00:00:00:00:01", "02:00:00:00:00:02"
NOBODY = "02:00:00:00:00:99"  # a hardware address that neither side has
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class NoLinkError(Exception):
    """There is no link; the text says why."""


class NoRightError(NoLinkError):
    """The system refuses namespaces to this process. Tests are skipped for this reason alone."""


def _check(result: int, call: str) -> None:
    if result != 0:
        raise NoLinkError(f"{call}: {os.strerror(ctypes.get_errno())}")


def _here() -> int:
    """A descriptor of this thread's namespace."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _go(namespace: int) -> None:
    _check(_libc.setns(namespace, CLONE_NEWNET), "setns")


@contextlib.contextmanager
def _staying() -> Iterator[None]:
    """Brings this thread back afterwards."""
    home = _here()
    try:
        yield
    finally:
        _go(home)
        os.close(home)


def _run(command: str) -> None:
    program = command.split()[0]
    try:
        subprocess.run(command.split(), check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoLinkError(f"there is no program `{program}`: install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise NoLinkError(f"{command}: {error.stderr.strip()}") from None


def _ip(arguments: str) -> None:
    _run(f"ip {arguments}")


class Link:
    """The pair. It ends with close(), or with the process."""

    def __init__(self) -> None:
        self._namespaces: list[int] = []
        try:
            with _staying():
                for _ in range(2):
                    if _libc.unshare(CLONE_NEWNET) != 0:
                        raise NoRightError(f"unshare: {os.strerror(ctypes.get_errno())}")
                    self._namespaces.append(_here())
            self._set_up()
        except BaseException:
            self.close()
            raise

    def _set_up(self) -> None:
        with self.at_server():
            _ip(f"link add clients address {SERVER_HARDWARE} type veth peer name server address {CLIENT_HARDWARE} netns {self._path(1)}")
            _ip("link set lo up")
            _ip(f"address add {SERVER}/30 dev clients")
            self.mend()
        with self.at_client():
            _ip("link set lo up")
            _ip(f"address add {CLIENT}/30 dev server")
            _ip("link set server up")
            _ip(f"neighbour replace {SERVER} lladdr {SERVER_HARDWARE} dev server nud permanent")

    def close(self) -> None:
        while self._namespaces:
            os.close(self._namespaces.pop())

    def _path(self, which: int) -> str:
        return f"/proc/{os.getpid()}/fd/{self._namespaces[which]}"

    @property
    def server_network(self) -> str:
        """The path of the servers' namespace, for `nsenter --net=`."""
        return self._path(0)

    @contextlib.contextmanager
    def at_server(self) -> Iterator[None]:
        """Has this thread on the servers' side."""
        with _staying():
            _go(self._namespaces[0])
            yield

    @contextlib.contextmanager
    def at_client(self) -> Iterator[None]:
        """Has this thread, and those that it starts, on the clients' side."""
        with _staying():
            _go(self._namespaces[1])
            yield

    # Each side knows the other's hardware address for good. If it had to ask for it, it would keep packets until it has an answer,
    # and send them after a cut, even those of a connection that it has given up by then.

    def cut(self) -> None:
        """Drops all that is sent, until mend()."""
        with self.at_server():
            _ip("link set clients down")

    def cut_to_clients(self) -> None:
        """Drops what servers send, until mend(). They still receive."""
        with self.at_server():
            _ip(f"neighbour replace {CLIENT} lladdr {NOBODY} dev clients nud permanent")

    def mend(self) -> None:
        with self.at_server():
            _ip("link set clients up")
            _ip(f"neighbour replace {CLIENT} lladdr {CLIENT_HARDWARE} dev clients nud permanent")

    def end_connections(self) -> None:
        """The clients' system gives up their connections to servers, as it does by itself after a long time without an answer. A
        kernel without CONFIG_INET_DIAG_DESTROY leaves them that time."""
        with self.at_client():
            _run(f"ss --kill dst {SERVER}")

    def run(self, command: list[str]) -> None:
        """Becomes @command, on the clients' side. The process keeps both namespaces."""
        for namespace in self._namespaces:
            os.set_inheritable(namespace, True)
        os.environ.update({NETWORK: self.server_network, HOST: SERVER})
        _go(self._namespaces[1])
        os.execvp(command[0], command)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit((__doc__ or "").split("\n\n")[1])
    try:
        link = Link()
    except NoLinkError as error:
        print(f"network_link: no figure: no network namespaces can be joined here: {error}", file=sys.stderr)
        return
    link.run(sys.argv[1:])


if __name__ == "__main__":
    main()
