#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/install-packages installs the needed packages, and optional ones only where that works. apt is a fake."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# $FAKE holds lists of names: installed, unknown (in no list of apt), broken (apt cannot install them), and calls.
# Without a file `lists`, apt knows nothing.
PROGRAMS = {
    "id": "echo 0",
    "dpkg-query": "sed 's/$/ installed/' $FAKE/installed",
    "apt-cache": """[[ -f $FAKE/lists ]] || { [[ $1 == madison ]]; exit; }
        case $1 in madison) echo "$2 | 1 | mirror" ;; show) ! grep -qx "${@: -1}" $FAKE/unknown ;; esac""",
    "apt-get": """while [[ $1 == -* ]]; do [[ $1 != -o ]] || shift; shift; done
        echo "$*" >>$FAKE/calls
        [[ $1 != update ]] || { touch $FAKE/lists; exit; }
        shift
        for name; do [[ $name == -* ]] || ! grep -qx "$name" $FAKE/broken || { echo "E: $name"; exit 100; }; done
        for name; do echo "$name" >>$FAKE/installed; done""",
}


class InstallPackages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.fake = folder.name
        for name, text in PROGRAMS.items():
            with open(f"{self.fake}/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{text}\n")
            os.chmod(f"{self.fake}/{name}", 0o755)
        for name in ("installed", "unknown", "broken", "calls"):
            self.put(name)
        self.put("lists")

    def put(self, name, *lines):
        with open(f"{self.fake}/{name}", "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def lines(self, name):
        with open(f"{self.fake}/{name}", encoding="utf-8") as file:
            return file.read().splitlines()

    def install(self, *arguments):
        environment = {k: v for k, v in os.environ.items() if k != "EMBTIER_SKIP_PACKAGES"}
        environment |= {"FAKE": self.fake, "PATH": f"{self.fake}:{os.environ['PATH']}"}
        command = [f"{ROOT}/tools/install-packages", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def packages(self):
        """The needed and the optional packages of a build."""
        names = [line.split()[0] for line in self.install("--list", "build").stdout.splitlines()]
        needed, optional = [name for name in names if name[-1] != "?"], [name[:-1] for name in names if name[-1] == "?"]
        self.assertTrue(needed and optional)
        return needed, optional

    def test_everything_is_installed_at_once(self):
        needed, optional = self.packages()
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(set(needed + optional), set(self.lines("installed")))
        self.assertEqual(len(self.lines("calls")), 1)
        self.put("calls")
        self.assertEqual(self.install("build").returncode, 0)
        self.assertEqual(self.lines("calls"), [])

    def test_optional_package_that_cannot_be_installed_keeps_no_other_out(self):
        needed, optional = self.packages()
        self.put("broken", optional[0])
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.lines("installed")) & set(needed + optional), set(needed + optional[1:]))
        self.assertIn(f"not installed, and not needed: {optional[0]})", done.stdout)

    def test_optional_packages_come_without_each_other(self):
        needed, optional = self.packages()
        self.assertGreater(len(optional), 2)
        self.put("installed", *needed)
        self.put("broken", optional[0], optional[2])
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(set(self.lines("installed")) & set(optional), {optional[1], *optional[3:]})
        self.assertIn(f"not installed, and not needed: {optional[0]} {optional[2]})", done.stdout)

    def test_package_that_is_optional_for_one_purpose_is_needed_for_another(self):
        libraries = ["libpmem-dev", "libhwloc-dev"]
        self.put("broken", *libraries)
        self.assertEqual(self.install("build").returncode, 0)
        for purpose in ("train", "test"):
            for name in libraries:
                with self.subTest(purpose=purpose, name=name):
                    self.put("installed")
                    self.put("broken", name)
                    done = self.install("build", purpose)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn(name, done.stderr)

    def test_optional_package_alone_fails_nothing(self):
        needed, optional = self.packages()
        self.put("installed", *needed)
        self.put("broken", *optional)
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"all {len(needed)} packages are installed", done.stdout)

    def test_needed_package_that_cannot_be_installed_is_a_failure(self):
        needed, _ = self.packages()
        self.put("broken", needed[0])
        done = self.install("build")
        self.assertEqual(done.returncode, 1)
        self.assertIn(needed[0], done.stderr)
        self.assertEqual(self.lines("installed"), [])

    def test_needed_package_is_not_asked_for_twice_in_vain(self):
        needed, optional = self.packages()
        self.put("installed", *optional, *needed[1:])
        self.put("broken", needed[0])
        self.assertEqual(self.install("build").returncode, 1)
        self.assertEqual([call.split()[0] for call in self.lines("calls")], ["install", "update", "install"])

    def test_optional_package_that_the_release_lacks_is_not_asked_for(self):
        _, optional = self.packages()
        self.put("unknown", *optional)
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not in this release", done.stdout)
        self.assertEqual(set(self.lines("installed")) & set(optional), set())

    def test_lists_are_made_where_there_are_none(self):
        needed, optional = self.packages()
        self.put("installed", *needed)  # gcc too, which does not mean that apt has lists
        os.remove(f"{self.fake}/lists")
        done = self.install("build")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lines("calls")[0], "update")
        self.assertLessEqual(set(optional), set(self.lines("installed")))


if __name__ == "__main__":
    unittest.main()
