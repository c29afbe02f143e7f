# SPDX-License-Identifier: Apache-2.0
"""The files of a source tree."""

import os
import re
import subprocess

C_SUFFIXES = (".c", ".h", ".cu", ".cuh")
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".hh", ".hpp", ".hxx")


class Tree:
    """The files of a source tree that git knows (tracked, or new and not ignored), each read once."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.paths = sorted(p for p in self._list() if os.path.isfile(os.path.join(self.root, p)))
        self._texts = {}

    def _list(self):
        command = ["git", "-c", "safe.directory=*", "-C", self.root, "ls-files", "-z", "--cached",
                   "--others", "--exclude-standard"]
        if self.has_history():
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode == 0:
                return {p.decode() for p in done.stdout.split(b"\0") if p}
        found = set()
        for folder, folders, names in os.walk(self.root):
            folders[:] = [d for d in folders
                          if not d.startswith(("build", ".")) and d != "__pycache__" or d == ".ci"]
            found |= {os.path.relpath(os.path.join(folder, n), self.root) for n in names}
        return found

    def commits_since(self, commit):
        """Lines of an abbreviated name and a subject, of the commits after @commit that are no merges. There are none in a tree without
        that commit: an export, or a shallow clone."""
        if not self.has_history():
            return []
        command = ["git", "-c", "safe.directory=*", "-C", self.root, "log", "--no-merges", "--format=%h %s", f"{commit}.."]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    def has_history(self):
        return os.path.exists(os.path.join(self.root, ".git"))

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

    def code_files(self):
        return [p for p in self.paths if p.endswith(C_SUFFIXES + CXX_SUFFIXES + (".py",))]
