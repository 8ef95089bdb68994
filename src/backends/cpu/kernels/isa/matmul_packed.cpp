#include "backends/cpu/kernels/matmul_packed.h"

#include "backends/cpu/kernels/isa/matmul_result.h"
#include "backends/cpu/kernels/isa/panel_products.h"
#include "backends/cpu/kernels/isa/simd.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// kRows x 2 accumulators, two columns of B and one broadcast fill the registers: 32 with AVX-512,
// otherwise 16; on AArch64 32 hold a broadcast of each row.
#if defined(__AVX512F__)
constexpr int kRows = 12;
#elif defined(__aarch64__)
constexpr int kRows = 8;
#elif defined(__AVX2__)
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif
constexpr int kColumns = 2 * kLanes;
// A vector stored at the last depth of a panel ends within one spare depth.
static_assert(kLanes <= 2 * kRows);

// Lane 2i of the result is a's lane i, lane 2i + 1 is b's lane i, of their lower or upper halves.
TESSERA_INLINE Vec interleave_lower(Vec a, Vec b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
TESSERA_INLINE Vec interleave_upper(Vec a, Vec b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Transposes a square of vectors: log2(kLanes) rounds, each interleaving line i with line i + half.
TESSERA_INLINE void transpose(Vec (&v)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = interleave_lower(v[i], v[i + kLanes / 2]);
      next[2 * i + 1] = interleave_upper(v[i], v[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = next[i];
  }
}

template <class T>
TESSERA_INLINE Vec load_some(const T* p, int64_t n) {
  return n >= kLanes ? load(p) : load_first(p, n);
}

// One group of at most kLanes lines whose depth is contiguous. Vectors are stored whole: lanes past
// the panel are overwritten by its next depth, those of the last lie in the spare depth.
template <class T, int kWidth>
void pack_transposed(const T* x, int64_t stride, int64_t lines, int64_t depth, float* out) {
  for (int64_t p = 0; p < depth; p += kLanes) {
    int64_t count = depth - p < kLanes ? depth - p : kLanes;
    Vec v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      v[i] = i < lines ? load_some(x + i * stride + p, count) : Vec{};
    transpose(v);
    float* to = out + p * kWidth;
    if (count == kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(to + i * kWidth, v[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) store(to + i * kWidth, v[i]);
    }
  }
}

// Some depths of one panel whose lines are contiguous. Vectors are stored whole, as above; `lines`
// counts all that follow, so that a vector may be read whole too.
template <class T, int kWidth>
TESSERA_INLINE void pack_straight(const T* x, int64_t stride, int64_t lines, int64_t depth,
                                  float* out) {
  constexpr int kVectors = (kWidth + kLanes - 1) / kLanes;
  for (int64_t p = 0; p < depth; ++p, x += stride, out += kWidth) {
    if (lines >= kVectors * kLanes) {
      for (int v = 0; v < kVectors; ++v) store(out + v * kLanes, load(x + v * kLanes));
    } else {
      for (int j = 0; j < kWidth; ++j) out[j] = j < lines ? (float)x[j] : 0.0f;
    }
  }
}

template <class T, int kWidth>
void pack_panels(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth,
                 int64_t panel_stride, float* out) {
  const T* data = (const T*)x.data + line * (x.depth_is_contiguous ? x.stride : 1);
  if (x.depth_is_contiguous) {
    for (int64_t i = 0; i < lines; i += kWidth, out += panel_stride) {
      for (int j = 0; j < kWidth; j += kLanes) {
        int64_t width = kWidth - j < kLanes ? kWidth - j : kLanes;
        int64_t have = lines - i - j < width ? lines - i - j : width;
        pack_transposed<T, kWidth>(data + (i + j) * x.stride, x.stride, have, depth, out + j);
      }
    }
    return;
  }
  // Few depths at a time: neighbouring panels find the rest of their cache lines, even where the
  // stride is a power of two and all rows fall into one set of L1.
  constexpr int64_t kDepths = 8;
  for (int64_t p = 0; p < depth; p += kDepths) {
    int64_t count = depth - p < kDepths ? depth - p : kDepths;
    for (int64_t i = 0; i < lines; i += kWidth)
      pack_straight<T, kWidth>(data + p * x.stride + i, x.stride, lines - i, count,
                               out + i / kWidth * panel_stride + p * kWidth);
  }
}

// Panel order: [panel][depth][kWidth] f32.
template <int kWidth>
bool pack(const MatmulOperand& x, int64_t line, int64_t lines, int64_t depth, int64_t panel_stride,
          void* out) {
  if (x.dtype == DType::kBF16) {
    pack_panels<BF16, kWidth>(x, line, lines, depth, panel_stride, (float*)out);
  } else {
    pack_panels<float, kWidth>(x, line, lines, depth, panel_stride, (float*)out);
  }
  return true;
}

// to[kRows, kColumns] = from + a[depth, kRows]^T b[depth, kColumns]; no `from` is zero.
TESSERA_INLINE void multiply_panels(const float* a, const float* b, int64_t depth,
                                    const float* from, float* to) {
  Vec left[kRows], right[kRows];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) left[i] = right[i] = Vec{};
  for (int64_t p = 0; p < depth; ++p, a += kRows, b += kColumns) {
    Vec b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      Vec x = a[i] - Vec{};  // a bare broadcast: + 0 would cost an addition, since -0 + 0 is 0
      left[i] += x * b0;
      right[i] += x * b1;
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i, to += kColumns) {
    store(to, from ? load(from + i * kColumns) + left[i] : left[i]);
    store(to + kLanes, from ? load(from + i * kColumns + kLanes) + right[i] : right[i]);
  }
}

void multiply(const MatmulBlock& a, const MatmulBlock& b, int64_t row_panels, int64_t column_panels,
              int64_t depth, float* sums, bool first, const MatmulResult* result) {
  multiply_blocks<kRows, kColumns>(
      a, b, row_panels, column_panels, sums, first, result != nullptr,
      [&](const char* left, const char* right, const float* from, float* to)
          __attribute__((always_inline)) {
            multiply_panels((const float*)left, (const float*)right, depth, from, to);
          },
      [&](const float* from, int64_t row, int64_t column) __attribute__((always_inline)) {
        store_result<kRows, kColumns>(from, *result, row, column);
      });
}

}  // namespace

constinit const MatmulKernels kMatmulKernels = {
    .rows = kRows,
    .columns = kColumns,
    .depth_unit = 1,
    .element_bytes = 4,
    .spare_depth = 1,
    // A panel of B (at most 32 x 256, 32 KiB) stays in L1, a block of A (96 KiB) in L2.
    .tile_rows = 96,
    .tile_columns = 512,
    .depth_block = 256,
    .packs_all = true,
    .pack_rows = pack<kRows>,
    .pack_columns = pack<kColumns>,
    .multiply = multiply};

}  // namespace tessera::cpu::TESSERA_ISA
