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
KernelTable tag_kernels();

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
