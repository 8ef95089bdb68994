#pragma once
#include <span>
#include <string_view>

#include "ir/op.h"

namespace tessera {

// One line for every op of the library. Tests hold it against their samples, gradient checks and
// kernels, so an op cannot be added without them.
struct OpRecord {
  std::string_view name;
  Tier tier;
  // Empty: has a gradient, which is checked. Otherwise why it has none.
  std::string_view no_gradient;
};

std::span<const OpRecord> op_registry();

}  // namespace tessera
