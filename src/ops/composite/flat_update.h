#pragma once
#include "ir/graph.h"

namespace tessera {

// What updates of flat buffers with many parameters have in common. Their inputs are w, what the
// optimizer keeps and the gradient, all [n] f32; lr and scale, f32 scalars; ok, bool scalar;
// perhaps others; and last segment_begin i64 [S], ascending, beginning with 0, and segment_decay
// f32 [S]: element i decays by the entry of its segment. The table is an input and not an attribute
// because a shard cuts through parameters: it differs by rank while the program does not. Their
// outputs are the new w and what is kept, each in place. All f32 may be f64.

// Checks the inputs; `kept` buffers lie between w and the gradient.
std::vector<TensorType> infer_flat_update(const InferContext& context, const Op& op, size_t kept);

// [n]: what element i of `like` decays by.
Value segment_decay(Graph& g, Value like, Value begin, Value decay);

}  // namespace tessera
