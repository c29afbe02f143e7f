#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the source tree itself: include directions and cycles, licence lines, links, READMEs, sizes, mutants, lists of pages, rings, English.

    check_structure.py CHECK [ROOT]     one of the checks below; exit status 1 if it finds something
    check_structure.py list-c [ROOT]    the tree's C and C++ files, for clang-format and clang-tidy
    check_structure.py list-shell [ROOT]

A finding is one line, FILE:LINE: what is wrong and what is allowed. test_check_structure.py proves
on small made-up trees that each check fails when it should.
"""

import ast
import os
import re
import sys

from english import check_english
from layers import arrows_found, check_cycles, check_includes, cycles_found
from source_tree import C_SUFFIXES, CXX_SUFFIXES, Tree

# The only C++: calls that RocksDB's C API lacks.
CXX_PLACES = ("store/rocksdb/ext/",)

NO_LICENCE_LINE = re.compile(
    r"(^|/)(LICENSE|NOTICE|py\.typed|\.[^/]+)$"
    r"|\.(md|gz|csv|json|txt|png|svg|tsv|bin|dat)$"
    r"|^tests/(data|fuzz/corpus)/"
    r"|^debian/(changelog|copyright|source/format)$")  # Debian's own forms, without comments
# Inputs of fuzzers: not written by people, and as many in a folder as there are.
CORPORA = "tests/fuzz/corpus/"
LICENCE_LINE = "SPDX-License-Identifier: Apache-2.0"

FILE_LINES = 800
FOLDER_FILES = 25
README_WORDS = 400
ARCHITECTURE, ARCHITECTURE_WORDS = "docs/ARCHITECTURE.md", 1500
CODE_SUFFIXES = C_SUFFIXES + CXX_SUFFIXES + (".py", ".sh")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
FUNCTION_LINES = 82

# The checks of clients' input, and the table of the builds that lack one.
STEPS = "tools/check"
CONTRIBUTING = "CONTRIBUTING.md"
REQUEST_CHECKS = "daemon/engine/sessions/request_checks.h"
MUTANTS = "tests/unit/engine/ops/meson.build"

# Rings of clients' connections, and what they may not use, each with the trap that it brings.
RINGS = "daemon/transport/rpc/io/"
RING_TRAPS = {
    r"_multishot|multishot_|IORING_(?:RECV|ACCEPT|POLL_ADD)_MULTI": "a multishot task ends by itself, with ENOBUFS or without IORING_CQE_F_MORE",
    r"(?:send|sendmsg)_zc|IORING_OP_SEND(?:MSG)?_ZC": "a zero-copy send has two completions, and its buffer is in use until the second",
    r"IOSQE_BUFFER_SELECT|provide_buffers|IORING_OP_PROVIDE_BUFFERS|buf_ring": "one connection may take all buffers that connections share",
}
# Functions of OpenSSL that name an algorithm without fetching it.
IMPLICIT_FETCH = re.compile(r"\bEVP_(?:sha|md\d|aes|chacha|get_(?:digest|cipher)by)\w*\(")

# Lists that must be complete: of the docs, and of the library's functions.
DOCS_INDEX = "docs/README.md"
FIGURES = "docs/performance.md"
LIBRARY_PAGE = "docs/man/libembtier.3.in"

# Put together here so that this file does not contain the paths that it looks for.
MACHINE_PATHS = re.compile(
    r"(?:\.\./)+shared" + r"/|(?<![\w/-])shared" + r"/(?=design|style|data|hooks|issues)"
    r"|(?<![\w.$}-])/(?:work|root|home/\w+|Users)" + r"/(?=[\w.])")


def check_cxx(tree):
    """C++ lies only in CXX_PLACES."""
    for path in tree.paths:
        if path.endswith(CXX_SUFFIXES) and not path.startswith(CXX_PLACES):
            yield f"{path}:1: C++ outside {', '.join(CXX_PLACES)}"


def check_fetches(tree):
    """The server and the library use no algorithm that OpenSSL looks up under its locks at each use: EVP_MD_fetch() and others
    look it up once."""
    for path in tree.paths:
        if not path.endswith((".c", ".h")) or path.startswith(("tests/", "tools/")):
            continue
        for number, line in enumerate((tree.text(path) or "").splitlines(), 1):
            found = IMPLICIT_FETCH.search(re.sub(r"/?\*.*", "", line))
            if found:
                yield f"{path}:{number}: {found[0]}) is looked up at each use; fetch the algorithm once"


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


def files_of_code(tree):
    """{folder: the paths of its files of code}. An __init__.py stands for its folder, and is not among them."""
    files = {}
    for path in tree.paths:
        is_script = (tree.text(path) or "").startswith("#!")
        if (is_script or path.endswith(CODE_SUFFIXES)) and not path.startswith(".") and not path.endswith("/__init__.py"):
            files.setdefault(os.path.dirname(path), []).append(path)
    return files


def is_named(path, readme):
    """True if a code span of the text @readme has the name of the file @path, with any suffix and with or without its folder."""
    folder, name = os.path.split(path)
    stem = re.escape(os.path.splitext(name)[0])
    pattern = rf"(?<![\w/-])(?:{re.escape(folder)}/)?{stem}(?![\w/-])"
    return any(re.search(pattern, code) for code in CODE_SPAN.findall(readme))


def names_of_table(readme):
    """(line, name) of each file in the first column of the tables of the text @readme; `x.[ch]` and `x.{c,h}` are two files each."""
    for number, line in enumerate(readme.splitlines(), 1):
        for code in CODE_SPAN.findall(line.split("|")[1]) if line.startswith("|") else ():
            found = re.fullmatch(r"([\w/.-]+)\.(?:\[(\w+)\]|\{([\w,]+)\}|(\w+))", code)
            for suffix in (found[2] or (found[3] or found[4]).split(",")) if found else ():
                yield number, f"{found[1]}.{suffix}"


def check_readmes(tree):
    """Every folder of the first level, of the second in daemon/, and with two or more files of code has a README.md. It is short, its
    tables name files that exist, and it names each file of code in its folder, and in those below that have none. The page that
    a newcomer reads first is short too."""
    words = len(tree.text(ARCHITECTURE).split()) if ARCHITECTURE in tree.paths else 0
    if words > ARCHITECTURE_WORDS:
        yield f"{ARCHITECTURE}:1: {words} words; at most {ARCHITECTURE_WORDS}"
    texts = {os.path.dirname(path): tree.text(path) or "" for path in tree.paths if path.endswith("/README.md")}
    files = files_of_code(tree)
    folders = {path.split("/")[0] for path in tree.paths if "/" in path and not path.startswith(".")}
    folders |= {"/".join(path.split("/")[:2]) for path in tree.paths if path.startswith("daemon/") and path.count("/") > 1}
    folders |= {folder for folder, paths in files.items() if folder and len(paths) > 1}
    missing, tree_paths = folders - set(texts), set(tree.paths)
    for folder in sorted(missing):
        yield f"{folder}/README.md:1: missing"
    for folder, text in texts.items():
        if len(text.split()) > README_WORDS:
            yield f"{folder}/README.md:1: {len(text.split())} words; at most {README_WORDS}"
        for number, name in names_of_table(text):
            if f"{folder}/{name}" not in tree_paths:
                yield f"{folder}/README.md:{number}: {name} does not exist"
    for folder, paths in files.items():
        nearest = folder
        while nearest and nearest not in texts:
            nearest = os.path.dirname(nearest)
        for path in (os.path.relpath(p, nearest) for p in paths if nearest and folder not in missing):
            if not is_named(path, texts[nearest]):
                yield f"{nearest}/README.md:1: does not name {path}"


def check_machine_paths(tree):
    """No file names a place that exists on one machine only."""
    for path in (p for p in tree.paths if not p.startswith(CORPORA)):
        for number, line in tree.lines(path):
            found = MACHINE_PATHS.search(line)
            if found:
                yield f"{path}:{number}: names a path of one machine: {line.strip()[:100]}"


def files_of_folders(tree):
    """{folder: the number of files directly in it, besides its README.md}; without corpora."""
    counts = {}
    for path in (p for p in tree.paths if os.path.basename(p) != "README.md" and not p.startswith(CORPORA)):
        folder = os.path.dirname(path) or "."
        counts[folder] = counts.get(folder, 0) + 1
    return counts


def functions(tree):
    """(file, line, lines) of each function in C. clang-format puts the braces of a function, and of hardly anything else, in column 0."""
    for path in tree.c_files():
        begin = None
        for number, line in tree.lines(path):
            if line == "{":
                begin = number
            elif line == "}" and begin is not None:
                yield path, begin, number - begin
                begin = None


def largest(counts):
    """The (count, name) of @counts, {name: count}, that is largest."""
    return max(((count, name) for name, count in counts.items()), default=(0, "none"))


def check_sizes(tree):
    """Folders, files and functions are small, and no include leads uphill or into a cycle. Prints one line of figures."""
    folders = files_of_folders(tree)
    lines = {path: len((tree.text(path) or "").splitlines()) for path in tree.code_files()}
    most, longest = largest(folders), largest(lines)
    long_function = largest({f"{path}:{begin}": count for path, begin, count in functions(tree)})
    uphill = sum(len(targets) for targets in arrows_found(tree).values())
    print(f"{len(folders)} folders, the largest {most[1]} with {most[0]} files; {len(lines)} files of code, the longest {longest[1]} with "
          f"{longest[0]} lines; the longest function {long_function[1]} with {long_function[0]} lines; {uphill} arrows uphill; "
          f"{len(cycles_found(tree))} include cycles")
    for path, count in sorted(folders.items()):
        if count > FOLDER_FILES:
            yield f"{path}:1: {count} files lie in this folder; at most {FOLDER_FILES}"
    for path, count in sorted(lines.items()):
        if count > FILE_LINES:
            yield f"{path}:1: {count} lines; at most {FILE_LINES}"
    for path, begin, count in functions(tree):
        if count > FUNCTION_LINES:
            yield f"{path}:{begin}: a function of {count} lines; at most {FUNCTION_LINES}"
    yield from check_includes(tree)
    yield from check_cycles(tree)


def checks_made(tree, path):
    """The names of the checks that a source file makes."""
    return set(re.findall(r"\bIS_(?:BAD|COPIED)\(\s*(\w+)", (tree.text(path) if path in tree.paths else None) or ""))


def check_mutants(tree):
    """Each check of clients' input, in each source file that makes it, has a build without it, whose test must fail."""
    for path in (REQUEST_CHECKS, MUTANTS):
        if path not in tree.paths:
            yield f"{path}:1: missing; the checks and their mutants are compared"
            return
    checks = set(re.findall(r"\bX\((\w+)\)", tree.text(REQUEST_CHECKS)))
    table = re.search(r"^mutants = (\{.*?^\})", tree.text(MUTANTS), re.MULTILINE | re.DOTALL)
    if not checks or not table:
        yield f"{MUTANTS}:1: no table 'mutants', or no checks in {REQUEST_CHECKS}"
        return
    built = {(f"daemon/engine/{source}.c", name) for source, tests in ast.literal_eval(table[1]).items() for names in tests.values()
             for name in names}
    made = {(path, name) for path in tree.paths if path.startswith("daemon/engine/") and path.endswith(".c")
            for name in checks_made(tree, path)}
    for path, name in sorted(built - made):
        yield f"{MUTANTS}:1: {path} makes no check {name}" if name in checks else f"{MUTANTS}:1: {name} is no check of {REQUEST_CHECKS}"
    for path, name in sorted(made - built):
        yield f"{path}:1: the check {name} has no mutant in {MUTANTS}"
    for name in sorted(checks - {name for _, name in built | made}):
        yield f"{REQUEST_CHECKS}:1: no file makes the check {name}"


