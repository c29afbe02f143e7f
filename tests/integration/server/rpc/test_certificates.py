# SPDX-License-Identifier: Apache-2.0
"""Clients whose certificates do not let them in, or not far, leave nothing, however often they come."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from control_requests import ADAM, request
from daemons import SANITIZED, Daemon
from doors import CA, LIMIT_S, TABLE, Door, over_tcp, rows_request
from plain_client import CALL, DONE, ERROR, HELLO, REPLY, SET, SUBMIT, Client, fields_of, frame, message

import embtier

TURNS = 20 if SANITIZED else 100
PERMISSION = embtier.errors.code_of("PERMISSION")
TRAINER, READER, NOBODY = "trainer", "reader", "nobody"


class Clients:
    """Clients with certificates, each of an authority's."""

    def __init__(self, authority: Authority, stranger: Authority) -> None:
        authority.sign(TRAINER)
        authority.sign(READER)
        authority.sign(NOBODY)
        authority.sign("old", days=-1)
        authority.sign("serving", usage="serverAuth")
        stranger.sign(TRAINER)
        names = {name: authority.folder / name for name in (TRAINER, READER, NOBODY, "old", "serving")}
        self._contexts = {name: self._context(path) for name, path in (names | {"strange": stranger.folder / TRAINER}).items()}
        self._contexts["none"] = ssl.create_default_context(cafile=os.environ[CA])

    @staticmethod
    def _context(path: Path) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=os.environ[CA])
        context.load_cert_chain(f"{path}.crt", f"{path}.key")
        return context

    def connect(self, name: str, address: tuple[str, int]) -> Client:
        stream = self._contexts[name].wrap_socket(over_tcp(address), server_hostname=address[0], suppress_ragged_eofs=False)
        return Client(stream)


@pytest.fixture(scope="module", params=["tls"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def clients(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients(authority, Authority(tmp_path_factory.mktemp("stranger"), "a stranger"))


@pytest.fixture(scope="module")
def known_door(tmp_path_factory: pytest.TempPathFactory, changes: dict, authority: Authority, clients: Clients) -> Iterator[Door]:
    """Clients of TLS must show a certificate, and are users by it."""
    folder = tmp_path_factory.mktemp("embtierd")
    access = folder / "access.yaml"
    access.write_text(f"""users:
  - {{name: {TRAINER}, role: train, certificates: ['CN={TRAINER}']}}
  - {{name: {READER}, role: read, certificates: ['CN={READER}']}}
""")
    access.chmod(0o600)
    tls = changes["tls"] | {"client_ca": str(authority.certificate), "require_certificate": "yes"}
    daemon = Daemon(folder, changes | {"tls": tls, "access": {"file": str(access)}})
    try:
        daemon.start()
        yield Door(daemon, "tls")
        daemon.stop()
    finally:
        daemon.end()


def must_serve(door: Door, clients: Clients) -> None:
    with contextlib.closing(clients.connect(TRAINER, door.address)) as client:
        client.hello()
        assert set_error(client) == 0


def set_error(client: Client) -> int:
    """Sends a SET of a row. Returns the code of its error, or 0."""
    body, payload = rows_request(client, SET, 1, 9)
    client.send(frame(SUBMIT, client.next, body, payload))
    client.next += 1
    kind, _, done, _ = client.receive()
    assert kind == DONE
    return done.get(1, 0)


@pytest.mark.parametrize(("name", "alert"), [
    ("none", "CERTIFICATE_REQUIRED"), ("old", "CERTIFICATE_EXPIRED"), ("strange", "UNKNOWN_CA"), ("serving", "UNSUPPORTED_CERTIFICATE"),
])  # fmt: skip
def test_a_refused_certificate_leaves_nothing(known_door: Door, clients: Clients, name: str, alert: str):
    """The client has sent its last part of the handshake before it learns of the refusal."""
    must_serve(known_door, clients)
    with known_door.leaves_nothing():
        for _ in range(TURNS):
            with contextlib.closing(clients.connect(name, known_door.address)) as client, pytest.raises(ssl.SSLError, match=alert):
                client.receive()
        must_serve(known_door, clients)


def test_a_certificate_of_no_user_leaves_nothing(known_door: Door, clients: Clients):
    hello = frame(CALL, 0, message({1: 7, HELLO: message({1: 1, 2: 1, 3: 65536, 4: 4, 5: "nobody", 380: 1})}))
    must_serve(known_door, clients)
    with known_door.leaves_nothing():
        for _ in range(TURNS):
            with contextlib.closing(clients.connect(NOBODY, known_door.address)) as client:
                client.send(hello)
                kind, _, reply, _ = client.receive()
                assert kind == REPLY and fields_of(reply[ERROR])[1] == PERMISSION
        must_serve(known_door, clients)


def test_a_certificate_of_another_role_leaves_nothing(known_door: Door, clients: Clients):
    """A reader neither writes rows nor makes tables; and its session goes on."""
    create = frame(CALL, 0, request("table_create", {"spec": ADAM})[4:])
    must_serve(known_door, clients)
    with known_door.leaves_nothing():
        for _ in range(TURNS):
            with contextlib.closing(clients.connect(READER, known_door.address)) as client:
                client.hello()
                assert set_error(client) == PERMISSION
                client.send(create)
                assert fields_of(client.receive()[2][ERROR])[1] == PERMISSION
                assert set_error(client) == PERMISSION
        must_serve(known_door, clients)
