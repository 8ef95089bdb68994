#pragma once
#include "base/ignore_index.h"
#include "ir/placement.h"

namespace tessera {

// Over the rows whose target is not kIgnoreIndex, with lse = log sum_v e^(x w_v):
//   loss = sum (lse - x w_target), the cross-entropy of softmax(x w^T) with its target,
//   squares = sum lse^2, the z-loss of Chowdhery et al. 2022 (PaLM), section 5, without its factor.
// x [N, D], w [V, D] of one dtype, targets i32 [N] in [0, V) or kIgnoreIndex. Outputs: scalars in
// f32 (f64 for f64). Kernels work through chunks of rows: the logits of the whole batch never
// exist.
class LinearCrossEntropy final : public OpOf<LinearCrossEntropy> {
 public:
  std::string_view name() const override { return "linear_cross_entropy"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 3; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, w, targets)
  // w split along V: see LinearLogSumExp.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// Which gradients a head's backward op forms: each is a product of its size. Those of constants
// are not among its outputs. With `adds` the op has one operand more, to which dw is added.
struct HeadGradients {
  bool dx = true, dw = true, adds = false;
  int count() const { return int{dx} + int{dw}; }
  bool is_dw(int output) const { return dw && output == int{dx}; }
  // Of an op whose last operand is this.
  std::vector<InPlacePair> in_place_pairs(int last_operand) const;
};

// The gradient, which has to form the logits again and so gives the sums too. With
//   g = (dloss + 2 dsquares lse) softmax(x w^T) - dloss onehot(target),
// rounded to x's dtype, 0 for ignored rows:
//   dx = g w (like x),  dw = g^T x (f32),  loss and squares as above. dloss, dsquares are scalars.
class LinearCrossEntropyBackward final : public OpOf<LinearCrossEntropyBackward> {
 public:
  explicit LinearCrossEntropyBackward(HeadGradients gradients = {}) : gradients_(gradients) {}
  HeadGradients gradients() const { return gradients_; }
  std::string_view name() const override {
    return gradients_.adds ? "linear_cross_entropy_backward_add" : "linear_cross_entropy_backward";
  }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return gradients_.adds ? 6 : 5; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (x, w, targets, dloss, dsquares[, sum])
  OpPtr adding(int output) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<std::pair<int, int>> subsumes(const Op& forward) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const {
    return std::make_tuple(field("dx", gradients_.dx), field("dw", gradients_.dw));
  }

 private:
  HeadGradients gradients_;
};

// Number of targets that are not kIgnoreIndex: i64 scalar.
class CountTargets final : public OpOf<CountTargets> {
 public:
  std::string_view name() const override { return "count_targets"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (targets)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(); }
};

struct CrossEntropySums {
  Value loss, squares;
};
CrossEntropySums linear_cross_entropy(Graph& graph, Value x, Value w, Value targets);
Value count_targets(Graph& graph, Value targets);

}  // namespace tessera
