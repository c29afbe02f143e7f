#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the results of a step of tools/check, and prints its failures in full.

    check_report.py STATUS LOG [REPORT...]    one step: its exit status, its output, its test reports

Prints the failures on standard error and `PASSED FAILED SKIPPED` on standard output, and the notes of
tests that could do a part of their work only (record_property("note", …)). A step without reports is
one check. A report is meson's testlog.json (meson's junit file counts a timeout as a pass) or
a junit file of pytest. A program of cmocka tests counts as its tests. A report without tests is a
failure: nothing was proved.
"""

import contextlib
import json
import re
import sys
import xml.etree.ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
SKIP_STATUS = 77
MESON_RESULTS = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}


CMOCKA_LINE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+)$", re.MULTILINE)
CMOCKA_RESULTS = {"OK": PASSED, "FAILED": FAILED, "SKIPPED": SKIPPED}


def program_results(name, result, details):
    """Returns the tests of a program by the output of cmocka; else the program as one test."""
    found = {test: CMOCKA_RESULTS[word] for word, test in CMOCKA_LINE.findall(details)}
    if not found:
        return [(name, result, details)]
    results = [(f"{name}: {test}", outcome, "") for test, outcome in found.items() if outcome != FAILED]
    failures = [test for test, outcome in found.items() if outcome == FAILED]
    if result == FAILED and not failures:
        failures = ["ended badly"]  # a crash, a timeout, a sanitizer's report
    # The program's output is printed once, even if several of its tests failed.
    return results + [(f"{name}: {test}", FAILED, details if test == failures[-1] else "")
                      for test in failures]


def meson_results(path):
    """Yields (name, result, details) of each test in a testlog.json, which has one JSON object a
    line."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for test in map(json.loads, filter(str.strip, file)):
            result = MESON_RESULTS.get(test["result"], FAILED)
            said = "\n".join(test.get(stream) or "" for stream in ("stdout", "stderr"))
            status = test.get("returncode")
            details = f"{test['result']}, exit status {status}\n{said}"
            if test["result"] in ("EXPECTEDFAIL", "UNEXPECTEDPASS"):  # its failure is one test
                yield (test["name"], result, details)
            else:
                yield from program_results(test["name"], result, details)


def junit_results(path):
    """Yields (name, result, details) of each test case in a junit file."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error")]
        streams = [child.text or "" for child in case if child.tag in ("system-out", "system-err")]
        skipped = case.find("skipped") is not None
        details = "\n".join([child.text or child.get("message") or "" for child in bad] + streams)
        yield (f"{case.get('classname')}.{case.get('name')}",
               FAILED if bad else SKIPPED if skipped else PASSED, details)


def notes(reports):
    """Yields a line for each property `note` of a test in a junit file that can be read."""
    for report in filter(lambda path: path.endswith(".xml"), reports):
        with contextlib.suppress(OSError, xml.etree.ElementTree.ParseError):
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                for one in case.iterfind("properties/property[@name='note']"):
                    yield f"{case.get('classname')}.{case.get('name')}: {one.get('value')}"


def step_results(status, log, reports):
    """Returns (name, result, details) of everything that the step checked."""
    with open(log, encoding="utf-8", errors="replace") as file:
        said = file.read()
    if not reports:
        result = {0: PASSED, SKIP_STATUS: SKIPPED}.get(status, FAILED)
        return [("output of the step", result, said)]
    results = []
    for report in reports:
        try:
            read = junit_results if report.endswith(".xml") else meson_results
            found = list(read(report))
        except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
            found = [(report, FAILED, f"no report: {error}\n{said}")]
        results += found or [(report, FAILED, f"no tests ran\n{said}")]
    if status != 0 and all(result != FAILED for _, result, _ in results):
        results.append((f"exit status {status} of the step", FAILED, said))
    return results


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    results = step_results(int(arguments[0]), arguments[1], arguments[2:])
    for name, result, details in results:
        if result == FAILED:
            print(f"---- FAILED: {name}\n{details.rstrip()}".rstrip(), file=sys.stderr)
    for note in notes(arguments[2:]):
        print(f"---- NOTE: {note}", file=sys.stderr)
    counts = [sum(1 for _, result, _ in results if result == kind) for kind in (PASSED, FAILED, SKIPPED)]
    print(*counts)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
