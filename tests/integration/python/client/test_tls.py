# SPDX-License-Identifier: Apache-2.0
"""Clients over TLS: both sides look at each other's certificates, and a side that is refused learns why."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import hashlib
import itertools
import os
import re
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from certificates import Authority, own_host
from conftest import EMBTIERD
from plain_client import LIMIT_S, Client
from test_protocol import short_path, starting  # noqa: F401
from test_reconnect import until

import embtier

PORT = 7411
CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
ENGINES = {"io_uring": "auto", "epoll": "off"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.sign("trainer", "URI:spiffe://test/trainer")
    made.sign("old", days=-1)
    made.sign("serving", usage="serverAuth")
    return made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("stranger"), "a stranger")
    made.sign("trainer")
    return made


def section(authority: Authority, name: str, more: str = "") -> str:
    return f"tls:\n  certificate: {authority.folder}/{name}.crt\n  key: {authority.folder}/{name}.key\n{more}"


class Place:
    """A server with TLS at an address of its own."""

    def __init__(self, folder: Path, host: str, authority: Authority, process) -> None:
        self.folder, self.host, self.authority, self.process = folder, host, authority, process

    def url(self, ca: str | None = None, own: str = "", host: str = "", scheme: str = "tls") -> str:
        files = [f"ca={ca or self.authority.certificate}", f"cert={own}.crt&key={own}.key" if own else ""]
        return f"{scheme}://{host or self.host}:{PORT}" + ("?" + "&".join(filter(None, files)) if scheme == "tls" else "")

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, PORT), LIMIT_S)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@contextlib.contextmanager
def place(folder: Path, authority: Authority, engine: str, more: str = "") -> Iterator[Place]:
    host = own_host()
    authority.sign(f"server-{host}", f"IP:{host},DNS:server.test")
    tls = section(authority, f"server-{host}", more)
    with starting(folder, f'  listen: ["tls://{host}:{PORT}"]\n  io_uring: {engine}\n{tls}') as process:
        made = Place(folder, host, authority, process)
        assert process.poll() is None, made.log()
        yield made
        process.terminate()
        assert process.wait(LIMIT_S) == 0, made.log()


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def open_place(request, short_path, authority) -> Iterator[Place]:
    """Asks clients for no certificate."""
    with place(short_path, authority, request.param) as made:
        yield made


@pytest.fixture(params=ENGINES.values(), ids=ENGINES.keys())
def closed_place(request, short_path, authority) -> Iterator[Place]:
    with place(short_path, authority, request.param, f"  client_ca: {authority.certificate}\n  require_certificate: yes\n") as made:
        yield made


def must_serve(url: str) -> None:
    with embtier.connect(url, timeout=LIMIT_S, arena_bytes=8 << 20) as server:
        table = server.open_table("t") if "t" in [made.name for made in server.tables()] else server.create_table("t", 64, 100_000)
        ids = np.random.default_rng(5).permutation(20_000)
        table.set(ids, np.repeat(ids[:, None], 64, axis=1).astype(np.float32))
        assert (table.get(ids) == ids[:, None]).all()


def assert_refused(url: str, error: type[embtier.Error], said: str) -> None:
    with pytest.raises(error, match=said):
        embtier.connect(url, timeout=LIMIT_S).close()


def test_rows_go_through_tls(open_place):
    must_serve(open_place.url())


def test_a_server_that_is_not_trusted_is_refused(open_place, stranger):
    assert_refused(open_place.url(ca=str(stranger.certificate)), embtier.PermissionError, rf"certificate is refused: .*issuer.*: no CA in {stranger.certificate} has signed it .*\?ca=FILE")
    assert_refused(f"tls://{open_place.host}:{PORT}", embtier.PermissionError, r"no CA that this system trusts has signed it .*\?ca=FILE")
    # Another number of loopback reaches the same server only by a listener there, so the name is checked by hand.
    context = open_place.context()
    with pytest.raises(ssl.SSLCertVerificationError), open_place.connect() as plain:
        context.wrap_socket(plain, server_hostname="else.test")
    # A server learns later that the client refused its certificate.
    until(lambda: "a handshake of TLS failed" in open_place.log() and 'from="127.' in open_place.log())
    must_serve(open_place.url())


def test_a_client_must_show_a_certificate_of_the_right_authority(closed_place, authority, stranger):
    must_serve(closed_place.url(own=f"{authority.folder}/trainer"))
    server = f"the server at tls://{closed_place.host}:{PORT} refuses"
    assert_refused(closed_place.url(), embtier.PermissionError, rf"{server} clients without a certificate: certificate required .*\?cert=FILE&key=FILE")
    yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
    for own, said in (
        (f"{stranger.folder}/trainer", "it is of no CA that the server knows .*tls.client_ca"),
        (f"{authority.folder}/old", f"it has expired on {yesterday:%Y-%m}.* .make a new one: embtier keys client"),
        (f"{authority.folder}/serving", "it is not made for clients .*embtier keys client"),
    ):
        assert_refused(closed_place.url(own=own), embtier.PermissionError, f"{server} the certificate {own}.crt: {said}")
    assert "peer did not return a certificate" in closed_place.log()
    must_serve(closed_place.url(own=f"{authority.folder}/trainer"))


def test_a_certificate_for_another_name_is_refused_with_its_names(short_path, authority):
    authority.sign("elsewhere", "DNS:else.test,IP:127.0.0.9,IP:::9")
    host = own_host()
    with starting(short_path, f'  listen: ["tls://{host}:{PORT}"]\n{section(authority, "elsewhere")}') as process:
        assert process.poll() is None, (short_path / "log").read_text()
        url = f"tls://{{}}:{PORT}?ca={authority.certificate}"
        assert_refused(url.format(host), embtier.PermissionError, f"IP address mismatch: it is for else.test, 127.0.0.9, ::9, and not for {host} ")


def test_files_of_an_address_are_named_if_they_cannot_be_used(open_place, authority, short_path):
    (short_path / "junk").write_text("junk")
    assert_refused(open_place.url(ca=f"{short_path}/none"), embtier.InvalidError, "none: No such file")
    assert_refused(open_place.url(ca=f"{short_path}/junk"), embtier.InvalidError, "junk holds no authority's certificate")
    assert_refused(open_place.url() + f"&cert={short_path}/junk&key={short_path}/junk", embtier.InvalidError, "junk holds no certificate")


def test_a_side_without_tls_is_told_so(open_place, short_path):
    assert_refused(open_place.url(scheme="tcp"), embtier.Error, "this port has TLS: connect to tls://")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        # A server without TLS answers the first bytes by a refusal, which is no TLS.
        def answer() -> None:
            stream, _ = listener.accept()
            with stream:
                stream.recv(10)
                stream.sendall(b"EBT1 is what a server without TLS says")
                stream.recv(10000)

        thread = threading.Thread(target=answer)
        thread.start()
        assert_refused(f"tls://127.0.0.1:{listener.getsockname()[1]}", embtier.Error, "does it have TLS at this port")
        thread.join()


def test_older_versions_of_tls_are_refused(open_place):
    context = open_place.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="(?i)protocol.version"), open_place.connect() as plain:
        context.wrap_socket(plain, server_hostname=open_place.host)


def test_a_client_in_another_language_needs_no_more_than_tls(open_place):
    with open_place.context().wrap_socket(open_place.connect(), server_hostname=open_place.host) as stream:
        assert stream.version() == "TLSv1.3"
        assert Client(stream).hello()[4] >= 65536


def test_a_mistake_ends_with_a_reason_and_the_end_of_tls(open_place):
    context = open_place.context()
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    with context.wrap_socket(open_place.connect(), server_hostname=open_place.host, suppress_ragged_eofs=False) as stream:
        client = Client(stream)
        client.send(b"no frame of this protocol, but as long as one")
        assert b"EBT1" in stream.recv(4096)
        assert stream.recv(4096) == b""  # close_notify; an end without it raises


def wait_for(place: Place, descriptors: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while place.descriptors() > descriptors:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_handshakes_that_are_given_up_leave_nothing(open_place):
    must_serve(open_place.url())
    before = open_place.descriptors()
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the begin of a ClientHello
    waiting = []
    for turn, data in zip(range(600), itertools.cycle([b"", hello, b"\x16", b"GET / HTTP/1.1\r\n\r\n", os.urandom(100)])):
        stream = open_place.connect()
        stream.sendall(data)
        if turn % 3 == 0:
            waiting.append(stream)
        elif turn % 3 == 1:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.close()
        else:
            stream.close()
    for stream in waiting:
        stream.close()
    wait_for(open_place, before)
    must_serve(open_place.url())


def test_a_handshake_that_stops_is_ended(open_place):
    with open_place.connect() as stream:
        stream.sendall(b"\x16\x03\x01\x02\x00")
        stream.settimeout(LIMIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert stream.recv(1) == b""


def refused_log(folder: Path, rpc: str) -> str:
    """The log of a server that does not start with these lines."""
    with starting(folder, rpc) as process:
        assert process.wait(LIMIT_S) == 1
    return (folder / "log").read_text()


def test_what_the_configuration_lacks_is_named(short_path, authority, stranger):
    authority.sign("server", "IP:127.0.0.1")
    stranger.sign("server", "IP:127.0.0.1")
    (short_path / "junk").write_text("junk")
    listen = '  listen: ["{}"]\n'
    local = listen.format("tls://127.0.0.1:0")
    cases = [
        (local, "an address with tls:// needs tls.certificate and tls.key"),
        (local + f"tls:\n  certificate: {authority.folder}/server.crt\n", "tls.key is missing"),
        (local + section(authority, "none"), "tls.certificate: cannot read .*none.crt: No such file"),
        (local + f"tls:\n  certificate: {short_path}/junk\n  key: {short_path}/junk\n", "tls.certificate: .*junk holds no certificate"),
        (local + f"tls:\n  certificate: {authority.folder}/server.crt\n  key: {stranger.folder}/server.key\n", "tls.key: .*is not that of"),
        (local + f"tls:\n  certificate: {authority.folder}/server.crt\n  key: {short_path}/none\n", "tls.key: .*none: No such file"),
        (local + section(authority, "server", "  require_certificate: yes\n"), "tls.client_ca, which says whose, is missing"),
        (local + section(authority, "server", f"  client_ca: {short_path}/junk\n"), "tls.client_ca: .*junk holds no authority"),
        (listen.format("tls://0.0.0.0:0") + section(authority, "server"), "tls.require_certificate with tls.client_ca"),
        (listen.format("tls://127.0.0.1:0?ca=x") + section(authority, "server"), "has options of a client's address"),
    ]
    for text, said in cases:
        log = refused_log(short_path, text)
        assert re.search(said if ".*" in said else re.escape(said), log), (text, log)
    with place(short_path, authority, "auto", f"  client_ca: {authority.certificate}\n  require_certificate: yes\n"):
        pass


def test_a_certificate_that_has_expired_is_told_at_the_start(short_path, authority):
    authority.sign("late", "IP:127.0.0.1", days=-1)
    with starting(short_path, '  listen: ["tls://127.0.0.1:0"]\n' + section(authority, "late")) as process:
        log = (short_path / "log").read_text()
        assert process.poll() is None and "clients will refuse the server's certificate" in log and "expired at 20" in log
        with embtier.connect(str(short_path / "s"), timeout=LIMIT_S, arena_bytes=0) as server:
            server.reload()  # the files have not become worse, and others may have to be taken


def test_a_certificate_with_names_that_cannot_be_used_makes_no_user(closed_place, authority):
    authority.sign("long", "URI:spiffe://test/" + "a" * 2100)
    must_serve(closed_place.url(own=f"{authority.folder}/long"))  # there is no access file
    assert "a client's certificate makes it no user" in closed_place.log()


def test_the_files_of_tls_are_checked_with_the_configuration(short_path, authority, stranger):
    authority.sign("server", "IP:127.0.0.1")
    listen = '  listen: ["tls://127.0.0.1:0"]\n'
    with starting(short_path, listen + section(authority, "server")) as process:
        assert process.poll() is None
    text = (short_path / "embtierd.yaml").read_text()
    for own, status in ((authority, 0), (stranger, 1)):
        key = own.folder / ("server.key" if own is authority else "trainer.key")
        (short_path / "embtierd.yaml").write_text(text.replace(f"{authority.folder}/server.key", str(key)))
        done = subprocess.run([CLI, "config", "check", short_path / "embtierd.yaml"], capture_output=True, text=True)
        assert done.returncode == status, done
    assert "is not that of the certificate" in done.stderr


# ---- Files that are read again ----


def install(authority: Authority, host: str, name: str = "new", days: int = 2) -> tuple[Path, Path]:
    return authority.sign(name, f"IP:{host},DNS:server.test", days)


def test_new_certificates_are_taken_while_connections_stay(short_path, authority, stranger):
    with place(short_path, authority, "auto") as at:
        certificate, key = (authority.folder / f"server-{at.host}.{kind}" for kind in ("crt", "key"))
        with embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=1 << 20) as old:
            table = old.create_table("t", 4, 1000)
            new, new_key = install(stranger, at.host)
            certificate.write_bytes(new.read_bytes())  # of another authority, and its key has not come yet
            with pytest.raises(embtier.ConfigError, match="is not that of the certificate"):
                old.reload()
            must_refuse_stranger(at, stranger)
            key.write_bytes(new_key.read_bytes())
            old.reload()
            with embtier.connect(at.url(ca=str(stranger.certificate)), timeout=LIMIT_S) as fresh:
                assert [spec.name for spec in fresh.tables()] == ["t"]
            assert_refused(at.url(), embtier.PermissionError, "certificate is refused")
            assert (table.get([1, 2]) == table.get([1, 2])).all()  # the old connection stays
            late, late_key = install(stranger, at.host, "late", days=-1)
            certificate.write_bytes(late.read_bytes())
            key.write_bytes(late_key.read_bytes())
            with pytest.raises(embtier.ConfigError, match="expired at 20"):
                old.reload()
            # A chain whose second certificate has not signed the first.
            certificate.write_bytes(new.read_bytes() + authority.certificate.read_bytes())
            key.write_bytes(new_key.read_bytes())
            with pytest.raises(embtier.ConfigError, match="certificate 1 was not signed by the one behind it"):
                old.reload()
            certificate.write_text("junk")
            with pytest.raises(embtier.ConfigError, match="holds no certificate"):
                old.reload()
            embtier.connect(at.url(ca=str(stranger.certificate)), timeout=LIMIT_S, arena_bytes=0).close()
            assert old.status()["metrics"]["access_reload_failures"] == 4


def chain_of(at: Authority, host: str, *signers: Authority, **how: object) -> tuple[bytes, bytes]:
    """A server's certificate that @at has signed, with the signers behind it, and its key."""
    own, key = at.sign("chained", f"IP:{host},DNS:server.test", **how)
    return b"".join([own.read_bytes(), *(signer.certificate.read_bytes() for signer in signers)]), key.read_bytes()


