# SPDX-License-Identifier: Apache-2.0
"""`embtier keys` refuses mistakes, files that exist, and CAs that may not sign; and then leaves all as it was."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from key_commands import CLI, done, files_of, foreign_ca, keys, openssl, refused


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    done("ca", tmp_path / "keys")
    return tmp_path / "keys"


def must_stay(folder: Path, said: str, *arguments: str | Path, code: int = 1, **how) -> None:
    """The command must fail with a message that has @said, and leave the folder's files as they are."""
    before = files_of(folder)
    message = refused(*arguments, code=code, **how)
    assert said in message, message
    assert files_of(folder) == before


# ---- Mistakes ----

SERVERS = [
    "a..b", ".a", "a.", "-a", "a-", "a b", "a/b", "", "*", "*.org", "a.*.b", "*a.org", "localhost:7411", "1.2.3", "1.2.3.400", "[::1]",
    "fe80::1%eth0", "köln.example.org", "a\nb", "x" * 64, ".".join(["x" * 63] * 4), "https://example.org",
]  # fmt: skip


@pytest.mark.parametrize("name", SERVERS)
def test_a_name_that_is_no_host_is_refused(ca, name):
    must_stay(ca, "neither a DNS name nor an IP address", "server", ca, "good.example.org", "--", name, code=2)


SANS = [
    ("", "no known type"), ("a", "no known type"), ("dns:a", "no known type"), ("CN=a", "no known type"), ("DNS:", "a DNS name"),
    ("DNS:1.2.3.4", "a DNS name"), ("DNS:a b", "a DNS name"), ("IP:a", "no IP address"), ("IP:1.2.3", "no IP address"),
    ("URI:", "an absolute URI"), ("URI:a", "an absolute URI"), ("URI:1:a", "an absolute URI"), ("URI:urn:", "an absolute URI"),
    ("URI:urn:ä", "an absolute URI"), ("URI:urn:a b", "an absolute URI"), ("URI:urn:" + "a" * 2048, "an absolute URI"),
    ("EMAIL:a", "a mail address"), ("EMAIL:@b", "a mail address"), ("EMAIL:a@", "a mail address"), ("EMAIL:a@b@c", "a mail address"),
]  # fmt: skip


@pytest.mark.parametrize(("san", "said"), SANS)
def test_a_name_of_a_wrong_type_is_refused(ca, san, said):
    must_stay(ca, said, "client", ca, "a", "--san", san, code=2)


CLIENTS = [
    ("", "1 to 64 visible characters"), ("a\nb", "1 to 64 visible characters"), ("a\u200bb", "1 to 64 visible characters"),
    ("x" * 65, "1 to 64 visible characters"), ("a/b", "--out NAME"), ("..", "--out NAME"), (".a", "--out NAME"), ("ca", "those of the CA"),
    ("CA", "those of the CA"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "said"), CLIENTS)
def test_a_client_s_name_that_cannot_be_is_refused(ca, name, said):
    must_stay(ca, said, "client", ca, name, "--force", code=2)


def test_names_of_64_characters_are_not_counted_in_bytes(ca):
    done("client", ca, "ä" * 64)
    assert f"{'ä' * 64}.crt" in files_of(ca)


@pytest.mark.parametrize("out", ["ca", "Ca", "", "a/b", "../a", ".hidden", "x" * 201, "a\nb"])
def test_files_get_no_other_folder_and_not_the_ca_s_names(ca, out):
    must_stay(ca, "--out NAME", "server", ca, "localhost", "--out", out, "--force", code=2)


@pytest.mark.parametrize("days", ["0", "-1", "36501", "1.5", "x", "", "99999999999999999999"])
def test_days_out_of_range_are_refused(ca, days):
    must_stay(ca, "allowed: 1 to 36500", "client", ca, "a", f"--days={days}", code=2)


def test_more_days_than_the_ca_has_are_refused(tmp_path):
    done("ca", tmp_path, "--days", "10")
    must_stay(tmp_path, "is too long: the CA in", "client", tmp_path, "a", "--days", "11")
    done("client", tmp_path, "a", "--days", "9")


