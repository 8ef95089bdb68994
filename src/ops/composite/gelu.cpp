#include "ops/composite/gelu.h"

#include <numbers>

#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "ops/wide.h"

namespace tessera {
namespace {

constexpr double kCubic = 0.044715;
const double kSlope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)

Value times(Graph& g, Value x, double factor) { return mul(g, x, constant_like(g, x, factor)); }
Value plus(Graph& g, Value x, double term) { return tessera::add(g, x, constant_like(g, x, term)); }

// tanh(u) or erf(x / sqrt(2)): gelu is x / 2 * (1 + this).
Value sigmoid_part(Graph& g, Value x, GeluKind kind) {
  if (kind == GeluKind::kExact)
    return unary(g, UnaryKind::kErf, times(g, x, 1 / std::numbers::sqrt2));
  Value cube = mul(g, x, mul(g, x, x));
  return unary(g, UnaryKind::kTanh, times(g, tessera::add(g, x, times(g, cube, kCubic)), kSlope));
}

// Its derivative.
Value sigmoid_slope(Graph& g, Value x, Value part, GeluKind kind) {
  Value square = mul(g, x, x);
  if (kind == GeluKind::kExact)
    return times(g, unary(g, UnaryKind::kExp, times(g, square, -0.5)), kSlope);
  Value du = times(g, plus(g, times(g, square, 3 * kCubic), 1), kSlope);
  return mul(g, sub(g, constant_like(g, part, 1), mul(g, part, part)), du);
}

}  // namespace

std::string_view name(GeluKind kind) { return kind == GeluKind::kExact ? "exact" : "tanh"; }

std::vector<TensorType> Gelu::infer(const InferContext& context) const {
  require(is_float(context.inputs[0].dtype), *this, "C1", "x must be a float, is ",
          context.inputs[0]);
  return {context.inputs[0]};
}

std::vector<Value> Gelu::vjp(const VjpContext& context) const {
  Graph& g = context.graph;
  Value x = context.node.inputs[0];
  return g.add(std::make_shared<GeluBackward>(kind_),
               {x, convert(g, context.cotangents[0], g.type(x).dtype)});
}

std::vector<Value> Gelu::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value x = convert(g, inputs[0], wide(dtype));
  Value y = mul(g, times(g, x, 0.5), plus(g, sigmoid_part(g, x, kind_), 1));
  return {convert(g, y, dtype)};
}

std::vector<TensorType> GeluBackward::infer(const InferContext& context) const {
  const TensorType &x = context.inputs[0], &dy = context.inputs[1];
  require(is_float(x.dtype) && dy.shape == x.shape && dy.dtype == x.dtype, *this, "C1",
          "dy must be like x, a float: ", dy, " and ", x);
  return {x};
}

std::vector<Value> GeluBackward::decompose(Graph& g, std::span<const Value> inputs) const {
  DType dtype = g.type(inputs[0]).dtype;
  Value x = convert(g, inputs[0], wide(dtype)), dy = convert(g, inputs[1], wide(dtype));
  Value part = sigmoid_part(g, x, kind_);
  Value slope = tessera::add(g, plus(g, part, 1), mul(g, x, sigmoid_slope(g, x, part, kind_)));
  return {convert(g, mul(g, dy, times(g, slope, 0.5)), dtype)};
}

Value gelu(Graph& graph, Value x, GeluKind kind) {
  return graph.add_one(std::make_shared<Gelu>(kind), {x});
}

}  // namespace tessera