def refused_chains(folder: Path, authority: Authority, host: str) -> Iterator[tuple[tuple[bytes, bytes], str]]:
    """Chains that all clients refuse, and why."""
    late = authority.below(folder / "late", "late signer", days=-1)
    no_ca = authority.below(folder / "no-ca", "no signer", constraints="critical,CA:FALSE")
    short = authority.below(folder / "short", "short signer", constraints="critical,CA:TRUE,pathlen:0")
    under = short.below(folder / "under", "signer too deep")
    yield chain_of(late, host, late), "certificate 2, CN=late signer, expired at 20"
    yield chain_of(no_ca, host, no_ca), "certificate 2, CN=no signer, is no CA's, and so may not sign another"
    yield chain_of(under, host, under, short), "certificate 3, CN=short signer, would be refused: path length constraint exceeded"
    yield chain_of(authority, host, usage="clientAuth"), "the certificate is not made for servers"
    yield chain_of(authority, host, days=-1), "the certificate expired at 20"


def test_a_chain_that_clients_refuse_is_not_taken(short_path, authority):
    with place(short_path, authority, "auto") as at:
        certificate, key = (authority.folder / f"server-{at.host}.{kind}" for kind in ("crt", "key"))
        with embtier.connect(str(short_path / "s"), timeout=LIMIT_S, arena_bytes=0) as server:
            for count, (files, why) in enumerate(refused_chains(short_path, authority, at.host), 1):
                certificate.write_bytes(files[0])
                key.write_bytes(files[1])
                with pytest.raises(embtier.ConfigError, match=f"tls.certificate: {certificate}: {why}"):
                    server.reload()
                assert server.status()["metrics"]["access_reload_failures"] == count
                embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=0).close()  # that in force stays
            good = authority.below(short_path / "good", "good signer")
            certificate.write_bytes((files := chain_of(good, at.host, good))[0])
            key.write_bytes(files[1])
            server.reload()
            embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=0).close()


