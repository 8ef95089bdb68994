// Flash attention, backward, by f32 multiply-adds: five products a pair of blocks, each pair once.
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/isa/attention_block.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

// delta[t] = sum_d o[t, d] dout[t, d] of one block, in the order of product(): where one key has
// all the weight, dout . v - delta is then zero and not the difference of two roundings.
void sum_delta(const float* out_t, const float* dout_t, int64_t head_dim, float* delta) {
  for (int64_t j = 0; j < kBlock; j += kLanes) {
    Vec sum{};
    for (int64_t k = 0; k < head_dim; k += kDepth) {
      Vec part{};
      for (int64_t d = k; d < smaller(k + kDepth, head_dim); ++d)
        part += load(out_t + d * kBlock + j) * load(dout_t + d * kBlock + j);
      sum += part;
    }
    store(delta + j, sum);
  }
}

// q and dout of one head in both layouts, its lse and delta.
template <class T>
void load_head(const AttentionBackward& args, int64_t batch, int64_t head,
               const VectorBackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  const float* lse = args.lse + (batch * p.heads + head) * p.tokens;
  int64_t column = head * p.head_dim;
  for (int64_t first = 0; first < p.tokens; first += kBlock) {
    int64_t queries = smaller(kBlock, p.tokens - first), row = batch * p.tokens + first;
    Matrix q{b.query + first * b.width, b.width}, dout{b.dout + first * b.width, b.width};
    Matrix out{b.out, b.width};
    float *query_t = b.query_t + first * p.head_dim, *dout_t = b.dout_t + first * p.head_dim;
    widen_rows((const T*)args.q + row * args.q_stride + column, args.q_stride, queries, p.head_dim,
               q);
    widen_rows((const T*)args.dout + row * args.dout_stride + column, args.dout_stride, queries,
               p.head_dim, dout);
    widen_rows((const T*)args.o + row * args.o_stride + column, args.o_stride, queries, p.head_dim,
               out);
    transpose_block(q, queries, p.head_dim, query_t);
    transpose_block(dout, queries, p.head_dim, dout_t);
    transpose_block(out, queries, p.head_dim, b.out_t);
    sum_delta(b.out_t, dout_t, p.head_dim, b.delta + first);
    for (int64_t t = 0; t < kBlock; ++t) b.lse[first + t] = t < queries ? lse[first + t] : 0;
  }
}

// Scores become probabilities, dscores (so far dout . v) become gradients of score / scale.
void softmax_gradient(const AttentionProblem& p, const Pair& pair, const VectorBackwardBuffers& b) {
  for (int64_t j = 0; j < pair.lanes; j += kLanes) {
    Vec lse = load(b.lse + pair.query + j), delta = load(b.delta + pair.query + j);
    for (int64_t u = 0; u < pair.keys; ++u) {
      int64_t at = u * kBlock + j;
      Vec probability = exp(load(b.scores + at) * p.scale - lse);
      store(b.scores + at, probability);
      store(b.dscores + at, probability * (load(b.dscores + at) - delta));
    }
  }
}

// Adds what one pair of blocks gives to dk, dv (rows of the chunk from `slot` on) and dq.
void backward_pair(const AttentionBackward& args, int64_t batch, int64_t head, const Pair& pair,
                   int64_t slot, float* dq, const VectorBackwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  int64_t width = b.width, first = slot * kBlock * width;
  const float *keys = b.keys + first, *values = b.values + first;
  float *query_t = b.query_t + pair.query * p.head_dim,
        *dout_t = b.dout_t + pair.query * p.head_dim;
  zero(b.scores, kBlock * kBlock);
  zero(b.dscores, kBlock * kBlock);
  for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
    int64_t at = u * kBlock + t, lanes = pair.lanes - t;
    product(n, lanes, p.head_dim, {keys + u * width, width, 1}, {query_t + t, kBlock},
            {b.scores + at, kBlock});
    product(n, lanes, p.head_dim, {values + u * width, width, 1}, {dout_t + t, kBlock},
            {b.dscores + at, kBlock});
  });
  if (pair.hidden) hide(row_mask(args, batch), pair, b.scores);
  if (p.threshold > 0) {
    dropout_bits(args, batch, head, pair.query, pair.key, pair.keys, b.bits);
    drop(p, pair.keys, pair.lanes, b.bits, b.dscores);
  }
  softmax_gradient(p, pair, b);
  if (p.threshold > 0) drop(p, pair.keys, pair.lanes, b.bits, b.scores);
  for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
    int64_t at = u * kBlock + t, queries = pair.queries - t, from = (pair.query + t) * width;
    int64_t to = first + u * width;
    product(n, width, queries, {b.scores + at, kBlock, 1}, {b.dout + from, width},
            {b.dv + to, width});
    product(n, width, queries, {b.dscores + at, kBlock, 1}, {b.query + from, width},
            {b.dk + to, width});
    product(p.head_dim, pair.lanes - t, n, {keys + u * width, 1, width}, {b.dscores + at, kBlock},
            {dq + t, kBlock});
  });
}

