#pragma once
#include "backends/ref/interpreter.h"
#include "nn/parameter.h"
#include "passes/flat_units.h"

namespace tessera {

// Layers with grouped queries, sizes that are no multiple of any alignment. Ends in the loss.
ModelGraph tiny_llama(bool tied = false, int64_t layers = 2);

// Values for every parameter, token and target (one is ignored); `graph` may hold parameters or
// units.
ref::Feeds tiny_feeds(const ModelGraph& model, const Graph& graph,
                      const std::vector<FlatUnit>& units);

// The graph with its gradients as updates "gradient.U" beside its outputs.
Graph with_gradients(const Graph& graph, const std::vector<FlatUnit>& units);

// Whether all results are equal to the bit; says which are not.
std::string difference(const ref::Results& a, const ref::Results& b);

int count_ops(const Graph& graph, std::string_view op);

// Nodes that lead to no output or update; arguments do not count.
int dead_nodes(const Graph& graph);

}  // namespace tessera
