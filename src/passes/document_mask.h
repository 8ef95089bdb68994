#pragma once
#include "ir/graph.h"

namespace tessera {

inline constexpr const char* kDocumentStarts = "document_starts";

// From a model over tokens [B, T] of which a row is one document to the same over rows that hold
// several, one behind the other: none attends to another, and the positions of each begin with 0.
// Each op writes itself down by Op::restart_at_documents(). The new argument document_starts, i32
// [B, T], has of each token the place of the first of its document; it does not decrease along a
// row. Where it is 0 throughout, the results are those of the model as it was.
// InternalError where attention is not causal.
Graph document_mask(const Graph& graph);

}  // namespace tessera
