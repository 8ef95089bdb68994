#pragma once
#include "ir/graph.h"

namespace tessera {

// Drops what nobody needs: forward nodes whose results a backward node computes anyway
// (Op::subsumes), then every node that leads to no output and no update. Arguments stay declared.
Graph canonicalize(const Graph& graph);

}  // namespace tessera
