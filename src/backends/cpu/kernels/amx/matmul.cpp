// Panels of a bf16 product on AMX. A unit of a panel is two tiles of A or B; four tiles of C stay
// in registers over the whole depth.
#include "backends/cpu/kernels/amx/matmul_unit.h"

namespace tessera::cpu::amx {
namespace {

// Panel order: [panel][depth / 32][unit]. The inner loop follows the source's rows.
template <PackUnit along, PackUnit across>
bool pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
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
  return true;
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
  const int64_t lower = 16 * a_line;
  const int64_t fetched = units == 0 ? 0 : (ahead.end - ahead.at + units - 1) / units;
  load_sums(from);
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
  store_sums(to);
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
      if (result) store<kUnit>(last, *result, i * kUnit, j * kUnit);
    }
  }
  if (result && result->streams) _mm_sfence();
}

}  // namespace

constinit const MatmulKernels kMatmulKernels = {
    .rows = kUnit,
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
    .packs_all = true,
    .pack_rows = pack<pack_rows_along, pack_rows_across>,
    .pack_columns = pack<pack_columns_along, pack_columns_across>,
    .multiply = multiply};

}  // namespace tessera::cpu::amx
