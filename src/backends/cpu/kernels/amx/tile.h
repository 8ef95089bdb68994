#pragma once
// AMX tile products of bf16 and the layouts of their operands. Included by kernels/amx/*.cpp only,
// compiled with the AVX-512 flags and TESSERA_ISA=amx. The rule for included headers is that of
// isa/simd.h.
//
// Instructions are written as assembly with a memory clobber: g++ 12's intrinsics for ldtilecfg and
// tileloadd do not say that they read memory, and the compiler drops or moves the stores before
// them.
#include <immintrin.h>

#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::amx {

// For its lifetime, all 8 tile registers of this thread are 16 rows of 64 bytes.
class TileScope {
 public:
  __attribute__((always_inline)) TileScope() {
    Config config;
    for (int tile = 0; tile < 8; ++tile) config.row_bytes[tile] = 64, config.rows[tile] = 16;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  __attribute__((always_inline)) ~TileScope() { asm volatile("tilerelease"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  };
};

template <int tile>
TESSERA_INLINE void tile_load(const char* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void tile_store(char* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
TESSERA_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
template <int sum, int left, int right>
TESSERA_INLINE void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
}

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

// c = a b, or c += a b. rows, columns and depth are multiples of 32: 2 x 2 result tiles in
// registers, four loads for four products.
template <bool add>
static inline void tile_product(int64_t rows, int64_t columns, int64_t depth, Operand a, Operand b,
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

// Two rounded bf16 in each word, `low` first. Halves are rounded away from zero, which saves two
// instructions and is right within the same half unit in the last place.
TESSERA_INLINE __m512i pack_words(__m512 low, __m512 high) {
  __m512i half = _mm512_set1_epi32(0x8000);
  __m512i first = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(low), half), 16);
  __m512i second = _mm512_add_epi32(_mm512_castps_si512(high), half);
  return _mm512_or_si512(first, _mm512_and_si512(second, _mm512_set1_epi32((int)0xffff0000u)));
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

// A rectangle of a tensor, read as zero outside.
struct Source {
  const BF16* data;
  int64_t stride, rows, columns;
};
TESSERA_INLINE uint32_t column_mask(const Source& s, int64_t row, int64_t column) {
  int64_t n = row < s.rows ? s.columns - column : 0;
  return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1;
}
// 32 elements of a row.
TESSERA_INLINE __m512i read_row(const Source& s, int64_t row, int64_t column) {
  return _mm512_maskz_loadu_epi16(column_mask(s, row, column), s.data + row * s.stride + column);
}
// 16 elements of two rows, interleaved.
TESSERA_INLINE __m512i read_pair(const Source& s, int64_t row, int64_t next, int64_t column) {
  __m256i low = _mm256_maskz_loadu_epi16((__mmask16)column_mask(s, row, column),
                                         s.data + row * s.stride + column);
  __m256i high = _mm256_maskz_loadu_epi16((__mmask16)column_mask(s, next, column),
                                          s.data + next * s.stride + column);
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                         _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

// Rows of one head lie whole pages apart, where no hardware prefetcher follows: asked for a block
// ahead, they come several at a time.
TESSERA_INLINE void prefetch_rows(const Source& s, int64_t first, int64_t count) {
  int64_t end = first + count < s.rows ? first + count : s.rows;
  for (int64_t r = first; r < end; ++r)
    for (int64_t c = 0; c < s.columns; c += 32)
      _mm_prefetch((const char*)(s.data + r * s.stride + c), _MM_HINT_T1);
}

// All layouts below hold `rows` rows and `width` columns of the source, multiples of 32, in words
// of two elements.

// Left operand, rows by columns: words [rows][width / 2].
static inline void pack_left(const Source& s, int64_t rows, int64_t width, uint32_t* to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; c += 32)
      _mm512_storeu_si512(to + (r * width + c) / 2, read_row(s, r, c));
}
// Left operand, columns by rows: words [width][rows / 2].
static inline void pack_left_transposed(const Source& s, int64_t rows, int64_t width,
                                        uint32_t* to) {
  for (int64_t r = 0; r < rows; r += 32) {
    for (int64_t c = 0; c < width; c += 16) {
      __m512i words[16];
      for (int i = 0; i < 16; ++i) words[i] = read_pair(s, r + 2 * i, r + 2 * i + 1, c);
      transpose_words(words);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + ((c + i) * rows + r) / 2, words[i]);
    }
  }
}
// Right operand whose depth is the columns: words [width / 2][rows].
static inline void pack_right_transposed(const Source& s, int64_t rows, int64_t width,
                                         uint32_t* to) {
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < width; c += 32) {
      __m512i words[16];
      for (int i = 0; i < 16; ++i) words[i] = read_row(s, r + i, c);
      transpose_words(words);
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + (c / 2 + i) * rows + r, words[i]);
    }
  }
}
// Right operand whose depth is the rows, in the order 0, 16, 1, 17 ... 15, 31 of each 32: that of
// pack_words(rows 0..15, rows 16..31). Words [rows / 2][width].
static inline void pack_right_halves(const Source& s, int64_t rows, int64_t width, uint32_t* to) {
  for (int64_t r = 0; r < rows; r += 32)
    for (int64_t i = 0; i < 16; ++i)
      for (int64_t c = 0; c < width; c += 16)
        _mm512_storeu_si512(to + (r / 2 + i) * width + c, read_pair(s, r + i, r + i + 16, c));
}

}  // namespace tessera::cpu::amx
