// Products of bf16 by tensor cores: c[m, n] = a b (+ bias) (+ c), summed in f32 in ascending order of
// blocks of 16 terms. 256 threads, 128 x 128 results a block, 64 x 32 a warp, three stages of 32
// terms in shared memory.
#include "elements.cuh"
#include "matrix_tiles.cuh"

namespace tessera::cuda {
namespace {

constexpr int kRows = 128, kDepth = 32, kStages = 3, kVectors = kRows * kDepth / 8;

// 16 bytes of a tile from row `row` of x, columns [column, column + 8) of `columns`; zeros outside.
__device__ __forceinline__ void load_vector(uint4* to, const Bf16* x, int64_t stride, int64_t row,
                                            int64_t rows, int64_t column, int64_t columns) {
  if (row < rows && column + 8 <= columns) {
    copy_async16(to, x + row * stride + column);
    return;
  }
  auto* elements = reinterpret_cast<Bf16*>(to);
#pragma unroll 1
  for (int k = 0; k < 8; ++k)
    elements[k] = row < rows && column + k < columns ? x[row * stride + column + k] : Bf16{0};
}

// An operand's 128 rows from `first` on and 32 terms from `term` on. Its terms are neighbours, or,
// where it is transposed, its rows are.
template <bool kTransposed>
__device__ __forceinline__ void load_tile(uint4* tile, const Bf16* x, int64_t stride, int64_t first,
                                          int64_t rows, int64_t term, int64_t terms) {
#pragma unroll
  for (int i = 0; i < kVectors / 256; ++i) {
    const int e = i * 256 + static_cast<int>(threadIdx.x);
    if constexpr (kTransposed) {
      const int r = e / 16, v = e % 16;
      load_vector(&tile[wide_place(r, v)], x, stride, term + r, terms, first + v * 8, rows);
    } else {
      const int r = e / 4, v = e % 4;
      load_vector(&tile[narrow_place(r, v)], x, stride, first + r, rows, term + v * 8, terms);
    }
  }
}

template <class Out>
struct alignas(2 * sizeof(Out)) Pair {
  Out x[2];
};

// kA: a is [k, m]. kB: b is [n, k].
template <bool kA, bool kB, class Out>
__device__ __forceinline__ void product(const Bf16* a, const Bf16* b, const Bf16* bias, Out* c,
                                        int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb,
                                        int64_t ldc, int32_t accumulate) {
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // [stages][a, b][vectors]
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kRows,
                column0 = static_cast<int64_t>(blockIdx.x) * kRows;
  float sums[4][4][4] = {};
  const int steps = static_cast<int>((k + kDepth - 1) / kDepth);
  auto load = [&](int step) {
    if (step < steps) {
      uint4* tile = tiles + step % kStages * 2 * kVectors;
      load_tile<kA>(tile, a, lda, row0, m, static_cast<int64_t>(step) * kDepth, k);
      load_tile<!kB>(tile + kVectors, b, ldb, column0, n, static_cast<int64_t>(step) * kDepth, k);
    }
    copy_async_commit();
  };
  for (int s = 0; s < kStages - 1; ++s) load(s);
  for (int step = 0; step < steps; ++step) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);  // over the tiles of the step before, which all have read
    const uint4 *tile_a = tiles + step % kStages * 2 * kVectors, *tile_b = tile_a + kVectors;
#pragma unroll
    for (int kk = 0; kk < kDepth / 16; ++kk) {
      uint32_t part_a[4][4], part_b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (kA) {
          load_matrix_x4_transposed(
              part_a[i], &tile_a[wide_place(kk * 16 + lane % 8 + lane / 16 * 8,
                                            (warp_row + i * 16) / 8 + lane / 8 % 2)]);
        } else {
          load_matrix_x4(part_a[i], &tile_a[narrow_place(warp_row + i * 16 + lane % 16,
                                                         kk * 2 + lane / 16)]);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (kB) {
          load_matrix_x4(part_b[j], &tile_b[narrow_place(
                                        warp_column + j * 16 + lane % 8 + lane / 16 * 8,
                                        kk * 2 + lane / 8 % 2)]);
        } else {
          load_matrix_x4_transposed(part_b[j],
                                    &tile_b[wide_place(kk * 16 + lane % 16,
                                                       (warp_column + j * 16) / 8 + lane / 16)]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          mma_16816(sums[i][j], part_a[i], part_b[j / 2][j % 2 * 2], part_b[j / 2][j % 2 * 2 + 1]);
    }
  }
  copy_async_wait<0>();
  const bool pairs =
      ldc % 2 == 0 && reinterpret_cast<uintptr_t>(c) % alignof(Pair<Out>) == 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = row0 + warp_row + i * 16 + half * 8 + lane / 4,
                      column = column0 + warp_column + j * 8 + lane % 4 * 2;
        if (row >= m || column >= n) continue;
        float v[2] = {sums[i][j][half * 2], sums[i][j][half * 2 + 1]};
        const bool both = column + 1 < n;
        Out* place = c + row * ldc + column;
        if (bias) {
          v[0] += widen(bias[column]);
          if (both) v[1] += widen(bias[column + 1]);
        }
        if (accumulate) {
          v[0] += widen(place[0]);
          if (both) v[1] += widen(place[1]);
        }
        if (both && pairs) {
          *reinterpret_cast<Pair<Out>*>(place) = {{narrow<Out>(v[0]), narrow<Out>(v[1])}};
        } else {
          place[0] = narrow<Out>(v[0]);
          if (both) place[1] = narrow<Out>(v[1]);
        }
      }
    }
  }
}

}  // namespace

#define TESSERA_PRODUCT(layout, a_transposed, b_transposed, suffix, Out)                          \
  TESSERA_KERNEL(256, product_##layout##_bf16_##suffix, const Bf16* a, const Bf16* b,             \
                 const Bf16* bias, Out* c, int64_t m, int64_t n, int64_t k, int64_t lda,          \
                 int64_t ldb, int64_t ldc, int32_t accumulate) {                                  \
    product<a_transposed, b_transposed, Out>(a, b, bias, c, m, n, k, lda, ldb, ldc, accumulate);  \
  }
TESSERA_PRODUCT(nn, false, false, bf16, Bf16)
TESSERA_PRODUCT(nn, false, false, f32, float)
TESSERA_PRODUCT(nt, false, true, bf16, Bf16)
TESSERA_PRODUCT(nt, false, true, f32, float)
TESSERA_PRODUCT(tn, true, false, bf16, Bf16)
TESSERA_PRODUCT(tn, true, false, f32, float)
TESSERA_PRODUCT(tt, true, true, bf16, Bf16)
TESSERA_PRODUCT(tt, true, true, f32, float)

}  // namespace tessera::cuda
