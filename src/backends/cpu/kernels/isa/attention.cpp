// Flash attention, forward, by f32 multiply-adds.
#include "backends/cpu/kernels/attention.h"

#include "backends/cpu/kernels/isa/attention_block.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kLowest = -3.402823466e38f;

// Scores become exp(score - highest so far); sums and output shrink to the new highest.
void online_softmax(const AttentionProblem& p, const Pair& pair, const VectorForwardBuffers& b) {
  for (int64_t j = 0; j < pair.lanes; j += kLanes) {
    Vec raw = splat(kLowest);
    for (int64_t u = 0; u < pair.keys; ++u) raw = max(load(b.scores + u * kBlock + j), raw);
    Vec before = load(b.highest + j), highest = max(raw * p.scale, before);
    Vec shrink = exp(before - highest), sum = load(b.sum + j) * shrink;
    for (int64_t u = 0; u < pair.keys; ++u) {
      float* at = b.scores + u * kBlock + j;
      Vec probability = exp(load(at) * p.scale - highest);
      sum += probability;
      store(at, probability);
    }
    store(b.highest + j, highest);
    store(b.sum + j, sum);
    for (int64_t d = 0; d < p.head_dim; ++d) {
      float* at = b.out + d * kBlock + j;
      store(at, load(at) * shrink);
    }
  }
}

// o and lse of one query block.
template <class T>
void forward_block(const AttentionForward& args, int64_t batch, int64_t head, int64_t block,
                   const VectorForwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock, queries = smaller(kBlock, p.tokens - first), width = b.width;
  int64_t row = query_row(p, batch, first);
  const T* q = (const T*)args.q + row * args.q_stride + head * p.head_dim;
  widen_rows(q, args.q_stride, queries, p.head_dim, {b.query_rows, width});
  transpose_block({b.query_rows, width}, queries, p.head_dim, b.query);
  zero(b.out, p.head_dim * kBlock);
  for (int64_t i = 0; i < kBlock; ++i) b.highest[i] = kLowest, b.sum[i] = 0;

  const RowMask mask = row_mask(args, batch);
  BlockRange range = visible_keys(mask, block);
  for (int64_t key_block = range.begin; key_block < range.end; ++key_block) {
    Pair pair = pair_of(mask, block, key_block);
    const float* keys = b.keys + pair.key * width;
    const float* values = b.values + pair.key * width;
    zero(b.scores, pair.keys * kBlock);
    for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
      product(n, pair.lanes - t, p.head_dim, {keys + u * width, width, 1}, {b.query + t, kBlock},
              {b.scores + u * kBlock + t, kBlock});
    });
    if (pair.hidden) hide(mask, pair, b.scores);
    online_softmax(p, pair, b);
    if (p.threshold > 0) {
      dropout_bits(args, batch, head, pair.query, pair.key, pair.keys, b.bits);
      drop(p, pair.keys, pair.lanes, b.bits, b.scores);
    }
    for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
      product(p.head_dim, pair.lanes - t, n, {values + u * width, 1, width},
              {b.scores + u * kBlock + t, kBlock}, {b.out + t, kBlock});
    });
  }

  float inverse[kBlock];
  for (int64_t t = 0; t < queries; ++t) inverse[t] = 1 / b.sum[t];
  if (args.lse) {
    float* lse = args.lse + query_row(p, batch * p.heads + head, first);
    for (int64_t t = 0; t < queries; ++t) lse[t] = b.highest[t] + __builtin_logf(b.sum[t]);
  }
  T* o = (T*)args.o + row * args.o_stride + head * p.head_dim;
  write_columns(b.out, queries, p.head_dim, inverse, 1, o, args.o_stride);
}

template <class T>
void forward_unit(const AttentionForward& args, const AttentionUnit& unit, char* memory) {
  const AttentionProblem& p = args.problem;
  Scratch scratch{memory};
  VectorForwardBuffers b = carve(p, kLanes, scratch);
  int64_t row = unit.batch * p.tokens, column = unit.kv_head * p.head_dim;
  widen_rows((const T*)args.k + row * args.k_stride + column, args.k_stride, p.tokens, p.head_dim,
             {b.keys, b.width});
  widen_rows((const T*)args.v + row * args.v_stride + column, args.v_stride, p.tokens, p.head_dim,
             {b.values, b.width});
  int64_t group = p.heads / p.kv_heads, begin = first_query_block(p);
  int64_t slots = slots_of(unit, attention_blocks(p) - begin);
  for (int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
    for (int64_t slot = 0; slot < slots; ++slot)
      forward_block<T>(args, unit.batch, head, begin + block_of_slot(unit, slot), b);
  }
}

}  // namespace

bool attention_forward_unit(const AttentionForward& args, const AttentionUnit& unit,
                            char* scratch) {
  args.problem.dtype == DType::kF32 ? forward_unit<float>(args, unit, scratch)
                                    : forward_unit<BF16>(args, unit, scratch);
  return true;
}

}  // namespace tessera::cpu::TESSERA_ISA
