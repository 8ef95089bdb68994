// What the ranks of a group have given, combined in rank order: 256 threads a block, eight elements
// a thread. The definition is that of the host's communicators, combine_in_rank_order().
#include "sums.cuh"

namespace tessera::cuda {
namespace {

template <class C>
struct RankSum {
  static __device__ __forceinline__ C of(C a, C b) { return added(a, b); }
};
template <class C>
struct RankMax {
  static __device__ __forceinline__ C of(C a, C b) { return larger(a, b); }
};

// Where the ranks' elements lie: one part behind the other,
template <class In>
struct Strided {
  const In* x;
  int64_t stride;
  __device__ __forceinline__ const In* of(int32_t rank) const { return x + rank * stride; }
  __device__ __forceinline__ bool in_vectors(int32_t) const {
    return stride % kVector == 0 && aligned(x);
  }
};
// or each in the memory of its own GPU.
template <class In>
struct Apart {
  const Summands& parts;
  __device__ __forceinline__ const In* of(int32_t rank) const {
    return static_cast<const In*>(parts.x[rank]);
  }
  __device__ __forceinline__ bool in_vectors(int32_t ranks) const {
    bool all = true;
    for (int32_t r = 0; r < ranks; ++r) all = all && aligned(of(r));
    return all;
  }
};

// y[i] = x[0][i] + x[1][i] + x[2][i] ... of so many ranks, in that order. y may be one of the x.
template <class In, class Out, class Combine, class Parts>
__device__ __forceinline__ void combine_ranks(const Parts& x, Out* y, int64_t n, int32_t ranks) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  if (begin + kVector <= n && x.in_vectors(ranks) && aligned(y)) {
    Compute<In> sum[kVector];
    const Vector<In> first = load(x.of(0) + begin);
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum[k] = widen(first.x[k]);
    for (int32_t r = 1; r < ranks; ++r) {
      const Vector<In> next = load(x.of(r) + begin);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum[k] = Combine::of(sum[k], widen(next.x[k]));
    }
    Vector<Out> result;
#pragma unroll
    for (int k = 0; k < kVector; ++k) result.x[k] = narrow<Out>(sum[k]);
    store(y + begin, result);
    return;
  }
  for (int64_t i = begin; i < n && i < begin + kVector; ++i) {
    Compute<In> sum = widen(x.of(0)[i]);
    for (int32_t r = 1; r < ranks; ++r) sum = Combine::of(sum, widen(x.of(r)[i]));
    y[i] = narrow<Out>(sum);
  }
}

}  // namespace

#define TESSERA_RANKS_OF(what, Combine, in, In, out, Out)                                 \
  TESSERA_KERNEL(256, ranks_##what##_##in##_##out, const In* x, Out* y, int64_t n,        \
                 int64_t stride, int32_t ranks) {                                         \
    combine_ranks<In, Out, Combine<Compute<In>>>(Strided<In>{x, stride}, y, n, ranks);    \
  }                                                                                       \
  TESSERA_KERNEL(256, ranks_##what##_##in##_##out##_apart, Summands x, Out* y, int64_t n) { \
    combine_ranks<In, Out, Combine<Compute<In>>>(Apart<In>{x}, y, n, x.count);            \
  }
#define TESSERA_RANKS(in, In, out, Out)                \
  TESSERA_RANKS_OF(sum, RankSum, in, In, out, Out)     \
  TESSERA_RANKS_OF(max, RankMax, in, In, out, Out)
TESSERA_RANKS(f32, float, f32, float)
TESSERA_RANKS(f64, double, f64, double)
TESSERA_RANKS(bf16, Bf16, bf16, Bf16)
TESSERA_RANKS(bf16, Bf16, f32, float)
TESSERA_RANKS(f16, Half, f16, Half)
TESSERA_RANKS(f16, Half, f32, float)
TESSERA_RANKS(i32, int32_t, i32, int32_t)
TESSERA_RANKS(i64, int64_t, i64, int64_t)

}  // namespace tessera::cuda
