#pragma once
// The scratch of one thread for attention in f32, on vectors of `lanes` floats; blocks are of 64
// queries or keys. Apart from the arithmetic: a plan asks for its size on machines that cannot run
// that.
#include "backends/cpu/kernels/isa/attention_unit.h"

namespace tessera::cpu {

// kLanes of isa/simd.h.
namespace portable {
constexpr int64_t kAttentionLanes = 4;
}
namespace avx2 {
constexpr int64_t kAttentionLanes = 8;
}
namespace avx512 {
constexpr int64_t kAttentionLanes = 16;
}
namespace avx512_bf16 {
constexpr int64_t kAttentionLanes = 16;
}
namespace neon_bf16 {
constexpr int64_t kAttentionLanes = 4;
}

struct VectorForwardBuffers {
  float *keys, *values;       // [T][width]
  float *query_rows, *query;  // [64][width], [head_dim][64]
  float *scores, *out;        // [key][query], [head_dim][64]
  float *highest, *sum;       // [64]
  uint16_t* bits;             // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE VectorForwardBuffers carve(const AttentionProblem& p, int64_t lanes,
                                                    Scratch& scratch) {
  VectorForwardBuffers b;
  b.width = round_up(p.head_dim, lanes);
  b.keys = scratch.take<float>(p.tokens * b.width);
  b.values = scratch.take<float>(p.tokens * b.width);
  b.query_rows = scratch.take<float>(kAttentionBlock * b.width);
  b.query = scratch.take<float>(p.head_dim * kAttentionBlock);
  b.scores = scratch.take<float>(kAttentionBlock * kAttentionBlock);
  b.out = scratch.take<float>(p.head_dim * kAttentionBlock);
  b.highest = scratch.take<float>(kAttentionBlock);
  b.sum = scratch.take<float>(kAttentionBlock);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

struct VectorBackwardBuffers {
  float *keys, *values, *dk, *dv;  // [keys of the chunk][width]
  float *query, *dout;             // [T][width]
  float *query_t, *dout_t;         // [block][head_dim][64]
  float *out, *out_t;              // of one block: [64][width], [head_dim][64]
  float *lse, *delta;              // [T rounded up to blocks]
  float *scores, *dscores;         // [key][query]
  uint16_t* bits;                  // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE VectorBackwardBuffers carve(const AttentionProblem& p, int64_t lanes,
                                                     int64_t chunks, Scratch& scratch) {
  VectorBackwardBuffers b;
  b.width = round_up(p.head_dim, lanes);
  int64_t blocks = attention_blocks(p), padded = blocks * kAttentionBlock;
  int64_t keys = (blocks + chunks - 1) / chunks * kAttentionBlock;
  b.keys = scratch.take<float>(keys * b.width);
  b.values = scratch.take<float>(keys * b.width);
  b.dk = scratch.take<float>(keys * b.width);
  b.dv = scratch.take<float>(keys * b.width);
  b.query = scratch.take<float>(padded * b.width);
  b.dout = scratch.take<float>(padded * b.width);
  b.query_t = scratch.take<float>(padded * p.head_dim);
  b.dout_t = scratch.take<float>(padded * p.head_dim);
  b.out = scratch.take<float>(kAttentionBlock * b.width);
  b.out_t = scratch.take<float>(kAttentionBlock * p.head_dim);
  b.lse = scratch.take<float>(padded);
  b.delta = scratch.take<float>(padded);
  b.scores = scratch.take<float>(kAttentionBlock * kAttentionBlock);
  b.dscores = scratch.take<float>(kAttentionBlock * kAttentionBlock);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

}  // namespace tessera::cpu
