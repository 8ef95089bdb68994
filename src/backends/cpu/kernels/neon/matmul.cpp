// Panels of a bf16 product by NEON's BFMMLA, which adds two rows of four depths times four depths
// of two columns to 2 x 2 sums in f32: four times the operations of a f32 multiply-add. It rounds
// sums of products its own way and takes subnormal numbers for zero. A unit is four depths of a
// line, 8 bytes.
#include "backends/cpu/kernels/isa/matmul_result.h"
#include "backends/cpu/kernels/isa/panel_products.h"
#include "backends/cpu/kernels/matmul_packed.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr int kUnit = 4;
// 4 x 4 sums of 2 x 2, and four pairs of both operands: 24 of 32 registers. With six pairs of
// columns the compiler puts some sums on the stack.
constexpr int kRows = 8, kColumns = 8;

TESSERA_INLINE uint16x8_t read_first(const uint16_t* p, int64_t n) {
  uint16_t buffer[8] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return vld1q_u16(buffer);
}
TESSERA_INLINE uint16x8_t read_depths(const uint16_t* p, int64_t n) {
  return n >= 8 ? vld1q_u16(p) : read_first(p, n);
}
// Of four lines, in the lower half.
TESSERA_INLINE uint16x8_t read_lines(const uint16_t* p, int64_t n) {
  return n >= 4 ? vcombine_u16(vld1_u16(p), vdup_n_u16(0)) : read_first(p, n > 0 ? n : 0);
}

// Panel order: [panel][depth / 4][kWidth][4]. Lines whose depth is contiguous: two at a time, eight
// depths of each.
template <int kWidth>
void pack_along(const uint16_t* x, int64_t stride, int64_t lines, int64_t depth,
                int64_t panel_stride, uint16_t* out) {
  for (int64_t i = 0; i < lines; i += kWidth, x += kWidth * stride, out += panel_stride) {
    for (int64_t d = 0; d < depth; d += 2 * kUnit) {
      const int64_t count = depth - d < 2 * kUnit ? depth - d : 2 * kUnit;
      for (int64_t j = 0; j < kWidth; j += 2) {
        const int64_t have = lines - i - j;
        const uint16_t* line = x + j * stride + d;
        const uint64x2_t first = (uint64x2_t)(have > 0 ? read_depths(line, count) : vdupq_n_u16(0));
        const uint64x2_t second =
            (uint64x2_t)(have > 1 ? read_depths(line + stride, count) : vdupq_n_u16(0));
        uint16_t* to = out + d * kWidth + j * kUnit;
        vst1q_u16(to, (uint16x8_t)vzip1q_u64(first, second));
        if (count > kUnit) vst1q_u16(to + kUnit * kWidth, (uint16x8_t)vzip2q_u64(first, second));
      }
    }
  }
}

// Depths whose lines are contiguous, few at a time: neighbouring panels find the rest of their
// cache lines.
template <int kWidth>
void pack_across(const uint16_t* x, int64_t stride, int64_t lines, int64_t depth,
                 int64_t panel_stride, uint16_t* out) {
  constexpr int64_t kDepths = 4 * kUnit;
  for (int64_t begin = 0; begin < depth; begin += kDepths) {
    const int64_t end = begin + kDepths < depth ? begin + kDepths : depth;
    for (int64_t i = 0; i < lines; i += kWidth) {
      for (int64_t d = begin; d < end; d += kUnit) {
        uint16_t* to = out + i / kWidth * panel_stride + d * kWidth;
        for (int64_t j = 0; j < kWidth; j += 4) {
          const uint16_t* from = x + d * stride + i + j;
          uint16x8_t at[kUnit];
#pragma GCC unroll 4
          for (int u = 0; u < kUnit; ++u)
            at[u] = d + u < depth ? read_lines(from + u * stride, lines - i - j) : vdupq_n_u16(0);
          const uint32x4_t low = (uint32x4_t)vzip1q_u16(at[0], at[1]);
          const uint32x4_t high = (uint32x4_t)vzip1q_u16(at[2], at[3]);
          vst1q_u16(to + j * kUnit, (uint16x8_t)vzip1q_u32(low, high));
          vst1q_u16(to + (j + 2) * kUnit, (uint16x8_t)vzip2q_u32(low, high));
        }
      }
    }
  }
}

template <int kWidth>
bool pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
          void* out) {
  static_assert(kWidth % 4 == 0);
  const uint16_t* data = (const uint16_t*)x.data;
  if (x.depth_is_contiguous) {
    pack_along<kWidth>(data + line * x.stride, x.stride, lines, depth, panel_stride,
                       (uint16_t*)out);
  } else {
    pack_across<kWidth>(data + line, x.stride, lines, depth, panel_stride, (uint16_t*)out);
  }
  return true;
}

TESSERA_INLINE bfloat16x8_t read_pair(const char* p) { return vld1q_bf16((const bfloat16_t*)p); }

// to[kRows, kColumns] = from + A B over `units` of depth; no `from` is zero.
TESSERA_INLINE void multiply_panels(const char* a, const char* b, int64_t units, const float* from,
                                    float* to) {
  float32x4_t sums[kRows / 2][kColumns / 2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows / 2; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns / 2; ++c) sums[r][c] = vdupq_n_f32(0);
  }
  for (int64_t u = 0; u < units; ++u, a += kRows * kUnit * 2, b += kColumns * kUnit * 2) {
    bfloat16x8_t rows[kRows / 2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows / 2; ++r) rows[r] = read_pair(a + r * 16);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns / 2; ++c) {
      const bfloat16x8_t columns = read_pair(b + c * 16);
#pragma GCC unroll 4
      for (int r = 0; r < kRows / 2; ++r) sums[r][c] = vbfmmlaq_f32(sums[r][c], rows[r], columns);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows / 2; ++r) {
#pragma GCC unroll 2
    for (int c = 0; c < kColumns / 2; c += 2) {
      const float64x2_t left = (float64x2_t)sums[r][c], right = (float64x2_t)sums[r][c + 1];
      const int64_t upper = 2 * r * kColumns + 2 * c, lower = upper + kColumns;
      Vec first = (Vec)vzip1q_f64(left, right), second = (Vec)vzip2q_f64(left, right);
      store(to + upper, from ? load(from + upper) + first : first);
      store(to + lower, from ? load(from + lower) + second : second);
    }
  }
}

void multiply(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels, int64_t column_panels,
              int64_t depth, float* sums, bool first, const MatmulResult* result) {
  multiply_blocks<kRows, kColumns>(
      a, b, row_panels, column_panels, sums, first, result != nullptr,
      [&](const char* left, const char* right, const float* from, float* to)
          __attribute__((always_inline)) { multiply_panels(left, right, depth / kUnit, from, to); },
      [&](const float* from, int64_t row, int64_t column) __attribute__((always_inline)) {
        store_result<kRows, kColumns>(from, *result, row, column);
      });
}

}  // namespace

// A panel of B (8 x 512, 8 KiB) stays in L1, a block of A (192 KiB) in L2.
constinit const MatmulKernels kMatmulKernels = {.rows = kRows,
                                                .columns = kColumns,
                                                .depth_unit = kUnit,
                                                .element_bytes = 2,
                                                .spare_depth = 0,
                                                .tile_rows = 192,
                                                .tile_columns = 512,
                                                .depth_block = 512,
                                                .packs_all = true,
                                                .pack_rows = pack<kRows>,
                                                .pack_columns = pack<kColumns>,
                                                .multiply = multiply};

}  // namespace tessera::cpu::TESSERA_ISA
