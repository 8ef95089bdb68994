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

// to[32, 32] = from + A B over `units` of depth; no `from` is zero.
TESSERA_INLINE void multiply_panels(const char* a, const char* b, int64_t units, const float* from,
                                    float* to) {
  constexpr int64_t kTileBytes = 1024, kStride = 32 * 4, kBelow = 16 * kStride;
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
  for (int64_t u = 0; u < units; ++u, a += 2 * kTileBytes, b += 2 * kTileBytes) {
    tile_load<4>(a, 64);
    tile_load<6>(b, 64);
    tile_multiply<0, 4, 6>();
    tile_load<7>(b + kTileBytes, 64);
    tile_multiply<1, 4, 7>();
    tile_load<5>(a + kTileBytes, 64);
    tile_multiply<2, 5, 6>();
    tile_multiply<3, 5, 7>();
  }
  char* sums = (char*)to;
  tile_store<0>(sums, kStride);
  tile_store<1>(sums + 64, kStride);
  tile_store<2>(sums + kBelow, kStride);
  tile_store<3>(sums + kBelow + 64, kStride);
}

// Whole rows of bf16 in one instruction each; it takes subnormal sums for zero. A bias of the 32
// columns is added first, unless it is null.
TESSERA_INLINE void store_rounded(const float* sums, const BF16* bias, BF16* c, int64_t stride) {
  Vec low{}, high{};
  if (bias != nullptr) low = load(bias), high = load(bias + 16);
  for (int64_t i = 0; i < kUnit; ++i, sums += kUnit, c += stride) {
    __m512 first = _mm512_load_ps(sums), second = _mm512_load_ps(sums + 16);
    if (bias != nullptr) first += (__m512)low, second += (__m512)high;
    _mm512_storeu_si512(c, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
}

void multiply(const void* a, const void* b, int64_t panel_depth, int64_t row_panels,
              int64_t column_panels, int64_t depth, float* sums, bool first,
              const MatmulResult* result) {
  TileScope tiles;
  alignas(64) float last[kUnit * kUnit];
  const int64_t panel_bytes = panel_depth * kUnit * 2;
  for (int64_t j = 0; j < column_panels; ++j) {
    for (int64_t i = 0; i < row_panels; ++i) {
      float* kept = sums + (j * row_panels + i) * kUnit * kUnit;
      multiply_panels((const char*)a + i * panel_bytes, (const char*)b + j * panel_bytes,
                      depth / kUnit, first ? nullptr : kept, result ? last : kept);
      if (!result) continue;
      const int64_t row = i * kUnit, column = j * kUnit;
      if (result->dtype == DType::kBF16 && !result->accumulate && row + kUnit <= result->rows &&
          column + kUnit <= result->columns) {
        const BF16* bias = (const BF16*)result->bias;
        store_rounded(last, bias == nullptr ? nullptr : bias + column,
                      (BF16*)result->c + row * result->stride + column, result->stride);
      } else {
        store_result<kUnit, kUnit>(last, *result, row, column);
      }
    }
  }
}

}  // namespace

MatmulKernels matmul_kernels() {
  return {.rows = kUnit,
          .columns = kUnit,
          .depth_unit = kUnit,
          .element_bytes = 2,
          .spare_depth = 0,
          // A panel of B (16 KiB) and one of A stay in L1, a block of each (64 and 256 KiB) in L2.
          // Fastest of 128 or 256 rows, 256 or 512 columns, 256, 384 or 512 depths: geometric mean
          // over forward, dX and dW of seven layer shapes, up to 10 % apart.
          .tile_rows = 128,
          .tile_columns = 512,
          .depth_block = 256,
          .pack_rows = pack<pack_rows_along, pack_rows_across>,
          .pack_columns = pack<pack_columns_along, pack_columns_across>,
          .multiply = multiply};
}

}  // namespace tessera::cpu::amx
