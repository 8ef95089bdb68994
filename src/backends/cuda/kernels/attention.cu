// Attention in bf16 by tensor cores, in tiles whose scores never leave the registers (Dao 2023),
// widths up to 128 that are multiples of 8. 128 threads, 16 rows a warp. The gradients are two
// kernels, of queries and of keys, each of which sums in a fixed order.
#include "attention_tiles.cuh"

namespace tessera::cuda {
namespace {

constexpr int kRows = 64;  // of a block

// Which of a thread's scores are kept, bit 4 j + e for score[j][e]: rows are queries t and t + 8,
// columns keys from u on. The queries of a call are four neighbouring rows of the warp.
template <int kKeys>
__device__ __forceinline__ uint32_t kept_by_rows(const ProbabilityDropout& dropout, int t, int u) {
  return kept_of_four<kKeys / 4>(t % 4, 4, 8, [&](int i) {
    const RandomWords words = dropout.words(t + i % 2 * 8, u + i / 2 * 8);
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) kept |= dropout.keeps(words, n) << (n % 4 * 2 + n / 4);
    return kept;
  });
}
// The same where rows are keys u and u + 8, columns queries from t on: a call has two neighbouring
// rows, and of each the columns of two threads.
template <int kQueries>
__device__ __forceinline__ uint32_t kept_by_columns(const ProbabilityDropout& dropout, int t,
                                                    int u) {
  return kept_of_four<kQueries / 4>(t / 2 % 2 + u % 2 * 2, 1, 4, [&](int i) {
    const RandomWords words = dropout.words(t + i / 2 * 8, u + i % 2 * 8);
    uint32_t kept = 0;
#pragma unroll
    for (int n = 0; n < 8; ++n) kept |= dropout.keeps(words, n) << n;
    return kept;
  });
}

template <int kWidth, bool kDropout>
__device__ __forceinline__ void attention_forward(const Bf16* q, const Bf16* k, const Bf16* v,
                                                  Bf16* o, float* lse, const int32_t* starts,
                                                  const int64_t* keys, const int32_t* first_head,
                                                  const AttentionShape& s) {
  constexpr int kTile = kRows * kWidth / 8;
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // q, then two stages of k and v
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t head = blockIdx.y, b = blockIdx.z;
  const int t0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // long ones first
  const int64_t q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width,
                q_begin = b * s.tokens * q_stride + head * s.width,
                kv_begin =
                    b * s.tokens * kv_stride + head / (s.heads / s.kv_heads) * s.width;
  const SeenKeys of_first = seen_keys(s, starts, b, t0),
                 of_last = seen_keys(s, starts, b, t0 + kRows - 1);
  const int begin = of_first.first / kRows, end = of_last.last / kRows + 1;  // tiles of keys
  const int t = t0 + warp * 16 + lane / 4;  // and t + 8
  const SeenKeys seen[2] = {seen_keys(s, starts, b, t), seen_keys(s, starts, b, t + 8)};
  auto load = [&](int tile) {
    uint4* to = tiles + kTile * (1 + (tile - begin) % 2 * 2);
    if (tile < end) {
      load_rows<kRows, kWidth>(to, k + kv_begin, kv_stride, static_cast<int64_t>(tile) * kRows, s.tokens,
                               s.width);
      load_rows<kRows, kWidth>(to + kTile, v + kv_begin, kv_stride, static_cast<int64_t>(tile) * kRows, s.tokens,
                               s.width);
    }
    copy_async_commit();
  };
  load_rows<kRows, kWidth>(tiles, q + q_begin, q_stride, t0, s.tokens, s.width);
  load(begin);
  const float scale = s.scale * kLog2e;
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, out[kWidth / 8][4] = {};
  for (int tile = begin; tile < end; ++tile) {
    load(tile + 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *tile_k = tiles + kTile * (1 + (tile - begin) % 2 * 2), *tile_v = tile_k + kTile;
    float score[kRows / 8][4] = {};
    multiply_rows<kWidth, kRows>(score, tiles, warp * 16, tile_k, lane);
    const int u0 = tile * kRows;
    const bool all = u0 >= of_last.first && u0 + kRows - 1 <= of_first.last;
    float top[2] = {highest[0], highest[1]};
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int u = u0 + j * 8 + lane % 4 * 2 + e % 2;
        score[j][e] = all || seen[e / 2].has(u) ? score[j][e] * scale : -INFINITY;
        top[e / 2] = fmaxf(top[e / 2], score[j][e]);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
      top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
      // A row of which nothing was seen so far has no sum either.
      const float fade =
          highest[half] == -INFINITY ? 0.0f : exp2_approximate(highest[half] - top[half]);
      highest[half] = top[half];
      sum[half] *= fade;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
        out[j][half * 2] *= fade;
        out[j][half * 2 + 1] *= fade;
      }
    }
    uint32_t kept = 0;
    if constexpr (kDropout)
      kept = kept_by_rows<kRows>({s, keys, first_head, b, head}, t, u0 + lane % 4 * 2);
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const float p =
            score[j][e] == -INFINITY ? 0.0f : exp2_approximate(score[j][e] - highest[half]);
        sum[half] += p;
        score[j][e] = !kDropout ? p : kept >> (4 * j + e) & 1u ? p * s.keep_scale : 0.0f;
      }
    }
    multiply_terms<kWidth, kRows>(out, score, tile_v, lane);
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    factor[half] = 1 / sum[half];
    const int64_t row = t + half * 8;
    if (lane % 4 == 0 && row < s.tokens)
      lse[(b * s.heads + head) * s.tokens + row] =
          (highest[half] + log2_approximate(sum[half])) * kLn2;
  }
  store_rows<kWidth>(o + q_begin, q_stride, t0 + warp * 16, s.tokens, s.width, out, factor, lane);
}

