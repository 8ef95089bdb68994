#pragma once
#include "ir/graph.h"

namespace tessera {

// y = x0 + x1 + ..., in that order, in wide(dtype), rounded once to the operands' dtype: how
// cotangents of a value with several uses are summed.
class SumN final : public OpOf<SumN> {
 public:
  std::string_view name() const override { return "sum_n"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(); }
};

}  // namespace tessera
