// adamw, sgd and lion on flat buffers that hold many parameters: one launch, eight elements a thread
// and step. Results may be the operands. adamw also writes its weights in bf16 where it is asked to.
#include "elements.cuh"

namespace tessera::cuda {
namespace {

// Which segment of an ascending table, beginning with 0, holds element i: the last that begins at or
// before it.
__device__ __forceinline__ int64_t segment_of(const int64_t* begins, int64_t count, int64_t i) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (begins[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Buffers that an update reads and writes, the gradient, and the first result rounded, or null.
template <int kBuffers>
struct Buffers {
  const float* x[kBuffers];
  float* y[kBuffers];
  const float* g;
  Bf16* rounded = nullptr;
};

// Four neighbours of f32, 16 bytes: those of a warp's threads are neighbours too, so that no store
// writes half of a sector.
constexpr int kFour = 4;
struct alignas(16) Four {
  float x[kFour];
};
__device__ __forceinline__ Four load_four(const float* p) {
  return *reinterpret_cast<const Four*>(p);
}

// update(decay, values, gradient) on the values of each element, which may lie where they lay. A
// thread takes two fours at a time.
template <int kBuffers, class Update>
__device__ __forceinline__ void update_elements(const Buffers<kBuffers>& b, int64_t n,
                                                const int64_t* begins, const float* decays,
                                                int64_t segments, Update update) {
  constexpr int kParts = kVector / kFour;
  bool vectors = aligned(b.g) && aligned(b.rounded);
  for (int j = 0; j < kBuffers; ++j) vectors = vectors && aligned(b.x[j]) && aligned(b.y[j]);
  const int64_t tile = static_cast<int64_t>(blockDim.x) * kVector;
  for (int64_t begin = blockIdx.x * tile; begin < n; begin += gridDim.x * tile) {
    int64_t segment[kParts];
    bool whole[kParts];
    Four g[kParts], v[kParts][kBuffers];
    const auto first_of = [&](int p) {
      return begin + (static_cast<int64_t>(p) * blockDim.x + threadIdx.x) * kFour;
    };
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int64_t first = first_of(p);
      segment[p] = first < n ? segment_of(begins, segments, first) : 0;
      const int64_t next = segment[p] + 1,
                    end = next < segments && begins[next] < n ? begins[next] : n;
      whole[p] = vectors && first + kFour <= end;
      if (!whole[p]) continue;
      g[p] = load_four(b.g + first);
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) v[p][j] = load_four(b.x[j] + first);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      const int64_t first = first_of(p);
      if (first >= n) continue;
      float decay = decays[segment[p]];
      if (!whole[p]) {
        int64_t of = segment[p];
        for (int64_t i = first; i < n && i < first + kFour; ++i) {
          while (of + 1 < segments && begins[of + 1] <= i) decay = decays[++of];
          float values[kBuffers];
#pragma unroll
          for (int j = 0; j < kBuffers; ++j) values[j] = b.x[j][i];
          update(decay, values, b.g[i]);
#pragma unroll
          for (int j = 0; j < kBuffers; ++j) b.y[j][i] = values[j];
          if (b.rounded) b.rounded[i] = narrow<Bf16>(values[0]);
        }
        continue;
      }
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        float values[kBuffers];
#pragma unroll
        for (int j = 0; j < kBuffers; ++j) values[j] = v[p][j].x[k];
        update(decay, values, g[p].x[k]);
#pragma unroll
        for (int j = 0; j < kBuffers; ++j) v[p][j].x[k] = values[j];
      }
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) *reinterpret_cast<Four*>(b.y[j] + first) = v[p][j];
      if (b.rounded) {
        const float(&x)[kFour] = v[p][0].x;
        *reinterpret_cast<uint2*>(b.rounded + first) = {pack_bf16(x[0], x[1]),
                                                        pack_bf16(x[2], x[3])};
      }
    }
  }
}

// y[i] = x[i], rounded to what y is.
template <class T>
__device__ __forceinline__ void copy_elements(const float* x, T* y, int64_t n) {
  for (int64_t first = first_element(); first < n;
       first += static_cast<int64_t>(gridDim.x) * blockDim.x * kVector)
    for (int64_t i = first; i < n && i < first + kVector; ++i) y[i] = narrow<T>(x[i]);
}

