#pragma once
#include "ir/graph.h"

namespace tessera {

// Checks everything a graph promises: inputs come before their uses, types are what the ops infer,
// views and placed operands lie inside what they are part of, names are unique, only state is
// updated, and updates fit their slots. Throws InternalError naming the node; `when` says after
// which pass.
void verify(const Graph& graph, const std::string& when);

}  // namespace tessera