def test_a_chain_that_clients_refuse_is_told_at_the_start_and_by_the_check(short_path, authority):
    host = own_host()
    for turn, (files, why) in enumerate(refused_chains(short_path, authority, host)):
        for kind, data in zip(("crt", "key"), files):
            (authority.folder / f"bad.{kind}").write_bytes(data)
        folder = short_path / str(turn)
        folder.mkdir()
        with starting(folder, f'  listen: ["tls://{host}:{PORT}"]\n{section(authority, "bad")}') as process:
            assert process.poll() is None
        why = why.removeprefix("the certificate ")
        for told in ((folder / "log").read_text(), subprocess.run([CLI, "config", "check", folder / "embtierd.yaml"], capture_output=True, text=True).stderr):
            assert "clients will refuse the server's certificate" in told and why in told, told


def test_a_client_names_the_certificate_that_has_expired(short_path, authority):
    """A signer has; the server's own is good for a year."""
    host, late = own_host(), authority.below(short_path / "late", "late signer", days=-1)
    for kind, data in zip(("crt", "key"), chain_of(late, host, late, days=365)):
        (authority.folder / f"below-late.{kind}").write_bytes(data)
    with starting(short_path, f'  listen: ["tls://{host}:{PORT}"]\n{section(authority, "below-late")}') as process:
        assert process.poll() is None
        yesterday = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)
        said = f"certificate has expired: certificate 2 of its chain, CN=late signer .it is valid until {yesterday:%Y-%m}.*; the signer needs a new one"
        assert_refused(f"tls://{host}:{PORT}?ca={authority.certificate}", embtier.PermissionError, said)


