#pragma once
#include "ir/graph.h"

namespace tessera {

// One step of gradient descent with momentum, as torch.optim.SGD takes it (no dampening, no
// Nesterov), on a flat buffer that holds many parameters. With g' = scale * g + decay * w:
//   m' = momentum * m + g',  w' = w - lr * m'.
// The decay is a part of the gradient. Where `ok` is false both keep their bits. Inputs: w, m, g,
// lr, scale, ok, segment_begin, segment_decay; see flat_update.h.
class Sgd final : public OpOf<Sgd> {
 public:
  explicit Sgd(double momentum) : momentum_(momentum) {}
  double momentum() const { return momentum_; }
  std::string_view name() const override { return "sgd"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 8; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 1}}; }
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("momentum", momentum_)); }

 private:
  double momentum_;
};

}  // namespace tessera
