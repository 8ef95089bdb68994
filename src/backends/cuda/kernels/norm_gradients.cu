// The gradients of norms.cu, and of a bias: blocks of at most 512 threads, whose rows follow from
// the shape alone. Parameter gradients in two stages: a block's sum over its rows, then the sums of
// blocks in their order.
#include "norm_rows.cuh"

namespace tessera::cuda {
namespace {

// Where the sum of a column lies in shared memory: first those of the first of every eight columns,
// then of the second, so that threads side by side reach different banks.
__device__ __forceinline__ int64_t sum_place(int64_t column, int k, int64_t width) {
  return k * ((width + kVector - 1) / kVector) + column / kVector;
}

// Whether all rows can be read and written by vectors.
template <class T>
__device__ __forceinline__ bool whole_vectors(const T* x, const T* w, const T* dy, const T* added,
                                              const T* dx, int64_t width) {
  return width % kVector == 0 && aligned(x) && aligned(w) && aligned(dy) && aligned(added) &&
         aligned(dx);
}

// v, or v plus what stands at its place in a row of `added`; null: there is none.
template <class T>
__device__ __forceinline__ void add_row(float (&v)[kVector], const T* added, int64_t row,
                                        int64_t width, int64_t column, int n, bool vectors) {
  if (added == nullptr) return;
  float sums[kVector];
  load_row(sums, added + row * width, column, n, vectors);
#pragma unroll
  for (int k = 0; k < kVector; ++k) v[k] += sums[k];
}

// dx (plus `added` if that is not null) of the rows blockIdx.x, blockIdx.x + gridDim.x, ... and their
// part of dw: partial [blocks, width], which is summed in shared memory, a column by one thread.
template <class T>
__device__ __forceinline__ void rms_norm_backward_rows(const T* x, const T* w, const float* rstds,
                                                       const T* dy, const T* added, T* dx,
                                                       float* partial, int64_t rows,
                                                       int64_t width) {
  TESSERA_DYNAMIC_SHARED(float, dw);
  __shared__ float scratch[8];
  const bool vectors = whole_vectors(x, w, dy, added, dx, width);
  for_columns(width, [&](int64_t column, int n) {
    for (int k = 0; k < n; ++k) dw[sum_place(column, k, width)] = 0;
  });
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *row_x = x + row * width, *row_dy = dy + row * width;
    const float rstd = rstds[row];
    float dot = 0;
    for_columns(width, [&](int64_t column, int n) {
      float xs[kVector], ws[kVector], ds[kVector];
      load_row(xs, row_x, column, n, vectors);
      load_row(ws, w, column, n, vectors);
      load_row(ds, row_dy, column, n, vectors);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        dot = fmaf(ds[k] * ws[k], xs[k], dot);
        if (k < n) {
          float& sum = dw[sum_place(column, k, width)];
          sum = fmaf(ds[k], xs[k] * rstd, sum);
        }
      }
    });
    const float factor =
        row_sum(dot, scratch) * rstd * rstd / static_cast<float>(width);
    for_columns(width, [&](int64_t column, int n) {
      float xs[kVector], ws[kVector], ds[kVector];
      load_row(xs, row_x, column, n, vectors);
      load_row(ws, w, column, n, vectors);
      load_row(ds, row_dy, column, n, vectors);
#pragma unroll
      for (int k = 0; k < kVector; ++k) ds[k] = rstd * (ds[k] * ws[k] - xs[k] * factor);
      add_row(ds, added, row, width, column, n, vectors);
      store_row(dx + row * width, column, n, vectors, ds);
    });
  }
  for_columns(width, [&](int64_t column, int n) {
    for (int k = 0; k < n; ++k)
      partial[blockIdx.x * width + column + k] = dw[sum_place(column, k, width)];
  });
}

// The same of layer_norm; partial is [2, blocks, width]: of dw, then of db.
template <class T>
__device__ __forceinline__ void layer_norm_backward_rows(const T* x, const T* w,
                                                         const float* means, const float* rstds,
                                                         const T* dy, const T* added, T* dx,
                                                         float* partial, int64_t rows,
                                                         int64_t width) {
  TESSERA_DYNAMIC_SHARED(float, dw);
  __shared__ float scratch[8];
  float* db = dw + (width + kVector - 1) / kVector * kVector;
  const bool vectors = whole_vectors(x, w, dy, added, dx, width);
  for_columns(width, [&](int64_t column, int n) {
    for (int k = 0; k < n; ++k)
      dw[sum_place(column, k, width)] = db[sum_place(column, k, width)] = 0;
  });
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T *row_x = x + row * width, *row_dy = dy + row * width;
    const float mean = means[row], rstd = rstds[row];
    float sum = 0, dot = 0;
    for_columns(width, [&](int64_t column, int n) {
      float xs[kVector], ws[kVector], ds[kVector];
      load_row(xs, row_x, column, n, vectors);
      load_row(ws, w, column, n, vectors);
      load_row(ds, row_dy, column, n, vectors);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float h = (xs[k] - mean) * rstd, g = ds[k] * ws[k];
        sum += g;
        dot = fmaf(g, h, dot);
        if (k < n) {
          const int64_t place = sum_place(column, k, width);
          dw[place] = fmaf(ds[k], h, dw[place]);
          db[place] += ds[k];
        }
      }
    });
    const float mean_g = row_sum(sum, scratch) / static_cast<float>(width),
                mean_gh = row_sum(dot, scratch) / static_cast<float>(width);
    for_columns(width, [&](int64_t column, int n) {
      float xs[kVector], ws[kVector], ds[kVector];
      load_row(xs, row_x, column, n, vectors);
      load_row(ws, w, column, n, vectors);
      load_row(ds, row_dy, column, n, vectors);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        const float h = (xs[k] - mean) * rstd;
        ds[k] = rstd * (ds[k] * ws[k] - mean_g - h * mean_gh);
      }
      add_row(ds, added, row, width, column, n, vectors);
      store_row(dx + row * width, column, n, vectors, ds);
    });
  }
  for_columns(width, [&](int64_t column, int n) {
    for (int k = 0; k < n; ++k) {
      const int64_t place = sum_place(column, k, width);
      partial[blockIdx.x * width + column + k] = dw[place];
      partial[(gridDim.x + blockIdx.x) * width + column + k] = db[place];
    }
  });
}