def test_a_signer_of_a_client_that_has_expired_is_named(closed_place, authority, short_path):
    late = authority.below(short_path / "late", "late signer", days=-1)
    for kind, data in zip(("crt", "key"), chain_of(late, "127.0.0.1", late)):
        (short_path / f"own.{kind}").write_bytes(data)
    assert_refused(closed_place.url(own=f"{short_path}/own"), embtier.PermissionError, "own.crt: its signer, CN=late signer, has expired on 20")
    until(lambda: "certificate has expired: certificate 2 of its chain, CN=late signer" in closed_place.log())


def test_a_signal_has_new_certificates_taken_or_says_why_not(short_path, authority, stranger):
    with place(short_path, authority, "auto") as at:
        certificate, key = (authority.folder / f"server-{at.host}.{kind}" for kind in ("crt", "key"))
        new, new_key = install(stranger, at.host)

        def metric(name: str) -> float:
            with embtier.connect(str(short_path / "s"), timeout=LIMIT_S, arena_bytes=0) as server:
                return server.status()["metrics"][f"access_{name}"]

        certificate.write_bytes(new.read_bytes())
        at.process.send_signal(signal.SIGHUP)
        until(lambda: metric("reload_failures") == 1)
        must_refuse_stranger(at, stranger)
        key.write_bytes(new_key.read_bytes())
        at.process.send_signal(signal.SIGHUP)
        until(lambda: metric("reloads") == 1)
        embtier.connect(at.url(ca=str(stranger.certificate)), timeout=LIMIT_S, arena_bytes=0).close()
        assert_refused(at.url(), embtier.PermissionError, "certificate is refused")
        until(lambda: 'msg="reloaded"' in at.log())  # it comes after the count
        assert at.log().count("signal: the server reads its access file and certificates again") == 2
        refusal = re.search('level=error.*msg="not reloaded: what was in force before stays".*', at.log())
        assert refusal and "err=CONFIG" in refusal[0] and "tls.key: " in refusal[0] and "is not that of the certificate" in refusal[0]
        assert metric("reload_failures") == 1 and metric("reloads") == 1


