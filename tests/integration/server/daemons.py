# SPDX-License-Identifier: Apache-2.0
"""Daemons for the server's tests. They extend those of the Python client's tests (../python/conftest.py) by any configuration,
environment and way to end. They also give access to the log, the figures and the descriptors."""

from __future__ import annotations

import collections
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
HELPERS = str(_HERE)  # for programs that a test starts and that use raw_client
sys.path.insert(0, str(_HERE.parent / "python"))  # for what the file below imports
_spec = importlib.util.spec_from_file_location(
    "python_client_conftest", _HERE.parent / "python/conftest.py"
)
_conftest = importlib.util.module_from_spec(_spec)
sys.modules["python_client_conftest"] = _conftest
sys.path.append(str(_HERE.parent / "python"))  # modules that it imports; behind this folder, which has a conftest too
_spec.loader.exec_module(_conftest)

import embtier  # noqa: E402  (the file above says where it lies)

TREE, EMBTIERD, LANES, SHARDS = _conftest.TREE, _conftest.EMBTIERD, _conftest.LANES, _conftest.SHARDS
TRANSPORT = _conftest.TRANSPORT  # those of TLS are for tests of the client; here tests choose it themselves
assert not TRANSPORT.startswith("tls"), TRANSPORT
under_load = _conftest.under_load
FAULTS = Path(os.environ.get("EMBTIER_FAULTS", EMBTIERD.parents[1] / "tests/faults"))
CLI = Path(os.environ.get("EMBTIER_CLI", EMBTIERD.parents[1] / "tools/embtier"))
FREED_MEMORY = {"MALLOC_PERTURB_": "165"}  # is filled, so that use of it shows without a sanitizer; takes more resident memory
LONG = os.environ.get("EMBTIER_TEST_LONG") == "1"  # tools/check --long, which runs for hours
SANITIZED = b"__asan_init" in EMBTIERD.read_bytes() or b"__tsan_init" in EMBTIERD.read_bytes()

_DATABASE_FILE = re.compile(r"/(\d+\.(sst|log)|MANIFEST-\d+|LOG)( \(deleted\))?$")

START_LIMIT_S = 60
STOP_LIMIT_S = 120

_LOG_LINE = re.compile(
    r'ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z level=(error|warn|info|debug) msg=("(?:[^"\\]|\\.)*"|[^ "=]+)'
    r'((?: [a-z][a-z0-9_]*=("(?:[^"\\]|\\.)*"|[^ "=]*))*)'
)


def merged(base: dict, changes: dict) -> dict:
    """Returns @base with @changes over it, also within sections."""
    result = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


