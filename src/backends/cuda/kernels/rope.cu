// rope and rope_at: a thread turns pairs of elements of several heads of a token, for which it makes
// cosines and sines once: eight pairs of kTurnedHeads heads, or, where heads are no whole vectors, one pair
// of all heads.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

// x [tokens, heads, width], `half` pairs of elements half apart turn, the rest is copied. A token's
// angle counts from starts[token] (documents; null: 0) or from at[row] (a continued sequence).
struct Turn {
  const int32_t *starts, *at;
  int64_t tokens, length, heads, width, half;
  float scale, sign;
};

__device__ __forceinline__ int64_t position_of(const Turn& t, int64_t token) {
  int64_t position = token % t.length;
  if (t.starts) position -= t.starts[token];
  if (t.at) position += t.at[token / t.length];
  return position;
}
struct Angle {
  float cosine, sine;
};
// A call, as sixteen copies of these functions take more registers than a thread has.
__device__ __attribute__((noinline)) Angle angle_of(float position, float frequency) {
  const float angle = position * frequency;
  return {cosf(angle), sinf(angle)};
}

template <class T>
__device__ __forceinline__ void turn_pairs(const T* x, T* y, const Turn& t,
                                           const Frequencies& frequencies) {
  const int64_t work = t.width - t.half;  // pairs, then elements to copy
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = i / work, element = i - token * work;
  if (token >= t.tokens) return;
  x += token * t.heads * t.width + element;
  y += token * t.heads * t.width + element;
  if (element >= t.half) {
    for (int64_t h = 0; h < t.heads; ++h) y[h * t.width + t.half] = x[h * t.width + t.half];
    return;
  }
  const Angle angle =
      angle_of(static_cast<float>(position_of(t, token)), frequencies.values[element]);
  const float c = angle.cosine * t.scale, s = angle.sine * t.scale * t.sign;
  for (int64_t h = 0; h < t.heads; ++h) {
    const float a = widen(x[h * t.width]), b = widen(x[h * t.width + t.half]);
    y[h * t.width] = narrow<T>(a * c - b * s);
    y[h * t.width + t.half] = narrow<T>(b * c + a * s);
  }
}

template <class T>
__device__ __forceinline__ void turn_vectors(const T* x, T* y, const Turn& t,
                                             const Frequencies& frequencies) {
  const int64_t work = (t.width - t.half) / kVector, groups = (t.heads + kTurnedHeads - 1) / kTurnedHeads;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = i / (work * groups), group = i / work % groups,
                element = i % work * kVector;
  if (token >= t.tokens) return;
  const int64_t first = (token * t.heads + group * kTurnedHeads) * t.width + element;
  x += first;
  y += first;
  const int heads = t.heads - group * kTurnedHeads < kTurnedHeads ? static_cast<int>(t.heads - group * kTurnedHeads)
                                                      : kTurnedHeads;
  if (element >= t.half) {
    for (int h = 0; h < heads; ++h)
      store(y + h * t.width + t.half, load(x + h * t.width + t.half));
    return;
  }
  const auto position = static_cast<float>(position_of(t, token));
  float c[kVector], s[kVector];
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    const Angle angle = angle_of(position, frequencies.values[element + k]);
    c[k] = angle.cosine * t.scale;
    s[k] = angle.sine * t.scale * t.sign;
  }
  for (int h = 0; h < heads; ++h) {
    const Vector<T> low = load(x + h * t.width), high = load(x + h * t.width + t.half);
    Vector<T> new_low, new_high;
#pragma unroll
    for (int k = 0; k < kVector; ++k) {
      const float a = widen(low.x[k]), b = widen(high.x[k]);
      new_low.x[k] = narrow<T>(a * c[k] - b * s[k]);
      new_high.x[k] = narrow<T>(b * c[k] + a * s[k]);
    }
    store(y + h * t.width, new_low);
    store(y + h * t.width + t.half, new_high);
  }
}

}  // namespace

#define TESSERA_ROPE(suffix, T)                                                                   \
  TESSERA_KERNEL(256, rope_##suffix, const T* x, T* y, const int32_t* starts, const int32_t* at,  \
                 int64_t tokens, int64_t length, int64_t heads, int64_t width, int64_t half,      \
                 float scale, float sign, int32_t vectors, Frequencies frequencies) {             \
    const Turn t{starts, at, tokens, length, heads, width, half, scale, sign};                    \
    if (vectors) {                                                                                \
      turn_vectors<T>(x, y, t, frequencies);                                                      \
    } else {                                                                                      \
      turn_pairs<T>(x, y, t, frequencies);                                                        \
    }                                                                                             \
  }
TESSERA_ROPE(f32, float)
TESSERA_ROPE(bf16, Bf16)

}  // namespace tessera::cuda
