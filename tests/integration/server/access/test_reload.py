# SPDX-License-Identifier: Apache-2.0
"""A reload of the access file changes what clients may do at once, and takes a whole file or none."""

from __future__ import annotations

import signal
import threading

import embtier
import numpy as np
import pytest
from accessed import PERMISSION, TRANSPORTS, Guarded, await_true, hash_of, new_token


@pytest.fixture
def guarded(tmp_path):
    daemon = Guarded(tmp_path / "guarded")
    daemon.add("trainer", "train", tables=["mine"])
    daemon.start()
    with daemon.connect() as root:
        for name in ("mine", "theirs"):
            root.create_table(name, 4)
    yield daemon
    daemon.stop()
    daemon.end()


def metric(daemon, name: str) -> float:
    return daemon.metrics()[f"access_{name}"]


def test_a_signal_reloads(guarded):
    guarded.user("trainer")["role"] = "read"
    guarded.write()
    with guarded.connect_as("trainer") as server:
        table = server.open_table("mine")
        table.set([1], np.ones((1, 4)))
        guarded.signal(signal.SIGHUP)
        await_true(lambda: metric(guarded, "reloads") == 1, "the reload")
        with pytest.raises(embtier.PermissionError, match="needs role train, and user 'trainer' has role read"):
            table.set([1], np.zeros((1, 4)))
        assert (table.get([1]) == 1).all()
    assert guarded.logged("reads its access file and certificates again; the configuration is not read again")
    await_true(lambda: guarded.logged("reloaded"), "the line of the log")  # it comes after the count


