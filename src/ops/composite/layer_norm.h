#pragma once
#include <optional>

#include "ir/placement.h"

namespace tessera {

// Layer normalisation (Ba, Kiros and Hinton 2016, section 3):
//   mean = mean(x),  rstd = 1 / sqrt(mean((x - mean)^2) + epsilon),  y = (x - mean) * rstd * w + b.
// x [..., D], w [D] and, if there is one, b [D] of one dtype. Outputs y like x, mean and rstd [...]
// in f32 (f64 for f64). Computed in f32, y rounded once.
class LayerNorm final : public OpOf<LayerNorm> {
 public:
  LayerNorm(double epsilon, bool bias) : epsilon_(epsilon), bias_(bias) {}
  double epsilon() const { return epsilon_; }
  std::string_view name() const override { return "layer_norm"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return bias_ ? 3 : 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, w[, b])
  void split(PlacementContext& context) const override { split_rowwise(context, 1); }
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(field("epsilon", epsilon_), field("bias", bias_)); }

 private:
  double epsilon_;
  bool bias_;
};

// With h = (x - mean) * rstd and g = w * dy: dx = rstd * (g - mean(g) - h * mean(g * h)), like x;
// dw[D] = sum over rows of dy * h and db[D] = sum over rows of dy, f32. With `adds` dx is that plus
// the last operand, rounded once.
class LayerNormBackward final : public OpOf<LayerNormBackward> {
 public:
  explicit LayerNormBackward(bool adds = false) : adds_(adds) {}
  std::string_view name() const override {
    return adds_ ? "layer_norm_backward_add" : "layer_norm_backward";
  }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return adds_ ? 6 : 5; }
  // (x, w, mean, rstd, dy[, sum])
  std::vector<TensorType> infer(const InferContext& context) const override;
  OpPtr adding(int output) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  auto fields() const { return std::make_tuple(); }

 private:
  bool adds_;
};

Value layer_norm(Graph& graph, Value x, Value w, std::optional<Value> bias, double epsilon);

}  // namespace tessera