// The same of either norm where a row is at most a vector a thread: columns stay with their thread,
// so that all sums are in registers, and the next row is read while threads wait for each other.
// kCenters: layer_norm, whose partial is [2, blocks, width]. kVectors: rows are whole vectors.
template <class T, bool kCenters, bool kVectors>
__device__ __forceinline__ void narrow_backward_rows(const T* x, const T* w, const float* means,
                                                     const float* rstds, const T* dy,
                                                     const T* added, T* dx, float* partial,
                                                     int64_t rows, int64_t width) {
  __shared__ float scratch[2][2][16];
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const float inverse_width = 1 / static_cast<float>(width);
  const int64_t column = static_cast<int64_t>(threadIdx.x) * kVector, left = width - column;
  // Of columns; eight or none in whole vectors. Behind the row's end all are zeros.
  const int count = left <= 0 ? 0 : left < kVector ? static_cast<int>(left) : kVector;
  auto read = [&](const T* row) {
    Vector<T> v = {};
    if (kVectors) {
      if (count > 0) v = load(row + column);
    } else {
#pragma unroll
      for (int k = 0; k < kVector; ++k)
        if (k < count) v.x[k] = row[column + k];
    }
    return v;
  };
  float dw[kVector] = {}, db[kVector] = {}, next_mean = 0, next_rstd = 0;
  Vector<T> next_x, next_dy;
  auto read_row = [&](int64_t row) {
    if (row >= rows) return;
    next_rstd = rstds[row];
    if (kCenters) next_mean = means[row];
    next_x = read(x + row * width);
    next_dy = read(dy + row * width);
  };
  const Vector<T> ws = read(w);
  read_row(blockIdx.x);
  int side = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, side ^= 1) {
    const float mean = next_mean, rstd = next_rstd;
    const Vector<T> xs = next_x, dys = next_dy;
    auto h = [&](int k) { return (widen(xs.x[k]) - mean) * rstd; };
    auto g = [&](int k) { return widen(dys.x[k]) * widen(ws.x[k]); };
    float sum = 0, dot = 0;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      if (k >= count) continue;
      const float d = widen(dys.x[k]);
      sum += g(k);
      dot = fmaf(g(k), h(k), dot);
      dw[k] = fmaf(d, h(k), dw[k]);
      if (kCenters) db[k] += d;
    }
    read_row(row + gridDim.x);
    dot = warp_sum(dot);
    if (kCenters) sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
      scratch[side][0][warp] = dot;
      if (kCenters) scratch[side][1][warp] = sum;
    }
    __syncthreads();
    float mean_gh = 0, mean_g = 0;
    for (int n = 0; n < warps; ++n) {
      mean_gh += scratch[side][0][n];
      if (kCenters) mean_g += scratch[side][1][n];
    }
    mean_gh *= inverse_width;
    mean_g *= inverse_width;
    const int64_t at = row * width + column;
    auto dx_of = [&](int k, float sum) {
      return narrow<T>(rstd * (g(k) - mean_g - h(k) * mean_gh) + sum);
    };
    if (kVectors) {
      if (count == 0) continue;
      Vector<T> v = {};
      if (added != nullptr) v = load(added + at);
#pragma unroll
      for (int k = 0; k < kVector; ++k) v.x[k] = dx_of(k, widen(v.x[k]));
      store(dx + at, v);
    } else {
#pragma unroll
      for (int k = 0; k < kVector; ++k)
        if (k < count) dx[at + k] = dx_of(k, added == nullptr ? 0.0f : widen(added[at + k]));
    }
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    if (k >= count) continue;
    partial[blockIdx.x * width + column + k] = dw[k];
    if (kCenters) partial[(gridDim.x + blockIdx.x) * width + column + k] = db[k];
  }
}
template <class T, bool kCenters>
__device__ __forceinline__ void narrow_backward(const T* x, const T* w, const float* means,
                                                const float* rstds, const T* dy, const T* added,
                                                T* dx, float* partial, int64_t rows,
                                                int64_t width) {
  if (whole_vectors(x, w, dy, added, dx, width)) {
    narrow_backward_rows<T, kCenters, true>(x, w, means, rstds, dy, added, dx, partial, rows,
                                            width);
  } else {
    narrow_backward_rows<T, kCenters, false>(x, w, means, rstds, dy, added, dx, partial, rows,
                                             width);
  }
}

