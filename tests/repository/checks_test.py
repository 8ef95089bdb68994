"""The checks in tools/ find what they are there for, in a tree made for it, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"


class ChecksTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        for folder in ("base", "ir", "models", "apps", "backends/cpu"):
            self.write(f"src/{folder}/README.md", "# what lives here\n")
        self.write("src/base/text.h")
        self.write("src/ir/graph.h", '#include "base/text.h"\n#include <vector>\n')
        self.write("src/backends/cpu/kernels/norm.h")
        self.write("src/backends/cpu/cpu.cpp", '#include "backends/cpu/kernels/norm.h"\n')
        self.write("src/apps/main.cpp", '#include "backends/cpu/kernels/norm.h"\n')

    def write(self, file, text=""):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, check, *breaches):
        """The check fails with exactly these breaches, or passes when there are none."""
        result = subprocess.run([sys.executable, TOOLS / check, self.root],
                                capture_output=True, text=True)
        lines = [line for line in result.stdout.splitlines() if not line.startswith("note: ")]
        self.assertEqual(len(lines), len(breaches), result.stdout + result.stderr)
        for breach in breaches:
            self.assertTrue(any(line.startswith(breach) for line in lines), f"{breach}\n{lines}")
        self.assertEqual(result.returncode, 1 if breaches else 0)

    def test_a_clean_tree_passes(self):
        self.expect("check_layering.py")
        self.expect("check_files.py")

    def test_an_include_upwards(self):
        self.write("src/base/text.cpp", '#include "base/text.h"\n\n#  include "ir/graph.h"\n')
        self.expect("check_layering.py", 'src/base/text.cpp:3: base/ may not include "ir/graph.h"')

    def test_kernels_do_not_see_the_graph(self):
        self.write("src/backends/cpu/kernels/norm.cpp", '#include "ir/graph.h"\n')
        self.expect("check_layering.py",
                    "src/backends/cpu/kernels/norm.cpp:1: backends/cpu/kernels/ may not include")

    def test_kernels_of_a_gpu_find_each_other_by_name(self):
        self.write("src/backends/cuda/kernels/dot.cu", '#include "sums.cuh"\n')
        self.write("src/backends/cuda/kernels/sums.cuh", '#include "ir/graph.h"\n')
        self.expect("check_layering.py",
                    "src/backends/cuda/kernels/sums.cuh:1: backends/cuda/kernels/ may not include")

    def test_a_relative_or_missing_include(self):
        self.write("src/ir/graph.cpp", '#include "graph.h"\n#include "../base/absent.h"\n')
        self.expect("check_layering.py", 'src/ir/graph.cpp:1: "graph.h" is not the path',
                    'src/ir/graph.cpp:2: "../base/absent.h" is not the path')

    def test_a_folder_without_a_row(self):
        self.write("src/extras/thing.cpp", '#include "base/text.h"\n')
        self.expect("check_layering.py", "src/extras/thing.cpp:1: the folder of")

    def test_a_heavy_header_in_a_header(self):
        self.write("src/models/config.h", "#include <nlohmann/json.hpp>\n")
        self.write("src/models/config.cpp", "#include <nlohmann/json.hpp>\n")
        self.expect("check_layering.py", "src/models/config.h:1: <nlohmann/json.hpp> is a heavy")

    def test_long_files(self):
        self.write("src/ir/graph.cpp", "\n" * 451)
        self.write("tests/ir/graph_test.cpp", "\n" * 450)
        self.write("src/ir/README.md", "line\n" * 31)
        self.expect("check_files.py", "src/ir/graph.cpp: 451 lines", "src/ir/README.md: 31 lines")

    def test_names_that_say_nothing(self):
        self.write("src/ir/string_utils.h")
        self.write("src/ir/common/shape.h")
        self.write("src/ir/commonality.h")
        self.expect("check_files.py", "src/ir/string_utils.h: the name",
                    "src/ir/common/shape.h: the name")

    def test_words(self):
        self.write("docs/page.md", "see /home/somebody/tessera\nhttps://host/home/x and ./work/a\n")
        self.write("src/ir/graph.cpp", "// TODO: more\n")
        self.expect("check_files.py", "docs/page.md:1: an absolute path",
                    "src/ir/graph.cpp:1: a mark of unfinished work")

    def test_links(self):
        self.write("docs/decisions/0016-views.md", "# 16. Views\n\n## Why\n")
        self.write("docs/page.md", "# A page\n[decision 16](decisions/0016-views.md#why) [here](#a-page)\n"
                   "[there](https://example.org)\n[decision 15](decisions/0016-views.md)\n"
                   "[a](absent.md) [b](decisions/0016-views.md#how)\n")
        self.expect("check_files.py", "docs/page.md:4: decision 15 is not 0016-views.md",
                    "docs/page.md:5: there is no absent.md",
                    "docs/page.md:5: decisions/0016-views.md has no heading #how")

    def test_a_worktree_is_clean_too(self):
        self.write(".git", "gitdir: /home/somebody/tessera/.git/worktrees/branch\n")
        self.expect("check_files.py")

    def test_a_folder_without_a_page(self):
        self.write("src/plan/plan.h")
        self.write("src/backends/ref/ref.h")
        self.expect("check_files.py", "src/plan: README.md is missing",
                    "src/backends/ref: README.md is missing")

    def test_code_of_pages(self):
        self.write("src/ir/sum.cpp", "int sum() {\n  int y = 1;\n  return y;\n}\n")
        self.write("docs/page.md", """# A page
<!-- code: src/ir/half.h -->
```cpp
#pragma once
int half(int x);
```
<!-- code: src/ir/sum.cpp before return -->
```cpp
  y = half(y);
```
<!-- code: src/ir/sum.cpp instead of int y -->
```cpp
  int y = x;
```
<!-- code: src/ir/sum.cpp before throw -->
```cpp
  y = 3;
```
<!-- excerpt: src/ir/sum.cpp -->
```cpp
  return y;
```
<!-- excerpt: src/ir/sum.cpp -->
```cpp
  return x;
```
```cpp
int z;
```
""")
        self.expect("check_doc_code.py", "docs/page.md:13:11: error: ",
                    "docs/page.md:17: src/ir/sum.cpp has no line throw",
                    "docs/page.md:25: src/ir/sum.cpp has no such lines",
                    "docs/page.md:28: nothing says what this code is")


if __name__ == "__main__":
    unittest.main()
