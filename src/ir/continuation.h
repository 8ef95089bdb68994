#pragma once
#include "ir/graph.h"

namespace tessera {

// What Op::continue_sequence() works with: one node of a graph that was written for the tokens
// [0, n) of B sequences, to be written down for tokens [start, start + n) of each, of which the
// ones before went through the program in earlier runs. State holds more sequences than one run
// takes: a run says which of its rows it continues.
class Continuation {
 public:
  virtual ~Continuation() = default;
  virtual const Node& node() const = 0;
  virtual Graph& graph() = 0;
  // Operand i in the graph that is being written.
  virtual Value operand(size_t i) = 0;

  // Of each sequence the tokens before the first one here: i32 [B], an argument of the program.
  virtual Value start() = 0;
  // And its row of the state: i32 [B], an argument of the program; no two are equal.
  virtual Value row() = 0;
  // Rows of the state.
  virtual int64_t rows() const = 0;
  // Longest sequence: start + n is never above it.
  virtual int64_t capacity() const = 0;
  // State that outlives a run, one for every node and name; update() gives its content after it.
  virtual Value state(const std::string& name, const TensorType& type) = 0;
  virtual void update(const std::string& name, Value value) = 0;

  // The op itself on its operands.
  std::vector<Value> same();
};

}  // namespace tessera