def test_clients_are_served_while_a_file_is_read_again(short_path, authority, stranger):
    """The certificate comes from a pipe, whose bytes are late."""
    with place(short_path, authority, "auto") as at, contextlib.ExitStack() as stack:
        server = stack.enter_context(embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=1 << 20))
        table, ids = server.create_table("t", 4, 1000), np.arange(100)
        table.set(ids, np.repeat(ids[:, None], 4, axis=1))
        certificate, key = (authority.folder / f"server-{at.host}.{kind}" for kind in ("crt", "key"))
        new, new_key = install(stranger, at.host)
        key.write_bytes(new_key.read_bytes())
        certificate.unlink()
        os.mkfifo(certificate)
        pipe = os.open(certificate, os.O_RDWR)  # both ends, so that neither open waits for the other
        try:
            opens = stack.enter_context(counting_opens(certificate))
            at.process.send_signal(signal.SIGHUP)
            seen = []
            until(lambda: seen.append(opens()) or sum(seen) >= 2)  # one to see if it is readable, then to read
            for _ in range(20):
                assert (table.get(ids) == ids[:, None]).all()
                assert [spec.name for spec in server.tables()] == ["t"]
                with embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=1 << 20) as other:
                    assert (other.open_table("t").get(ids) == ids[:, None]).all()
            metrics = server.status()["metrics"]
            assert metrics["access_reloads"] == 0 and metrics["access_reload_failures"] == 0
            os.write(pipe, new.read_bytes())
            until(lambda: select.select([pipe], [], [], 0)[0] == [])  # the server has read all
        finally:
            os.close(pipe)
        until(lambda: server.status()["metrics"]["access_reloads"] == 1)
        embtier.connect(at.url(ca=str(stranger.certificate)), timeout=LIMIT_S, arena_bytes=0).close()


