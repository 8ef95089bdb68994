#include "ops/composite/linear.h"

#include "ops/composite/add_bias.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

Cost matmul_cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                 int64_t contracted) {
  int64_t bytes = outputs[0].bytes();
  for (const TensorType& operand : inputs) bytes += operand.bytes();
  return {2.0 * static_cast<double>(contracted) * static_cast<double>(outputs[0].elements()),
          static_cast<double>(bytes)};
}

void check_operands(const Op& op, const TensorType& a, const TensorType& b) {
  require(!a.shape.empty() && b.shape.size() >= 2, op, "C1",
          "operands must be [..., K] and a matrix: ", a, " and ", b);
  require(a.dtype == b.dtype && is_float(a.dtype), op, "C3",
          "operands must have one float dtype: ", a, " and ", b);
}

Value rows(Graph& g, Value x) {
  const Shape& s = g.shape(x);
  int64_t width = s.back();
  return reshape(g, x, {width == 0 ? 0 : num_elements(s) / width, width});
}

}  // namespace

std::vector<TensorType> Linear::infer(const InferContext& context) const {
  require(context.inputs.size() == 2 || context.inputs.size() == 3, *this, "C5",
          "takes 2 or 3 operands, got ", context.inputs.size());
  const TensorType &x = context.inputs[0], &w = context.inputs[1];
  check_operands(*this, x, w);
  require(w.shape.size() == 2 && w.shape[1] == x.shape.back(), *this, "C2",
          "w must have shape [N, K]: K = ", x.shape.back(), ", w is ", w.shape);
  if (context.inputs.size() == 3) {
    const TensorType& bias = context.inputs[2];
    require(bias.shape == Shape{w.shape[0]} && bias.dtype == x.dtype, *this, "C4",
            "bias must have shape [N] and x's dtype: N = ", w.shape[0], ", x is ", x, ", bias is ",
            bias);
  }
  TensorType y = x;
  y.shape.back() = w.shape[0];
  return {y};
}

void Linear::split(PlacementContext& context) const {
  Placement w = context.placement(1);
  if (!w.split()) return split_rowwise(context, 1);
  auto last = static_cast<int64_t>(context.whole_type(0).shape.size()) - 1;
  Placement cut{Placement::Kind::kSplit, last, w.axes};
  auto lying = [&](size_t i, Placement p) {
    return context.placement(i) == p ? context.operand(i) : context.sliced(i, p);
  };
  bool has_bias = context.node().inputs.size() == 3;
  if (w.dim == 0) {
    std::vector<Value> operands{context.entered(0), context.operand(1)};
    if (has_bias) operands.push_back(lying(2, w));
    return context.apply(operands, cut);
  }
  Value partial = linear(context.graph(), lying(0, cut), context.operand(1));
  if (!has_bias) return context.put(0, partial, {Placement::Kind::kPartial, 0, w.axes});
  Shape whole = context.whole_type(0).shape;
  whole.back() = context.whole_type(1).shape[0];
  auto [sum, placement] = context.summed(partial, w.axes, whole);
  context.put(0, add_bias(context.graph(), sum, context.replicated(2)), placement);
}

std::vector<Value> Linear::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value x = context.node.inputs[0], w = context.node.inputs[1];
  DType dtype = g.type(x).dtype;
  Value dy = convert(g, context.cotangents[0], dtype), dx{}, dw{};
  if (context.needed[0]) dx = context.add(0, dtype, std::make_shared<LinearDx>(), {dy, w})[0];
  if (context.needed[1]) dw = context.add(1, wide(dtype), std::make_shared<LinearDw>(), {dy, x})[0];
  std::vector<Value> gradients{dx, dw};
  if (context.node.inputs.size() == 3) {
    gradients.push_back(context.needed[2] ? g.add_one(std::make_shared<AddBiasBackward>(), {dy})
                                          : Value{});
  }
  return gradients;
}

