#!/usr/bin/env python3
"""Checks the files of the repository: sizes, names, words.

    tools/check_files.py [ROOT]

Prints `file[:line]: rule` for each breach; exit status 1 if there is one. The rules:
- a .cpp or .h file has at most 450 lines (from 400 on it is mentioned), the README of a source
  folder at most 30;
- every folder directly below src/ has a README.md;
- a name says what is inside (no `utils`, `helpers`, `common`, `misc`, `manager`);
- no text file holds an absolute path of somebody's machine or a mark of unfinished work;
- what a page links to is there, down to the heading, and "decision N" leads to decision N.
"""

import pathlib
import re
import sys

FOLDERS = ("src", "tests", "bench", "examples", "docs", "tools", "cmake", ".ci", ".vscode")
TEXT = {"", ".cpp", ".h", ".py", ".sh", ".md", ".txt", ".cmake", ".json", ".toml", ".in"}
BINARY = {".metadata"}  # a pickle, in checkpoints of PyTorch
MENTIONED_LINES, MAX_LINES, MAX_README_LINES = 400, 450, 30
# Not part of the repository: a link into a build folder that language servers ask for, Python's
# cache, and the file .git of a worktree.
NOT_OURS = {"compile_commands.json", "__pycache__", ".git"}

VAGUE = re.compile(r"(^|_)(utils?|helpers?|common|misc|managers?)(_|\.|$)", re.IGNORECASE)
WORDS = (
    (re.compile(r"(?<![\w.}])/(home|root|Users|work|workspace)/\w"), "an absolute path of one machine"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "a mark of unfinished work"),
    (re.compile(r"\bDISABLED_\w"), "a test that is switched off"),
)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
DECISION = re.compile(r"[Dd]ecision (\d+)$")
# Data of tests and this list itself.
EXEMPT_FROM_WORDS = re.compile(r"^(tests/(fuzz/corpus|goldens|repository)/|tools/check_files\.py$)")


def files_of(root):
    """The repository's own files: what lies in its folders and at its top."""
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(path for path in files if not NOT_OURS.intersection(path.parts))


def check_size(file, lines):
    if file.endswith("/README.md") and file.startswith("src/") and len(lines) > MAX_README_LINES:
        yield f"{file}: {len(lines)} lines, a folder's README has at most {MAX_README_LINES}"
    if file.endswith((".cpp", ".h")) and len(lines) > MAX_LINES:
        yield f"{file}: {len(lines)} lines, at most {MAX_LINES}: is there a second subject inside?"


def check_words(file, lines):
    for number, line in enumerate(lines, 1):
        for pattern, meaning in WORDS:
            if pattern.search(line):
                yield f"{file}:{number}: {meaning}: {line.strip()[:80]}"


def headings(page):
    titles = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def check_links(path, file, lines):
    for number, line in enumerate(lines, 1):
        for words, link in LINK.findall(line):
            target, _, heading = link.partition("#")
            page = path.parent / target if target else path
            decision = DECISION.search(words)
            if re.match(r"\w+:", link):
                continue
            if not page.exists():
                yield f"{file}:{number}: there is no {target}"
            elif heading and page.suffix == ".md" and heading not in headings(page):
                yield f"{file}:{number}: {target or 'this page'} has no heading #{heading}"
            elif decision and not page.name.startswith(f"{int(decision[1]):04}-"):
                yield f"{file}:{number}: decision {decision[1]} is not {page.name}"


def check(root):
    for path in files_of(root):
        file = path.relative_to(root).as_posix()
        if any(VAGUE.search(part) for part in file.split("/")):
            yield f"{file}: the name does not say what is inside"
        if path.suffix not in TEXT or path.name in BINARY or file.startswith("tests/fuzz/corpus/"):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        yield from check_size(file, lines)
        if path.suffix == ".md":
            yield from check_links(path, file, lines)
        if not EXEMPT_FROM_WORDS.match(file):
            yield from check_words(file, lines)
    for folder in sorted((root / "src").iterdir()):
        # backends/ holds one folder a backend, each with its own page.
        for page in sorted(folder.iterdir()) if folder.name == "backends" else [folder]:
            if page.is_dir() and not (page / "README.md").is_file():
                yield f"{page.relative_to(root).as_posix()}: README.md is missing"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    breaches = list(check(root))
    for breach in breaches:
        print(breach)
    for path in files_of(root):
        if path.suffix in (".cpp", ".h"):
            lines = len(path.read_text(encoding="utf-8").splitlines())
            if MENTIONED_LINES <= lines <= MAX_LINES:
                print(f"note: {path.relative_to(root).as_posix()} has {lines} lines")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
