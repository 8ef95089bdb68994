// Panels of an f32 product on AMX, by products of bf16: a number is the sum of three bf16,
//
//   x = x0 + x1 + x2,   |x1| <= 2^-8 |x|,   |x2| <= 2^-16 |x|,
//
// without a rest, and of the nine products of parts the three below 2^-23 |x y| are left out
// (Henry, Tang, Heinecke 2019, arXiv 1904.06376). Results are as exact as those of f32 arithmetic,
// in 0.6 of the time: a core's tiles multiply bf16 twelve times as fast as its vectors multiply
// f32. Of numbers below 2^-109 the low bits are lost.
//
// Infinities and numbers beyond bf16's largest, 3.39e38, have no such parts: packing says so, and
// vectors multiply what was to be packed.
#include "backends/cpu/kernels/amx/matmul_unit.h"

namespace tessera::cpu::amx {
namespace {

constexpr int kParts = 3;
constexpr int64_t kPartBytes = 2 * kTileBytes;  // a unit holds x0, then x1, then x2
constexpr int64_t kUnitBytes = kParts * kPartBytes;

struct Floats {
  const float* data;
  int64_t stride, rows, columns;  // read as zero outside
};

// The three parts of 32 x 32 numbers, a unit of rows of A whose depth is contiguous. The next 32
// columns are asked for ahead: the rows lie too far apart for a hardware prefetcher (products 0.96
// to 0.98). False where a number is not the sum of its parts.
bool split(const Floats& x, uint32_t* parts) {
  __mmask16 without_parts = 0;
  const auto mask = x.columns >= kUnit ? 0xffffffffu : (1u << x.columns) - 1;
  for (int64_t i = 0; i < kUnit; ++i) {
    const float* row = x.data + i * x.stride;
    _mm_prefetch((const char*)(row + kUnit), _MM_HINT_T1);
    _mm_prefetch((const char*)(row + kUnit + 16), _MM_HINT_T1);
    const uint32_t here = i < x.rows ? mask : 0;
    __m512 first = _mm512_maskz_loadu_ps((__mmask16)here, row);
    __m512 second = _mm512_maskz_loadu_ps((__mmask16)(here >> 16), row + 16);
    for (int part = 0; part < kParts; ++part) {
      __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(second, first);
      _mm512_store_si512(parts + part * kUnitWords + i * 16, rounded);
      first -= widen_half(rounded, 0);
      second -= widen_half(rounded, 1);
    }
    // An infinite part leaves an infinite rest, of which the next one leaves NaN.
    without_parts |= _mm512_cmp_ps_mask(first, second, _CMP_UNORD_Q);
  }
  return without_parts == 0;
}

// The same, each part packed as a unit of bf16.
template <PackUnit pack_part>
bool split_and_pack(const Floats& x, uint32_t* to) {
  alignas(64) uint32_t parts[kParts * kUnitWords];
  const bool have_parts = split(x, parts);
  for (int part = 0; part < kParts; ++part) {
    const BF16* numbers = (const BF16*)(parts + part * kUnitWords);
    pack_part({numbers, kUnit, kUnit, kUnit}, to + part * kUnitWords);
  }
  return have_parts;
}

using SplitUnit = bool(const Floats& x, uint32_t* to);

// Panel order: [panel][depth / 32][part][unit]. The inner loop follows the source's rows.
template <SplitUnit along, SplitUnit across>
bool pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
          void* out) {
  bool have_parts = true;
  const float* data = (const float*)x.data;
  auto unit_at = [&](int64_t i, int64_t d) {
    const int64_t panel_bytes = panel_stride * (kUnitBytes / (kUnit * kUnit));
    return (uint32_t*)((char*)out + i / kUnit * panel_bytes + d / kUnit * kUnitBytes);
  };
  if (x.depth_is_contiguous) {
    for (int64_t i = 0; i < lines; i += kUnit)
      for (int64_t d = 0; d < depth; d += kUnit)
        have_parts &= along({data + (line + i) * x.stride + d, x.stride, lines - i, depth - d},
                            unit_at(i, d));
  } else {
    for (int64_t d = 0; d < depth; d += kUnit)
      for (int64_t i = 0; i < lines; i += kUnit)
        have_parts &=
            across({data + d * x.stride + line + i, x.stride, depth - d, lines - i}, unit_at(i, d));
  }
  return have_parts;
}

TESSERA_INLINE void load_rows(const char* a, int part) {
  tile_load<4>(a + part * kPartBytes, 64);
  tile_load<5>(a + part * kPartBytes + kTileBytes, 64);
}
TESSERA_INLINE void load_columns(const char* b, int part) {
  tile_load<6>(b + part * kPartBytes, 64);
  tile_load<7>(b + part * kPartBytes + kTileBytes, 64);
}
TESSERA_INLINE void multiply_parts() {
  tile_multiply<0, 4, 6>();
  tile_multiply<1, 4, 7>();
  tile_multiply<2, 5, 6>();
  tile_multiply<3, 5, 7>();
}

// to[32, 32] = from + A B over `units` of depth; no `from` is zero. From one pair of parts to the
// next, two tiles stay: 14 loads for 24 products.
TESSERA_INLINE void multiply_panels(const char* a, const char* b, int64_t units, const float* from,
                                    float* to) {
  load_sums(from);
  for (int64_t u = 0; u < units; ++u, a += kUnitBytes, b += kUnitBytes) {
    load_rows(a, 2);
    load_columns(b, 0);
    multiply_parts();
    load_rows(a, 1);
    multiply_parts();
    load_columns(b, 1);
    multiply_parts();
    load_rows(a, 0);
    multiply_parts();
    load_columns(b, 2);
    multiply_parts();
    load_columns(b, 0);
    multiply_parts();
  }
  store_sums(to);
}

void multiply(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels, int64_t column_panels,
              int64_t depth, float* sums, bool first, const MatmulResult* result) {
  TileScope tiles;
  alignas(64) float last[kUnit * kUnit];
  for (int64_t j = 0; j < column_panels; ++j) {
    for (int64_t i = 0; i < row_panels; ++i) {
      float* kept = sums + (j * row_panels + i) * kUnit * kUnit;
      multiply_panels(a.data + i * a.panel, b.data + j * b.panel, depth / kUnit,
                      first ? nullptr : kept, result ? last : kept);
      if (result) store<kUnit>(last, *result, i * kUnit, j * kUnit);
    }
  }
  if (result && result->streams) _mm_sfence();
}

}  // namespace

constinit const MatmulKernels kF32MatmulKernels = {
    .rows = kUnit,
    .columns = kUnit,
    .depth_unit = kUnit,
    .element_bytes = kUnitBytes / (kUnit * kUnit),
    .spare_depth = 0,
    // A panel of A and one of B (18 KiB each) stay in L1; sums (384 KiB) and a block of each
    // (144 and 216 KiB) in L2. Depth blocks of 64 to 256 differ by 5 %, smaller or narrower
    // tiles are 5 to 15 % slower.
    .tile_rows = 256,
    .tile_columns = 384,
    .depth_block = 96,
    .packs_all = false,
    .pack_rows = pack<split, split_and_pack<pack_rows_across>>,
    .pack_columns = pack<split_and_pack<pack_columns_along>, split_and_pack<pack_columns_across>>,
    .multiply = multiply};

}  // namespace tessera::cpu::amx