class Daemon(_conftest.Daemon):
    """The daemon of the Python client's tests, with @changes to its configuration. The configuration is written as JSON, which is
    YAML too."""

    def __init__(self, folder: Path, changes: dict | None = None, lanes: int = LANES) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        super().__init__(folder)
        self.config = {
            "data": {"directories": [f"{folder}/rows"], "shards_per_directory": max(SHARDS, lanes), "reserve_bytes": "4MiB"},
            "lanes": {
                "count": lanes,
                "readers_per_lane": 2,
                "request_bytes": "8MiB",
                "ticket_bytes": "4MiB",
                "write_queue_bytes": "4MiB",
            },
            "cache": {"tiers": [self.dram(lanes), self.pmem(lanes)]},
            "rocksdb": {"memtable_bytes": "16MiB", "metadata_cache_bytes": "8MiB"},
            "socket": {"path": self.path, "max_user_sessions": 1024},  # all tests are one user
        }
        if TRANSPORT != "shm":
            self.config["rpc"] = {"listen": [f"unix+rpc:{self.path}.rpc"], "io_uring": "off" if TRANSPORT == "rpc-epoll" else "auto"}
        self.environment: dict[str, str] = {}
        self.options = ["--init"]  # of each start, before the start's own
        self.configure(changes or {})

    # In each tier, for arrays, not for the cache. One slab is for the tables of bent requests; see also the fixture random_homes.
    array_mib = 2

    @classmethod
    def dram(cls, lanes: int = LANES, mib_per_lane: int = 4) -> dict:
        return {"name": "dram", "kind": "dram", **cls._bytes(mib_per_lane * lanes)}

    def pmem(self, lanes: int = LANES, mib_per_lane: int = 2) -> dict:
        return {"name": "pmem", "kind": "file", "path": f"{self.folder}/pmem", **self._bytes(mib_per_lane * lanes)}

    @classmethod
    def _bytes(cls, cache_mib: int) -> dict:
        return {"bytes": f"{cache_mib + cls.array_mib}MiB", "array_bytes": f"{cls.array_mib}MiB"}

    def configure(self, changes: dict) -> None:
        self.config = merged(self.config, changes)
        (self.folder / "embtierd.yaml").write_text(json.dumps(self.config, indent=1) + "\n")

    def with_fault(self, name: str, **environment: str) -> None:
        """From the next start on, preloads a library of tests/faults."""
        library = FAULTS / f"lib{name}.so"
        assert library.exists(), f"{library} is not built"
        self.environment |= {"LD_PRELOAD": str(library), **environment}

    # ---- Running ----

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, *arguments: str, wrapper: tuple[str, ...] = ()) -> None:
        """Starts the process and does not wait for anything."""
        environment = {**os.environ, **self.environment}
        if SANITIZED:  # fault libraries come before the sanitizer's runtime, which would refuse to start
            options = environment.get("ASAN_OPTIONS", "")
            environment["ASAN_OPTIONS"] = f"{options}:verify_asan_link_order=0"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*wrapper, EMBTIERD, *self.options, "--config", self.folder / "embtierd.yaml", *arguments],
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
            )

    def start(self, *arguments: str) -> None:
        self.launch(*arguments)
        self.await_ready()

    def await_ready(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.connect(arena_bytes=0).close()
                return
            except (embtier.UnreachableError, embtier.DisconnectedError):  # an ending server of before may still accept
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline, self.log.read_text()
                time.sleep(0.01)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self.await_end(0)

    def await_end(self, code: int) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        assert self._process.returncode == code, self.log.read_text()
        self._process = None

    def await_any_end(self) -> int:
        assert self._process is not None
        status = self._process.wait(STOP_LIMIT_S)
        self._process = None
        return status

    def restart(self, changes: dict | None = None) -> None:
        self.stop()
        self.configure(changes or {})
        self.start()

    def fail_to_start(self, *arguments: str, wrapper: tuple[str, ...] = ()) -> str:
        """The start must fail with exit status 1. Returns the reason in the last line of the log."""
        before = len(self.log_lines())
        self.launch(*arguments, wrapper=wrapper)
        self.await_end(1)
        lines = self.log_lines()
        assert len(lines) > before
        fields = log_fields(lines[-1])
        assert fields["level"] == "error" and fields["msg"] == "embtierd ends", lines[-1]
        assert sum(log_fields(line)["level"] == "error" for line in lines[before:]) == 1, lines
        return fields["why"]

    def end(self) -> None:
        """Ends the daemon in any state. Sanitizers write findings to its log; each is a failure."""
        if self.is_running:
            self.kill()
        self._process = None
        self.close()
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        found = re.search(r"(?m)^.*(Sanitizer|runtime error:).*$", text)
        assert not found, text[found.start() :][:8000]

    # ---- Looking at it ----

    def log_lines(self) -> list[str]:
        """The complete lines; the last one may still be incomplete."""
        return self.log.read_text().rpartition("\n")[0].splitlines() if self.log.exists() else []

    def logged(self, message: str) -> list[dict[str, str]]:
        return [f for f in map(log_fields, self.log_lines()) if message in f["msg"]]

    def metrics(self) -> dict[str, Any]:
        with self.connect(arena_bytes=0) as server:
            return server.status()["metrics"]

    def _open_files(self) -> list[str]:
        targets = []
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                targets.append(os.readlink(f"/proc/{self.pid}/fd/{name}"))
        return targets

    def descriptors(self) -> dict[str, int]:
        """The number of descriptors of each kind, without files of the daemon's folder, since RocksDB's come and go."""
        return dict(collections.Counter(
            re.sub(r"\d+", "", target) for target in self._open_files() if not target.startswith(str(self.folder))
        ))  # fmt: skip

    def all_descriptors(self) -> dict[str, int]:
        """The same with the files of the daemon's folder, except those that RocksDB opens and closes as it likes: tables, logs
        and manifests of databases (not of checkpoints), and LOG, which it opens with its first line. Rings are left out, since
        each thread makes one with its first read."""
        return dict(collections.Counter(
            re.sub(r"\d+", "", target) for target in self._open_files()
            if target != "anon_inode:[io_uring]" and ("/checkpoints/" in target or not _DATABASE_FILE.search(target))
        ))  # fmt: skip

    def settled_descriptors(self) -> dict[str, int]:
        """all_descriptors(), once they have settled: descriptors of ended sessions are closed by then."""
        found, since = self.all_descriptors(), time.monotonic()
        while time.monotonic() - since < 0.2:
            time.sleep(0.01)
            if (now := self.all_descriptors()) != found:
                found, since = now, time.monotonic()
        return found

    def must_have_closed_all_but(self, wanted: dict[str, int], seconds: float = 60) -> None:
        """Waits until no kind has more than in @wanted. Ended sessions of clients, and work in the background, take a while."""
        deadline = time.monotonic() + seconds
        while more := {
            kind: count - wanted.get(kind, 0)
            for kind, count in self.all_descriptors().items() if count > wanted.get(kind, 0)
        }:  # fmt: skip
            assert time.monotonic() < deadline, f"descriptors are left: {more}"
            time.sleep(0.01)

    def await_metric(self, name: str, wanted: float, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while (value := self.metrics()[name]) != wanted:
            assert time.monotonic() < deadline, f"{name} is {value}, not {wanted}"
            time.sleep(0.02)


def log_fields(line: str) -> dict[str, str]:
    """The fields of a log line, which must be logfmt with ts, level and msg first."""
    assert _LOG_LINE.fullmatch(line), f"not a log line: {line!r}"
    fields = {}
    for key, value in re.findall(r'([a-z][a-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^ "=]*)', line):
        fields[key] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
    return fields
