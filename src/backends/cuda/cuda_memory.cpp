#include "backends/cuda/cuda_memory.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera::cuda {
CudaState::~CudaState() { device_.settle(); }

std::byte* CudaState::data(const std::string& slot) const {
  auto near = near_.find(slot);
  if (near != near_.end()) return near->second.data();
  auto far = far_.find(slot);
  TESSERA_CHECK(far != far_.end(), cat("no state slot '", slot, "'"));
  return far->second.data();
}

const DeviceBlock* CudaState::near_block(const std::string& slot) const {
  auto near = near_.find(slot);
  return near == near_.end() ? nullptr : &near->second;
}

void CudaState::allocate(const std::string& slot, int64_t bytes) {
  const std::string purpose = cat("state slot ", slot);
  if (far_slots_.contains(slot)) {
    PinnedBlock block(device_, bytes, purpose);
    if (bytes > 0) std::memset(block.data(), 0, static_cast<size_t>(bytes));
    far_.emplace(slot, std::move(block));
    return;
  }
  const auto guard = device_.lock();
  DeviceBlock block(device_, bytes, purpose);
  if (bytes > 0) device_.fill(block.data(), bytes);
  near_.emplace(slot, std::move(block));
}

void CudaState::copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const {
  const Driver& driver = device_.driver();
  const auto guard = device_.lock();
  const std::byte* from = data(slot) + offset;
  if (far_.contains(slot)) {
    device_.finish();
    std::memcpy(to.data(), from, to.size());
    return;
  }
  // Before the call, which waits for what is enqueued without a deadline: another rank may be
  // missing in an exchange.
  device_.finish();
  driver.call(driver.copy_to_host, static_cast<void*>(to.data()),
              reinterpret_cast<CUdeviceptr>(from), to.size(), device_.stream(Lane::kCompute));
  device_.finish();
}

void CudaState::copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) {
  const Driver& driver = device_.driver();
  const auto guard = device_.lock();
  std::byte* to = data(slot) + offset;
  if (far_.contains(slot)) {
    device_.finish();
    std::memcpy(to, from.data(), from.size());
    return;
  }
  device_.finish();
  driver.call(driver.copy_to_device, reinterpret_cast<CUdeviceptr>(to),
              static_cast<const void*>(from.data()), from.size(), device_.stream(Lane::kCompute));
  device_.finish();
}

CudaArenas::CudaArenas(CudaDevice& device, const ProgramMemory& memory)
    : device_(device),
      near_(device, memory.arena, "the values of a step"),
      far_(device, memory.far_arena, "offloaded values") {}

CudaArenas::~CudaArenas() { device_.settle(); }

}  // namespace tessera::cuda
