#pragma once
// The scratch of one thread for attention by products of bf16. Apart from the arithmetic: a
// plan asks for its size on machines that cannot run that.
#include "backends/cpu/kernels/isa/attention_unit.h"

namespace tessera::cpu::bf16 {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int64_t kBlockWords = kBlock / 2;
constexpr int64_t kTile = 32;  // granule of block_product

struct ForwardBuffers {
  uint32_t *keys, *values_t;          // left: [T][width], [block][width][kBlock]
  uint32_t *query_t, *probabilities;  // right: [width][kBlock], [key][query]
  float *scores, *out;                // [key][query], [width][kBlock]
  float *reference, *sum;             // [kBlock]; reference in units of log2
  uint16_t* bits;                     // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE ForwardBuffers carve(const AttentionProblem& p, Scratch& scratch) {
  ForwardBuffers b;
  b.width = round_up(p.head_dim, kTile);
  int64_t padded = attention_blocks(p) * kBlock;
  b.keys = scratch.take<uint32_t>(padded * b.width / 2);
  b.values_t = scratch.take<uint32_t>(padded * b.width / 2);
  b.query_t = scratch.take<uint32_t>(kBlock * b.width / 2);
  b.probabilities = scratch.take<uint32_t>(kBlock * kBlockWords);
  b.scores = scratch.take<float>(kBlock * kBlock);
  b.out = scratch.take<float>(b.width * kBlock);
  b.reference = scratch.take<float>(kBlock);
  b.sum = scratch.take<float>(kBlock);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

struct BackwardBuffers {
  uint32_t *keys, *values, *keys_t;  // left: [keys of the chunk][width], [slot][width][kBlock]
  uint32_t *query_t, *dout_t;        // right: [block][width][kBlock]
  uint32_t *query, *dout;            // right: [T][width]
  uint32_t *probabilities, *dscores_left;  // left: [key][query]
  uint32_t* dscores_right;                 // right: [key][query]
  float *scores, *dscores;                 // [key][query]
  float *dk, *dv;                          // [keys of the chunk][width]
  float *lse, *delta;                      // [T rounded up to blocks]; lse in units of log2
  uint16_t* bits;                          // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE BackwardBuffers carve(const AttentionProblem& p, int64_t chunks,
                                               Scratch& scratch) {
  BackwardBuffers b;
  b.width = round_up(p.head_dim, kTile);
  int64_t blocks = attention_blocks(p), padded = blocks * kBlock;
  int64_t keys = (blocks + chunks - 1) / chunks * kBlock;
  b.keys = scratch.take<uint32_t>(keys * b.width / 2);
  b.values = scratch.take<uint32_t>(keys * b.width / 2);
  b.keys_t = scratch.take<uint32_t>(keys * b.width / 2);
  b.query_t = scratch.take<uint32_t>(padded * b.width / 2);
  b.dout_t = scratch.take<uint32_t>(padded * b.width / 2);
  b.query = scratch.take<uint32_t>(padded * b.width / 2);
  b.dout = scratch.take<uint32_t>(padded * b.width / 2);
  b.probabilities = scratch.take<uint32_t>(kBlock * kBlockWords);
  b.dscores_left = scratch.take<uint32_t>(kBlock * kBlockWords);
  b.dscores_right = scratch.take<uint32_t>(kBlock * kBlockWords);
  b.scores = scratch.take<float>(kBlock * kBlock);
  b.dscores = scratch.take<float>(kBlock * kBlock);
  b.dk = scratch.take<float>(keys * b.width);
  b.dv = scratch.take<float>(keys * b.width);
  b.lse = scratch.take<float>(padded);
  b.delta = scratch.take<float>(padded);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

}  // namespace tessera::cpu::bf16
