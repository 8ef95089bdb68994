#pragma once
// The scratch of one thread for attention by products of bf16. Apart from the arithmetic: a
// plan asks for its size on machines that cannot run that.
#include "backends/cpu/kernels/isa/attention_unit.h"

namespace tessera::cpu::bf16 {

constexpr int64_t kBlock = kAttentionBlock;
constexpr int64_t kBlockWords = kBlock / 2;
constexpr int64_t kTile = 32;  // granule of block_product

// Where an operand of products lies: its words, two bf16 each, and behind them, `plane` words on,
// those of its next part, where it has several (bf16/attention_operands.h).
struct Planes {
  uint32_t* words;
  int64_t plane;
};
TESSERA_ATTENTION_INLINE Planes operator+(const Planes& planes, int64_t words) {
  return {planes.words + words, planes.plane};
}
TESSERA_ATTENTION_INLINE Planes take_planes(Scratch& scratch, int64_t words, int parts) {
  return {scratch.take<uint32_t>(words * parts), words};
}
// Parts of which the numbers of tensors are the sums.
TESSERA_ATTENTION_INLINE int parts_of(DType dtype) { return dtype == DType::kF32 ? 3 : 1; }

struct ForwardBuffers {
  Planes keys, values_t;          // left: [T][width], [block][width][kBlock]
  Planes query_t, probabilities;  // right: [width][kBlock], [key][query]
  float *scores, *out;            // [key][query], [width][kBlock]
  float *reference, *sum;         // [kBlock]; reference in kUnits
  uint16_t* bits;                 // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE ForwardBuffers carve(const AttentionProblem& p, Scratch& scratch) {
  ForwardBuffers b;
  const int parts = parts_of(p.dtype);
  b.width = round_up(p.head_dim, kTile);
  int64_t padded = attention_blocks(p) * kBlock;
  b.keys = take_planes(scratch, padded * b.width / 2, parts);
  b.values_t = take_planes(scratch, padded * b.width / 2, parts);
  b.query_t = take_planes(scratch, kBlock * b.width / 2, parts);
  b.probabilities = take_planes(scratch, kBlock * kBlockWords, parts);
  b.scores = scratch.take<float>(kBlock * kBlock);
  b.out = scratch.take<float>(b.width * kBlock);
  b.reference = scratch.take<float>(kBlock);
  b.sum = scratch.take<float>(kBlock);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

struct BackwardBuffers {
  Planes keys, values, keys_t;         // left: [keys of the chunk][width], [slot][width][kBlock]
  Planes query_t, dout_t;              // right: [block][width][kBlock]
  Planes query, dout;                  // right: [T][width]
  Planes probabilities, dscores_left;  // left: [key][query]
  Planes dscores_right;                // right: [key][query]
  float *scores, *dscores;             // [key][query]
  float *dk, *dv;                      // [keys of the chunk][width]
  float *lse, *delta;                  // [T rounded up to blocks]; lse in kUnits
  uint16_t* bits;                      // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE BackwardBuffers carve(const AttentionProblem& p, int64_t chunks,
                                               Scratch& scratch) {
  BackwardBuffers b;
  const int parts = parts_of(p.dtype);
  b.width = round_up(p.head_dim, kTile);
  int64_t blocks = attention_blocks(p), padded = blocks * kBlock;
  int64_t keys = (blocks + chunks - 1) / chunks * kBlock;
  b.keys = take_planes(scratch, keys * b.width / 2, parts);
  b.values = take_planes(scratch, keys * b.width / 2, parts);
  b.keys_t = take_planes(scratch, keys * b.width / 2, parts);
  b.query_t = take_planes(scratch, padded * b.width / 2, parts);
  b.dout_t = take_planes(scratch, padded * b.width / 2, parts);
  b.query = take_planes(scratch, padded * b.width / 2, parts);
  b.dout = take_planes(scratch, padded * b.width / 2, parts);
  b.probabilities = take_planes(scratch, kBlock * kBlockWords, parts);
  b.dscores_left = take_planes(scratch, kBlock * kBlockWords, parts);
  b.dscores_right = take_planes(scratch, kBlock * kBlockWords, parts);
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
