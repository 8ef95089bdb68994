#pragma once
#include "ir/graph.h"

namespace tessera {

// One AdamW step (Loshchilov and Hutter 2019, algorithm 2) on a flat buffer that holds many
// parameters. With g' = scale * g:
//   m' = beta1 m + (1 - beta1) g',  v' = beta2 v + (1 - beta2) g'^2,
//   w' = w - lr * (m' / (1 - beta1^step) / (sqrt(v' / (1 - beta2^step)) + epsilon) + decay * w).
// Where `ok` is false all three keep their bits. Inputs: w, m, v, g, lr, scale, ok, step (i64
// scalar, counted from 1), segment_begin, segment_decay; see flat_update.h. With `rounds` w'
// rounded to bf16 is a fourth output.
class AdamW final : public OpOf<AdamW> {
 public:
  AdamW(double beta1, double beta2, double epsilon, bool rounds = false)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon), rounds_(rounds) {}
  double beta1() const { return beta1_; }
  double beta2() const { return beta2_; }
  double epsilon() const { return epsilon_; }
  bool rounds() const { return rounds_; }
  std::string_view name() const override { return "adamw"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 10; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 1}, {2, 2}}; }
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("beta1", beta1_), field("beta2", beta2_),
                           field("epsilon", epsilon_), field("rounds", rounds_));
  }

 private:
  double beta1_, beta2_, epsilon_;
  bool rounds_;
};

}  // namespace tessera
