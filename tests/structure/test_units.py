# SPDX-License-Identifier: Apache-2.0
"""Are the systemd units right, hardened, and of the paths at which the build installs?

Argument: the build folder. Exit status 77, which Meson shows as skipped: the build makes no units."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv.pop(1))
SERVICE = BUILD / "packaging/embtierd.service"
SOCKET = TREE / "packaging/embtierd.socket"
WORST_SCORE = "20"  # tenths: 2.0
ANALYZE = shutil.which("systemd-analyze")


def values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def installed() -> dict[str, str]:
    """Where the build installs each of its files, by name."""
    told = subprocess.run(["meson", "introspect", "--installed", BUILD], capture_output=True, text=True, check=True)
    return {Path(source).name: path for source, path in json.loads(told.stdout).items()}


class Units(unittest.TestCase):
    def test_paths_are_those_of_the_installation(self) -> None:
        paths = installed()
        (start,) = values(SERVICE, "ExecStart")
        program, option, config = start.split()
        self.assertEqual(program, paths["embtierd"])
        self.assertEqual(option, "--config")
        self.assertTrue(config.endswith("/etc/embtier/embtierd.yaml"))
        self.assertEqual(Path(paths["embtierd.service"]).parent, Path(paths["embtierd.socket"]).parent)
        self.assertEqual(values(SERVICE, "ConfigurationDirectory"), ["embtier"] if config.startswith("/etc/") else [])
        self.assertNotIn("@sbindir@", SERVICE.read_text())

    def test_directories_are_the_defaults_of_the_configuration(self) -> None:
        defaults = (TREE / "docs/embtierd.yaml").read_text()
        (state,) = values(SERVICE, "StateDirectory")
        self.assertRegex(defaults, rf"\n    - /var/lib/{state}\n")
        (path,) = values(SOCKET, "ListenStream")
        (runtime,) = values(SERVICE, "RuntimeDirectory")
        self.assertEqual(path, f"/run/{runtime}/embtier.sock")
        self.assertIn(f"\n  path: {path}\n", defaults)
        self.assertIn(f"\n  mode: {values(SOCKET, 'SocketMode')[0]}\n", defaults)

    def test_user_is_the_one_that_packages_make(self) -> None:
        users = re.findall(r"^u +(\S+)", (TREE / "packaging/embtier.sysusers").read_text(), re.MULTILINE)
        self.assertEqual(values(SERVICE, "User") + values(SERVICE, "Group"), users * 2)
        self.assertEqual(values(SOCKET, "SocketUser") + values(SOCKET, "SocketGroup"), users * 2)

    def test_the_manager_is_told_what_the_server_tells(self) -> None:
        self.assertEqual(values(SERVICE, "Type"), ["notify"])
        self.assertIn("-HUP $MAINPID", values(SERVICE, "ExecReload")[0])
        self.assertEqual(len(values(SERVICE, "WatchdogSec")), 1)

    def analyze(self, *arguments: str) -> str:
        """Runs systemd-analyze on copies of the units that need no installation. Returns what it prints on standard error."""
        if not ANALYZE:
            self.skipTest("systemd-analyze is not installed (package systemd)")
        with tempfile.TemporaryDirectory() as folder:
            service = Path(folder) / SERVICE.name
            service.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", SERVICE.read_text(), flags=re.MULTILINE))
            shutil.copy(SOCKET, folder)
            units = [service, Path(folder) / SOCKET.name][: 1 if arguments[0] == "security" else 2]
            done = subprocess.run([ANALYZE, *arguments, *units], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr)
        return done.stderr

    def test_systemd_takes_the_units(self) -> None:
        self.assertEqual(self.analyze("verify", "--man=no"), "")

    def test_the_service_is_exposed_little(self) -> None:
        self.analyze("security", "--offline=true", f"--threshold={WORST_SCORE}", "--no-pager")


if __name__ == "__main__":
    if not SERVICE.exists():
        print("the build makes no units (-Dsystemd=disabled)")
        sys.exit(77)
    unittest.main()