@pytest.mark.parametrize(
    "words",
    [("ca",), ("ca", "a", "b"), ("server", "a"), ("client", "a"), ("client", "a", "b", "c"), ("token", "a", "b"), ("hash",), ("hash", "a", "b"),
     ("show",), ("ca", ""), ("token", ""), ("ca", "a", "--out", "b"), ("server", "a", "b", "--san", "DNS:a"), ()],
)  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path, words):
    result = keys(*words, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr, result
    assert files_of(tmp_path) == {}


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_of_a_group_of_commands_is_no_mistake(tmp_path, word):
    result = keys(word, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "") and "embtier keys show" in result.stdout, result


def test_too_many_names_are_refused(ca):
    names = [f"host-{i}" for i in range(256)]
    must_stay(ca, "too many names; allowed in one certificate: 255", "server", ca, *names, code=2)
    done("server", ca, *names[:255])
    assert "WARNING" not in done("show", ca / "server.crt")


# ---- Files that exist ----


@pytest.mark.parametrize("name", ["server.crt", "server.key"])
def test_nothing_is_written_if_one_file_exists(ca, name):
    (ca / name).write_text("mine")
    must_stay(ca, f"{ca}/{name} already exists; give another name, or --force", "server", ca, "localhost")


def test_a_ca_and_a_token_are_not_replaced(ca):
    must_stay(ca, "already exists", "ca", ca)
    done("token", ca / "token")
    must_stay(ca, f"{ca}/token already exists", "token", ca / "token")


def test_links_are_not_followed_without_force(ca, tmp_path):
    (ca / "server.key").symlink_to(tmp_path / "elsewhere")
    must_stay(ca, "server.key already exists", "server", ca, "localhost")
    must_stay(ca, "a symbolic link to a file that does not exist", "server", ca, "localhost", "--force")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_is_not_replaced(ca):
    (ca / "server.crt").mkdir()
    must_stay(ca, "is a folder", "server", ca, "localhost", "--force")
    assert (ca / "server.crt").is_dir()


# ---- Folders ----


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    message = refused("ca", tmp_path / "a/b")
    assert f"cannot make the folder {tmp_path}/a/b: No such file" in message
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused("ca", tmp_path / "file")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, as pytest's are not."""
    folder = Path(tempfile.mkdtemp(prefix="embtier-", dir="/tmp"))
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_without_permission_is_named(open_folder):
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    try:
        keys("hash", "--help", **nobody)
    except PermissionError:
        pytest.skip(f"other users may not run {CLI}")
    done("ca", open_folder / "keys")
    os.chmod(open_folder / "keys", 0o755)
    must_stay(open_folder, "Permission denied", "ca", open_folder / "other", **nobody)
    must_stay(open_folder, "ca.key: Permission denied", "client", open_folder / "keys", "a", **nobody)
    must_stay(open_folder, "token: Permission denied", "token", open_folder / "token", **nobody)


# ---- CAs that may not sign ----


def test_a_ca_that_is_not_there_is_named(tmp_path):
    must_stay(tmp_path, f"make a CA with `embtier keys ca {tmp_path}`", "client", tmp_path, "a")
    must_stay(tmp_path, "no/ca.crt: No such file", "client", tmp_path / "no", "a")
    assert not (tmp_path / "no").exists()


def test_a_ca_without_its_key_is_named(ca):
    (ca / "ca.key").unlink()
    must_stay(ca, f"{ca}/ca.key: No such file", "client", ca, "a")


def test_a_key_of_another_ca_is_refused(ca, tmp_path):
    done("ca", tmp_path / "other")
    shutil.copy(tmp_path / "other/ca.key", ca / "ca.key")
    must_stay(ca, f"{ca}/ca.key is not the key of the certificate in ca.crt", "client", ca, "a")
    openssl("genpkey", "-algorithm", "ed25519", "-out", ca / "ca.key")  # of another kind
    must_stay(ca, f"{ca}/ca.key is not the key of the certificate in ca.crt", "client", ca, "a")


def test_a_certificate_that_is_no_ca_is_refused(ca):
    done("server", ca, "localhost")
    for ending in (".crt", ".key"):
        shutil.copy(ca / f"server{ending}", ca / f"ca{ending}")
    must_stay(ca, "is no certificate of a CA", "client", ca, "a")


@pytest.mark.parametrize(
    "extensions",
    [("basicConstraints=critical,CA:FALSE",), ("keyUsage=critical,digitalSignature",)],
)
def test_a_foreign_certificate_that_may_not_sign_is_refused(tmp_path, extensions):
    foreign_ca(tmp_path, extensions=extensions)
    must_stay(tmp_path, "is no certificate of a CA", "client", tmp_path, "a")


def test_a_ca_that_is_limited_to_other_names_is_refused(tmp_path):
    foreign_ca(tmp_path, extensions=("nameConstraints=critical,permitted;DNS:example.org",))
    must_stay(tmp_path, "permitted subtree violation", "server", tmp_path, "db.example.com", "--days", "1")
    done("server", tmp_path, "db.example.org", "--days", "1")


def test_a_ca_that_is_limited_to_servers_signs_no_client(tmp_path):
    foreign_ca(tmp_path, extensions=("extendedKeyUsage=serverAuth",))
    must_stay(tmp_path, "peers would refuse it", "client", tmp_path, "a", "--days", "1")
    done("server", tmp_path, "localhost", "--days", "1")


def test_an_expired_ca_is_refused_even_by_force(ca):
    must_stay(ca, "ca.crt expired on 20", "client", ca, "a", "--force", days=3651)
    done("client", ca, "a", days=3640)


def test_a_ca_of_the_future_is_refused(ca):
    must_stay(ca, "is not valid before", "client", ca, "a", days=-1)


def test_a_key_with_a_password_is_refused_and_not_asked_for(ca):
    key = ca / "ca.key"
    new = openssl("pkcs8", "-topk8", "-in", key, "-v2", "aes-256-cbc", "-passout", "pass:secret")
    old = openssl("ec", "-in", key, "-aes256", "-passout", "pass:secret")
    assert "ENCRYPTED PRIVATE KEY" in new and "Proc-Type: 4,ENCRYPTED" in old
    for text in (new, old):
        key.write_text(text)
        must_stay(ca, "without a password", "client", ca, "a", stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "bytes", "other"])
