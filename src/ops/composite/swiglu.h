#pragma once
#include "ir/placement.h"

namespace tessera {

// y = silu(gate) * up, silu(a) = a / (1 + e^-a) (Shazeer 2020, equation 6 without the matrices).
// Computed in f32, rounded once.
class Swiglu final : public OpOf<Swiglu> {
 public:
  std::string_view name() const override { return "swiglu"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 2; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (gate, up)
  void split(PlacementContext& context) const override { split_elementwise(context); }
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// With s = 1 / (1 + e^-gate): dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s.
class SwigluBackward final : public OpOf<SwigluBackward> {
 public:
  std::string_view name() const override { return "swiglu_backward"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 3; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (gate, up, dy)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 1}}; }
  auto fields() const { return std::make_tuple(); }
};

Value swiglu(Graph& graph, Value gate, Value up);

}  // namespace tessera
