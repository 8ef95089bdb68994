#pragma once
// c = a b, or c += a b, of blocks of bf16 with sums in f32; rows, columns and depth are multiples
// of
// 32. By matrix tiles where the compiler may use them, else by dot products of pairs. Included by
// kernels/bf16/*.cpp only; the rule for included headers is that of isa/simd.h.
#include "backends/cpu/kernels/bf16/layouts.h"
#if defined(__AMX_BF16__)
#include "backends/cpu/kernels/amx/tile.h"
#endif

namespace tessera::cpu::TESSERA_ISA {

// An operand: rows `stride` bytes apart. Left: [rows][depth] bf16. Right: [depth / 2][columns]
// words of two bf16, which are consecutive in the order of the left operand's depth. Result:
// [rows][columns] f32.
struct Operand {
  const void* data;
  int64_t stride;
  __attribute__((always_inline)) const char* at(int64_t row, int64_t column_bytes) const {
    return static_cast<const char*>(data) + row * stride + column_bytes;
  }
};

#if defined(__AMX_BF16__)

// Must be there while block_product() is called.
using ProductScope = TileScope;

// 2 x 2 result tiles in registers, four loads for four products.
template <bool add>
static inline void block_product(int64_t rows, int64_t columns, int64_t depth, Operand a, Operand b,
                                 float* c, int64_t c_columns) {
  int64_t c_stride = c_columns * 4;
  for (int64_t i = 0; i < rows; i += 32) {
    for (int64_t j = 0; j < columns; j += 32) {
      char* to = reinterpret_cast<char*>(c + i * c_columns + j);
      char* below = to + 16 * c_stride;
      if constexpr (add) {
        tile_load<0>(to, c_stride);
        tile_load<1>(to + 64, c_stride);
        tile_load<2>(below, c_stride);
        tile_load<3>(below + 64, c_stride);
      } else {
        tile_zero<0>();
        tile_zero<1>();
        tile_zero<2>();
        tile_zero<3>();
      }
      for (int64_t k = 0; k < depth; k += 32) {
        const char* right = b.at(k / 2, j * 4);
        tile_load<4>(a.at(i, k * 2), a.stride);
        tile_load<6>(right, b.stride);
        tile_multiply<0, 4, 6>();
        tile_load<7>(right + 64, b.stride);
        tile_multiply<1, 4, 7>();
        tile_load<5>(a.at(i + 16, k * 2), a.stride);
        tile_multiply<2, 5, 6>();
        tile_multiply<3, 5, 7>();
      }
      tile_store<0>(to, c_stride);
      tile_store<1>(to + 64, c_stride);
      tile_store<2>(below, c_stride);
      tile_store<3>(below + 64, c_stride);
    }
  }
}

#else

struct ProductScope {
  __attribute__((always_inline)) ProductScope() {}
};

// kRows x kVectors results in registers. A word holds two depths.
template <bool add, int kRows, int kVectors>
TESSERA_INLINE void product_in_registers(int64_t words, Operand a, Operand b, float* c,
                                         int64_t c_columns) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = add ? _mm512_loadu_ps(c + r * c_columns + v * 16) : _mm512_setzero_ps();
  }
  int64_t k = 0;
  do {  // words > 0; knowing that, the compiler keeps all sums in registers
    __m512i right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = _mm512_loadu_si512(b.at(k, v * 64));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int word;
      __builtin_memcpy(&word, a.at(r, k * 4), sizeof word);
      __m512i left = _mm512_set1_epi32(word);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)left, (__m512bh)right[v]);
    }
  } while (++k < words);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + r * c_columns + v * 16, sums[r][v]);
  }
}

template <bool add>
static inline void block_product(int64_t rows, int64_t columns, int64_t depth, Operand a, Operand b,
                                 float* c, int64_t c_columns) {
  int64_t j = 0;
  for (; j + 64 <= columns; j += 64)
    for (int64_t i = 0; i < rows; i += 4)
      product_in_registers<add, 4, 4>(depth / 2, {a.at(i, 0), a.stride}, {b.at(0, j * 4), b.stride},
                                      c + i * c_columns + j, c_columns);
  for (; j < columns; j += 32)
    for (int64_t i = 0; i < rows; i += 8)
      product_in_registers<add, 8, 2>(depth / 2, {a.at(i, 0), a.stride}, {b.at(0, j * 4), b.stride},
                                      c + i * c_columns + j, c_columns);
}

#endif

}  // namespace tessera::cpu::TESSERA_ISA
