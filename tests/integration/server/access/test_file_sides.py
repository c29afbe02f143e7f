# SPDX-License-Identifier: Apache-2.0
"""Files of exports and imports lie on the client's side. The server has another file system at their path, as a server on another host
has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from accessed import TRANSPORTS, Guarded

import embtier

ROWS, DIM = 50, 4
VALUES = np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM)


class Apart(Guarded):
    """A server that sees an empty file system of its own in place of the folder of files."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.files = folder / "files"
        self.files.mkdir()

    def start(self) -> None:
        wrapper = ("unshare", "-Urm", "sh", "-c", f'mount -t tmpfs -o size=16m none {self.files} && exec "$0" "$@"')
        done = subprocess.run([*wrapper, "true"], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            pytest.skip(f"no file system of the server's own here: {done.stderr.strip()}")
        self.launch(wrapper=wrapper)
        self.await_ready()
        assert self.seen.stat().st_dev != self.files.stat().st_dev

    @property
    def seen(self) -> Path:
        """The folder of files, as the server sees it."""
        return Path(f"/proc/{self.pid}/root{self.files}")


@pytest.fixture(scope="module")
def apart(tmp_path_factory) -> Iterator[Apart]:
    daemon = Apart(tmp_path_factory.mktemp("apart"))
    try:
        daemon.start()
        yield daemon
        daemon.stop()
    finally:
        daemon.end()


def by_library(apart: Apart, transport: str, table: str, folder: Path) -> None:
    with apart.connect_as("boss", transport) as server:
        server.export_table(table, str(folder))
        server.import_table(str(folder), f"{table}_again")


def by_command(apart: Apart, transport: str, table: str, folder: Path) -> None:
    apart.run_as("boss", transport, "export", table, folder)
    apart.run_as("boss", transport, "import", folder, "--as", f"{table}_again")


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("transfer", [by_library, by_command])
def test_an_export_and_an_import_leave_their_files_with_the_client(apart, transfer: Callable, transport):
    name = f"{transfer.__name__}_{transport.replace('+', '_')}"
    folder = apart.files / name
    with apart.connect_as("boss", transport) as server:
        server.create_table(name, DIM, ROWS).set(np.arange(ROWS), VALUES)
        transfer(apart, transport, name, folder)
        assert (server.open_table(f"{name}_again").get(np.arange(ROWS)) == VALUES).all()
    assert "table.json" in {path.name for path in folder.iterdir()}
    assert sum(path.stat().st_size for path in folder.iterdir()) >= VALUES.nbytes
    assert list(apart.seen.iterdir()) == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_files_that_the_server_alone_has_cannot_be_imported(apart, transport):
    """No client reaches files of the server's host."""
    hidden = apart.seen / "rows.npy"
    np.save(hidden, VALUES)
    try:
        with apart.connect_as("boss", transport) as server, pytest.raises(embtier.Error, match="No such file"):
            server.import_table(str(apart.files / "rows.npy"), "hidden")
    finally:
        hidden.unlink()
