#pragma once
// Blocks of heads as operands of products of bf16. An operand of a bf16 tensor is one plane of
// words. That of an f32 tensor is three, of the parts whose sum each number is: what
// amx/matmul_f32.cpp does, and says of its errors. Included by kernels/bf16/attention*.cpp only,
// compiled once for each TESSERA_ELEMENT and instruction set; the rule for included headers is that
// of isa/simd.h.
#include "backends/cpu/kernels/bf16/attention_buffers.h"
#include "backends/cpu/kernels/bf16/layouts.h"

namespace tessera::cpu::TESSERA_ISA {

using bf16::Planes;
using Element = TESSERA_ELEMENT;
using Source = SourceOf<Element>;
constexpr int kParts = sizeof(Element) == sizeof(float) ? 3 : 1;

// 16 words of each part.
template <int parts>
struct WordsOf {
  __m512i part[parts];
};
using Words = WordsOf<kParts>;

TESSERA_INLINE void store(const Planes& to, int64_t at, const Words& words) {
#pragma GCC unroll 3
  for (int p = 0; p < kParts; ++p) _mm512_storeu_si512(to.words + p * to.plane + at, words.part[p]);
}

// Each word a number of `low` and one of `high`.
template <int parts>
TESSERA_INLINE WordsOf<parts> split_words(__m512 low, __m512 high) {
  WordsOf<parts> words;
#pragma GCC unroll 3
  for (int p = 0; p < parts; ++p) {
    words.part[p] = pack_words(low, high);
    low -= (__m512)_mm512_slli_epi32(words.part[p], 16);
    high -= (__m512)_mm512_and_si512(words.part[p], _mm512_set1_epi32((int)0xffff0000u));
  }
  return words;
}
// Those of `first` before those of `second`.
template <int parts>
TESSERA_INLINE WordsOf<parts> split_row(__m512 first, __m512 second) {
  if constexpr (parts == 1) {
    return {{(__m512i)_mm512_cvtne2ps_pbh(second, first)}};
  } else {
    alignas(64) static constexpr uint16_t kHighHalves[32] = {
        1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i high_halves = _mm512_load_si512(kHighHalves);
    WordsOf<parts> words;
#pragma GCC unroll 3
    for (int p = 0; p < parts; ++p) {
      const __m512i left = rounded_bits(first), right = rounded_bits(second);
      words.part[p] = _mm512_permutex2var_epi16(left, high_halves, right);
      first -= (__m512)left;
      second -= (__m512)right;
    }
    return words;
  }
}

// 32 elements of a row, and 16 of two rows, interleaved.
TESSERA_INLINE WordsOf<1> row_words(const SourceOf<BF16>& s, int64_t row, int64_t column) {
  return {{read_row(s, row, column)}};
}
TESSERA_INLINE WordsOf<1> pair_words(const SourceOf<BF16>& s, int64_t row, int64_t next,
                                     int64_t column) {
  return {{read_pair(s, row, next, column)}};
}
TESSERA_INLINE __m512 read_floats(const SourceOf<float>& s, int64_t row, int64_t column) {
  return _mm512_maskz_loadu_ps((__mmask16)column_mask(s, row, column),
                               s.data + row * s.stride + column);
}
TESSERA_INLINE WordsOf<3> row_words(const SourceOf<float>& s, int64_t row, int64_t column) {
  return split_row<3>(read_floats(s, row, column), read_floats(s, row, column + 16));
}
TESSERA_INLINE WordsOf<3> pair_words(const SourceOf<float>& s, int64_t row, int64_t next,
                                     int64_t column) {
  return split_words<3>(read_floats(s, row, column), read_floats(s, next, column));
}

// Whether all numbers of the first `rows` rows are the sums of their parts: not those that no bf16
// rounds, 3.39e38 and above, infinities and NaN.
TESSERA_INLINE bool have_parts(const SourceOf<BF16>&, int64_t) { return true; }
static inline bool have_parts(const SourceOf<float>& s, int64_t rows) {
  __mmask16 without = 0;
  for (int64_t r = 0; r < (rows < s.rows ? rows : s.rows); ++r) {
    for (int64_t c = 0; c < s.columns; c += 16) {
      __m512i size = _mm512_slli_epi32((__m512i)read_floats(s, r, c), 1);  // without the sign
      without |= _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32((int)(0x7f7f8000u << 1)));
    }
  }
  return without == 0;
}

// Rows of one head lie whole pages apart, where no hardware prefetcher follows: asked for a block
// ahead, they come several at a time.
TESSERA_INLINE void prefetch_rows(const Source& s, int64_t first, int64_t count) {
  int64_t end = first + count < s.rows ? first + count : s.rows;
  for (int64_t r = first; r < end; ++r)
    for (int64_t c = 0; c < s.columns; c += 64 / (int64_t)sizeof(Element))
      _mm_prefetch((const char*)(s.data + r * s.stride + c), _MM_HINT_T1);
}

// Row i, word j of each part becomes row j, word i; rows are stored `stride` words apart.
TESSERA_INLINE void store_transposed(const Words (&words)[16], Planes to, int64_t at,
                                     int64_t stride) {
#pragma GCC unroll 3
  for (int p = 0; p < kParts; ++p) {
    __m512i part[16];
    for (int i = 0; i < 16; ++i) part[i] = words[i].part[p];
    transpose_words(part);
    for (int i = 0; i < 16; ++i)
      _mm512_storeu_si512(to.words + p * to.plane + at + i * stride, part[i]);
  }
}

// All layouts below hold `rows` rows and `width` columns of the source, multiples of 32, in words
// of two elements.

// Left operand, rows by columns: words [rows][width / 2].
static inline void pack_left(const Source& s, int64_t rows, int64_t width, Planes to) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; c += 32) store(to, (r * width + c) / 2, row_words(s, r, c));
}
// Left operand, columns by rows: the first words of [width][depth / 2].
static inline void pack_left_transposed(const Source& s, int64_t rows, int64_t width, Planes to,
                                        int64_t depth) {
  for (int64_t r = 0; r < rows; r += 32) {
    for (int64_t c = 0; c < width; c += 16) {
      Words words[16];
      for (int i = 0; i < 16; ++i) words[i] = pair_words(s, r + 2 * i, r + 2 * i + 1, c);
      store_transposed(words, to, (c * depth + r) / 2, depth / 2);
    }
  }
}
// Right operand whose depth is the columns: words [width / 2][rows].
static inline void pack_right_transposed(const Source& s, int64_t rows, int64_t width, Planes to) {
  for (int64_t r = 0; r < rows; r += 16) {
    for (int64_t c = 0; c < width; c += 32) {
      Words words[16];
      for (int i = 0; i < 16; ++i) words[i] = row_words(s, r + i, c);
      store_transposed(words, to, c / 2 * rows + r, rows);
    }
  }
}
// Right operand whose depth is the rows: words [rows / 2][width].
static inline void pack_right(const Source& s, int64_t rows, int64_t width, Planes to) {
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t c = 0; c < width; c += 16)
      store(to, r / 2 * width + c, pair_words(s, r, r + 1, c));
}

}  // namespace tessera::cpu::TESSERA_ISA