def must_refuse_stranger(at: Place, stranger: Authority) -> None:
    """The certificate in force is still the one of the start."""
    assert_refused(at.url(ca=str(stranger.certificate)), embtier.PermissionError, "certificate is refused")
    embtier.connect(at.url(), timeout=LIMIT_S, arena_bytes=0).close()


@contextlib.contextmanager
def counting_opens(path: Path) -> Iterator[Callable[[], int]]:
    """Yields a function that returns how often the file was opened since the last call. The system would join the events of
    opens that follow each other, so closes are watched too."""
    libc, opened, closed = ctypes.CDLL(None, use_errno=True), 0x20, 0x18
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(path), opened | closed) >= 0, os.strerror(ctypes.get_errno())

    def count() -> int:
        seen = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                seen += sum(mask & opened != 0 for _, mask, _, _ in struct.iter_unpack("iIII", os.read(watch, 4096)))
        return seen

    try:
        yield count
    finally:
        os.close(watch)


def test_a_session_reads_its_files_once_and_again_when_they_are_renewed(short_path, authority, stranger):
    ca, host = short_path / "ca.crt", own_host()
    ca.write_bytes(authority.certificate.read_bytes())
    url = f"tls://{host}:{PORT}?ca={ca}"

    def server_of(by: Authority) -> contextlib.AbstractContextManager:
        by.sign("again", f"IP:{host}")
        return starting(short_path, f'  listen: ["tls://{host}:{PORT}"]\n' + section(by, "again"))

    with counting_opens(ca) as opens, contextlib.ExitStack() as stack:
        with server_of(authority):
            embtier.connect(url, timeout=LIMIT_S, arena_bytes=1 << 20).close()
            once = opens()
            assert once > 0
            server = stack.enter_context(embtier.connect(url + "&connections=8", timeout=LIMIT_S, reconnect_timeout=LIMIT_S, arena_bytes=1 << 20))
            assert opens() == once
        with server_of(authority):
            server.reconnect()
            assert opens() == 0
        ca.write_bytes(stranger.certificate.read_bytes())
        opens()
        with server_of(stranger):
            server.reconnect()
            assert opens() == once
            assert server.tables() == []


