#pragma once
#include "ir/graph.h"

namespace tessera {

// Copies between the two memory tiers, any shape and dtype, bit by bit. A value in the far tier is
// read by views of it and by `fetch` only; what is far for its whole life is a state slot.

// Near to far.
class Offload final : public OpOf<Offload> {
 public:
  std::string_view name() const override { return "offload"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  MemoryTier memory_tier() const override { return MemoryTier::kFar; }
  Lane lane() const override { return Lane::kCopy; }
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

// Far to near.
class Fetch final : public OpOf<Fetch> {
 public:
  std::string_view name() const override { return "fetch"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  Lane lane() const override { return Lane::kCopy; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  auto fields() const { return std::make_tuple(); }
};

Value offload(Graph& graph, Value x);
Value fetch(Graph& graph, Value x);

}  // namespace tessera
