#pragma once
#include "ir/placement.h"

namespace tessera {

// A stack of `count` tensors, [count, ...], as its parts: output i is x[i, ...], `elements`
// elements from i * elements on. All outputs are views; the gradient of a part is computed in its
// place. For matrices that a checkpoint keeps as one tensor (GPT-2's query, key and value).
class Unstack final : public OpOf<Unstack> {
 public:
  Unstack(int64_t count, int64_t elements) : count_(count), elements_(elements) {}
  int64_t count() const { return count_; }
  std::string_view name() const override { return "unstack"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  // A stack that is cut along another dim than its first gives parts that are cut.
  void split(PlacementContext& context) const override;
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override;
  std::vector<int64_t> view_offsets() const override;
  Cost cost(std::span<const TensorType>, std::span<const TensorType>) const override { return {}; }
  auto fields() const {
    return std::make_tuple(field("count", count_), field("elements", elements_));
  }

 private:
  int64_t count_, elements_;
};

// The parts of x along its first dim.
std::vector<Value> unstack(Graph& graph, Value x);

}  // namespace tessera
