#include "runtime/kernel_table.h"

namespace tessera {

Prepared KernelTable::prepare(const PrepareContext& context) const {
  auto kernels = kernels_.find(std::string(context.op.name()));
  if (kernels == kernels_.end()) return cat("no kernel for ", context.op.name());
  std::string reasons;
  for (const Prepare& prepare : kernels->second) {
    Prepared prepared = prepare(context);
    if (std::holds_alternative<Launch>(prepared)) return prepared;
    reasons += cat(reasons.empty() ? "" : "; ", std::get<std::string>(prepared));
  }
  return reasons;
}

}  // namespace tessera
