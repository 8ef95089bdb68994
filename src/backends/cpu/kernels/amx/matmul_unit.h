#pragma once
// Units of panels of a matrix product on AMX, 32 lines at 32 depths, and what becomes of the sums
// of a panel of A with one of B. Included by amx/matmul*.cpp only; the rule for included headers is
// that of isa/simd.h.
#include "backends/cpu/kernels/amx/tile.h"
#include "backends/cpu/kernels/isa/matmul_result.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::amx {

constexpr int64_t kUnit = 32;
constexpr int64_t kTileBytes = 1024;               // half a unit of bf16
constexpr int64_t kUnitWords = kUnit * kUnit / 2;  // a word is two depths of a line

// Both halves of 32 columns of two rows, interleaved.
TESSERA_INLINE void read_pairs(const Source& x, int64_t row, __m512i& left, __m512i& right) {
  alignas(64) static constexpr uint16_t kFirst[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                      37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                      11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i first = _mm512_load_si512(kFirst);
  __m512i low = read_row(x, row, 0), high = read_row(x, row + 1, 0);
  left = _mm512_permutex2var_epi16(low, first, high);
  right = _mm512_permutex2var_epi16(low, _mm512_add_epi16(first, _mm512_set1_epi16(16)), high);
}

// One unit of A is words [32 lines][16], of B words [2][16][16 lines]. The source's rows are lines
// ("along") or depths ("across").
static inline void pack_rows_along(const Source& x, uint32_t* to) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < 32; ++i) _mm512_store_si512(to + i * 16, read_row(x, i, 0));
}

static inline void pack_rows_across(const Source& x, uint32_t* to) {
  __m512i left[16], right[16];
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) read_pairs(x, 2 * i, left[i], right[i]);
  transpose_words(left);
  transpose_words(right);
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i) {
    _mm512_store_si512(to + i * 16, left[i]);
    _mm512_store_si512(to + (16 + i) * 16, right[i]);
  }
}

static inline void pack_columns_along(const Source& x, uint32_t* to) {
  for (int64_t half = 0; half < 32; half += 16) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) words[i] = read_row(x, half + i, 0);
    transpose_words(words);
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + (half + i) * 16, words[i]);
  }
}

static inline void pack_columns_across(const Source& x, uint32_t* to) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < 16; ++i) {
    __m512i left, right;
    read_pairs(x, 2 * i, left, right);
    _mm512_store_si512(to + i * 16, left);
    _mm512_store_si512(to + (16 + i) * 16, right);
  }
}

// Packs the unit at the source's first row and column.
using PackUnit = void(const Source& x, uint32_t* to);

constexpr int64_t kSumsStride = kUnit * 4, kSumsBelow = 16 * kSumsStride;

// Tiles 0 to 3 become sums[32, 32], or zero where there are none.
TESSERA_INLINE void load_sums(const float* sums) {
  if (sums == nullptr) {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    return;
  }
  const char* from = (const char*)sums;
  tile_load<0>(from, kSumsStride);
  tile_load<1>(from + 64, kSumsStride);
  tile_load<2>(from + kSumsBelow, kSumsStride);
  tile_load<3>(from + kSumsBelow + 64, kSumsStride);
}
TESSERA_INLINE void store_sums(float* sums) {
  char* to = (char*)sums;
  tile_store<0>(to, kSumsStride);
  tile_store<1>(to + 64, kSumsStride);
  tile_store<2>(to + kSumsBelow, kSumsStride);
  tile_store<3>(to + kSumsBelow + 64, kSumsStride);
}

// Whole rows of bf16 in one instruction each; it takes subnormal sums for zero. A bias of the 32
// columns is added first, unless it is null.
template <bool streams>
TESSERA_INLINE void store_rounded(const float* sums, const BF16* bias, BF16* c, int64_t stride) {
  Vec low{}, high{};
  if (bias != nullptr) low = load(bias), high = load(bias + 16);
  for (int64_t i = 0; i < kUnit; ++i, sums += kUnit, c += stride) {
    __m512 first = _mm512_load_ps(sums), second = _mm512_load_ps(sums + 16);
    if (bias != nullptr) first += (__m512)low, second += (__m512)high;
    __m512i row = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    if constexpr (streams) {
      _mm512_stream_si512((__m512i*)c, row);
    } else {
      _mm512_storeu_si512(c, row);
    }
  }
}

// Whole rows of f32, past the caches.
TESSERA_INLINE void stream_sums(const float* sums, float* c, int64_t stride) {
  for (int64_t i = 0; i < kUnit; ++i, sums += kUnit, c += stride) {
    _mm512_stream_ps(c, _mm512_load_ps(sums));
    _mm512_stream_ps(c + 16, _mm512_load_ps(sums + 16));
  }
}

TESSERA_INLINE void store(const float* sums, const MatmulResult& result, int64_t row,
                          int64_t column) {
  const bool whole = row + kUnit <= result.rows && column + kUnit <= result.columns;
  if (result.dtype == DType::kF32 && whole && result.streams && !result.accumulate)
    return stream_sums(sums, (float*)result.c + row * result.stride + column, result.stride);
  if (result.dtype != DType::kBF16 || result.accumulate || !whole)
    return store_result<kUnit, kUnit>(sums, result, row, column);
  const BF16* bias = result.bias == nullptr ? nullptr : (const BF16*)result.bias + column;
  BF16* c = (BF16*)result.c + row * result.stride + column;
  if (result.streams) return store_rounded<true>(sums, bias, c, result.stride);
  store_rounded<false>(sums, bias, c, result.stride);
}

}  // namespace tessera::cpu::amx
