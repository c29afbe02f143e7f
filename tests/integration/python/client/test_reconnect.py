# SPDX-License-Identifier: Apache-2.0
"""Clients find their server again: at the same address or another one, after it was stopped or killed. A request that may change rows
is never made twice."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import EMBTIERD, Daemon
from test_protocol import short_path, starting  # noqa: F401
from test_rpc import addresses_of

import embtier

LIMIT_S = 60
MIB = 1 << 20
IDS = np.arange(100, dtype=np.uint64)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def closed_port(family: int = socket.AF_INET) -> Iterator[int]:
    """A port that refuses connections, and that no other program gets meanwhile."""
    with socket.socket(family) as taken:
        taken.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        yield taken.getsockname()[1]


# ---- The same address ----


def test_clients_that_wait_come_back_to_a_restarted_server(own_daemon, name):
    with own_daemon.connect() as server:
        server.create_table(name, dim=4, rows=100, durability="async").set(IDS, np.ones((100, 4)))
    clients = [own_daemon.connect(reconnect_timeout=LIMIT_S, arena_bytes=MIB) for _ in range(8)]
    tables = [client.open_table(name) for client in clients]
    own_daemon.kill()
    found: list[float] = []

    def come_back(client: embtier.Server, table: embtier.Table) -> None:
        with pytest.raises(embtier.DisconnectedError):
            table.get(IDS)
        client.reconnect()
        found.append(float(table.get(IDS).sum()))

    threads = [threading.Thread(target=come_back, args=pair) for pair in zip(clients, tables, strict=True)]
    for thread in threads:
        thread.start()
    own_daemon.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert found == [400.0] * len(clients)
    for client in clients:
        client.close()


def test_a_reconnect_ends_after_its_time_or_at_once(own_daemon):
    client = own_daemon.connect(reconnect_timeout=0.3, arena_bytes=0)
    own_daemon.stop()
    with pytest.raises(embtier.UnreachableError, match="no embtierd listens"):
        client.reconnect()
    own_daemon.start()
    until = time.monotonic() + LIMIT_S
    while True:  # pauses go on from call to call, and one may outlast a call, which then makes no attempt
        with contextlib.suppress(embtier.UnreachableError):
            client.reconnect()
            break
        assert time.monotonic() < until
    client.close()


def test_ctrl_c_ends_a_reconnect(own_daemon, interrupts):
    client = own_daemon.connect(reconnect_timeout=None, arena_bytes=0)
    own_daemon.stop()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()  # started in here, since on a busy machine it may end before the reconnect begins
        client.reconnect()
    timer.join()
    own_daemon.start()
    client.reconnect()
    assert client.tables() == []
    client.close()


def test_reads_are_repeated_if_the_program_asks_for_it(own_daemon, name):
    def calls(client: embtier.Server, table: embtier.Table, bags: embtier.BagBatch) -> list[Callable[[], object]]:
        return [
            lambda: table.get(IDS), lambda: bags.lookup(), client.tables, client.status, client.users, client.checkpoints,
            lambda: client.open_table(name), lambda: table.step, lambda: client.prefetch_batch([(table, 0)]).prefetch(),
        ]  # fmt: skip

    for retry_reads in (True, False):
        client = own_daemon.connect(retry_reads=retry_reads, reconnect_timeout=LIMIT_S, arena_bytes=MIB)
        table = client.create_table(name, dim=4, rows=100, optimizer="sgd", if_not_exists=True)
        bags = client.bag_batch([embtier.Bags(table, 2, 1)])
        bags.ids(0)[:], bags.offsets(0)[:] = [1, 2], [0, 2]
        for i in range(len(calls(client, table, bags))):
            own_daemon.stop()
            own_daemon.start()
            if retry_reads:
                calls(client, table, bags)[i]()
                continue
            with pytest.raises(embtier.DisconnectedError):
                calls(client, table, bags)[i]()
            client.reconnect()
        own_daemon.stop()
        own_daemon.start()
        with pytest.raises(embtier.DisconnectedError, match="it is unknown whether|connection to embtierd lost"):
            table.set(IDS, np.ones((100, 4)))
        client.close()


def test_a_repeated_read_shows_a_crash_by_the_session_number(own_daemon, name):
    with own_daemon.connect(retry_reads=True, reconnect_timeout=LIMIT_S, arena_bytes=MIB) as client:
        table = client.create_table(name, dim=4, rows=100, optimizer="sgd")
        push = client.push_batch([(table, len(IDS))])
        for step in (1, 2):
            push.ids(0)[:], push.gradients(0)[:] = IDS, 1
            push.push(lr=1.0, step=step)
            if step == 1:
                client.checkpoint()
        assert client.session_number == 1 and table.step == 2
        own_daemon.kill()
        own_daemon.start()
        assert (table.get(IDS) == -1).all()  # the second push is lost, and nothing is raised
        assert client.session_number == 2 and table.step == 1
        client.reconnect()  # the session is alive
        assert client.session_number == 2
    with pytest.raises(RuntimeError, match="closed"):
        _ = client.session_number


def test_tickets_and_groups_that_are_gone_say_so(own_daemon, name):
    client = own_daemon.connect(retry_reads=True, reconnect_timeout=LIMIT_S)
    table = client.create_table(name, dim=4, rows=100, optimizer="sgd")
    bags = client.bag_batch([embtier.Bags(table, 2, 1)])
    bags.ids(0)[:], bags.offsets(0)[:] = [1, 2], [0, 2]
    bags.lookup(ticket=True)
    group = client.join(name, 1, 0)
    own_daemon.stop()
    own_daemon.start()
    table.get(IDS)  # makes a new session
    bags.gradients(0)[:] = 1
    with pytest.raises(embtier.NoTicketError, match="ended with its session"):
        bags.push(lr=1.0, step=1)
    pushes = client.push_batch([(table, 1)])
    pushes.ids(0)[:], pushes.gradients(0)[:] = [1], 1
    with pytest.raises(embtier.NoGroupError, match="ended with its session; join it again"):
        pushes.push(1.0, 1, group=group)
    client.close()


# ---- Requests in flight ----


class Proxy:
    """Passes the bytes between clients and a server on; those to the clients only while @answers is true."""

    def __init__(self, server_port: int) -> None:
        self.answers = True
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._stop, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            sources = [self._stop, self._listener, *(one for client, server in self._pairs for one in ([client, server] if self.answers else [client]))]
            ready, _, _ = select.select(sources, [], [], 0.02)
            if self._stop in ready:
                return
            if self._listener in ready:
                self._pairs.append((self._listener.accept()[0], socket.create_connection(("127.0.0.1", self._server_port))))
            for pair in list(self._pairs):
                for source, sink in (pair, pair[::-1]):
                    if source in ready and pair in self._pairs:
                        self._pass_on(pair, source, sink)

    def _pass_on(self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(ConnectionError):
            if data := source.recv(65536):
                sink.sendall(data)
                return
        self._cut(pair)

    def _cut(self, pair: tuple[socket.socket, socket.socket]) -> None:
        self._pairs.remove(pair)
        for one in pair:
            one.close()

    def end(self) -> None:
        self._wake.send(b"x")
        self._thread.join()
        for pair in list(self._pairs):
            self._cut(pair)
        for one in (self._listener, self._stop, self._wake):
            one.close()


@contextlib.contextmanager
def tcp_server(folder: Path, host: str = "127.0.0.1", port: int = 0, more: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    with starting(folder, f'  listen: ["tcp://{host}:{port}"]\n{more}') as process:
        log = (folder / "log").read_text()
        assert process.poll() is None, log
        yield process, addresses_of(log)[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("retry_reads", [False, True])
def test_a_push_whose_answer_is_lost_is_unknown_and_not_repeated(short_path, retry_reads):  # noqa: F811
    """The server applies it once. The client learns of it by the table's step."""
    with tcp_server(short_path) as (_, address), embtier.connect(address, timeout=LIMIT_S) as watcher:
        proxy = Proxy(port_of(address))
        client = embtier.connect(f"tcp://127.0.0.1:{proxy.port},{address}", timeout=LIMIT_S, retry_reads=retry_reads)
        table = client.create_table("t", dim=4, rows=100, optimizer="sgd")
        batch = client.push_batch([(table, 1)])
        batch.ids(0)[:], batch.gradients(0)[:] = [7], 1
        proxy.answers = False
        batch.submit_push(1.0, 1)
        until(lambda: watcher.open_table("t").step == 1)
        proxy.end()
        if not retry_reads:
            with pytest.raises(embtier.DisconnectedError, match="it is unknown whether the push took effect"):
                batch.wait()
            client.reconnect()
        assert (table.get([7]) == -1).all()  # with retry_reads this makes the new session
        with pytest.raises(embtier.DisconnectedError, match="it is unknown whether the push took effect"):
            batch.wait()
        assert table.step == 1
        assert watcher.status()["metrics"]["request_rows"]["push"] == 1
        client.close()


