#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the source tree itself: include directions and cycles, licence lines, links, sizes.

    check_structure.py CHECK [ROOT]     one of the checks below; exit status 1 if it finds something
    check_structure.py list-c [ROOT]    the tree's C and C++ files, for clang-format and clang-tidy
    check_structure.py list-shell [ROOT]

A finding is one line, FILE:LINE: what is wrong and what is allowed. test_check_structure.py proves
on small made-up trees that each check fails when it should.
"""

import os
import re
import subprocess
import sys

ALL = object()

# Folder: the folders it may include besides itself, each with those inside it. The table of docs/ARCHITECTURE.md. A file belongs to
# the innermost folder that is named here.
LAYERS = {
    "base": set(),
    "config": {"base"},
    "kernels/cpu": {"base"},
    "kernels/gpu": {"base", "kernels/cpu"},
    "proto": {"base"},
    "tiers": {"base", "config", "kernels"},
    "store": {"base", "config", "tiers", "kernels"},
    "placement": {"base"},
    # The headers in which parts of the server say how much memory they take.
    "daemon/budget": {"base", "config", "store", "daemon"},
    "daemon": {"base", "config", "kernels", "proto", "tiers", "store", "placement", "daemon/budget"},
    "client": {"base", "config", "kernels", "proto"},
    "tools": {"base", "config", "proto", "placement", "daemon/budget", "client"},
    "docs": {"base", "config", "daemon"},  # the generator of man pages reads their tables
    "examples": {"client"},
    "tests": ALL,
}
# Files that still include each other; to be ended, never added to.
CYCLES_LEFT = {
    frozenset({
        "daemon/engine/lane/lane", "daemon/engine/ops/cast_queue", "daemon/engine/ops/caster",
        "daemon/engine/ops/group", "daemon/engine/ops/pooled", "daemon/engine/ops/push",
        "daemon/engine/ops/request", "daemon/engine/ops/ticket", "daemon/engine/rows/read_pool",
        "daemon/engine/rows/write_queue", "daemon/engine/sessions/session", "daemon/engine/tables/tables",
        "daemon/jobs/row_writer",
    }),
}
# What RocksDB's C API lacks; everything else is C.
CXX_PLACES = ("store/rocksdb/ext/",)

C_SUFFIXES = (".c", ".h", ".cu", ".cuh")
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".hh", ".hpp", ".hxx")
# Names of our own that the installed headers use without a folder.
PUBLIC_HEADERS = ("embtier.h", "embtier_err.h", "embtier_types.h")

NO_LICENCE_LINE = re.compile(
    r"(^|/)(LICENSE|NOTICE|py\.typed|\.[^/]+)$"
    r"|\.(md|gz|csv|json|txt|png|svg|tsv|bin|dat)$"
    r"|^tests/(data|fuzz/corpus)/")
LICENCE_LINE = "SPDX-License-Identifier: Apache-2.0"

FILE_LINES = 800
README_WORDS = 400
FUNCTION_LINES = 100

# Put together here so that this file does not contain what it looks for.
MACHINE_PATHS = re.compile(
    r"(?:\.\./)+shared" + r"/|(?<![\w/-])shared" + r"/(?=design|style|data|hooks|issues)"
    r"|(?<![\w.$}-])/(?:work|root|home/\w+|Users)" + r"/(?=[\w.])")


class Tree:
    """Files of a source tree, as git knows them (tracked, or new and not ignored), read once."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.paths = sorted(p for p in self._list() if os.path.isfile(os.path.join(self.root, p)))
        self._texts = {}

    def _list(self):
        command = ["git", "-c", "safe.directory=*", "-C", self.root, "ls-files", "-z", "--cached",
                   "--others", "--exclude-standard"]
        if os.path.exists(os.path.join(self.root, ".git")):
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode == 0:
                return {p.decode() for p in done.stdout.split(b"\0") if p}
        found = set()
        for folder, folders, names in os.walk(self.root):
            folders[:] = [d for d in folders
                          if not d.startswith(("build", ".")) and d != "__pycache__" or d == ".ci"]
            found |= {os.path.relpath(os.path.join(folder, n), self.root) for n in names}
        return found

    def text(self, path):
        """The file's text, or None if it is not text."""
        if path not in self._texts:
            with open(os.path.join(self.root, path), "rb") as file:
                data = file.read()
            try:
                self._texts[path] = None if b"\0" in data else data.decode()
            except UnicodeDecodeError:
                self._texts[path] = None
        return self._texts[path]

    def lines(self, path):
        text = self.text(path)
        return enumerate((text or "").splitlines(), 1)

    def c_files(self):
        return [p for p in self.paths if p.endswith(C_SUFFIXES + CXX_SUFFIXES)]

    def shell_files(self):
        return [p for p in self.paths
                if p.endswith(".sh") or re.match(r"#!.*\b(bash|sh)\b", (self.text(p) or "")[:64])]


