#pragma once
#include "ir/placement.h"

namespace tessera {

// y[..., N] = x[..., N] + b[N], of one dtype. Added in f32, rounded once.
class AddBias final : public OpOf<AddBias> {
 public:
  std::string_view name() const override { return "add_bias"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x, b)
  // x is reduced first, so that the bias behind a row-split matrix is added once; that behind a
  // column-split one is split with its rows.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(); }
};

// db[N] = sum of dy[..., N] over all rows, in wide(dtype).
class AddBiasBackward final : public OpOf<AddBiasBackward> {
 public:
  std::string_view name() const override { return "add_bias_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (dy)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

Value add_bias(Graph& graph, Value x, Value bias);

}  // namespace tessera
