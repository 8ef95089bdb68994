#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/op.h"
#include "runtime/kernel_table.h"

namespace tessera {

// Kernels that compute fingerprints instead of numbers: every element of a result is a hash of the
// op and of the bits of the operands, so that any byte that a plan got wrong shows in what follows.
// They handle shared storage exactly as far as their op declares it, soil every other result before
// they begin, and soil their workspace.
//
// Those of Exchange run beside what follows, as between ranks: all that they do happens when they
// begin, or all when they are waited for. A sound plan gives the same results either way. They keep
// a mark in their workspace meanwhile.
enum class ExchangeTime { kBegin, kEnd };
KernelTable tag_kernels(ExchangeTime exchanges = ExchangeTime::kBegin);

// What ranks do together, as a plan sees it: a result like the operand, done some time later.
class Exchange final : public OpOf<Exchange> {
 public:
  explicit Exchange(bool in_place) : in_place_(in_place) {}
  std::string_view name() const override { return "exchange"; }
  Tier tier() const override { return Tier::kPrimitive; }
  int arity() const override { return 1; }
  std::optional<Communication> communication() const override {
    return Communication{Traffic::kAllToAll, {}};
  }
  std::vector<TensorType> infer(const InferContext& context) const override {
    return {context.inputs[0]};
  }
  std::vector<InPlacePair> in_place_pairs() const override {
    return in_place_ ? std::vector<InPlacePair>{{0, 0}} : std::vector<InPlacePair>{};
  }
  auto fields() const { return std::make_tuple(field("in_place", in_place_)); }

 private:
  bool in_place_;
};

// Two results from two operands, each in the place of one; wants a workspace.
class SumAndDifference final : public OpOf<SumAndDifference> {
 public:
  std::string_view name() const override { return "sum_and_difference"; }
  Tier tier() const override { return Tier::kPrimitive; }
  std::vector<TensorType> infer(const InferContext& context) const override;
  std::vector<InPlacePair> in_place_pairs() const override { return {{0, 0}, {1, 1}}; }
  auto fields() const { return std::make_tuple(); }
};

}  // namespace tessera