template <class T>
void finish_dq(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
               const float* dq) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock, row = batch * p.tokens + first;
  T* to = (T*)args.dq + row * args.dq_stride + head * p.head_dim;
  write_columns(dq + first * p.head_dim, smaller(kBlock, p.tokens - first), p.head_dim, &p.scale, 0,
                to, args.dq_stride);
}

template <class T>
void backward_unit(const AttentionBackward& args, const AttentionUnit& unit, float* dq,
                   char* memory) {
  const AttentionProblem& p = args.problem;
  Scratch scratch{memory};
  VectorBackwardBuffers b = carve(p, kLanes, unit.chunks, scratch);
  int64_t blocks = attention_blocks(p), slots = slots_of(unit, blocks);
  int64_t column = unit.kv_head * p.head_dim, slot_floats = kBlock * b.width;
  zero(b.dk, slots * slot_floats);
  zero(b.dv, slots * slot_floats);
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock, row = unit.batch * p.tokens + first;
    int64_t keys = smaller(kBlock, p.tokens - first);
    widen_rows((const T*)args.k + row * args.k_stride + column, args.k_stride, keys, p.head_dim,
               {b.keys + slot * slot_floats, b.width});
    widen_rows((const T*)args.v + row * args.v_stride + column, args.v_stride, keys, p.head_dim,
               {b.values + slot * slot_floats, b.width});
  }
  const RowMask mask = row_mask(args, unit.batch);
  int64_t group = p.heads / p.kv_heads;
  for (int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
    load_head<T>(args, unit.batch, head, b);
    zero(dq, blocks * kBlock * p.head_dim);
    for (int64_t slot = 0; slot < slots; ++slot) {
      int64_t key_block = block_of_slot(unit, slot);
      BlockRange range = visible_queries(mask, key_block);
      for (int64_t block = range.begin; block < range.end; ++block) {
        backward_pair(args, unit.batch, head, pair_of(mask, block, key_block), slot,
                      dq + block * kBlock * p.head_dim, b);
      }
    }
    if (unit.chunks == 1) {
      for (int64_t block = 0; block < blocks; ++block) {
        finish_dq<T>(args, unit.batch, head, block, dq);
      }
    } else {
      dq += attention_dq_floats(p);
    }
  }
  for (int64_t slot = 0; slot < slots; ++slot) {
    int64_t first = block_of_slot(unit, slot) * kBlock, row = unit.batch * p.tokens + first;
    T* dk = (T*)args.dk + row * args.dk_stride + column;
    T* dv = (T*)args.dv + row * args.dv_stride + column;
    for (int64_t r = 0; r < smaller(kBlock, p.tokens - first); ++r) {
      int64_t at = slot * slot_floats + r * b.width;
      write_row(dk + r * args.dk_stride, b.dk + at, p.head_dim, p.scale);
      write_row(dv + r * args.dv_stride, b.dv + at, p.head_dim, 1.0f);
    }
  }
}

}  // namespace

bool attention_backward_unit(const AttentionBackward& args, const AttentionUnit& unit, float* dq,
                             char* scratch) {
  args.problem.dtype == DType::kF32 ? backward_unit<float>(args, unit, dq, scratch)
                                    : backward_unit<BF16>(args, unit, dq, scratch);
  return true;
}

void attention_finish_dq(const AttentionBackward& args, int64_t batch, int64_t head, int64_t block,
                         float* dq, int64_t part_stride, int64_t parts) {
  int64_t floats = kBlock * args.problem.head_dim;
  float* sum = dq + block * floats;
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < floats; i += kLanes)
      store(sum + i, load(sum + i) + load(sum + part * part_stride + i));
  }
  args.problem.dtype == DType::kF32 ? finish_dq<float>(args, batch, head, block, dq)
                                    : finish_dq<BF16>(args, batch, head, block, dq);
}

}  // namespace tessera::cpu::TESSERA_ISA
