// The gradients of attention.cu. They are two kernels, of keys and of queries, each of which sums in
// a fixed order: the second computes scores again, or takes their gradients from memory where the
// first has left them.
#include "attention_tiles.cuh"

namespace tessera::cuda {
namespace {

// The same where rows are keys u and u + 8, columns queries from t on: a call has two neighbouring
// rows, and of each the columns of two threads.
template <int kQueries>
__device__ __forceinline__ uint32_t kept_by_columns(const ProbabilityDropout& dropout, int t,
                                                    int u) {
  const uint64_t first = dropout.call(static_cast<uint32_t>(t), static_cast<uint32_t>(u));
  return kept_of_four<kQueries / 4>(t / 2 % 2 + u % 2 * 2, 1, 4, [&](uint32_t i) {
    return dropout.kept(first + i / 2 * 2 + i % 2 * 4 * dropout.line_calls,
                        [](int n) { return n; });
  });
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
  const int begin = of_first.first / kKeys * kKeys;
  const float inverse_keep_scale = kDropout ? 1 / s.keep_scale : 1.0f;
  const int t = t0 + warp * 16 + lane / 4;
  float lse_of[2], delta_of[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = t + half * 8, at = (b * s.heads + head) * s.tokens + row;
    lse_of[half] = row < s.tokens ? lse[at] * kLog2e : INFINITY;
    delta_of[half] = row < s.tokens ? delta[at] * inverse_keep_scale : 0.0f;
  }
  RowLoader<kWidth> rows(k + kv_begin, v + kv_begin, kv_stride, begin, s.tokens, s.width);
  auto load = [&](int u0, int stage) {
    if (u0 <= of_last.last)
      rows.template load<kKeys>(tiles + 2 * kTile + stage * 2 * kKeyTile, u0);
    copy_async_commit();
  };
  RowLoader<kWidth>(q + q_begin, dout + q_begin, q_stride, t0, s.tokens, s.width)
      .template load<kRows>(tiles, t0);
  load(begin, 0);
  const float scale = s.scale * kLog2e;
  const ProbabilityDropout dropout(s, kDropout ? keys : nullptr, first_head, b, head);
  float sums[kWidth / 8][4] = {};
  for (int u0 = begin, stage = 0; u0 <= of_last.last; u0 += kKeys, stage ^= 1) {
    load(u0 + kKeys, stage ^ 1);
    const int column = u0 + lane % 4 * 2;
    uint32_t kept = 0;
    if constexpr (kDropout) kept = kept_by_rows<kKeys>(dropout, t, column);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *tile_k = tiles + 2 * kTile + stage * 2 * kKeyTile, *tile_v = tile_k + kKeyTile;
    float score[kKeys / 8][4] = {}, slope[kKeys / 8][4] = {};
    multiply_rows<kWidth, kKeys>(score, tiles, warp * 16, tile_k, lane);
    multiply_rows<kWidth, kKeys>(slope, tiles + kTile, warp * 16, tile_v, lane);
    if (u0 < of_last.first || u0 + kKeys - 1 > of_first.last)
      hide_unseen<kKeys>(score, s, starts, b, t, column);
    uint32_t slope_pairs[kKeys / 8][2];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int half = e / 2;
        const float p = exp2_approximate(fmaf(score[j][e], scale, -lse_of[half])),
                    dp = !kDropout || (kept & 1u << (4 * j + e)) ? slope[j][e] : 0.0f;
        slope[j][e] = p * (dp - delta_of[half]);
      }
      pack_pairs(slope_pairs[j], slope[j]);
    }
    multiply_terms<kWidth, kKeys>(sums, slope_pairs, tile_k, lane);
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  const float of_q = s.scale * (kDropout ? s.keep_scale : 1.0f), factor[2] = {of_q, of_q};
  store_rows<kWidth>(dq + q_begin, q_stride, t0 + warp * 16, s.tokens, s.width, sums, factor, lane);
}

// Gradients of scores, without the factors of scale and dropout, that the kernel of keys leaves for
// that of queries: of every query head of a launch [keys, queries], each side in whole tiles.
// The host counts the same bytes.
__device__ __forceinline__ int64_t slope_pitch(const AttentionShape& s) {
  return (s.tokens + kRows - 1) / kRows * kRows;
}

// dk and dv of 64 keys, over the heads that read them and the queries that see them, kQueries at a
// time. Scores are transposed: rows are keys. A launch is of some pairs of a row of the batch and a
// key/value head, from number `first_pair` on; in `slopes` it leaves the gradients of scores.
template <int kWidth, int kQueries, bool kDropout>
__device__ __forceinline__ void attention_dkv(const Bf16* q, const Bf16* k, const Bf16* v,
                                              const float* lse, const Bf16* dout,
                                              const float* delta, Bf16* dk, Bf16* dv, Bf16* slopes,
                                              const int32_t* starts, const int64_t* keys,
                                              const int32_t* first_head, int64_t first_pair,
                                              const AttentionShape& s) {
  constexpr int kTile = kRows * kWidth / 8, kQueryTile = kQueries * kWidth / 8,
                kParts = kRows / kQueries;  // of a tile of 64 queries
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // k, v, then two stages of q and do
  __shared__ float2 lse_of[2][kQueries / 2], delta_of[2][kQueries / 2];
  __shared__ int32_t start_of[2][kQueries];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto kv_head = static_cast<int>((first_pair + blockIdx.y) % s.kv_heads),
             b = static_cast<int>((first_pair + blockIdx.y) / s.kv_heads);
  const int u0 = static_cast<int>(blockIdx.x) * kRows,
            group = static_cast<int>(s.heads / s.kv_heads), tokens = static_cast<int>(s.tokens),
            window = static_cast<int>(s.window);
  const int64_t q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width,
                kv_begin = b * s.tokens * kv_stride + kv_head * s.width;
  // Tiles of queries: of the first one that sees one of the keys to the last; 64 queries are worked
  // on whole.
  int last = tokens - 1;
  if (window > 0 && window < tokens && u0 + kRows - 1 + window - 1 < last)
    last = u0 + kRows - 1 + window - 1;
  const int begin = s.causal ? u0 / kQueries : 0;
  int end = last / kQueries + 1;
  if (starts) {
    while (end > begin + 1 && starts[b * s.tokens + (end - 1) * kQueries] > u0 + kRows - 1) --end;
  }
  end = (end + kParts - 1) / kParts * kParts;
  const int t_begin = begin * kQueries, t_end = end * kQueries;
  const int64_t q_begin = b * s.tokens * q_stride + kv_head * group * s.width;
  const float inverse_keep_scale = kDropout ? 1 / s.keep_scale : 1.0f;
  // Queries of a head, then of the next one.
  RowLoader<kWidth> rows(q + q_begin, dout + q_begin, q_stride, t_begin, s.tokens, s.width);
  // Statistics of a query of the next tile, of the first threads. They are put into shared memory
  // when they have come; of wide heads at once, as there are no registers for them.
  constexpr bool kHolds = kWidth == 64;
  float next_lse = 0, next_delta = 0;
  int32_t next_start = 0;
  auto put_statistics = [&](int stage) {
    if (threadIdx.x >= kQueries) return;
    reinterpret_cast<float*>(lse_of[stage])[threadIdx.x] = next_lse * kLog2e;
    reinterpret_cast<float*>(delta_of[stage])[threadIdx.x] = next_delta * inverse_keep_scale;
    start_of[stage][threadIdx.x] = next_start;
  };
  auto load = [&](int member, int t0, int stage) {
    if (member < group) {
      rows.template load<kQueries>(tiles + 2 * kTile + stage * 2 * kQueryTile, t0);
      const int t = t0 + static_cast<int>(threadIdx.x);
      const bool there = threadIdx.x < kQueries && t < tokens;
      const int64_t at = (b * s.heads + kv_head * group + member) * s.tokens + t;
      next_lse = there ? lse[at] : INFINITY;
      next_delta = there ? delta[at] : 0.0f;
      next_start = starts && there ? starts[b * s.tokens + t] : 0;
      if (!kHolds) put_statistics(stage);
      if (t0 + kQueries == t_end) rows.skip(s.width - (t_end - t_begin) * q_stride);
    }
    copy_async_commit();
  };
  RowLoader<kWidth>(k + kv_begin, v + kv_begin, kv_stride, u0, s.tokens, s.width)
      .template load<kRows>(tiles, u0);
  load(0, t_begin, 0);
  if (kHolds) put_statistics(0);
  const float scale = s.scale * kLog2e;
  ProbabilityDropout dropout(s, kDropout ? keys : nullptr, first_head, b,
                             static_cast<int64_t>(kv_head) * group);
  const int u = u0 + warp * 16 + lane / 4;  // and u + 8
  float sums_k[kWidth / 8][4] = {}, sums_v[kWidth / 8][4] = {};
  for (int member = 0, t0 = t_begin, stage = 0; member < group; stage ^= 1) {
    const bool ends = t0 + kQueries == t_end;
    const int next_member = member + ends, next_t0 = ends ? t_begin : t0 + kQueries;
    load(next_member, next_t0, stage ^ 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *tile_q = tiles + 2 * kTile + stage * 2 * kQueryTile,
                *tile_do = tile_q + kQueryTile;
    uint32_t kept = 0;  // before there are scores in registers
    if constexpr (kDropout) kept = kept_by_columns<kQueries>(dropout, t0 + lane % 4 * 2, u);
    float score[kQueries / 8][4] = {}, slope[kQueries / 8][4] = {};
    multiply_rows<kWidth, kQueries>(score, tiles, warp * 16, tile_q, lane);
    multiply_rows<kWidth, kQueries>(slope, tiles + kTile, warp * 16, tile_do, lane);
    // Whether every query of the tile sees every key.
    const bool all = t0 + kQueries <= tokens && u0 + kRows <= tokens &&
                     (!s.causal || (u0 + kRows - 1 <= t0 && !starts &&
                                    (window == 0 || t0 + kQueries - 1 - u0 < window)));
    if (!all) {
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
          if (!seen) score[j][e] = -INFINITY;
        }
      }
    }
    uint32_t weights[kQueries / 8][2], slope_pairs[kQueries / 8][2];
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      const float2 lses = lse_of[stage][j * 4 + lane % 4],
                   deltas = delta_of[stage][j * 4 + lane % 4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool keep = !kDropout || (kept & 1u << (4 * j + e));
        const float p =
            exp2_approximate(fmaf(score[j][e], scale, -(e % 2 ? lses.y : lses.x)));
        score[j][e] = keep ? p : 0.0f;
        slope[j][e] = p * ((keep ? slope[j][e] : 0.0f) - (e % 2 ? deltas.y : deltas.x));
      }
      pack_pairs(weights[j], score[j]);
      pack_pairs(slope_pairs[j], slope[j]);
    }
    if (slopes) {
      const int64_t pitch = slope_pitch(s), head = blockIdx.y * group + member;
      Bf16* to = slopes + (head * pitch + u) * pitch + t0 + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kQueries / 8; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<uint32_t*>(to + half * 8 * pitch + j * 8) = slope_pairs[j][half];
      }
    }
    multiply_terms<kWidth, kQueries>(sums_v, weights, tile_do, lane);
    multiply_terms<kWidth, kQueries>(sums_k, slope_pairs, tile_q, lane);
    if (kHolds) put_statistics(stage ^ 1);
    __syncthreads();  // the tiles are loaded again
    if (ends) dropout.next_head();
    member = next_member;
    t0 = next_t0;
  }
  copy_async_wait<0>();
  const float keep_scale = kDropout ? s.keep_scale : 1.0f, of_k = s.scale * keep_scale;
  const float factor_v[2] = {keep_scale, keep_scale}, factor_k[2] = {of_k, of_k};
  store_rows<kWidth>(dk + kv_begin, kv_stride, u0 + warp * 16, s.tokens, s.width, sums_k, factor_k,
                     lane);
  store_rows<kWidth>(dv + kv_begin, kv_stride, u0 + warp * 16, s.tokens, s.width, sums_v, factor_v,
                     lane);
}

