#pragma once
#include "ir/graph.h"

namespace tessera {

// One step of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2)
// on a flat buffer that holds many parameters. With g' = scale * g:
//   w' = w - lr * (sign(beta1 m + (1 - beta1) g') + decay * w),  m' = beta2 m + (1 - beta2) g';
// sign(0) is 0. Where `ok` is false both keep their bits. Inputs: w, m, g, lr, scale, ok,
// segment_begin, segment_decay; see flat_update.h.
class Lion final : public OpOf<Lion> {
 public:
  Lion(double beta1, double beta2) : beta1_(beta1), beta2_(beta2) {}
  double beta1() const { return beta1_; }
  double beta2() const { return beta2_; }
  std::string_view name() const override { return "lion"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 8; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 1}}; }
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(field("beta1", beta1_), field("beta2", beta2_)); }

 private:
  double beta1_, beta2_;
};

}  // namespace tessera
