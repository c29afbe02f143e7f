# SPDX-License-Identifier: Apache-2.0
"""A support bundle has what is needed, has no secret, and is made in part while the server is down."""

from __future__ import annotations

import json
import stat
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
from daemons import CLI, Daemon
from stores import MOVE_LIMIT_S, run_cli, was_busy

# Parts that need no server; those that do are the rest.
ALONE = {"versions.json", "doctor.json", "config-file.json", "log.txt"}
ASKED = {
    "status.json", "status.txt", "stats.json", "config.json", "config-diff.json", "knobs.json", "tables.json", "clients.json",
    "jobs.json", "checkpoints.json", "compaction.json", "endurance.json",
}  # fmt: skip
KEY = "MC4CAQAwBQYDK2VwBCIEIDYxMjM0NTY3ODkwYWJjZGVm"


def run(*arguments: str | Path, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=60, check=False, **how)


def bundle(daemon: Daemon, path: Path, *more: str | Path) -> dict[str, dict]:
    """Makes one; returns its parts by name."""
    done = run(
        "-o", "json", "--timeout", "60", "--socket", daemon.socket, "support-bundle", "--file", path,
        "--config", daemon.folder / "embtierd.yaml", "--log", daemon.log, *more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["file"] == str(path) and report["bytes"] == path.stat().st_size
    return {part["name"]: part for part in report["parts"]}


def contents(path: Path) -> dict[str, bytes]:
    """The files of a bundle, all of one folder."""
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    assert len({name.split("/")[0] for name in files}) == 1
    return {name.split("/", 1)[1]: text for name, text in files.items()}


def secrets_of(daemon: Daemon) -> dict[str, str]:
    """Puts secrets into all places that a bundle might take them from, and returns them."""
    token = run("keys", "token", daemon.folder / "trainer.token")
    secrets = {
        "token": (daemon.folder / "trainer.token").read_text().strip().removeprefix("embt_"),
        "hash": token.stdout.strip().removeprefix("sha256:"),
        "comment": "the-password-of-the-comment",
        "key": KEY,
    }
    access = daemon.folder / "access.yaml"
    access.write_text(
        f"users:\n  - {{name: root, role: admin, unix_users: [root]}}\n  - {{name: trainer, role: train, tokens: ['sha256:{secrets['hash']}']}}\n"
    )
    access.chmod(0o600)
    daemon.configure({"access": {"file": str(access)}})
    with (daemon.folder / "embtierd.yaml").open("a") as config:
        config.write(f"# {secrets['comment']}: embt_{secrets['token']}\n")
    with daemon.log.open("a") as log:
        log.write(f"a client said embt_{secrets['token']} sha256:{secrets['hash']}\n")
        log.write(f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----\nafter\n")
    return secrets


def test_a_bundle_has_all_parts_and_no_secret(make_daemon, tmp_path):
    daemon = make_daemon()
    secrets = secrets_of(daemon)
    daemon.start()
    with daemon.connect() as server:
        server.create_table("users", 4)
    end = "a warning of RocksDB\n"
    end = "o" * ((256 << 10) - len(end) - 22) + "\n" + end  # with it, 20 characters of the token are the last 256 KiB
    (daemon.folder / "rows/shard-0000/replay/LOG").write_text("old\n" * 1000 + f"embt_{secrets['token']}\n" + end)
    path = tmp_path / "bundle.tar.gz"
    parts = bundle(daemon, path)
    files = contents(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not [part for part in parts.values() if "missing" in part]
    assert ASKED | ALONE < set(parts)
    assert set(files) == set(parts) | {"manifest.json"}
    assert {part["name"] for part in json.loads(files["manifest.json"])} == set(parts)
    for name, text in files.items():
        assert len(text) > 0, name
        if name.endswith(".json"):
            json.loads(text)
        for kind, secret in secrets.items():
            assert secret.encode() not in text, (kind, name)
    assert parts["log.txt"]["hidden_secrets"] == 3
    assert b"\nafter\n" in files["log.txt"] and b"embtierd starts" in files["log.txt"]
    assert any(table["name"] == "users" for table in json.loads(files["tables.json"]))
    for source in ("config.json", "config-file.json"):
        values = {key["name"]: key["value"] for key in json.loads(files[source])["keys"]}
        assert values["data.directories[0]"] == f"{daemon.folder}/rows"
    assert files["rocksdb-0_shard-0000_replay_LOG"].endswith(b"a warning of RocksDB\n")
    assert (256 << 10) - 100 < len(files["rocksdb-0_shard-0000_replay_LOG"]) <= 256 << 10  # its end
    assert secrets["token"][-20:].encode() not in files["rocksdb-0_shard-0000_replay_LOG"], "a token that the end begins inside of"
    daemon.stop()


def test_a_bundle_of_a_server_that_is_down_says_what_is_missing(make_daemon, tmp_path):
    daemon = make_daemon()
    daemon.start()
    daemon.stop()
    (daemon.folder / "rows/shard-0000/logged/LOG").write_text("a warning of RocksDB\n")
    (daemon.folder / "rows/shard-0001/logged/LOG").symlink_to("/etc/hostname")
    path = tmp_path / "bundle.tar.gz"
    parts = bundle(daemon, path)
    files = contents(path)

    for name in ASKED:
        assert daemon.socket in parts[name]["missing"], parts[name]
    assert ALONE < set(files)
    assert [name for name in files if name.startswith("rocksdb")] == ["rocksdb-0_shard-0000_logged_LOG"]  # root follows no link


@pytest.mark.parametrize("runs", [True, False])
def test_a_bundle_has_the_logs_of_directories_that_the_file_lacks(make_daemon, tmp_path, runs):
    daemon = make_daemon()
    daemon.start()
    second, third = daemon.folder / "more", daemon.folder / "third"
    for words in (["add", second], ["add", third], ["remove", third, "--delete-checkpoints"]):
        until = time.monotonic() + MOVE_LIMIT_S
        while (done := run_cli(daemon, "data", *map(str, words), "--rate", "0", limit_s=MOVE_LIMIT_S)).returncode:
            assert was_busy(done) and time.monotonic() < until, done.stderr
    if not runs:
        daemon.stop()
    log = next(second.glob("shard-*")) / "replay/LOG"
    log.write_text("a warning of RocksDB\n")
    path = tmp_path / "bundle.tar.gz"
    parts = bundle(daemon, path)
    name = f"rocksdb-1_{log.parent.parent.name}_replay_LOG"
    assert b"a warning of RocksDB\n" in contents(path)[name]
    assert not [part for part in parts if part.startswith("rocksdb-2")]
    if runs:
        daemon.stop()
        return
    second.rename(daemon.folder / "away")
    parts = bundle(daemon, tmp_path / "second.tar.gz")
    assert "No such file" in parts["rocksdb-1"]["missing"]


def test_without_a_server_or_a_file_there_still_is_a_bundle(tmp_path):
    done = run("--socket", tmp_path / "none", "support-bundle", "--log", tmp_path / "absent", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "without log.txt: " in done.stdout and "without status.json: " in done.stdout
    (path,) = tmp_path.glob("embtier-support-*.tar.gz")
    assert {"versions.json", "doctor.json", "manifest.json"} <= set(contents(path))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]  # nothing else is left


@pytest.mark.parametrize(
    ("options", "environment", "why"),
    [
        (["--file", "taken"], {}, "taken already exists"),
        (["--file", "absent/bundle"], {}, "absent"),
        ([], {"TMPDIR": "/nowhere"}, "/nowhere"),
        ([], {"PATH": "/nowhere"}, "tar cannot be started"),
    ],
)
def test_a_bundle_that_cannot_be_written_is_an_error(tmp_path, options, environment, why):
    (tmp_path / "taken").write_text("kept")
    how = {"cwd": tmp_path, "env": {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), **environment}}
    done = run("--socket", tmp_path / "none", "support-bundle", *options, **how)
    assert done.returncode == 1 and why in done.stderr, done.stderr
    assert (tmp_path / "taken").read_text() == "kept"
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_a_server_elsewhere_is_asked_and_no_file_here_is_taken(tmp_path):
    done = run(
        "-o", "json", "--timeout", "0.1", "--address", "tcp://127.0.0.1:1", "support-bundle", "--file", tmp_path / "bundle",
        "--log", "/etc/hostname",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {part["name"] for part in json.loads(done.stdout)["parts"]}
    assert names == ASKED | {"versions.json", "doctor.json"}
