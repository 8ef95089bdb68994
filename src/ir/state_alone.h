#pragma once
#include <vector>

#include "ir/graph.h"

namespace tessera {

// By value: whether it is state, or made of state alone by what does not contract: parameters, and
// what they become on their way to where they are used.
std::vector<bool> made_of_state_alone(const Graph& graph);

}  // namespace tessera
