#!/usr/bin/env python3
"""Checks every `#include` under src/ against who may include whom (docs/architecture.md, "Folders and
who includes whom").

    tools/check_layering.py [ROOT]

Prints `file:line: rule` for each breach; exit status 1 if there is one. The rules:
- a folder includes only itself and the folders in its row of MAY_INCLUDE;
- a project header is included by its path from src/, in quotes, and exists (kernels of GPUs find theirs by name);
- a heavy library header is included by .cpp files only, never by a header.
"""

import pathlib
import re
import sys

EVERYTHING = None

# The longest matching prefix of a file's folder is its row.
MAY_INCLUDE = {
    "base": set(),
    "ir": {"base"},
    "ops": {"ir", "base"},
    "autodiff": {"ops", "ir", "base"},
    "nn": {"ops", "ir", "base"},
    "optim": {"ops", "ir", "base"},
    "models": {"nn", "ops", "ir", "base"},
    "passes": {"nn", "ops", "ir", "base"},
    "plan": {"ir", "base"},
    "runtime": {"plan", "ir", "base"},
    "comm": {"runtime", "base"},
    "backends/ref": {"runtime", "ops", "ir", "base"},
    "backends/cpu": {"runtime", "ops", "ir", "base"},
    "backends/cpu/kernels": {"base"},
    "backends/cuda": {"runtime", "plan", "ops", "ir", "base"},
    "backends/cuda/kernels": {"base"},
    "backends/xla": {"runtime", "ops", "ir", "base"},
    "tables": {"base"},
    "remote": {"base"},
    "data": {"tables", "remote", "tokenizer", "base"},
    "tokenizer": {"base"},
    "checkpoint": {"remote", "base"},
    "torch_files": {"checkpoint", "base"},
    "hub": {"torch_files", "checkpoint", "remote", "base"},
    "serve": {"base"},
    "observe": {"serve", "base"},
    "plot": {"base"},
    "doctor": {"comm", "runtime", "base"},
    "profile": {"runtime", "plan", "ir", "base"},
    "flight": {"profile", "runtime", "base"},
    "options": {"optim", "models", "hub", "remote", "checkpoint", "base"},
    "programs": {"options", "checkpoint", "runtime", "passes", "models", "optim", "autodiff", "ops", "ir", "base"},
    "weights": {"programs", "options", "runtime", "models", "nn", "hub", "torch_files", "checkpoint", "data", "tokenizer", "base"},
    "planning": {"programs", "options", "models", "base"},
    "explain": {"planning", "programs", "plot", "passes", "ir", "base"},
    "train": {"weights", "planning", "programs", "options", "flight", "profile", "plot", "observe", "hub", "checkpoint",
              "data", "tokenizer", "remote", "runtime", "ops", "base"},
    "generate": {"weights", "programs", "options", "hub", "checkpoint", "tokenizer", "runtime", "models", "base"},
    "launch": {"flight", "comm", "remote", "base"},
    "cluster": {"base"},
    "apps": EVERYTHING,
}

HEAVY = ("nlohmann/", "simdjson", "toml++/", "oneapi/", "dnnl", "curl/", "microhttpd", "expat", "yaml.h", "gloo/", "snappy", "zstd", "lz4", "brotli/")
LIGHT = ("nlohmann/json_fwd.hpp",)  # declares without defining

GPU_KERNELS = "backends/cuda/kernels/"  # find each other, and the emulator of tests, by names alone

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def row_of(path):
    """The row of MAY_INCLUDE for a path below src/, or None."""
    folders = path.split("/")[:-1]
    for depth in range(len(folders), 0, -1):
        if "/".join(folders[:depth]) in MAY_INCLUDE:
            return "/".join(folders[:depth])
    return None


def check_include(src, file, bracket, target):
    """The rule that this include breaks, or None."""
    if bracket == "<":
        if file.endswith(".h") and target.startswith(HEAVY) and target not in LIGHT:
            return f"<{target}> is a heavy header: include it in a .cpp file only"
        return None
    if not (src / target).is_file():
        if file.startswith(GPU_KERNELS):
            return None
        return f'"{target}" is not the path of a header from src/'
    row, target_row = row_of(file), row_of(target)
    if row is None or target_row is None:
        unknown = file if row is None else target
        return f"the folder of '{unknown}' has no row in tools/check_layering.py"
    may_include = MAY_INCLUDE[row]
    # A row of a folder inside another (kernels) is a layer below it, with no way back up.
    if row == target_row or target_row.startswith(row + "/"):
        return None
    if may_include is EVERYTHING or target_row in may_include:
        return None
    allowed = ", ".join(sorted(may_include)) or "nothing"
    return f'{row}/ may not include "{target}" (it may include: {allowed})'


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    src = root / "src"
    breaches = 0
    for path in sorted(src.rglob("*")):
        if path.suffix not in (".cpp", ".h", ".cu", ".cuh"):
            continue
        file = path.relative_to(src).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            breach = match and check_include(src, file, *match.groups())
            if breach:
                print(f"src/{file}:{number}: {breach}")
                breaches += 1
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
