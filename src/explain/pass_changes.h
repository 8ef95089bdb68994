#pragma once
#include <string>
#include <vector>

#include "passes/graph_diff.h"
#include "passes/pass_runner.h"

namespace tessera {

// What one pass did to one program.
struct PassChanges {
  std::string program, pass;
  double seconds = 0;
  int64_t nodes_before = 0, nodes_after = 0;
  int64_t added = 0, removed = 0, changed = 0;
  std::vector<ChangedNodes> kinds;
};

// Of a pass that just ran.
PassChanges pass_changes(const PassEvent& event);

// A line a pass, below it a line for what it added, removed and changed, with at most `most` ops.
std::string pass_changes_text(const std::vector<PassChanges>& passes, size_t most);

}  // namespace tessera
