#pragma once
#include "ir/graph.h"

namespace tessera {

// A graph of some dozen nodes as a function of the seed: arithmetic, views, flattens, exchanges,
// state that is read, updated, swapped or only written, and outputs of every kind.
Graph random_graph(uint64_t seed);

}  // namespace tessera
