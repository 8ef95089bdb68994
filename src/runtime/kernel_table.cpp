#include "runtime/kernel_table.h"

#include <optional>

namespace tessera {

Prepared KernelTable::prepare(const PrepareContext& context) const {
  std::string reasons;
  auto first_of = [&](const std::vector<Prepare>& kernels) -> std::optional<Prepared> {
    for (const Prepare& prepare : kernels) {
      Prepared prepared = prepare(context);
      if (auto* launch = std::get_if<Launch>(&prepared)) {
        launch->declined = reasons;
        return prepared;
      }
      reasons += cat(reasons.empty() ? "" : "; ", std::get<std::string>(prepared));
    }
    return std::nullopt;
  };
  auto own = kernels_.find(std::string(context.op.name()));
  if (own == kernels_.end()) {
    reasons = cat("no kernel for ", context.op.name());
  } else if (auto prepared = first_of(own->second)) {
    return *prepared;
  }
  if (auto prepared = first_of(for_all_)) return *prepared;
  return reasons;
}

}  // namespace tessera
