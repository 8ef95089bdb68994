// reduce_sum and reduce_max. Each result is computed by one thread or one block, in an
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

}  // namespace tessera::cuda