def test_a_push_that_was_killed_with_its_server_is_unknown(own_daemon, name):
    """The frozen server cannot have applied it, so a repeat would show."""
    client = own_daemon.connect(retry_reads=True, reconnect_timeout=LIMIT_S)
    table = client.create_table(name, dim=4, rows=100, optimizer="sgd", durability="async")
    batch = client.push_batch([(table, 1)])
    batch.ids(0)[:], batch.gradients(0)[:] = [7], 1
    table.set([7], np.zeros((1, 4)))
    own_daemon.freeze()
    batch.submit_push(1.0, 1)
    own_daemon.kill()
    own_daemon.start()
    assert (table.get([7]) == 0).all()
    with pytest.raises(embtier.DisconnectedError, match="unknown"):
        batch.wait()
    assert client.status()["metrics"]["request_rows"]["push"] == 0
    client.close()


def test_a_request_without_an_answer_continues(own_daemon, name):
    client = own_daemon.connect(request_timeout=0.1)
    table = client.create_table(name, dim=4, rows=100)
    batch = client.batch([(table, 1)])
    batch.ids(0)[:], batch.rows(0)[:] = [7], 1
    own_daemon.freeze()
    try:
        with pytest.raises(embtier.TimeoutError, match=r"no answer within 0\.1 seconds; the request continues"):
            batch.set()
        with pytest.raises(embtier.BusyError):
            batch.free()
    finally:
        own_daemon.signal(signal.SIGCONT)
    batch.wait()
    assert (own_daemon.connect().open_table(name).get([7]) == 1).all()
    client.close()


