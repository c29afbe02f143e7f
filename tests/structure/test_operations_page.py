# SPDX-License-Identifier: Apache-2.0
"""Does docs/operations.md quote warnings, rules and figures as the product has them?"""

from __future__ import annotations

import re
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
PAGE = (TREE / "docs/operations.md").read_text()


def rows_below(title: str) -> list[list[str]]:
    """The cells of the first table below a title, without its head."""
    section = PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def literals() -> str:
    """All strings of the daemon's code, with adjacent ones joined, a line each."""
    found = []
    for folder in ("daemon", "store"):
        for path in sorted((TREE / folder).rglob("*")):
            if path.suffix in (".c", ".cc", ".h"):
                text = re.sub(r'"\s*\n\s*"', "", path.read_text())
                found += re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return "\n".join(found)


class OperationsPage(unittest.TestCase):
    def test_twelve_warnings_are_quoted_word_for_word(self) -> None:
        known = set(literals().splitlines())
        rows = rows_below("The twelve likeliest warnings")
        self.assertEqual(len(rows), 12)
        for warning, meaning, advice in rows:
            self.assertRegex(warning, "^`.*`$")
            self.assertIn(warning[1:-1], known)
            self.assertTrue(meaning and advice)

    def test_rules_of_health_have_the_same_words(self) -> None:
        code = (TREE / "daemon/health/health_rules.c").read_text()
        code = re.sub(r'\s*\\\n\s*', " ", code)  # the rules are one macro
        code = re.sub(r'"\s+"', "", code)
        rules = re.findall(r'(?:X|BLOCKS)\((\w+), (BAD|WARNING), "([^"]*)", "([^"]*)"\)', code)
        self.assertGreater(len(rules), 10)
        section = PAGE.split("\n## What to watch\n", 1)[1].split("\n## ", 1)[0]
        listed = re.findall(r"^\| `(\w+)` \| (bad|warning) \| (.*) \| (.*) \|$", section, re.MULTILINE)
        self.assertEqual(listed, [(name, health.lower(), condition, advice) for name, health, condition, advice in rules])

    def test_a_session_takes_the_memory_that_the_estimate_counts(self) -> None:
        code = (TREE / "daemon/engine/memory/engine_reserved.h").read_text()
        kib = {name: int(count) for name, count in re.findall(r"#define (\w+)_BYTES +\((\d+) \* KIB\)", code)}
        # Over a network there are about as many places for connections that are no sessions.
        rpc = kib["SESSION"] + kib["SESSION_RPC"] + kib["STRANGER"]
        wanted = tuple(map(str, (kib["SESSION"], rpc, rpc + 2 * kib["SESSION_TLS"])))
        configuration = re.sub(r"\n# ", " ", (TREE / "docs/embtierd.yaml").read_text())
        told = re.search(r"(\d+) KiB for each of `socket.max_sessions`, (\d+) KiB with RPC, (\d+) KiB with TLS", PAGE)
        self.assertEqual(told.groups(), wanted)
        told = re.search(r"(\d+) KiB per session of max_sessions \((\d+) KiB if rpc.listen is set, (\d+) KiB with TLS\)", configuration)
        self.assertEqual(told.groups(), wanted)


if __name__ == "__main__":
    unittest.main()
