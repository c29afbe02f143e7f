#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A count of instructions has the program's own, by function, without those of libraries and of callees."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "python"))
import count_instructions  # noqa: E402

# Names are given once, then by number. A line after `calls` has what the callee ran.
COUNTS = """\
events: Ir
ob=(1) /usr/bin/embtierd
fl=(1) get.c
fn=(1) get
10 5
+1 7
cob=(2) /lib/libc.so.6
cfn=(2) memcpy
calls=1 0
* 1000
fn=(3) set
20 11
ob=(2)
fn=(2)
0 1000
ob=(1)
fn=(1)
-3 2
"""


class Counts(unittest.TestCase):
    def counts(self, program):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "counts")
            path.write_text(COUNTS)
            return dict(count_instructions.own_counts(path, program))

    def test_a_program(self):
        self.assertEqual(self.counts("/usr/bin/embtierd"), {"get": 14, "set": 11})

    def test_a_library(self):
        self.assertEqual(self.counts("/lib/libc.so.6"), {"memcpy": 1000})


if __name__ == "__main__":
    unittest.main()
