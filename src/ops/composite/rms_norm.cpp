#include "ops/composite/rms_norm.h"

#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {
int64_t last_dim(const Graph& g, Value x) { return static_cast<int64_t>(g.shape(x).size()) - 1; }
Shape without_last(const Shape& s) { return {s.begin(), s.end() - 1}; }
}  // namespace

std::vector<TensorType> RmsNorm::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &w = context.inputs[1];
  require(!x.shape.empty() && is_float(x.dtype), *this, "C1", "x must be a float [..., D], is ", x);
  require(w.shape == Shape{x.shape.back()}, *this, "C2",
          "w must have shape [D]: D = ", x.shape.back(), ", w is ", w.shape);
  require(w.dtype == x.dtype, *this, "C3", "x and w must have one dtype: ", x, " and ", w);
  return {x, {without_last(x.shape), wide(x.dtype)}};
}

std::vector<Value> RmsNorm::vjp(const VjpContext& context) const {
  TESSERA_CHECK(!context.cotangents[1], "rms_norm: rstd is a statistic without a gradient");
  Graph& g = context.graph;
  Value x = context.node.inputs[0], w = context.node.inputs[1], rstd = context.node.outputs[1];
  DType dtype = g.type(x).dtype;
  Value dy = convert(g, context.cotangents[0], dtype);
  return context.add(0, dtype, std::make_shared<RmsNormBackward>(), {x, w, rstd, dy});
}

std::vector<Value> RmsNorm::decompose(Graph& g, std::span<const Value> inputs) const {
  Value x = inputs[0], w = inputs[1];
  const Shape shape = g.shape(x);
  DType dtype = g.type(x).dtype;
  Value x32 = convert(g, x, wide(dtype));
  Value sum = reduce_sum(g, mul(g, x32, x32), {last_dim(g, x)});
  Value mean = mul(g, sum, constant_like(g, sum, 1.0 / static_cast<double>(shape.back())));
  Value rstd = unary(g, UnaryKind::kRsqrt, tessera::add(g, mean, constant_like(g, mean, epsilon_)));
  Value scaled = mul(g, x32, broadcast_trailing(g, rstd, shape));
  Value y = mul(g, scaled, broadcast_leading(g, convert(g, w, wide(dtype)), shape));
  return {convert(g, y, dtype), rstd};
}

std::vector<TensorType> RmsNormBackward::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &w = context.inputs[1], &rstd = context.inputs[2],
                   &dy = context.inputs[3];
  require(dy.shape == x.shape && dy.dtype == x.dtype, *this, "C1", "dy must be like x: ", dy,
          " and ", x);
  require(w.shape == Shape{x.shape.back()}, *this, "C2",
          "w must have shape [D]: D = ", x.shape.back(), ", w is ", w.shape);
  require(rstd.shape == without_last(x.shape), *this, "C3",
          "rstd must have one element a row: ", rstd);
  if (adds_) require_sum(*this, "C4", context.inputs[4], x);
  return {{x.shape, x.dtype}, {w.shape, wide(w.dtype)}};
}

OpPtr RmsNormBackward::adding(int output) const {
  return output == 0 ? std::make_shared<RmsNormBackward>(true) : nullptr;
}

std::vector<InPlacePair> RmsNormBackward::in_place_pairs() const {
  return adds_ ? std::vector{InPlacePair{4, 0}, InPlacePair{3, 0}} : std::vector{InPlacePair{3, 0}};
}

std::vector<Value> RmsNormBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  const Shape shape = g.shape(inputs[0]);
  DType dtype = g.type(inputs[0]).dtype, stat = wide(dtype);
  Value x = convert(g, inputs[0], stat), w = convert(g, inputs[1], stat), rstd = inputs[2],
        dy = convert(g, inputs[3], stat);
  int64_t last = last_dim(g, x);
  Value wdy = mul(g, dy, broadcast_leading(g, w, shape));
  Value sum = reduce_sum(g, mul(g, wdy, x), {last});
  Value cube = mul(g, rstd, mul(g, rstd, rstd));
  Value factor =
      mul(g, mul(g, sum, cube), constant_like(g, sum, 1.0 / static_cast<double>(shape.back())));
  Value r = broadcast_trailing(g, rstd, shape);
  Value dx = sub(g, mul(g, wdy, r), mul(g, x, broadcast_trailing(g, factor, shape)));
  if (adds_) dx = tessera::add(g, dx, convert(g, inputs[4], stat));
  std::vector<int64_t> row_dims;
  for (int64_t d = 0; d < last; ++d) row_dims.push_back(d);
  Value dw = mul(g, mul(g, dy, x), r);
  if (!row_dims.empty()) dw = reduce_sum(g, dw, row_dims);
  return {convert(g, dx, dtype), dw};
}

Value rms_norm(Graph& graph, Value x, Value w, double epsilon) {
  return graph.add(std::make_shared<RmsNorm>(epsilon), {x, w})[0];
}

}  // namespace tessera