std::vector<Value> Linear::decompose(Graph& graph, std::span<const Value> inputs) const {
  int64_t last = static_cast<int64_t>(graph.shape(inputs[0]).size()) - 1;
  DType dtype = graph.type(inputs[0]).dtype;
  if (inputs.size() == 2) return {dot(graph, inputs[0], inputs[1], 0, last, 1, dtype)};
  Value y = dot(graph, inputs[0], inputs[1], 0, last, 1, wide(dtype));
  Value bias = broadcast_leading(graph, convert(graph, inputs[2], wide(dtype)), graph.shape(y));
  return {convert(graph, tessera::add(graph, y, bias), dtype)};
}

Cost Linear::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return matmul_cost(inputs, outputs, inputs[0].shape.back());
}

std::vector<TensorType> LinearDx::infer(const InferContext& context) const {
  const TensorType &dy = context.inputs[0], &w = context.inputs[1];
  check_operands(*this, dy, w);
  require(w.shape.size() == 2 && w.shape[0] == dy.shape.back(), *this, "C2",
          "w must have shape [N, K]: N = ", dy.shape.back(), ", w is ", w.shape);
  TensorType dx = dy;
  dx.shape.back() = w.shape[1];
  if (adds_) require_sum(*this, "C3", context.inputs[2], dx);
  return {dx};
}

OpPtr LinearDx::adding(int) const { return std::make_shared<LinearDx>(true); }

std::vector<InPlacePair> LinearDx::in_place_pairs() const {
  return adds_ ? std::vector{InPlacePair{2, 0}} : std::vector<InPlacePair>{};
}

std::vector<Value> LinearDx::decompose(Graph& graph, std::span<const Value> inputs) const {
  int64_t last = static_cast<int64_t>(graph.shape(inputs[0]).size()) - 1;
  DType dtype = graph.type(inputs[0]).dtype;
  if (!adds_) return {dot(graph, inputs[0], inputs[1], 0, last, 0, dtype)};
  Value dx = dot(graph, inputs[0], inputs[1], 0, last, 0, wide(dtype));
  return {convert(graph, tessera::add(graph, convert(graph, inputs[2], wide(dtype)), dx), dtype)};
}

Cost LinearDx::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return matmul_cost(inputs, outputs, inputs[0].shape.back());
}

std::vector<TensorType> LinearDw::infer(const InferContext& context) const {
  const TensorType &dy = context.inputs[0], &x = context.inputs[1];
  require(!dy.shape.empty() && dy.dtype == x.dtype && is_float(x.dtype), *this, "C1",
          "operands must have one float dtype: ", dy, " and ", x);
  require(dy.shape.size() == x.shape.size() &&
              std::equal(dy.shape.begin(), dy.shape.end() - 1, x.shape.begin()),
          *this, "C2", "dy and x must have the same tokens: ", dy, " and ", x);
  TensorType dw{{dy.shape.back(), x.shape.back()}, wide(x.dtype)};
  if (adds_) require_sum(*this, "C3", context.inputs[2], dw);
  return {dw};
}

OpPtr LinearDw::adding(int) const { return std::make_shared<LinearDw>(true); }

std::vector<InPlacePair> LinearDw::in_place_pairs() const {
  return adds_ ? std::vector{InPlacePair{2, 0}} : std::vector<InPlacePair>{};
}

std::vector<Value> LinearDw::decompose(Graph& graph, std::span<const Value> inputs) const {
  Value dw = dot(graph, rows(graph, inputs[0]), rows(graph, inputs[1]), 0, 0, 0,
                 wide(graph.type(inputs[0]).dtype));
  return {adds_ ? tessera::add(graph, inputs[2], dw) : dw};
}

Cost LinearDw::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return matmul_cost(inputs, outputs,
                     inputs[0].elements() / std::max<int64_t>(1, inputs[0].shape.back()));
}

Value linear(Graph& graph, Value x, Value w) {
  return graph.add_one(std::make_shared<Linear>(), {x, w});
}

Value linear(Graph& graph, Value x, Value w, std::optional<Value> bias) {
  if (!bias) return linear(graph, x, w);
  return graph.add_one(std::make_shared<Linear>(), {x, w, *bias});
}

}  // namespace tessera
