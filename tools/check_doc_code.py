#!/usr/bin/env python3
"""Compiles the C++ that the pages of docs/ show, against the tree as it is.

    tools/check_doc_code.py [ROOT]

Prints the compiler's errors with the place in the page; exit status 1 if there is one. CXX names
the compiler. Before each block of C++ stands what it is:

    <!-- code: FILE -->                   a new file
    <!-- code: FILE before TEXT -->       new lines of a file, before its first line that begins so
    <!-- code: FILE instead of TEXT -->   in place of every such line
    <!-- excerpt: FILE -->                lines that the file has

New files of a page are there for all of its blocks, and its headers are included by all.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"(?:^<!-- (code|excerpt): (\S+)(?: (before|instead of) (.*))? -->\n)?^```cpp\n((?:.*\n)*?)```$",
                   re.MULTILINE)
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
         "-Wno-unused-function", "-Wno-psabi", "-D", "TESSERA_ISA=portable"]


def with_block(lines, file, place, text, block):
    """The lines with the block among them, or None where its place is not there."""
    at = [i for i, line in enumerate(lines) if line.strip().startswith(text)]
    for i in reversed(at if place == "instead of" else at[:1]):
        behind = i if place == "before" else i + 1
        lines[i:behind] = [*block, f'#line {behind + 1} "{file}"']
    return lines if at else None


def compile_page(root, page, folder):
    """Breaches of the page, whose files are made in the folder."""
    name, text = page.relative_to(root).as_posix(), page.read_text(encoding="utf-8")
    files, new = {}, []
    for match in BLOCK.finditer(text):
        kind, file, place, anchor, code = match.groups()
        line = text.count("\n", 0, match.start(5)) + 1
        if not kind:
            yield f"{name}:{line}: nothing says what this code is"
        elif kind == "excerpt":
            if code not in (root / file).read_text(encoding="utf-8"):
                yield f"{name}:{line}: {file} has no such lines"
        else:
            block = [f'#line {line} "{name}"', *code.splitlines()]
            if place:
                old = files.get(file) or (root / file).read_text(encoding="utf-8").splitlines()
                block = with_block(old, file, place, anchor, block)
            else:
                new.append(file)
            if block:
                files[file] = block
            else:
                yield f"{name}:{line}: {file} has no line {anchor}"
    for file, lines in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [os.environ.get("CXX", "g++"), *FLAGS]
    command += [f"-I{tree / sub}" for sub in ("src", "") for tree in (folder, root)]

    def errors(file):
        included = [word for f in new if f.endswith(".h") and file not in new for word in ("-include", folder / f)]
        result = subprocess.run([*command, *included, folder / file], capture_output=True, text=True,
                                env={**os.environ, "LC_ALL": "C"})
        if result.returncode == 0:
            return []
        return [line for line in result.stderr.splitlines() if "error: " in line] or [f"{file}: {result.stderr}"]

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for breaches in pool.map(errors, [file for file in files if file.endswith(".cpp")]):
            yield from breaches


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]).resolve()
    breaches = []
    for page in sorted((root / "docs").rglob("*.md")):
        with tempfile.TemporaryDirectory() as folder:
            breaches += compile_page(root, page, pathlib.Path(folder))
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
