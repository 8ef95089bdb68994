#include "ops/composite/layer_norm.h"

#include <numeric>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

Shape without_last(const Shape& s) { return {s.begin(), s.end() - 1}; }

// Mean over the last dim.
Value row_mean(Graph& g, Value x) {
  const Shape shape = g.shape(x);
  Value sum = reduce_sum(g, x, {static_cast<int64_t>(shape.size()) - 1});
  return mul(g, sum, constant_like(g, sum, 1.0 / static_cast<double>(shape.back())));
}

// Sum over all dims but the last.
Value column_sum(Graph& g, Value x) {
  std::vector<int64_t> dims(g.shape(x).size() - 1);
  std::iota(dims.begin(), dims.end(), 0);
  return dims.empty() ? x : reduce_sum(g, x, dims);
}

void check_vector(const Op& op, const char* label, const char* what, const TensorType& vector,
                  const TensorType& x) {
  require(vector.shape == Shape{x.shape.back()} && vector.dtype == x.dtype, op, label, what,
          " must have shape [D] and x's dtype: D = ", x.shape.back(), ", x is ", x, ", ", what,
          " is ", vector);
}

}  // namespace

std::vector<TensorType> LayerNorm::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(!x.shape.empty() && is_float(x.dtype), *this, "C1", "x must be a float [..., D], is ", x);
  check_vector(*this, "C2", "w", context.inputs[1], x);
  if (bias_) check_vector(*this, "C3", "b", context.inputs[2], x);
  TensorType row{without_last(x.shape), wide(x.dtype)};
  return {x, row, row};
}

std::vector<Value> LayerNorm::vjp(const VjpContext& context) const {
  TESSERA_CHECK(!context.cotangents[1] && !context.cotangents[2],
                "layer_norm: mean and rstd are statistics without a gradient");
  Graph& g = context.graph;
  const Node& n = context.node;
  DType dtype = g.type(n.inputs[0]).dtype;
  Value dy = convert(g, context.cotangents[0], dtype);
  std::vector<Value> gradients =
      context.add(0, dtype, std::make_shared<LayerNormBackward>(),
                  {n.inputs[0], n.inputs[1], n.outputs[1], n.outputs[2], dy});
  gradients.resize(n.inputs.size());
  return gradients;
}

std::vector<Value> LayerNorm::decompose(Graph& g, std::span<const Value> inputs) const {
  const Shape shape = g.shape(inputs[0]);
  DType dtype = g.type(inputs[0]).dtype, stat = wide(dtype);
  Value x = convert(g, inputs[0], stat), mean = row_mean(g, x);
  Value centred = sub(g, x, broadcast_trailing(g, mean, shape));
  Value variance = row_mean(g, mul(g, centred, centred));
  Value rstd =
      unary(g, UnaryKind::kRsqrt, tessera::add(g, variance, constant_like(g, variance, epsilon_)));
  Value y = mul(g, centred, broadcast_trailing(g, rstd, shape));
  y = mul(g, y, broadcast_leading(g, convert(g, inputs[1], stat), shape));
  if (bias_) y = tessera::add(g, y, broadcast_leading(g, convert(g, inputs[2], stat), shape));
  return {convert(g, y, dtype), mean, rstd};
}

std::vector<TensorType> LayerNormBackward::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &w = context.inputs[1], &dy = context.inputs[4];
  require(!x.shape.empty() && is_float(x.dtype), *this, "C1", "x must be a float [..., D], is ", x);
  check_vector(*this, "C2", "w", w, x);
  require(dy.shape == x.shape && dy.dtype == x.dtype, *this, "C3", "dy must be like x: ", dy,
          " and ", x);
  for (size_t i : {2, 3}) {
    require(context.inputs[i].shape == without_last(x.shape), *this, "C4",
            "mean and rstd must have one element a row, one is ", context.inputs[i]);
  }
  if (adds_) require_sum(*this, "C5", context.inputs[5], x);
  TensorType column{w.shape, wide(w.dtype)};
  return {{x.shape, x.dtype}, column, column};
}

OpPtr LayerNormBackward::adding(int output) const {
  return output == 0 ? std::make_shared<LayerNormBackward>(true) : nullptr;
}

std::vector<InPlacePair> LayerNormBackward::in_place_pairs() const {
  return adds_ ? std::vector{InPlacePair{5, 0}, InPlacePair{4, 0}} : std::vector{InPlacePair{4, 0}};
}

std::vector<Value> LayerNormBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  const Shape shape = g.shape(inputs[0]);
  DType dtype = g.type(inputs[0]).dtype, stat = wide(dtype);
  auto by_row = [&](Value v) { return broadcast_trailing(g, v, shape); };
  Value x = convert(g, inputs[0], stat), dy = convert(g, inputs[4], stat);
  Value rstd = by_row(inputs[3]);
  Value h = mul(g, sub(g, x, by_row(inputs[2])), rstd);
  Value wdy = mul(g, dy, broadcast_leading(g, convert(g, inputs[1], stat), shape));
  Value along = mul(g, h, by_row(row_mean(g, mul(g, wdy, h))));
  Value dx = mul(g, rstd, sub(g, sub(g, wdy, by_row(row_mean(g, wdy))), along));
  if (adds_) dx = tessera::add(g, dx, convert(g, inputs[5], stat));
  return {convert(g, dx, dtype), column_sum(g, mul(g, dy, h)), column_sum(g, dy)};
}

Value layer_norm(Graph& graph, Value x, Value w, std::optional<Value> bias, double epsilon) {
  std::vector<Value> operands{x, w};
  if (bias) operands.push_back(*bias);
  return graph.add(std::make_shared<LayerNorm>(epsilon, bias.has_value()), operands)[0];
}

}  // namespace tessera
