#include "backends/cpu/cpu_backend.h"

namespace tessera::cpu {

CpuBackend::CpuBackend(int threads, Isa isa, Communicator* communicator)
    : pool_(threads), isa_(isa), communicator_(communicator) {
  register_composite_kernels(table_, isa, pool_);
  register_cache_kernels(table_, isa, pool_);
  register_primitive_kernels(table_, isa, pool_);
  register_collective_kernels(table_, communicator);
  register_half_kernels(table_, isa, pool_);
}

std::unique_ptr<Arenas> CpuBackend::make_arenas(const ProgramMemory& memory) {
  return std::make_unique<HostArenas>(
      communicator_ ? communicator_->allocate(memory.arena) : HostBuffer(memory.arena),
      HostBuffer(memory.far_arena));
}

}  // namespace tessera::cpu
