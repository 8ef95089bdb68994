#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cuda/driver_api.h"

// Memory of a device that other processes may have too: a file without a name, found through the
// process that made it. A page behind the memory says who has it.
namespace tessera::emulated_gpu {

struct SharedMemory {
  // Puts what lies at a place into a file, at the same place. Null if that cannot be.
  static std::shared_ptr<SharedMemory> share(std::byte* begin, int64_t bytes, int64_t pages);
  // That of another process, at a place of its own; null if it is not there any more.
  static std::shared_ptr<SharedMemory> open(const cuda::CUipcMemHandle& handle);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  cuda::CUipcMemHandle handle(int device) const;
  const cuda::CUipcMemHandle& opened_by() const { return opened_by_; }
  // What a handle says.
  static int process_of(const cuda::CUipcMemHandle& handle);

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  int64_t mapped() const;  // with the page behind, which nobody may touch
  int opened() const;      // by how many other processes
  void close();            // by this one
  void end();              // freed by the process that made it
  bool has_ended() const;

 private:
  struct Use;
  SharedMemory() = default;
  bool map_use();

  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0, pages_ = 0;
  int file_ = -1;
  uint64_t serial_ = 0;
  Use* use_ = nullptr;
  cuda::CUipcMemHandle opened_by_{};
};

}  // namespace tessera::emulated_gpu
