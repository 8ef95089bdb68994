#include "ops/composite/adamw.h"

#include "ops/composite/flat_update.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> AdamW::infer(const InferContext& context) const {
  require(context.inputs[7].shape.empty() && context.inputs[7].dtype == DType::kI64, *this, "C6",
          "step must be an i64 scalar");
  std::vector<TensorType> types = infer_flat_update(context, *this, 2);
  if (rounds_) types.push_back({types[0].shape, DType::kBF16, types[0].varying});
  return types;
}

std::vector<Value> AdamW::decompose(Graph& g, std::span<const Value> inputs) const {
  Value w = inputs[0], m = inputs[1], v = inputs[2], grad = inputs[3];
  const TensorType type{g.shape(w), g.type(w).dtype};
  auto c = [&](double x) { return constant(g, type, x); };
  auto spread = [&](Value scalar) { return broadcast(g, scalar, type.shape, {}); };
  Value decay = segment_decay(g, w, inputs[8], inputs[9]);
  Value scaled = mul(g, grad, spread(inputs[5]));
  Value m1 = tessera::add(g, mul(g, m, c(beta1_)), mul(g, scaled, c(1 - beta1_)));
  Value v1 = tessera::add(g, mul(g, v, c(beta2_)), mul(g, mul(g, scaled, scaled), c(1 - beta2_)));
  Value t = spread(convert(g, inputs[7], type.dtype));
  Value correct1 = sub(g, c(1), binary(g, BinaryKind::kPow, c(beta1_), t));
  Value correct2 = sub(g, c(1), binary(g, BinaryKind::kPow, c(beta2_), t));
  Value denominator =
      tessera::add(g, unary(g, UnaryKind::kSqrt, div(g, v1, correct2)), c(epsilon_));
  Value direction = tessera::add(g, div(g, div(g, m1, correct1), denominator), mul(g, decay, w));
  Value w1 = sub(g, w, mul(g, spread(inputs[4]), direction));
  Value ok = spread(inputs[6]);
  std::vector<Value> next{select(g, ok, w1, w), select(g, ok, m1, m), select(g, ok, v1, v)};
  if (rounds_) next.push_back(convert(g, next[0], DType::kBF16));
  return next;
}

Cost AdamW::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 15.0 * static_cast<double>(inputs[0].elements());
  return cost;
}

}  // namespace tessera
