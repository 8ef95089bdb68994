#pragma once
#include "ir/graph.h"

namespace tessera {

// Mixed precision: every parameter stays f32 and is converted to `compute` right where it is
// declared; all that follows is inferred anew in that dtype. Ops keep their statistics and losses
// in f32.
//
// kNone: parameters are declared in `compute` themselves. The same bits, for programs whose weights
// are rounded when they are loaded, and half the bytes.
enum class Masters { kF32, kNone };
Graph precision(const Graph& graph, DType compute, Masters masters = Masters::kF32);

}  // namespace tessera