// dq of 64 queries from the gradients of their scores, which a launch of attention_dkv of the same
// pairs has left: a product with the keys.
template <int kWidth>
__device__ __forceinline__ void attention_dq_of_slopes(const Bf16* slopes, const Bf16* k, Bf16* dq,
                                                       const int32_t* starts, float factor,
                                                       int64_t first_pair, const AttentionShape& s) {
  constexpr int kSlopeTile = kRows * kRows / 8, kStage = kSlopeTile + kRows * kWidth / 8;
  TESSERA_DYNAMIC_SHARED(uint4, tiles);  // two stages of slopes and k
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t group = s.heads / s.kv_heads, number = first_pair * group + blockIdx.y,
                head = number % s.heads, b = number / s.heads;
  const int t0 = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int64_t q_stride = s.heads * s.width, kv_stride = s.kv_heads * s.width,
                pitch = slope_pitch(s);
  const int begin = seen_keys(s, starts, b, t0).first / kRows * kRows,
            last = seen_keys(s, starts, b, t0 + kRows - 1).last;
  RowLoader<kRows> rows_of_slopes(slopes + blockIdx.y * pitch * pitch + t0, nullptr, pitch, begin,
                                 pitch, kRows);
  RowLoader<kWidth> rows_k(k + b * s.tokens * kv_stride + head / group * s.width, nullptr, kv_stride,
                          begin, s.tokens, s.width);
  auto load = [&](int u0, int stage) {
    if (u0 <= last) {
      rows_of_slopes.template load<kRows, false>(tiles + stage * kStage, u0);
      rows_k.template load<kRows, false>(tiles + stage * kStage + kSlopeTile, u0);
    }
    copy_async_commit();
  };
  load(begin, 0);
  float sums[kWidth / 8][4] = {};
  for (int u0 = begin, stage = 0; u0 <= last; u0 += kRows, stage ^= 1) {
    load(u0 + kRows, stage ^ 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *slope = tiles + stage * kStage, *tile_k = slope + kSlopeTile;
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step) {
      uint32_t a[4];
      transposed_left_part(a, slope, step * 16, warp * 16, lane);
      multiply_16_terms<kWidth>(sums, a, tile_k, step * 16, lane);
    }
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  const float factors[2] = {factor, factor};
  store_rows<kWidth>(dq + b * s.tokens * q_stride + head * s.width, q_stride, t0 + warp * 16,
                     s.tokens, s.width, sums, factors, lane);
}

}  // namespace

