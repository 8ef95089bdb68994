// reduce_sum, reduce_max and scatter_add. Each result is computed by one thread or one block, in an
// order that depends on shapes only.
#include "sums.cuh"

namespace tessera::cuda {
namespace {

template <class C>
struct Sum {
  static __device__ __forceinline__ C initial() { return C{0}; }
  static __device__ __forceinline__ C of(C a, C b) { return added(a, b); }
};
template <class C>
struct Lowest {
  static __device__ __forceinline__ C value() { return -INFINITY; }
};
template <>
struct Lowest<int32_t> {
  static __device__ __forceinline__ int32_t value() { return INT32_MIN; }
};
template <>
struct Lowest<int64_t> {
  static __device__ __forceinline__ int64_t value() { return INT64_MIN; }
};
template <class C>
struct Max {
  static __device__ __forceinline__ C initial() { return Lowest<C>::value(); }
  static __device__ __forceinline__ C of(C a, C b) { return larger(a, b); }
};

// A thread a result, over its terms in ascending order: neighbours read neighbours where the kept
// dims are the inner ones.
template <class T, class Combine>
__device__ __forceinline__ void reduce_columns(const T* x, T* y, const ReduceShape& shape) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= shape.results) return;
  const T* first = x + offset_of(shape.kept, i);
  const int last = shape.reduced.dims - 1;
  const int64_t run = last < 0 ? 1 : shape.reduced.sizes[last];
  const int64_t step = last < 0 ? 0 : shape.reduced.steps[last];
  Compute<T> result = Combine::initial();
  for (int64_t begin = 0; begin < shape.terms; begin += run) {
    const T* term = first + offset_of(shape.reduced, begin);
    for (int64_t k = 0; k < run; ++k, term += step) result = Combine::of(result, widen(*term));
  }
  y[i] = narrow<T>(result);
}

// A block a result: thread t combines terms t, t + 256, ..., then threads are combined in pairs.
template <class T, class Combine>
__device__ __forceinline__ void reduce_rows(const T* x, T* y, const ReduceShape& shape) {
  __shared__ Compute<T> parts[256];
  const int t = static_cast<int>(threadIdx.x);
  const int64_t i = blockIdx.x;
  const T* first = x + offset_of(shape.kept, i);
  Compute<T> result = Combine::initial();
  for (int64_t k = t; k < shape.terms; k += 256)
    result = Combine::of(result, widen(first[k * shape.reduced.steps[0]]));
  parts[t] = result;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) parts[t] = Combine::of(parts[t], parts[t + half]);
    __syncthreads();
  }
  if (t == 0) y[i] = narrow<T>(parts[0]);
}

