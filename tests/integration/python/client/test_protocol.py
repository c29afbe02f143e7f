# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md is enough to write a client: plain_client.py uses neither libembtier nor protobuf.

It also sends what no client should, and the server refuses that, on that connection alone.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import EMBTIERD
from plain_client import (
    CALL, DATA, DONE, ERROR, GET, HELLO, HELLO_REPLY, LIMIT_S, POOL, PREFETCH, PUSH, READ, REFUSED, RELEASE, REPLY, SET, SUBMIT,
    TABLE_CREATE, TABLE_INFO, TABLE_OPEN, WRITE, Client, frame, head, low_bytes, message,
)  # fmt: skip

import embtier


@pytest.fixture
def address(daemon) -> str:
    return f"{daemon.path}.rpc"


@pytest.fixture
def client(address) -> Iterator[Client]:
    made = Client(address)
    yield made
    made.close()


def create(client: Client, name: str, dim: int = 4, rows: int = 100) -> dict:
    spec = message({1: name, 2: rows, 3: dim, 4: 1, 5: 1, 6: 1})
    return client.call(TABLE_CREATE, {1: spec}, TABLE_INFO)


def error_of(address: str, sent: bytes, hello: bool = False) -> str:
    """Sends bytes; returns the text with which the server refuses them, and checks that it closes."""
    client = Client(address)
    try:
        if hello:
            client.hello()
        client.send(sent)
        kind, _, error, _ = client.receive()
        assert kind == REFUSED
        assert client.is_closed()
        return error[2].decode()
    finally:
        client.close()


# ---- A client as the page says ----


def test_a_client_in_plain_python_sets_reads_and_pools_rows(client, name):
    granted = client.hello()
    assert (granted[1], granted[5]) == (1, 4)
    assert granted[4] >= 65536
    table = create(client, name)
    assert table[4] == 16  # weight_bytes
    ids = struct.pack("<2Q", 5, 7)
    client.region[128:144] = ids
    client.region[64:96] = struct.pack("<QQQII", table[1], 128, 192, 2, 0)
    client.region[192:224] = struct.pack("<8f", *range(8))
    done = client.submit({1: SET, 3: 1, 4: 64}, [64, 32, 128, 16, 192, 32], [])
    assert done.get(1, 0) == 0

    client.region[192:224] = bytes(32)
    done = client.submit({1: GET, 3: 1, 4: 64}, [64, 32, 128, 16], [192, 32])
    assert (done.get(1, 0), done[6]) == (0, 2)
    assert struct.unpack("<8f", client.region[192:224]) == tuple(range(8))

    client.region[256:320] = struct.pack("<QQQQQIIIIQ", table[1], 128, 512, 400, 0, 2, 1, 1, 0, 0)
    client.region[400:408] = struct.pack("<2I", 0, 2)
    done = client.submit({1: POOL, 3: 1, 4: 256}, [256, 64, 128, 16, 400, 8], [512, 16])
    assert done.get(1, 0) == 0
    assert struct.unpack("<4f", client.region[512:528]) == (4, 6, 8, 10)


