// Flash attention, backward, by products of bf16. With scores and their gradients as [key][query]:
//
//   scores^T = K Q^T, dP^T = V dout^T                 left: K, V; right: q, dout by columns
//   dV += P^T dout,   dK += dS^T Q                    left: P, dS rounded; right: dout, q by rows
//   dQ^T += K^T dS^T                                  left: K transposed; right: dS rounded
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/bf16/attention_block.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// delta[t] = sum_d o[t, d] dout[t, d] of one block
void sum_delta(const Source& o, const Source& dout, float* delta) {
  for (int64_t t = 0; t < smaller(kBlock, o.rows); ++t) {
    Vec sum{};
    for_vectors_apart(
        o.columns, [&](auto lanes, int64_t d) __attribute__((always_inline)) {
          sum +=
              lanes.load(o.data + t * o.stride + d) * lanes.load(dout.data + t * dout.stride + d);
        });
    delta[t] = sum_lanes(sum);
  }
}

// q and dout of one head as right operands of both kinds, its lse and delta. False where they have
// numbers without parts.
bool load_head(const AttentionBackward& args, int64_t batch, int64_t head,
               const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  for (int64_t first = 0; first < p.tokens; first += kBlock) {
    Source q = head_source(p, args.q, args.q_stride, batch, head, first);
    Source dout = head_source(p, args.dout, args.dout_stride, batch, head, first);
    Source o = head_source(p, args.o, args.o_stride, batch, head, first);
    int64_t at = first * b.width / 2;
    prefetch_rows(q, kBlock, kBlock);
    prefetch_rows(dout, kBlock, kBlock);
    prefetch_rows(o, kBlock, kBlock);
    if (!have_parts(q, kBlock) || !have_parts(dout, kBlock)) return false;
    pack_right_transposed(q, kBlock, b.width, b.query_t + at);
    pack_right_transposed(dout, kBlock, b.width, b.dout_t + at);
    pack_right_halves(q, kBlock, b.width, b.query + at);
    pack_right_halves(dout, kBlock, b.width, b.dout + at);
    sum_delta(o, dout, b.delta + first);
  }
  const float* lse = args.lse + (batch * p.heads + head) * p.tokens;
  for (int64_t t = 0; t < p.tokens; ++t) b.lse[t] = lse[t] * kUnits;
  for (int64_t t = p.tokens; t < attention_blocks(p) * kBlock; ++t) b.delta[t] = b.lse[t] = 0;
  return true;
}

// Probabilities and gradients of score / scale, rounded, as the operands that they become.
void softmax_gradient(const Pair& pair, float factor, const BackwardBuffers& b) {
  __m512 scale = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < pair.queries; j += 32) {
    __m512 lse[2], delta[2];
    for (int h = 0; h < 2; ++h) {
      lse[h] = _mm512_loadu_ps(b.lse + pair.query + j + 16 * h);
      delta[h] = _mm512_loadu_ps(b.delta + pair.query + j + 16 * h);
    }
    for (int64_t u = 0; u < pair.keys; u += 2) {
      __m512 gradient[2][2];
      for (int i = 0; i < 2; ++i) {
        int64_t at = (u + i) * kBlock + j, to = at / 2;
        __m512 probability[2];
        for (int h = 0; h < 2; ++h) {
          __m512 score = _mm512_loadu_ps(b.scores + at + 16 * h);
          probability[h] = exp_difference(score, scale, lse[h]);
          gradient[i][h] = _mm512_mul_ps(
              probability[h], _mm512_sub_ps(_mm512_loadu_ps(b.dscores + at + 16 * h), delta[h]));
        }
        store(b.probabilities, to, split_words<kParts>(probability[0], probability[1]));
        store(b.dscores_left, to, split_words<kParts>(gradient[i][0], gradient[i][1]));
      }
      for (int h = 0; h < 2; ++h) {
        store(b.dscores_right, u / 2 * kBlock + j + 16 * h,
              split_words<kParts>(gradient[0][h], gradient[1][h]));
      }
    }
  }
}

// Clears the probabilities that are dropped; dv is scaled when it is written.
void drop_probabilities(const AttentionProblem& p, const Pair& pair, const BackwardBuffers& b) {
  __m512i threshold = _mm512_set1_epi32(p.threshold);
  for (int64_t u = 0; u < pair.keys; ++u) {
    for (int64_t j = 0; j < pair.queries; j += 32) {
      int64_t at = u * kBlock + j;
      drop_words(b.bits + at, b.bits + at + 16, threshold, b.probabilities + at / 2);
    }
  }
}

