#pragma once
#include "ir/graph.h"

namespace tessera {

// Mixed precision: every parameter is declared in `compute`, and all that follows is inferred anew
// in that dtype. Ops keep their statistics and losses in f32. What is kept of a parameter from step
// to step is another matter: flat_units() makes the conversion from master weights a node.
Graph precision(const Graph& graph, DType compute);

}  // namespace tessera