// dq of 64 queries, over the keys that they see, kKeys at a time.
template <int kWidth, int kKeys, bool kDropout>
__device__ __forceinline__ void attention_dq(const Bf16* q, const Bf16* k, const Bf16* v,
                                             const float* lse, const Bf16* dout, const float* delta,
                                             Bf16* dq, const int32_t* starts, const int64_t* keys,
                                             const int32_t* first_head, const AttentionShape& s) {
  constexpr int kTile = kRows * kWidth / 8, kKeyTile = kKeys * kWidth / 8;
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // q, do, then two stages of k and v
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t head = blockIdx.y, b = blockIdx.z;
  const int t0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int64_t q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width,
                q_begin = b * s.tokens * q_stride + head * s.width,
                kv_begin =
                    b * s.tokens * kv_stride + head / (s.heads / s.kv_heads) * s.width;
  const SeenKeys of_first = seen_keys(s, starts, b, t0),
                 of_last = seen_keys(s, starts, b, t0 + kRows - 1);
  const int begin = of_first.first / kKeys, end = of_last.last / kKeys + 1;
  const int t = t0 + warp * 16 + lane / 4;
  const SeenKeys seen[2] = {seen_keys(s, starts, b, t), seen_keys(s, starts, b, t + 8)};
  float lse_of[2], delta_of[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = t + half * 8, at = (b * s.heads + head) * s.tokens + row;
    lse_of[half] = row < s.tokens ? lse[at] * kLog2e : INFINITY;
    delta_of[half] = row < s.tokens ? delta[at] : 0.0f;
  }
  auto load = [&](int tile) {
    uint4* to = tiles + 2 * kTile + (tile - begin) % 2 * 2 * kKeyTile;
    if (tile < end) {
      load_rows<kKeys, kWidth>(to, k + kv_begin, kv_stride, static_cast<int64_t>(tile) * kKeys, s.tokens,
                               s.width);
      load_rows<kKeys, kWidth>(to + kKeyTile, v + kv_begin, kv_stride, static_cast<int64_t>(tile) * kKeys, s.tokens,
                               s.width);
    }
    copy_async_commit();
  };
  load_rows<kRows, kWidth>(tiles, q + q_begin, q_stride, t0, s.tokens, s.width);
  load_rows<kRows, kWidth>(tiles + kTile, dout + q_begin, q_stride, t0, s.tokens, s.width);
  load(begin);
  const float scale = s.scale * kLog2e;
  float sums[kWidth / 8][4] = {};
  for (int tile = begin; tile < end; ++tile) {
    load(tile + 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *tile_k = tiles + 2 * kTile + (tile - begin) % 2 * 2 * kKeyTile,
                *tile_v = tile_k + kKeyTile;
    float score[kKeys / 8][4] = {}, slope[kKeys / 8][4] = {};
    multiply_rows<kWidth, kKeys>(score, tiles, warp * 16, tile_k, lane);
    multiply_rows<kWidth, kKeys>(slope, tiles + kTile, warp * 16, tile_v, lane);
    const int column = tile * kKeys + lane % 4 * 2;
    uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_by_rows<kKeys>({s, keys, first_head, b, head}, t, column);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const float p = seen[half].has(column + j * 8 + e % 2)
                            ? exp2_approximate(fmaf(score[j][e], scale, -lse_of[half]))
                            : 0.0f;
        const float dp = !kDropout                     ? slope[j][e]
                         : kept >> (4 * j + e) & 1u ? slope[j][e] * s.keep_scale
                                                    : 0.0f;
        slope[j][e] = p * (dp - delta_of[half]);
      }
    }
    multiply_terms<kWidth, kKeys>(sums, slope, tile_k, lane);
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  const float factor[2] = {s.scale, s.scale};
  store_rows<kWidth>(dq + q_begin, q_stride, t0 + warp * 16, s.tokens, s.width, sums, factor, lane);
}

