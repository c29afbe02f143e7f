# SPDX-License-Identifier: Apache-2.0
"""The wheel brings all it needs, the library included. Needs meson-python (Debian: python3-mesonpy)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest
from conftest import TREE

pytest.importorskip("mesonpy")
pytest.importorskip("pip")

_PROGRAM = """
import sys, embtier, embtier._library
assert embtier.__file__.startswith(sys.argv[1]), embtier.__file__
assert embtier._library.lib._name.startswith(sys.argv[1]), embtier._library.lib._name
with embtier.connect(sys.argv[2], timeout=60) as server:
    print(embtier.__version__, server.status()["version"])
"""


def test_a_wheel_works_away_from_the_tree(daemon, tmp_path):
    # The question is what the wheel holds, not its speed, and optimising takes most of the time.
    unoptimised = "--config-settings=setup-args=-Doptimization=0"
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", unoptimised]
    built = subprocess.run(
        [*build, "-w", tmp_path, TREE / "client/python"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "-linux_" in wheel.name
    folder = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    package = TREE / "client/python/embtier"
    sources = {path.relative_to(package) for path in package.rglob("*") if path.is_file() and path.suffix not in (".md", ".pyc")}
    assert sources <= {path.relative_to(folder / "embtier") for path in (folder / "embtier").rglob("*")}
    (command,) = folder.glob("embtier-*.data/scripts/embtier")
    command.chmod(0o755)  # zipfile does not keep modes; pip does
    assert subprocess.run([command, "--help"], capture_output=True, check=False).returncode == 0
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {k: v for k, v in os.environ.items() if k != "EMBTIER_LIBRARY"} | {"PYTHONPATH": path}
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM, folder, daemon.socket],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert len(set(said.stdout.split())) == 1
