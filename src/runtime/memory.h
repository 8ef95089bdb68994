#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera {

// Host memory aligned to 4 KiB; large ones ask for huge pages. Zeroed.
class HostBuffer {
 public:
  HostBuffer() = default;
  explicit HostBuffer(int64_t bytes);  // DeviceError when the system has no such amount
  // Memory that somebody else mapped; `release` gives it back.
  HostBuffer(std::byte* data, int64_t bytes, std::function<void()> release);
  ~HostBuffer();
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void()> release_;  // empty: its own mapping
};

}  // namespace tessera