def test_a_damaged_ca_is_refused(ca, name, damage):
    text = (ca / name).read_text()
    lines = text.splitlines(keepends=True)
    (ca / name).write_text({
        "empty": "", "text": "not PEM\n", "cut": "".join(lines[:-1]), "other": "".join(lines).replace("BEGIN ", "BEGIN X").replace("END ", "END X"),
        "bytes": "".join([lines[0], lines[1].swapcase(), *lines[2:]]),
    }[damage])  # fmt: skip
    must_stay(ca, f"{ca}/{name}", "client", ca, "a")


def test_the_two_files_of_a_ca_in_each_other_s_place_are_refused(ca):
    certificate, key = (ca / "ca.crt").read_text(), (ca / "ca.key").read_text()
    (ca / "ca.crt").write_text(key)
    must_stay(ca, "ca.crt holds no certificate", "client", ca, "a")
    (ca / "ca.crt").write_text(certificate)
    (ca / "ca.key").write_text(certificate)
    must_stay(ca, "ca.key holds no private key", "client", ca, "a")


# ---- Tokens ----


@pytest.mark.parametrize("text", ["", "password\n", "embt_short\n", "embt_" + "a" * 43 + "\n\n", "embt_" + "a" * 42 + "+", "x" * 1000])
def test_a_file_that_is_no_token_has_no_hash(tmp_path, text):
    (tmp_path / "a").write_text(text)
    message = refused("hash", tmp_path / "a")
    assert str(tmp_path / "a") in message and (not text.strip() or text.strip() not in message)


def test_a_token_file_that_is_not_there_is_named(tmp_path):
    assert f"{tmp_path}/a: No such file" in refused("hash", tmp_path / "a")
    assert "Is a directory" in refused("hash", tmp_path)
