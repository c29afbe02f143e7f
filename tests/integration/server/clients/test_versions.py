# SPDX-License-Identifier: Apache-2.0
"""Servers and clients of different versions work together, or say why not."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest
from daemons import CLI
from raw_client import RawClient, field, fields, frame

import embtier
from embtier import errors

HELLO, STATUS, ACCOUNTS = 2, 7, 260  # requests
ERROR = 3
PAGE = 128
LIST, RESTORE = 5, 14
TABLES = 7  # a reply


def error_of(reply: dict[int, list]) -> int:
    return fields(reply[ERROR][0])[1][0]


# ---- A client that is newer than the server ----


def test_what_later_versions_ask_for_is_refused_and_the_connection_goes_on(own_daemon):
    with RawClient(own_daemon.path, arena_bytes=0) as client:
        for number in (99, 2000):
            assert error_of(client.call(number, field(1, "from later"))) == errors.code_of("UNSUPPORTED")
        assert 8 in client.call(STATUS)


class OlderServer(threading.Thread):
    """A server that does not know accounts of users. With @closes it closes the connection when asked for them."""

    def __init__(self, path: str, closes: bool) -> None:
        super().__init__()
        self.closes = closes
        self.asked: list[int] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)

    def run(self) -> None:
        while True:
            client, _ = self.listener.accept()
            with client, contextlib.suppress(ConnectionError):  # a client that is killed may not take its answer
                if not self.serve(client):
                    return

    def serve(self, client: socket.socket) -> bool:
        stream = client.makefile("rb")
        while head := stream.read(4):
            request = fields(stream.read(int.from_bytes(head, "little")))
            number = next(number for number in request if number != 1)
            id = request[1][0] if 1 in request else 0
            self.asked.append(number)
            answer = field(1, id) + field(2, 1)
            if number == 5:  # ends the test
                return False
            if number == HELLO:
                answer += field(5, field(1, 1) + field(2, "0.1.0") + field(3, 1) + field(6, 1000))
            elif number == STATUS:
                metric = field(1, "sessions") + field(2, "Sessions") + field(6, 3.0)
                answer += field(8, field(1, "0.1.0") + field(2, 1000) + field(3, metric))
            else:
                code = "PROTOCOL" if self.closes else "UNSUPPORTED"
                answer += field(ERROR, field(1, errors.code_of(code)) + field(2, "asks for nothing known"))
            client.sendall(frame(answer))
            if number not in (HELLO, STATUS) and self.closes:
                break
        return True


@pytest.fixture(params=[True, False], ids=["that_closes", "that_answers"])
def older_server(request, tmp_path) -> Iterator[OlderServer]:
    path = str(tmp_path / "socket")
    server = OlderServer(path, request.param)
    server.path = path
    server.start()
    yield server
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(frame(field(5, b"")))
    server.join()
    server.listener.close()


def command(server: OlderServer, *words: str) -> list[str]:
    return [CLI, "--timeout", "60", "--socket", server.path, *words]


def test_stats_of_an_older_server_are_told_without_what_it_does_not_know(older_server):
    done = subprocess.run(command(older_server, "stats"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "embtierd 0.1.0" in done.stdout and "users\n  (left out" in done.stdout
    done = subprocess.run(command(older_server, "-o", "json", "stats"), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["users"] is None
    with embtier.connect(older_server.path, arena_bytes=0, timeout=60) as server:
        assert server.status()["version"] == "0.1.0"


def test_stats_of_an_older_server_go_on_and_on(older_server):
    watch = command(older_server, "-o", "json", "stats", "--watch=0.1")
    with subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        for _ in range(3):
            assert json.loads(watcher.stdout.readline())["version"] == "0.1.0"
        watcher.kill()
    assert older_server.asked.count(ACCOUNTS) == 1


# ---- A client that is older than the server ----


def test_an_older_client_is_not_given_the_first_page_as_the_whole(own_daemon):
    with RawClient(own_daemon.path, hello=False) as older, own_daemon.connect() as server:
        older.hello(0, 0, pages=False)
        for i in range(PAGE):
            server.create_table(f"t{i:03}", 4)
        listed = fields(older.call(LIST)[TABLES][0])
        assert len(listed[1]) == PAGE
        server.create_table("one.more", 4)
        made = server.checkpoint()
        assert error_of(older.call(LIST)) == errors.code_of("VERSION")
        for table in server.tables():
            server.drop_table(table.name)
        refused = older.call(RESTORE, field(1, made.id))
        assert error_of(refused) == errors.code_of("VERSION")
        assert b"all tables are restored" in fields(refused[ERROR][0])[2][0]
        assert len(server.tables()) == PAGE + 1
        for i in range(PAGE):
            server.drop_table(f"t{i:03}")
        assert len(fields(older.call(LIST)[TABLES][0])[1]) == 1