def test_a_user_that_no_client_can_be_is_told(guarded):
    guarded.users.append({"name": "nobody", "role": "admin"})
    guarded.write()
    with guarded.connect() as root:
        root.reload()
    assert [line["why"].split("'")[1] for line in guarded.logged("no client can be this user")] == ["nobody"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_new_rights_apply_to_connections_at_once(guarded, transport):
    with guarded.connect_as("trainer", transport) as server, guarded.connect_as("boss", transport) as boss:
        mine = server.open_table("mine")
        guarded.user("trainer").update(tables=["theirs"], role="read")
        guarded.add("newcomer", "read")
        assert boss.reload() == 3
        with pytest.raises(embtier.PermissionError, match="'mine' is not granted to user 'trainer'"):
            mine.get([1])
        assert server.open_table("theirs").get([1]).shape == (1, 4)
        with guarded.connect_as("newcomer", transport) as newcomer:
            assert newcomer.user() == "newcomer"
        guarded.user("trainer").update(tables=["mine"], role="train")
        guarded.write()
        boss.reload()
        mine.set([1], np.ones((1, 4)))
        assert boss.users()["trainer"]["sessions"]["used"] == 1  # the same account as before


def test_an_import_and_an_export_end_with_the_right(guarded):
    guarded.user("boss")["tables"] = ["mine*"]
    guarded.add("chief", "admin")
    with guarded.connect() as root:
        root.reload()
        root.checkpoint()
    loading = {"spec": {"name": "mine_too", "dim": 4, "dtype": 1}}
    with guarded.raw_as("boss", "shm") as importer, guarded.raw_as("boss", "tcp") as exporter:
        assert importer.error("load_open", loading) == (0, "")
        assert exporter.error("scan_open", {"table": "mine"}) == (0, "")
        guarded.user("boss")["tables"] = ["other"]
        guarded.write()
        with guarded.connect_as("chief") as chief:
            chief.reload()
        rows = {"offset": 20480, "bytes": 24, "rows": 1, "rows_at": 8}
        for client, kind, values in (
            (importer, "load_rows", rows), (importer, "load_end", {}), (exporter, "scan_next", {"offset": 4096, "bytes": 8192}),
        ):  # fmt: skip
            err, said = client.error(kind, values)
            assert err == PERMISSION and "is not granted to user 'boss'" in said, said
        assert importer.error("load_close", {}) == (0, "")
        assert exporter.error("scan_close", {}) == (0, "")
    with guarded.connect() as root:
        assert {table.name for table in root.tables()} == {"mine", "theirs"}


BAD = {
    "yaml": ("users: [", "CONFIG"),
    "role": ("users:\n  - {name: trainer, role: all}\n", "users[0].role"),
    "empty": ("", "names no users"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_leaves_the_old_one_in_force(guarded, kind):
    text, said = BAD[kind]
    with guarded.connect_as("trainer") as server, guarded.connect() as root:
        table = server.open_table("mine")
        guarded.write(text)
        with pytest.raises(embtier.Error, match="what was in force before stays") as caught:
            root.reload()
        assert said in str(caught.value) or said in repr(type(caught.value)).upper(), str(caught.value)
        guarded.signal(signal.SIGHUP)
        await_true(lambda: metric(guarded, "reload_failures") == 2, "the failure")
        table.set([1], np.ones((1, 4)))
        with guarded.connect_as("trainer") as again:
            assert again.user() == "trainer"
        assert metric(guarded, "reloads") == 0 and metric(guarded, "users") == 2
        await_true(lambda: len(guarded.logged("not reloaded")) == 2, "the line of the log")  # it comes after the count
        failed = guarded.logged("not reloaded")[0]
        assert failed["level"] == "error" and failed["err"] == "CONFIG"
        guarded.write()
        assert root.reload() == 2
    guarded.access.chmod(0o666)
    with guarded.connect() as root, pytest.raises(embtier.PermissionError, match="may be written by all users"):
        root.reload()


def test_a_file_that_is_gone_is_told_with_its_key(guarded):
    guarded.access.unlink()
    with guarded.connect() as root, pytest.raises(embtier.ConfigError, match=r"embtierd.yaml:\d+: access.file: cannot read .*: No such file"):
        root.reload()


def test_reloads_while_requests_run(guarded):
    """One user is always granted its table, and gets all its answers. Another loses its grant and gets it back."""
    guarded.add("sometimes", "read", tables=["mine"])
    with guarded.connect() as root:
        root.reload()
    stop, failures, answers = threading.Event(), [], {"trainer": 0, "sometimes": 0, "refused": 0}

    def work(name: str, transport: str) -> None:
        try:
            with connect_lock:
                server = guarded.connect_as(name, transport)
            with server:
                table = server.open_table("mine")
                ready.release()
                while not stop.is_set():
                    try:
                        assert (table.get([1, 2]) == 0).all()
                        answers[name] += 1
                    except embtier.PermissionError:
                        if name == "trainer":
                            raise
                        answers["refused"] += 1
        except BaseException as error:  # passed on to the test's thread
            failures.append(error)
        finally:
            ready.release()

    connect_lock, ready = threading.Lock(), threading.Semaphore(0)
    threads = [
        threading.Thread(target=work, args=(name, transport)) for name in ("trainer", "sometimes") for transport in ("shm", "tcp")
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        ready.acquire()
    try:
        with guarded.connect() as root:
            for round_ in range(40):
                guarded.user("sometimes")["tables"] = ["mine"] if round_ % 2 else ["theirs"]
                guarded.write()
                root.reload()
                root.create_table(f"passing_{round_}", 1)
                root.drop_table(f"passing_{round_}")
                if round_ == 0:
                    await_true(lambda: answers["refused"] > 0 or failures, "a refusal")
            await_true(lambda: all(answers.values()) or failures, "an answer for each")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def test_a_stop_during_reloads(guarded):
    with guarded.connect() as root:
        for _ in range(20):
            guarded.signal(signal.SIGHUP)
        assert root.status()


def test_a_token_that_is_replaced_works_with_the_next_hello(guarded):
    fresh = new_token()
    guarded.user("trainer")["tokens"].append(hash_of(fresh))
    guarded.write()
    with pytest.raises(embtier.PermissionError):
        guarded.connect_with(fresh)
    with guarded.connect() as root:
        root.reload()
    with guarded.connect_with(fresh) as server:
        assert server.user() == "trainer"
