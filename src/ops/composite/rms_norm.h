#pragma once
#include "ir/placement.h"

namespace tessera {

// Root-mean-square layer normalisation (Zhang and Sennrich 2019, equation 4):
//   rstd = 1 / sqrt(mean(x^2) + epsilon),  y = x * rstd * w.
// x [..., D], w [D] of one dtype. Outputs y like x, rstd [...] in f32 (f64 for f64). Computed in
// f32, y rounded once.
class RmsNorm final : public OpOf<RmsNorm> {
 public:
  explicit RmsNorm(double epsilon) : epsilon_(epsilon) {}
  double epsilon() const { return epsilon_; }
  std::string_view name() const override { return "rms_norm"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, w)
  void split(PlacementContext& context) const override { split_rowwise(context, 1); }
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(field("epsilon", epsilon_)); }

 private:
  double epsilon_;
};

// dx = rstd * (w * dy) - x * rstd^3 / D * sum(w * dy * x), like x, with `adds` plus the last
// operand, rounded once;  dw[D] = sum over rows of dy * x * rstd, f32.
class RmsNormBackward final : public OpOf<RmsNormBackward> {
 public:
  explicit RmsNormBackward(bool adds = false) : adds_(adds) {}
  std::string_view name() const override {
    return adds_ ? "rms_norm_backward_add" : "rms_norm_backward";
  }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return adds_ ? 5 : 4; }
  // (x, w, rstd, dy[, sum])
  std::vector<TensorType> infer(const InferContext& context) const override;
  OpPtr adding(int output) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  auto fields() const { return std::make_tuple(); }

 private:
  bool adds_;
};

Value rms_norm(Graph& graph, Value x, Value w, double epsilon);

}  // namespace tessera
