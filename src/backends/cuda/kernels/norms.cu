// rms_norm and layer_norm: a block a row, of as many threads as the row has vectors, at most 256.
#include "norm_rows.cuh"

namespace tessera::cuda {
namespace {

template <class T>
__device__ __forceinline__ void rms_norm_row(const T* x, const T* w, T* y, float* rstds,
                                             int64_t width, float epsilon) {
  __shared__ float scratch[8];
  const int64_t row = blockIdx.x;
  x += row * width;
  y += row * width;
  const bool vectors = width % kVector == 0 && aligned(x) && aligned(w) && aligned(y);
  float squares = 0;
  for_columns(width, [&](int64_t column, int n) {
    float v[kVector];
    load_row(v, x, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) squares = fmaf(v[k], v[k], squares);
  });
  const float rstd =
      1 / sqrtf(row_sum(squares, scratch) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) rstds[row] = rstd;
  for_columns(width, [&](int64_t column, int n) {
    float v[kVector], ws[kVector];
    load_row(v, x, column, n, vectors);
    load_row(ws, w, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] = v[k] * rstd * ws[k];
    store_row(y, column, n, vectors, v);
  });
}

template <class T>
__device__ __forceinline__ void layer_norm_row(const T* x, const T* w, const T* b, T* y,
                                               float* means, float* rstds, int64_t width,
                                               float epsilon) {
  __shared__ float scratch[8];
  const int64_t row = blockIdx.x;
  x += row * width;
  y += row * width;
  const bool vectors = width % kVector == 0 && aligned(x) && aligned(w) && aligned(y) &&
                       (!b || aligned(b));
  if (width <= static_cast<int64_t>(blockDim.x) * kVector) {  // a vector a thread stays with it
    const int64_t column = static_cast<int64_t>(threadIdx.x) * kVector, left = width - column;
    const int n = left <= 0 ? 0 : left < kVector ? static_cast<int>(left) : kVector;
    float v[kVector] = {}, ws[kVector] = {}, bs[kVector] = {}, sum = 0, squares = 0;
    if (n > 0) {
      load_row(v, x, column, n, vectors);
      load_row(ws, w, column, n, vectors);
      if (b) load_row(bs, b, column, n, vectors);
    }
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum += v[k];
    const float mean = row_sum(sum, scratch) / static_cast<float>(width);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      v[k] = k < n ? v[k] - mean : 0.0f;
      squares = fmaf(v[k], v[k], squares);
    }
    const float rstd =
        1 / sqrtf(row_sum(squares, scratch) / static_cast<float>(width) + epsilon);
    if (threadIdx.x == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] = fmaf(v[k] * rstd, ws[k], bs[k]);
    if (n > 0) store_row(y, column, n, vectors, v);
    return;
  }
  float sum = 0, squares = 0;
  for_columns(width, [&](int64_t column, int n) {
    float v[kVector];
    load_row(v, x, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum += v[k];
  });
  const float mean = row_sum(sum, scratch) / static_cast<float>(width);
  for_columns(width, [&](int64_t column, int n) {
    float v[kVector];
    load_row(v, x, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float d = k < n ? v[k] - mean : 0.0f;
      squares = fmaf(d, d, squares);
    }
  });
  const float rstd =
      1 / sqrtf(row_sum(squares, scratch) / static_cast<float>(width) + epsilon);
  if (threadIdx.x == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
  for_columns(width, [&](int64_t column, int n) {
    float v[kVector], ws[kVector], bs[kVector] = {};
    load_row(v, x, column, n, vectors);
    load_row(ws, w, column, n, vectors);
    if (b) load_row(bs, b, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] = fmaf((v[k] - mean) * rstd, ws[k], bs[k]);
    store_row(y, column, n, vectors, v);
  });
}

}  // namespace

#define TESSERA_NORMS(suffix, T)                                                                   \
  TESSERA_KERNEL(256, rms_norm_##suffix, const T* x, const T* w, T* y, float* rstd, int64_t width, \
                 float epsilon) {                                                                  \
    rms_norm_row<T>(x, w, y, rstd, width, epsilon);                                                \
  }                                                                                                \
  TESSERA_KERNEL(256, layer_norm_##suffix, const T* x, const T* w, const T* b, T* y, float* mean,  \
                 float* rstd, int64_t width, float epsilon) {                                      \
    layer_norm_row<T>(x, w, b, y, mean, rstd, width, epsilon);                                     \
  }
TESSERA_NORMS(f32, float)
TESSERA_NORMS(bf16, Bf16)

}  // namespace tessera::cuda