# ---- Users ----


def test_clients_are_users_by_certificate_and_token(short_path, authority):
    token = "embt_" + "A" * 43
    (short_path / "token").write_text(token + "\n")
    (short_path / "token").chmod(0o600)
    (short_path / "access.yaml").write_text(
        "users:\n"
        "  - {name: by-certificate, role: train, certificates: ['CN=trainer']}\n"
        "  - {name: by-uri, role: read, certificates: ['URI:spiffe://test/other']}\n"
        f"  - {{name: by-token, role: read, tokens: ['sha256:{hashlib.sha256(token.encode()).hexdigest()}']}}\n"
    )
    (short_path / "access.yaml").chmod(0o600)
    authority.sign("other", "URI:spiffe://test/other")
    more = f"  client_ca: {authority.certificate}\naccess:\n  file: {short_path}/access.yaml\n"
    with place(short_path, authority, "auto", more) as at:
        for own, added, name in (("trainer", "", "by-certificate"), ("other", "", "by-uri"), ("", f"&token={short_path}/token", "by-token")):
            url = at.url(own=f"{authority.folder}/{own}" if own else "") + added
            with embtier.connect(url, timeout=LIMIT_S, arena_bytes=0) as server:
                assert server.user() == name
                with pytest.raises(embtier.PermissionError, match="admin"):
                    server.create_table("t", 4, 10)
        assert_refused(at.url(), embtier.PermissionError, "wants to know its clients")
        (short_path / "wrong").write_text("embt_" + "B" * 43)
        (short_path / "wrong").chmod(0o600)
        assert_refused(at.url() + f"&token={short_path}/wrong", embtier.PermissionError, "token")


def test_users_make_an_address_safe_for_other_hosts(short_path, authority):
    authority.sign("server", "IP:127.0.0.1")
    (short_path / "access.yaml").write_text("users:\n  - {name: a, role: read, certificates: ['CN=trainer']}\n")
    (short_path / "access.yaml").chmod(0o600)
    tls = section(authority, "server", f"access:\n  file: {short_path}/access.yaml\n")
    with starting(short_path, '  listen: ["tls://0.0.0.0:0"]\n' + tls) as process:
        assert process.poll() is None, (short_path / "log").read_text()


# A server at an address that is not of loopback, in a network of its own; it tells what it gets.
_LISTENS = """
import socket, sys, threading
sys.path.insert(0, {package!r})
import embtier
got = []
with socket.create_server(("198.51.100.7", 0)) as listener:
    def listen():
        stream, _ = listener.accept()
        with stream:
            got.append(stream.recv(1000))
    thread = threading.Thread(target=listen)
    thread.start()
    try:
        embtier.connect("tcp://198.51.100.7:%d?token={token}" % listener.getsockname()[1], timeout=60)
    except embtier.PermissionError as error:
        print(error)
    thread.join()
print(got)
"""


def test_no_token_leaves_this_host_in_clear(short_path):
    token = short_path / "token"
    token.write_text("embt_" + "A" * 43)
    token.chmod(0o600)
    script = _LISTENS.format(package=str(Path(embtier.__file__).parents[1]), token=token)
    link = "ip link set lo up && ip addr add 198.51.100.7/32 dev lo && exec \"$0\" \"$@\""
    can = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, timeout=LIMIT_S)
    if can.returncode != 0:
        pytest.skip(f"no network namespace: {can.stderr.strip()}")
    done = subprocess.run(["unshare", "--net", "sh", "-c", link, sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done
    assert "a token is not sent to tcp://198.51.100.7" in done.stdout and done.stdout.endswith("[b'']\n"), done
