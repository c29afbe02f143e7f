# SPDX-License-Identifier: Apache-2.0
"""A server's door for clients over a network, ways to connect to it, and what the server holds for them."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import os
import resource
import select
import socket
import ssl
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from daemons import SANITIZED, TREE, Daemon

import embtier

sys.path.insert(0, str(TREE / "tests/integration/python/client"))

from plain_client import GET, LIMIT_S, SET, TABLE_OPEN, TABLE_INFO, Client, message  # noqa: E402

MIB = 1 << 20
ROWS, DIM = 100_000, 64
TABLE = "door"
FREED_BYTES = 384 * MIB if SANITIZED else 0  # a sanitizer keeps 256 MiB that were freed
GROWTH_BYTES = FREED_BYTES + 24 * MIB  # of the allocator, and of RocksDB in the background
ENGINES = {"io_uring": "auto", "epoll": "off"}


# A host and a port, or the path of a Unix stream.
Address = tuple[str, int] | str


def over_tcp(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, LIMIT_S)


def over_unix(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(path)  # waits for a place in the queue; with a timeout, a full queue would be an error
    made.settimeout(LIMIT_S)
    return made


def bare(address: Address) -> socket.socket:
    """A connection without TLS, also to a door that wants it."""
    return over_unix(address) if isinstance(address, str) else over_tcp(address)


@functools.cache
def _context(ca: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=ca)
    made.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return made


def over_tls(address: tuple[str, int]) -> socket.socket:
    """Its end without close_notify is an error of its own."""
    return _context(os.environ[CA]).wrap_socket(over_tcp(address), server_hostname=address[0], suppress_ragged_eofs=False)


def client_hello(address: tuple[str, int]) -> bytes:
    """The first bytes of a handshake of TLS."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        _context(os.environ[CA]).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=address[0]).do_handshake()
    return outgoing.read()


# Each makes a connection that a Client can use, and to which RST and shutdown() apply. Programs that a test starts name one.
KINDS: dict[str, Callable[[Address], socket.socket]] = {"tcp": over_tcp, "tls": over_tls, "unix": over_unix}
UNIX = "unix+rpc:"
NETWORK = ["tcp", "tls"]  # clients of which the server learns the user by their hello alone
CA = "EMBTIER_TEST_CA"  # the file of the authority that signed the server's certificate


def await_bytes(stream: socket.socket) -> None:
    """Until the server has sent something, or closed."""
    assert select.select([stream], [], [], LIMIT_S)[0]


def send_until_full(stream: socket.socket, data: bytes) -> None:
    """Sends until the server reads no more."""
    stream.setblocking(False)
    with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
        while data:
            data = data[stream.send(data[:65536]) :]
    stream.settimeout(LIMIT_S)


def end_half(stream: socket.socket) -> None:
    """Sends no more. SSLSocket.shutdown() would forget the keys, and read ciphertext from then on."""
    socket.socket.shutdown(stream, socket.SHUT_WR)


def reset(stream: socket.socket) -> None:
    """Ends a connection by RST."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


def raise_descriptor_limit(wanted: int, pid: int = 0) -> int:
    """Raises a process's limit as far as this user may. Returns the limit."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with contextlib.suppress(PermissionError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(wanted, hard), max(wanted, hard)))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    soft = min(wanted, hard)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def wait_until(what: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


