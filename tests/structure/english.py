# SPDX-License-Identifier: Apache-2.0
"""Finds habits that make text hard to read: comments and sentences that start with a clause in place of a subject, long sentences in
text for users, and long subjects of commits."""

import re

from prose import (c_comments, comment_units, docstring_units, hash_comments, man_units, markdown_units, python_comments, sentences,
                   string_units)

SENTENCE_WORDS = 35
SUBJECT_CHARACTERS = 72
FIRST_COMMIT = "52eb50a"  # the last one before this rule
BAD_START = re.compile(r"(Of|What|Who|Whether)\s")
BAD_SENTENCE = re.compile(r"[\"“(*_]*(Of|What|Who|Whether)\s(?!.*\?[\"”)*_]*$)")

# Text that users read, and the function that finds its units. C's strings are help texts, descriptions, messages and log lines.
TEXTS = (
    (re.compile(r"\.md$"), markdown_units),
    (re.compile(r"\.[1-9](\.in)?$"), man_units),
    (re.compile(r"^(client/python|examples)/.*\.py$"), docstring_units),
    (re.compile(r"^(client/include/|base/embtier_)\w+\.h$"), comment_units),
    (re.compile(r"^(?!tests/).*\.(c|h|cc|hh|cu|cuh)$"), string_units),
)


def is_python(tree, path):
    return path.endswith(".py") or bool(re.match(r"#!.*python", (tree.text(path) or "")[:64]))


def comments_of(tree, path):
    text = tree.text(path) or ""
    if is_python(tree, path):
        return python_comments(text)
    return c_comments(text) if path in tree.c_files() else hash_comments(text)


def comment_findings(tree):
    python = [path for path in tree.paths if is_python(tree, path)]
    for path in sorted([*tree.c_files(), *tree.shell_files(), *python]):
        for line, text in comments_of(tree, path):
            if BAD_START.match(text):
                yield (f"{path}:{line}: a comment starts with '{text.split()[0]}'; start with its subject: "
                       f"{text.splitlines()[0][:80]}")


def sentence_findings(tree):
    for path in tree.paths:
        for begin, unit in (found for name, units in TEXTS if name.search(path) for found in units(tree.text(path) or "")):
            for line, text in ((begin + lines, text) for lines, text in sentences(unit)):
                words = len(re.findall(r"\S*\w\S*", text))
                if words > SENTENCE_WORDS:
                    yield f"{path}:{line}: a sentence of {words} words; at most {SENTENCE_WORDS}: {text[:80]}"
                if BAD_SENTENCE.match(text):
                    yield f"{path}:{line}: a sentence starts with '{text.split()[0]}'; start with its subject: {text[:80]}"


def long_subjects(commits):
    """Findings in @commits, lines of a commit's name and its subject."""
    for line in commits:
        commit, subject = line.split(" ", 1)
        if len(subject) > SUBJECT_CHARACTERS:
            yield f"commit {commit}: a subject of {len(subject)} characters; at most {SUBJECT_CHARACTERS}: {subject}"


def check_english(tree):
    """Comments and sentences start with their subject; sentences and subjects of commits are short."""
    yield from comment_findings(tree)
    yield from sentence_findings(tree)
    yield from long_subjects(tree.commits_since(FIRST_COMMIT))
