#pragma once
// Numbers of bf16 in words of two, as products take their operands: by AVX512-BF16's dot products
// or by matrix tiles. Included by kernels/bf16/*.cpp and kernels/amx/*.cpp only, compiled with the
// AVX-512 flags. The rule for included headers is that of isa/simd.h.
#include <immintrin.h>

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {

// f32 whose low halves are zero: a rounded bf16 each. Halves are rounded away from zero, which is
// right within the same half unit in the last place.
TESSERA_INLINE __m512i rounded_bits(__m512 x) {
  __m512i nearest = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  return _mm512_and_si512(nearest, _mm512_set1_epi32((int)0xffff0000u));
}
// Two rounded bf16 in each word, `low` first: fewer cycles than the one instruction that rounds
// both and a permutation.
TESSERA_INLINE __m512i pack_words(__m512 low, __m512 high) {
  __m512i half = _mm512_set1_epi32(0x8000);
  __m512i first = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
  return _mm512_or_si512(first, rounded_bits(high));
}

// Row i, word j becomes row j, word i.
TESSERA_INLINE void transpose_words(__m512i (&row)[16]) {
  __m512i other[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    other[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    other[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  // Word 4l + m of four consecutive rows, for l = 0..3, becomes lane l of row[4g + m].
#pragma GCC unroll 4
  for (int g = 0; g < 16; g += 4) {
    row[g] = _mm512_unpacklo_epi64(other[g], other[g + 2]);
    row[g + 1] = _mm512_unpackhi_epi64(other[g], other[g + 2]);
    row[g + 2] = _mm512_unpacklo_epi64(other[g + 1], other[g + 3]);
    row[g + 3] = _mm512_unpackhi_epi64(other[g + 1], other[g + 3]);
  }
  // What remains is a 4 x 4 transpose of lanes, once for each m.
#pragma GCC unroll 4
  for (int m = 0; m < 4; ++m) {
    __m512i even01 = _mm512_shuffle_i32x4(row[m], row[m + 4], 0x88);
    __m512i odd01 = _mm512_shuffle_i32x4(row[m], row[m + 4], 0xdd);
    __m512i even23 = _mm512_shuffle_i32x4(row[m + 8], row[m + 12], 0x88);
    __m512i odd23 = _mm512_shuffle_i32x4(row[m + 8], row[m + 12], 0xdd);
    other[m] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    other[m + 8] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    other[m + 4] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    other[m + 12] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) row[i] = other[i];
}

// The 16 numbers in half of a row of bf16.
TESSERA_INLINE __m512 widen_half(__m512i row, int half) {
  __m256i numbers = half == 0 ? _mm512_castsi512_si256(row) : _mm512_extracti64x4_epi64(row, 1);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(numbers), 16));
}

// A rectangle of a tensor, read as zero outside.
template <class T>
struct SourceOf {
  const T* data;
  int64_t stride, rows, columns;
};
template <class T>
TESSERA_INLINE uint32_t column_mask(const SourceOf<T>& s, int64_t row, int64_t column) {
  int64_t n = row < s.rows ? s.columns - column : 0;
  return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1;
}
// 32 elements of a row.
TESSERA_INLINE __m512i read_row(const SourceOf<BF16>& s, int64_t row, int64_t column) {
  return _mm512_maskz_loadu_epi16(column_mask(s, row, column), s.data + row * s.stride + column);
}
// Two rows of 32 numbers, number by number: the first halves of both, and the second.
TESSERA_INLINE void interleave(__m512i low, __m512i high, __m512i& left, __m512i& right) {
  alignas(64) static constexpr uint16_t kFirst[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                      37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                      11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kFirst);
  left = _mm512_permutex2var_epi16(low, first, high);
  right = _mm512_permutex2var_epi16(low, _mm512_add_epi16(first, _mm512_set1_epi16(16)), high);
}
// Both halves of 32 columns of two rows, interleaved.
TESSERA_INLINE void read_pairs(const SourceOf<BF16>& x, int64_t row, __m512i& left,
                               __m512i& right) {
  interleave(read_row(x, row, 0), read_row(x, row + 1, 0), left, right);
}

// 16 elements of two rows, interleaved.
TESSERA_INLINE __m512i read_pair(const SourceOf<BF16>& s, int64_t row, int64_t next,
                                 int64_t column) {
  __m256i low = _mm256_maskz_loadu_epi16((__mmask16)column_mask(s, row, column),
                                         s.data + row * s.stride + column);
  __m256i high = _mm256_maskz_loadu_epi16((__mmask16)column_mask(s, next, column),
                                          s.data + next * s.stride + column);
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

}  // namespace tessera::cpu::TESSERA_ISA
