#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// Blocks of 1,024 elements, counted from x, are summed in f32; their sums are added in f64 in
// ascending order. `workspace` holds reduce_workspace(n) bytes.
int64_t reduce_workspace(int64_t n);  // bytes
double sum(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool);
double sum_of_squares(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool);

// y[j] = sum over rows of x[rows, width], in f32: over tiles of 64 rows, then over the tiles, both
// in ascending order. `workspace` holds column_sum_workspace() bytes.
struct ColumnSum {
  DType dtype;  // of x: kF32 or kBF16
  const void* x;
  float* y;  // [width]
  float* workspace;
  int64_t rows, width;
};
int64_t column_sum_workspace(int64_t rows, int64_t width);  // bytes
void column_sum(const ColumnSum& args, Isa isa, ThreadPool& pool);
// The same without tiles of rows, for the few that a kernel's own tiles leave: rows of f32,
// `stride` apart.
void sum_rows(const float* x, int64_t stride, int64_t rows, int64_t width, float* y, Isa isa,
              ThreadPool& pool);

// How many of `targets` differ from `ignored`.
int64_t count_unequal(const int32_t* targets, int64_t n, int32_t ignored);

// sums[b] for the blocks b in [begin, end).
TESSERA_DECLARE_PER_ISA(void sum_blocks(const float* x, int64_t n, int64_t begin, int64_t end,
                                        double* sums))
TESSERA_DECLARE_PER_ISA(void square_blocks(const float* x, int64_t n, int64_t begin, int64_t end,
                                           double* sums))
constexpr int64_t kReduceBlock = 1024;
// y[0, width) = sum of rows of x, `stride` elements apart, in ascending order.
TESSERA_DECLARE_PER_ISA(void sum_row_range(DType dtype, const void* x, int64_t stride, int64_t rows,
                                           int64_t width, float* y))

}  // namespace tessera::cpu
