#include "optim/optimizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

std::span<const OptimizerRecord> optimizers() {
  static const std::vector<OptimizerRecord> records{
      {"adamw", {"beta1", "beta2"}, make_adamw},
      {"sgd", {"momentum"}, make_sgd},
      {"lion", {"beta1", "beta2"}, make_lion},
  };
  return records;
}

const OptimizerRecord& optimizer_record(std::string_view name) {
  auto found = std::ranges::find(optimizers(), name, &OptimizerRecord::name);
  TESSERA_CHECK(found != optimizers().end(), cat("no optimizer '", name, "'"));
  return *found;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  return optimizer_record(options.name).make(options);
}

Slot optimizer_slot(std::string kind, const std::string& unit, const TensorType& weights) {
  return {.kind = std::move(kind),
          .role = SlotRole::kOptimizer,
          .unit = unit,
          .type = weights,
          .saved = true};
}

}  // namespace tessera
