# SPDX-License-Identifier: Apache-2.0
"""Other programs accept the files of `embtier keys`, each for its purpose alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import stat
from pathlib import Path

import pytest
from conftest import TREE
from key_commands import context, done, files_of, foreign_ca, openssl, shake_hands, told


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    done("ca", tmp_path / "keys")
    return tmp_path / "keys"


def text_of(certificate: Path) -> str:
    return openssl("x509", "-in", certificate, "-noout", "-text")


def serial_of(certificate: Path) -> int:
    return int(openssl("x509", "-in", certificate, "-noout", "-serial").split("=")[1], 16)


def extension(text: str, name: str) -> str:
    return re.search(rf"X509v3 {name}: *(.*\n.*)", text)[1].replace("\n", " ").strip()


def verify(ca: Path, certificate: str, *more: str) -> None:
    openssl("verify", "-x509_strict", "-CAfile", ca / "ca.crt", *more, ca / f"{certificate}.crt")


def must_not_verify(ca: Path, certificate: str, *more: str) -> None:
    with pytest.raises(AssertionError, match="verification failed"):
        verify(ca, certificate, *more)


# ---- Certificates ----


def test_a_ca_is_one_that_signs_no_further_cas(ca):
    text = text_of(ca / "ca.crt")
    assert re.search(r"Issuer: CN ?= ?embtier CA\n", text) and re.search(r"Subject: CN ?= ?embtier CA\n", text)
    assert extension(text, "Basic Constraints") == "critical                 CA:TRUE, pathlen:0"
    assert extension(text, "Key Usage").split("  ")[0] == "critical" and "Certificate Sign, CRL Sign" in text
    assert "NIST CURVE: P-256" in text and "ecdsa-with-SHA256" in text
    own, its = extension(text, "Subject Key Identifier"), extension(text, "Authority Key Identifier")
    assert own == its.removeprefix("keyid:")
    verify(ca, "ca")


def test_serial_numbers_are_random_and_positive(ca):
    serials = [serial_of(ca / "ca.crt")]
    for i in range(40):
        done("client", ca, f"client-{i}")
        serials.append(serial_of(ca / f"client-{i}.crt"))
    assert len(set(serials)) == len(serials) and 0 < min(serials)
    for bit in range(128):  # each is 0 in one of the numbers and 1 in another, but for once in 1e10 times
        assert 0 < sum(serial >> bit & 1 for serial in serials) < len(serials), bit
    assert max(serials) < 1 << 128


def test_keys_are_pkcs8_without_a_password(ca):
    assert (ca / "ca.key").read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert "P-256" in openssl("pkey", "-in", ca / "ca.key", "-noout", "-text")


def test_a_server_has_all_its_names_and_serves_alone(ca):
    done("server", ca, "db.example.org", "192.0.2.7", "2001:db8::1", "*.pod.example.org", "my_host")
    for name in ("db.example.org", "a.pod.example.org", "my_host"):
        verify(ca, "server", "-purpose", "sslserver", "-verify_hostname", name)
    for address in ("192.0.2.7", "2001:db8:0::1"):
        verify(ca, "server", "-purpose", "sslserver", "-verify_ip", address)
    must_not_verify(ca, "server", "-verify_hostname", "example.org")
    must_not_verify(ca, "server", "-verify_ip", "192.0.2.8")
    must_not_verify(ca, "server", "-purpose", "sslclient")
    text = text_of(ca / "server.crt")
    assert "CA:FALSE" in text and extension(text, "Extended Key Usage").endswith("TLS Web Server Authentication")
    assert extension(text, "Authority Key Identifier").removeprefix("keyid:") == extension(
        text_of(ca / "ca.crt"), "Subject Key Identifier"
    )
    assert (ca / "server.crt").read_text().count("BEGIN CERTIFICATE") == 1


def test_a_server_whose_first_name_is_long_has_no_subject(ca):
    name = ".".join(["a" * 60] * 4)
    done("server", ca, name)
    verify(ca, "server", "-purpose", "sslserver", "-verify_hostname", name)
    assert extension(text_of(ca / "server.crt"), "Subject Alternative Name").startswith("critical")


def test_a_client_has_all_its_names_and_cannot_serve(ca):
    done("client", ca, "trainer-1", "--san", "URI:spiffe://example.org/trainer", "--san", "DNS:trainer-1.lan",
         "--san", "EMAIL:trainer@example.org", "--san", "IP:192.0.2.8")  # fmt: skip
    verify(ca, "trainer-1", "-purpose", "sslclient")
    must_not_verify(ca, "trainer-1", "-purpose", "sslserver")
    text = text_of(ca / "trainer-1.crt")
    assert re.search(r"Subject: CN ?= ?trainer-1\n", text)
    assert extension(text, "Subject Alternative Name").endswith(
        "URI:spiffe://example.org/trainer, DNS:trainer-1.lan, email:trainer@example.org, IP Address:192.0.2.8"
    )


def test_names_and_files_are_what_options_say(ca, tmp_path):
    done("ca", tmp_path / "other", "--name", "Ünser CA")
    assert told("show", tmp_path / "other/ca.crt")[0]["items"][0]["subject"] == "CN=Ünser CA"
    done("server", ca, "localhost", "--out", "second")
    done("client", ca, "team/trainer", "--out", "trainer")
    assert set(files_of(ca)) == {"ca.crt", "ca.key", "second.crt", "second.key", "trainer.crt", "trainer.key"}
    assert told("show", ca / "trainer.crt")[0]["items"][0]["names"] == ["CN=team/trainer"]


def test_the_output_describes_what_was_made(ca):
    said = done("server", ca, "localhost", "127.0.0.1")
    assert said.startswith(f"made {ca}/server.crt and {ca}/server.key\n")
    assert "CN=localhost" in said and "DNS:localhost" in said and "127.0.0.1" in said and "365 days left" in said
    made = told("client", ca, "a")
    shown = told("show", ca / "a.crt")[0]["items"][0]
    assert made.pop("certificate_file") == f"{ca}/a.crt" and made.pop("key_file") == f"{ca}/a.key"
    assert shown.pop("key") == {"file": f"{ca}/a.key", "state": "matches"}
    assert abs(made.pop("days_left") - shown.pop("days_left")) <= 1  # some seconds later
    assert made == shown


# ---- Validity ----


def days_of(certificate: Path) -> int:
    return told("show", certificate)[0]["items"][0]["days_left"]


def test_certificates_are_valid_for_the_days_given(ca):
    done("client", ca, "short", "--days", "1")
    done("client", ca, "usual")
    assert days_of(ca / "ca.crt") in (3649, 3650) and days_of(ca / "usual.crt") in (364, 365) and days_of(ca / "short.crt") in (0, 1)
    verify(ca, "short")


def test_no_certificate_outlives_its_ca(tmp_path):
    done("ca", tmp_path, "--days", "10")
    done("client", tmp_path, "a")
    ends = {openssl("x509", "-in", tmp_path / name, "-noout", "-enddate") for name in ("a.crt", "ca.crt")}
    starts = {openssl("x509", "-in", tmp_path / name, "-noout", "-startdate") for name in ("a.crt", "ca.crt")}
    assert len(ends) == 1 and len(starts) <= 2
    verify(tmp_path, "a")


def test_a_certificate_of_a_hundred_years_verifies(tmp_path):
    """Dates after 2050 have another form."""
    done("ca", tmp_path, "--days", "36500")
    done("server", tmp_path, "localhost", "--days", "36499")
    verify(tmp_path, "server", "-purpose", "sslserver")


# ---- Foreign CAs ----


@pytest.mark.parametrize("algorithm", ["rsa:2048", "ed25519", "ec -pkeyopt ec_paramgen_curve:P-384"])
def test_a_ca_that_another_program_made_can_sign(tmp_path, algorithm):
    foreign_ca(tmp_path, algorithm)
    done("server", tmp_path, "localhost", "--days", "7")
    openssl("verify", "-CAfile", tmp_path / "ca.crt", "-purpose", "sslserver", tmp_path / "server.crt")
    assert told("show", tmp_path / "server.crt")[0]["items"][0]["issuer"] == "CN=Foreign CA,O=Example"


def test_a_key_in_the_older_form_can_sign(tmp_path):
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-out", tmp_path / "ca.key")  # two items
    openssl("req", "-x509", "-key", tmp_path / "ca.key", "-out", tmp_path / "ca.crt", "-subj", "/CN=ca", "-days", "30")
    assert "EC PRIVATE KEY" in (tmp_path / "ca.key").read_text()
    done("client", tmp_path, "a")
    openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "a.crt")


def test_a_ca_without_an_identifier_can_sign(tmp_path):
    foreign_ca(tmp_path, extensions=("subjectKeyIdentifier=none", "authorityKeyIdentifier=none"))
    done("client", tmp_path, "a", "--days", "1")
    openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "a.crt")


def test_the_certificate_of_a_ca_that_another_one_signed_follows(tmp_path):
    """A peer that has the other one alone verifies the server."""
    root, folder = tmp_path / "root", tmp_path / "keys"
    root.mkdir()
    folder.mkdir()
    foreign_ca(root)
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "ca.key", "-out", folder / "csr", "-subj", "/CN=between")
    (folder / "extensions").write_text("basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n")
    openssl("x509", "-req", "-in", folder / "csr", "-CA", root / "ca.crt", "-CAkey", root / "ca.key", "-CAcreateserial",
            "-days", "20", "-extfile", folder / "extensions", "-out", folder / "ca.crt")  # fmt: skip
    done("server", folder, "localhost", "--days", "10")
    openssl("verify", "-CAfile", root / "ca.crt", "-untrusted", folder / "server.crt", "-purpose", "sslserver", folder / "server.crt")


# ---- TLS ----


@pytest.fixture
def pair(ca: Path) -> Path:
    done("server", ca, "localhost", "127.0.0.1")
    done("client", ca, "trainer-1", "--san", "URI:spiffe://example.org/trainer")
    return ca


def test_server_and_client_talk_over_mutual_tls(pair):
    server = context(ssl.PROTOCOL_TLS_SERVER, pair, "server", pair / "ca.crt")
    client = context(ssl.PROTOCOL_TLS_CLIENT, pair, "trainer-1", pair / "ca.crt")
    for host in ("localhost", "127.0.0.1"):
        seen = shake_hands(server, client, host)
        assert seen["subject"] == ((("commonName", "trainer-1"),),)
        assert seen["subjectAltName"] == (("URI", "spiffe://example.org/trainer"),)


def test_an_end_of_another_ca_is_refused(pair, tmp_path):
    other = tmp_path / "other"
    done("ca", other)  # of the same name
    done("server", other, "localhost")
    done("client", other, "trainer-1")
    good_server = context(ssl.PROTOCOL_TLS_SERVER, pair, "server", pair / "ca.crt")
    good_client = context(ssl.PROTOCOL_TLS_CLIENT, pair, "trainer-1", pair / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context(ssl.PROTOCOL_TLS_SERVER, other, "server", pair / "ca.crt"), good_client, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(good_server, context(ssl.PROTOCOL_TLS_CLIENT, other, "trainer-1", pair / "ca.crt"), "localhost")


def test_a_certificate_is_refused_at_the_other_end(pair):
    server = context(ssl.PROTOCOL_TLS_SERVER, pair, "server", pair / "ca.crt")
    client = context(ssl.PROTOCOL_TLS_CLIENT, pair, "trainer-1", pair / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(server, context(ssl.PROTOCOL_TLS_CLIENT, pair, "server", pair / "ca.crt"), "localhost")
    posing = context(ssl.PROTOCOL_TLS_SERVER, pair, "trainer-1", pair / "ca.crt")
    client.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(posing, client, "localhost")


def test_a_server_of_another_name_is_refused(pair):
    server = context(ssl.PROTOCOL_TLS_SERVER, pair, "server", pair / "ca.crt")
    client = context(ssl.PROTOCOL_TLS_CLIENT, pair, "trainer-1", pair / "ca.crt")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(server, client, "example.org")


def test_the_commands_of_the_page_work(tmp_path):
    page = (TREE / "docs/keys.md").read_text()
    commands = [line.split("#")[0].split() for line in page.splitlines() if line.startswith("embtier keys ")]
    assert len(commands) == 7
    for _, _, *words in commands:
        done(*words, cwd=tmp_path)
    assert set(files_of(tmp_path / "keys")) >= {"ca.key", "server.crt", "trainer-1.crt", "trainer-2.token"}


# ---- Tokens ----


def hash_of(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def test_a_token_s_hash_is_that_of_its_text(tmp_path):
    path = tmp_path / "new" / "token"
    said = done("token", path)
    token = path.read_text()
    assert re.fullmatch(r"embt_[A-Za-z0-9_-]{43}\n", token)
    assert said == f"{hash_of(token.strip())}\n"
    assert done("hash", path) == said
    assert told("hash", path) == {"file": str(path), "hash": said.strip()}


def test_a_token_without_a_file_is_printed(tmp_path):
    name, token, other, its_hash = done("token").split()
    assert (name, other) == ("token", "hash") and its_hash == hash_of(token)
    made = told("token")
    assert set(made) == {"token", "hash"} and made["hash"] == hash_of(made["token"]) and made["token"] != token
    kept = told("token", tmp_path / "a")
    assert kept == {"file": str(tmp_path / "a"), "hash": hash_of((tmp_path / "a").read_text().strip())}


def test_a_token_from_another_system_keeps_its_hash(tmp_path):
    token = done("token").split()[1]
    for end in ("", "\n", "\r\n"):
        (tmp_path / "a").write_bytes((token + end).encode())
        assert done("hash", tmp_path / "a").strip() == hash_of(token)


# ---- Files ----


@pytest.mark.parametrize("mask", [0, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path, mask):
    folder = tmp_path / "keys"
    for words in (("ca", folder), ("server", folder, "localhost"), ("client", folder, "a"), ("token", folder / "a.token")):
        done(*words, umask=mask)
    done("token", tmp_path / "tokens/a", umask=mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir(), tmp_path / "tokens", tmp_path / "tokens/a")}
    assert modes == {
        "keys": 0o700, "tokens": 0o700, "a": 0o600, "a.token": 0o600, "ca.crt": 0o644, "ca.key": 0o600, "server.crt": 0o644,
        "server.key": 0o600, "a.crt": 0o644, "a.key": 0o600,
    }  # fmt: skip


def test_force_replaces_both_files_and_their_modes(ca):
    done("server", ca, "old.example.org")
    before = files_of(ca)
    os.chmod(ca / "server.key", 0o666)
    done("server", ca, "new.example.org", "--force")
    after = files_of(ca)
    assert set(after) == set(before)
    assert after["server.crt"] != before["server.crt"] and after["server.key"] != before["server.key"]
    assert after["ca.key"] == before["ca.key"] and after["ca.crt"] == before["ca.crt"]
    assert stat.S_IMODE((ca / "server.key").stat().st_mode) == 0o600
    shown = told("show", ca / "server.crt")[0]["items"][0]
    assert shown["names"][0] == "CN=new.example.org" and shown["key"]["state"] == "matches"


def test_force_makes_files_that_are_not_there(tmp_path):
    done("ca", tmp_path / "keys", "--force")
    done("token", tmp_path / "keys/a", "--force")
    assert set(files_of(tmp_path / "keys")) == {"ca.crt", "ca.key", "a"}


def test_no_secret_is_printed(ca):
    said = [done("ca", ca, "--force", "-o", "json"), done("server", ca, "a"), done("client", ca, "b"), done("token", ca / "token")]
    secrets = [line for name in ("ca.key", "server.key", "b.key") for line in (ca / name).read_text().splitlines()[1:-1]]
    secrets.append((ca / "token").read_text().strip())
    assert len(secrets) > 6
    for output in said:
        assert not [secret for secret in secrets if secret in output]
    assert json.loads(said[0])["kind"] == "certificate"
