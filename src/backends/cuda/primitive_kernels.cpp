#include "backends/cuda/primitive_kernels.h"

#include <mutex>
#include <set>

#include "backends/cuda/kernel_launch.h"

namespace tessera::cuda {

Kernel find_kernel(Device& device, const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;  // which kernels refer to
  std::lock_guard lock(mutex);
  return device.kernel(*names.insert(name).first);
}

// reshape, stop_gradient, unflatten, unstack and flatten are absent: they are views and placements,
// which the plan settles without a launch.
void register_primitive_kernels(KernelTable& table, Device& device) {
  register_elementwise_primitives(table, device);
  register_movement_primitives(table, device);
  register_summing_primitives(table, device);
}

}  // namespace tessera::cuda
