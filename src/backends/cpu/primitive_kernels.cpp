#include "backends/cpu/primitive_kernels.h"

namespace tessera::cpu {

// reshape, stop_gradient, unflatten, unstack and flatten are absent: they are views and placements,
// which the plan settles without a launch.
void register_primitive_kernels(KernelTable& table, Isa isa, ThreadPool& pool) {
  register_elementwise_primitives(table, isa, pool);
  register_movement_primitives(table, pool);
  register_summing_primitives(table, pool);
}

}  // namespace tessera::cpu
