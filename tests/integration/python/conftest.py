# SPDX-License-Identifier: Apache-2.0
"""Starts the real embtierd on a temporary directory.

Environment: EMBTIERD, the daemon (default: build/daemon/embtierd of this tree); EMBTIER_LIBRARY, the
library (default: beside that daemon); EMBTIER_TEST_LANES, its lanes (default: 1);
EMBTIER_TEST_TRANSPORT, how clients connect: shm (default), rpc (a Unix socket without shared memory),
tls (TLS over TCP), rpc-epoll and tls-epoll (the same, served without io_uring);
EMBTIER_TEST_CONNECTIONS, how many connections each of their sessions has (default: 1).
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, own_host

TREE = Path(__file__).resolve().parents[3]
EMBTIERD = Path(os.environ.get("EMBTIERD", TREE / "build/daemon/embtierd")).resolve()
LANES = int(os.environ.get("EMBTIER_TEST_LANES", "1"))
TRANSPORT = os.environ.get("EMBTIER_TEST_TRANSPORT", "shm")
CONNECTIONS = os.environ.get("EMBTIER_TEST_CONNECTIONS")
assert TRANSPORT in ("shm", "rpc", "rpc-epoll", "tls", "tls-epoll"), TRANSPORT
SHARDS = max(4, LANES)

os.environ.setdefault("EMBTIER_LIBRARY", str(EMBTIERD.parents[1] / "client/libembtier.so"))
sys.path.insert(0, str(TREE / "client/python"))

import embtier  # noqa: E402

ARENA_BYTES = 16 << 20  # the server touches all of it for each connection
READY_LIMIT_S = 60
STOP_LIMIT_S = 60

# A start touches all memory that it may use, and makes each database: what tests do not need costs more than what they do.
_CONFIG = """\
data:
  directories: [{folder}/rows]
  shards_per_directory: {shards}
  reserve_bytes: 4MiB
lanes:
  count: {lanes}
  group_seconds: 60
  readers_per_lane: 2
  request_bytes: 8MiB
  ticket_bytes: 4MiB
  write_queue_bytes: 4MiB
cache:
  tiers:
    - {{name: dram, kind: dram, bytes: {dram_mib}MiB, array_bytes: {array_mib}MiB}}
    - {{name: pmem, kind: file, path: {folder}/pmem, bytes: {pmem_mib}MiB, array_bytes: {array_mib}MiB}}
rocksdb:
  memtable_bytes: 16MiB
  metadata_cache_bytes: 8MiB
socket:
  path: {socket}
rpc:
  listen: ["unix+rpc:{socket}.rpc"{tls_address}]
  io_uring: {io_uring}
{tls}"""

_TLS = """\
tls:
  certificate: {folder}/tls/server.crt
  key: {folder}/tls/server.key