# ---- Several addresses ----


def take_waiting(listener: socket.socket) -> int:
    """Accepts and closes all connections that wait, and returns their number."""
    listener.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def comes_back_at_once(daemon: Daemon, addresses: str, silent: socket.socket, timeout: float) -> bool:
    """Connects to the last address of the list, restarts it, and reconnects. True if the second time was without the silent one. A
    server that answers later than its part of the time is passed over, which a busy machine may do."""
    with contextlib.suppress(embtier.TimeoutError), embtier.connect(addresses, timeout=timeout, arena_bytes=0) as client:
        assert take_waiting(silent) > 0
        daemon.stop()
        daemon.start()
        client.reconnect()
        return take_waiting(silent) == 0
    take_waiting(silent)
    return False


def test_an_address_that_does_not_answer_leaves_time_for_the_next(own_daemon, short_path):  # noqa: F811
    """One listens and never accepts, one never says hello. The third gets what is left of the time, and comes first afterwards."""
    with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as waiting:
        full.bind(f"{short_path}/full")
        full.listen(0)
        waiting.connect(f"{short_path}/full")
        silent.bind(f"{short_path}/silent")
        silent.listen(8)
        list_of = f"{short_path}/full,unix+rpc:{short_path}/silent,{own_daemon.socket}"
        assert any(comes_back_at_once(own_daemon, list_of, silent, timeout) for timeout in (6, 18, LIMIT_S))


