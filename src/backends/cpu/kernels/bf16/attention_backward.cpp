// Flash attention, backward, by products of bf16. With scores and their gradients as [key][query]:
//
//   scores^T = K Q^T, dP^T = V dout^T                 left: K, V; right: q, dout by columns
//   dV += P^T dout,   dK += dS^T Q                    left: P, dS rounded; right: dout, q by rows
//   dQ^T += K^T dS^T                                  left: K transposed; right: dS rounded
//
// Running the tile instructions for the next scores in the shadow of these ones' exponentials takes
// 1.08 of the time.
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

// q and dout of one block, number `index` of its group, as right operands of both kinds, its lse
// and delta. False where they have numbers without parts.
bool load_queries(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
                  int64_t index, const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock, row = index * kBlock, at = row * b.width / 2;
  Source q = head_source(p, args.q, args.q_stride, batch, head, first);
  Source dout = head_source(p, args.dout, args.dout_stride, batch, head, first);
  Source o = head_source(p, args.o, args.o_stride, batch, head, first);
  if (!have_parts(q, kBlock) || !have_parts(dout, kBlock)) return false;
  prefetch_rows(q, kBlock, kBlock);
  pack_right_transposed(q, kBlock, b.width, b.query_t + at);
  pack_right(q, kBlock, b.width, b.query + at);
  prefetch_rows(dout, kBlock, kBlock);
  pack_right_transposed(dout, kBlock, b.width, b.dout_t + at);
  pack_right(dout, kBlock, b.width, b.dout + at);
  prefetch_rows(o, kBlock, kBlock);
  sum_delta(o, dout, b.delta + row);
  const float* lse = args.lse + (batch * p.heads + head) * p.tokens + first;
  int64_t queries = smaller(kBlock, p.tokens - first);
  for (int64_t t = 0; t < queries; ++t) b.lse[row + t] = lse[t] * kUnits;
  for (int64_t t = queries; t < kBlock; ++t) b.delta[row + t] = b.lse[row + t] = 0;
  return true;
}

// Probabilities and gradients of score / scale, rounded, as the operands that they become: of kTile
// keys, counted from the first of the pair group, and those of `queries` from `query` of the group
// on. Random bits are those from `bit` on.
void softmax_gradient(const AttentionProblem& p, int64_t key, int64_t query, int64_t queries,
                      int64_t bit, const BackwardBuffers& b) {
  const __m512 scale = _mm512_set1_ps(p.scale * kUnits);
  const __m512i threshold = _mm512_set1_epi16((short)p.threshold);
  const int64_t column = query % kBlock;
  for (int64_t j = 0; j < queries; j += 32) {
    __m512 lse[2], delta[2];
    for (int h = 0; h < 2; ++h) {
      lse[h] = _mm512_loadu_ps(b.lse + query + j + 16 * h);
      delta[h] = _mm512_loadu_ps(b.delta + query + j + 16 * h);
    }
    for (int64_t u = 0; u < kTile; u += 2) {
      __m512 gradient[2][2];
      for (int i = 0; i < 2; ++i) {
        const int64_t drawn = bit + (u + i) * kBlock + j;
        __m512 probability[2];
        for (int h = 0; h < 2; ++h) {
          int64_t at = (u + i) * kBlock + column + j + 16 * h;
          __m512 dscore = _mm512_loadu_ps(b.dscores + at);
          if (p.threshold > 0) {
            dscore = (__m512)keep_by_bits((Vec)dscore, b.bits + drawn + 16 * h, p.threshold,
                                          attention_keep_scale(p));
          }
          probability[h] = exp_difference(_mm512_loadu_ps(b.scores + at), scale, lse[h]);
          gradient[i][h] = _mm512_mul_ps(probability[h], _mm512_sub_ps(dscore, delta[h]));
        }
        Words words = split_row<kParts>(probability[0], probability[1]);
        if (p.threshold > 0) words = keep_words(words, b.bits + drawn, threshold);
        int64_t to = ((key + u + i) * b.query_stride + query + j) / 2;
        store(b.probabilities, to, words);
        store(b.dscores_left, to, split_row<kParts>(gradient[i][0], gradient[i][1]));
      }
      for (int h = 0; h < 2; ++h) {
        store(b.dscores_right, (key + u) / 2 * kBlock + column + j + 16 * h,
              split_words<kParts>(gradient[0][h], gradient[1][h]));
      }
    }
  }
}

// Writes the gradient of one block of queries, whose sums are dq.
void finish_dq(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
               const float* dq) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock;
  float scale[kBlock];
  for (float& lane : scale) lane = p.scale;
  Element* to = (Element*)args.dq + (batch * p.tokens + first) * args.dq_stride + head * p.head_dim;
  write_transposed(p, dq, scale, smaller(kBlock, p.tokens - first), to, args.dq_stride);
}

