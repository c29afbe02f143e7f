# SPDX-License-Identifier: Apache-2.0
"""When any disk call of a client that exports or imports a table fails, once or from then on, the client says so. Whatever is at
the export's or table's place is whole, and a second try succeeds.

The long form makes every kind of call fail with every error: the first, the last and others. The short form tries some of them.
EMBTIER_TEST_FAULT=CASE: only that one, named as failures name it, such as export-write-other-EIO-from-3."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from daemons import CLI, FAULTS, LONG, SANITIZED
from failing_io import Control, Fault, faults_of

ONLY = os.environ.get("EMBTIER_TEST_FAULT")
MOST = 4 if SANITIZED else 10**6 if LONG else 30  # per format
ROWS = 1000
REASONS = {name: os.strerror(getattr(errno, name)) for name in ("EIO", "ENOSPC", "EDQUOT", "EINTR")}


class Client:
    """A client whose files are all in a folder of its own."""

    def __init__(self, daemon, folder, format) -> None:
        self.daemon, self.format = daemon, format
        self.folder, self.path = folder / "exports", folder / "exports" / "rows"
        self.folder.mkdir()
        self.control = Control(folder / "control")
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(FAULTS / "libfailing_io.so"),
            "EMBTIER_FAULT_FOLDER": str(self.folder),
            "EMBTIER_FAULT_CONTROL": str(self.control.path),
            "ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0",
        }
        self.server = daemon.connect()
        table = self.server.create_table("rows", 64, optimizer="adagrad")
        table.set(np.arange(ROWS) * 7, np.arange(ROWS * 64, dtype=np.float32).reshape(ROWS, 64))
        self.wanted = self.contents("rows")
        self.server.checkpoint()

    def contents(self, name):
        return [part.tobytes() for part in self.server.open_table(name).get_with_state(np.arange(ROWS) * 7)]

    def run(self, *arguments) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [CLI, "-s", self.daemon.socket, *arguments],
            env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def export(self):
        return self.run("export", "rows", str(self.path), "--checkpoint", "newest", "--state", "--format", self.format,
                        "--file-bytes", "200KiB")  # fmt: skip

    def load(self):
        return self.run("import", str(self.path), "--as", "back")

    def check_table(self) -> None:
        assert self.contents("back") == self.wanted
        self.server.drop_table("back")

    def check_files(self) -> None:
        self.server.import_table(self.path, "back")
        self.check_table()

    def has_table(self) -> bool:
        return "back" in {spec.name for spec in self.server.tables()}


def must_say_why(done, fault) -> None:
    """The client must end with status 1 and say why. After a short transfer the reason may be another one."""
    assert done.returncode == 1, done
    assert re.match(r"embtier: .+", done.stderr), done
    assert fault.error == "SHORT" or REASONS[fault.error] in done.stderr, done


def run_export(client, fault) -> bool:
    """True if the fault happened."""
    client.control.arm(fault)
    done = client.export()
    failed = client.control.disarm()
    there = {child.name for child in client.folder.iterdir()}
    assert there <= {"rows", "rows.partial"}, there
    if done.returncode != 0:
        must_say_why(done, fault)
    if client.path.exists():  # the only call that failed may be the last sync
        client.check_files()
        shutil.rmtree(client.path)
    else:
        assert done.returncode != 0, "it is not there"
    again = client.export()
    assert again.returncode == 0, again
    assert {child.name for child in client.folder.iterdir()} == {"rows"}, "something is left of the one before"
    client.check_files()
    shutil.rmtree(client.path)
    return failed > 0


def run_import(client, fault) -> bool:
    assert client.export().returncode == 0
    client.control.arm(fault)
    done = client.load()
    failed = client.control.disarm()
    if done.returncode == 0:
        client.check_table()
    else:
        must_say_why(done, fault)
        assert not client.has_table(), "half of it is there"
        again = client.load()
        assert again.returncode == 0, again
        client.check_table()
    shutil.rmtree(client.path)
    return failed > 0


RUN = {"export": run_export, "import": run_import}


def sites(client) -> dict[str, dict]:
    """The number of times that each site is passed."""
    start = client.control.counts()
    assert client.export().returncode == 0
    exported = client.control.counts()
    assert client.load().returncode == 0
    loaded = client.control.counts()
    client.check_table()
    shutil.rmtree(client.path)
    return {
        "export": {site: count - start[site] for site, count in exported.items() if count > start[site]},
        "import": {site: count - exported[site] for site, count in loaded.items() if count > exported[site]},
    }


def chosen(client, rng) -> list[tuple[str, Fault]]:
    if ONLY:
        what, _, fault = ONLY.partition("-")
        return [(what, Fault.parse(fault))] if what in RUN else pytest.skip("EMBTIER_TEST_FAULT names another one")
    cases = [
        (what, Fault(call, kind, error, on, at))
        for what, counts in sites(client).items()
        for (call, kind), count in counts.items()
        for error, on in faults_of(call)
        for at in sorted({1, (count + 1) // 2, count, rng.randint(1, count)})
    ]
    assert len({(fault.call, fault.kind) for _, fault in cases}) > 10, "are they counted?"
    return cases if MOST >= len(cases) else rng.sample(cases, MOST)


@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_whatever_call_of_a_client_fails_what_is_there_is_whole(make_daemon, tmp_path, rng, format):
    daemon = make_daemon({"data": {"shards_per_directory": 1}, "checkpoints": {"interval_seconds": 0}}, lanes=1)
    daemon.start()
    client = Client(daemon, tmp_path, format)
    cases, happened, failures = chosen(client, rng), 0, []
    for what, fault in cases:
        try:
            happened += RUN[what](client, fault)
        except AssertionError as error:
            failures.append(f"EMBTIER_TEST_FAULT={what}-{fault}: {error}"[:1500])
            print(failures[-1], flush=True)
            shutil.rmtree(client.folder)
            client.folder.mkdir()
            if client.has_table():
                client.server.drop_table("back")
    client.server.close()
    print(f"{format}: {len(cases)} faults, {happened} happened, {len(failures)} wrong")
    assert not failures, "\n".join(failures)
    assert 10 * happened >= 9 * len(cases), "hardly any fault happened"
