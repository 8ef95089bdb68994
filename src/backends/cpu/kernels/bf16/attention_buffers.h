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

// Scores come in strips of kTile keys, which stay in L1. Operands whose depth is keys hold two
// blocks side by side, so that sums over keys pass by once every two blocks.
constexpr int64_t kStripScores = kTile * kBlock, kKeySlots = 2, kKeysAtOnce = kKeySlots * kBlock;
// The first word of key `key` in a left operand [pair of blocks][width][kKeysAtOnce].
TESSERA_ATTENTION_INLINE int64_t word_of_key(int64_t key, int64_t width) {
  int64_t pair = key / kKeysAtOnce * kKeysAtOnce;
  return (pair * width + key - pair) / 2;
}

struct ForwardBuffers {
  Planes keys, values_t;          // left: [T][width], [pair of blocks][width][kKeysAtOnce]
  Planes query_t, probabilities;  // right: [width][kBlock], [kKeysAtOnce][kBlock]
  float *scores, *out;            // [key of a strip][query], [width][kBlock]
  float *reference, *sum;         // [kBlock]; reference in kUnits
  uint16_t* bits;                 // [key][query], of dropout
  int64_t width;
};
TESSERA_ATTENTION_INLINE ForwardBuffers carve(const AttentionProblem& p, Scratch& scratch) {
  ForwardBuffers b;
  const int parts = parts_of(p.dtype);
  b.width = round_up(p.head_dim, kTile);
  int64_t blocks = attention_blocks(p);
  b.keys = take_planes(scratch, blocks * kBlock * b.width / 2, parts);
  b.values_t = take_planes(scratch, round_up(blocks, kKeySlots) * kBlock * b.width / 2, parts);
  b.query_t = take_planes(scratch, kBlock * b.width / 2, parts);
  b.probabilities = take_planes(scratch, smaller(blocks, kKeySlots) * kBlock * kBlockWords, parts);
  b.scores = scratch.take<float>(kStripScores);
  b.out = scratch.take<float>(b.width * kBlock);
  b.reference = scratch.take<float>(kBlock);
  b.sum = scratch.take<float>(kBlock);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

// The backward pass multiplies two blocks of keys with a group of blocks of queries, so that sums
// over queries pass by once a group. What they share stays in L2: groups of eight take 1.04 of the
// time, of sixteen 1.13.
constexpr int64_t kMostQueryBlocks = 4;
TESSERA_ATTENTION_INLINE int64_t query_group(const AttentionProblem& p) {
  return smaller(attention_blocks(p), p.dtype == DType::kF32 ? 2 : kMostQueryBlocks);
}
TESSERA_ATTENTION_INLINE int64_t dq_floats_of_group(const AttentionProblem& p) {
  return query_group(p) * kBlock * round_up(p.head_dim, kTile);
}

struct BackwardBuffers {
  Planes keys, values;                 // left: [keys of the chunk][width]
  Planes keys_t;                       // left: [pair of slots][width][kKeysAtOnce]
  Planes query_t, dout_t;              // right: [block of the group][width][kBlock]
  Planes query, dout;                  // right: [queries of the group][width]
  Planes probabilities, dscores_left;  // left: [kKeysAtOnce][queries of the group, padded]
  Planes dscores_right;                // right: [kKeysAtOnce][kBlock]
  float *scores, *dscores;             // [key of a strip][query]
  float *dk, *dv;                      // [keys of the chunk][width]
  float *lse, *delta;                  // [queries of the group]; lse in kUnits
  uint16_t* bits;                      // [key][query], of dropout
  int64_t width;
  int64_t query_stride;  // from a row of probabilities to the next: a line more than there are, as
                         // rows of whole kilobytes would all meet in a few sets of L1
};
TESSERA_ATTENTION_INLINE BackwardBuffers carve(const AttentionProblem& p, int64_t chunks,
                                               Scratch& scratch) {
  BackwardBuffers b;
  const int parts = parts_of(p.dtype);
  b.width = round_up(p.head_dim, kTile);
  int64_t blocks = attention_blocks(p), queries = query_group(p) * kBlock;
  int64_t slots = (blocks + chunks - 1) / chunks, keys = slots * kBlock;
  int64_t keys_at_once = smaller(slots, kKeySlots) * kBlock;
  b.query_stride = queries + 32;
  b.keys = take_planes(scratch, keys * b.width / 2, parts);
  b.values = take_planes(scratch, keys * b.width / 2, parts);
  b.keys_t = take_planes(scratch, round_up(slots, kKeySlots) * kBlock * b.width / 2, parts);
  b.query_t = take_planes(scratch, queries * b.width / 2, parts);
  b.dout_t = take_planes(scratch, queries * b.width / 2, parts);
  b.query = take_planes(scratch, queries * b.width / 2, parts);
  b.dout = take_planes(scratch, queries * b.width / 2, parts);
  b.probabilities = take_planes(scratch, keys_at_once * b.query_stride / 2, parts);
  b.dscores_left = take_planes(scratch, keys_at_once * b.query_stride / 2, parts);
  b.dscores_right = take_planes(scratch, keys_at_once * kBlockWords, parts);
  b.scores = scratch.take<float>(kStripScores);
  b.dscores = scratch.take<float>(kStripScores);
  b.dk = scratch.take<float>(keys * b.width);
  b.dv = scratch.take<float>(keys * b.width);
  b.lse = scratch.take<float>(queries);
  b.delta = scratch.take<float>(queries);
  b.bits = p.threshold > 0 ? scratch.take<uint16_t>(kAttentionBits) : nullptr;
  return b;
}

}  // namespace tessera::cpu::bf16
