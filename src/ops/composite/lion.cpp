#include "ops/composite/lion.h"

#include "ops/composite/flat_update.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> Lion::infer(const InferContext& context) const {
  return infer_flat_update(context, *this, 1);
}

std::vector<Value> Lion::decompose(Graph& g, std::span<const Value> inputs) const {
  Value w = inputs[0], m = inputs[1];
  const TensorType type{g.shape(w), g.type(w).dtype};
  auto c = [&](double x) { return constant(g, type, x); };
  auto spread = [&](Value scalar) { return broadcast(g, scalar, type.shape, {}); };
  auto is = [&](Comparison comparison, Value x) {
    return convert(g, compare(g, comparison, x, c(0)), type.dtype);
  };
  Value decay = segment_decay(g, w, inputs[6], inputs[7]);
  Value gradient = mul(g, inputs[2], spread(inputs[4]));
  auto mixed = [&](double beta) {
    return tessera::add(g, mul(g, m, c(beta)), mul(g, gradient, c(1 - beta)));
  };
  Value direction = mixed(beta1_);
  Value sign = sub(g, is(Comparison::kGt, direction), is(Comparison::kLt, direction));
  Value w1 = sub(g, w, mul(g, spread(inputs[3]), tessera::add(g, sign, mul(g, decay, w))));
  Value ok = spread(inputs[5]);
  return {select(g, ok, w1, w), select(g, ok, mixed(beta2_), m)};
}

Cost Lion::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 12.0 * static_cast<double>(inputs[0].elements());
  return cost;
}

}  // namespace tessera
