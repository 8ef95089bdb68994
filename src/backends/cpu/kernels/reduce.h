#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// Blocks of 1,024 elements, counted from x, are summed in f32; their sums are added in f64 in
// ascending order. `workspace` holds reduce_workspace(n) bytes.
int64_t reduce_workspace(int64_t n);  // bytes
double sum(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool);
double sum_of_squares(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool);

// How many of `targets` differ from `ignored`.
int64_t count_unequal(const int32_t* targets, int64_t n, int32_t ignored);

// sums[b] for the blocks b in [begin, end).
TESSERA_DECLARE_PER_ISA(void sum_blocks(const float* x, int64_t n, int64_t begin, int64_t end,
                                        double* sums))
TESSERA_DECLARE_PER_ISA(void square_blocks(const float* x, int64_t n, int64_t begin, int64_t end,
                                           double* sums))
constexpr int64_t kReduceBlock = 1024;

}  // namespace tessera::cpu
