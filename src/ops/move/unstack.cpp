#include "ops/move/unstack.h"

#include <algorithm>

#include "ops/move/flat_unit.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> Unstack::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(!x.shape.empty() && x.shape[0] == count_ && x.elements() == count_ * elements_, *this,
          "C1", "operand must have ", count_, " parts of ", elements_, " elements, is ", x);
  TensorType part{{x.shape.begin() + 1, x.shape.end()}, x.dtype};
  return std::vector<TensorType>(static_cast<size_t>(count_), part);
}

void Unstack::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0);
  if (placement.split_on(0)) {
    x = context.replicated(0);
    placement = {};
  }
  std::vector<Value> parts = unstack(context.graph(), x);
  if (placement.split()) --placement.dim;
  for (size_t i = 0; i < parts.size(); ++i) context.put(i, parts[i], placement);
}

std::vector<Value> Unstack::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  std::vector<Value> parts;
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < context.cotangents.size(); ++i) {
    if (!context.cotangents[i]) continue;
    parts.push_back(context.cotangents[i]);
    offsets.push_back(static_cast<int64_t>(i) * elements_);
  }
  // One buffer has one dtype: see Unflatten.
  auto differs = [&](Value v) { return g.type(v).dtype != g.type(parts[0]).dtype; };
  if (std::any_of(parts.begin(), parts.end(), differs)) {
    for (Value& v : parts) v = convert(g, v, wide(g.type(v).dtype));
  }
  Value flat = g.add_one(std::make_shared<Flatten>(count_ * elements_, offsets), parts);
  return {reshape(g, flat, g.shape(context.node.inputs[0]))};
}

std::vector<int64_t> Unstack::view_offsets() const {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < count_; ++i) offsets.push_back(i * elements_);
  return offsets;
}

std::vector<Value> unstack(Graph& graph, Value x) {
  const Shape& shape = graph.shape(x);
  int64_t count = shape.at(0);
  int64_t elements = count == 0 ? 0 : num_elements(shape) / count;
  return graph.add(std::make_shared<Unstack>(count, elements), {x});
}

}  // namespace tessera
