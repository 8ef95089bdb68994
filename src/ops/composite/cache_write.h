#pragma once
#include "ir/graph.h"

namespace tessera {

// A cache [R, C, ...] in which tokens [start_b, start_b + n) of row row_b are replaced by those of
// x_b, x [B, n, ...]. start i32 [B], at least 0 and at most C - n; row i32 [B], all different. In
// place of the cache this writes B * n tokens and touches nothing else.
class CacheWrite final : public OpOf<CacheWrite> {
 public:
  std::string_view name() const override { return "cache_write"; }
  Tier tier() const override { return Tier::kComposite; }
  int arity() const override { return 4; }
  std::vector<TensorType> infer(
      const InferContext& context) const override;  // (cache, x, start, row)
  std::vector<Value> decompose(Graph& graph, std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}}; }
  auto fields() const { return std::make_tuple(); }
};

}  // namespace tessera
