# SPDX-License-Identifier: Apache-2.0
"""A start says that it is ready, or says in one line why it is not, and does not disturb other processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile

import numpy as np
import pytest
from daemons import CLI, log_fields


def test_log_lines_are_logfmt_with_time_level_and_message(make_daemon):
    daemon = make_daemon()
    daemon.start("--log-level", "debug")
    with daemon.connect(client_name='evil "name" level=error\\') as server:
        server.create_table("logged", 4)
        server.drop_table("logged")
    daemon.stop()
    lines = [log_fields(line) for line in daemon.log_lines()]  # log_fields() asserts the form of each
    said = [fields["msg"] for fields in lines]
    for expected in ("embtierd starts", "ready", "table created", "table dropped", "client gone"):
        assert expected in said
    assert said[-1] == "stopped; all rows are on SSD"
    assert any(fields.get("client") == 'evil "name" level=error\\' for fields in lines)
    assert not [fields for fields in lines if fields["level"] == "error"]


def test_readiness_and_stopping_are_told_to_the_service_manager(make_daemon):
    daemon = make_daemon()
    path = f"{os.path.dirname(daemon.socket)}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(60)
        daemon.environment["NOTIFY_SOCKET"] = path
        daemon.launch()
        while "READY=1" not in listener.recv(4096).decode().splitlines():
            pass
        daemon.connect(arena_bytes=0).close()  # ready means that clients are served
        os.kill(daemon.pid, signal.SIGTERM)
        while "STOPPING=1" not in listener.recv(4096).decode().splitlines():
            pass
        daemon.await_end(0)


def test_a_second_daemon_is_refused_and_does_not_disturb_the_first(make_daemon):
    first = make_daemon()
    first.start()
    with first.connect() as server:
        table = server.create_table("mine", 4)
        table.set([1], [[1, 2, 3, 4]])

        second = make_daemon({"data": {"directories": [f"{first.folder}/rows"]}})
        assert f"{first.folder}/rows" in second.fail_to_start()
        # Another data directory, but the first daemon's socket.
        third = make_daemon({"socket": {"path": first.socket}})
        assert first.socket in third.fail_to_start()
        # The same directory and socket.
        fourth = make_daemon(first.config)
        fourth.fail_to_start()

        assert os.path.exists(first.socket)
        assert table.get([1]).tolist() == [[1, 2, 3, 4]]
        with first.connect() as another:
            assert another.open_table("mine").get([1]).tolist() == [[1, 2, 3, 4]]
    first.restart()
    with first.connect() as server:
        assert server.open_table("mine").get([1]).tolist() == [[1, 2, 3, 4]]


def test_a_dead_servers_socket_is_replaced_and_another_file_is_not(make_daemon):
    daemon = make_daemon()
    daemon.start()
    daemon.kill()
    assert os.path.exists(daemon.socket)
    daemon.start()
    daemon.stop()
    assert not os.path.exists(daemon.socket)
    with open(daemon.socket, "w") as file:
        file.write("precious")
    assert daemon.socket in daemon.fail_to_start()
    with open(daemon.socket) as file:
        assert file.read() == "precious"


def test_a_socket_that_is_another_servers_by_now_stays(make_daemon):
    first = make_daemon()
    first.start()
    os.unlink(first.socket)
    second = make_daemon({"socket": {"path": first.socket}})
    second.socket = first.socket
    second.start()  # no server can see that the first one listens there
    first.stop()
    with first.connect(arena_bytes=0) as server:
        server.create_table("seconds", 4)


def must_be_refused_by_both(daemon) -> None:
    """`config check` must refuse it too, in the same words, before there is a store."""
    checked = subprocess.run(
        [CLI, "config", "check", daemon.folder / "embtierd.yaml"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env={**os.environ, **daemon.environment},
    )  # fmt: skip
    assert checked.returncode == 1, checked
    why = daemon.fail_to_start()
    assert daemon.config["socket"]["path"] in why and why in checked.stderr
    assert os.listdir(daemon.folder / "rows") == []


@pytest.mark.parametrize("connected", [False, True], ids=["idle", "connected"])
@pytest.mark.parametrize("listens", [False, True], ids=["bound", "listens"])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_a_socket_that_somebody_has_open_stays(make_daemon, kind, listens, connected):
    """The socket may be of any kind, not listening yet, or with a full queue."""
    if kind == socket.SOCK_DGRAM and listens:
        pytest.skip("datagrams need no listening")
    if kind != socket.SOCK_DGRAM and connected and not listens:
        pytest.skip("no client can connect")
    daemon = make_daemon()
    with socket.socket(socket.AF_UNIX, kind) as other, socket.socket(socket.AF_UNIX, kind) as client:
        other.bind(daemon.socket)
        if listens:
            other.listen(0)
        if connected:
            client.connect(daemon.socket)
            if kind == socket.SOCK_DGRAM:
                client.bind(f"{daemon.socket}.client")
                other.connect(f"{daemon.socket}.client")  # it then takes no other datagrams
        inode = os.stat(daemon.socket).st_ino
        must_be_refused_by_both(daemon)
        assert os.stat(daemon.socket).st_ino == inode
        if listens and not connected:
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.accept()  # no client has connected
    daemon.start()  # replaces the dead socket


@pytest.mark.parametrize("directory", ["/proc", "/sys"])
def test_a_directory_that_takes_no_sockets_is_refused_before_the_store_is_made(make_daemon, directory):
    daemon = make_daemon({"socket": {"path": f"{directory}/s"}})
    must_be_refused_by_both(daemon)


def test_a_socket_of_the_longest_path_is_served_and_nothing_is_left_beside_it(make_daemon, tmp_path):
    """The path has 107 bytes: no name fits beside it under which a check could try the directory."""
    folder = tmp_path.joinpath("d" * (107 - len(str(tmp_path)) - len("//s")))
    folder.mkdir()
    daemon = make_daemon({"socket": {"path": f"{folder}/s"}})
    daemon.socket = f"{folder}/s"
    assert len(daemon.socket) == 107
    daemon.start()
    assert os.listdir(folder) == ["s"]
    daemon.stop()
    assert os.listdir(folder) == []


# ---- Configuration ----


def tiers(**changes):
    def change(daemon):
        return {"cache": {"tiers": [daemon.dram(), {**daemon.pmem(), **changes}]}}

    return change


MISTAKES = {
    "unknown_key": ({"lanes": {"cuont": 1}}, "cuont"),
    "unknown_section": ({"lane": {"count": 1}}, "lane"),
    "wrong_type": ({"lanes": {"count": "many"}}, "lanes.count"),
    "zero_lanes": ({"lanes": {"count": 0}}, "lanes.count"),
    "more_lanes_than_shards": ({"lanes": {"count": 5}, "data": {"shards_per_directory": 4}}, "lanes.count"),
    "larger_than_memory": (tiers(bytes="1024TiB"), "1024TiB|1PiB|1125899906842624"),
    "sums_larger_than_memory": ({"lanes": {"request_bytes": "900TiB"}}, "900TiB"),
    "two_tiers_of_one_name": (tiers(name="dram"), "dram"),
    "tier_on_no_file_system": (tiers(path="/nonexistent/pmem"), "/nonexistent/pmem"),
    "tier_of_unknown_kind": (tiers(kind="punched cards"), "punched cards"),
    "missing_directory": ({"data": {"directories": ["/nonexistent/rows"]}}, "/nonexistent/rows"),
    "socket_in_no_directory": ({"socket": {"path": "/nonexistent/socket"}}, "/nonexistent"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_line(make_daemon, mistake):
    change, said = MISTAKES[mistake]
    daemon = make_daemon()
    daemon.configure(change(daemon) if callable(change) else change)
    why = daemon.fail_to_start()
    assert any(word in why for word in said.split("|")), why
    assert not os.listdir(daemon.folder / "rows"), "a refused start has written something"


def test_a_configuration_that_is_not_there_is_named(make_daemon):
    daemon = make_daemon()
    (daemon.folder / "embtierd.yaml").unlink()
    assert "embtierd.yaml" in daemon.fail_to_start()


def test_a_directory_that_may_not_be_written_is_named(make_daemon):
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv, to be another user")
    with tempfile.TemporaryDirectory(prefix="embtier-", dir="/tmp") as folder:
        # Another user can reach this folder; only `rows` is not that user's.
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/rows", 0o755)
        for part in ("socket", "pmem"):
            os.mkdir(f"{folder}/{part}")
            os.chown(f"{folder}/{part}", 65534, 65534)
        daemon = make_daemon(
            {"data": {"directories": [f"{folder}/rows"]}, "socket": {"path": f"{folder}/socket/socket"}}
        )
        daemon.configure(
            {"cache": {"tiers": [daemon.dram(), {**daemon.pmem(), "path": f"{folder}/pmem"}]}}
        )
        config = f"{folder}/embtierd.yaml"
        shutil.copy(daemon.folder / "embtierd.yaml", config)
        os.chmod(config, 0o644)
        me = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        reachable = subprocess.run([*me, "cat", config], capture_output=True).returncode == 0
        if not reachable:
            pytest.skip("another user cannot reach this folder")
        why = daemon.fail_to_start("--config", config, wrapper=me)
        assert f"{folder}/rows" in why
        assert not os.listdir(f"{folder}/rows")


def test_a_changed_number_of_shards_is_refused_and_the_old_one_still_works(make_daemon):
    daemon = make_daemon({"data": {"shards_per_directory": 8}})
    daemon.start()
    with daemon.connect() as server:
        server.create_table("kept", 2).set([3], [[5, 6]])
    daemon.stop()
    daemon.configure({"data": {"shards_per_directory": 16}})
    why = daemon.fail_to_start()
    assert "shards" in why and "8" in why and "16" in why
    daemon.configure({"data": {"shards_per_directory": 8}})
    daemon.start()
    with daemon.connect() as server:
        assert server.open_table("kept").get([3]).tolist() == [[5, 6]]


# ---- Damage ----


def write_and_stop(daemon):
    daemon.start()
    with daemon.connect() as server:
        table = server.create_table("kept", 64)
        for first in range(0, 8000, 2000):
            ids = np.arange(first, first + 2000)
            table.set(ids, np.repeat(ids[:, None], 64, axis=1))
    daemon.stop()


def files_of(daemon, suffix):
    found = [
        os.path.join(folder, file)
        for folder, _, files in os.walk(daemon.folder / "rows")
        for file in files
        if file.endswith(suffix) or file.startswith(suffix)
    ]
    assert found
    return sorted(found)


@pytest.mark.parametrize("suffix", [".sst", "MANIFEST-", "CURRENT"])
@pytest.mark.parametrize("damage", ["removed", "truncated"])
def test_a_damaged_rocksdb_file_stops_the_start_with_its_name(make_daemon, suffix, damage):
    daemon = make_daemon()
    write_and_stop(daemon)
    victim = files_of(daemon, suffix)[-1]
    with open(victim, "rb") as file:
        whole = file.read()
    if damage == "removed":
        os.unlink(victim)
    else:
        os.truncate(victim, len(whole) // 2)
    why = daemon.fail_to_start()
    assert os.path.basename(victim) in why, why
    with open(victim, "wb") as file:
        file.write(whole)
    daemon.start()
    with daemon.connect() as server:
        assert (server.open_table("kept").get([7])[0] == 7).all()


# ---- Direct I/O ----


def test_without_direct_io_it_says_so_in_one_line_and_works(make_daemon):
    daemon = make_daemon()
    daemon.with_fault("no_direct_io")
    daemon.start()
    said = [line for line in daemon.logged("direct I/O") if line["level"] == "warn"]
    assert len(said) == 1 and daemon.metrics()["store_direct_io"] == 0
    rows = np.arange(80000, dtype=np.float32).reshape(5000, 16)
    with daemon.connect() as server:
        server.create_table("rows", 16).set(np.arange(5000), rows)
    daemon.restart()
    with daemon.connect() as server:
        assert (server.open_table("rows").get(np.arange(5000)) == rows).all()
    daemon.stop()


def test_direct_io_that_is_demanded_and_not_there_stops_the_start(make_daemon):
    daemon = make_daemon({"rocksdb": {"direct_io": "on"}})
    daemon.with_fault("no_direct_io")
    assert str(daemon.folder) in daemon.fail_to_start()


def test_direct_io_is_used_where_there_is_some(own_daemon):
    try:
        os.close(os.open(own_daemon.folder / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
    except OSError:
        pytest.skip("no direct I/O here")
    assert own_daemon.metrics()["store_direct_io"] == 1 and not own_daemon.logged("direct I/O")


def test_data_may_lie_on_tmpfs(make_daemon):
    with tempfile.TemporaryDirectory(prefix="embtier-", dir="/dev/shm") as folder:
        daemon = make_daemon({"data": {"directories": [folder]}})
        daemon.start()
        with daemon.connect() as server:
            server.create_table("rows", 16).set([4], np.full((1, 16), 4))
        daemon.restart()
        assert len(daemon.logged("direct I/O")) == (0 if daemon.metrics()["store_direct_io"] else 2)
        with daemon.connect() as server:
            assert (server.open_table("rows").get([4]) == 4).all()
        daemon.stop()
