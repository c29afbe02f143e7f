# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, by the program openssl: an authority and those that it signs; and addresses for servers with TLS."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

_hosts = itertools.count(1)
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Authority:
    """Signs certificates. Files lie in @folder: NAME.crt and NAME.key, and for the authority itself ca.crt and ca.key."""

    def __init__(self, folder: Path, name: str = "an authority of tests") -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        folder.mkdir(parents=True, exist_ok=True)
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", f"/CN={name}")

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def below(self, folder: Path, name: str, days: int = 2, constraints: str = "critical,CA:TRUE") -> Authority:
        """Returns an authority that this one has signed, with these basic constraints."""
        folder.mkdir(parents=True, exist_ok=True)
        made = Authority.__new__(Authority)
        made.folder, made.certificate = folder, folder / "ca.crt"
        for source, name_there in zip(self.sign(name, days=days, constraints=constraints), ("ca.crt", "ca.key")):
            (folder / name_there).write_bytes(source.read_bytes())
        return made

    def sign(self, name: str, alternative: str = "", days: int = 2, usage: str = "", constraints: str = "") -> tuple[Path, Path]:
        """Makes a certificate with the subject CN=@name, valid for @days from now on; negative: it has expired. @usage: what it is for
        alone, such as serverAuth. Returns its file and its key's."""
        lines = [f"subjectAltName={alternative}\n" if alternative else "", f"extendedKeyUsage={usage}\n" if usage else ""]
        lines.append(f"basicConstraints={constraints}\n" if constraints else "")
        (self.folder / f"{name}.ext").write_text("".join(lines))
        self._openssl("req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-days", str(days),
                      "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"


def own_host() -> str:
    """A number of loopback that no other daemon of this run listens at, so that all may have the same port."""
    process = os.getpid() % (250 * 250)
    return f"127.{next(_hosts) % 250 + 1}.{process // 250 + 1}.{process % 250 + 1}"
