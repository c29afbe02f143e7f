# SPDX-License-Identifier: Apache-2.0
"""`embtier keys show` tells the truth of good, old and broken files, and no secret."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from key_commands import done, files_of, foreign_ca, keys, openssl, told


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    done("ca", folder)
    done("server", folder, "db.example.org", "192.0.2.7", "2001:db8::1")
    done("client", folder, "trainer-1", "--san", "URI:urn:a", "--san", "EMAIL:a@example.org", "--san", "DNS:t.lan")
    return folder


def only(path: Path, days: int = 0) -> dict:
    """The one item of the file."""
    shown = told("show", path, days=days)
    assert len(shown) == 1 and shown[0]["file"] == str(path)
    assert len(shown[0]["items"]) == 1
    return shown[0]["items"][0]


def digest_by_openssl(path: Path) -> str:
    return openssl("x509", "-in", path, "-noout", "-fingerprint", "-sha256").split("=")[1].strip()


def digest_of(data: bytes) -> str:
    return ":".join(f"{byte:02X}" for byte in hashlib.sha256(data).digest())


# ---- Good files ----


def test_a_certificate_is_described(ca):
    shown = only(ca / "server.crt")
    assert shown["kind"] == "certificate" and shown["uses"] == ["server"] and shown["state"] == "valid" and shown["warnings"] == []
    assert shown["subject"] == "CN=db.example.org" and shown["issuer"] == "CN=embtier CA"
    assert shown["names"] == ["CN=db.example.org", "DNS:db.example.org"]
    assert shown["addresses"] == ["192.0.2.7", "2001:db8::1"]
    assert shown["sha256"] == digest_by_openssl(ca / "server.crt")
    assert shown["serial"] == openssl("x509", "-in", ca / "server.crt", "-noout", "-serial").split("=")[1].strip()
    assert shown["key"] == {"file": f"{ca}/server.key", "state": "matches"}
    dates = openssl("x509", "-in", ca / "server.crt", "-noout", "-dates", "-dateopt", "iso_8601")
    assert [shown[name].replace("T", " ") for name in ("not_before", "not_after")] == re.findall("=(.*)", dates)


def test_names_are_those_of_the_access_file(ca):
    shown = only(ca / "trainer-1.crt")
    assert shown["uses"] == ["client"]
    assert shown["names"] == ["CN=trainer-1", "URI:urn:a", "EMAIL:a@example.org", "DNS:t.lan"]


def test_a_ca_is_described(ca):
    shown = only(ca / "ca.crt")
    assert shown["uses"] == ["ca"] and shown["key"]["state"] == "matches"


def test_a_key_is_described_by_its_public_half(ca):
    shown = only(ca / "server.key")
    public = base64.b64decode("".join(openssl("pkey", "-in", ca / "server.key", "-pubout").splitlines()[1:-1]))
    assert shown == {
        "kind": "key", "algorithm": "EC prime256v1", "locked": False, "public_sha256": digest_of(public), "warnings": [],
        "certificate": {"file": f"{ca}/server.crt", "state": "matches"},
    }  # fmt: skip


def test_keys_of_other_kinds_are_described(tmp_path):
    openssl("genrsa", "-out", tmp_path / "rsa.key", "2048")
    openssl("genpkey", "-algorithm", "ed25519", "-out", tmp_path / "ed.key")
    assert only(tmp_path / "rsa.key")["algorithm"] == "RSA, 2048 bits"
    assert only(tmp_path / "ed.key")["algorithm"].startswith("ED25519")
    assert only(tmp_path / "ed.key")["certificate"]["state"] == "missing"


def test_a_token_is_described_by_its_hash(ca):
    said = done("token", ca / "token")
    assert only(ca / "token") == {"kind": "token", "hash": said.strip(), "warnings": []}


def test_a_chain_is_described_whole(ca):
    (ca / "chain.crt").write_text((ca / "server.crt").read_text() + "a comment\n" + (ca / "ca.crt").read_text())
    shutil.copy(ca / "server.key", ca / "chain.key")
    items = told("show", ca / "chain.crt")[0]["items"]
    assert [item["uses"] for item in items] == [["server"], ["ca"]]
    assert items[0]["key"]["state"] == "matches" and "key" not in items[1]


@pytest.mark.parametrize("order", [(".crt", ".key"), (".key", ".crt")])
def test_a_key_in_the_same_file_is_compared(ca, order):
    (ca / "both.pem").write_text("".join((ca / f"server{ending}").read_text() for ending in order))
    os.chmod(ca / "both.pem", 0o600)
    items = told("show", ca / "both.pem")[0]["items"]
    pairs = [item.get("key") or item.get("certificate") for item in items]
    assert pairs == [{"file": f"{ca}/both.pem", "state": "matches"}] * 2


def test_other_contents_are_named(ca):
    (ca / "public.pem").write_text(openssl("pkey", "-in", ca / "server.key", "-pubout"))
    assert only(ca / "public.pem") == {"kind": "other", "label": "PUBLIC KEY", "warnings": []}


def test_all_files_of_a_folder_are_shown_for_people(ca):
    done("token", ca / "a.token")
    said = done("show", *sorted(ca.iterdir()))
    assert len(re.findall(r"^\S", said, re.MULTILINE)) == 7 and said.splitlines()[0] == f"{ca}/a.token"
    for line in ("certificate  of a CA", "certificate  of a server", "certificate  of a client", "DNS:t.lan", "2001:db8::1",
                 f"key          {ca}/server.key: matches", "token  sha256:", "private key        EC prime256v1"):  # fmt: skip
        assert f"  {line}" in said, line
    assert "WARNING" not in said


def test_no_secret_is_shown(ca):
    done("token", ca / "a.token")
    (ca / "both.pem").write_text((ca / "server.key").read_text() + (ca / "server.crt").read_text())
    files = sorted(ca.iterdir())
    secrets = [line for path in ca.glob("*.key") for line in path.read_text().splitlines()[1:-1]]
    secrets.append((ca / "a.token").read_text().strip())
    for output in (done("show", *files), done("show", *files, "-o", "json")):
        assert not [secret for secret in secrets if secret in output]


# ---- Warnings ----


def warning_of(path: Path, days: int = 0) -> str:
    warnings = only(path, days)["warnings"]
    assert len(warnings) == 1, warnings
    text = done("show", path, days=days)
    expected = re.sub(r"\d+(?=\\ days?)", r"\\d+", re.escape(warnings[0]))  # a day may end between the two
    assert re.search(rf"^  WARNING: {expected}$", text, re.MULTILINE), text
    return warnings[0]


def test_an_expired_certificate_is_told(ca):
    shown = only(ca / "server.crt", days=370)
    assert shown["state"] == "expired" and shown["days_left"] == -5
    assert warning_of(ca / "server.crt", days=370).startswith(f"expired on {shown['not_after']}")
    assert f"to {shown['not_after']}, 5 days ago" in done("show", ca / "server.crt", days=370)


def test_a_certificate_that_openssl_says_is_expired_is_expired(ca):
    openssl("req", "-new", "-key", ca / "server.key", "-subj", "/CN=old", "-out", ca / "old.csr")
    (ca / "index").write_text("")
    (ca / "conf").write_text(f"[ca]\ndefault_ca=a\n[a]\ndatabase={ca}/index\nnew_certs_dir={ca}\ndefault_md=sha256\npolicy=p\nrand_serial=yes\n[p]\ncommonName=supplied\n")
    openssl("ca", "-batch", "-notext", "-config", ca / "conf", "-cert", ca / "ca.crt", "-keyfile", ca / "ca.key",
            "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-in", ca / "old.csr", "-out", ca / "old.crt")  # fmt: skip
    assert only(ca / "old.crt")["state"] == "expired"
    assert only(ca / "old.crt")["not_after"] == "2020-01-02T00:00:00Z"


@pytest.mark.parametrize(("life", "days", "state"), [(365, 334, "valid"), (365, 336, "soon"), (30, 19, "valid"), (30, 21, "soon"), (1, 0, "valid")])
def test_a_certificate_that_ends_soon_is_told(ca, life, days, state):
    """Within 30 days, or within a third of its life."""
    done("client", ca, "a", "--days", str(life))
    assert only(ca / "a.crt", days)["state"] == state
    if state == "soon":
        assert re.match(rf"expires in ({life - days}|{life - days - 1}) days: make", warning_of(ca / "a.crt", days))


def test_a_certificate_of_the_future_is_told(ca):
    assert only(ca / "server.crt", days=-1)["state"] == "not_yet"
    assert warning_of(ca / "server.crt", days=-1).startswith("not valid before 20")


def test_halves_of_different_pairs_are_told(ca):
    shutil.copy(ca / "trainer-1.key", ca / "server.key")
    assert only(ca / "server.crt")["key"]["state"] == "differs"
    assert warning_of(ca / "server.crt") == f"the key in {ca}/server.key belongs to another certificate"
    assert warning_of(ca / "server.key") == f"the certificate in {ca}/server.crt belongs to another key"


def test_a_half_that_is_missing_or_unreadable_is_told(ca):
    (ca / "server.key").write_text("damaged")
    assert only(ca / "server.crt")["key"]["state"] == "unreadable"
    (ca / "server.key").unlink()
    assert only(ca / "server.crt")["key"]["state"] == "missing"
    assert only(ca / "server.crt")["warnings"] == []


def test_secrets_that_all_may_read_are_told(ca):
    done("token", ca / "token")
    for name in ("server.key", "token"):
        os.chmod(ca / name, 0o644)
        assert "mode 0644" in warning_of(ca / name)
        os.chmod(ca / name, 0o640)  # the group may be the server's
        assert only(ca / name)["warnings"] == []


def test_a_key_with_a_password_is_told(ca):
    openssl("pkcs8", "-topk8", "-in", ca / "server.key", "-out", ca / "locked.key", "-passout", "pass:secret")
    os.chmod(ca / "locked.key", 0o600)
    shown = only(ca / "locked.key")
    assert shown["locked"] and "needs a password" in shown["warnings"][0]
    assert "private key  with a password" in done("show", ca / "locked.key", stdin=subprocess.DEVNULL)


def test_a_name_with_a_nul_is_told(ca):
    """The signature no longer fits, but a thief's certificate of a careless authority would have a good one."""
    done("client", ca, "admin-example.org")
    lines = (ca / "admin-example.org.crt").read_text().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    assert der.count(b"admin-example.org") == 1
    bad = base64.encodebytes(der.replace(b"admin-", b"admin\0")).decode()
    (ca / "bad.crt").write_text(f"{lines[0]}\n{bad}{lines[-1]}\n")
    shown = only(ca / "bad.crt")
    assert shown["names"] == [] and shown["subject"] == "CN=admin\\00example.org"
    assert "has a NUL inside" in warning_of(ca / "bad.crt")


