#pragma once
#include "ir/graph.h"

namespace tessera {

// Sum of squares of all elements: a scalar in wide(dtype), summed over fixed blocks of 1,024
// elements.
class SumSquares final : public OpOf<SumSquares> {
 public:
  std::string_view name() const override { return "sum_squares"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  auto fields() const { return std::make_tuple(); }
};

}  // namespace tessera
