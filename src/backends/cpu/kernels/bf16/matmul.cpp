// Panels of a bf16 product by AVX512-BF16, whose instruction multiplies 16 pairs of numbers and
// adds each pair to a sum in f32: twice the operations of f32 where the processor issues it as
// often as a multiply-add. A word is two depths of a line.
#include "backends/cpu/kernels/bf16/layouts.h"
#include "backends/cpu/kernels/bf16/matmul_store.h"
#include "backends/cpu/kernels/isa/panel_products.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

using Source = SourceOf<BF16>;

// 12 x 2 sums, two columns of B and one broadcast fill the registers.
constexpr int kRows = 12, kVectors = 2, kColumns = kVectors * 16;
// A vector stored at the last word of a panel ends within one spare word of each line.
static_assert(16 <= 2 * kRows);

// Panel order: [panel][depth / 2][kWidth] words. Vectors are stored whole: words past the panel are
// overwritten by its next ones, those of the last lie in the spare depth.
template <int kWidth>
void pack_along(const Source& x, int64_t panel_words, uint32_t* to) {
  for (int64_t i = 0; i < x.rows; i += kWidth, to += panel_words) {
    for (int64_t j = 0; j < kWidth; j += 16) {
      // The panel's own lines only: the others' words would be right too, but read twice.
      const int64_t end = i + kWidth < x.rows ? i + kWidth : x.rows;
      const Source lines{x.data, x.stride, end, x.columns};
      for (int64_t d = 0; d < x.columns; d += 32) {
        __m512i words[16];
#pragma GCC unroll 16
        for (int64_t l = 0; l < 16; ++l) words[l] = read_row(lines, i + j + l, d);
        transpose_words(words);
        const int64_t count = x.columns - d < 32 ? (x.columns - d + 1) / 2 : 16;
        uint32_t* at = to + d / 2 * kWidth + j;
        if (count == 16) {
#pragma GCC unroll 16
          for (int64_t p = 0; p < 16; ++p) _mm512_storeu_si512(at + p * kWidth, words[p]);
        } else {
          for (int64_t p = 0; p < count; ++p) _mm512_storeu_si512(at + p * kWidth, words[p]);
        }
      }
    }
  }
}

// Few depths at a time: neighbouring panels find the rest of their cache lines.
template <int kWidth>
void pack_across(const Source& x, int64_t panel_words, uint32_t* to) {
  constexpr int64_t kDepths = 16;
  for (int64_t begin = 0; begin < x.rows; begin += kDepths) {
    const int64_t end = begin + kDepths < x.rows ? begin + kDepths : x.rows;
    for (int64_t i = 0; i < x.columns; i += kWidth) {
      uint32_t* panel = to + i / kWidth * panel_words;
      const int64_t width = x.columns - i < kWidth ? x.columns - i : kWidth;
      const Source lines{x.data + i, x.stride, x.rows, width};
      for (int64_t d = begin; d < end; d += 2) {
        uint32_t* at = panel + d / 2 * kWidth;
        if constexpr (kWidth == 32) {
          __m512i left, right;
          read_pairs(lines, d, left, right);
          _mm512_storeu_si512(at, left);
          _mm512_storeu_si512(at + 16, right);
        } else {
          _mm512_storeu_si512(at, read_pair(lines, d, d + 1, 0));
        }
      }
    }
  }
}

template <int kWidth>
bool pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
          void* out) {
  const BF16* data = (const BF16*)x.data;
  uint32_t* to = (uint32_t*)out;
  if (x.depth_is_contiguous) {
    pack_along<kWidth>({data + line * x.stride, x.stride, lines, depth}, panel_stride / 2, to);
  } else {
    pack_across<kWidth>({data + line, x.stride, depth, lines}, panel_stride / 2, to);
  }
  return true;
}

// to[kRows, kColumns] = from + A B over `words` of depth; no `from` is zero.
TESSERA_INLINE void multiply_panels(const char* a, const char* b, int64_t words, const float* from,
                                    float* to) {
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  for (int64_t w = 0; w < words; ++w, a += kRows * 4, b += kColumns * 4) {
    __m512i columns[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(b + v * 64);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      int word;
      __builtin_memcpy(&word, a + r * 4, sizeof word);
      const __m512i row = _mm512_set1_epi32(word);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], (__m512bh)row, (__m512bh)columns[v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r, to += kColumns) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      __m512 sum = sums[r][v];
      if (from) sum += _mm512_loadu_ps(from + r * kColumns + v * 16);
      _mm512_storeu_ps(to + v * 16, sum);
    }
  }
}

void multiply(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels, int64_t column_panels,
              int64_t depth, float* sums, bool first, const MatmulResult* result) {
  multiply_blocks<kRows, kColumns>(
      a, b, row_panels, column_panels, sums, first, result != nullptr,
      [&](const char* left, const char* right, const float* from, float* to)
          __attribute__((always_inline)) { multiply_panels(left, right, depth / 2, from, to); },
      [&](const float* from, int64_t row, int64_t column) __attribute__((always_inline)) {
        tessera::cpu::TESSERA_ISA::store<kRows>(from, *result, row, column);
      });
  if (result && result->streams) _mm_sfence();
}

}  // namespace

constinit const MatmulKernels kMatmulKernels = {.rows = kRows,
                                                .columns = kColumns,
                                                .depth_unit = 2,
                                                .element_bytes = 2,
                                                .spare_depth = 2,
                                                .tile_rows = 192,
                                                .tile_columns = 512,
                                                .depth_block = 512,
                                                .packs_all = true,
                                                .pack_rows = pack<kRows>,
                                                .pack_columns = pack<kColumns>,
                                                .multiply = multiply};

}  // namespace tessera::cpu::TESSERA_ISA