TOP_FOLDERS = {layer.split("/")[0] for layer in LAYERS}


def layer_of(path):
    """The innermost of LAYERS that @path lies in, or None."""
    parts = path.split("/")[:-1]
    folders = ("/".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((folder for folder in folders if folder in LAYERS), None)


def included_file(path, name, quoted, tree_paths, paths_of_name):
    """The path of ours that an #include in @path reaches, or None if it is none of ours."""
    if ".." in name.split("/"):
        name = os.path.normpath(os.path.join(os.path.dirname(path), name))
    beside = os.path.join(os.path.dirname(path), name)
    if "/" in name:
        if beside in tree_paths and name.split("/")[0] not in TOP_FOLDERS:
            return beside
        return name if name.split("/")[0] in TOP_FOLDERS else None
    if beside in tree_paths:
        return beside
    if quoted or name in PUBLIC_HEADERS:
        return paths_of_name.get(name)
    return None


def includes_of(tree):
    """(file, line, the name it includes, the path of ours that this is) of each #include of ours."""
    tree_paths = set(tree.paths)
    paths_of_name = {os.path.basename(p): p for p in tree.c_files()}
    directive = re.compile(r'\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]')
    for path in tree.c_files():
        for number, line in tree.lines(path):
            found = directive.match(line)
            target = found and included_file(path, found[2], found[1] == '"', tree_paths, paths_of_name)
            if target:
                yield path, number, found[2], target


def check_includes(tree):
    """A folder includes only the folders below it."""
    for path in tree.c_files():
        if layer_of(path) is None:
            yield f"{path}:1: this folder has no place in the layers; one of: {', '.join(LAYERS)}"
    for path, number, name, target_path in includes_of(tree):
        layer, target = layer_of(path), layer_of(target_path) or os.path.dirname(target_path)
        allowed = LAYERS.get(layer, ALL)
        # The public headers name two of base's without a folder, as they lie when installed.
        if allowed is ALL or (layer == "examples" and name in PUBLIC_HEADERS):
            continue
        if target != layer and not any(f"{target}/".startswith(f"{one}/") for one in allowed):
            below = ", ".join(sorted(allowed)) or "nothing of ours"
            yield f"{path}:{number}: {layer}/ includes {target}/ ({name}); it may include {below}"


def cycles(graph):
    """The sets of more than one node of @graph, {node: nodes}, that reach each other (Tarjan)."""
    order, lowest, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in order:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], order[other])
        if lowest[node] == order[node]:
            together = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(together) > 1:
                found.append(frozenset(together))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def check_cycles(tree):
    """No file includes itself by way of others; a header and its implementation count as one file, and so do x_impl and x_loops."""
    graph = {}
    for path, _, _, target in includes_of(tree):
        one, other = (re.sub("_(impl|loops)$", "", os.path.splitext(p)[0]) for p in (path, target))
        if not path.startswith("tests/"):
            graph.setdefault(one, set()).add(other)
            graph[one].discard(one)
    found = set(cycles(graph))
    for cycle in found - CYCLES_LEFT:
        yield f"{min(cycle)}.h:1: these include each other: {', '.join(sorted(cycle))}"
    for cycle in CYCLES_LEFT - found:
        if all(any(p.startswith(f"{one}.") for p in tree.paths) for one in cycle):
            yield f"{min(cycle)}.h:1: this cycle is gone, or another: {', '.join(sorted(cycle))}"


def check_cxx(tree):
    """C++ lives where RocksDB's is."""
    for path in tree.paths:
        if path.endswith(CXX_SUFFIXES) and not path.startswith(CXX_PLACES):
            yield f"{path}:1: C++ outside {', '.join(CXX_PLACES)}"


