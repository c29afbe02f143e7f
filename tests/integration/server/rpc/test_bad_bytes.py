# SPDX-License-Identifier: Apache-2.0
"""Bad input: a clear error, on that connection only; nothing is changed, and nothing is left."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from certificates import own_host
from daemons import SANITIZED
from doors import DIM, ROWS, TABLE, Door, end_half, open_table, rows_request, wait_until
from plain_client import CALL, DONE, GET, READ, REFUSED, SET, SUBMIT, WRITE, Client, frame, head, message

import embtier

TURNS = 10
LEFT_BYTES = 4 << 10  # of a mistake: a leak of more is found

_GET = {1: GET, 3: 1, 4: 64}

# From a client that has said nothing yet: the bytes, the error and a part of its text.
BEFORE_HELLO = {
    "http": (b"GET / HTTP/1.1\r\nHost: embtier\r\n\r\n", "PROTOCOL", "begin no frame"),
    "another_magic": (head(CALL, 0, 4, 0, magic=b"EBT2") + b"xxxx", "PROTOCOL", "begin no frame"),
    "a_version_of_the_future": (head(CALL, 0, 4, 0, version=9) + b"xxxx", "VERSION", "version 9"),
    "a_checksum_that_is_off": (head(CALL, 0, 4, 0)[:-1] + b"?" + b"xxxx", "PROTOCOL", "checksum"),
    "a_message_of_0": (head(CALL, 0, 0, 0), "PROTOCOL", "message of 0"),
    "a_message_of_2^31": (head(CALL, 0, 2**31, 0), "TOO_LARGE", "2147483648 bytes"),
    "a_message_of_2^32-1": (head(CALL, 0, 2**32 - 1, 0), "TOO_LARGE", "4294967295 bytes"),
    "a_payload_of_2^64-1": (head(CALL, 0, 4, 2**64 - 1), "TOO_LARGE", "18446744073709551615 bytes"),
    "a_request_before_hello": (head(SUBMIT, 0, 4, 0) + b"xxxx", "PROTOCOL", "before the answer to a hello"),
}
# From a client with a session.
AFTER_HELLO = {
    "a_payload_shorter_than_said": (frame(SUBMIT, 0, message(_GET | {9: [64, 32]}), b"short"), "PROTOCOL", "of 5 bytes for spans of 32"),
    "a_payload_longer_than_said": (frame(SUBMIT, 0, message(_GET | {9: [64, 1]}), b"longer"), "PROTOCOL", "of 6 bytes for spans of 1"),
    "a_payload_of_2^31": (head(WRITE, 0, 4, 2**31) + message({1: [64, 1]})[:4], "PROTOCOL", "2147483648"),
    "a_span_of_2^64-1": (frame(SUBMIT, 0, message(_GET | {10: [64, 2**64 - 1]})), "PROTOCOL", "no region"),
    "a_span_behind_the_region": (frame(READ, 0, message({1: [1 << 40, 1]})), "PROTOCOL", "outside the region"),
    "a_message_that_ends_in_a_field": (frame(SUBMIT, 0, b"\x08\xff"), "PROTOCOL", "malformed"),
    "a_message_of_64_KiB": (head(SUBMIT, 0, 65536, 0), "TOO_LARGE", "65536 bytes"),
    "a_number_from_afar": (frame(SUBMIT, 1 << 20, message(_GET)), "PROTOCOL", "was next"),
}


def must_be_refused(client: Client, sent: bytes, error: str, said: str) -> None:
    client.send(sent)
    kind, _, refusal, _ = client.receive()
    assert kind == REFUSED
    assert refusal[1] == embtier.errors.code_of(error)
    assert said in refusal[2].decode()
    assert client.is_ended()


def make_each_mistake(door: Door) -> None:
    for sent, error, said in BEFORE_HELLO.values():
        with contextlib.closing(Client(door.connect())) as client:
            must_be_refused(client, sent, error, said)
    for sent, error, said in AFTER_HELLO.values():
        with contextlib.closing(door.client()) as client:
            must_be_refused(client, sent, error, said)


def test_each_mistake_has_its_error_and_ends_its_connection_alone(door):
    mistakes = TURNS * (len(BEFORE_HELLO) + len(AFTER_HELLO))
    with door.leaves_nothing(), door.serves_others():
        if SANITIZED:  # it keeps freed memory, and tells of leaks at its end
            make_each_mistake(door)
        else:
            door.must_stop_growing(lambda: [make_each_mistake(door) for _ in range(TURNS)], mistakes * LEFT_BYTES)
    logged = door.daemon.logged("client over RPC dropped")
    assert {line["err"] for line in logged} == {"PROTOCOL", "VERSION", "TOO_LARGE"}
    assert any("begin no frame" in line["why"] for line in logged)
    assert all(("from" in line) != ("pid" in line) and line.get("uid") != "4294967295" for line in logged)


def test_each_mistake_of_a_flood_is_counted_in_the_log(make_door):
    """Those beyond 20 a second have one line together. The server has no lines of other tests to write."""
    door = make_door()

    def counted() -> int:
        return sum(int(line.get("count", 1)) for line in door.daemon.logged("over RPC") if "dropped" in line["msg"])

    for _ in range(300):
        with contextlib.closing(Client(door.connect())) as client:
            must_be_refused(client, b"GET / HTTP/1.1\r\nHost: embtier\r\n\r\n", "PROTOCOL", "begin no frame")
    wait_until(lambda: counted() == 300)
    door.daemon.stop()


def test_a_message_that_ends_early_changes_nothing(door):
    """Each cut of a SET of two rows is followed by the end of the connection; only the whole one changes the rows."""
    with door.daemon.connect() as server, door.leaves_nothing():
        table = server.open_table(TABLE)
        with contextlib.closing(door.client()) as client:
            body, payload = rows_request(client, SET, 2, 5000)
        sent = frame(SUBMIT, 0, body, payload)
        for cut in (*range(0, len(sent), 37), len(sent) - 1):
            with contextlib.closing(door.client()) as client:
                open_table(client)
                client.send(sent[:cut])
                end_half(client.socket)
                assert client.is_closed()
            assert (table.get([5000, 5001]) == 0).all(), cut
        with contextlib.closing(door.client()) as client:
            client.send(sent)
            assert client.receive()[:2] == (DONE, 0)
        assert (table.get([5000, 5001])[:, 0] == [5000, 5001]).all()


def test_an_id_past_the_table_is_an_answer_and_the_session_goes_on(door):
    with door.leaves_nothing(), door.serves_others(), contextlib.closing(door.client()) as client:
        body, payload = rows_request(client, SET, 1, ROWS)
        client.send(frame(SUBMIT, 0, body, payload))
        kind, number, done, _ = client.receive()
        assert (kind, number, done[1]) == (DONE, 0, embtier.errors.code_of("ID_RANGE"))
        assert (done[4], done[5]) == (ROWS, ROWS)  # the id, and the number of rows
        body, payload = rows_request(client, GET, 1, 7)
        client.send(frame(SUBMIT, 1, body, payload))
        kind, number, done, rows = client.receive()
        assert (kind, number, done.get(1, 0), rows) == (DONE, 1, 0, struct.pack("<f", 7) * DIM)


@pytest.mark.parametrize("address", ["tcp://no-such-host.invalid:1", "tcp://127.0.0.1:1"])
def test_a_client_says_why_it_cannot_connect(address):
    with pytest.raises(embtier.UnreachableError, match=address.split("//")[1].split(":")[0]):
        embtier.connect(address, timeout=60, arena_bytes=0)


def test_a_door_whose_port_is_in_use_or_whose_host_does_not_resolve_keeps_a_server_from_starting(make_daemon, engine):
    host = own_host()  # no other test takes the port in between
    with socket.create_server((host, 0)) as taken:
        port = taken.getsockname()[1]
        daemon = make_daemon({"rpc": {"listen": [f"tcp://{host}:{port}"]}})
        assert f"cannot listen at tcp://{host}:{port}: Address already in use" in daemon.fail_to_start()
    daemon.configure({"rpc": {"listen": ["tcp://no-such-host.invalid:1"]}})
    assert "cannot listen at tcp://no-such-host.invalid:1: " in daemon.fail_to_start()
    daemon.configure({"rpc": {"listen": [f"tcp://{host}:{port}"]}})
    daemon.start()  # nothing of the failed starts is left
    daemon.stop()


def test_frames_of_an_unknown_kind_are_skipped_however_long_they_are(door: Door):
    with door.leaves_nothing(), contextlib.closing(door.client()) as client:
        client.send(head(99, 5, 4, 64 << 20) + b"xxxx" + bytes(64 << 20))
        kind, number, refusal, _ = client.receive()
        assert (kind, number, refusal[1]) == (REFUSED, 5, embtier.errors.code_of("UNSUPPORTED"))
        open_table(client)