def test_all_reasons_are_told():
    with closed_port() as one, closed_port(socket.AF_INET6) as other:
        with pytest.raises(embtier.UnreachableError) as caught:
            embtier.connect(f"tcp://127.0.0.1:{one},/nowhere,tcp://[::1]:{other}", timeout=LIMIT_S)
        assert str(caught.value).endswith(
            f"no address has a server for this client: tcp://127.0.0.1:{one}: Connection refused; /nowhere: (No such file or directory): "
            f"is it running? EMBTIER_SOCKET, or an argument, names another socket; tcp://[::1]:{other}: Connection refused"
        )
    with pytest.raises(embtier.InvalidError, match="address 2 is empty"):
        embtier.connect("/nowhere,")


def test_the_command_line_takes_the_same_addresses(own_daemon):
    program = os.environ.get("EMBTIER_CLI", str(EMBTIERD.parents[1] / "tools/embtier"))
    with closed_port() as port:
        addresses = f"tcp://127.0.0.1:{port},{own_daemon.socket}"
        for command, environment in (([program, "--address", addresses], {}), ([program], {"EMBTIER_SOCKET": addresses})):
            subprocess.run([*command, "--timeout", str(LIMIT_S), "table", "list"], env=os.environ | environment, check=True, timeout=2 * LIMIT_S)
        done = subprocess.run([program, "--socket", f"tcp://127.0.0.1:{port},/nowhere", "status"], stderr=subprocess.PIPE, text=True)
        assert done.returncode == 3 and f"tcp://127.0.0.1:{port}: Connection refused; /nowhere: " in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_name_with_addresses_of_both_kinds_reaches_either(short_path, host):  # noqa: F811
    found = {one[4][0] for one in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    if host.strip("[]") not in found:
        pytest.skip(f"localhost is not {host} here, but {found}")
    with tcp_server(short_path, host) as (_, address):
        embtier.connect(f"tcp://localhost:{port_of(address)}", timeout=LIMIT_S, arena_bytes=0).close()


LOOK_UP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Looks up "moving" as the address that stands in a file. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted, struct addrinfo **found)
{
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = "";
    FILE *file;

    if (strcmp(host, "moving") != 0)
        return next(host, port, wanted, found);
    file = fopen(getenv("MOVING"), "r");
    if (!file || fscanf(file, "%63s", address) != 1)
        return EAI_AGAIN;
    fclose(file);
    return next(address, port, wanted, found);
}
"""

FOLLOW = """
import sys, embtier
server = embtier.connect(sys.argv[1], timeout=60, reconnect_timeout=60, arena_bytes=1 << 20)
table = server.create_table("t", dim=4, rows=10, if_not_exists=True)
print("ready", flush=True)
sys.stdin.readline()
try:
    table.get([1])
    sys.exit("the server has not moved")
except embtier.DisconnectedError:
    pass
server.reconnect()
print(len(table.get([1])), flush=True)
"""


def test_a_name_is_looked_up_again_for_each_connection(short_path):  # noqa: F811
    """The server's host gets another address, as after a move, and the old one answers no more."""
    (short_path / "look_up.c").write_text(LOOK_UP)
    library = short_path / "look_up.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, short_path / "look_up.c", "-ldl"], check=True)
    where = short_path / "where"
    where.write_text("127.0.0.1")
    preload = [one for one in (os.environ.get("LD_PRELOAD"), str(library)) if one]
    environment = os.environ | {"LD_PRELOAD": ":".join(preload), "MOVING": str(where), "PYTHONPATH": ":".join(sys.path)}
    with contextlib.ExitStack() as first:
        _, address = first.enter_context(tcp_server(short_path))
        port = port_of(address)
        command = [sys.executable, "-c", FOLLOW, f"tcp://moving:{port}"]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdin and client.stdout
            assert client.stdout.readline() == "ready\n"
            first.close()
            with tcp_server(short_path, "127.0.0.2", port):
                client.stdin.write("\n")
                client.stdin.flush()
                where.write_text("127.0.0.2")
                assert client.stdout.readline() == "1\n"
            assert client.wait(LIMIT_S) == 0


