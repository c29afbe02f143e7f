# SPDX-License-Identifier: Apache-2.0
"""Finds habits that make text hard to read: comments that start with a clause in place of a subject, long sentences of docs, and long
subjects of commits."""

import io
import re
import tokenize

SENTENCE_WORDS = 35
SUBJECT_CHARACTERS = 72
FIRST_COMMIT = "52eb50a"  # the last one before this rule
BAD_START = re.compile(r"(Of|What|Who|Whether)\s")

# Strings come first, so that no comment is found in one.
_C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.DOTALL)
_LIST_ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*_]*[A-Z0-9])")


def c_comments(text):
    """(line, text) of each comment; consecutive lines of // are one comment."""
    last_line = -1
    for token in _C_TOKENS.finditer(text):
        if token[0][0] != "/":
            continue
        line = text.count("\n", 0, token.start()) + 1
        if token[0].startswith("//"):
            is_more, last_line = line == last_line + 1, line
            if is_more:
                continue
        yield line, token[0].lstrip("/*! \t\n")


def hash_comments(text):
    """(line, text) of each comment of a shell script; consecutive whole lines of # are one comment."""
    last_line = -1
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"(.*?)(?:^|(?<=\s))#\s+(.*)", line)
        if found:
            is_whole = not found[1].strip()
            if not (is_whole and last_line == number - 1):
                yield number, found[2]
            last_line = number if is_whole else -1


def python_comments(text):
    """(line, text) of each comment and docstring."""
    last_line, before = -1, tokenize.NEWLINE
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                is_whole = not token.line[:token.start[1]].strip()
                if not (is_whole and last_line == token.start[0] - 1):
                    yield token.start[0], token.string.lstrip("# ")
                last_line = token.start[0] if is_whole else -1
            elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                yield token.start[0], token.string.lstrip("rbuRBU\"' \n\\")
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                before = token.type
    except (tokenize.TokenError, IndentationError):
        pass  # other checks report files that are not Python


def paragraphs(text):
    """(line, text) of each paragraph and item of a list in Markdown, without headings, tables and code."""
    begin, lines, is_fenced = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        item = _LIST_ITEM.match(line)
        is_prose = not (is_fenced or is_fence or not line.strip() or re.match(r"\s*(\||#{1,6}\s|<|\[[^\]]+\]:)", line))
        is_fenced ^= is_fence
        if lines and (item or not is_prose):
            yield begin, "\n".join(lines)
            lines = []
        if is_prose:
            begin = begin if lines else number
            lines.append(line[item.end():] if item else line.strip().lstrip("> "))


def sentences(text):
    """(line, text) of each sentence of prose in Markdown. Code within a line is one word."""
    for begin, paragraph in paragraphs(text):
        paragraph = re.sub(r"`[^`]*`", lambda code: "Code" + "\n" * code[0].count("\n"), paragraph)
        paragraph = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
        paragraph = re.sub(r"\b(e\.g|i\.e|etc|cf|vs)\.", r"\1", paragraph)
        place = 0
        for end in [*_SENTENCE_END.finditer(paragraph), None]:
            sentence = paragraph[place:end.start() if end else len(paragraph)]
            yield begin + paragraph.count("\n", 0, place), " ".join(sentence.split())
            place = end.end() if end else place


def comments_of(tree, path):
    text = tree.text(path) or ""
    if path.endswith(".py") or re.match(r"#!.*python", text):
        return python_comments(text)
    return c_comments(text) if path in tree.c_files() else hash_comments(text)


def text_findings(tree):
    """Findings in comments and in sentences."""
    python = [p for p in tree.paths if p.endswith(".py") or re.match(r"#!.*python", (tree.text(p) or "")[:64])]
    for path in sorted([*tree.c_files(), *tree.shell_files(), *python]):
        for line, text in comments_of(tree, path):
            if BAD_START.match(text):
                yield (f"{path}:{line}: a comment starts with '{text.split()[0]}'; start with its subject: "
                       f"{text.splitlines()[0][:80]}")
    for path in tree.paths:
        if path.endswith(".md"):
            for line, text in sentences(tree.text(path) or ""):
                words = len(re.findall(r"\S*\w\S*", text))
                if words > SENTENCE_WORDS:
                    yield f"{path}:{line}: a sentence of {words} words; at most {SENTENCE_WORDS}: {text[:80]}"


def long_subjects(commits):
    """Findings in @commits, lines of a commit's name and its subject."""
    for line in commits:
        commit, subject = line.split(" ", 1)
        if len(subject) > SUBJECT_CHARACTERS:
            yield f"commit {commit}: a subject of {len(subject)} characters; at most {SUBJECT_CHARACTERS}: {subject}"


def check_english(tree):
    """Comments start with their subject; sentences and subjects of commits are short."""
    yield from text_findings(tree)
    yield from long_subjects(tree.commits_since(FIRST_COMMIT))
