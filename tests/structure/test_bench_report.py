#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A report of tools/bench says for each figure the bar or tolerance, and whether it is met."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import bench_report  # noqa: E402


def figure(**changes):
    return {
        "name": "some-get", "unit": "rows/s", "better": "higher", "ours": 3e6, "reference": 2e6,
        "reference_name": "a <b>", "ratio": 1.5, "ratio_quartiles": [1.4, 1.6], "n": 9,
    } | changes  # fmt: skip


class Report(unittest.TestCase):
    def line(self, **changes):
        return bench_report.table([figure(**changes)]).splitlines()[-1]

    def test_a_bar_that_is_met_or_missed(self):
        self.assertIn("| at least 1.2, met |", self.line(bar=1.2, met=True))
        self.assertIn("| at most 1.2, NOT MET |", self.line(bar=1.2, met=False, better="lower"))

    def test_a_tolerance(self):
        self.assertIn("| 1 ± 0.02, NOT MET |", self.line(tolerance=0.02, met=False, better="equal"))

    def test_no_bar(self):
        line = self.line()
        self.assertIn("| 3 Mrows/s | 2 Mrows/s | 1.5 (1.4 to 1.6, 9) |  |  | a <b> |", line)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            bench_report.write(Path(folder), [figure(), figure(name="other", met=False, bar=2)])
            page = (Path(folder) / "report.html").read_text()
            self.assertEqual(sorted(os.listdir(folder)), ["figures.jsonl", "report.html", "report.md"])
            self.assertEqual((Path(folder) / "figures.jsonl").read_text().count("\n"), 2)
            self.assertIn("a &lt;b&gt;", page)
            self.assertIn('class="missed"', page)


if __name__ == "__main__":
    unittest.main()
