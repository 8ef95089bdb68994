#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/cuda/driver_api.h"
#include "backends/cuda/kernels/parameters.h"
#include "ir/op.h"

namespace tessera::cuda {

// A kernel of this program on a device, found by its name. Cheap to copy.
struct Kernel {
  CUfunction function = nullptr;
  std::string_view name;  // static
};

// Blocks of a launch and threads of a block.
struct Shape3 {
  unsigned x = 1, y = 1, z = 1;
};

// One GPU as one rank uses it: its context, a stream a lane, memory, the kernels of this program.
// Everything is enqueued on the stream of the current lane; errors are DeviceError with the name of
// the call or kernel and the driver's text.
class Device {
 public:
  virtual ~Device() = default;

  // DeviceError if the images that this program carries have no such kernel.
  virtual Kernel kernel(std::string_view name) = 0;

  // Enqueues a kernel on the current lane's stream. Arguments are passed by value as the kernel
  // declares them: same number, same types (pointers, int32_t, int64_t, float ...).
  template <class... Arguments>
  void launch(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
              Arguments... arguments) {
    std::array<void*, sizeof...(Arguments)> pointers{&arguments...};
    launch_kernel(kernel, grid, block, shared_bytes, pointers);
  }
  virtual void fill(void* to, int64_t bytes) = 0;                    // zeroes
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;  // on the device
  virtual CUstream stream() const = 0;                               // of the current lane
  // Streaming multiprocessors, for grids of kernels that loop. A constant of the kind of device, so
  // results must not depend on it.
  virtual int multiprocessors() const = 0;
  // Shared memory that a block may have, in bytes. No result may depend on it.
  virtual int64_t shared_bytes() const = 0;
  // Where a launch notes an id outside of its table, as kernels and the host reach it: an error of
  // the run, which begins with `what`. A record belongs to one launch.
  virtual std::shared_ptr<IdFault> id_fault(std::string what) = 0;

 protected:
  virtual void launch_kernel(const Kernel& kernel, Shape3 grid, Shape3 block, int shared_bytes,
                             std::span<void*> arguments) = 0;
};

}  // namespace tessera::cuda
