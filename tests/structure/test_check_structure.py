#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each check of check_structure.py fails when its rule is broken, and only then."""

import contextlib
import io
import os
import subprocess
import tempfile
import unittest

import check_structure
import english
import layers

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


@contextlib.contextmanager
def tree_of(files):
    """A folder with @files (path to text)."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        yield root


def findings(check, files):
    """The findings of @check in a tree of @files (path to text)."""
    with tree_of(files) as root, contextlib.redirect_stdout(io.StringIO()):
        return list(check_structure.CHECKS[check](check_structure.Tree(root)))


class Includes(unittest.TestCase):
    def included(self, path, line, **others):
        files = {"base/err.h": "", "store/store.h": "", "proto/frame.h": "", "client/include/embtier.h": "",
                 "daemon/engine/lane/lane.h": "", path: f"{SPDX}{line}\n"}
        return findings("includes", files | others)

    def test_every_layer_may_include_what_its_row_says_and_nothing_else(self):
        for folder, allowed in layers.LAYERS.items():
            for target in layers.LAYERS:
                found = self.included(f"{folder}/x.c", f'#include "{target}/y.h"')
                fine = allowed is layers.ALL or target == folder or any(
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

    def test_the_engine_knows_no_shared_memory(self):
        line = '#include "proto/shm_ring.h"'
        for folder, kept in (("daemon/engine", "engine"), ("daemon/engine/sessions", "engine"), ("daemon/jobs", "jobs")):
            found = self.included(f"{folder}/x.c", line, **{"proto/shm_ring.h": SPDX})
            self.assertEqual(found, [f"{folder}/x.c:2: daemon/{kept}/ may not include proto/shm_ring.h, although it may include others of its folder"])
        for folder in ("daemon/transport/shm", "client/transport/shm", "tests/unit/engine/ops"):
            self.assertEqual(self.included(f"{folder}/x.c", line, **{"proto/shm_ring.h": SPDX}), [], folder)
        self.assertEqual(self.included("daemon/engine/x.c", '#include "proto/ops.h"', **{"proto/ops.h": SPDX}), [])

    def test_the_control_thread_knows_no_transport_by_name(self):
        for header in ("daemon/transport/shm/shm_channel.h", "proto/shm_ring.h"):
            found = self.included("daemon/control/x.c", f'#include "{header}"', **{header: SPDX})
            self.assertEqual(found, [f"daemon/control/x.c:2: daemon/control/ may not include {header}, although it may include others of its folder"])
        for path, header in (("daemon/control/x.c", "daemon/transport/transport.h"), ("daemon/server.c", "daemon/transport/shm/shm_channel.h")):
            self.assertEqual(self.included(path, f'#include "{header}"', **{header: SPDX}), [], path)

    def test_inside_the_daemon_control_is_above_jobs_and_the_engine_below(self):
        for folder, target in (("control", "jobs"), ("jobs", "engine/ops"), ("transport/shm", "engine/sessions"), ("engine/lane", "engine/ops"),
                               ("engine/ops", "engine/rows"), ("engine/rows", "engine/sessions"), ("engine/sessions", "engine/tables")):
            self.assertEqual(self.included(f"daemon/{folder}/x.c", f'#include "daemon/{target}/y.h"'), [], f"{folder} includes {target}")
            self.assertEqual(len(self.included(f"daemon/{target}/x.c", f'#include "daemon/{folder}/y.h"')), 1, f"{target} includes {folder}")
        for folder, target in (("jobs", "transport"), ("engine/memory", "engine/tables"), ("engine", "jobs"), ("control", "")):
            self.assertEqual(len(self.included(f"daemon/{folder}/x.c", f'#include "daemon/{target}/y.h"')), 1, f"{folder} includes {target}")
        self.assertEqual(self.included("daemon/server.c", '#include "daemon/control/y.h"'), [])


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

class Readmes(unittest.TestCase):
    def test_each_folder_has_a_short_one(self):
        files = {"store/a.c": "", "store/README.md": "`a.c`", "daemon/README.md": "x", "daemon/jobs/a.c": "", "README.md": "x " * 500}
        self.assertEqual(findings("readmes", files), ["daemon/jobs/README.md:1: missing"])
        self.assertEqual(len(findings("readmes", {"store/README.md": "word " * 401})), 1)
        self.assertEqual(findings("readmes", {"store/README.md": "word " * 400, ".ci/run": "#!/bin/sh", "client/README.md": ""}), [])
        self.assertEqual(len(findings("readmes", {"store/README.md": "", "store/data/README.md": "word " * 401})), 1)

    def test_the_page_of_the_architecture_is_short(self):
        for words, found in ((1500, []), (1501, ["docs/ARCHITECTURE.md:1: 1501 words; at most 1500"])):
            files = {"docs/ARCHITECTURE.md": "word " * words, "docs/README.md": ""}
            self.assertEqual(findings("readmes", files), found)

    def test_two_files_of_code_need_one(self):
        for one, other in (("a.c", "a.h"), ("a.py", "b.sh"), ("a.cu", "b.cuh"), ("a.cc", "b.hh"), ("a", "b.c")):
            files = {f"store/x/y/{one}": "#!/bin/sh", "store/README.md": "`a`"}
            self.assertEqual(findings("readmes", files), [], one)
            self.assertEqual(findings("readmes", files | {f"store/x/y/{other}": ""}), ["store/x/y/README.md:1: missing"], other)
        for other in ("__init__.py", "meson.build", "x.txt", "README.md"):
            self.assertEqual(findings("readmes", {"store/README.md": "`a.c`", "store/x/a.c": "", f"store/x/{other}": "`a.c`"}), [], other)

    def test_each_file_of_code_is_named(self):
        for text in ("`a_b.c`", "`a_b.[ch]`", "`a_b.{c,h}`", "`a_b`", "code `c.c`, `a_b.h`"):
            self.assertEqual(findings("readmes", {"store/README.md": text, "store/a_b.c": ""}), [], text)
        for text in ("a_b.c", "`a_bc.c`", "`x_a_b.c`", "`a_b/`", "`x-a_b.c`", "`x/a_b.c`", "`a`, `b`"):
            self.assertEqual(findings("readmes", {"store/README.md": text, "store/a_b.c": ""}), ["store/README.md:1: does not name a_b.c"], text)
        for text, found in (("`a.c`", []), ("`x/y/a.c`", []), ("`y/a.c`", 1), ("`z/a.c`", 1), ("", 1)):
            self.assertEqual(findings("readmes", {"store/README.md": text, "store/x/y/a.c": ""}),
                             found and ["store/README.md:1: does not name x/y/a.c"], text)

    def test_files_of_tables_exist(self):
        files = {"store/a.c": "", "store/a.h": "", "store/b.cc": "", "store/b.hh": "", "store/x/c.py": "", "store/d.proto": ""}
        table = "| file | contents |\n|---|---|\n| `a.[ch]`, `b.{cc,hh}`, `*_c.c` | `none.c` |\n| `x/c.py`, `d.proto`, `x/`, `a b.c` | |\n"
        self.assertEqual(findings("readmes", files | {"store/README.md": table + "\n`none.c` is gone"}), [])
        for path, line in (("a.h", 3), ("b.hh", 3), ("d.proto", 4)):
            less = {name: text for name, text in files.items() if name != f"store/{path}"}
            self.assertEqual(findings("readmes", less | {"store/README.md": table}), [f"store/README.md:{line}: {path} does not exist"])


class Others(unittest.TestCase):
    def test_cxx_is_allowed_only_where_rocksdb_is_called(self):
        self.assertEqual(findings("cxx", {"store/rocksdb/ext/x.cc": "", "store/store.c": ""}), [])
        for path in ("store/other.cc", "store/rocksdb/x.cc", "daemon/rocksdb_ext.cc", "tests/unit/x.cpp", "base/x.hpp"):
            self.assertEqual(len(findings("cxx", {path: ""})), 1, path)

    def test_algorithms_are_fetched_once(self):
        for call in ("EVP_sha256()", "EVP_aes_128_gcm()", 'EVP_get_digestbyname("SHA256")'):
            self.assertEqual(len(findings("fetches", {"base/x.c": f"int x;\nuse({call});\n"})), 1, call)
            self.assertEqual(findings("fetches", {"tests/unit/x.c": f"use({call});\n"}), [])
        self.assertEqual(findings("fetches", {"base/x.c": '/* not EVP_sha256()\n * EVP_sha256() */\nEVP_MD_fetch(NULL, "SHA256", NULL);\n'}), [])

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
        self.assertEqual(findings("machine-paths", {"tests/fuzz/corpus/fuzz_x/a": "cd /wo" "rk/main"}), [])
        for text in ("shared/exclusive lock", "/dev/shm/shared/x", "$HOME/work/x", "the work/rest balance"):
            self.assertEqual(findings("machine-paths", {"a.md": text}), [], text)


class Sizes(unittest.TestCase):
    def test_long_files_and_functions_are_found(self):
        self.assertEqual(findings("sizes", {"base/x.c": "\n" * 800, "base/y.md": "\n" * 900}), [])
        self.assertEqual(findings("sizes", {"base/x.py": "\n" * 801}), ["base/x.py:1: 801 lines; at most 800"])
        function = "int f(void)\n{\n" + "    x();\n" * 200 + "}\n"
        self.assertEqual(findings("sizes", {"base/x.c": function}), ["base/x.c:2: a function of 201 lines; at most 82"])

    def test_full_folders_are_found(self):
        files = {f"base/{number}.c": "" for number in range(25)}
        self.assertEqual(findings("sizes", files | {"base/deeper/x.c": ""}), [])
        self.assertEqual(findings("sizes", files | {"base/README.md": ""}), [])
        self.assertEqual(findings("sizes", files | {"base/meson.build": ""}), ["base:1: 26 files lie in this folder; at most 25"])
        self.assertEqual(findings("sizes", {f"tests/fuzz/corpus/fuzz_x/{number}": "" for number in range(99)}), [])

    def test_arrow_uphill_and_cycle_are_found(self):
        files = {"tiers/x.h": '#include "store/y.h"\n', "store/y.h": '#include "tiers/x.h"\n'}
        self.assertEqual(len(findings("sizes", files)), 2)

    def test_figures_are_printed_in_one_line(self):
        said = io.StringIO()
        with tree_of({"base/x.c": "\n" * 3}) as root, contextlib.redirect_stdout(said):
            list(check_structure.check_sizes(check_structure.Tree(root)))
        self.assertEqual(said.getvalue(), "1 folders, the largest base with 1 files; 1 files of code, the longest base/x.c with 3 lines; "
                         "the longest function none with 0 lines; 0 arrows uphill; 0 include cycles\n")


class Mutants(unittest.TestCase):
    def found(self, checks, table, source, others={}):
        rows = " ".join(f"X({check})" for check in checks)
        return findings("mutants", {check_structure.REQUEST_CHECKS: f"#define REQUEST_CHECKS(X) {rows}\n", "daemon/engine/rows/request.c": source,
                                    check_structure.MUTANTS: f"mutants = {{\n  'rows/request': {{'test_request': {table}}},\n}}\n"} | others)

    def test_each_check_has_one(self):
        source = "IS_BAD(CHECK_OP, x) IS_COPIED(COPY_IDS) IS_BAD(\n    CHECK_ID, y)"
        self.assertEqual(self.found(["CHECK_OP", "COPY_IDS", "CHECK_ID"], ["CHECK_OP", "COPY_IDS", "CHECK_ID"], source), [])
        self.assertEqual(self.found(["CHECK_OP", "COPY_IDS", "CHECK_ID"], ["CHECK_OP", "COPY_IDS"], source), [
            "daemon/engine/rows/request.c:1: the check CHECK_ID has no mutant in tests/unit/engine/ops/meson.build"])

    def test_each_file_that_makes_a_check_has_one(self):
        found = self.found(["CHECK_OP"], ["CHECK_OP"], "IS_BAD(CHECK_OP, x)", {"daemon/engine/rows/other.c": "IS_BAD(CHECK_OP, x)"})
        self.assertEqual(found, ["daemon/engine/rows/other.c:1: the check CHECK_OP has no mutant in tests/unit/engine/ops/meson.build"])

    def test_none_is_of_a_check_that_is_not_made(self):
        self.assertEqual(self.found(["CHECK_OP"], ["CHECK_OP"], ""), [
            "tests/unit/engine/ops/meson.build:1: daemon/engine/rows/request.c makes no check CHECK_OP"])
        self.assertEqual(self.found(["CHECK_OP"], ["CHECK_OP", "CHECK_ID"], "IS_BAD(CHECK_OP, x)"), [
            "tests/unit/engine/ops/meson.build:1: CHECK_ID is no check of daemon/engine/sessions/request_checks.h"])
        self.assertEqual(self.found(["CHECK_OP", "CHECK_ID"], ["CHECK_OP"], "IS_BAD(CHECK_OP, x)"), [
            "daemon/engine/sessions/request_checks.h:1: no file makes the check CHECK_ID"])

    def test_missing_tables_are_found(self):
        self.assertEqual(len(findings("mutants", {"base/x.c": ""})), 1)
        self.assertEqual(len(self.found([], [], "")), 1)


class Steps(unittest.TestCase):
    def found(self, *told):
        steps = "STEPS=(\n    'packages | always | 1 | x | y'\n    'build    | always | 1 | x | y'\n    'unit-a | full | 1 | x | y'\n    'arm | long | 0 | x | y'\n)\n"
        table = "| step | seconds |\n|---|---|\n" + "".join(f"| {names} | 1 |\n" for names in told)
        return findings("steps", {check_structure.STEPS: steps, check_structure.CONTRIBUTING: f"# A page\n\n{table}\nMore.\n"})

    def test_table_has_each_step_and_no_other(self):
        self.assertEqual(self.found("build, unit-a"), [])
        self.assertEqual(self.found("build"), ["CONTRIBUTING.md:1: the step unit-a of tools/check is missing in the table"])
        self.assertEqual(self.found("build", "unit-a, unit-b"), ["CONTRIBUTING.md:1: tools/check has no step unit-b"])

    def test_missing_table_is_found(self):
        self.assertEqual(len(findings("steps", {check_structure.STEPS: "", check_structure.CONTRIBUTING: "# A page"})), 1)


class Pages(unittest.TestCase):
    def test_each_page_is_in_the_list(self):
        index, page = "# Docs\n[a](internals/a.md), [b](b.md#part)", "# B\n\nText.\n"
        files = {check_structure.DOCS_INDEX: index, "docs/internals/a.md": page, "docs/b.md": page, "a.md": ""}
        self.assertEqual(findings("pages", files), [])
        self.assertEqual(findings("pages", files | {"docs/internals/c.md": page}), ["docs/README.md:1: no link to docs/internals/c.md"])
        self.assertEqual(findings("pages", {"docs/b.md": page}), ["docs/README.md:1: no link to docs/b.md"])
        for text in ("", "Text.\n", "# B\n", "# B\n\n", "## B\n\nText.\n"):
            self.assertEqual(findings("pages", files | {"docs/b.md": text}), ["docs/b.md:1: has no title, or no text below it"], text)

    def test_bold_text_ends(self):
        page = "# B\n\n{}\n\n**After.** Text.\n"
        for text in ("**Bold.** Text\nand **more\nof it**.", "`**x` and `y`", "```\n**x\n```\nText."):
            files = {check_structure.DOCS_INDEX: "# Docs\n[b](b.md)", "docs/b.md": page.format(text)}
            self.assertEqual(findings("pages", files), [], text)
        files = {check_structure.DOCS_INDEX: "# Docs\n[b](b.md)", "docs/b.md": page.format("Text\nand **bold. Text.")}
        self.assertEqual(findings("pages", files), ["docs/b.md:3: bold text begins here and does not end"])

    def test_bars_that_are_missed_are_in_the_overview(self):
        page = "# A\n\n| figure | ratio | asked |\n| x | 0.567 (0.5 to 0.6, 3) | at least 0.7, NOT MET |\n| y | 2 | at least 1, met |\n"
        index = "# Docs\n[p](performance.md), [a](performance/a.md), [b](performance/b.md)"
        for row, found in (("[x](performance/a.md) | 0.57 | 0.7 |", []), ("[x](performance/b.md) | 0.57 | 0.7 |", ["0.567"]),
                           ("[x](performance/a.md) | 0.58 | 0.7 |", ["0.567"])):
            files = {check_structure.DOCS_INDEX: index, "docs/performance/a.md": page, "docs/performance/b.md": "# B\n\nText.\n",
                     check_structure.FIGURES: f"# P\n\n| {row}\n"}
            said = [f"docs/performance/a.md:4: a bar is not met, with {ratio}, and docs/performance.md does not say so" for ratio in found]
            self.assertEqual(findings("pages", files), said, row)

    def test_each_public_function_is_in_the_synopsis(self):
        header = "#define EMBTIER_PUBLIC __attribute__((x))\nEMBTIER_PUBLIC int embtier_one(int x);\nEMBTIER_PUBLIC struct embtier\n*embtier_two(void);\n"
        page = ".Sh SYNOPSIS\n.Fn embtier_one x\n{}.Sh DESCRIPTION\n.Fn embtier_two\n"
        for line, found in ((".Fn embtier_two void\n", []),
                            ("", ["docs/man/libembtier.3.in:1: the synopsis lacks embtier_two(), which client/include/embtier_x.h declares"])):
            files = {"client/include/embtier_x.h": header, check_structure.LIBRARY_PAGE: page.format(line)}
            self.assertEqual(findings("pages", files), found)


class Rings(unittest.TestCase):
    def found(self, line, path=f"{check_structure.RINGS}io_uring.c"):
        return findings("rings", {path: f"{SPDX}{line}\n"})

    def test_traps_are_refused_in_the_rings_of_connections_alone(self):
        for name in ("io_uring_prep_recv_multishot", "io_uring_prep_multishot_accept", "IORING_RECV_MULTISHOT", "IORING_POLL_ADD_MULTI",
                     "io_uring_prep_send_zc", "io_uring_prep_sendmsg_zc", "IORING_OP_SEND_ZC", "IOSQE_BUFFER_SELECT",
                     "io_uring_prep_provide_buffers", "io_uring_register_buf_ring"):
            found = self.found(f"    f({name}, 1);")
            self.assertEqual(len(found), 1, name)
            self.assertIn(f"{check_structure.RINGS}io_uring.c:2: uses {name}: ", found[0])
            self.assertEqual(self.found(f"    f({name}, 1);", "store/rocksdb/ring.c"), [])

    def test_other_tasks_are_fine(self):
        for name in ("io_uring_prep_recvmsg", "io_uring_prep_sendmsg", "io_uring_prep_accept", "IORING_FEAT_NODROP", "in_buffers"):
            self.assertEqual(self.found(f"    f({name}, 1);"), [], name)


class Dictionaries(unittest.TestCase):
    def found(self, line):
        return findings("dictionaries", {"tests/fuzz/dictionaries/fuzz_x.dict": f"# Tokens\n{line}\n"})

    def test_tokens_and_comments_are_read(self):
        for line in ('"http:"', 'name="a b"', '"a\\x0a"', '"\\\\"', '"\\""', "", "  # more", ' "x" '):
            self.assertEqual(self.found(line), [], line)

    def test_other_lines_are_found(self):
        for line in ('"a\\n"', '"a\\x0"', '"a', 'a"', '""', '"a"b"', '"\t"', "token", '"\\"'):
            self.assertEqual(len(self.found(line)), 1, line)
            self.assertIn("fuzz_x.dict:2: ", self.found(line)[0])


LONG, HALF = "Word" + " word" * 35 + ".", "Word" + " word" * 19


class English(unittest.TestCase):
    def test_comment_starts_with_its_subject(self):
        for path, text in (("x.c", "/* {} is read */\n"), ("x.c", "int x; // {} is read\n"), ("x.c", "/*\n * {} is read */"),
                           ("x.cc", "// {} is read\n"), ("x.py", "# {} is read\n"), ("x.py", "x = 1  # {} is read\n"),
                           ("x.py", 'def f():\n    """{} is read"""\n'), ("x.sh", "# {} is read\n"), ("x.sh", "cd x # {} is read\n")):
            for start in ("Of", "What", "Who", "Whether"):
                found = findings("english", {f"base/{path}": text.format(start)})
                self.assertEqual(len(found), 1, f"{path} {text} {start}")
                self.assertIn(f"a comment starts with '{start}'", found[0])
            for start in ("This", "Offsets", "Whose", "of"):
                self.assertEqual(findings("english", {f"base/{path}": text.format(start)}), [], f"{path} {text} {start}")

    def test_what_is_no_start_of_a_comment_is_not_looked_at(self):
        for path, text in (("x.c", 'char *x = "// What";\n'), ("x.c", "// This says\n// What follows\n"), ("x.py", "# This says\n# What follows\n"),
                           ("x.py", 'x = """What"""\n'), ("x.py", 'x = "# What"\n'), ("x.sh", "# This says\n# What follows\n"), ("x.md", "# What\n")):
            self.assertEqual(findings("english", {f"base/{path}": text}), [], text)

    def test_long_sentences_of_docs_and_readmes_are_found(self):
        long = "word " * 35 + "word."
        for path in ("docs/x.md", "docs/internals/x.md", "base/README.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
            self.assertEqual(len(findings("english", {path: f"Short one. {long} Short."})), 1, path)
            self.assertEqual(findings("english", {path: "word " * 34 + "`a b c d`. Another one."}), [], path)
        for path, text in (("docs/x.txt", long), ("docs/x.md", f"```\n{long}\n```"), ("docs/x.md", f"```\n| {long} | x |\n```"),
                           ("docs/x.md", f"# {long}"), ("docs/x.md", "* " + "word " * 20 + "\n* " + "word " * 20),
                           ("docs/x.md", "word " * 20 + "\n\n" + "word " * 20), ("docs/x.md", "word " * 20 + "end. `code` " + "word " * 20)):
            self.assertEqual(findings("english", {path: text}), [], text)

    def long_found(self, path, *texts):
        """The lines of the long sentences found in each of @texts."""
        for text in texts:
            found = findings("english", {path: text})
            self.assertTrue(all(f"{path}:" in one and "a sentence of" in one for one in found), found)
            yield [int(one.split(":")[1]) for one in found]

    def test_long_sentences_of_cells_are_found(self):
        long, short = LONG, HALF
        table = "| a | b |\n|---|---|\n| {} | {} |\n"
        texts = [table.format(short, long), table.format(long, short), table.format(short, short), table.format(short + "\\| " + short, "x")]
        self.assertEqual(list(self.long_found("docs/x.md", *texts)), [[3], [3], [], [3]])

    def test_long_sentences_of_man_pages_are_found(self):
        long, half = LONG, HALF
        macros = "\n".join(["Short one.", half, ".Fn embtier_get \"x y z\"", "word " * 13 + "and", ".Ic key .", "Short."])
        for path in ("docs/man/x.1.in", "x.8"):
            self.assertEqual(list(self.long_found(
                path, f".Sh DESCRIPTION\nShort.\n{long}\n", f".Bl\n.It x\n{long}\n.El\n", f".Nd {long}\n", macros)), [[3], [3], [1], [2]])
            self.assertEqual(list(self.long_found(
                path, f".Sh SYNOPSIS\n.Fn {long}\n", f".Bd -literal\n{long}\n.Ed\n", f"{half}\n.Pp\n{half}", f"{half}\n.It x\n{half}",
                f"{half}\n@KEYS@\n{half}", f".\\\" {long}", f"{half}\n.Nm embtier .\n.Ql x\n{half}")), [[]] * 7)

    def test_long_sentences_of_docstrings_are_found(self):
        long, half = LONG, HALF
        text = 'def f():\n    """{}"""\n'
        for path in ("client/python/embtier/x.py", "examples/x.py"):
            self.assertEqual(list(self.long_found(
                path, f'"""{long}"""', text.format(f"Short one.\n\n    @x: {long}\n    "), text.format(f"Term\n        {half}\n        {half}")
            )), [[1], [4], [3]])
            self.assertEqual(list(self.long_found(
                path, text.format(f"Short one::\n\n        {half}\n        {half}\n\n    {half}"), text.format(f"@x: {half}\n    @y: {half}"),
                text.format(f"{half}\n\n    {half}"), text.format(f"{half} ``{half}``. :class:`X` {half}"), f'x = """{long}"""')), [[]] * 5)
        self.assertEqual(findings("english", {"tests/x.py": f'"""{long}"""'}), [])

    def test_long_sentences_of_public_headers_are_found(self):
        long, half = LONG, HALF
        for path in ("client/include/embtier_x.h", "base/embtier_err.h"):
            self.assertEqual(list(self.long_found(path, f"/* Short.\n * {long} */\n", f"/* {half}\n * {half} */", f"int x; /* {half}\n    {half} */")),
                             [[2], [1], [1]])
            self.assertEqual(list(self.long_found(
                path, f"/* {half}\n *\n *   {half}\n *   {half} */", f"/* {half}\n *\n * {half} */", f"/* {half} */ /* {half} */",
                f"/* {half}. FIRST: {half} */")), [[]] * 4)
        self.assertEqual(findings("english", {"base/err.h": f"/* {long} */"}), [])

    def test_long_sentences_of_strings_are_found(self):
        long, half = LONG, HALF
        for path in ("tools/cli/commands.c", "daemon/control/metrics.h", "store/rocksdb/ext/x.cc", "kernels/gpu/x.cu"):
            self.assertEqual(list(self.long_found(
                path, f'f("{long}");', f'f("{half}"\n  "{half}");', f'#define T(X) \\\n X(A, "{half}"  \\\n   "{half}")',
                f'f("  -x, --long X  {half}\\n"\n  "                {half}\\n");', f'f("Short.\\n\\n"\n  "{long}")')), [[1], [1], [2], [1], [1]])
            self.assertEqual(list(self.long_found(
                path, f'f("{half}", "{half}");', f'f("{half}\\n\\n{half}");', f'f("  -x, --long X  {half}\\n" "  -y, --other   {half}\\n");',
                f'f("{{{half} [{{{half}}}]}} {half}");', f'// "{long}"\n', f'f("{half}. Next {half}");')), [[]] * 6)
        self.assertEqual(findings("english", {"tests/unit/x.c": f'f("{long}");'}), [])

    def test_sentence_starts_with_its_subject(self):
        for start in ("Of", "What", "Who", "Whether"):
            for path, text in (("docs/x.md", "A page. {} it is."), ("docs/x.md", "| a | {} it is |"), ("x.8.in", "A page.\n{} it is.\n"),
                               ("client/python/x.py", '"""It is. {} it is."""'), ("base/embtier_x.h", "/* It is. {} it is. */"),
                               ("tools/x.c", 'f("It is. {} it is.");')):
                found = findings("english", {path: text.format(start)})
                self.assertEqual(len(found), 1, f"{path} {text} {start}")
                self.assertIn(f"a sentence starts with '{start}'", found[0])
        for text in ("# What\n", "It is. What is it?", "Whatever it is."):
            self.assertEqual(findings("english", {"docs/x.md": text}), [], text)

    def test_finding_names_the_line_where_the_sentence_starts(self):
        text = "# Head\n\nShort one.\nAnother\none. Long " + "word\n" * 40
        self.assertTrue(findings("english", {"docs/x.md": text})[0].startswith("docs/x.md:5: a sentence of 41 words; at most 35: Long word"))

    def test_long_subjects_of_commits_are_found(self):
        self.assertEqual(list(english.long_subjects([f"abc base: {'x' * 66}"])), [])
        self.assertEqual(list(english.long_subjects([f"abc base: {'x' * 67}"])), [
            f"commit abc: a subject of 73 characters; at most 72: base: {'x' * 67}"])

    def test_only_commits_since_the_rule_are_asked(self):
        with tree_of({"base/README.md": ""}) as root:
            def git(*arguments):
                names = ("-c", "user.name=x", "-c", "user.email=x@example.org")
                return subprocess.run(["git", *names, "-C", root, *arguments], check=True, capture_output=True, text=True).stdout.strip()

            git("init", "-q")
            git("commit", "-q", "--allow-empty", "-m", "first: " + "x" * 90)
            first = git("rev-parse", "HEAD")
            git("commit", "-q", "--allow-empty", "-m", "second: one\n\n" + "x" * 90)
            self.assertEqual([line.split(" ", 1)[1] for line in check_structure.Tree(root).commits_since(first)], ["second: one"])
            self.assertEqual(check_structure.Tree(root).commits_since("0" * 40), [])


if __name__ == "__main__":
    unittest.main()
