# SPDX-License-Identifier: Apache-2.0
"""Finds the prose in each kind of file: comments, docstrings, Markdown, man pages, and the strings of programs. A unit of prose is a
paragraph, an item of a list, a cell of a table, or a row of a help text."""

import ast
import io
import re
import tokenize

# Strings come first, so that no comment is found in one.
_C_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.DOTALL)
_C_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_LIST_ITEM = re.compile(r"\s*(?:[*+-]|\d+[.)])\s+")
_CELL_END = re.compile(r"(?<!\\)\|")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”)*_]*\s+(?=[\"“(*_]*[A-Z0-9@])")
# An item of a docstring begins with a parameter, a row of a help text has its columns apart.
_ITEM_OF_TEXT = re.compile(r"\s*(?:[*+-]\s|\d+[.)]\s|@\w|--?\w.*\S {2,}\S|\S.*\S {3,}\S)")

_MAN_BLOCKS = {"Sh", "Ss", "Pp", "Bl", "El", "It", "Bd", "Ed", "Dd", "Dt", "Os", "Ft", "br"}
_MAN_TEXT = {"Nd", "Em", "No", "Pq", "Po", "Pc", "Dq", "Sx"}  # the words after these are prose
_MAN_MACRO = re.compile(r"(?:Ar|Cm|Dv|Ev|Fa|Fl|Fn|Ic|In|Li|Nm|No|Ns|Pa|Pc|Po|Pq|Ql|Va|Vt|Xr)$")


def c_comments(text):
    """(line, text) of each comment; consecutive lines of // are one comment, of which the first line is given."""
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


def c_strings(text):
    """(line, text) of each string; literals with nothing but blanks and line continuations between them are one string."""
    begin, parts, end = 0, [], 0
    for token in _C_TOKENS.finditer(text):
        if token[0][0] != '"':
            continue
        if parts and not re.fullmatch(r"[\s\\]*", text[end:token.start()]):
            yield begin, "".join(parts)
            parts = []
        begin = begin if parts else text.count("\n", 0, token.start()) + 1
        parts.append(_C_ESCAPE.sub(lambda code: {"n": "\n", "t": " "}.get(code[0][1], code[0][1:]), token[0][1:-1]))
        end = token.end()
    if parts:
        yield begin, "".join(parts)


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


def _python_tokens(text):
    """(token, is_docstring) of each comment and docstring."""
    before = tokenize.NEWLINE
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token, False
            elif token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
                yield token, True
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                before = token.type
    except (tokenize.TokenError, IndentationError):
        pass  # other checks report files that are not Python


def python_comments(text):
    """(line, text) of each comment and docstring; consecutive whole lines of # are one comment."""
    last_line = -1
    for token, is_docstring in _python_tokens(text):
        if is_docstring:
            yield token.start[0], token.string.lstrip("rbuRBU\"' \n\\")
            continue
        is_whole = not token.line[:token.start[1]].strip()
        if not (is_whole and last_line == token.start[0] - 1):
            yield token.start[0], token.string.lstrip("# ")
        last_line = token.start[0] if is_whole else -1


def _text_units(line, text):
    """Units of the lines @text, the first of which is @line. A block that is indented after an empty line is an example, not prose."""
    unit, begin, prose_indent, after_blank = [], line, None, False
    least_indent = 0  # of further lines of an item
    for number, words in enumerate([*text.splitlines(), ""], line):
        indent = len(words) - len(words.lstrip())
        if not words.strip():
            after_blank = True
        elif after_blank and prose_indent is not None and indent > prose_indent and not _ITEM_OF_TEXT.match(words):
            continue  # an example
        is_more = unit and words.strip() and not _ITEM_OF_TEXT.match(words) and (
            indent >= least_indent if least_indent else indent <= prose_indent)
        if unit and not is_more:
            yield begin, "\n".join(unit)
            unit = []
        if words.strip():
            if not unit:
                begin, least_indent = number, (indent + (words.strip()[0] != "@")) if _ITEM_OF_TEXT.match(words) else 0
            unit.append(words.strip())
            prose_indent = prose_indent if is_more and least_indent else indent
            after_blank = False


def docstring_units(text):
    """Units of a Python file's docstrings."""
    for token, is_docstring in _python_tokens(text):
        if is_docstring:
            words = ast.literal_eval(token.string)
            if isinstance(words, str):
                yield from _text_units(token.start[0], " " * token.start[1] + words)


def comment_units(text):
    """Units of a C file's comments."""
    for token in _C_TOKENS.finditer(text):
        if token[0].startswith("/*"):
            words = re.sub(r"(?m)^[ \t]*\*? ?", "", token[0][2:-2])
            yield from _text_units(text.count("\n", 0, token.start()) + 1, words)


def string_units(text):
    """Units of a C file's strings, such as a help text. They are known by the line in which their string begins. A list of figures in
    parentheses is one word."""
    for line, words in c_strings(text):
        words = re.sub(r"\([^()]*%[^()]*\)", "(figures)", words)
        while re.search(r"[{\[][^{}\[\]]*[}\]]", words):
            words = re.sub(r"[{\[][^{}\[\]]*[}\]]", "Code", words)  # the shape of some JSON is one word
        for _, unit in _text_units(0, words):
            yield line, unit


def markdown_units(text):
    """Paragraphs, items of lists, and cells of tables in Markdown, without headings and code."""
    begin, lines, is_fenced = 0, [], False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = line.lstrip().startswith("```")
        is_row = not is_fenced and line.lstrip().startswith("|")
        item = _LIST_ITEM.match(line)
        is_prose = not (is_fenced or is_fence or is_row or not line.strip() or re.match(r"\s*(#{1,6}\s|<|\[[^\]]+\]:)", line))
        is_fenced ^= is_fence
        if lines and (item or not is_prose):
            yield begin, "\n".join(lines)
            lines = []
        if is_prose:
            begin = begin if lines else number
            lines.append(line[item.end():] if item else line.strip().lstrip("> "))
        for cell in _CELL_END.split(line) if is_row else ():
            if re.search(r"\w", cell):
                yield number, cell.strip()


def _man_words(line):
    """The words of a line of mdoc that is not a block macro: a macro's arguments are one word, its punctuation stays."""
    if not line.startswith("."):
        return re.sub(r"\\(?:&|e)", "", line)
    macro, *words = line[1:].split() or [""]
    marks = ""
    while words and re.fullmatch(r"[.,:;!?)]", words[-1]):
        marks = words.pop() + marks
    if macro in _MAN_TEXT:
        return " ".join(w for w in words if not _MAN_MACRO.match(w)) + marks
    return "Code" + marks


def man_units(text):
    """Paragraphs and items of lists of a man page in mdoc, without its synopsis and examples."""
    begin, lines, section, is_literal = 0, [], "", False
    for number, line in enumerate([*text.splitlines(), ".Pp"], 1):
        macro = line[1:3] if line.startswith(".") else ""
        section = line[4:].strip() if macro == "Sh" else section
        is_literal = macro == "Bd" or (is_literal and macro != "Ed")
        is_break = macro in _MAN_BLOCKS or macro.startswith("\\") or re.fullmatch(r"@\w+@", line)
        if lines and (is_break or is_literal):
            yield begin, "\n".join(lines)
            lines = []
        if not (is_break or is_literal or section == "SYNOPSIS"):
            begin = begin if lines else number
            lines.append(_man_words(line))


def sentences(unit):
    """(lines before it, text) of each sentence of a unit. Code within a line is one word."""
    unit = re.sub(r"(?::\w+:)?(`+)[^`]+\1", lambda code: "Code" + "\n" * code[0].count("\n"), unit)
    unit = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", unit)
    unit = re.sub(r"\b(e\.g|i\.e|etc|cf|vs)\.", r"\1", unit)
    place = 0
    for end in [*_SENTENCE_END.finditer(unit), None]:
        sentence = unit[place:end.start() if end else len(unit)]
        yield unit.count("\n", 0, place), " ".join(sentence.split())
        place = end.end() if end else place