// Adds what one pair of blocks gives to dk, dv (rows of the chunk from `slot` on) and dq.
void backward_pair(const AttentionBackward& args, int64_t batch, int64_t head, const Pair& pair,
                   int64_t slot, float* dq, const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  int64_t width = b.width, left = slot * kBlock * width / 2, right = pair.query * width / 2;
  for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
    int64_t row = left + u * width / 2, to = u * kBlock + t, queries = pair.queries - t;
    block_product<false>(n, queries, width, {b.keys + row, width * 2},
                         {b.query_t + right + t, kBlock * 4}, b.scores + to, kBlock);
    block_product<false>(n, queries, width, {b.values + row, width * 2},
                         {b.dout_t + right + t, kBlock * 4}, b.dscores + to, kBlock);
  });
  if (pair.hidden) hide(row_mask(args, batch), pair, b.scores);
  if (p.threshold > 0) {
    dropout_bits(args, batch, head, pair.query, pair.key, pair.keys, b.bits);
    drop(p, pair.keys, pair.queries, b.bits, b.dscores);
  }
  softmax_gradient(pair, p.scale * kUnits, b);
  if (p.threshold > 0) drop_probabilities(p, pair, b);
  for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
    int64_t from = u * kBlockWords + t / 2, row = right + t * width / 2;
    int64_t queries = pair.queries - t, to = (slot * kBlock + u) * width;
    block_product<true>(n, width, queries, {b.probabilities + from, kBlock * 2},
                        {b.dout + row, width * 4}, b.dv + to, width);
    block_product<true>(n, width, queries, {b.dscores_left + from, kBlock * 2},
                        {b.query + row, width * 4}, b.dk + to, width);
    block_product<true>(width, queries, n, {b.keys_t + left + u / 2, kBlock * 2},
                        {b.dscores_right + u / 2 * kBlock + t, kBlock * 4}, dq + t, kBlock);
  });
}

void finish_dq(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
               const float* dq) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock;
  float scale[kBlock];
  for (float& lane : scale) lane = p.scale;
  Element* to = (Element*)args.dq + (batch * p.tokens + first) * args.dq_stride + head * p.head_dim;
  write_transposed(dq + first * round_up(p.head_dim, kTile), scale,
                   smaller(kBlock, p.tokens - first), p.head_dim, to, args.dq_stride);
}

// False where k or v have numbers without parts.
bool load_keys(const AttentionBackward& args, const AttentionUnit& unit, int64_t slots,
               const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock, at = slot * kBlock * b.width / 2;
    Source k = head_source(p, args.k, args.k_stride, unit.batch, unit.kv_head, first);
    Source v = head_source(p, args.v, args.v_stride, unit.batch, unit.kv_head, first);
    prefetch_rows(k, kBlock, kBlock);
    prefetch_rows(v, kBlock, kBlock);
    if (!have_parts(k, kBlock) || !have_parts(v, kBlock)) return false;
    pack_left(k, kBlock, b.width, b.keys + at);
    pack_left(v, kBlock, b.width, b.values + at);
    pack_left_transposed(k, kBlock, b.width, b.keys_t + at);
  }
  __builtin_memset(b.dk, 0, slots * kBlock * b.width * sizeof(float));
  __builtin_memset(b.dv, 0, slots * kBlock * b.width * sizeof(float));
  return true;
}

// Writes dk and dv of the keys of the chunk.
void store_keys(const AttentionBackward& args, const AttentionUnit& unit, int64_t slots,
                const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock;
    int64_t row = unit.batch * p.tokens + first, column = unit.kv_head * p.head_dim;
    for (int64_t r = 0; r < smaller(kBlock, p.tokens - first); ++r) {
      Element* dk = (Element*)args.dk + (row + r) * args.dk_stride + column;
      Element* dv = (Element*)args.dv + (row + r) * args.dv_stride + column;
      int64_t from = (slot * kBlock + r) * b.width;
      for_vectors_apart(
          p.head_dim, [&](auto lanes, int64_t d) __attribute__((always_inline)) {
            lanes.store(dk + d, load(b.dk + from + d) * p.scale);
            lanes.store(dv + d, load(b.dv + from + d) * attention_keep_scale(p));
          });
    }
  }
}

}  // namespace

bool attention_backward_unit(const AttentionBackward& args, const AttentionUnit& unit, float* dq,
                             char* scratch) {
  const AttentionProblem& p = args.problem;
  Scratch memory{scratch};
  BackwardBuffers b = carve(p, unit.chunks, memory);
  ProductScope scope;
  int64_t blocks = attention_blocks(p), slots = slots_of(unit, blocks);
  int64_t group = p.heads / p.kv_heads, dq_block = kBlock * b.width;
  const RowMask mask = row_mask(args, unit.batch);
  if (!load_keys(args, unit, slots, b)) return false;
  for (int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
    if (!load_head(args, unit.batch, head, b)) return false;
    __builtin_memset(dq, 0, blocks * dq_block * sizeof(float));
    for (int64_t slot = 0; slot < slots; ++slot) {
      int64_t key_block = block_of_slot(unit, slot);
      BlockRange range = visible_queries(mask, key_block);
      for (int64_t block = range.begin; block < range.end; ++block) {
        backward_pair(args, unit.batch, head, pair_of(mask, block, key_block), slot,
                      dq + block * dq_block, b);
      }
    }
    if (unit.chunks == 1) {
      for (int64_t block = 0; block < blocks; ++block) {
        finish_dq(args, unit.batch, head, block, dq);
      }
    } else {
      dq += attention_dq_floats(p);
    }
  }
  store_keys(args, unit, slots, b);
  return true;
}

void attention_finish_dq(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
                         float* dq, int64_t part_stride, int64_t parts) {
  int64_t floats = kBlock * round_up(args.problem.head_dim, kTile);
  float* sum = dq + block * floats;
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < floats; i += kLanes)
      store(sum + i, load(sum + i) + load(sum + part * part_stride + i));
  }
  finish_dq(args, batch, head, block, dq);
}

}  // namespace tessera::cpu::TESSERA_ISA