// False where k or v have numbers without parts.
bool load_keys(const AttentionBackward& args, const AttentionUnit& unit, int64_t slots,
               const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock, at = slot * kBlock * b.width / 2;
    Source k = head_source(p, args.k, args.k_stride, unit.batch, unit.kv_head, first);
    Source v = head_source(p, args.v, args.v_stride, unit.batch, unit.kv_head, first);
    if (!have_parts(k, kBlock) || !have_parts(v, kBlock)) return false;
    prefetch_rows(k, kBlock, kBlock);
    pack_left(k, kBlock, b.width, b.keys + at);
    prefetch_rows(v, kBlock, kBlock);
    pack_left(v, kBlock, b.width, b.values + at);
    pack_left_transposed(k, kBlock, b.width, b.keys_t + word_of_key(slot * kBlock, b.width),
                         kKeysAtOnce);
  }
  return true;
}

// Writes dk and dv of the keys of the chunk.
void store_keys(const AttentionBackward& args, const AttentionUnit& unit, int64_t slots,
                const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  const bool streams = streams_result(p, p.kv_heads);
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock;
    int64_t row = unit.batch * p.tokens + first, column = unit.kv_head * p.head_dim;
    for (int64_t r = 0; r < smaller(kBlock, p.tokens - first); ++r) {
      Element* dk = (Element*)args.dk + (row + r) * args.dk_stride + column;
      Element* dv = (Element*)args.dv + (row + r) * args.dv_stride + column;
      const float* dk_sums = b.dk + (slot * kBlock + r) * b.width;
      const float* dv_sums = b.dv + (slot * kBlock + r) * b.width;
      const __m512 scale = _mm512_set1_ps(p.scale), keep = _mm512_set1_ps(attention_keep_scale(p));
      for (int64_t d = 0; d < p.head_dim; d += 32) {
        write_row(streams, dk + d, p.head_dim - d, _mm512_loadu_ps(dk_sums + d) * scale,
                  _mm512_loadu_ps(dk_sums + d + 16) * scale);
        write_row(streams, dv + d, p.head_dim - d, _mm512_loadu_ps(dv_sums + d) * keep,
                  _mm512_loadu_ps(dv_sums + d + 16) * keep);
      }
    }
  }
}

// A group of blocks of queries of one head against a pair of slots, each from the first on.
struct PairGroup {
  int64_t head, block, blocks;
  int64_t slot, slots;
};

// What sees the keys of one slot.
struct SeenBy {
  BlockRange blocks;  // of the group
  int64_t end;        // of their queries
  bool first;         // nothing was added to the gradients of these keys yet
  __attribute__((always_inline)) bool by(int64_t block) const {
    return block >= blocks.begin && block < blocks.end;
  }
};
SeenBy seen_by(const RowMask& mask, const AttentionUnit& unit, const PairGroup& pairs,
               int64_t slot) {
  const AttentionProblem& p = mask.p;
  const int64_t key_block = block_of_slot(unit, slot);
  const BlockRange range =
      visible_queries(mask, key_block, {pairs.block, pairs.block + pairs.blocks});
  SeenBy seen;
  seen.blocks = {range.begin - pairs.block, range.end - pairs.block};
  seen.end = smaller(seen.blocks.end * kBlock, round_up(p.tokens - pairs.block * kBlock, kTile));
  seen.first =
      pairs.head % (p.heads / p.kv_heads) == 0 && (p.causal ? key_block : 0) >= pairs.block;
  return seen;
}

// Scores of one pair, of `block` of the group and slot `index` of the pair group, and what they
// become.
void add_pair(const AttentionBackward& args, int64_t batch, const PairGroup& pairs,
              const Pair& pair, int64_t block, int64_t index, const BackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  const RowMask mask = row_mask(args, batch);
  const int64_t width = b.width, right = block * kBlock * width / 2;
  if (p.threshold > 0)
    dropout_bits(args, batch, pairs.head, pair.query, pair.key, pair.keys, b.bits);
  for_strips(pair, [&](int64_t u, int64_t t) {
    const int64_t queries = pair.queries - t;
    const int64_t left = ((pairs.slot + index) * kBlock + u) * width / 2;
    block_product(false, kTile, queries, width, {b.keys + left, width * 2},
                  {b.query_t + right + t, kBlock * 4}, b.scores + t, kBlock);
    block_product(false, kTile, queries, width, {b.values + left, width * 2},
                  {b.dout_t + right + t, kBlock * 4}, b.dscores + t, kBlock);
    if (pair.hidden) hide(mask, pair, u, b.scores);
    softmax_gradient(p, index * kBlock + u, block * kBlock + t, queries, u * kBlock + t, b);
  });
}

// dq = or += of one block of queries, from the slots [begin, end) of the pair group. `last` is the
// pair with the last one of them.
void add_to_queries(bool add, const PairGroup& pairs, const Pair& last, int64_t begin, int64_t end,
                    float* dq, const BackwardBuffers& b) {
  static_assert(kKeySlots == 2, "no slot lies between two that are seen");
  const int64_t first = begin * kBlock, last_first = (end - 1) * kBlock;
  const Planes keys_t = b.keys_t + word_of_key((pairs.slot + begin) * kBlock, b.width);
  const int64_t columns = last.diagonal ? kTile : last.queries;
  for (int64_t t = 0; t < last.queries; t += columns) {
    const int64_t keys_of_last = last.diagonal ? t + kTile : last.keys;
    block_product(add, b.width, columns, last_first + keys_of_last - first,
                  {keys_t, kKeysAtOnce * 2}, {b.dscores_right + first / 2 * kBlock + t, kBlock * 4},
                  dq + t, kBlock);
  }
}

