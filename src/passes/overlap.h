#pragma once
#include "ir/graph.h"

namespace tessera {

// How far exchanges of sharded parameters run ahead of their use. In units of a gather: 0 starts it
// where it is read, 1 while the layer before computes, so that two layers' parameters are there at
// a time.
struct OverlapOptions {
  int forward_distance = 1;
  int backward_distance = 1;
};

// Puts exchanges beside computation that needs nothing of them, by moving nodes:
// - gathers of parameters, with what prepares them, begin `distance` gathers ahead of where they
// are
//   first read; forward and backward pass on their own;
// - what only adds a reduced gradient to its accumulator, and sums that over replicas, waits until
//   the next reduction begins.
// No node is changed, so neither is a result.
Graph overlap(const Graph& graph, const OverlapOptions& options);

}  // namespace tessera
