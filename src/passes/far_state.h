#pragma once
#include <functional>
#include <string>

#include "ir/graph.h"

namespace tessera {

// State slots in the far tier, for a program that computes near: whoever reads such a slot reads a
// copy fetched right before, and the new content of one is offloaded as soon as it is made.
Graph far_state(const Graph& graph, const std::function<bool(const std::string& slot)>& is_far);

}  // namespace tessera
