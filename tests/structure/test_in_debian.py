#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/in-debian makes a chroot once, and tells a failure from a machine that cannot make one. The programs it calls are
fakes."""

import os
import subprocess
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# $FAKE holds each program's calls, one per line. A file PROGRAM.status has its exit status. A file `runs` tells debootstrap the
# number of runs: it waits, for a minute at most, until each has come to flock or to debootstrap.
RECORD = 'name=${0##*/}; echo "$*" >>"$FAKE/$name.calls"; status=$(cat "$FAKE/$name.status" 2>/dev/null || echo 0)'
PROGRAMS = {
    "id": "[[ $status != 0 ]] || echo 0",
    "unshare": "while [[ $1 == --* ]]; do [[ $1 != --propagation ]] || shift; shift; done; exec \"$@\"",
    "mount": "",
    "wget": "",
    "debootstrap": """
        runs=$(cat "$FAKE/runs" 2>/dev/null || echo 1) left=600
        come() { cat "$FAKE/$1.calls" 2>/dev/null | wc -l; }
        while (($(come flock) < runs && $(come debootstrap) < runs)); do
            ((left-- > 0)) || exit 1
            sleep 0.1
        done
        mkdir -p "${@: -2:1}/etc"
        echo "E: said"
        """,
    "flock": "PATH=${PATH#*:}; exec flock \"$@\"",
    "chroot": "",
}


class InDebian(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.fake = folder.name
        self.chroot = f"{self.fake}/root with blanks/build-debian-sid"
        for name, text in PROGRAMS.items():
            with open(f"{self.fake}/{name}", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/bash\n{RECORD}\n{text}\nexit $status\n")
            os.chmod(f"{self.fake}/{name}", 0o755)

    def put(self, name, text=""):
        os.makedirs(os.path.dirname(f"{self.fake}/{name}"), exist_ok=True)
        with open(f"{self.fake}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def calls(self, name):
        try:
            with open(f"{self.fake}/{name}.calls", encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def start(self, **variables):
        environment = os.environ | {"FAKE": self.fake, "PATH": f"{self.fake}:{os.environ['PATH']}"} | variables
        environment["EMBTIER_BUILD_ROOT"] = os.path.dirname(self.chroot)
        return subprocess.Popen([f"{ROOT}/tools/in-debian", "sid", "program", "a b"], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip

    def run_in_debian(self, **variables):
        run = self.start(**variables)
        _, said = run.communicate()
        return run.returncode, said

    def test_chroot_is_made_once_and_checked(self):
        self.put("chroot.status", "7")
        for _ in range(2):
            self.assertEqual(self.run_in_debian()[0], 7)
        (call,) = self.calls("debootstrap")
        self.assertIn(f"sid {self.chroot} http", call)
        self.assertEqual("--force-check-gpg" in call, os.path.exists(KEYRING))
        self.assertEqual(sum("debootstrap" in call for call in self.calls("unshare")), 1)  # in its own mount namespace
        self.assertEqual(len(self.calls("chroot")), 2)
        self.assertTrue(self.calls("chroot")[0].endswith(" program a b"))

    def test_chroot_that_was_made_before_is_taken_as_it_is(self):
        self.put("root with blanks/build-debian-sid/.made")
        self.put("root with blanks/build-debian-sid/kept")
        self.put("debootstrap.status", "1")
        self.assertEqual(self.run_in_debian()[0], 0)
        self.assertEqual(self.calls("debootstrap"), [])
        self.assertTrue(os.path.exists(f"{self.chroot}/kept"))

    def test_half_made_chroot_is_made_anew(self):
        self.put("root with blanks/build-debian-sid/var/left")
        self.assertEqual(self.run_in_debian()[0], 0)
        self.assertFalse(os.path.exists(f"{self.chroot}/var"))

    def test_two_runs_make_one_chroot(self):
        self.put("runs", "2")
        runs = [self.start() for _ in range(2)]
        for run in runs:
            run.communicate()
        self.assertEqual([run.returncode for run in runs], [0, 0])
        self.assertEqual(len(self.calls("debootstrap")), 1)

    def test_failure_of_debootstrap_is_a_failure_if_the_mirror_answers(self):
        self.put("debootstrap.status", "1")
        status, said = self.run_in_debian()
        self.assertEqual(status, 1)
        self.assertIn("E: said", said)
        self.put("wget.status", "4")
        self.assertEqual(self.run_in_debian()[0], 69)
        self.assertEqual(self.calls("chroot"), [])
        self.put("debootstrap.status", "0")
        self.assertEqual(self.run_in_debian()[0], 0)

    def test_machine_without_the_right_to_do_it_is_told_apart(self):
        self.put("mount.status", "1")
        self.assertEqual(self.run_in_debian()[0], 69)
        self.put("mount.status", "0")
        self.put("id.status", "1")
        self.assertEqual(self.run_in_debian()[0], 69)
        self.assertEqual(self.calls("debootstrap"), [])

    def test_few_variables_get_in(self):
        given = {"CC": "cc", "EMBTIER_SKIP_PACKAGES": "1", "EMBTIERD": "x", "PYTHONPATH": "x", "http_proxy": "http://p",
                 "EMBTIER_TEST_SEED": "1 2", "EMBTIER_BUILD_OPTIONS": "-Da=b -Dc=d"}  # fmt: skip
        self.assertEqual(self.run_in_debian(**given)[0], 0)
        (call,) = self.calls("chroot")
        self.assertTrue(call.startswith(f"{self.chroot} /usr/bin/env -i HOME=/root PATH="), call)
        for text in ("http_proxy=http://p", "EMBTIER_TEST_SEED=1 2", "EMBTIER_BUILD_OPTIONS=-Da=b -Dc=d",
                     "EMBTIER_BUILD_ROOT=/build", "LC_ALL=C.UTF-8"):  # fmt: skip
            self.assertIn(f" {text} ", call)
        for name in ("CC", "EMBTIER_SKIP_PACKAGES", "EMBTIERD", "PYTHONPATH", "FAKE"):
            self.assertNotIn(f" {name}=", call)


if __name__ == "__main__":
    unittest.main()