# ---- Another kind of address ----


@pytest.mark.parametrize("order", [("shm", "rpc", "shm"), ("rpc", "shm", "rpc")])
def test_batches_stay_when_the_way_to_the_server_changes(short_path, order):  # noqa: F811
    """The address that worked last is gone each time, and the other one is there."""
    ways = {"shm": f"{short_path}/s", "rpc": f"unix+rpc:{short_path}/r"}

    @contextlib.contextmanager
    def serving(way: str) -> Iterator[None]:
        listen = f"unix+rpc:{short_path}/{'r' if way == 'rpc' else 'other'}"
        with starting(short_path, f'  listen: ["{listen}"]\n') as process:
            if way == "rpc":
                (short_path / "s").unlink()
            yield
            process.terminate()
            assert process.wait(LIMIT_S) == 0, (short_path / "log").read_text()

    client = batch = None
    for turn, way in enumerate(order):
        with serving(way):
            if client is None:
                client = embtier.connect(f"{ways['rpc']},{ways['shm']}", timeout=LIMIT_S, arena_bytes=100_000, max_in_flight=100)
                table = client.create_table("t", dim=4, rows=100)
                batch = client.batch([(table, 100)])
                batch.ids(0)[:] = IDS
                rows = batch.rows(0)
            else:
                assert (rows == turn).all()  # as the last turn left them, at the same address
                client.reconnect()
            rows[:] = turn + 1
            batch.set()
            rows[:] = 0
            batch.get()
            assert (rows == turn + 1).all() and (batch.ids(0) == IDS).all()
            assert (table.get(IDS) == turn + 1).all()
    client.close()


# ---- The secret of a session ----

# A client whose server goes away, and whose next address belongs to another program, which tells what it gets.
_NEXT_ADDRESS = """
import socket, sys, threading
sys.path.insert(0, {package!r})
import embtier
with socket.create_server(({host!r}, 0)) as listener:
    def listen():
        stream, _ = listener.accept()
        with stream:
            print(stream.recv(1000).hex())
    thread = threading.Thread(target=listen)
    thread.start()
    server = embtier.connect("{path},tcp://{host}:%d" % listener.getsockname()[1], timeout=60)
    print("connected", flush=True)
    sys.stdin.readline()
    try:
        server.reconnect()
    except embtier.Error:
        pass
    thread.join()
"""
_REPLACES = bytes([480 << 3 & 0x7F | 0x80 | 2, 480 >> 4])  # the tag of Hello.replaces, a message


@pytest.mark.parametrize(("host", "named"), [("127.0.0.1", True), ("198.51.100.7", False)])
def test_a_sessions_secret_stays_among_those_that_may_know_it(own_daemon, host, named):
    script = _NEXT_ADDRESS.format(package=str(Path(embtier.__file__).parents[1]), host=host, path=own_daemon.path)
    link = "ip link set lo up && ip addr add 198.51.100.7/32 dev lo && exec \"$0\" \"$@\""
    command = ["unshare", "--net", "sh", "-c", link, sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "connected\n":
                said = process.communicate(timeout=LIMIT_S)[1]
                assert "unshare" in said, said
                pytest.skip(f"no network namespace: {said}")
            own_daemon.kill()
            said, errors = process.communicate("\n", timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert (_REPLACES in bytes.fromhex(said)) == named
