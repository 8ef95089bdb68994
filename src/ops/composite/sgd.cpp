#include "ops/composite/sgd.h"

#include "ops/composite/flat_update.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera {

std::vector<TensorType> Sgd::infer(const InferContext& context) const {
  return infer_flat_update(context, *this, 1);
}

std::vector<Value> Sgd::decompose(Graph& g, std::span<const Value> inputs) const {
  Value w = inputs[0], m = inputs[1];
  const TensorType type{g.shape(w), g.type(w).dtype};
  auto spread = [&](Value scalar) { return broadcast(g, scalar, type.shape, {}); };
  Value decay = segment_decay(g, w, inputs[6], inputs[7]);
  Value gradient = tessera::add(g, mul(g, inputs[2], spread(inputs[4])), mul(g, decay, w));
  Value m1 = tessera::add(g, mul(g, m, constant(g, type, momentum_)), gradient);
  Value w1 = sub(g, w, mul(g, spread(inputs[3]), m1));
  Value ok = spread(inputs[5]);
  return {select(g, ok, w1, w), select(g, ok, m1, m)};
}

Cost Sgd::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  Cost cost = Op::cost(inputs, outputs);
  cost.flops = 7.0 * static_cast<double>(inputs[0].elements());
  return cost;
}

}  // namespace tessera
