#pragma once
#include "ir/graph.h"

namespace tessera {

// From the forward program of the first n tokens of a sequence to one of any n tokens in a row,
// which remembers what came before: each op writes itself down by Op::continue_sequence(). The new
// argument "start", i32 [], says how many tokens went through earlier runs; it is at most
// capacity - n. Attention keeps its keys and values in state slots "keys.SCOPE" and "values.SCOPE"
// of `capacity` tokens, in the dtype in which it computes, written in place.
//
// Programs of different n from the same model have the same slots and so continue each other.
// InternalError where attention is not causal.
Graph kv_cache(const Graph& graph, int64_t capacity);

}  // namespace tessera
