// rope and rope_at: a thread turns a pair of elements of all heads of a token, for which it makes
// the cosine and the sine once.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

// x [tokens, heads, width], `half` pairs of elements half apart turn, the rest is copied. A token's
// angle counts from starts[token] (documents; null: 0) or from at[row] (a continued sequence).
template <class T>
__device__ __forceinline__ void turn(const T* x, T* y, const int32_t* starts, const int32_t* at,
                                     int64_t tokens, int64_t length, int64_t heads, int64_t width,
                                     int64_t half, float scale, float sign,
                                     const Frequencies& frequencies) {
  const int64_t work = width - half;  // pairs, then elements to copy
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t token = i / work, element = i - token * work;
  if (token >= tokens) return;
  x += token * heads * width;
  y += token * heads * width;
  if (element >= half) {
    for (int64_t h = 0; h < heads; ++h) y[h * width + half + element] = x[h * width + half + element];
    return;
  }
  int64_t position = token % length;
  if (starts) position -= starts[token];
  if (at) position += at[token / length];
  const float angle = static_cast<float>(position) * frequencies.values[element];
  const float c = cosf(angle) * scale, s = sinf(angle) * scale * sign;
  for (int64_t h = 0; h < heads; ++h) {
    const float a = widen(x[h * width + element]), b = widen(x[h * width + element + half]);
    y[h * width + element] = narrow<T>(a * c - b * s);
    y[h * width + element + half] = narrow<T>(b * c + a * s);
  }
}

}  // namespace

#define TESSERA_ROPE(suffix, T)                                                                   \
  TESSERA_KERNEL(256, rope_##suffix, const T* x, T* y, const int32_t* starts, const int32_t* at,  \
                 int64_t tokens, int64_t length, int64_t heads, int64_t width, int64_t half,      \
                 float scale, float sign, Frequencies frequencies) {                              \
    turn<T>(x, y, starts, at, tokens, length, heads, width, half, scale, sign, frequencies);      \
  }
TESSERA_ROPE(f32, float)
TESSERA_ROPE(bf16, Bf16)

}  // namespace tessera::cuda
