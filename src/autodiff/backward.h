#pragma once
#include <span>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// Appends the reverse of the graph (phase backward, scopes of the forward nodes) and returns d loss
// / d wrt, one value each, or no value where the loss does not depend on it. `loss` is a replicated
// float scalar; its cotangent is 1.
//
// A cotangent has the marks of its value: where a rule gives one that is replicated more, it is
// made to vary. An op may add what it makes to what later uses gave a value; other parts are summed
// at once in f32 and rounded once (sum_n). An op without a gradient ends the walk there: its
// operands are constants to it.
std::vector<Value> backward(Graph& graph, Value loss, std::span<const Value> wrt);

}  // namespace tessera