def check_steps(tree):
    """CONTRIBUTING.md has each step of the full check in its table."""
    rows = re.findall(r"^    '([\w-]+) *\| (always|quick|full|even|odd|long) ", tree.text(STEPS) or "", re.MULTILINE) if STEPS in tree.paths else []
    steps = {name for name, when in rows if when != "long"} - {"packages", "packages-train"}
    table = re.search(r"^\| step \|.*\n((?:\|.*\n?)*)", tree.text(CONTRIBUTING) or "", re.MULTILINE) if CONTRIBUTING in tree.paths else None
    if not steps or not table:
        yield f"{CONTRIBUTING}:1: no table of steps, or {STEPS} has none"
        return
    told = {name.split()[0] for row in table[1].splitlines()[1:] for name in row.split("|")[1].split(",")}
    for name in sorted(steps - told):
        yield f"{CONTRIBUTING}:1: the step {name} of {STEPS} is missing in the table"
    for name in sorted(told - steps):
        yield f"{CONTRIBUTING}:1: {STEPS} has no step {name}"


def open_bold(text):
    """The lines of paragraphs, items and rows in which bold text has no end."""
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]*`", lambda code: "\n" * code[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    for block in re.finditer(r"(?:^(?!\s*$).*\n?)+", text, re.MULTILINE):
        if len(re.findall(r"\*\*(?!\d)|(?<!\d)\*\*", block[0])) % 2 != 0:  # 2**32 is a number
            yield text[:block.start()].count("\n") + 1


def bars_missed(text):
    """The ratios of a page's figures that miss their bar: the number in front of the cell that says so."""
    for line, row in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in row.split("|")]
        missed = [at for at, cell in enumerate(cells) if "NOT MET" in cell]
        ratio = re.match(r"\d+(?:\.\d+)?", cells[missed[0] - 1]) if missed else None
        if ratio:
            yield line, float(ratio[0])


def check_overview(tree):
    """The overview of figures names each that misses its bar, by its ratio, which may be rounded."""
    for path in (p for p in tree.paths if re.match(r"docs/performance/.*\.md$", p)):
        rows = [row for row in (tree.text(FIGURES) or "").splitlines() if f"]({path.removeprefix('docs/')})" in row and row.count("|") > 3]
        told = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", " ".join(rows))]
        for line, ratio in bars_missed(tree.text(path) or ""):
            if not any(abs(number - ratio) < 0.006 for number in told):
                yield f"{path}:{line}: a bar is not met, with {ratio:g}, and {FIGURES} does not say so"


def check_pages(tree):
    """Each page in docs/ has a title and a text, in which all that is bold ends. The list of docs links to it. The synopsis of the
    library's man page has each public function. The overview of figures has those that miss their bar."""
    if FIGURES in tree.paths:
        yield from check_overview(tree)
    for path in (p for p in tree.paths if re.match(r"docs/.*\.md$", p)):
        for line in open_bold(tree.text(path) or ""):
            yield f"{path}:{line}: bold text begins here and does not end"
    index = tree.text(DOCS_INDEX) or "" if DOCS_INDEX in tree.paths else ""
    links = {os.path.normpath(os.path.join("docs", link)) for link in re.findall(r"\]\(([^()\s#]+)", index)}
    for path in tree.paths:
        if re.match(r"docs/.*\.md$", path) and path != DOCS_INDEX and path not in links:
            yield f"{DOCS_INDEX}:1: no link to {path}"
        if re.match(r"docs/.*\.md$", path) and not re.match(r"# .+\n\s*\S", tree.text(path) or ""):
            yield f"{path}:1: has no title, or no text below it"
    page = tree.text(LIBRARY_PAGE) or "" if LIBRARY_PAGE in tree.paths else ""
    synopsis = set(re.findall(r"^\.Fn (\w+)", page.split(".Sh DESCRIPTION")[0], re.MULTILINE))
    for path in (p for p in tree.paths if re.match(r"client/include/.*\.h$", p)):
        for found in re.finditer(r"EMBTIER_PUBLIC[^;(]*?(embtier_\w+)\(", tree.text(path) or ""):
            if found[1] not in synopsis:
                yield f"{LIBRARY_PAGE}:1: the synopsis lacks {found[1]}(), which {path} declares"


def check_rings(tree):
    """Each task of a connection's ring has a buffer of its own and one completion."""
    for path in (p for p in tree.c_files() if p.startswith(RINGS)):
        for number, line in tree.lines(path):
            for pattern, trap in RING_TRAPS.items():
                found = re.search(rf"\w*(?:{pattern})\w*", line)
                if found:
                    yield f"{path}:{number}: uses {found[0]}: {trap}"


def check_dictionaries(tree):
    """libFuzzer refuses a dictionary with a line that is no "token", name="token" or comment. The escapes are \\\\, \\" and \\xAB."""
    for path in (p for p in tree.paths if p.endswith(".dict")):
        for number, line in tree.lines(path):
            if not re.fullmatch(r'\s*(#.*|([\w.-]+\s*=\s*)?"([ !#-\[\]-~]|\\[\\"]|\\x[0-9a-fA-F]{2})+"\s*)?', line.rstrip("\n")):
                yield f'{path}:{number}: is no "token" as libFuzzer reads them; the escapes are \\\\, \\" and \\xAB'


CHECKS = {
    "includes": check_includes,
    "cycles": check_cycles,
    "cxx": check_cxx,
    "fetches": check_fetches,
    "licence": check_licence,
    "links": check_links,
    "readmes": check_readmes,
    "machine-paths": check_machine_paths,
    "sizes": check_sizes,
    "mutants": check_mutants,
    "steps": check_steps,
    "pages": check_pages,
    "rings": check_rings,
    "dictionaries": check_dictionaries,
    "english": check_english,
}
LISTS = {"list-c": Tree.c_files, "list-shell": Tree.shell_files}


def main(arguments):
    names = [*CHECKS, *LISTS]
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
