#include "ops/move/far_tier.h"

namespace tessera {
namespace {

Cost copy_cost(std::span<const TensorType> inputs) {
  auto bytes = static_cast<double>(inputs[0].bytes());
  return {0, 2 * bytes, bytes};
}

}  // namespace

std::vector<TensorType> Offload::infer(const InferContext& context) const {
  return {context.inputs[0]};
}
Cost Offload::cost(std::span<const TensorType> inputs, std::span<const TensorType>) const {
  return copy_cost(inputs);
}

std::vector<TensorType> Fetch::infer(const InferContext& context) const {
  return {context.inputs[0]};
}
Cost Fetch::cost(std::span<const TensorType> inputs, std::span<const TensorType>) const {
  return copy_cost(inputs);
}

Value offload(Graph& graph, Value x) { return graph.add_one(std::make_shared<Offload>(), {x}); }
Value fetch(Graph& graph, Value x) { return graph.add_one(std::make_shared<Fetch>(), {x}); }

}  // namespace tessera
