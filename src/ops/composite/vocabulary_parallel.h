#pragma once
#include "ops/composite/cross_entropy.h"

namespace tessera {

// The head where each rank of a tensor-parallel group has some rows of the output matrix
// (Shoeybi et al. 2019, section 3). For row n of x and the first `valid` rows of w:
//   lse[n] = log sum_{v < valid} exp(x_n w_v),  minus infinity if valid is 0,
//   hit[n] = x_n w_target[n] where target[n] is in [0, valid), else 0.
// x [N, D], w [V, D] of one dtype; targets i32 [N], counted from this rank's first row; valid an
// i32 scalar: rows behind it only fill the matrix up to a multiple of the ranks. lse and hit in f32
// (f64 for f64).
class LinearLogSumExp final : public OpOf<LinearLogSumExp> {
 public:
  std::string_view name() const override { return "linear_log_sum_exp"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 4; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (x, w, targets, valid)
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// With g[n, v] = dlse[n] exp(x_n w_v - lse[n]) + dhit[n] (v = target[n]) for v < valid, else 0,
// rounded to x's dtype:  dx = g w (like x),  dw = g^T x (wide). The logits are formed again.
class LinearLogSumExpBackward final : public OpOf<LinearLogSumExpBackward> {
 public:
  explicit LinearLogSumExpBackward(HeadGradients gradients = {}) : gradients_(gradients) {}
  HeadGradients gradients() const { return gradients_; }
  std::string_view name() const override {
    return gradients_.adds ? "linear_log_sum_exp_backward_add" : "linear_log_sum_exp_backward";
  }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return gradients_.adds ? 8 : 7; }
  bool contracts() const override { return true; }
  // (x, w, targets, valid, lse, dlse, dhit[, sum])
  std::vector<TensorType> infer(const InferContext& context) const override;
  OpPtr adding(int output) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("dx", gradients_.dx), field("dw", gradients_.dw));
  }

 private:
  HeadGradients gradients_;
};

// What linear_cross_entropy is, from the parts of w [vocabulary, D] that the ranks along `axes`
// have, each padded to the same number of rows; equal on all ranks. x and w vary over the axes,
// targets are in [0, vocabulary) or kIgnoreIndex.
CrossEntropySums vocabulary_parallel_cross_entropy(Graph& graph, Value x, Value w, Value targets,
                                                   int64_t vocabulary, AxisSet axes);

}  // namespace tessera