def test_names_cannot_change_the_terminal(tmp_path):
    foreign_ca(tmp_path)
    openssl("req", "-x509", "-key", tmp_path / "ca.key", "-out", tmp_path / "a.crt", "-utf8", "-days", "1",
            "-subj", "/CN=evil\u202ename\x1b[31m")  # fmt: skip
    said = done("show", tmp_path / "a.crt") + done("show", tmp_path / "a.crt", "-o", "json")
    assert "\x1b" not in said and "\u202e" not in said
    assert "is refused" in said


# ---- Broken files ----


def broken(*paths: Path) -> tuple[list, str]:
    result = keys("show", *paths, "-o", "json")
    assert result.returncode == 1, result
    return json.loads(result.stdout), result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "holds no certificate"),
        (b"some text\n", "holds no certificate"),
        (b"embt_short\n", "holds no certificate"),
        (bytes(range(256)) * 4, "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n", "damaged"),
        (b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "the CERTIFICATE in it is damaged"),
        (b"-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "damaged"),
        (b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", "the PRIVATE KEY in it is damaged"),
        (b"x" * ((1 << 20) + 1), "more than 1048576 bytes"),
    ],
    ids=["empty", "text", "short token", "bytes", "no end", "cut", "no base64", "cut key", "large"],
)
def test_a_broken_file_is_told(tmp_path, text, said):
    (tmp_path / "a").write_bytes(text)
    shown, message = broken(tmp_path / "a")
    assert said in message and f"{tmp_path}/a" in message
    assert shown[0]["file"] == f"{tmp_path}/a" and said in shown[0]["error"]


