#include "backends/cpu/cpu_backend.h"

namespace tessera::cpu {

CpuBackend::CpuBackend(int threads, Isa isa, Communicator* communicator)
    : pool_(threads), isa_(isa) {
  register_composite_kernels(table_, isa, pool_);
  register_cache_kernels(table_, isa, pool_);
  register_matmul_kernels(table_, isa, pool_);
  register_primitive_kernels(table_, isa, pool_);
  register_collective_kernels(table_, communicator);
  register_half_kernels(table_, isa, pool_);
}

}  // namespace tessera::cpu
