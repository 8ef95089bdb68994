#include "backends/cpu/kernels/reduce.h"

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

template <bool kSquared>
void blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  for (int64_t b = begin; b < end; ++b) {
    const float* block = x + b * kReduceBlock;
    int64_t rest = n - b * kReduceBlock;
    Vec total{};
    for_vectors(rest < kReduceBlock ? rest : kReduceBlock, [&](auto lanes, int64_t i) {
      Vec v = lanes.load(block + i);
      total += kSquared ? v * v : v;
    });
    sums[b] = sum_lanes(total);
  }
}

template <class T>
void add_rows(const T* x, int64_t stride, int64_t rows, int64_t width, float* y) {
  __builtin_memset(y, 0, (size_t)width * sizeof(float));
  for (int64_t row = 0; row < rows; ++row, x += stride) {
    for_vectors(width, [&](auto lanes, int64_t i) {
      lanes.store(y + i, lanes.load(y + i) + lanes.load(x + i));
    });
  }
}

}  // namespace

void sum_row_range(DType dtype, const void* x, int64_t stride, int64_t rows, int64_t width,
                   float* y) {
  if (dtype == DType::kF32) return add_rows((const float*)x, stride, rows, width, y);
  add_rows((const BF16*)x, stride, rows, width, y);
}

void sum_blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  blocks<false>(x, n, begin, end, sums);
}

void square_blocks(const float* x, int64_t n, int64_t begin, int64_t end, double* sums) {
  blocks<true>(x, n, begin, end, sums);
}

}  // namespace tessera::cpu::TESSERA_ISA
