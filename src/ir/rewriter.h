#pragma once
#include <span>
#include <vector>

#include "ir/graph.h"

namespace tessera {

// Copies a graph node by node into another, with values mapped and types inferred anew. A pass
// walks the nodes of `from`, calls copy() for those that stay as they are and map() for those it
// replaces.
class Rewriter {
 public:
  Rewriter(const Graph& from, Graph& to);

  // The value of `to` that stands for a value of `from`; no value if none was given.
  Value operator()(Value v) const { return map_[static_cast<size_t>(v.id)]; }
  std::vector<Value> operator()(std::span<const Value> values) const;
  void map(Value from, Value to) { map_[static_cast<size_t>(from.id)] = to; }
  // Appends the node with its mapped inputs, scope and phase, and maps its outputs.
  void copy(const Node& node);
  // Takes over scope and phase of a node, for nodes that the pass appends itself.
  void enter(const Node& node);
  // Declares the outputs and updates of `from` on `to`, mapped.
  void finish();

 private:
  const Graph& from_;
  Graph& to_;
  std::vector<Value> map_;
};

}  // namespace tessera
