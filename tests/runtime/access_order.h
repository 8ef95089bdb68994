#pragma once
#include <string>

#include "plan/plan.h"

namespace tessera {

// The first pair of accesses of a plan that nothing puts in order, though one of them writes bytes
// of the other: "sum of node 12 writes what exchange of node 7 reads". "" if there is none. Lanes
// run side by side: what is begun on one comes behind all that compute has done before, and what
// compute does comes behind it only once it was waited for.
std::string unordered_accesses(const Graph& graph, const Plan& plan);

}  // namespace tessera