def check_licence(tree):
    """Every source file says its licence in its first five lines, and LICENSE is the whole text."""
    for path in tree.paths:
        text = tree.text(path)
        if text is None or not text.strip() or NO_LICENCE_LINE.search(path):
            continue
        if LICENCE_LINE not in "\n".join(text.split("\n", 5)[:5]):
            yield f"{path}:1: no line '{LICENCE_LINE}' among the first five"
    licence = (tree.text("LICENSE") if "LICENSE" in tree.paths else None) or ""
    for phrase in ("Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"):
        if phrase not in licence:
            yield f"LICENSE:1: not the full text of the Apache License 2.0: '{phrase}' is missing"


def heading_anchors(text):
    """The anchors of a Markdown text as GitHub makes them."""
    anchors = set()
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        found = None if fenced else re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if found:
            plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).lower()
            anchors.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", plain)))
    return anchors


def check_links(tree):
    """Each link in a Markdown file that leads into the tree leads somewhere."""
    tree_paths = set(tree.paths)
    folders = {os.path.dirname(p) for p in tree.paths}
    folders |= {"/".join(f.split("/")[:i]) for f in set(folders) for i in range(len(f.split("/")))}
    for path in (p for p in tree.paths if p.endswith(".md")):
        fenced = False
        for number, line in tree.lines(path):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if fenced:
                continue
            for target in re.findall(r"\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                file, _, anchor = target.partition("#")
                to = path
                if file:
                    base = "" if file.startswith("/") else os.path.dirname(path)
                    to = os.path.normpath(os.path.join(base, file.lstrip("/")))
                if to not in tree_paths and to not in folders and to != ".":
                    yield f"{path}:{number}: link to {target}: no such file"
                elif anchor and to.endswith(".md") and anchor not in heading_anchors(tree.text(to)):
                    yield f"{path}:{number}: link to {target}: no such heading"


def check_readmes(tree):
    """Every folder of the first level, and of the second in daemon/, says in a short README what it is for."""
    folders = {path.split("/")[0] for path in tree.paths if "/" in path and not path.startswith(".")}
    folders |= {"/".join(path.split("/")[:2]) for path in tree.paths if path.startswith("daemon/") and path.count("/") > 1}
    for folder in sorted(folders):
        text = tree.text(f"{folder}/README.md") if f"{folder}/README.md" in tree.paths else None
        if text is None:
            yield f"{folder}/README.md:1: missing"
        elif len(text.split()) > README_WORDS:
            yield f"{folder}/README.md:1: {len(text.split())} words; at most {README_WORDS}"


def check_machine_paths(tree):
    """No file names a place that exists on one machine only."""
    for path in tree.paths:
        for number, line in tree.lines(path):
            found = MACHINE_PATHS.search(line)
            if found:
                yield f"{path}:{number}: names a path of one machine: {line.strip()[:100]}"


def check_sizes(tree):
    """Warns of long files and functions: a sign, not a crime, so this never fails."""
    for path in tree.paths:
        if not path.endswith(C_SUFFIXES + CXX_SUFFIXES + (".py",)):
            continue
        begin = None
        last = 0
        for last, line in tree.lines(path):
            # clang-format puts the braces of a function, and of hardly anything else, in column 0.
            if line == "{":
                begin = last
            elif line == "}" and begin is not None:
                if last - begin > FUNCTION_LINES:
                    print(f"warning: {path}:{begin}: a function of {last - begin} lines "
                          f"(about {FUNCTION_LINES} is long)")
                begin = None
        if last > FILE_LINES:
            print(f"warning: {path}:1: {last} lines (about {FILE_LINES} is long)")
    return ()


CHECKS = {
    "includes": check_includes,
    "cycles": check_cycles,
    "cxx": check_cxx,
    "licence": check_licence,
    "links": check_links,
    "readmes": check_readmes,
    "machine-paths": check_machine_paths,
    "sizes": check_sizes,
}
LISTS = {"list-c": Tree.c_files, "list-shell": Tree.shell_files}


def main(arguments):
    names = list(CHECKS) + list(LISTS)
    if not 1 <= len(arguments) <= 2 or arguments[0] not in names:
        print(f"usage: check_structure.py {'|'.join(names)} [ROOT]", file=sys.stderr)
        return 2
    default_root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    tree = Tree(arguments[1] if len(arguments) == 2 else default_root)
    if arguments[0] in LISTS:
        print("\n".join(LISTS[arguments[0]](tree)))
        return 0
    findings = list(CHECKS[arguments[0]](tree))
    print("\n".join(findings) if findings else f"{arguments[0]}: {len(tree.paths)} files, nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
