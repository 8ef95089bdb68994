#pragma once
#include "backends/cpu/cpu_kernels.h"

namespace tessera::cpu {

inline constexpr int64_t kTileElements = 16384;

inline std::string launch_name(const PrepareContext& context) {
  return cat(context.op.name(), " portable");
}

// The families that make up register_primitive_kernels(), a file each.

// Unary, binary, compare, select, convert.
void register_elementwise_primitives(KernelTable& table, Isa isa, ThreadPool& pool);
// constant, table, iota, random_bits, offload, fetch, transpose, broadcast, slice, pad,
// concatenate, gather.
void register_movement_primitives(KernelTable& table, ThreadPool& pool);
// reduce_sum, reduce_max, dot, scatter_add.
void register_summing_primitives(KernelTable& table, ThreadPool& pool);

}  // namespace tessera::cpu
