#pragma once
#include "ir/graph.h"

namespace tessera {

// Mixed precision: every parameter stays f32 and is converted to `compute` right where it is
// declared; all that follows is inferred anew in that dtype. Ops keep their statistics and losses
// in f32.
Graph precision(const Graph& graph, DType compute);

}  // namespace tessera
