#pragma once
// Units of panels of a matrix product on AMX, 32 lines at 32 depths. Included by files in amx/
// only; the rule for included headers is that of isa/simd.h.
#include "backends/cpu/kernels/amx/tile.h"
#include "backends/cpu/kernels/bf16/layouts.h"
#include "backends/cpu/kernels/bf16/matmul_store.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::amx {

using Source = SourceOf<BF16>;
constexpr int64_t kUnit = 32;
constexpr int64_t kTileBytes = 1024;               // half a unit of bf16
constexpr int64_t kUnitWords = kUnit * kUnit / 2;  // a word is two depths of a line

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

}  // namespace tessera::cpu::amx
