#include "ops/composite/scale.h"

#include <cmath>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> Scale::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(is_float(x.dtype), *this, "C1", "x must be a float, is ", x);
  require(std::isfinite(factor_), *this, "C2", "the factor must be finite, is ", factor_);
  return {x};
}

void Scale::split(PlacementContext& context) const {
  context.apply({context.operand(0)}, context.placement(0));
}

std::vector<Value> Scale::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  DType dtype = g.type(context.node.inputs[0]).dtype;
  return g.add(context.node.op, {convert(g, context.cotangents[0], dtype)});
}

std::vector<Value> Scale::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value x = convert(g, inputs[0], wide(dtype));
  return {convert(g, mul(g, x, constant_like(g, x, factor_)), dtype)};
}

Value scale(Graph& graph, Value x, double factor) {
  if (factor == 1) return x;
  return graph.add_one(std::make_shared<Scale>(factor), {x});
}

}  // namespace tessera