class SteppedTls:
    """TLS over a socket, whose records are sent and read by hand. SSLSocket.unwrap() takes no rows after its close_notify."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = over_tcp(address)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=os.environ[CA])
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # Python sets it: an end without close_notify would look like one
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=address[0])
        self._until_done(self._tls.do_handshake)

    def _flush(self) -> None:
        self._socket.sendall(self._outgoing.read())

    def _until_done(self, step: Callable[[], object]) -> object:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._socket.recv(65536)
                self._incoming.write(data) if data else self._incoming.write_eof()
            finally:
                self._flush()

    def sendall(self, data: bytes) -> None:
        self._until_done(lambda: self._tls.write(data) if data else 0)

    def recv(self, count: int) -> bytes:
        """Nothing: the server has sent close_notify. An end without it raises SSLEOFError."""
        try:
            return self._until_done(lambda: self._tls.read(count))
        except ssl.SSLZeroReturnError:
            return b""

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def close_notify(self) -> None:
        """Ends what this side sends. There is no FIN."""
        assert self._incoming.pending == 0  # else OpenSSL takes them as a fault
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        self._flush()

    def close(self) -> None:
        self._socket.close()


class Door:
    def __init__(self, daemon: Daemon, kind: str, makes_table: bool = True) -> None:
        self.daemon = daemon
        self._connect = KINDS[kind]
        scheme = UNIX if kind == "unix" else f"{kind}://"
        *_, listening = (line["address"] for line in daemon.logged("listening") if line["address"].startswith(scheme))
        self.url = listening + (f"?ca={os.environ[CA]}" if kind == "tls" else "")
        self.kind = kind
        self.address = self._address(listening.removeprefix(scheme))
        if makes_table:
            self._make_table()

    def _address(self, said: str) -> Address:
        host, _, port = said.rpartition(":")
        return said if self.kind == "unix" else (host, int(port))

    def _make_table(self) -> None:
        with self.daemon.connect() as server:
            table = server.create_table(TABLE, DIM, ROWS, optimizer="sgd")
            ids = np.arange(1000)
            table.set(ids, np.repeat(ids[:, None], DIM, axis=1))
        self.daemon.await_metric("session_arena_bytes", 0)  # it takes no place of a test's clients any more

    # ---- Connections ----

    def connect(self) -> socket.socket:
        return self._connect(self.address)

    def client(self, arena_bytes: int = 65536, slots: int = 4) -> Client:
        """One that has said hello."""
        made = Client(self.connect())
        granted = made.hello(arena_bytes, slots)
        made.region = bytearray(granted.get(4, 0))
        return made

    @contextlib.contextmanager
    def clients(self, count: int, **hello: int) -> Iterator[list[Client]]:
        with contextlib.ExitStack() as stack:
            made = []
            for _ in range(count):
                made.append(self.client(**hello))
                stack.callback(made[-1].close)
            yield made

    # ---- Others ----

    @contextlib.contextmanager
    def serves_others(self) -> Iterator[None]:
        """Another client of the same door asks for rows all the time, and always gets the right ones."""
        stop, failures = threading.Event(), []
        with embtier.connect(self.url, timeout=LIMIT_S, arena_bytes=4 * MIB) as server:
            table, ids = server.open_table(TABLE), np.arange(500)

            def ask() -> None:
                try:
                    while not stop.is_set():
                        assert (table.get(ids) == ids[:, None]).all()
                        stop.wait(0.02 if SANITIZED else 0.002)
                except BaseException as error:  # passed on to the test's thread
                    failures.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()
        assert not failures, failures

    def must_serve(self) -> None:
        with embtier.connect(self.url, timeout=LIMIT_S, arena_bytes=MIB) as server:
            assert (server.open_table(TABLE).get([1, 2])[:, 0] == [1, 2]).all()

    # ---- What the server holds ----

    def anonymous_bytes(self) -> int:
        status = Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024

    def threads(self) -> dict[str, int]:
        """The number of threads of each name, without those that the kernel adds for io_uring."""
        names = []
        for task in Path(f"/proc/{self.daemon.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                names.append((task / "comm").read_text().strip())
        return dict(collections.Counter(name for name in names if not name.startswith("iou-")))

    def queued_bytes(self, stream: socket.socket) -> tuple[int, int]:
        """Bytes of that connection in the system's queues on the server's side: to be sent, and to be read by the server."""
        if self.kind == "unix":
            return tuple(struct.unpack("i", fcntl.ioctl(stream, name, bytes(4)))[0] for name in (termios.FIONREAD, termios.TIOCOUTQ))
        ours, theirs = (f"0100007F:{port:04X}" for port in (stream.getsockname()[1], self.address[1]))
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if (local, remote) == (theirs, ours):
                sent, received = queues.split(":")
                return int(sent, 16), int(received, 16)
        raise AssertionError("there is no such connection")

    def held(self) -> dict[str, float]:
        """Descriptors, sessions and bytes of arenas, without those of this question, and users' shares."""
        with self.daemon.connect(arena_bytes=0) as server:
            status = server.status()
        figures = {name: status["metrics"][name] for name in ("sessions", "session_arena_bytes")}
        figures["descriptors"] = len(os.listdir(f"/proc/{self.daemon.pid}/fd"))
        return figures

    @contextlib.contextmanager
    def leaves_nothing(self, growth_bytes: int = GROWTH_BYTES) -> Iterator[None]:
        """The server must hold after the block, within a minute, no more than before it."""
        before, kinds, memory = self.settled(), self.daemon.settled_descriptors(), self.anonymous_bytes()
        yield
        for name in ("sessions", "session_arena_bytes"):
            wait_until(lambda name=name: self.held()[name] <= before[name], lambda: f"{before} became {self.held()}")
        self.daemon.must_have_closed_all_but(kinds)
        wait_until(lambda: self.anonymous_bytes() - memory < growth_bytes, lambda: f"{self.anonymous_bytes() - memory} bytes are left")
        assert self.daemon.is_running

    def must_stop_growing(self, turn: Callable[[], None], most_bytes: int, rounds: int = 12) -> None:
        """Repeats @turn until the server keeps less than @most_bytes more of it. The allocator and RocksDB grow in some turns, and
        a leak in all of them."""
        grown = []
        for _ in range(rounds):
            before = self.settled(), self.anonymous_bytes()
            turn()
            wait_until(lambda: self.held()["sessions"] <= before[0]["sessions"])
            self.settled()
            grown.append(self.anonymous_bytes() - before[1])
            if grown[-1] < most_bytes:
                return
        raise AssertionError(f"each turn leaves memory: {grown} bytes")

    def settled(self) -> dict[str, float]:
        """held(), once no session ends any more."""
        last = self.held()
        while (now := self.held()) != last:
            last = now
        return last


# ---- Requests ----


def open_table(client: Client) -> int:
    return client.call(TABLE_OPEN, {1: TABLE}, TABLE_INFO)[1]


def rows_request(client: Client, op: int, count: int, first_id: int = 0) -> tuple[bytes, bytes]:
    """The message and payload of a GET or SET of so many rows, which lie in the client's region from 64 on."""
    rows, at = 256 + count * 8, 64
    segment = struct.pack("<QQQII", open_table(client), 128, rows, count, 0)
    ids = struct.pack(f"<{count}Q", *range(first_id, first_id + count))
    bytes_ = count * DIM * 4
    if op == GET:
        return message({1: GET, 3: 1, 4: at, 9: [at, 32, 128, len(ids)], 10: [rows, bytes_]}), segment + ids
    values = b"".join(struct.pack("<f", i) * DIM for i in range(first_id, first_id + count))
    return message({1: SET, 3: 1, 4: at, 9: [at, 32, 128, len(ids), rows, bytes_]}), segment + ids + values
