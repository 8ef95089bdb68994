// Panels of a matrix product on AMX. A unit of a panel is 32 lines at 32 depths, two tiles of A or
// B; four tiles of C stay in registers over the whole depth.
#include "backends/cpu/kernels/amx/tile.h"
#include "backends/cpu/kernels/isa/matmul_result.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::amx {
namespace {

constexpr int64_t kUnit = 32;
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
void pack_rows_along(const Source& x, uint32_t* to) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < 32; ++i) _mm512_store_si512(to + i * 16, read_row(x, i, 0));
}

void pack_rows_across(const Source& x, uint32_t* to) {
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

void pack_columns_along(const Source& x, uint32_t* to) {
  for (int64_t half = 0; half < 32; half += 16) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) words[i] = read_row(x, half + i, 0);
    transpose_words(words);
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + (half + i) * 16, words[i]);
  }
}

void pack_columns_across(const Source& x, uint32_t* to) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < 16; ++i) {
    __m512i left, right;
    read_pairs(x, 2 * i, left, right);
    _mm512_store_si512(to + i * 16, left);
    _mm512_store_si512(to + (16 + i) * 16, right);
  }
}

using PackUnit = void(const Source& x, uint32_t* to);

// Panel order: [panel][depth / 32][unit]. The inner loop follows the source's rows.
template <PackUnit along, PackUnit across>
void pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
          void* out) {
  const BF16* data = (const BF16*)x.data;
  uint32_t* to = (uint32_t*)out;
  if (x.depth_is_contiguous) {
    for (int64_t i = 0; i < lines; i += kUnit, to += panel_stride / 2) {
      for (int64_t d = 0; d < depth; d += kUnit)
        along({data + (line + i) * x.stride + d, x.stride, lines - i, depth - d},
              to + d / kUnit * kUnitWords);
    }
  } else {
    for (int64_t d = 0; d < depth; d += kUnit, to += kUnitWords) {
      for (int64_t i = 0; i < lines; i += kUnit)
        across({data + d * x.stride + line + i, x.stride, depth - d, lines - i},
               to + i / kUnit * panel_stride / 2);
    }
  }
}

// Lines [at, end) of a panel of the block that follows, unit after unit. Its rows lie apart, where
// no hardware prefetcher reads ahead.
struct Ahead {
  const char* panel;
  int64_t unit, line, at, end;
};
TESSERA_INLINE void fetch(Ahead& ahead, int64_t lines) {
  int64_t end = ahead.at + lines < ahead.end ? ahead.at + lines : ahead.end;
  for (; ahead.at < end; ++ahead.at) {
    int64_t unit = ahead.at / kUnit, line = ahead.at % kUnit;
    _mm_prefetch(ahead.panel + unit * ahead.unit + line * ahead.line, _MM_HINT_T1);
  }
}

// to[32, 32] = from + A B over `units` of depth; no `from` is zero. A panel of A is 32 rows
// `a_line` bytes apart, its units are `a_unit` apart.
TESSERA_INLINE void multiply_panels(const char* a, int64_t a_unit, int64_t a_line, const char* b,
                                    int64_t units, const float* from, float* to, Ahead& ahead) {
  constexpr int64_t kTileBytes = 1024, kStride = 32 * 4, kBelow = 16 * kStride;
  const int64_t lower = 16 * a_line;
  const int64_t fetched = units == 0 ? 0 : (ahead.end - ahead.at + units - 1) / units;
  if (from) {
    const char* old = (const char*)from;
    tile_load<0>(old, kStride);
    tile_load<1>(old + 64, kStride);
    tile_load<2>(old + kBelow, kStride);
    tile_load<3>(old + kBelow + 64, kStride);
  } else {
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
  }
  for (int64_t u = 0; u < units; ++u, a += a_unit, b += 2 * kTileBytes) {
    tile_load<4>(a, a_line);
    tile_load<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_load<5>(a + lower, a_line);
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
    fetch(ahead, fetched);
  }
  char* sums = (char*)to;
  tile_store<0>(sums, kStride);
  tile_store<1>(sums + 64, kStride);
  tile_store<2>(sums + kBelow, kStride);
  tile_store<3>(sums + kBelow + 64, kStride);
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

void multiply(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels, int64_t column_panels,
              int64_t depth, float* sums, bool first, const MatmulResult* result,
              const MatmulBlock* next_a) {
  TileScope tiles;
  alignas(64) float last[kUnit * kUnit];
  const int64_t units = depth / kUnit, lines = depth;  // of a panel, 64 bytes each
  for (int64_t j = 0; j < column_panels; ++j) {
    for (int64_t i = 0; i < row_panels; ++i) {
      Ahead ahead{};
      if (next_a) {
        ahead = {next_a->data + i * next_a->panel, next_a->unit, next_a->line,
                 lines * j / column_panels, lines * (j + 1) / column_panels};
      }
      float* kept = sums + (j * row_panels + i) * kUnit * kUnit;
      multiply_panels(a.data + i * a.panel, a.unit, a.line, b.data + j * b.panel, units,
                      first ? nullptr : kept, result ? last : kept, ahead);
      if (result) store(last, *result, i * kUnit, j * kUnit);
    }
  }
  if (result && result->streams) _mm_sfence();
}

}  // namespace

MatmulKernels matmul_kernels() {
  return {.rows = kUnit,
          .columns = kUnit,
          .depth_unit = kUnit,
          .element_bytes = 2,
          .spare_depth = 0,
          // A panel of B (16 KiB) and one of A stay in L1; sums (384 KiB) and a block of each (128
          // and 192 KiB) in L2. Of tiles from 128 x 512 to 512 x 256 the fastest for dW and wide
          // heads by 3 to 8 %, within 2 % for forward and dX. Deeper blocks read the sums less
          // often, but A and B leave L1: 5 to 8 % slower.
          .tile_rows = 256,
          .tile_columns = 384,
          .depth_block = 256,
          .reads_rows = true,
          .pack_rows = pack<pack_rows_along, pack_rows_across>,
          .pack_columns = pack<pack_columns_along, pack_columns_across>,
          .multiply = multiply};
}

}  // namespace tessera::cpu::amx
