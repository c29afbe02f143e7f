#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does each check of check_structure.py fail when the rule is broken, and only then?"""

import contextlib
import io
import os
import tempfile
import unittest

import check_structure

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


def findings(check, files):
    """What @check says about a tree of @files (path to text)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return list(check_structure.CHECKS[check](check_structure.Tree(root)))


class Includes(unittest.TestCase):
    def included(self, path, line, **others):
        files = {"base/err.h": "", "store/store.h": "", "proto/frame.h": "", "client/include/embtier.h": "",
                 "daemon/engine/lane/lane.h": "", path: f"{SPDX}{line}\n"}
        return findings("includes", files | others)

    def test_every_layer_may_include_what_its_row_says_and_nothing_else(self):
        for folder, allowed in check_structure.LAYERS.items():
            for target in check_structure.LAYERS:
                found = self.included(f"{folder}/x.c", f'#include "{target}/y.h"')
                fine = allowed is check_structure.ALL or target == folder or any(
                    target == one or target.startswith(f"{one}/") for one in allowed)
                self.assertEqual(len(found), 0 if fine else 1, f"{folder} includes {target}: {found}")

    def test_finding_names_file_line_and_what_is_allowed(self):
        found = self.included("tiers/cache/row_cache.c", '#include "store/store.h"')
        self.assertEqual(found, ["tiers/cache/row_cache.c:2: tiers/ includes store/ (store/store.h); "
                                 "it may include base, config, kernels"])

    def test_detours_are_seen(self):
        for line in ('#include "../store/store.h"', '#include <store/store.h>', '#include "store.h"',
                     '  #  include "store/store.h"', '#include "../../x/store/store.h"'):
            self.assertEqual(len(self.included("base/x.c", line)), 0 if "x/store" in line else 1, line)

    def test_public_header_is_seen_without_folder(self):
        self.assertEqual(len(self.included("daemon/x.c", "#include <embtier.h>")), 1)
        self.assertEqual(self.included("examples/x.c", "#include <embtier.h>"), [])
        self.assertEqual(self.included("tests/unit/x.c", "#include <embtier.h>"), [])

    def test_system_headers_and_generated_ones_are_not_ours(self):
        for line in ("#include <stdio.h>", "#include <sys/un.h>", '#include "proto.pb-c.h"',
                     "#include <rocksdb/c.h>", "// #include store/store.h"):
            self.assertEqual(self.included("base/x.c", line), [], line)

    def test_same_name_in_the_same_folder_wins(self):
        self.assertEqual(self.included("client/x.c", '#include "store.h"', **{"client/store.h": ""}), [])

    def test_folder_without_a_layer_is_refused(self):
        self.assertEqual(len(self.included("extra/x.c", "")), 1)
        self.assertEqual(len(self.included("x.c", "")), 1)


class Cycles(unittest.TestCase):
    def found(self, *edges):
        files = {}
        for path, target in edges:
            files[path] = files.get(path, SPDX) + f'#include "{target}"\n'
            files.setdefault(target, SPDX)
        return findings("cycles", files)

    def test_header_and_its_implementation_are_one_file(self):
        self.assertEqual(self.found(("store/one.c", "store/one.h"), ("store/two.c", "store/one.h")), [])

    def test_files_that_include_each_other_are_found(self):
        edges = ("store/one.c", "store/two.h"), ("store/two.h", "store/three.h"), ("store/three.c", "store/one.h")
        self.assertEqual(self.found(*edges), ["store/one.h:1: these include each other: store/one, store/three, store/two"])
        self.assertEqual(self.found(*edges[:2]), [])

    def test_tests_may(self):
        self.assertEqual(self.found(("tests/unit/a.h", "tests/unit/b.h"), ("tests/unit/b.h", "tests/unit/a.h")), [])

    def test_cycle_that_has_ended_is_not_left_in_the_list(self):
        cycle = sorted(next(iter(check_structure.CYCLES_LEFT), ()))
        found = self.found(*((f"{one}.c", f"{one}.h") for one in cycle))
        self.assertEqual(len(found), 1 if cycle else 0)


class Readmes(unittest.TestCase):
    def test_each_folder_has_a_short_one(self):
        files = {"store/a.c": "", "store/README.md": "# store/", "daemon/README.md": "x", "daemon/jobs/a.c": "", "README.md": "x " * 500}
        self.assertEqual(findings("readmes", files), ["daemon/jobs/README.md:1: missing"])
        self.assertEqual(len(findings("readmes", {"store/README.md": "word " * 401})), 1)
        self.assertEqual(findings("readmes", {"store/README.md": "word " * 400, ".ci/run": "", "client/README.md": ""}), [])


class Others(unittest.TestCase):
    def test_cxx_is_allowed_only_where_rocksdb_is_called(self):
        self.assertEqual(findings("cxx", {"store/rocksdb/ext/x.cc": "", "store/store.c": ""}), [])
        for path in ("store/other.cc", "store/rocksdb/x.cc", "daemon/rocksdb_ext.cc", "tests/unit/x.cpp", "base/x.hpp"):
            self.assertEqual(len(findings("cxx", {path: ""})), 1, path)

    def licence(self, files):
        whole = "Apache License Version 2.0, January 2004 END OF TERMS AND CONDITIONS"
        return findings("licence", {"LICENSE": whole} | files)

    def test_licence_line_is_required_near_the_top(self):
        self.assertEqual(self.licence({"base/x.c": SPDX, "README.md": "text", "base/empty.py": ""}), [])
        self.assertEqual(self.licence({"tests/data/x.csv": "1,2", "docs/x.png": "p"}), [])
        self.assertEqual(len(self.licence({"base/x.c": "int x;\n"})), 1)
        self.assertEqual(len(self.licence({"tools/x": "#!/bin/sh\n"})), 1)
        self.assertEqual(len(self.licence({"base/x.c": "\n" * 6 + SPDX})), 1)

    def test_licence_text_is_required(self):
        self.assertEqual(len(findings("licence", {"LICENSE": ""})), 3)
        self.assertEqual(len(findings("licence", {"base/x.c": SPDX})), 3)

    def test_links_lead_somewhere(self):
        page = "# A page\n## Two words, and `code`\n"
        for link in ("b.md", "docs", "docs/", "docs/b.md", "docs/b.md#two-words-and-code", "#a-page",
                     "https://example.org/x", "mailto:x@example.org", "/docs/b.md"):
            files = {"a.md": page + f"[x]({link})", "b.md": "", "docs/b.md": page}
            self.assertEqual(findings("links", files), [], link)
        for link in ("c.md", "docs/c.md", "docs/b.md#other", "#b", "../b.md"):
            files = {"a.md": page + f"[x]({link})", "docs/b.md": page}
            self.assertEqual(len(findings("links", files)), 1, link)

    def test_links_in_code_are_not_links(self):
        self.assertEqual(findings("links", {"a.md": "```\n[x](none.md)\n```\n`[x](none.md)`\n"}), [])

    def test_machine_paths_are_found(self):
        for text in ("see ../sha" "red/x.md", "sha" "red/design.md", "cd /wo" "rk/main", "~ is /ro" "ot/x"):
            self.assertEqual(len(findings("machine-paths", {"a.md": text})), 1, text)
        for text in ("shared/exclusive lock", "/dev/shm/shared/x", "$HOME/work/x", "the work/rest balance"):
            self.assertEqual(findings("machine-paths", {"a.md": text}), [], text)

    def test_sizes_warn_and_never_fail(self):
        long_function = "int f(void)\n{\n" + "    x();\n" * 200 + "}\n"
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.assertEqual(findings("sizes", {"base/x.c": long_function, "base/y.c": "\n" * 900}), [])
        self.assertIn("base/x.c:2: a function of 201 lines", said.getvalue())
        self.assertIn("base/y.c:1: 900 lines", said.getvalue())
        self.assertEqual(len(said.getvalue().splitlines()), 2)


if __name__ == "__main__":
    unittest.main()