// Added to y[rows, width]. A block a token: the first of its id sums all tokens of that id in
// ascending order; the others do nothing. 256 threads.
template <class Id, class In, class Out>
__device__ __forceinline__ void scatter_rows(const Id* ids, const In* updates, Out* y, int64_t count,
                                             int64_t rows, int64_t width) {
  constexpr int kWords = 256;
  // Which tokens have the id: bit l of word w is token begin + 32 w + l. And which words have any.
  __shared__ uint32_t matches[kWords], filled[kWords / 32];
  const int t = static_cast<int>(threadIdx.x), warp = t / 32;
  const int64_t token = blockIdx.x;
  const Id id = ids[token];
  if (id < 0 || id >= rows) return;
  bool before = false;
  for (int64_t other = t; other < token; other += 256) before |= ids[other] == id;
  const uint32_t any_before = warp_or(before ? 1u : 0u);
  if (t % 32 == 0) matches[warp] = any_before;
  __syncthreads();
  for (int w = 0; w < 8; ++w)
    if (matches[w]) return;
  auto find = [&](int64_t begin) {
    __syncthreads();
    for (int pass = 0; pass < kWords / 8; ++pass) {
      const int64_t other = begin + pass * 256 + t;
      const uint32_t word = warp_or(other < count && ids[other] == id ? 1u << (t % 32) : 0u);
      if (t % 32 == 0) matches[pass * 8 + warp] = word;
    }
    __syncthreads();
    const uint32_t word = warp_or(matches[t] ? 1u << (t % 32) : 0u);
    if (t % 32 == 0) filled[warp] = word;
    __syncthreads();
  };
  // Eight columns a thread and pass.
  constexpr int kColumns = 8;
  for (int64_t first = 0; first < width; first += 256 * kColumns) {
    Compute<Out> sums[kColumns] = {};
    for (int64_t begin = token; begin < count; begin += kWords * 32) {
      find(begin);
      for (int f = 0; f < kWords / 32; ++f) {
        for (uint32_t words = filled[f]; words != 0; words &= words - 1) {
          const int w = f * 32 + lowest_bit(words);
          for (uint32_t left = matches[w]; left != 0; left &= left - 1) {
            const In* row = updates + (begin + w * 32 + lowest_bit(left)) * width;
#pragma unroll
            for (int k = 0; k < kColumns; ++k) {
              const int64_t column = first + k * 256 + t;
              if (column < width)
                sums[k] = added(sums[k], static_cast<Compute<Out>>(widen(row[column])));
            }
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const int64_t column = first + k * 256 + t;
      if (column >= width) continue;
      Out* place = y + id * width + column;
      *place = narrow<Out>(added(static_cast<Compute<Out>>(widen(*place)), sums[k]));
    }
  }
}

}  // namespace

#define TESSERA_REDUCE(suffix, T)                                                           \
  TESSERA_KERNEL(256, reduce_sum_columns_##suffix, const T* x, T* y, ReduceShape shape) {   \
    reduce_columns<T, Sum<Compute<T>>>(x, y, shape);                                        \
  }                                                                                         \
  TESSERA_KERNEL(256, reduce_sum_rows_##suffix, const T* x, T* y, ReduceShape shape) {      \
    reduce_rows<T, Sum<Compute<T>>>(x, y, shape);                                           \
  }                                                                                         \
  TESSERA_KERNEL(256, reduce_max_columns_##suffix, const T* x, T* y, ReduceShape shape) {   \
    reduce_columns<T, Max<Compute<T>>>(x, y, shape);                                        \
  }                                                                                         \
  TESSERA_KERNEL(256, reduce_max_rows_##suffix, const T* x, T* y, ReduceShape shape) {      \
    reduce_rows<T, Max<Compute<T>>>(x, y, shape);                                           \
  }
TESSERA_REDUCE(f32, float)
TESSERA_REDUCE(bf16, Bf16)
TESSERA_REDUCE(f64, double)
TESSERA_REDUCE(i32, int32_t)
TESSERA_REDUCE(i64, int64_t)

#define TESSERA_SCATTER_OF(in, In, out, Out, suffix, Id)                                         \
  TESSERA_KERNEL(256, scatter_##in##_##out##_##suffix, const Id* ids, const In* updates, Out* y, \
                 int64_t count, int64_t rows, int64_t width) {                                   \
    scatter_rows<Id, In, Out>(ids, updates, y, count, rows, width);                              \
  }
#define TESSERA_SCATTER(in, In, out, Out)            \
  TESSERA_SCATTER_OF(in, In, out, Out, i32, int32_t) \
  TESSERA_SCATTER_OF(in, In, out, Out, i64, int64_t)
TESSERA_SCATTER(f32, float, f32, float)
TESSERA_SCATTER(f32, float, bf16, Bf16)
TESSERA_SCATTER(f32, float, f64, double)
TESSERA_SCATTER(bf16, Bf16, f32, float)
TESSERA_SCATTER(bf16, Bf16, bf16, Bf16)
TESSERA_SCATTER(bf16, Bf16, f64, double)
TESSERA_SCATTER(f64, double, f32, float)
TESSERA_SCATTER(f64, double, bf16, Bf16)
TESSERA_SCATTER(f64, double, f64, double)
TESSERA_SCATTER(i32, int32_t, i32, int32_t)
TESSERA_SCATTER(i32, int32_t, i64, int64_t)
TESSERA_SCATTER(i64, int64_t, i32, int32_t)
TESSERA_SCATTER(i64, int64_t, i64, int64_t)

}  // namespace tessera::cuda
