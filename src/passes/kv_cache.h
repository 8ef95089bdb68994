#pragma once
#include "ir/graph.h"

namespace tessera {

struct KvCache {
  int64_t capacity = 1;  // tokens of a sequence
  int64_t rows = 1;      // sequences that it holds
  int64_t batch = 1;     // B: those that one run continues
};

// From the forward program of the first n tokens of B sequences to one of any n tokens in a row of
// each, which remembers what came before: each op writes itself down by Op::continue_sequence().
// The new arguments, i32 [B], say of each sequence how many tokens went through earlier runs
// ("start", at most capacity - n) and which row of the cache holds them ("row", all different).
// Attention keeps its keys and values in state slots "keys.SCOPE" and "values.SCOPE" [rows,
// capacity, ...], in the dtype in which it computes, written in place; other rows are not touched.
//
// Programs of different n and B from the same model have the same slots and so continue each other.
// InternalError where attention is not causal.
Graph kv_cache(const Graph& graph, const KvCache& cache);

}  // namespace tessera
