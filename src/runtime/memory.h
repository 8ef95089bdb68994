#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/dtype_of.h"
#include "ir/tensor_type.h"

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

// What outlives a run: named slots of fixed type (weights, moments, gradients, counters), shared by
// the programs of a job.
class State {
 public:
  // Adds a zeroed slot, or checks that the slot has exactly this type: InternalError naming both.
  void declare(const std::string& slot, const TensorType& type);
  bool contains(const std::string& slot) const { return slots_.contains(slot); }
  const TensorType& type(const std::string& slot) const { return find(slot).type; }
  void* data(const std::string& slot) const { return find(slot).buffer.data(); }
  // The elements of a slot of dtype_of<T>(): InternalError for one of another dtype.
  template <class T>
  T* as(const std::string& slot) const {
    return static_cast<T*>(data(slot, dtype_of<T>()));
  }
  std::vector<std::string> slots() const;
  int64_t bytes() const;

 private:
  struct Slot {
    TensorType type;
    HostBuffer buffer;
  };
  const Slot& find(const std::string& slot) const;
  void* data(const std::string& slot, DType dtype) const;
  std::map<std::string, Slot> slots_;
};

}  // namespace tessera