def test_a_certificate_with_bytes_behind_it_is_damaged(ca):
    lines = (ca / "server.crt").read_text().splitlines()
    der = base64.b64decode("".join(lines[1:-1])) + b"\0"
    (ca / "a.crt").write_text(f"{lines[0]}\n{base64.encodebytes(der).decode()}{lines[-1]}\n")
    assert "damaged" in broken(ca / "a.crt")[1]


def test_the_other_files_are_shown_beside_a_broken_one(ca):
    shown, message = broken(ca / "no", ca / "server.crt", ca)
    assert "error" in shown[0] and shown[1]["items"][0]["uses"] == ["server"] and "error" in shown[2]
    assert f"{ca}/no: No such file" in message and f"{ca}: Is a directory" in message
    result = keys("show", ca / "no", ca / "server.crt")
    assert result.returncode == 1 and "of a server" in result.stdout


def test_showing_changes_nothing(ca):
    before = files_of(ca)
    done("show", *sorted(ca.iterdir()))
    assert files_of(ca) == before


@pytest.mark.parametrize("seed", range(3))
def test_no_turned_bit_ends_the_program(ca, seed):
    """Each file is read as it is, or refused."""
    rng = random.Random(seed)
    lines = (ca / "server.crt").read_text().splitlines()
    der = base64.b64decode("".join(lines[1:-1]))
    paths = []
    for i in range(60):
        bad = bytearray(der)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        paths.append(ca / f"bad-{i}.crt")
        paths[-1].write_text(f"{lines[0]}\n{base64.encodebytes(bytes(bad)).decode()}{lines[-1]}\n")
    result = keys("show", *paths, "-o", "json")
    assert result.returncode in (0, 1), result
    assert len(json.loads(result.stdout)) == len(paths)
