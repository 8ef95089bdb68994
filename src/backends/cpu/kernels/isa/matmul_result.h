#pragma once
// From f32 sums in registers' order to C. Included by isa/matmul_*.cpp only.
#include "backends/cpu/kernels/isa/simd.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::TESSERA_ISA {

template <int kRows, int kColumns, class T>
TESSERA_INLINE void store_result_as(const float* sums, const MatmulResult& result, int64_t row,
                                    int64_t column) {
  const int64_t rows = result.rows - row < kRows ? result.rows - row : kRows;
  const int64_t columns = result.columns - column < kColumns ? result.columns - column : kColumns;
  T* c = (T*)result.c + row * result.stride + column;
  const T* bias = result.bias == nullptr ? nullptr : (const T*)result.bias + column;
  for (int64_t i = 0; i < rows; ++i, sums += kColumns, c += result.stride) {
    int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      Vec sum = load(sums + j);
      if (result.accumulate) sum += load(c + j);
      if (bias != nullptr) sum += load(bias + j);
      store(c + j, sum);
    }
    if (j == columns) continue;
    Vec sum = load_first(sums + j, columns - j);
    if (result.accumulate) sum += load_first(c + j, columns - j);
    if (bias != nullptr) sum += load_first(bias + j, columns - j);
    store_first(c + j, sum, columns - j);
  }
}

// C = or += sums[kRows, kColumns], or = sums + bias, at (row, column), as far as C reaches.
template <int kRows, int kColumns>
TESSERA_INLINE void store_result(const float* sums, const MatmulResult& result, int64_t row,
                                 int64_t column) {
  if (result.dtype == DType::kBF16) {
    store_result_as<kRows, kColumns, BF16>(sums, result, row, column);
  } else {
    store_result_as<kRows, kColumns, float>(sums, result, row, column);
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