// Where an update is left out its operands are kept.
__device__ __forceinline__ void keep(const float* x, float* y, int64_t n) {
  if (x != y) copy_elements(x, y, n);
}

__device__ __forceinline__ float sign_of(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x;  // NaN stays NaN
}

}  // namespace

TESSERA_KERNEL(256, adamw, const float* w, const float* m, const float* v, const float* g,
               const float* lr_of, const float* scale_of, const uint8_t* ok, const int64_t* step_of,
               const int64_t* begins, const float* decays, float* new_w, float* new_m, float* new_v,
               Bf16* rounded, int64_t n, int64_t segments, double beta1, double beta2,
               double epsilon) {
  if (!*ok) {
    if (rounded) copy_elements(w, rounded, n);
    keep(w, new_w, n);
    keep(m, new_m, n);
    keep(v, new_v, n);
    return;
  }
  __shared__ float corrections[2];
  if (threadIdx.x == 0) {
    const auto step = static_cast<double>(*step_of);
    corrections[0] = static_cast<float>(1 / (1 - pow(beta1, step)));
    corrections[1] = static_cast<float>(1 / sqrt(1 - pow(beta2, step)));
  }
  __syncthreads();
  const float inverse_m = corrections[0], inverse_root_v = corrections[1];
  const float b1 = static_cast<float>(beta1), rest1 = static_cast<float>(1 - beta1),
              b2 = static_cast<float>(beta2), rest2 = static_cast<float>(1 - beta2),
              e = static_cast<float>(epsilon), lr = *lr_of, scale = *scale_of;
  update_elements<3>({{w, m, v}, {new_w, new_m, new_v}, g, rounded}, n, begins, decays, segments,
                     [&](float decay, float (&x)[3], float g_of) {
                       const float gradient = g_of * scale, weight = x[0];
                       x[1] = fmaf(b1, x[1], rest1 * gradient);
                       x[2] = fmaf(b2, x[2], rest2 * (gradient * gradient));
                       const float move =
                           x[1] * inverse_m / fmaf(sqrtf(x[2]), inverse_root_v, e);
                       x[0] = weight - lr * fmaf(decay, weight, move);
                     });
}

TESSERA_KERNEL(256, sgd, const float* w, const float* m, const float* g, const float* lr_of,
               const float* scale_of, const uint8_t* ok, const int64_t* begins, const float* decays,
               float* new_w, float* new_m, int64_t n, int64_t segments, double momentum) {
  if (!*ok) {
    keep(w, new_w, n);
    keep(m, new_m, n);
    return;
  }
  const float mu = static_cast<float>(momentum), lr = *lr_of, scale = *scale_of;
  update_elements<2>({{w, m}, {new_w, new_m}, g}, n, begins, decays, segments,
                     [&](float decay, float (&x)[2], float g_of) {
                       x[1] = fmaf(mu, x[1], fmaf(decay, x[0], g_of * scale));
                       x[0] -= lr * x[1];
                     });
}

TESSERA_KERNEL(256, lion, const float* w, const float* m, const float* g, const float* lr_of,
               const float* scale_of, const uint8_t* ok, const int64_t* begins, const float* decays,
               float* new_w, float* new_m, int64_t n, int64_t segments, double beta1,
               double beta2) {
  if (!*ok) {
    keep(w, new_w, n);
    keep(m, new_m, n);
    return;
  }
  const float b1 = static_cast<float>(beta1), rest1 = static_cast<float>(1 - beta1),
              b2 = static_cast<float>(beta2), rest2 = static_cast<float>(1 - beta2), lr = *lr_of,
              scale = *scale_of;
  update_elements<2>({{w, m}, {new_w, new_m}, g}, n, begins, decays, segments,
                     [&](float decay, float (&x)[2], float g_of) {
                       const float gradient = g_of * scale;
                       // Not fused: whether this is 0 decides about a step.
                       const float direction = sign_of(b1 * x[1] + rest1 * gradient);
                       x[1] = fmaf(b2, x[1], rest2 * gradient);
                       x[0] -= lr * fmaf(decay, x[0], direction);
                     });
}

}  // namespace tessera::cuda
