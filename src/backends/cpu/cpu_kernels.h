#pragma once
#include "backends/cpu/kernels/isa.h"
#include "base/thread_pool.h"
#include "runtime/communicator.h"
#include "runtime/kernel_preparation.h"

namespace tessera::cpu {

// The lists of kernels that make up the backend, in the order in which they are tried. Launches
// keep a reference to the pool.

// Fused kernels for the composites, on f32 and bf16.
void register_composite_kernels(KernelTable& table, Isa isa, ThreadPool& pool);
// Attention over past tokens, and keeping them.
void register_cache_kernels(KernelTable& table, Isa isa, ThreadPool& pool);
// Exchanges between ranks. Without a communicator a program can be compiled and planned for any
// mesh, but not run. Groups are made when the first op that needs them is prepared, so all ranks
// must compile the same programs in the same order.
void register_collective_kernels(KernelTable& table, Communicator* communicator);
// Plain kernels for every primitive, so that anything that has a decomposition runs.
void register_primitive_kernels(KernelTable& table, Isa isa, ThreadPool& pool);
// f16 is a dtype of storage: whatever op has a kernel for f32 runs that one between conversions, in
// workspace. `table` must stay where it is.
void register_half_kernels(KernelTable& table, Isa isa, ThreadPool& pool);

}  // namespace tessera::cpu
