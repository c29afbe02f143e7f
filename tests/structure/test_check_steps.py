#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of tools/check that need what another step has made: they come after it, and are skipped without it."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CHECK = os.path.join(ROOT, "tools", "check")
SKIPPED = 77


class Steps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_step(self, *words):
        """Runs a step in a build folder that has nothing, on a machine that has buildah."""
        fake = f"{self.folder}/buildah"
        with open(fake, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 1\n")
        os.chmod(fake, 0o755)
        environment = os.environ | {"EMBTIER_BUILD_ROOT": self.folder, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = [CHECK, "--run-step", self.folder, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def test_a_container_is_skipped_without_its_packages(self):
        done = self.run_step("container", "step_container")
        self.assertEqual(done.returncode, SKIPPED, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "skipped: there are no packages; the step package-12 makes them")

    def test_a_container_comes_after_its_packages(self):
        listed = subprocess.run([CHECK, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        names = [line.split()[0] for line in listed]
        self.assertLess(names.index("package-12"), names.index("container"))


if __name__ == "__main__":
    unittest.main()
