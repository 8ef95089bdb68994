// swiglu, gelu, add_bias, scale, sum_n, dropout and their gradients: 256 threads a block, eight
// elements a thread. Computed in f32, rounded once.
#include "random.cuh"

namespace tessera::cuda {
namespace {

// Up to two results of three operands; results may be operands.
template <class T, class F>
__device__ __forceinline__ void map_three(const T* a, const T* b, const T* c, T* y, T* z, int64_t n,
                                          F f) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  if (begin + kVector <= n && aligned(a) && aligned(b) && aligned(c) && aligned(y) && aligned(z)) {
    const Vector<T> va = load(a + begin), vb = load(b + begin), vc = load(c + begin);
    Vector<T> vy, vz;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      float left, right;
      f(widen(va.x[k]), widen(vb.x[k]), widen(vc.x[k]), left, right);
      vy.x[k] = narrow<T>(left);
      vz.x[k] = narrow<T>(right);
    }
    store(y + begin, vy);
    store(z + begin, vz);
  } else {
    for (int64_t i = begin; i < n && i < begin + kVector; ++i) {
      float left, right;
      f(widen(a[i]), widen(b[i]), widen(c[i]), left, right);
      y[i] = narrow<T>(left);
      z[i] = narrow<T>(right);
    }
  }
}

__device__ __forceinline__ float logistic(float x) { return 1 / (1 + expf(-x)); }

constexpr float kRootHalf = 0.70710678118654752f, kRootTwoOverPi = 0.79788456080286536f,
                kInverseRootTwoPi = 0.39894228040143268f, kCubic = 0.044715f;

__device__ __forceinline__ float gelu_exact(float x) {
  return 0.5f * x * (1 + erff(x * kRootHalf));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = kRootTwoOverPi * fmaf(kCubic * x * x, x, x);
  return 0.5f * x * (1 + tanhf(u));
}
__device__ __forceinline__ float gelu_exact_slope(float x) {
  return fmaf(x * kInverseRootTwoPi, expf(-0.5f * x * x), 0.5f * (1 + erff(x * kRootHalf)));
}
__device__ __forceinline__ float gelu_tanh_slope(float x) {
  const float u = kRootTwoOverPi * fmaf(kCubic * x * x, x, x), t = tanhf(u),
              du = kRootTwoOverPi * fmaf(3 * kCubic * x, x, 1.0f);
  return fmaf(0.5f * x * (1 - t * t), du, 0.5f * (1 + t));
}

template <class T>
__device__ __forceinline__ void add_bias_rows(const T* x, const T* b, T* y, int64_t n,
                                              int64_t width) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  if (width % kVector == 0 && aligned(x) && aligned(b) && aligned(y)) {
    const Vector<T> v = load(x + begin), w = load(b + begin % width);
    Vector<T> r;
#pragma unroll
    for (int k = 0; k < kVector; ++k) r.x[k] = narrow<T>(widen(v.x[k]) + widen(w.x[k]));
    store(y + begin, r);
  } else {
    for (int64_t i = begin; i < n && i < begin + kVector; ++i)
      y[i] = narrow<T>(widen(x[i]) + widen(b[i % width]));
  }
}

template <class T>
__device__ __forceinline__ void sum_operands(const Summands& summands, T* y, int64_t n) {
  const int64_t begin = first_element();
  if (begin >= n) return;
  bool vectors = begin + kVector <= n && aligned(y);
  for (int j = 0; j < summands.count; ++j)
    vectors = vectors && aligned(static_cast<const T*>(summands.x[j]));
  float sums[kVector] = {};
  for (int j = 0; j < summands.count; ++j) {
    const T* x = static_cast<const T*>(summands.x[j]);
    if (vectors) {
      const Vector<T> v = load(x + begin);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sums[k] += widen(v.x[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kVector; ++k)
        if (begin + k < n) sums[k] += widen(x[begin + k]);
    }
  }
  if (vectors) {
    Vector<T> r;
#pragma unroll
    for (int k = 0; k < kVector; ++k) r.x[k] = narrow<T>(sums[k]);
    store(y + begin, r);
  } else {
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      if (begin + k < n) y[begin + k] = narrow<T>(sums[k]);
  }
}

// A thread the eight numbers of one call of philox: four neighbours and the four 64 behind them.
// `groups` threads a line, 16 a block of 128 numbers.
template <class T>
__device__ __forceinline__ void drop(const T* x, const int64_t* keys, const int32_t* begin, T* y,
                                     int64_t lines, int64_t groups, uint64_t stream,
                                     const RandomPlaces& places, uint32_t threshold, float scale) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t line = thread / groups, group = thread - line * groups;
  if (line >= lines) return;
  const int64_t first = line_begin(places, line % places.lines, begin ? *begin : 0);
  const int64_t number = (first / 128 + group / 16) * 128 + group % 16 * 4;
  const auto key = static_cast<uint64_t>(keys[line / places.lines]);
  const RandomWords words = philox(key, stream, call_of(static_cast<uint64_t>(number)));
  struct alignas(4 * sizeof(T)) Four {  // what one call decides about lies in two places
    T x[4];
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t column = number + half * 64 - first, i = line * places.width + column;
    const auto dropped = [&](T v, int k) {
      const uint32_t word = words.word[half * 2 + k / 2],
                     bits = k % 2 ? word >> 16 : word & 0xffffu;
      return narrow<T>(bits >= threshold ? widen(v) * scale : 0.0f);
    };
    const bool together = column >= 0 && column + 4 <= places.width &&
                          reinterpret_cast<uintptr_t>(x + i) % sizeof(Four) == 0 &&
                          reinterpret_cast<uintptr_t>(y + i) % sizeof(Four) == 0;
    if (together) {
      Four four = *reinterpret_cast<const Four*>(x + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) four.x[k] = dropped(four.x[k], k);
      *reinterpret_cast<Four*>(y + i) = four;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k)
        if (column + k >= 0 && column + k < places.width) y[i + k] = dropped(x[i + k], k);
    }
  }
}

}  // namespace

