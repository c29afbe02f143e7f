#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the source tree itself: who may include whom, licence lines, links, sizes.

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

# Folder: the folders it may include besides itself. The table of docs/ARCHITECTURE.md.
LAYERS = {
    "base": set(),
    "config": {"base"},
    "kernels": {"base"},
    "proto": {"base"},
    "tiers": {"base", "config", "kernels"},
    "store": {"base", "config", "tiers", "kernels"},
    "placement": {"base"},
    "daemon": {"base", "config", "kernels", "proto", "tiers", "store", "placement"},
    "client": {"base", "config", "kernels", "proto"},
    "tools": {"base", "config", "proto", "placement", "client"},
    "docs": {"base", "config", "daemon"},  # the generator of man pages reads their tables
    "examples": {"client"},
    "tests": ALL,
}
# What RocksDB's C API lacks; everything else is C.
CXX_PLACES = ("store/rocksdb/", "store/rocksdb_ext.cc")

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


def included_folder(path, name, quoted, tree_paths, folders_of_name):
    """The folder of ours that an #include in @path reaches, or None if it is none of ours."""
    if ".." in name.split("/"):
        name = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if "/" in name:
        first = name.split("/")[0]
        if os.path.join(os.path.dirname(path), name) in tree_paths and first not in LAYERS:
            return path.split("/")[0]
        return first if first in LAYERS else None
    if os.path.join(os.path.dirname(path), name) in tree_paths:
        return path.split("/")[0]
    if quoted or name in PUBLIC_HEADERS:
        return folders_of_name.get(name)
    return None


def check_includes(tree):
    """A folder includes only the folders below it."""
    tree_paths = set(tree.paths)
    folders_of_name = {os.path.basename(p): p.split("/")[0] for p in tree.c_files()}
    directive = re.compile(r'\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]')
    for path in tree.c_files():
        folder = path.split("/")[0]
        if "/" not in path or folder not in LAYERS:
            yield f"{path}:1: this folder has no place in the layers; one of: {', '.join(LAYERS)}"
            continue
        allowed = LAYERS[folder]
        if allowed is ALL:
            continue
        for number, line in tree.lines(path):
            found = directive.match(line)
            if not found:
                continue
            target = included_folder(path, found[2], found[1] == '"', tree_paths, folders_of_name)
            # The public headers name two of base's without a folder, as they lie when installed.
            if folder == "examples" and found[2] in PUBLIC_HEADERS:
                continue
            if target is not None and target != folder and target not in allowed:
                below = ", ".join(sorted(allowed)) or "nothing of ours"
                yield f"{path}:{number}: {folder}/ includes {target}/ ({found[2]}); it may include {below}"


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
    "cxx": check_cxx,
    "licence": check_licence,
    "links": check_links,
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
