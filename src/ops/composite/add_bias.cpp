#include "ops/composite/add_bias.h"

#include <numeric>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {

std::vector<TensorType> AddBias::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &b = context.inputs[1];
  require(!x.shape.empty() && is_float(x.dtype), *this, "C1", "x must be a float [..., N], is ", x);
  require(b.shape == Shape{x.shape.back()} && b.dtype == x.dtype, *this, "C2",
          "b must have shape [N] and x's dtype: N = ", x.shape.back(), ", x is ", x, ", b is ", b);
  return {x};
}

void AddBias::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0), bias = context.placement(1);
  auto last = static_cast<int64_t>(context.whole_type(0).shape.size()) - 1;
  if (!placement.split_on(last)) return context.apply({x, context.replicated(1)}, placement);
  Placement wanted{Placement::Kind::kSplit, 0, placement.axes};
  context.apply({x, bias == wanted ? context.operand(1) : context.sliced(1, wanted)}, placement);
}

std::vector<Value> AddBias::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value dy = convert(g, context.cotangents[0], g.type(context.node.inputs[0]).dtype);
  return {dy, context.needed[1] ? g.add_one(std::make_shared<AddBiasBackward>(), {dy}) : Value{}};
}

std::vector<Value> AddBias::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value x = convert(g, inputs[0], wide(dtype)), b = convert(g, inputs[1], wide(dtype));
  return {convert(g, tessera::add(g, x, broadcast_leading(g, b, g.shape(x))), dtype)};
}

std::vector<TensorType> AddBiasBackward::infer(const InferContext& context) const {
  const TensorType& dy = context.inputs[0];
  require(!dy.shape.empty() && is_float(dy.dtype), *this, "C1", "dy must be a float [..., N], is ",
          dy);
  return {{{dy.shape.back()}, wide(dy.dtype)}};
}

std::vector<Value> AddBiasBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  Value dy = convert(g, inputs[0], wide(g.type(inputs[0]).dtype));
  std::vector<int64_t> dims(g.shape(dy).size() - 1);
  std::iota(dims.begin(), dims.end(), 0);
  return {dims.empty() ? dy : reduce_sum(g, dy, dims)};
}

Cost AddBiasBackward::cost(std::span<const TensorType> inputs,
                           std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = static_cast<double>(inputs[0].elements());
  return cost;
}

Value add_bias(Graph& graph, Value x, Value bias) {
  return graph.add_one(std::make_shared<AddBias>(), {x, bias});
}

}  // namespace tessera
