#pragma once
#include "backends/cuda/cuda_kernels.h"

namespace tessera::cuda {

// The dtypes of floats and of integers that primitives compute with.
inline bool computes(DType d) { return d == DType::kF32 || d == DType::kBF16 || d == DType::kF64; }
inline bool counts(DType d) { return d == DType::kI32 || d == DType::kI64; }

// The families that make up register_primitive_kernels(), a file each.

// Unary, binary, compare, select, convert.
void register_elementwise_primitives(KernelTable& table, Device& device);
// constant, table, iota, random_bits, offload, fetch, transpose, broadcast, slice, pad,
// concatenate, gather.
void register_movement_primitives(KernelTable& table, Device& device);
// reduce_sum, reduce_max, dot, scatter_add.
void register_summing_primitives(KernelTable& table, Device& device);

}  // namespace tessera::cuda
