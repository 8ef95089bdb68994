#pragma once
#include "ir/placement.h"

namespace tessera {

// y = factor * x, x a float of any shape. Computed in f32 (f64 for f64), in which the factor is not
// rounded to x's dtype, and rounded once.
class Scale final : public OpOf<Scale> {
 public:
  explicit Scale(double factor) : factor_(factor) {}
  double factor() const { return factor_; }
  std::string_view name() const override { return "scale"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;  // (x)
  // However x lies: summands may be multiplied before they are summed.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(field("factor", factor_)); }

 private:
  double factor_;
};

// The same value where the factor is 1.
Value scale(Graph& graph, Value x, double factor);

}  // namespace tessera
