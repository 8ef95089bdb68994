#pragma once
// c = a b, or c += a b, of blocks of bf16 or of f32 in three parts, with sums in f32; rows, columns
// and depth are multiples of 32. By matrix tiles where the compiler may use them, else by dot
// products of pairs. Included by kernels/bf16/*.cpp only; the rule for included headers is that of
// isa/simd.h.
#include "backends/cpu/kernels/bf16/attention_operands.h"
#if defined(__AMX_BF16__)
#include "backends/cpu/kernels/amx/tile.h"
#endif

namespace tessera::cpu::TESSERA_ISA {

// An operand: rows `stride` bytes apart. Left: [rows][depth] bf16. Right: [depth / 2][columns]
// words of two bf16, which are consecutive in the order of the left operand's depth. Result:
// [rows][columns] f32.
struct Operand {
  Planes words;
  int64_t stride;
  __attribute__((always_inline)) const char* at(int64_t row, int64_t column_bytes,
                                                int part = 0) const {
    return (const char*)(words.words + part * words.plane) + row * stride + column_bytes;
  }
  __attribute__((always_inline)) Operand from(int64_t row, int64_t column_bytes) const {
    return {words + (row * stride + column_bytes) / 4, stride};
  }
};

#if defined(__AMX_BF16__)

// Must be there while block_product() is called.
using ProductScope = TileScope;

TESSERA_INLINE void load_left(const Operand& a, int64_t row, int64_t depth, int part) {
  tile_load<4>(a.at(row, depth * 2, part), a.stride);
  tile_load<5>(a.at(row + 16, depth * 2, part), a.stride);
}
TESSERA_INLINE void load_right(const Operand& b, int64_t depth, int64_t column, int part) {
  tile_load<6>(b.at(depth / 2, column * 4, part), b.stride);
  tile_load<7>(b.at(depth / 2, column * 4 + 64, part), b.stride);
}
TESSERA_INLINE void multiply_tiles() {
  tile_multiply<0, 4, 6>();
  tile_multiply<1, 4, 7>();
  tile_multiply<2, 5, 6>();
  tile_multiply<3, 5, 7>();
}

// Adds the product of 32 x 32 x 32 numbers to tiles 0 to 3. Of three parts, those six products that
// are not below 2^-23 of the whole, the smallest first: 14 loads for 24 of tiles.
TESSERA_INLINE void multiply_units(const Operand& a, const Operand& b, int64_t i, int64_t j,
                                   int64_t k) {
  if constexpr (kParts == 1) {
    tile_load_passing<4>(a.at(i, k * 2), a.stride);
    tile_load<6>(b.at(k / 2, j * 4), b.stride);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b.at(k / 2, j * 4 + 64), b.stride);
    tile_multiply<1, 4, 7>();
    tile_load_passing<5>(a.at(i + 16, k * 2), a.stride);
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
  } else {
    load_left(a, i, k, 2);
    load_right(b, k, j, 0);
    multiply_tiles();
    load_left(a, i, k, 1);
    multiply_tiles();
    load_right(b, k, j, 1);
    multiply_tiles();
    load_left(a, i, k, 0);
    multiply_tiles();
    load_right(b, k, j, 2);
    multiply_tiles();
    load_right(b, k, j, 0);
    multiply_tiles();
  }
}

// 2 x 2 result tiles in registers.
static inline void block_product(bool add, int64_t rows, int64_t columns, int64_t depth, Operand a,
                                 Operand b, float* c, int64_t c_columns) {
  int64_t c_stride = c_columns * 4;
  for (int64_t i = 0; i < rows; i += 32) {
    for (int64_t j = 0; j < columns; j += 32) {
      char* to = reinterpret_cast<char*>(c + i * c_columns + j);
      char* below = to + 16 * c_stride;
      if (add) {
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
      for (int64_t k = 0; k < depth; k += 32) multiply_units(a, b, i, j, k);
      tile_store<0>(to, c_stride);
      tile_store<1>(to + 64, c_stride);
      tile_store<2>(below, c_stride);
      tile_store<3>(below + 64, c_stride);
    }
  }
}

#else

static_assert(kParts == 1);

struct ProductScope {
  __attribute__((always_inline)) ProductScope() {}
};

// kRows x kVectors results in registers. A word holds two depths.
template <int kRows, int kVectors>
TESSERA_INLINE void product_in_registers(bool add, int64_t words, Operand a, Operand b, float* c,
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

static inline void block_product(bool add, int64_t rows, int64_t columns, int64_t depth, Operand a,
                                 Operand b, float* c, int64_t c_columns) {
  int64_t j = 0;
  for (; j + 64 <= columns; j += 64)
    for (int64_t i = 0; i < rows; i += 4)
      product_in_registers<4, 4>(add, depth / 2, a.from(i, 0), b.from(0, j * 4),
                                 c + i * c_columns + j, c_columns);
  for (; j < columns; j += 32)
    for (int64_t i = 0; i < rows; i += 8)
      product_in_registers<8, 2>(add, depth / 2, a.from(i, 0), b.from(0, j * 4),
                                 c + i * c_columns + j, c_columns);
}

#endif

}  // namespace tessera::cpu::TESSERA_ISA
