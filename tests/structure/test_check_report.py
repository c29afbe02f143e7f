#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check counts results correctly; a wrong count would hide a failure."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import check_report  # noqa: E402


def counts(status, said="", **reports):
    """PASSED FAILED SKIPPED, and the printed text, for a step with @reports (name to text)."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in ({"log": said} | reports).items():
            paths.append(os.path.join(folder, name.replace("_", ".")))
            if text is not None:
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(text)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert check_report.main([str(status)] + paths) == 0
        return out.getvalue().strip(), err.getvalue()


def meson(*results, stdout=""):
    return "".join(json.dumps({"name": f"t{i}", "result": result, "stdout": stdout}) + "\n"
                   for i, result in enumerate(results))


class Counts(unittest.TestCase):
    def test_step_without_reports_is_one_check(self):
        for status, expected in ((0, "1 0 0"), (1, "0 1 0"), (77, "0 0 1"), (124, "0 1 0")):
            self.assertEqual(counts(status, "said")[0], expected)
        self.assertIn("said", counts(1, "said")[1])

    def test_every_result_of_meson_that_is_no_pass_is_a_failure(self):
        self.assertEqual(counts(0, t_json=meson("OK", "EXPECTEDFAIL", "SKIP"))[0], "2 0 1")
        for bad in ("FAIL", "TIMEOUT", "ERROR", "INTERRUPT", "UNEXPECTEDPASS", "something new"):
            self.assertEqual(counts(1, t_json=meson("OK", bad))[0], "1 1 0", bad)

    def test_cmocka_tests_are_counted_one_by_one(self):
        lines = "[       OK ] test_a\n[  SKIPPED ] test_b\n[  FAILED  ] test_c\n[  FAILED  ] test_c\n"
        self.assertEqual(counts(1, t_json=meson("FAIL", stdout=lines))[0], "1 1 1")
        said = counts(1, t_json=meson("FAIL", stdout=lines + "why it failed"))[1]
        self.assertEqual(said.count("why it failed"), 1)

    def test_crash_after_passing_tests_is_a_failure(self):
        lines = "[       OK ] test_a\n[ RUN      ] test_b\n"
        self.assertEqual(counts(1, t_json=meson("FAIL", stdout=lines))[0], "1 1 0")

    def test_pytest_cases_are_counted(self):
        text = ('<testsuites><testsuite><testcase classname="m" name="a"/>'
                '<testcase classname="m" name="b"><failure message="x">trace</failure></testcase>'
                '<testcase classname="m" name="c"><skipped/></testcase>'
                '<testcase classname="m" name="d"><error>setup</error></testcase></testsuite></testsuites>')
        result, said = counts(1, t_xml=text)
        self.assertEqual(result, "1 2 1")
        self.assertIn("trace", said)
        self.assertIn("setup", said)

    def test_notes_of_tests_that_pass_are_printed(self):
        text = ('<testsuite><testcase classname="m" name="a"><properties><property name="note" value="half of it"/>'
                '<property name="other" value="unsaid"/></properties></testcase></testsuite>')
        result, said = counts(0, t_xml=text)
        self.assertEqual(result, "1 0 0")
        self.assertEqual(said, "---- NOTE: m.a: half of it\n")

    def test_report_that_is_missing_empty_or_broken_is_a_failure(self):
        self.assertEqual(counts(0, t_json=None)[0], "0 1 0")
        self.assertEqual(counts(0, t_json="")[0], "0 1 0")
        self.assertEqual(counts(0, t_json="{")[0], "0 1 0")
        self.assertEqual(counts(0, t_xml="<a>")[0], "0 1 0")
        self.assertIn("why", counts(1, "why", t_json=None)[1])

    def test_status_without_a_failed_test_is_a_failure(self):
        self.assertEqual(counts(1, t_json=meson("OK"))[0], "1 1 0")


if __name__ == "__main__":
    unittest.main()
