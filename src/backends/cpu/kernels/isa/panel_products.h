#pragma once
// A product of two blocks of packed panels, pair by pair. Included by isa/, bf16/ and
// neon/matmul*.cpp only; the rule for included headers is that of isa/simd.h.
#include "backends/cpu/kernels/isa/simd.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::TESSERA_ISA {

// What MatmulKernels::multiply is to do, by multiply(a, b, from, to): to[kRows, kColumns] = from +
// A B of a pair of panels, no `from` is zero; and store(sums, row, column), which brings such sums,
// aligned to 64 bytes, to the result.
template <int kRows, int kColumns, class Multiply, class Store>
TESSERA_INLINE void multiply_blocks(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels,
                                    int64_t column_panels, float* sums, bool first, bool has_result,
                                    Multiply multiply, Store store) {
  alignas(64) float last[kRows * kColumns];
  for (int64_t j = 0; j < column_panels; ++j) {
    for (int64_t i = 0; i < row_panels; ++i) {
      float* kept = sums + (j * row_panels + i) * kRows * kColumns;
      multiply(a.data + i * a.panel, b.data + j * b.panel, first ? nullptr : kept,
               has_result ? last : kept);
      if (has_result) store(last, i * kRows, j * kColumns);
    }
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
