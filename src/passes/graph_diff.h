#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// What became of a node from one graph to the next.
enum class NodeChange : uint8_t {
  kSame,
  kAdded,
  kRemoved,
  kChanged,  // the same op at the same place of the model: other types, attributes or operands
};
std::string_view name(NodeChange change);

// Which nodes of two graphs stand for each other. Numbers of values say nothing: every pass gives
// new ones. A node stands for the one of the same op, scope and phase that reads the same values;
// failing that for the next in order which nobody else stands for.
struct GraphDiff {
  std::vector<NodeChange> before, after;  // by node
  std::vector<int32_t> counterpart;       // by node of `after`: the node of `before`, or -1
};
GraphDiff diff(const Graph& before, const Graph& after);

// Of a changed node what is other than it was: "f32[64] -> bf16[64]", "dw=true -> dw=false",
// "operands"; joined by "; ".
std::string change_text(const Graph& before, const Node& was, const Graph& after, const Node& is);

// Nodes of one op that a pass treated alike.
struct ChangedNodes {
  NodeChange change = NodeChange::kSame;
  Phase phase = Phase::kForward;
  std::string op;
  int64_t nodes = 0;
  std::string places;  // "embed, layers 0-31, head"
};
// All but those that are the same, the most first; added, removed, changed.
std::vector<ChangedNodes> changed_nodes(const Graph& before, const Graph& after,
                                        const GraphDiff& diff);

// The decoder layer whose node it is, also where only its scope says so (of an optimizer's node).
int32_t layer_of(const Node& node);
// Where of the model a node is: "layers.3", or the begin of its scope, "embed"; "" where it is
// nowhere.
std::string place_in_model(const Node& node);

}  // namespace tessera
