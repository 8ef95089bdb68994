#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tessera {

// By node: bytes that a program which runs again and again accesses between its last access to the
// node's first output and the node; at most all that it holds. What is far apart no cache holds any
// longer. Of what is written over an operand only the operands behind that one, and scratch, count;
// 0 for nodes without a launch or an output.
std::vector<int64_t> reuse_distances(const Graph& graph, const Plan& plan);

}  // namespace tessera