// starts, first_head and slopes may be null; keys are those of dropout. Names end with the width of
// the tiles; `others` rows of the other side are worked on at a time.
#define TESSERA_ATTENTION_GRADIENTS_OF(suffix, width, others, dropout)                             \
  TESSERA_KERNEL(128, attention_dq_##suffix, const Bf16* q, const Bf16* k, const Bf16* v,          \
                 const float* lse, const Bf16* dout, const float* delta, Bf16* dq,                 \
                 const int32_t* starts, const int64_t* keys, const int32_t* first_head,            \
                 AttentionShape shape) {                                                           \
    attention_dq<width, others, dropout>(q, k, v, lse, dout, delta, dq, starts, keys, first_head,  \
                                         shape);                                                   \
  }                                                                                                \
  TESSERA_KERNEL(128, attention_dkv_##suffix, const Bf16* q, const Bf16* k, const Bf16* v,         \
                 const float* lse, const Bf16* dout, const float* delta, Bf16* dk, Bf16* dv,       \
                 Bf16* slopes, const int32_t* starts, const int64_t* keys,                         \
                 const int32_t* first_head, int64_t first_pair, AttentionShape shape) {            \
    attention_dkv<width, others, dropout>(q, k, v, lse, dout, delta, dk, dv, slopes, starts, keys, \
                                          first_head, first_pair, shape);                          \
  }
#define TESSERA_ATTENTION_GRADIENTS(width, others)                                                 \
  TESSERA_ATTENTION_GRADIENTS_OF(bf16_##width, width, others, false)                               \
  TESSERA_ATTENTION_GRADIENTS_OF(dropout_bf16_##width, width, others / 2, true)                    \
  TESSERA_KERNEL(128, attention_dq_of_slopes_bf16_##width, const Bf16* slopes, const Bf16* k,      \
                 Bf16* dq, const int32_t* starts, float factor, int64_t first_pair,                \
                 AttentionShape shape) {                                                           \
    attention_dq_of_slopes<width>(slopes, k, dq, starts, factor, first_pair, shape);               \
  }
// With dropout half as many: there would not be registers for more.
TESSERA_ATTENTION_GRADIENTS(64, 64)
TESSERA_ATTENTION_GRADIENTS(128, 32)

}  // namespace tessera::cuda
