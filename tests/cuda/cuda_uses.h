#pragma once
#include <map>
#include <string>
#include <vector>

#include "backends/ref/interpreter.h"
#include "ir/graph.h"
#include "tests/backends/cpu/composite_cases.h"

// Ops with operands on which devices are compared: with the reference, and with each other.
namespace tessera::cuda {

using Doubles = std::vector<double>;

// An op on given operands.
struct Use {
  std::string label;
  OpPtr op;
  std::vector<TensorType> types;
  ref::Feeds feeds;
};

Graph graph_of(const Use& use);
Doubles random_values(const TensorType& type, double low, double high, int64_t bound,
                      uint64_t seed);
// Operands that are not given, by index, are random: floats in [low, high), integers in [0, bound).
Use use_of(OpPtr op, std::vector<TensorType> types, double low, double high, int64_t bound,
           const std::map<size_t, Doubles>& given = {});

// The samples of every primitive that has a launch.
std::vector<Use> sampled_primitives(DType dtype);
// Shapes of several blocks that do not fill their last one, with and without whole vectors.
std::vector<Use> larger_primitives(DType dtype);
// The composite with results that can be read: in f32 those of f16.
Graph readable_graph(const Case& c, DType dtype);
// Attention of several tiles, none of which is whole, with all that it may have.
std::vector<Case> longer_attention();
// Heads whose rows of logits stay in shared memory between their two readings, and one that does
// not fit whole.
std::vector<std::pair<Case, DType>> long_heads();
// Gradients of norms of rows for which blocks are as large as they get, and of wider ones.
std::vector<Case> wider_norms();

}  // namespace tessera::cuda
