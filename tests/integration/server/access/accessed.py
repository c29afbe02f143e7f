# SPDX-License-Identifier: Apache-2.0
"""Daemons with an access file, and users of it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from certificates import Authority
from daemons import CLI, Daemon, embtier
from raw_any import RawAny

PERMISSION = 16
TRANSPORTS = ["shm", "unix+rpc", "tcp", "tls"]


def new_token() -> str:
    return "embt_" + base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")


def hash_of(token: str) -> str:
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class Guarded(Daemon):
    """A daemon with an access file, which listens on each transport. It starts with one administrator."""

    def __init__(self, folder: Path, changes: dict | None = None) -> None:
        super().__init__(folder, changes)
        self.access = folder / "access.yaml"
        self.tokens: dict[str, str] = {}
        self.users: list[dict] = []
        self.authority = Authority(folder / "ca")
        certificate, key = self.authority.sign("server", "IP:127.0.0.1")
        self.configure({
            "tls": {"certificate": str(certificate), "key": str(key), "client_ca": str(self.authority.certificate)},
            "access": {"file": str(self.access)},
            "rpc": {"listen": ["tcp://127.0.0.1:0", "tls://127.0.0.1:0", f"unix+rpc:{self.path}.rpc"]},
            "socket": {"path": self.path, "mode": "0666"},
        })  # fmt: skip
        Path(self.path).parent.chmod(0o755)
        self.add("boss", "admin")

    def add(self, name: str, role: str, **more) -> str:
        """Adds a user with a token, from the next start or reload on. Returns the token."""
        self.tokens[name] = new_token()
        self.users.append({"name": name, "role": role, "tokens": [hash_of(self.tokens[name])], **more})
        self.write()
        return self.tokens[name]

    def user(self, name: str) -> dict:
        return next(user for user in self.users if user["name"] == name)

    def write(self, text: str | None = None) -> None:
        self.access.unlink(missing_ok=True)
        self.access.write_text(text if text is not None else json.dumps({"users": self.users}, indent=1))
        self.access.chmod(0o600)

    def address(self, transport: str) -> str:
        if transport in ("tcp", "tls"):
            at = re.compile(transport + r"://127\.0\.0\.1:\d+")
            address = next(m[0] for line in self.log_lines() if (m := at.search(line)))
            return f"{address}?ca={self.authority.certificate}" if transport == "tls" else address
        return self.path if transport == "shm" else f"unix+rpc:{self.path}.rpc"

    def connect_as(self, name: str, transport: str = "shm", **options) -> embtier.Server:
        return self.connect_with(self.tokens[name], transport, **options)

    def connect_with(self, token: str, transport: str = "shm", mode: int = 0o600, **options) -> embtier.Server:
        with token_file(self.folder, token, mode):
            return embtier.connect(self.address(transport), **({"timeout": 60, "arena_bytes": 1 << 20} | options))

    def run_as(self, name: str, transport: str, *arguments: str | Path, code: int = 0) -> tuple[str, str]:
        """Runs the command line as a user. Returns what it has printed to both streams."""
        with token_file(self.folder, self.tokens[name]):
            command = [CLI, "--timeout", "60", "--socket", self.address(transport), *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done
        return done.stdout, done.stderr

    def raw_as(self, name: str, transport: str) -> RawAny:
        return RawAny(self.address(transport), self.tokens[name])


@contextlib.contextmanager
def token_file(folder: Path, token: str, mode: int = 0o600) -> Iterator[Path]:
    """Names a file with the token to libembtier."""
    path = folder / "token"
    path.unlink(missing_ok=True)
    path.write_text(token + "\n")
    path.chmod(mode)
    os.environ["EMBTIER_TOKEN_FILE"] = str(path)
    try:
        yield path
    finally:
        del os.environ["EMBTIER_TOKEN_FILE"]


def await_true(condition, what: str = "the condition") -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.01)
