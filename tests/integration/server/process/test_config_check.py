# SPDX-License-Identifier: Apache-2.0
"""`embtier config check` finds the same faults as a start, in the same words, and no others."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess

import pytest
from daemons import CLI, Daemon

REFUSED = {
    "FIFO deletes rows": ({"rocksdb": {"options": "compaction_style=kCompactionStyleFIFO"}}, "compaction_style"),
    "PlainTable takes no writes": ({"rocksdb": {"options": "plain_table_factory={user_key_len=12}"}}, "plain_table"),
    "reserve": ({"data": {"reserve_bytes": "5000TiB"}}, "is more than half of the file system"),
    "no such option": ({"rocksdb": {"options": "no_such_option=1"}}, "no_such_option"),
    "no such value": ({"rocksdb": {"options": "compression=kNone"}}, "compression"),
    "not linked": ({"rocksdb": {"options": "compression=kXpressCompression"}}, "cannot write"),
    "not linked, of the last level": (
        {"rocksdb": {"options": "bottommost_compression=kXpressCompression"}}, "`bottommost_compression` is kXpress",
    ),
    "no compression at all": (
        {"rocksdb": {"options": "compression=kDisableCompressionOption"}}, "`compression` is kDisable",
    ),
    "too large": ({"rocksdb": {"options": "target_file_size_multiplier=1000"}}, "target_file_size_multiplier"),
    "it has a key": ({"rocksdb": {"options": "level0_file_num_compaction_trigger=8"}}, "set rocksdb.compaction_trigger_files instead"),
    "write buffers": ({"rocksdb": {"memtable_bytes": "1MiB"}, "data": {"shards_per_directory": 8}}, "memtable_bytes"),
    "all memory": ({"cache": {"tiers": [{"kind": "dram", "bytes": "900GiB"}]}}, "all memory"),
    "account of a large tier": (
        {"cache": {"tiers": [{"kind": "dram", "bytes": "4MiB"}, {"kind": "file", "bytes": "60GiB"}]}},
        "cache.tiers",
    ),
    "no such memory": (
        {"cache": {"tiers": [{"kind": "dram", "bytes": "64MiB"}, {"kind": "dax_kmem", "bytes": "2MiB"}]}},
        "dax_kmem",
    ),
    "open to others": ({"rpc": {"listen": ["tcp://127.0.0.1:0", "tcp://0.0.0.0:0"]}}, "rpc.listen[1]: tcp://0.0.0.0:0 can be reached"),
    "an address of another host": ({"rpc": {"listen": ["tcp://203.0.113.9:7411"], "insecure": "yes"}}, "Cannot assign requested address"),
    "figures open to others": ({"http": {"listen": "0.0.0.0:0"}}, "http.listen"),
    "no such folder": ({"rpc": {"listen": ["unix+rpc:/no/such/folder/socket"]}}, "/no/such/folder"),
}


def checked(daemon: Daemon) -> subprocess.CompletedProcess:
    return subprocess.run(
        [CLI, "-o", "json", "config", "check", daemon.folder / "embtierd.yaml"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        env={**os.environ, **daemon.environment},
    )


def refusal(daemon: Daemon) -> str:
    """The last line of the log of a refused start."""
    daemon.launch()
    assert daemon.await_any_end() == 1
    return daemon.log_lines()[-1]


def unquoted(line: str) -> str:
    return line.replace("\\\\", "\\").replace('\\"', '"')


def without_free(text: str) -> str:
    """The free space of a disk changes from one look to the next, so it is left out."""
    return re.sub(r"has [0-9.]+[KMGT]iB free", "has some free", text)


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_start_refuses_is_found(tmp_path, name):
    changes, words = REFUSED[name]
    daemon = Daemon(tmp_path, lanes=1)
    daemon.configure(changes)
    for tier in daemon.config["cache"]["tiers"]:
        if tier["kind"] == "file":
            tier["path"] = f"{daemon.folder}/pmem"
    daemon.configure({})
    result = checked(daemon)
    assert result.returncode == 1, result
    error = json.loads(result.stdout)["error"]
    assert words in error
    assert without_free(error) in without_free(unquoted(refusal(daemon)))


NO_FILES = {
    "link": lambda path, other: path.symlink_to(other),
    "dangling link": lambda path, other: path.symlink_to(f"{other}.none"),
    "folder": lambda path, other: path.mkdir(),
    "fifo": lambda path, other: os.mkfifo(path),
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["LOCK", "reserve"])
def test_files_that_are_no_files_are_found_and_left_alone(tmp_path, name, kind):
    daemon = Daemon(tmp_path, lanes=1)
    daemon.start()
    daemon.stop()
    path, other = tmp_path / "rows" / name, tmp_path / "other"
    path.unlink()
    other.write_text("of others")
    NO_FILES[kind](path, other)
    result = checked(daemon)
    assert result.returncode == 1, result
    error = json.loads(result.stdout)["error"]
    assert f"{path}: is not a regular file" in error
    assert f"{path}: is not a regular file" in unquoted(refusal(daemon))
    assert other.read_text() == "of others" and not (tmp_path / "other.none").exists()


def test_what_a_start_takes_is_found_good(tmp_path):
    daemon = Daemon(tmp_path, lanes=1)
    daemon.configure({
        "rocksdb": {"options": "compression=kLZ4Compression;bytes_per_sync=1048576"},
        "rpc": {"listen": [f"tcp://127.{os.getpid() >> 16 & 127}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}:7411"]},
    })  # fmt: skip
    result = checked(daemon)
    assert result.returncode == 0, result
    assert json.loads(result.stdout) == {"ok": True, "complete": True, "warnings": []}
    daemon.start()
    assert checked(daemon).returncode == 0  # also while a server runs that has the directories open
    daemon.stop()


def test_an_address_of_another_program_is_found_before_a_store_is_made(tmp_path):
    daemon = Daemon(tmp_path, lanes=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        daemon.configure({"rpc": {"listen": [f"tcp://127.0.0.1:{taken.getsockname()[1]}"]}})
        before = sorted(tmp_path.rglob("*"))
        error = json.loads(checked(daemon).stdout)["error"]
        assert "rpc.listen[0]: cannot listen at tcp://127.0.0.1:" in error and "Address already in use" in error
        assert error in unquoted(refusal(daemon))
    made = set(tmp_path.rglob("*")) - set(before)
    assert {path.name for path in made} <= {daemon.log.name}


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\necho 'x.h:5: Assertion failed' >&2\nkill -ABRT $$\n", ["ended by SIGABRT", "x.h:5: Assertion failed"]),
        ("#!/bin/sh\nkill -KILL $$\n", ["ended by SIGKILL"]),
        ("#!/no/such/interpreter\n", ["cannot start", "No such file"]),
    ],
    ids=["assertion", "killed", "cannot be started"],
)  # fmt: skip
def test_a_server_that_dies_while_it_looks_is_a_mistake(tmp_path, script, says):
    """It must not look like a missing server, without which only the text is checked."""
    program = shutil.copy(CLI, tmp_path / "embtier")
    alone = subprocess.run([program, "config", "check"], capture_output=True, text=True, timeout=60, check=True)
    assert "there is no embtierd" in alone.stdout
    (tmp_path / "embtierd").write_text(script)
    (tmp_path / "embtierd").chmod(0o755)
    result = subprocess.run(
        [program, "-o", "json", "config", "check"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1, result
    for words in [str(tmp_path / "embtierd"), *says]:
        assert words in json.loads(result.stdout)["error"] and words in result.stderr


def test_directories_of_another_shape_are_found(tmp_path):
    daemon = Daemon(tmp_path, {"data": {"shards_per_directory": 8}}, lanes=1)
    daemon.start()
    daemon.stop()
    files = sorted(str(path) for path in tmp_path.rglob("*"))
    daemon.configure({"data": {"shards_per_directory": 4}})
    result = checked(daemon)
    assert result.returncode == 1
    for text in (json.loads(result.stdout)["error"], refusal(daemon)):
        assert re.search(r"embtierd.yaml:[0-9]+: data.shards_per_directory: 4, but the store of .* was made with 8", text)
    daemon.configure({"data": {"shards_per_directory": 8}})
    assert checked(daemon).returncode == 0
    assert sorted(str(path) for path in tmp_path.rglob("*")) == files
