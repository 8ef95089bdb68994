#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "backends/cuda/cuda_device.h"
#include "runtime/executable.h"
#include "runtime/state.h"

namespace tessera::cuda {

enum class MemoryKind { kDevice, kPinned };

// One allocation of a device. None of 0 bytes.
template <MemoryKind kKind>
class Block {
 public:
  Block() = default;
  Block(CudaDevice& device, int64_t bytes, std::string_view purpose)
      : device_(&device), bytes_(bytes) {
    if (bytes == 0) return;
    data_ = static_cast<std::byte*>(kKind == MemoryKind::kDevice
                                        ? device.allocate(bytes, purpose)
                                        : device.allocate_pinned(bytes, purpose));
  }
  ~Block() {
    if (!data_) return;
    kKind == MemoryKind::kDevice ? device_->free(data_) : device_->free_pinned(data_);
  }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  CudaDevice* device_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};
using DeviceBlock = Block<MemoryKind::kDevice>;
using PinnedBlock = Block<MemoryKind::kPinned>;

// A state in a device's memory, an allocation a slot; slots of the far tier in pinned memory of the
// host. Copies are behind all runs that were started before, and done on return.
class CudaState final : public State {
 public:
  explicit CudaState(CudaDevice& device) : device_(device) {}
  // Waits for what still runs.
  ~CudaState() override;
  std::byte* data(const std::string& slot) const;
  // Where a slot is in the device's memory; null for one of the far tier.
  const DeviceBlock* near_block(const std::string& slot) const;
  // In pinned memory, which kernels reach too, at the speed of the link.
  void keep_far(const std::string& slot) override { far_slots_.insert(slot); }

 private:
  void allocate(const std::string& slot, int64_t bytes) override;
  void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const override;
  void copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) override;

  CudaDevice& device_;
  std::map<std::string, DeviceBlock> near_;
  std::map<std::string, PinnedBlock> far_;
  std::set<std::string> far_slots_;
};

// The near arena in a device's memory, the far one in pinned memory of the host.
class CudaArenas final : public Arenas {
 public:
  CudaArenas(CudaDevice& device, const ProgramMemory& memory);
  // Waits for what still runs.
  ~CudaArenas() override;
  int64_t bytes() const override { return near_.bytes() + far_.bytes(); }
  const DeviceBlock& near() const { return near_; }
  const PinnedBlock& far() const { return far_; }

 private:
  CudaDevice& device_;
  DeviceBlock near_;
  PinnedBlock far_;
};

}  // namespace tessera::cuda