class Trainer:
    """Rows 5 and 7 of a table, and requests that train them. The segment lies at 64, the ids at 128, and what they bring at 192."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        client.hello()
        self.table = create(client, name)[1]
        self.write(128, struct.pack("<3Q", 5, 7, 5))
        self.write(400, struct.pack("<2I", 0, 3))  # offsets of one bag
        self.write(192, struct.pack("<12f", *range(8), *range(4)))
        self.write(64, struct.pack("<QQQII", self.table, 128, 192, 3, 0))
        assert client.submit({1: SET, 3: 1, 4: 64}, [64, 32, 128, 24, 192, 48], []).get(1, 0) == 0

    def write(self, at: int, data: bytes) -> None:
        self.client.region[at : at + len(data)] = data

    def rows(self) -> tuple[float, ...]:
        self.write(64, struct.pack("<QQQII", self.table, 128, 192, 2, 0))
        done = self.client.submit({1: GET, 3: 1, 4: 64}, [64, 32, 128, 16], [192, 32])
        assert done.get(1, 0) == 0
        return struct.unpack("<8f", self.client.region[192:224])

    def look_up(self) -> int:
        """Sums one bag of rows 5, 7 and 5. Returns the ticket."""
        self.write(64, struct.pack("<QQQQQIIIIQ", self.table, 128, 512, 400, 0, 3, 1, 1, 0, 0))
        done = self.client.submit({1: POOL, 2: 2, 3: 1, 4: 64}, [64, 64, 128, 24, 400, 8], [512, 16])
        assert done.get(1, 0) == 0
        return done[7]

    def prefetch(self) -> int:
        self.write(64, struct.pack("<QQQQdIIIIQ", self.table, 128, 0, 0, 0, 3, 0, 0, 0, 0))
        done = self.client.submit({1: PREFETCH, 3: 1, 4: 64}, [64, 64, 128, 24], [])
        assert done.get(1, 0) == 0
        return done[7]

    def push(self, step: int, fields: dict | None = None, count: int = 3, ids: int = 128) -> dict:
        """Pushes gradients of 1 with learning rate 0.5, for @count ids, or bags if @ids is 0. Returns the answer."""
        self.write(64, struct.pack("<QQQQdIIIIQ", self.table, ids, 192, 0, 0.5, count, 4, 0, 0, 0))
        self.write(192, struct.pack(f"<{4 * count}f", *[1] * 4 * count))
        sent = [64, 64, *([ids, 8 * count] if ids else []), 192, 16 * count]
        return self.client.submit({1: PUSH, 3: 1, 4: 64, 5: step} | (fields or {}), sent, [])


def test_a_client_in_plain_python_trains_rows(client, name):
    """It pushes gradients of rows, those of a lookup by its ticket, and those of rows that it has prefetched."""
    trainer = Trainer(client, name)
    assert trainer.push(1).get(1, 0) == 0
    assert trainer.rows() == (-1, 0, 1, 2, 3.5, 4.5, 5.5, 6.5)  # row 5 comes twice
    ticket = trainer.look_up()
    assert struct.unpack("<4f", client.region[512:528]) == (1.5, 4.5, 7.5, 10.5)
    assert trainer.push(2, {6: ticket}, count=1, ids=0).get(1, 0) == 0
    assert trainer.rows() == (-2, -1, 0, 1, 3, 4, 5, 6)
    assert trainer.push(3, {7: trainer.prefetch()}).get(1, 0) == 0
    assert trainer.rows() == (-3, -2, -1, 0, 2.5, 3.5, 4.5, 5.5)


def test_a_released_ticket_trains_nothing(client, name):
    trainer = Trainer(client, name)
    ticket = trainer.look_up()
    assert client.submit({1: RELEASE, 6: ticket}, [], []).get(1, 0) == 0
    assert trainer.push(1, {6: ticket}, count=1, ids=0)[1] == 30  # TICKET_USED
    assert trainer.rows() == tuple(range(8))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_ids_may_travel_in_fewer_bytes(client, name, width):
    assert client.hello()[450] == 1
    table = create(client, name, rows=2**32)
    client.region[128:144] = struct.pack("<2Q", 256**width - 1, 7)
    client.region[64:96] = struct.pack("<QQQII", table[1], 128, 192, 2, 0)
    client.region[192:224] = struct.pack("<8f", *range(8))
    done = client.submit({1: SET, 3: 1, 4: 64}, [64, 32, 128, 16, 192, 32], [], narrow={1: width})
    assert done.get(1, 0) == 0
    client.region[192:224] = bytes(32)
    done = client.submit({1: GET, 3: 1, 4: 64}, [64, 32, 128, 16], [192, 32])  # in all their bytes
    assert done == {6: 2}, "without an error there is no segment of an error"
    assert struct.unpack("<8f", client.region[192:224]) == tuple(range(8))


def test_a_narrow_write_is_read_back_wide(client):
    client.hello()
    ids = struct.pack("<3Q", 1, 2**32 - 1, 0)
    client.send(frame(WRITE, 0, message({1: [1000, 24, 64, 3], 2: [4]}), low_bytes(ids, 4) + b"abc"))
    client.send(frame(READ, 9, message({1: [1000, 24, 64, 3]})))
    assert client.receive() == (DATA, 9, {}, ids + b"abc")


def test_an_id_past_the_table_is_refused_and_nothing_is_sent(client, name):
    client.hello()
    table = create(client, name)
    client.region[128:136] = struct.pack("<Q", 100)
    client.region[64:96] = struct.pack("<QQQII", table[1], 128, 192, 1, 0)
    done = client.submit({1: GET, 3: 1, 4: 64}, [64, 32, 128, 8], [192, 16])
    assert done[1] != 0
    assert (done[2], done[4], done[5]) == (1, 100, 100)  # segment 0, the id, and the number of rows
    done = client.submit({1: GET, 3: 1, 4: 64}, [64, 32, 128, 8], [192, 16])
    assert done[1] != 0  # the session goes on


def test_bytes_written_are_those_that_are_read(client):
    client.hello()
    client.send(frame(WRITE, 0, message({1: [64, 3, 1000, 2]}), b"abcde"))
    client.send(frame(READ, 9, message({1: [1001, 1, 64, 3]})))
    assert client.receive() == (DATA, 9, {}, b"eabc")


@pytest.mark.parametrize(("asked", "granted"), [(0, 64), (1, 1), (3, 4), (513, 1024), (1024, 1024)])
def test_a_power_of_two_of_slots_is_granted(client, asked, granted):
    """So that the slots of requests still follow each other when their numbers wrap at 2^32."""
    assert client.hello(slots=asked)[5] == granted


def test_many_requests_may_be_under_way(client, name):
    client.hello()
    table = create(client, name)
    client.region[64:96] = struct.pack("<QQQII", table[1], 128, 192, 2, 0)
    body = message({1: GET, 3: 1, 4: 64, 9: [64, 32, 128, 16], 10: [192, 32]})
    payload = bytes(client.region[64:96] + client.region[128:144])
    client.send(b"".join(frame(SUBMIT, number, body, payload) for number in range(4)))
    assert sorted(client.receive()[1] for _ in range(4)) == [0, 1, 2, 3]


def test_a_frame_of_an_unknown_kind_is_skipped(client):
    client.send(frame(99, 42, b"message", b"payload"))
    kind, number, error, _ = client.receive()
    assert (kind, number) == (REFUSED, 42)
    assert "kind 99" in error[2].decode()
    client.hello()


def test_a_client_that_comes_back_ends_its_old_session(client, address, name):
    granted = client.hello()
    table = create(client, name)
    client.send(head(WRITE, 0, len(message({1: [64, 3]})), 3))  # the rest never comes
    back = Client(address)
    back.hello(more={480: message({1: granted[3], 2: granted[480]})})
    assert client.is_closed()
    assert back.call(TABLE_OPEN, {1: name}, TABLE_INFO)[1] == table[1]
    back.close()


@pytest.mark.parametrize("unknown", [{9999: 5}, {9999: b"of a later version"}, {9998: [1, 2, 3], 9999: 0}])
def test_unknown_fields_are_ignored(client, name, unknown):
    client.hello(more=unknown)
    table = client.call(TABLE_CREATE, {1: message({1: name, 2: 100, 3: 4, 4: 1, 5: 1, 6: 1} | unknown)} | unknown, TABLE_INFO)[1]
    client.region[64:96] = struct.pack("<QQQII", table, 128, 192, 2, 0)
    client.region[128:144] = struct.pack("<2Q", 5, 7)
    client.region[192:224] = struct.pack("<8f", *range(8))
    assert client.submit({1: SET, 3: 1, 4: 64} | unknown, [64, 32, 128, 16, 192, 32], []).get(1, 0) == 0
    client.region[192:224] = bytes(32)
    assert client.submit({1: GET, 3: 1, 4: 64} | unknown, [64, 32, 128, 16], [192, 32]).get(1, 0) == 0
    assert struct.unpack("<8f", client.region[192:224]) == tuple(range(8))
    client.send(frame(WRITE, 0, message({1: [1000, 5]} | unknown), b"abcde"))
    client.send(frame(READ, 9, message({1: [1001, 3]} | unknown)))
    assert client.receive() == (DATA, 9, {}, b"bcd")


def test_a_client_of_later_versions_is_told_and_may_say_hello_again(client):
    error = client.call(HELLO, {1: 8, 2: 9, 3: 65536}, ERROR)
    assert (error[1], error[2].decode()) == (18, "this server speaks protocol 1, the client 8 to 9")
    assert client.call(HELLO, {1: 1, 2: 9, 3: 65536}, HELLO_REPLY)[1] == 1


def test_an_unknown_request_is_answered(client):
    client.hello()
    client.call(1999, {1: 1}, ERROR)


# ---- What no client sends ----


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"GET / HTTP/1.1\r\nHost: embtier\r\n\r\n", "begin no frame"),
        (head(CALL, 0, 4, 0, magic=b"EBT2") + b"xxxx", "begin no frame"),
        (head(CALL, 0, 4, 0, version=2) + b"xxxx", "version 2"),
        (head(CALL, 0, 4, 0)[:-1] + b"?" + b"xxxx", "checksum"),
        (head(CALL, 0, 0, 0), "message of 0"),
        (head(CALL, 0, 65537, 0), "65537 bytes"),
        (head(CALL, 0, 2**31, 0), "2147483648 bytes"),
        (head(CALL, 0, 2**32 - 1, 2**64 - 1), "4294967295 bytes"),
        (head(CALL, 0, 4, 1) + b"xxxx?", "payload of 1"),
        (head(SUBMIT, 0, 4, 0) + b"xxxx", "before the answer to a hello"),
        (head(99, 0, 4, 2**64 - 1), "allowed"),
        (head(CALL, 0, 4, 2**64 - 1), "allowed"),
    ],
)
def test_a_wrong_head_ends_the_connection(address, sent, said):
    assert said in error_of(address, sent)


_GET = {1: GET, 3: 1, 4: 64}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame(SUBMIT, 0, b"\xff\xff\xff"), "malformed"),
        (frame(SUBMIT, 1 << 20, message(_GET)), "1048576 came when 0 was next, and at most 4"),
        (frame(SUBMIT, 1, message(_GET)) * 2, "1 came twice, or before the answer to request"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 32]}), b"short"), "a payload of 5 bytes for spans of 32"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 1]}), b"longer"), "a payload of 6 bytes for spans of 1"),
        (frame(SUBMIT, 0, message(_GET | {9: [64]})), "no pairs"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 0]})), "0 bytes"),
        (frame(SUBMIT, 0, message(_GET | {10: [0, 64]})), "outside the region"),
        (frame(SUBMIT, 0, message(_GET | {10: [1 << 40, 64]})), "outside the region"),
        (frame(SUBMIT, 0, message(_GET | {10: [2**64 - 8, 16]})), "no region"),
        (frame(SUBMIT, 0, message(_GET | {10: [64, 1] * 257})), "257 spans"),
        (frame(READ, 0, message({1: [60, 8]})), "outside the region"),
        (frame(WRITE, 0, message({1: [1 << 30, 1]}), b"x"), "outside the region"),
        (frame(SUBMIT, 0, message(_GET | {10: [64, 2**31]})), "outside the region"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 2**64 - 1]})), "no region"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [4]}), bytes(16)), "a payload of 16 bytes for spans of 8"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [3]}), bytes(8)), "a payload of 8 bytes for spans of 6"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [5]}), bytes(10)), "are to have 5 bytes, allowed: 1 to 4"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [0]})), "are to have 0 bytes, allowed: 1 to 4"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16]}), bytes(8)), "a payload of 8 bytes for spans of 16"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [8 + 4]}), bytes(8)), "span 1 is to be narrow, and only 1 are sent"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 16], 11: [4, 3]}), bytes(8)), "span 0 behind 0, and must be ascending"),
        (frame(SUBMIT, 0, message(_GET | {9: [64, 12], 11: [4]}), bytes(6)), "its 12 bytes must be multiples of 8"),
        (frame(WRITE, 0, message({1: [68, 16], 2: [4]}), bytes(8)), "its offset 68 and its 16 bytes must be multiples"),
        (frame(WRITE, 0, message({1: [1 << 30, 16], 2: [4]}), bytes(8)), "outside the region"),
        (head(SUBMIT, 0, 16385, 0), "16385 bytes"),
        (head(READ, 0, 65536, 0), "65536 bytes"),
        (head(WRITE, 0, 0, 0), "message of 0"),
    ],
)
def test_a_wrong_request_ends_the_connection(address, sent, said):
    assert said in error_of(address, sent, hello=True)


def test_a_message_that_ends_early_leaves_nothing(address, daemon):
    for sent in (head(CALL, 0, 1000, 0) + b"x", head(CALL, 0, 4, 0)[:20], b""):
        client = Client(address)
        client.send(sent)
        client.close()
    with daemon.connect(arena_bytes=0) as server:
        assert server.status()


# ---- Addresses ----


@contextlib.contextmanager
def starting(folder: Path, rpc: str, more: str = "") -> Iterator[subprocess.Popen]:
    """A server with these lines in its sections rpc and socket, once it is ready or over. Its log is in the folder."""
    (folder / "rows").mkdir(exist_ok=True)
    config = folder / "embtierd.yaml"
    config.write_text(
        f"data: {{directories: [{folder}/rows], shards_per_directory: 2, reserve_bytes: 4MiB}}\n"
        "lanes: {count: 2, request_bytes: 8MiB, ticket_bytes: 4MiB, write_queue_bytes: 4MiB}\n"
        "cache: {tiers: [{name: dram, kind: dram, bytes: 16MiB}]}\n"
        "rocksdb: {memtable_bytes: 16MiB, metadata_cache_bytes: 8MiB}\n"
        f"socket:\n  path: {folder}/s\n{more}rpc:\n{rpc}"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([EMBTIERD, "--init", "--config", config], stderr=log, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and b'msg="ready"' not in (folder / "log").read_bytes():
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def started(folder: Path, listen: str, more: str = "") -> tuple[int | None, str]:
    """Starts a server that listens there, and stops it; returns its exit status, None if it became ready, and its log."""
    with starting(folder, f'  listen: ["{listen}"]\n{more}') as process:
        status = process.poll()
        if status is None:
            process.terminate()
            assert process.wait(LIMIT_S) == 0
    return status, (folder / "log").read_text()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A socket's path may have at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="embtier-") as folder:
        yield Path(folder)


def test_a_server_listens_at_the_addresses_that_it_logs(short_path):
    status, log = started(short_path, f"unix+rpc:{short_path}/r")
    assert status is None and f'address="unix+rpc:{short_path}/r"' in log
    assert not (short_path / "r").exists()  # it was stopped
    status, log = started(short_path, "tcp://127.0.0.1:0")
    assert status is None and re.search(r'address="tcp://127.0.0.1:[1-9]\d*"', log)


def mapped_socket() -> socket.socket:
    """A listener at 127.0.0.1, by its name of IPv6."""
    made = socket.socket(socket.AF_INET6)
    made.bind(("::ffff:127.0.0.1", 0))
    made.listen()
    return made


def has_ipv6() -> bool:
    try:
        mapped_socket().close()
    except OSError:
        return False
    return True


def test_addresses_of_ipv6_are_told_in_brackets(short_path):
    status, log = started(short_path, "tcp://[::]:0")
    assert status == 1 and "tcp://[::]:0 can be reached from other hosts" in log
    if not has_ipv6():
        return
    with mapped_socket() as taken:
        address = f"tcp://[::ffff:127.0.0.1]:{taken.getsockname()[1]}"
        status, log = started(short_path, address)
        assert status == 1 and f"cannot listen at {address}: Address already in use" in log


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_loopback_by_its_name_of_ipv6_is_loopback(short_path):
    with starting(short_path, '  listen: ["tcp://[::ffff:127.0.0.1]:0"]') as process:
        log = (short_path / "log").read_text()
        assert process.poll() is None, log
        url = re.search(r'address="(tcp://\[::ffff:127\.0\.0\.1\]:[1-9]\d*)"', log)[1]
        with embtier.connect(url, timeout=LIMIT_S, arena_bytes=1 << 20) as server:
            assert server.tables() == []


def test_other_hosts_are_kept_out_unless_the_user_lets_them_in(short_path):
    status, log = started(short_path, "tcp://0.0.0.0:0")
    assert status == 1 and "can be reached from other hosts" in log and "rpc.insecure: yes" in log
    assert re.search(r"embtierd.yaml:\d+: rpc.listen\[0\]", log)
    for _ in range(2):  # each start warns
        status, log = started(short_path, "tcp://0.0.0.0:0", "  insecure: yes\n")
        assert status is None
        assert re.search("level=warn.*every host that reaches these addresses may read and change all tables", log), log


def test_addresses_that_cannot_be_had_are_named(short_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, log = started(short_path, f"tcp://127.0.0.1:{port}")
        assert status == 1 and f"cannot listen at tcp://127.0.0.1:{port}: Address already in use" in log
    status, log = started(short_path, "tcp://no-such-host.invalid:1")
    assert status == 1 and "cannot listen at tcp://no-such-host.invalid:1: " in log
    (short_path / "file").write_text("kept")
    status, log = started(short_path, f"unix+rpc:{short_path}/file")
    assert status == 1 and (short_path / "file").read_text() == "kept"
    for wrong in ("tcp://127.0.0.1", "unix:/tmp/s", "udp://a:1", "tcp://127.0.0.1:65536"):
        status, log = started(short_path, wrong)
        assert status == 1 and re.search(r"embtierd.yaml:\d+: rpc.listen\[0\]: ", log), log


def test_a_client_says_why_it_cannot_connect(daemon):
    with pytest.raises(embtier.UnreachableError, match="no embtierd answers at tcp://127.0.0.1:1: Connection refused"):
        embtier.connect("tcp://127.0.0.1:1", timeout=60)
    with pytest.raises(embtier.UnreachableError, match="no embtierd answers at tcp://no-such-host.invalid:1: "):
        embtier.connect("tcp://no-such-host.invalid:1", timeout=60)
    with pytest.raises(embtier.InvalidError, match="has no port"):
        embtier.connect("tcp://localhost", timeout=60)
    with pytest.raises(embtier.UnreachableError, match=r"listens on /tmp/embtier-nobody \(No such file"):
        embtier.connect("unix+rpc:/tmp/embtier-nobody", timeout=60)


def test_the_page_has_all_kinds():
    page = (Path(__file__).parents[4] / "docs/protocol.md").read_text()
    for kind, number in {"CALL": 1, "REPLY": 2, "SUBMIT": 3, "DONE": 4, "WRITE": 5, "DATA": 6, "READ": 7, "REFUSED": 8}.items():
        assert f"| {kind} | {number} |" in page


ROOT = Path(__file__).parents[4]


def numbers_of(table: str, path: str) -> dict[str, int]:
    """The names of a table of a header, in small letters, and their numbers."""
    rows = re.search(rf"define {table}\(X\)((?:.*\\\n)*.*)", (ROOT / path).read_text())[1]
    return {name.lower(): int(number) for name, number in re.findall(r"\bX\((\w+), (\d+),", rows)}


def rows_of_page(title: str) -> list[list[str]]:
    """The cells of the first table below a title, without its head."""
    section = re.split(rf"^##+ {title}\n", (ROOT / "docs/protocol.md").read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_page_has_the_number_of_each_error():
    told = {}
    for numbers, names, _ in rows_of_page("Errors by number"):
        told |= dict(zip(names.lower().split(", "), map(int, numbers.split(", ")), strict=True))
    assert told | {"ok": 0} == numbers_of("EMBTIER_ERR_TABLE", "base/embtier_err.h")


def test_the_page_has_the_fields_of_a_table():
    spec = re.search(r"^message TableSpec \{(.*?)^\}", (ROOT / "proto/control.proto").read_text(), re.MULTILINE | re.DOTALL)[1]
    told = {}
    for names, numbers, _ in rows_of_page("Tables"):
        told |= dict(zip(names.replace("`", "").split(", "), map(int, numbers.split(", ")), strict=True))
    only_in_replies = {"init_version": 11, "uuid": 390, "step": 391}
    assert told | only_in_replies == {name: int(number) for name, number in re.findall(r"^  .*?(\w+) = (\d+);", spec, re.MULTILINE)}


@pytest.mark.parametrize("field", ["dtype", "optimizer", "init", "durability", "home"])
def test_the_page_has_the_words_of_a_tables_fields(field):
    meaning = next(row[2] for row in rows_of_page("Tables") if f"`{field}`" in row[0])
    told = {word: int(number) for number, word in re.findall(r"\b(\d) (\w+)", meaning)}
    assert told == numbers_of(f"EMBTIER_{field.upper()}_TABLE", "base/embtier_types.h")


def test_the_page_has_the_numbers_of_calls():
    proto = (ROOT / "proto/control.proto").read_text()
    bodies = {name: re.search(rf"^message {name} \{{\n(.*?)^\}}", proto, re.MULTILINE | re.DOTALL)[1] for name in ("Request", "Reply")}
    rows = [row for row in rows_of_page("Calls") if row[1]]
    assert len(rows) == 6
    for request, number, reply, reply_number in rows:
        for kind, cell, told in (("Request", request, number), ("Reply", reply, reply_number)):
            assert re.search(rf"^    {re.findall('`(.*?)`', cell)[0]} \w+ = {told};", bodies[kind], re.MULTILINE), cell
            for field, field_number in re.findall(r"`(\w+)`[^`,;]*? \((\d+)\)", cell):
                text = re.search(rf"^message {re.findall('`(.*?)`', cell)[0]} \{{\n(.*?)^\}}", proto, re.MULTILINE | re.DOTALL)[1]
                assert re.search(rf"\b{field} = {field_number};", text), (cell, field)
