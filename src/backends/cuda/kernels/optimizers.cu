// adamw, sgd and lion on flat buffers that hold many parameters: one launch, eight elements a thread
// and step. Results may be the operands.
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

// Buffers that an update reads and writes, and the gradient.
template <int kBuffers>
struct Buffers {
  const float* x[kBuffers];
  float* y[kBuffers];
  const float* g;
};

// update(decay, values, gradient) on the values of each element, which may lie where they lay.
template <int kBuffers, class Update>
__device__ __forceinline__ void update_elements(const Buffers<kBuffers>& b, int64_t n,
                                                const int64_t* begins, const float* decays,
                                                int64_t segments, Update update) {
  bool vectors = aligned(b.g);
  for (int j = 0; j < kBuffers; ++j) vectors = vectors && aligned(b.x[j]) && aligned(b.y[j]);
  for (int64_t first = first_element(); first < n;
       first += static_cast<int64_t>(gridDim.x) * blockDim.x * kVector) {
    int64_t segment = segment_of(begins, segments, first);
    float decay = decays[segment];
    const int64_t end = segment + 1 < segments && begins[segment + 1] < n ? begins[segment + 1] : n;
    if (vectors && first + kVector <= end) {
      const Vector<float> g = load(b.g + first);
      Vector<float> v[kBuffers];
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) v[j] = load(b.x[j] + first);
#pragma unroll
      for (int k = 0; k < kVector; ++k) {
        float values[kBuffers];
#pragma unroll
        for (int j = 0; j < kBuffers; ++j) values[j] = v[j].x[k];
        update(decay, values, g.x[k]);
#pragma unroll
        for (int j = 0; j < kBuffers; ++j) v[j].x[k] = values[j];
      }
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) store(b.y[j] + first, v[j]);
      continue;
    }
    for (int64_t i = first; i < n && i < first + kVector; ++i) {
      while (segment + 1 < segments && begins[segment + 1] <= i) decay = decays[++segment];
      float values[kBuffers];
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) values[j] = b.x[j][i];
      update(decay, values, b.g[i]);
#pragma unroll
      for (int j = 0; j < kBuffers; ++j) b.y[j][i] = values[j];
    }
  }
}

// Where an update is left out its operands are kept.
__device__ __forceinline__ void keep(const float* x, float* y, int64_t n) {
  if (x == y) return;
  for (int64_t first = first_element(); first < n;
       first += static_cast<int64_t>(gridDim.x) * blockDim.x * kVector)
    for (int64_t i = first; i < n && i < first + kVector; ++i) y[i] = x[i];
}

__device__ __forceinline__ float sign_of(float x) {
  return x > 0 ? 1.0f : x < 0 ? -1.0f : x;  // NaN stays NaN
}

}  // namespace

TESSERA_KERNEL(256, adamw, const float* w, const float* m, const float* v, const float* g,
               const float* lr_of, const float* scale_of, const uint8_t* ok, const int64_t* step_of,
               const int64_t* begins, const float* decays, float* new_w, float* new_m, float* new_v,
               int64_t n, int64_t segments, double beta1, double beta2, double epsilon) {
  if (!*ok) {
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
  update_elements<3>({{w, m, v}, {new_w, new_m, new_v}, g}, n, begins, decays, segments,
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
