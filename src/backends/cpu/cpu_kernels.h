#pragma once
#include "backends/cpu/kernels/isa.h"
#include "base/thread_pool.h"
#include "runtime/kernel_table.h"

namespace tessera::cpu {

// The lists of kernels that make up the backend, in the order in which they are tried. Launches
// keep a reference to the pool.

// Fused kernels for the composites, on f32 and bf16.
void register_composite_kernels(KernelTable& table, Isa isa, ThreadPool& pool);
// Matrix products, and what is built on them.
void register_matmul_kernels(KernelTable& table, Isa isa, ThreadPool& pool);
// Plain kernels for every primitive, so that anything that has a decomposition runs.
void register_primitive_kernels(KernelTable& table, Isa isa, ThreadPool& pool);

}  // namespace tessera::cpu
