#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera::ref {

// A tensor of the reference backend: every element as a double, exactly representable in its dtype.
struct Tensor {
  TensorType type;
  std::vector<double> data;
};

// Values by name, one vector of elements a rank; a single entry stands for all ranks.
using Feeds = std::map<std::string, std::vector<std::vector<double>>>;

struct Results {
  std::map<std::string, std::vector<Tensor>> outputs;  // one tensor a rank
  std::map<std::string, std::vector<Tensor>> updates;
};

// Sees every output of every node of the graph, inputs included, as soon as all ranks have it: one
// tensor a rank. What the decomposition of a composite makes on the way is not shown.
using Observer = std::function<void(const Graph& graph, const Node& node, size_t output,
                                    const std::vector<Tensor>& ranks)>;

// Runs the graph for all ranks of its mesh in lockstep: each node on every rank before the next
// node. Arithmetic is in double for f64 tensors and in float for the others; every node's outputs
// are rounded to their dtype. Composites run through their decomposition. Slow and simple: the
// oracle of all tests.
Results run(const Graph& graph, const Feeds& feeds, const Observer& observer = {});

}  // namespace tessera::ref
