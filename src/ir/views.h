#pragma once
#include "ir/graph.h"

namespace tessera {

// Whether what a node makes lies in its first operand.
inline bool is_view(const Node& node) {
  return !node.op->view_offsets().empty() && !node.inputs.empty();
}

}  // namespace tessera
