// Products of any layout and dtype by fused multiply-adds, each sum in ascending order: 256 threads,
// 64 x 64 results a block, 4 x 4 a thread.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kPitch = kTile + 4;

__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

// 64 rows by 16 terms of an operand, transposed, zeros outside. Along which of the two dims
// neighbouring threads go follows from where its elements are neighbours.
template <class T>
__device__ __forceinline__ void load_tile(Compute<T> (*tile)[kPitch], const T* x, const Walk& walk,
                                          int64_t first, int64_t count, int64_t term, int64_t terms,
                                          int64_t step) {
#pragma unroll
  for (int i = 0; i < kTile * kDepth / 256; ++i) {
    const int e = i * 256 + static_cast<int>(threadIdx.x);
    const int row = step == 1 ? e / kDepth : e % kTile, k = step == 1 ? e % kDepth : e / kTile;
    Compute<T> v = 0;
    if (first + row < count && term + k < terms)
      v = widen(x[offset_of(walk, first + row) + (term + k) * step]);
    tile[k][row] = v;
  }
}

template <class In, class Out>
__device__ __forceinline__ void dot_tile(const In* a, const In* b, const In* bias, Out* y,
                                         const DotShape& shape) {
  using C = Compute<In>;
  __shared__ C tile_a[kDepth][kPitch], tile_b[kDepth][kPitch];
  const int thread_row = static_cast<int>(threadIdx.x) / 16 * 4,
            thread_column = static_cast<int>(threadIdx.x) % 16 * 4;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kTile,
                column0 = static_cast<int64_t>(blockIdx.y) * kTile;
  for (int64_t batch = blockIdx.z; batch < shape.batches; batch += gridDim.z) {
    const In *batch_a = a + offset_of(shape.batch_a, batch),
             *batch_b = b + offset_of(shape.batch_b, batch);
    C sums[4][4] = {};
    for (int64_t term = 0; term < shape.terms; term += kDepth) {
      load_tile(tile_a, batch_a, shape.rows, row0, shape.row_count, term, shape.terms,
                shape.step_a);
      load_tile(tile_b, batch_b, shape.columns, column0, shape.column_count, term, shape.terms,
                shape.step_b);
      __syncthreads();
      const int depth = shape.terms - term < kDepth ? static_cast<int>(shape.terms - term) : kDepth;
      for (int k = 0; k < depth; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            sums[i][j] = fused(tile_a[k][thread_row + i], tile_b[k][thread_column + j], sums[i][j]);
      }
      __syncthreads();
    }
    Out* result = y + batch * shape.row_count * shape.result_stride;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int64_t row = row0 + thread_row + i, column = column0 + thread_column + j;
        if (row >= shape.row_count || column >= shape.column_count) continue;
        C sum = sums[i][j];
        if (bias) sum += widen(bias[column]);
        Out* place = result + row * shape.result_stride + column;
        if (shape.accumulate) sum += static_cast<C>(widen(*place));
        *place = narrow<Out>(static_cast<Compute<Out>>(sum));
      }
    }
  }
}

}  // namespace

#define TESSERA_DOT_BY(KERNEL, in, In, out, Out)                                                   \
  KERNEL(256, dot_##in##_##out, const In* a, const In* b, const In* bias, Out* y,                \
         DotShape shape) {                                                                       \
    dot_tile<In, Out>(a, b, bias, y, shape);                                                     \
  }
#define TESSERA_DOT(in, In, out, Out) TESSERA_DOT_BY(TESSERA_KERNEL, in, In, out, Out)
TESSERA_DOT(f32, float, f32, float)
TESSERA_DOT(f32, float, bf16, Bf16)
TESSERA_DOT(f32, float, f64, double)
TESSERA_DOT(bf16, Bf16, f32, float)
TESSERA_DOT(bf16, Bf16, bf16, Bf16)
TESSERA_DOT(bf16, Bf16, f64, double)
TESSERA_DOT_BY(TESSERA_LARGE_KERNEL, f64, double, f32, float)
TESSERA_DOT_BY(TESSERA_LARGE_KERNEL, f64, double, bf16, Bf16)
TESSERA_DOT_BY(TESSERA_LARGE_KERNEL, f64, double, f64, double)

}  // namespace tessera::cuda
