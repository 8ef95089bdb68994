#pragma once
// From f32 sums of 32 columns to C, whole lines in few instructions. Included by
// kernels/bf16/matmul.cpp and kernels/amx/matmul*.cpp only; the rule for included headers is that
// of isa/simd.h.
#include <immintrin.h>

#include "backends/cpu/kernels/isa/matmul_result.h"

namespace tessera::cpu::TESSERA_ISA {

// Whole rows of bf16 in one instruction each; it takes subnormal sums for zero. A bias of the 32
// columns is added first, unless it is null, or what is there where it `adds`.
template <int kRows, bool streams, bool adds>
TESSERA_INLINE void store_rounded(const float* sums, const BF16* bias, BF16* c, int64_t stride) {
  Vec low{}, high{};
  if (bias != nullptr) low = load(bias), high = load(bias + 16);
  for (int64_t i = 0; i < kRows; ++i, sums += 32, c += stride) {
    __m512 first = _mm512_load_ps(sums), second = _mm512_load_ps(sums + 16);
    if (bias != nullptr) first += (__m512)low, second += (__m512)high;
    if (adds) first += (__m512)load(c), second += (__m512)load(c + 16);
    __m512i row = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    if constexpr (streams) {
      _mm512_stream_si512((__m512i*)c, row);
    } else {
      _mm512_storeu_si512(c, row);
    }
  }
}

// Whole rows of f32, past the caches.
template <int kRows>
TESSERA_INLINE void stream_sums(const float* sums, float* c, int64_t stride) {
  for (int64_t i = 0; i < kRows; ++i, sums += 32, c += stride) {
    _mm512_stream_ps(c, _mm512_load_ps(sums));
    _mm512_stream_ps(c + 16, _mm512_load_ps(sums + 16));
  }
}

// C = or += sums[kRows, 32], or = sums + bias, at (row, column), as far as C reaches. `sums` are
// aligned to 64 bytes.
template <int kRows>
TESSERA_INLINE void store(const float* sums, const MatmulResult& result, int64_t row,
                          int64_t column) {
  const bool whole = row + kRows <= result.rows && column + 32 <= result.columns;
  if (result.dtype == DType::kF32 && whole && result.streams && !result.accumulate)
    return stream_sums<kRows>(sums, (float*)result.c + row * result.stride + column, result.stride);
  if (result.dtype != DType::kBF16 || !whole)
    return store_result<kRows, 32>(sums, result, row, column);
  const BF16* bias = result.bias == nullptr ? nullptr : (const BF16*)result.bias + column;
  BF16* c = (BF16*)result.c + row * result.stride + column;
  if (result.accumulate) return store_rounded<kRows, false, true>(sums, bias, c, result.stride);
  if (result.streams) return store_rounded<kRows, true, false>(sums, bias, c, result.stride);
  store_rounded<kRows, false, false>(sums, bias, c, result.stride);
}

}  // namespace tessera::cpu::TESSERA_ISA
