#pragma once
#include <optional>

#include "ir/placement.h"

namespace tessera {

// y[..., N] = x[..., K] w[N, K]^T, plus bias[N] where there is a third operand, of one dtype.
// Accumulated in f32, rounded once.
class Linear final : public OpOf<Linear> {
 public:
  std::string_view name() const override { return "linear"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, w[, bias])
  // w and bias split along N give y split along its last dim; w along K a summand of y, to which
  // the bias is added when it is reduced.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  bool contracts() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// dx[..., K] = dy[..., N] w[N, K], in dy's dtype. With `adds` plus the third operand, rounded once.
class LinearDx final : public OpOf<LinearDx> {
 public:
  explicit LinearDx(bool adds = false) : adds_(adds) {}
  std::string_view name() const override { return adds_ ? "linear_dx_add" : "linear_dx"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return adds_ ? 3 : 2; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (dy, w[, sum])
  OpPtr adding(int output) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }

 private:
  bool adds_;
};

// dw[N, K] = sum over tokens of dy[..., N] x[..., K], in wide(dtype): gradients of parameters are
// f32. With `adds` plus the third operand.
class LinearDw final : public OpOf<LinearDw> {
 public:
  explicit LinearDw(bool adds = false) : adds_(adds) {}
  std::string_view name() const override { return adds_ ? "linear_dw_add" : "linear_dw"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return adds_ ? 3 : 2; }
  bool contracts() const override { return true; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (dy, x[, sum])
  OpPtr adding(int output) const override;
  std::vector<InPlacePair> in_place_pairs() const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }

 private:
  bool adds_;
};

Value linear(Graph& graph, Value x, Value w);
Value linear(Graph& graph, Value x, Value w, std::optional<Value> bias);

}  // namespace tessera
