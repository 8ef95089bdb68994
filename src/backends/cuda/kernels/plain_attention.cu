// Attention by fused multiply-adds, for every dtype, mask and width up to 256: a warp a query (a key
// for the gradients of keys and values), 32 keys at a time, each lane the score of one of them. 8
// warps a block. Sums are in ascending order of keys, queries and heads.
#include "random.cuh"
#include "sums.cuh"

namespace tessera::cuda {
namespace {

constexpr int kWarps = 8, kEach = 8;  // elements of a head that a lane has: lane, lane + 32, ...

template <class T>
__device__ __forceinline__ float dot(const T* a, const T* b, int64_t width) {
  float sum = 0;
  if (width % kVector == 0 && aligned(a) && aligned(b)) {
    for (int64_t d = 0; d < width; d += kVector) {
      const Vector<T> x = load(a + d), y = load(b + d);
#pragma unroll
      for (int k = 0; k < kVector; ++k) sum = fmaf(widen(x.x[k]), widen(y.x[k]), sum);
    }
  } else {
    for (int64_t d = 0; d < width; ++d) sum = fmaf(widen(a[d]), widen(b[d]), sum);
  }
  return sum;
}

// sums += factors[i] * rows[i * stride] for i < count.
template <class T>
__device__ __forceinline__ void add_rows(float (&sums)[kEach], const float* factors, const T* rows,
                                         int64_t stride, int count, int64_t width, int lane) {
  for (int i = 0; i < count; ++i) {
    const float f = factors[i];
    const T* row = rows + i * stride;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int d = lane + 32 * j;
      if (d < width) sums[j] = fmaf(f, widen(row[d]), sums[j]);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_head(T* y, const float (&v)[kEach], float factor,
                                           int64_t width, int lane) {
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int d = lane + 32 * j;
    if (d < width) y[d] = narrow<T>(v[j] * factor);
  }
}

// What a probability is multiplied by: 0 where it is dropped.
struct Dropout {
  const int64_t* keys;
  int64_t first_head;
  __device__ __forceinline__ float factor(const AttentionShape& s, int64_t b, int64_t head,
                                          int64_t t, int64_t u) const {
    if (!keys) return 1.0f;
    const int64_t blocks = (s.tokens + 63) / 64;
    const int64_t line =
        ((first_head + head) * ((s.tokens + 1) / 2) + u / 2) * blocks + t / 64;
    const auto index = static_cast<uint64_t>(line * 128 + u % 2 * 64 + t % 64);
    const bool keep = random_bits16(static_cast<uint64_t>(keys[b]), s.stream, index) >= s.threshold;
    return keep ? s.keep_scale : 0.0f;
  }
};
__device__ __forceinline__ Dropout dropout_of(const int64_t* keys, const int32_t* first_head) {
  return {keys, first_head ? *first_head : 0};
}

// Keys [first, last] that query t of row b sees.
struct Seen {
  int64_t first, last;
};
__device__ __forceinline__ Seen seen_by(const AttentionShape& s, const int32_t* starts, int64_t b,
                                        int64_t t) {
  if (!s.causal) return {0, s.tokens - 1};
  int64_t first = s.window > 0 && t >= s.window ? t - s.window + 1 : 0;
  if (starts && starts[b * s.tokens + t] > first) first = starts[b * s.tokens + t];
  return {first, t};
}

// o = sum of factor(u) softmax(scale q k_u) v_u over the keys seen; returns their log-sum-exp.
template <class T, class Factor>
__device__ __forceinline__ float attend(const T* q, const T* k, const T* v, T* o, int64_t stride,
                                        int64_t width, float scale, Seen seen, float* weights,
                                        int lane, Factor factor) {
  float highest = -INFINITY, sum = 0, out[kEach] = {};
  for (int64_t first = seen.first; first <= seen.last; first += 32) {
    const int64_t u = first + lane;
    const bool inside = u <= seen.last;
    const float score = inside ? dot(q, k + u * stride, width) * scale : -INFINITY;
    const float next = larger(highest, warp_max(score));
    const float p = inside ? expf(score - next) : 0.0f, fade = expf(highest - next);
    sum = fmaf(sum, fade, p);
    highest = next;
#pragma unroll
    for (int j = 0; j < kEach; ++j) out[j] *= fade;
    weights[lane] = inside ? p * factor(u) : 0.0f;
    __syncwarp();
    const int count = seen.last - first < 31 ? static_cast<int>(seen.last - first) + 1 : 32;
    add_rows(out, weights, v + first * stride, stride, count, width, lane);
    __syncwarp();
  }
  sum = warp_sum(sum);
  store_head(o, out, seen.last < seen.first ? 0.0f : 1 / sum, width, lane);
  return highest + logf(sum);
}

// Which row, head and token a warp works on.
struct Place {
  int64_t row, head, token;
};
__device__ __forceinline__ bool place_of(int64_t batch, int64_t heads, int64_t tokens, Place& p) {
  int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (warp >= batch * heads * tokens) return false;
  p.token = warp % tokens;
  warp /= tokens;
  p.head = warp % heads;
  p.row = warp / heads;
  return true;
}

template <class T>
__device__ __forceinline__ void attention_forward(const T* q, const T* k, const T* v, T* o,
                                                  float* lse, const int32_t* starts,
                                                  const int64_t* keys, const int32_t* first_head,
                                                  const AttentionShape& s) {
  __shared__ float weights[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Place p;
  if (!place_of(s.batch, s.heads, s.tokens, p)) return;
  const int64_t at = ((p.row * s.tokens + p.token) * s.heads + p.head) * s.width,
                stride = s.kv_heads * s.width,
                kv = p.row * s.tokens * stride + p.head / (s.heads / s.kv_heads) * s.width;
  const Dropout dropout = dropout_of(keys, first_head);
  const float of_row =
      attend(q + at, k + kv, v + kv, o + at, stride, s.width, s.scale,
             seen_by(s, starts, p.row, p.token), weights[threadIdx.x / 32], lane,
             [&](int64_t u) { return dropout.factor(s, p.row, p.head, p.token, u); });
  if (lane == 0) lse[(p.row * s.heads + p.head) * s.tokens + p.token] = of_row;
}

template <class T>
__device__ __forceinline__ void cached_attention(const T* q, const T* k, const T* v,
                                                 const int32_t* start, const int32_t* row, T* o,
                                                 const CachedShape& s) {
  __shared__ float weights[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Place p;
  if (!place_of(s.batch, s.heads, s.queries, p)) return;
  const int64_t at = ((p.row * s.queries + p.token) * s.heads + p.head) * s.width,
                stride = s.kv_heads * s.width;
  int64_t last = start[p.row] + p.token, cache = row[p.row];
  if (last >= s.capacity) last = s.capacity - 1;
  cache = cache < 0 ? 0 : cache < s.rows ? cache : s.rows - 1;
  const int64_t kv = cache * s.capacity * stride + p.head / (s.heads / s.kv_heads) * s.width,
                first = s.window > 0 && last >= s.window ? last - s.window + 1 : 0;
  attend(q + at, k + kv, v + kv, o + at, stride, s.width, s.scale, {first, last},
         weights[threadIdx.x / 32], lane, [](int64_t) { return 1.0f; });
}

// delta = sum of o do: a warp a query.
template <class T>
__device__ __forceinline__ void attention_delta(const T* o, const T* dout, float* delta,
                                                const AttentionShape& s) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Place p;
  if (!place_of(s.batch, s.heads, s.tokens, p)) return;
  const int64_t at = ((p.row * s.tokens + p.token) * s.heads + p.head) * s.width;
  float sum = 0;
  for (int64_t d = lane; d < s.width; d += 32)
    sum = fmaf(widen(o[at + d]), widen(dout[at + d]), sum);
  sum = warp_sum(sum);
  if (lane == 0) delta[(p.row * s.heads + p.head) * s.tokens + p.token] = sum;
}

// The same of rows that are whole vectors at aligned addresses, up to kWidth elements: row after row
// of [batch, tokens, heads], kWidth / 8 threads a row, a vector each.
template <int kWidth>
__device__ __forceinline__ void attention_delta_of_vectors(const Bf16* o, const Bf16* dout, float* delta,
                                                 const AttentionShape& s) {
  constexpr int kThreads = kWidth / 8;
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kThreads,
                rows = s.batch * s.tokens * s.heads;
  const int first = static_cast<int>(threadIdx.x) % kThreads * 8;
  float sum = 0;
  if (row < rows && first < s.width) {
    const Vector<Bf16> a = load(o + row * s.width + first), b = load(dout + row * s.width + first);
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum = fmaf(widen(a.x[k]), widen(b.x[k]), sum);
  }
#pragma unroll
  for (int d = kThreads / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (first != 0 || row >= rows) return;
  const int64_t token = row / s.heads, head = row - token * s.heads, b = token / s.tokens;
  delta[(b * s.heads + head) * s.tokens + token - b * s.tokens] = sum;
}

template <class T>
__device__ __forceinline__ void attention_dq(const T* q, const T* k, const T* v, const float* lse,
                                             const T* dout, const float* delta, T* dq,
                                             const int32_t* starts, const int64_t* keys,
                                             const int32_t* first_head, const AttentionShape& s) {
  __shared__ float weights[kWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* mine = weights[threadIdx.x / 32];
  Place p;
  if (!place_of(s.batch, s.heads, s.tokens, p)) return;
  const int64_t at = ((p.row * s.tokens + p.token) * s.heads + p.head) * s.width,
                stride = s.kv_heads * s.width,
                kv = p.row * s.tokens * stride + p.head / (s.heads / s.kv_heads) * s.width,
                statistic = (p.row * s.heads + p.head) * s.tokens + p.token;
  const Dropout dropout = dropout_of(keys, first_head);
  const Seen seen = seen_by(s, starts, p.row, p.token);
  float sums[kEach] = {};
  for (int64_t first = seen.first; first <= seen.last; first += 32) {
    const int64_t u = first + lane;
    float ds = 0;
    if (u <= seen.last) {
      const float score = dot(q + at, k + kv + u * stride, s.width) * s.scale;
      const float dp = dot(dout + at, v + kv + u * stride, s.width) *
                       dropout.factor(s, p.row, p.head, p.token, u);
      ds = expf(score - lse[statistic]) * (dp - delta[statistic]) * s.scale;
    }
    mine[lane] = ds;
    __syncwarp();
    const int count = seen.last - first < 31 ? static_cast<int>(seen.last - first) + 1 : 32;
    add_rows(sums, mine, k + kv + first * stride, stride, count, s.width, lane);
    __syncwarp();
  }
  store_head(dq + at, sums, 1.0f, s.width, lane);
}

// A warp a key: over the heads that read it and the queries that see it.
template <class T>
__device__ __forceinline__ void attention_dkv(const T* q, const T* k, const T* v, const float* lse,
                                              const T* dout, const float* delta, T* dk, T* dv,
                                              const int32_t* starts, const int64_t* keys,
                                              const int32_t* first_head, const AttentionShape& s) {
  __shared__ float weights[kWarps][2][32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float *probabilities = weights[threadIdx.x / 32][0], *slopes = weights[threadIdx.x / 32][1];
  Place p;
  if (!place_of(s.batch, s.kv_heads, s.tokens, p)) return;
  const int64_t at = ((p.row * s.tokens + p.token) * s.kv_heads + p.head) * s.width,
                stride = s.heads * s.width, group = s.heads / s.kv_heads, u = p.token;
  const Dropout dropout = dropout_of(keys, first_head);
  const int64_t begin = s.causal ? u : 0;
  int64_t last = s.tokens - 1;
  if (s.window > 0 && u + s.window - 1 < last) last = u + s.window - 1;
  float sums_k[kEach] = {}, sums_v[kEach] = {};
  for (int64_t head = p.head * group; head < (p.head + 1) * group; ++head) {
    const T *head_q = q + p.row * s.tokens * stride + head * s.width,
            *head_do = dout + p.row * s.tokens * stride + head * s.width;
    const int64_t statistics = (p.row * s.heads + head) * s.tokens;
    for (int64_t first = begin; first <= last; first += 32) {
      const int64_t t = first + lane;
      float kept = 0, ds = 0;
      if (t <= last && (!starts || starts[p.row * s.tokens + t] <= u)) {
        const float score = dot(head_q + t * stride, k + at, s.width) * s.scale;
        const float probability = expf(score - lse[statistics + t]);
        const float factor = dropout.factor(s, p.row, head, t, u);
        const float dp = dot(head_do + t * stride, v + at, s.width) * factor;
        kept = probability * factor;
        ds = probability * (dp - delta[statistics + t]) * s.scale;
      }
      probabilities[lane] = kept;
      slopes[lane] = ds;
      __syncwarp();
      const int count = last - first < 31 ? static_cast<int>(last - first) + 1 : 32;
      add_rows(sums_v, probabilities, head_do + first * stride, stride, count, s.width, lane);
      add_rows(sums_k, slopes, head_q + first * stride, stride, count, s.width, lane);
      __syncwarp();
    }
  }
  store_head(dk + at, sums_k, 1.0f, s.width, lane);
  store_head(dv + at, sums_v, 1.0f, s.width, lane);
}

}  // namespace

// starts, keys and first_head may be null.
#define TESSERA_PLAIN_ATTENTION(suffix, T)                                                         \
  TESSERA_LARGE_KERNEL(256, plain_attention_##suffix, const T* q, const T* k, const T* v, T* o,          \
                 float* lse, const int32_t* starts, const int64_t* keys,                           \
                 const int32_t* first_head, AttentionShape shape) {                                \
    attention_forward<T>(q, k, v, o, lse, starts, keys, first_head, shape);                        \
  }                                                                                                \
  TESSERA_KERNEL(256, cached_attention_##suffix, const T* q, const T* k, const T* v,               \
                 const int32_t* start, const int32_t* row, T* o, CachedShape shape) {              \
    cached_attention<T>(q, k, v, start, row, o, shape);                                            \
  }                                                                                                \
  TESSERA_KERNEL(256, attention_delta_##suffix, const T* o, const T* dout, float* delta,           \
                 AttentionShape shape) {                                                           \
    attention_delta<T>(o, dout, delta, shape);                                                     \
  }                                                                                                \
  TESSERA_LARGE_KERNEL(256, plain_attention_dq_##suffix, const T* q, const T* k, const T* v,             \
                 const float* lse, const T* dout, const float* delta, T* dq,                       \
                 const int32_t* starts, const int64_t* keys, const int32_t* first_head,            \
                 AttentionShape shape) {                                                           \
    attention_dq<T>(q, k, v, lse, dout, delta, dq, starts, keys, first_head, shape);               \
  }                                                                                                \
  TESSERA_LARGE_KERNEL(256, plain_attention_dkv_##suffix, const T* q, const T* k, const T* v,            \
                 const float* lse, const T* dout, const float* delta, T* dk, T* dv,                \
                 const int32_t* starts, const int64_t* keys, const int32_t* first_head,            \
                 AttentionShape shape) {                                                           \
    attention_dkv<T>(q, k, v, lse, dout, delta, dk, dv, starts, keys, first_head, shape);          \
  }
TESSERA_PLAIN_ATTENTION(f32, float)
TESSERA_PLAIN_ATTENTION(bf16, Bf16)
#define TESSERA_ATTENTION_DELTA(width)                                                          \
  TESSERA_KERNEL(256, attention_delta_bf16_##width, const Bf16* o, const Bf16* dout,            \
                 float* delta, AttentionShape shape) {                                           \
    attention_delta_of_vectors<width>(o, dout, delta, shape);                                              \
  }
TESSERA_ATTENTION_DELTA(64)
TESSERA_ATTENTION_DELTA(128)

}  // namespace tessera::cuda
