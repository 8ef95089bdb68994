#include "ops/composite/rope.h"

#include "ops/composite/linear.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> Rope::infer(const InferContext& context) const {
  const TensorType& x = context.inputs[0];
  require(x.shape.size() == 4 && is_float(x.dtype), *this, "C1",
          cat("x must be a float [B, T, H, D], is ", to_string(x)));
  require(2 * static_cast<int64_t>(frequencies_.size()) <= x.shape[3], *this, "C2",
          cat(frequencies_.size(), " frequencies need ", 2 * frequencies_.size(),
              " dims, a head has ", x.shape[3]));
  return {x};
}

void Rope::split(PlacementContext& context) const {
  Value x = context.reduced(0);
  Placement placement = context.placement(0);
  if (placement.split_on(1) || placement.split_on(3)) {
    x = context.replicated(0);
    placement = {};
  }
  context.apply({x}, placement);
}

std::vector<Value> Rope::vjp(const VjpContext& context) const {
  return {context.graph.add_one(std::make_shared<Rope>(frequencies_, !inverse_),
                                {context.cotangents[0]})};
}

std::vector<Value> Rope::decompose(Graph& g, std::span<const Value> inputs) const {
  Value x = inputs[0];
  const Shape shape = g.shape(x);
  DType dtype = g.type(x).dtype, wide_dtype = wide(dtype);
  auto half = static_cast<int64_t>(frequencies_.size());
  Value x32 = convert(g, x, wide_dtype);
  Value a = slice(g, x32, 3, 0, half), b = slice(g, x32, 3, half, 2 * half);  // [B, T, H, R/2]
  Shape part = shape;
  part[3] = half;
  Value table = g.add_one(std::make_shared<Table>(wide_dtype, frequencies_), {});
  Value position = iota(g, {{shape[1], half}, wide_dtype}, 0);
  Value angle = mul(g, position, broadcast_leading(g, table, {shape[1], half}));  // [T, R/2]
  auto spread = [&](Value v) { return broadcast(g, v, part, {1, 3}); };
  Value cos = spread(unary(g, UnaryKind::kCos, angle)),
        sin = spread(unary(g, UnaryKind::kSin, angle));
  if (inverse_) sin = unary(g, UnaryKind::kNeg, sin);
  std::vector<Value> parts{sub(g, mul(g, a, cos), mul(g, b, sin)),
                           tessera::add(g, mul(g, b, cos), mul(g, a, sin))};
  if (2 * half < shape[3]) parts.push_back(slice(g, x32, 3, 2 * half, shape[3]));
  return {convert(g, concatenate(g, parts, 3), dtype)};
}

Value rope(Graph& graph, Value x, const std::vector<double>& frequencies) {
  return graph.add_one(std::make_shared<Rope>(frequencies, false), {x});
}

}  // namespace tessera
