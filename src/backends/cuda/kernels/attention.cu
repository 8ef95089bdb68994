// Attention in bf16 by tensor cores, in tiles whose scores never leave the registers (Dao 2023),
// widths up to 128 that are multiples of 8. 128 threads, 16 rows a warp.
#include "attention_tiles.cuh"

namespace tessera::cuda {
namespace {

// o and lse of 64 queries, over tiles of 64 keys, of which kKeys are in registers at a time.
template <int kWidth, int kKeys, bool kDropout>
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
  const int begin = of_first.first / kRows * kRows;  // of the first tile of keys
  const int t = t0 + warp * 16 + lane / 4;           // and t + 8
  RowLoader<kWidth> rows(k + kv_begin, v + kv_begin, kv_stride, begin, s.tokens, s.width);
  auto load = [&](int u0, int stage) {
    if (u0 <= of_last.last) rows.template load<kRows>(tiles + kTile * (1 + 2 * stage), u0);
    copy_async_commit();
  };
  RowLoader<kWidth>(q + q_begin, nullptr, q_stride, t0, s.tokens, s.width)
      .template load<kRows, false>(tiles, t0);
  load(begin, 0);
  const float scale = s.scale * kLog2e;
  const ProbabilityDropout dropout(s, kDropout ? keys : nullptr, first_head, b, head);
  // The highest score so far, before it is scaled.
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, out[kWidth / 8][4] = {};
  for (int u0 = begin, stage = 0; u0 <= of_last.last; u0 += kRows, stage ^= 1) {
    load(u0 + kRows, stage ^ 1);
    copy_async_wait<1>();
    __syncthreads();
    const uint4 *tile_k = tiles + kTile * (1 + 2 * stage), *tile_v = tile_k + kTile;
#pragma unroll 1
    for (int part = 0; part < kRows; part += kKeys) {
      const int first = u0 + part;
      uint32_t kept = 0;  // before there are scores in registers
      if constexpr (kDropout) kept = kept_by_rows<kKeys>(dropout, t, first + lane % 4 * 2);
      float score[kKeys / 8][4] = {};
      multiply_rows<kWidth, kKeys>(score, tiles, warp * 16, tile_k + part * kWidth / 8, lane);
      if (first < of_last.first || first + kKeys - 1 > of_first.last)
        hide_unseen<kKeys>(score, s, starts, b, t, first + lane % 4 * 2);
      float top[2] = {highest[0], highest[1]}, base[2];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) top[e / 2] = fmaxf(top[e / 2], score[j][e]);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
        top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
        // Of a row of which nothing was seen so far all powers are zeros.
        base[half] = top[half] == -INFINITY ? 0.0f : top[half] * scale;
        // Exactly 1 where the highest score stays, whatever it rounds to.
        const float fade = exp2_approximate(highest[half] * scale - base[half]);
        highest[half] = top[half];
        sum[half] *= fade;
#pragma unroll
        for (int j = 0; j < kWidth / 8; ++j) {
          out[j][half * 2] *= fade;
          out[j][half * 2 + 1] *= fade;
        }
      }
      uint32_t weights[kKeys / 8][2];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          const float p = exp2_approximate(fmaf(score[j][e], scale, -base[half]));
          sum[half] += p;
          score[j][e] = !kDropout || (kept & 1u << (4 * j + e)) ? p : 0.0f;
        }
        pack_pairs(weights[j], score[j]);
      }
      multiply_terms<kWidth, kKeys>(out, weights, tile_v + part * kWidth / 8, lane);
    }
    __syncthreads();  // the tiles are loaded again
  }
  copy_async_wait<0>();
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    factor[half] = (kDropout ? s.keep_scale : 1.0f) / sum[half];
    const int64_t row = t + half * 8;
    if (lane % 4 == 0 && row < s.tokens)
      lse[(b * s.heads + head) * s.tokens + row] =
          (highest[half] * scale + log2_approximate(sum[half])) * kLn2;
  }
  store_rows<kWidth>(o + q_begin, q_stride, t0 + warp * 16, s.tokens, s.width, out, factor, lane);
}

}  // namespace

// starts and first_head may be null; keys are those of dropout. Names end with the width of the
// tiles; `at_a_time` keys are in registers at a time.
#define TESSERA_ATTENTION(suffix, width, at_a_time, dropout)                                       \
  TESSERA_KERNEL(128, attention_##suffix, const Bf16* q, const Bf16* k, const Bf16* v, Bf16* o,    \
                 float* lse, const int32_t* starts, const int64_t* keys,                           \
                 const int32_t* first_head, AttentionShape shape) {                                \
    attention_forward<width, at_a_time, dropout>(q, k, v, o, lse, starts, keys, first_head,        \
                                                 shape);                                           \
  }
TESSERA_ATTENTION(bf16_64, 64, 64, false)
TESSERA_ATTENTION(bf16_128, 128, 64, false)
// With dropout half as many: there would not be registers for more.
TESSERA_ATTENTION(dropout_bf16_64, 64, 32, true)
TESSERA_ATTENTION(dropout_bf16_128, 128, 32, true)

}  // namespace tessera::cuda
