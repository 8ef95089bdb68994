#pragma once
#include "ir/graph.h"

namespace tessera {

// What Op::restart_at_documents() works with: one node of a graph that was written for rows of one
// document each, to be written down for rows [T] that hold several, one behind the other.
class DocumentContext {
 public:
  virtual ~DocumentContext() = default;
  virtual const Node& node() const = 0;
  virtual Graph& graph() = 0;
  // Operand i in the graph that is being written.
  virtual Value operand(size_t i) = 0;

  // Of each token the place in its row of the first token of its document: i32 [B, T], an argument
  // of the program.
  virtual Value starts() = 0;

  std::vector<Value> operands();
  // The op itself on its operands.
  std::vector<Value> same();
};

}  // namespace tessera