#define TESSERA_ACTIVATIONS(suffix, T)                                                            \
  TESSERA_KERNEL(256, swiglu_##suffix, const T* gate, const T* up, T* y, int64_t n) {             \
    zip_elements<T, T>(gate, up, y, n, [](T v, T w) {                                             \
      const float g = widen(v);                                                                   \
      return narrow<T>(g * logistic(g) * widen(w));                                               \
    });                                                                                           \
  }                                                                                               \
  TESSERA_KERNEL(256, swiglu_backward_##suffix, const T* gate, const T* up, const T* dy, T* dgate, \
                 T* dup, int64_t n) {                                                             \
    map_three<T>(gate, up, dy, dgate, dup, n,                                                     \
                 [](float g, float u, float d, float& left, float& right) {                       \
                   const float s = logistic(g);                                                   \
                   left = d * u * s * fmaf(g, 1 - s, 1.0f);                                       \
                   right = d * g * s;                                                             \
                 });                                                                              \
  }                                                                                               \
  TESSERA_KERNEL(256, gelu_exact_##suffix, const T* x, T* y, int64_t n) {                         \
    map_elements<T, T>(x, y, n, [](T v) { return narrow<T>(gelu_exact(widen(v))); });             \
  }                                                                                               \
  TESSERA_KERNEL(256, gelu_tanh_##suffix, const T* x, T* y, int64_t n) {                          \
    map_elements<T, T>(x, y, n, [](T v) { return narrow<T>(gelu_tanh(widen(v))); });              \
  }                                                                                               \
  TESSERA_KERNEL(256, gelu_backward_exact_##suffix, const T* x, const T* dy, T* dx, int64_t n) {  \
    zip_elements<T, T>(x, dy, dx, n, [](T v, T d) {                                               \
      return narrow<T>(widen(d) * gelu_exact_slope(widen(v)));                                    \
    });                                                                                           \
  }                                                                                               \
  TESSERA_KERNEL(256, gelu_backward_tanh_##suffix, const T* x, const T* dy, T* dx, int64_t n) {   \
    zip_elements<T, T>(x, dy, dx, n, [](T v, T d) {                                               \
      return narrow<T>(widen(d) * gelu_tanh_slope(widen(v)));                                     \
    });                                                                                           \
  }                                                                                               \
  TESSERA_KERNEL(256, add_bias_##suffix, const T* x, const T* b, T* y, int64_t n,                 \
                 int64_t width) {                                                                 \
    add_bias_rows<T>(x, b, y, n, width);                                                          \
  }                                                                                               \
  TESSERA_KERNEL(256, scale_##suffix, const T* x, T* y, int64_t n, float factor) {                \
    map_elements<T, T>(x, y, n, [factor](T v) { return narrow<T>(widen(v) * factor); });          \
  }                                                                                               \
  TESSERA_KERNEL(256, sum_n_##suffix, Summands summands, T* y, int64_t n) {                       \
    sum_operands<T>(summands, y, n);                                                              \
  }                                                                                               \
  TESSERA_KERNEL(256, dropout_##suffix, const T* x, const int64_t* keys, const int32_t* begin,    \
                 T* y, int64_t lines, int64_t groups, uint64_t stream, RandomPlaces places,       \
                 uint32_t threshold, float scale) {                                               \
    drop<T>(x, keys, begin, y, lines, groups, stream, places, threshold, scale);                  \
  }
TESSERA_ACTIVATIONS(f32, float)
TESSERA_ACTIVATIONS(bf16, Bf16)

}  // namespace tessera::cuda