// dv and dk of slot `index` of the pair group. `pair` is that with the first block of queries.
void add_to_keys(const Pair& pair, const SeenBy& seen, const PairGroup& pairs, int64_t index,
                 const BackwardBuffers& b) {
  int64_t width = b.width;
  auto add = [&](int64_t u, int64_t n, int64_t t) {
    int64_t query = seen.blocks.begin * kBlock + t, queries = seen.end - query;
    int64_t from = ((index * kBlock + u) * b.query_stride + query) / 2, row = query * width / 2;
    int64_t to = ((pairs.slot + index) * kBlock + u) * width;
    block_product(!seen.first, n, width, queries, {b.probabilities + from, b.query_stride * 2},
                  {b.dout + row, width * 4}, b.dv + to, width);
    block_product(!seen.first, n, width, queries, {b.dscores_left + from, b.query_stride * 2},
                  {b.query + row, width * 4}, b.dk + to, width);
  };
  if (!pair.diagonal) return add(0, pair.keys, 0);
  for_strips(pair, [&](int64_t u, int64_t t) { add(u, kTile, t); });
}

// Adds what a pair group gives to dk and dv, and to dq of the blocks of the group; `begun` are
// those that something was added to before.
void add_pairs(const AttentionBackward& args, const AttentionUnit& unit, const PairGroup& pairs,
               bool (&begun)[kMostQueryBlocks], float* dq, const BackwardBuffers& b) {
  const RowMask mask = row_mask(args, unit.batch);
  SeenBy seen[kKeySlots] = {};
  Pair first[kKeySlots];  // of the blocks that see a slot
  for (int64_t i = 0; i < pairs.slots; ++i) seen[i] = seen_by(mask, unit, pairs, pairs.slot + i);
  for (int64_t block = 0; block < pairs.blocks; ++block) {
    Pair pair;
    int64_t begin = kKeySlots, end = 0;
    for (int64_t i = 0; i < pairs.slots; ++i) {
      if (!seen[i].by(block)) continue;
      pair = pair_of(mask, pairs.block + block, block_of_slot(unit, pairs.slot + i));
      if (block == seen[i].blocks.begin) first[i] = pair;
      add_pair(args, unit.batch, pairs, pair, block, i, b);
      begin = smaller(begin, i);
      end = i + 1;
    }
    if (end == 0) continue;
    add_to_queries(begun[block], pairs, pair, begin, end, dq + block * kBlock * b.width, b);
    begun[block] = true;
  }
  for (int64_t i = 0; i < pairs.slots; ++i) {
    if (seen[i].blocks.begin < seen[i].blocks.end) add_to_keys(first[i], seen[i], pairs, i, b);
  }
}

}  // namespace

bool attention_backward_unit(const AttentionBackward& args, const AttentionUnit& unit, float* dq,
                             char* scratch) {
  const AttentionProblem& p = args.problem;
  Scratch memory{scratch};
  BackwardBuffers b = carve(p, unit.chunks, memory);
  ProductScope scope;
  int64_t blocks = attention_blocks(p), slots = slots_of(unit, blocks), group = query_group(p);
  int64_t heads = p.heads / p.kv_heads, dq_block = kBlock * b.width;
  if (!load_keys(args, unit, slots, b)) return false;
  for (int64_t head = unit.kv_head * heads; head < (unit.kv_head + 1) * heads; ++head) {
    for (int64_t block = 0; block < blocks; block += group) {
      PairGroup pairs{head, block, smaller(group, blocks - block), 0, 0};
      for (int64_t i = 0; i < pairs.blocks; ++i)
        if (!load_queries(args, unit.batch, head, block + i, i, b)) return false;
      float* sums = unit.chunks == 1 ? dq : dq + block * dq_block;
      bool begun[kMostQueryBlocks] = {};
      for (; pairs.slot < slots; pairs.slot += kKeySlots) {
        pairs.slots = smaller(kKeySlots, slots - pairs.slot);
        add_pairs(args, unit, pairs, begun, sums, b);
      }
      for (int64_t i = 0; i < pairs.blocks; ++i) {
        if (!begun[i]) __builtin_memset(sums + i * dq_block, 0, dq_block * sizeof(float));
        if (unit.chunks == 1) finish_dq(args, unit.batch, head, block + i, sums + i * dq_block);
      }
    }
    if (unit.chunks > 1) dq += attention_dq_floats(p);
  }
  store_keys(args, unit, slots, b);
  _mm_sfence();
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
  finish_dq(args, batch, head, block, sum);
  _mm_sfence();
}

}  // namespace tessera::cpu::TESSERA_ISA