// Column sums of the rows [first, last) of x: a thread eight columns.
template <class T>
__device__ __forceinline__ void column_sum_rows(const T* x, float* partial, int64_t rows,
                                                int64_t width) {
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kVector;
  if (column >= width) return;
  const int n = width - column < kVector ? static_cast<int>(width - column) : kVector;
  const bool vectors = width % kVector == 0 && aligned(x);
  float sums[kVector] = {};
#pragma unroll 4
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float v[kVector];
    load_row(v, x + row * width, column, n, vectors);
#pragma unroll
    for (int k = 0; k < kVector; ++k) sums[k] += v[k];
  }
#pragma unroll
  for (int k = 0; k < kVector; ++k)
    if (k < n) partial[blockIdx.x * width + column + k] = sums[k];
}

}  // namespace

// A narrow gradient's name ends with the threads whose vectors a row fits into.
#define TESSERA_NORM_GRADIENTS(suffix, T)                                                          \
  TESSERA_KERNEL(256, rms_norm_backward_##suffix, const T* x, const T* w, const float* rstd,       \
                 const T* dy, const T* added, T* dx, float* partial, int64_t rows,                 \
                 int64_t width) {                                                                  \
    rms_norm_backward_rows<T>(x, w, rstd, dy, added, dx, partial, rows, width);                    \
  }                                                                                                \
  TESSERA_KERNEL(256, layer_norm_backward_##suffix, const T* x, const T* w, const float* mean,     \
                 const float* rstd, const T* dy, const T* added, T* dx, float* partial,            \
                 int64_t rows, int64_t width) {                                                    \
    layer_norm_backward_rows<T>(x, w, mean, rstd, dy, added, dx, partial, rows, width);            \
  }                                                                                                \
  TESSERA_KERNEL(256, rms_norm_backward_##suffix##_256, const T* x, const T* w, const float* rstd, \
                 const T* dy, const T* added, T* dx, float* partial, int64_t rows,                 \
                 int64_t width) {                                                                  \
    narrow_backward<T, false>(x, w, nullptr, rstd, dy, added, dx, partial, rows, width);           \
  }                                                                                                \
  TESSERA_KERNEL(256, layer_norm_backward_##suffix##_256, const T* x, const T* w,                  \
                 const float* mean, const float* rstd, const T* dy, const T* added, T* dx,         \
                 float* partial, int64_t rows, int64_t width) {                                    \
    narrow_backward<T, true>(x, w, mean, rstd, dy, added, dx, partial, rows, width);               \
  }                                                                                                \
  TESSERA_PAIRED_KERNEL(512, rms_norm_backward_##suffix##_512, const T* x, const T* w,             \
                        const float* rstd, const T* dy, const T* added, T* dx, float* partial,     \
                        int64_t rows, int64_t width) {                                             \
    narrow_backward<T, false>(x, w, nullptr, rstd, dy, added, dx, partial, rows, width);           \
  }                                                                                                \
  TESSERA_KERNEL(512, layer_norm_backward_##suffix##_512, const T* x, const T* w,                  \
                 const float* mean, const float* rstd, const T* dy, const T* added, T* dx,         \
                 float* partial, int64_t rows, int64_t width) {                                    \
    narrow_backward<T, true>(x, w, mean, rstd, dy, added, dx, partial, rows, width);               \
  }                                                                                                \
  TESSERA_KERNEL(256, column_sum_##suffix, const T* x, float* partial, int64_t rows,               \
                 int64_t width) {                                                                  \
    column_sum_rows<T>(x, partial, rows, width);                                                   \
  }
TESSERA_NORM_GRADIENTS(f32, float)
TESSERA_NORM_GRADIENTS(bf16, Bf16)

// y[column] = sum over blocks of partial [blocks, width]: eight columns a block, 32 threads a column,
// of which thread g takes the blocks g, g + 32, ...; then these in order. blockIdx.y: which of several
// such sums, one behind the other.
TESSERA_KERNEL(256, sum_partials, const float* partial, float* y0, float* y1, int64_t blocks,
               int64_t width) {
  __shared__ float parts[32][8];
  const int lane = static_cast<int>(threadIdx.x) % 8, group = static_cast<int>(threadIdx.x) / 8;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 8 + lane;
  const float* first = partial + blockIdx.y * blocks * width;
  float sum = 0;
  if (column < width)
    for (int64_t b = group; b < blocks; b += 32) sum += first[b * width + column];
  parts[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= width) return;
  for (int g = 1; g < 32; ++g) sum += parts[g][lane];
  (blockIdx.y == 0 ? y0 : y1)[column] = sum;
}

}  // namespace tessera::cuda