"""


ARRAY_MIB = 16  # in each tier, for the arrays of tests with random homes; not for the cache


class Daemon:
    """An embtierd of a test's own. Rows outlive stop() or kill(), and start() serves them again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # A socket's path may have at most 107 bytes; pytest's folders are longer.
        self._socket_folder = tempfile.mkdtemp(prefix="embtier-", dir="/tmp")
        path = f"{self._socket_folder}/socket"
        self.path = path
        self.socket = path if TRANSPORT == "shm" else f"unix+rpc:{path}.rpc"
        tls_address, tls = "", ""
        if TRANSPORT.startswith("tls"):
            tls_address, tls = self._make_tls(), _TLS.format(folder=folder)
        if CONNECTIONS and TRANSPORT != "shm":
            self.socket += f"{'&' if '?' in self.socket else '?'}connections={CONNECTIONS}"
        self.log = folder / "log"
        (folder / "rows").mkdir()
        (folder / "pmem").mkdir()
        text = _CONFIG.format(
            folder=folder, lanes=LANES, shards=SHARDS, socket=path, array_mib=ARRAY_MIB, tls_address=tls_address,
            tls=tls, io_uring="off" if TRANSPORT.endswith("-epoll") else "auto", dram_mib=4 * LANES + ARRAY_MIB, pmem_mib=4 * LANES + ARRAY_MIB,
        )
        (folder / "embtierd.yaml").write_text(text)
        self._process: subprocess.Popen | None = None

    def _make_tls(self) -> str:
        """Makes certificates, and chooses the address of clients. Returns that of the server, for its list."""
        authority = Authority(self.folder / "tls")
        host = own_host()
        authority.sign("server", f"IP:{host}")
        self.socket = f"tls://{host}:7411?ca={authority.certificate}"
        return f', "tls://{host}:7411"'

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [EMBTIERD, "--init", "--config", self.folder / "embtierd.yaml"], stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + READY_LIMIT_S
        while True:
            try:
                embtier.connect(self.socket, timeout=READY_LIMIT_S, arena_bytes=0).close()
                return
            except (embtier.UnreachableError, embtier.DisconnectedError):  # an ending server of before may still accept
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.02)

    def stop(self) -> None:
        """Sends SIGTERM; the daemon must end well."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(STOP_LIMIT_S) == 0, self.log.read_text()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Sends SIGSTOP. Returns when no thread runs any more, which takes a moment."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while True:
            stats = []
            for path in Path(f"/proc/{self._process.pid}/task").glob("*/stat"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this thread has just ended
                    stats.append(path.read_text())
            if all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats):
                return
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_LIMIT_S)
        self._process = None

    def close(self) -> None:
        try:
            if self._process is not None:
                self.stop()
        finally:
            if self._process is not None:
                self.kill()
            shutil.rmtree(self._socket_folder)

    def connect(self, **options) -> embtier.Server:
        return embtier.connect(self.socket, **({"timeout": 60, "arena_bytes": ARENA_BYTES} | options))


def under_load(call: Callable, *arguments, **options):
    """Makes a call that makes a checkpoint. A checkpoint waits for updates under way; under a sanitizer on a busy machine this
    may take too long. Then there is no checkpoint, and the call is tried again, as users would."""
    for _ in range(5):
        try:
            return call(*arguments, **options)
        except embtier.BusyError as error:
            assert "without an update in progress" in str(error)
    pytest.fail("no checkpoint in five tries")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all tests of a file, which use tables of their own."""
    daemon = Daemon(tmp_path_factory.mktemp("embtierd"))
    daemon.start()
    yield daemon
    daemon.close()


@pytest.fixture
def own_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon for tests that stop it."""
    daemon = Daemon(tmp_path)
    daemon.start()
    yield daemon
    daemon.close()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[embtier.Server]:
    with daemon.connect() as server:
        yield server


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A table name of the test's own."""
    return "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]


@pytest.fixture
def rng() -> random.Random:
    """Printed with a failure; EMBTIER_TEST_SEED=… gives the same numbers again."""
    seed = int(os.environ.get("EMBTIER_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"EMBTIER_TEST_SEED={seed}")
    return random.Random(seed)


def give_homes(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, gives tables with a number of rows a random home, and arrays a random tier, as long as there is room.
    EMBTIER_TEST_HOME=cache or =array gives all of them that home."""
    create_table = embtier.Server.create_table
    homes = random.Random(rng.randrange(2**32))
    tiers = {"cache": [None], "array": ["dram", "pmem"], "": [None, None, "dram", "pmem"]}[os.environ.get("EMBTIER_TEST_HOME", "")]

    @functools.wraps(create_table)  # embtier.torch asks for its arguments
    def create(server: embtier.Server, name: str, dim: int, rows: int | None = None, **options):
        if rows is not None and not options.keys() & {"home", "tier"} and (tier := homes.choice(tiers)):
            # A table that is too large, or whose tier does not exist, is cached.
            try:
                return create_table(server, name, dim, rows, home="array", tier=tier, **options)
            except (embtier.NoMemoryError, embtier.TooLargeError):
                pass
            except embtier.InvalidError as error:
                if f"there is no tier '{tier}'" not in str(error):
                    raise
            except embtier.MismatchError:  # with if_not_exists: the table has another home
                pass
        return create_table(server, name, dim, rows, **options)

    monkeypatch.setattr(embtier.Server, "create_table", create)


@pytest.fixture
def random_homes(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """See give_homes(). Must come before the test's tables."""
    give_homes(rng, monkeypatch)


@pytest.hookimpl(optionalhook=True, hookwrapper=True)
def pytest_xdist_newgateway(gateway: Any) -> Iterator[None]:
    """Lets tests run on their worker's main thread, the only one that gets signals. With -v, pytest-xdist first asks a worker for
    its versions. In execnet before 2.1 the main thread may still be busy with that answer when the tests come. They then run on a
    second thread."""
    gateway._rinfo = lambda: types.SimpleNamespace(executable=sys.executable, platform=sys.platform, version_info=sys.version_info, cwd=TREE)
    yield


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Handles SIGINT as a program in the foreground does; a shell's background jobs ignore it."""
    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
