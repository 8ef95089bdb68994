#pragma once
#include <utility>

#include "ir/graph.h"

namespace tessera {

// How a value of the one-device graph lies on the ranks of a tensor-parallel group. A notion of the
// tensor_parallel pass alone: the graph that it writes knows shapes and marks only.
//   kWhole    every rank has all of it, the same bits
//   kSplit    cut along `dim` over `axes`, in order of Mesh::index
//   kPartial  every rank has a summand over `axes`
struct Placement {
  enum class Kind { kWhole, kSplit, kPartial };
  Kind kind = Kind::kWhole;
  int64_t dim = 0;
  AxisSet axes = {};
  bool whole() const { return kind == Kind::kWhole; }
  bool split() const { return kind == Kind::kSplit; }
  bool split_on(int64_t d) const { return kind == Kind::kSplit && dim == d; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

// What Op::split() works with: one node of the one-device graph, its operands on this rank's graph
// and where they lie. The rule adds nodes to graph() and says with put() what each output became.
class PlacementContext {
 public:
  virtual ~PlacementContext() = default;
  virtual const Node& node() const = 0;
  virtual Graph& graph() = 0;
  // Type of operand i in the one-device graph.
  virtual const TensorType& whole_type(size_t i) const = 0;

  // Operand i as it lies. The others change how it lies, once for all readers:
  virtual Value operand(size_t i) = 0;
  virtual Placement placement(size_t i) = 0;
  // ... without partial sums: whole, or split along the sequence under sequence parallelism.
  virtual Value reduced(size_t i) = 0;
  // ... all of it on every rank, to be used by each with a part of a matrix: varying over the axes.
  virtual Value entered(size_t i) = 0;
  // ... whole and replicated.
  virtual Value replicated(size_t i) = 0;
  // ... split as given, from however it lies.
  virtual Value sliced(size_t i, Placement placement) = 0;

  // The sum of every rank's `partial` over `axes`, which has the shape `whole`, and how it lies:
  // whole, or split along the sequence under sequence parallelism.
  virtual std::pair<Value, Placement> summed(Value partial, AxisSet axes, const Shape& whole) = 0;

  virtual void put(size_t output, Value value, Placement placement) = 0;

  // The ranks of the group.
  virtual AxisSet axes() const = 0;

  // The op itself on the given operands, all outputs lying as said.
  void apply(std::vector<Value> operands, Placement placement);
};

// For ops that treat every element alike: operands are brought to lie like the first that is split,
// and so do the outputs.
void split_elementwise(PlacementContext& context);
// For ops that work on the last `dims` dims: operand 0 may be split along any other; the remaining
// operands are parameters that are whole.
void split_rowwise(PlacementContext& context, int64_t dims);

}  // namespace tessera