// dk and dv of 64 keys, over the heads that read them and the queries that see them, kQueries at a
// time. Scores are transposed: rows are keys.
template <int kWidth, int kQueries, bool kDropout>
__device__ __forceinline__ void attention_dkv(const Bf16* q, const Bf16* k, const Bf16* v,
                                              const float* lse, const Bf16* dout,
                                              const float* delta, Bf16* dk, Bf16* dv,
                                              const int32_t* starts, const int64_t* keys,
                                              const int32_t* first_head, const AttentionShape& s) {
  constexpr int kTile = kRows * kWidth / 8, kQueryTile = kQueries * kWidth / 8;
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // k, v, then two stages of q and do
  __shared__ float lse_of[2][kQueries], delta_of[2][kQueries];
  __shared__ int32_t start_of[2][kQueries];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int u0 = static_cast<int>(blockIdx.x) * kRows, group = static_cast<int>(s.heads / s.kv_heads),
            tokens = static_cast<int>(s.tokens), window = static_cast<int>(s.window);
  const int64_t q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width,
                kv_begin = b * s.tokens * kv_stride + kv_head * s.width;
  // Tiles of queries: of the first one that sees one of the keys to the last.
  int last = tokens - 1;
  if (window > 0 && window < tokens && u0 + kRows - 1 + window - 1 < last)
    last = u0 + kRows - 1 + window - 1;
  const int begin = s.causal ? u0 / kQueries : 0;
  int end = last / kQueries + 1;
  if (starts) {
    while (end > begin + 1 && starts[b * s.tokens + (end - 1) * kQueries] > u0 + kRows - 1) --end;
  }
  const int tiles_a_head = end - begin, count = tiles_a_head * group;
  auto load = [&](int number) {
    if (number < count) {
      const int stage = number % 2, t0 = (begin + number % tiles_a_head) * kQueries;
      const int64_t head = kv_head * group + number / tiles_a_head,
                    from = b * s.tokens * q_stride + head * s.width;
      uint4* to = tiles + 2 * kTile + stage * 2 * kQueryTile;
      load_rows<kQueries, kWidth>(to, q + from, q_stride, t0, s.tokens, s.width);
      load_rows<kQueries, kWidth>(to + kQueryTile, dout + from, q_stride, t0, s.tokens, s.width);
      if (threadIdx.x < kQueries) {
        const int64_t t = t0 + threadIdx.x, at = (b * s.heads + head) * s.tokens + t;
        lse_of[stage][threadIdx.x] = t < s.tokens ? lse[at] * kLog2e : INFINITY;
        delta_of[stage][threadIdx.x] = t < s.tokens ? delta[at] : 0.0f;
        start_of[stage][threadIdx.x] = starts && t < s.tokens ? starts[b * s.tokens + t] : 0;
      }
    }
    copy_async_commit();
  };
  load_rows<kRows, kWidth>(tiles, k + kv_begin, kv_stride, u0, s.tokens, s.width);
  load_rows<kRows, kWidth>(tiles + kTile, v + kv_begin, kv_stride, u0, s.tokens, s.width);
  load(0);
  const float scale = s.scale * kLog2e;
  const int u = u0 + warp * 16 + lane / 4;  // and u + 8
  float sums_k[kWidth / 8][4] = {}, sums_v[kWidth / 8][4] = {};
  for (int number = 0; number < count; ++number) {
    load(number + 1);
    copy_async_wait<1>();
    __syncthreads();
    const int stage = number % 2, t0 = (begin + number % tiles_a_head) * kQueries;
    const uint4 *tile_q = tiles + 2 * kTile + stage * 2 * kQueryTile, *tile_do = tile_q + kQueryTile;
    uint32_t kept = 0;  // first: beside the scores there would not be registers for it
    if constexpr (kDropout) {
      const int64_t head = kv_head * group + number / tiles_a_head;
      kept = kept_by_columns<kQueries>({s, keys, first_head, b, head}, t0 + lane % 4 * 2, u);
    }
    float score[kQueries / 8][4] = {}, slope[kQueries / 8][4] = {};
    multiply_rows<kWidth, kQueries>(score, tiles, warp * 16, tile_q, lane);
    multiply_rows<kWidth, kQueries>(slope, tiles + kTile, warp * 16, tile_do, lane);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = j * 8 + lane % 4 * 2 + e % 2;
        const int t = t0 + column, key = u + e / 2 * 8;
        bool seen = t < tokens && key < tokens;
        if (s.causal)
          seen = seen && key <= t && (window == 0 || t - key < window) &&
                 start_of[stage][column] <= key;
        const float p =
            seen ? exp2_approximate(fmaf(score[j][e], scale, -lse_of[stage][column])) : 0.0f;
        const float factor = !kDropout ? 1.0f : kept >> (4 * j + e) & 1u ? s.keep_scale : 0.0f;
        score[j][e] = p * factor;
        slope[j][e] = p * (slope[j][e] * factor - delta_of[stage][column]);
      }
    }
    multiply_terms<kWidth, kQueries>(sums_v, score, tile_do, lane);
    multiply_terms<kWidth, kQueries>(sums_k, slope, tile_q, lane);
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  const float one[2] = {1.0f, 1.0f}, factor[2] = {s.scale, s.scale};
  store_rows<kWidth>(dk + kv_begin, kv_stride, u0 + warp * 16, s.tokens, s.width, sums_k, factor,
                     lane);
  store_rows<kWidth>(dv + kv_begin, kv_stride, u0 + warp * 16, s.tokens, s.width, sums_v, one,
                     lane);
}

}  // namespace

