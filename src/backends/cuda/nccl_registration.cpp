// Memory that is registered with NCCL's communicators.
#include <algorithm>

#include "backends/cuda/nccl_communicator.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera::cuda {

std::string NcclCommunicator::register_one(const MemoryUse& use) {
  if (!library_.comm_register.found() || !library_.comm_deregister.found())
    return cat("NCCL ", library_.version(), " has no ncclCommRegister");
  void* handle = nullptr;
  const ncclResult result =
      taken(use.comm,
            library_.comm_register(use.comm, use.begin, static_cast<size_t>(use.bytes), &handle));
  if (result != kNcclSuccess) return cat("NCCL: ", library_.get_error_string(result));
  if (!handle) return "NCCL leaves it out (NCCL_LOCAL_REGISTER, or peers that it copies between)";
  registered_[use] = handle;
  return "";
}

void NcclCommunicator::register_memory(const std::vector<MemoryUse>& uses) {
  if (uses.empty() || !without_registration_.empty()) return;
  std::string problem;
  {
    const auto guard = device_.lock();
    check_whole();
    for (const MemoryUse& use : uses) {
      if (!problem.empty()) break;
      if (!registered_.contains(use)) problem = register_one(use);
    }
  }
  const std::vector<std::string> told = control_.exchange("nccl registration", problem);
  const auto first =
      std::find_if(told.begin(), told.end(), [](auto& text) { return !text.empty(); });
  if (first == told.end()) return;
  // NCCL wants registered memory of all ranks of an exchange or of none.
  const auto guard = device_.lock();
  device_.finish();
  deregister([](const MemoryUse&) { return true; });
  without_registration_ = cat("rank ", first - told.begin(), ": ", *first);
  if (rank() == 0)
    TESSERA_WARN(cat("Memory of exchanges between GPUs is not registered with NCCL: ",
                     without_registration_));
}

// What NCCL says to it does not matter: the memory goes, or is used without.
void NcclCommunicator::deregister(const std::function<bool(const MemoryUse&)>& which) noexcept {
  std::erase_if(registered_, [&](const auto& entry) {
    if (!which(entry.first)) return false;
    library_.comm_deregister(entry.first.comm, entry.second);
    return true;
  });
}

}  // namespace tessera::cuda
