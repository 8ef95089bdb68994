// What the kernels of norms share: rows in vectors, and sums over the block that has a row.
#pragma once
#include "sums.cuh"

namespace tessera::cuda {

// body(column) for this thread's share of the columns, eight neighbours at a time: the same
// elements in every loop over a row.
template <class Body>
__device__ __forceinline__ void for_columns(int64_t width, Body body) {
  for (int64_t first = static_cast<int64_t>(threadIdx.x) * kVector; first < width;
       first += static_cast<int64_t>(blockDim.x) * kVector)
    body(first, width - first < kVector ? static_cast<int>(width - first) : kVector);
}

// Elements of a row from `column` on; zeros behind its end.
template <class T>
__device__ __forceinline__ void load_row(float (&v)[kVector], const T* row, int64_t column, int n,
                                         bool vectors) {
  if (vectors) {
    const Vector<T> x = load(row + column);
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] = widen(x.x[k]);
  } else {
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] = k < n ? widen(row[column + k]) : 0.0f;
  }
}
template <class T>
__device__ __forceinline__ void store_row(T* row, int64_t column, int n, bool vectors,
                                          const float (&v)[kVector]) {
  if (vectors) {
    Vector<T> x;
#pragma unroll
    for (int k = 0; k < kVector; ++k) x.x[k] = narrow<T>(v[k]);
    store(row + column, x);
  } else {
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      if (k < n) row[column + k] = narrow<T>(v[k]);
  }
}

// Over the block, the same bits in every thread.
__device__ __forceinline__ float row_sum(float v, float* scratch) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) total += scratch[w];
  __syncthreads();  // scratch is used again
  return total;
}

}  // namespace tessera::cuda