// starts and first_head may be null; keys are those of dropout. Names end with the width of the
// tiles; `other` rows of the other side are worked on at a time in the gradients.
#define TESSERA_ATTENTION_OF(suffix, width, other, dropout)                                        \
  TESSERA_KERNEL(128, attention_##suffix, const Bf16* q, const Bf16* k, const Bf16* v, Bf16* o,    \
                 float* lse, const int32_t* starts, const int64_t* keys,                           \
                 const int32_t* first_head, AttentionShape shape) {                                \
    attention_forward<width, dropout>(q, k, v, o, lse, starts, keys, first_head, shape);           \
  }                                                                                                \
  TESSERA_KERNEL(128, attention_dq_##suffix, const Bf16* q, const Bf16* k, const Bf16* v,          \
                 const float* lse, const Bf16* dout, const float* delta, Bf16* dq,                 \
                 const int32_t* starts, const int64_t* keys, const int32_t* first_head,            \
                 AttentionShape shape) {                                                           \
    attention_dq<width, other, dropout>(q, k, v, lse, dout, delta, dq, starts, keys, first_head, shape);  \
  }                                                                                                \
  TESSERA_KERNEL(128, attention_dkv_##suffix, const Bf16* q, const Bf16* k, const Bf16* v,         \
                 const float* lse, const Bf16* dout, const float* delta, Bf16* dk, Bf16* dv,       \
                 const int32_t* starts, const int64_t* keys, const int32_t* first_head,            \
                 AttentionShape shape) {                                                           \
    attention_dkv<width, other, dropout>(q, k, v, lse, dout, delta, dk, dv, starts, keys,        \
                                           first_head, shape);                                     \
  }
#define TESSERA_ATTENTION(width, other)                            \
  TESSERA_ATTENTION_OF(bf16_##width, width, other, false)          \
  TESSERA_ATTENTION_OF(dropout_bf16_##width, width, other / 2, true)
// With dropout half as many rows at a time: there would not be registers for more.
TESSERA_ATTENTION(64, 64)
TESSERA_ATTENTION(128, 32)

}  // namespace tessera::cuda
