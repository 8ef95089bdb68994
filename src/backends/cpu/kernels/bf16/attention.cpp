// Flash attention, forward, by products of bf16: scores^T = K Q^T and o^T = V^T P^T, both with the
// queries in the lanes.
#include "backends/cpu/kernels/attention.h"

#include "backends/cpu/kernels/bf16/attention_block.h"

namespace tessera::cpu::TESSERA_ISA {
namespace {

constexpr float kLowest = -3.402823466e38f;
// Probabilities may grow to 2^8 (e^5.5) before they are scaled down: nothing is lost in floating
// point, and the output is rarely touched (forward 15 % faster at T = 1024, D = 64 than with the
// exact maximum).
constexpr float kSlack = kParts == 1 ? 8 : 5.5f;

// The largest of 16 queries' scores.
TESSERA_INLINE __m512 highest_score(const float* scores, int64_t keys) {
  __m512 highest[4];
  for (__m512& part : highest) part = _mm512_set1_ps(kLowest);
  for (int64_t u = 0; u < keys; u += 4)
    for (int i = 0; i < 4; ++i)
      highest[i] = _mm512_max_ps(_mm512_loadu_ps(scores + (u + i) * kBlock), highest[i]);
  return _mm512_max_ps(_mm512_max_ps(highest[0], highest[1]),
                       _mm512_max_ps(highest[2], highest[3]));
}

// Scores become probabilities exp(factor * score - reference), as a right operand. A query's
// reference is the highest score when it was last set; when that is passed by more than kSlack, it
// is set again, and sum and output shrink.
void online_softmax(const Pair& pair, float factor, const ForwardBuffers& b) {
  __m512 scale = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < pair.queries; j += 16) {
    const float* scores = b.scores + j;
    __m512 highest = _mm512_mul_ps(highest_score(scores, pair.keys), scale);
    __m512 reference = _mm512_loadu_ps(b.reference + j), even = _mm512_loadu_ps(b.sum + j);
    __m512 limit = _mm512_add_ps(reference, _mm512_set1_ps(kSlack)), odd = _mm512_setzero_ps();
    __mmask16 passed = _mm512_cmp_ps_mask(highest, limit, _CMP_GT_OQ);
    if (passed != 0) {
      __m512 before = reference;
      reference = _mm512_mask_mov_ps(before, passed, highest);
      __m512 shrink = exp_of(_mm512_sub_ps(before, reference));
      even = _mm512_mul_ps(even, shrink);
      for (float* at = b.out + j; at < b.out + b.width * kBlock; at += kBlock)
        _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), shrink));
      _mm512_storeu_ps(b.reference + j, reference);
    }
    for (int64_t u = 0; u < pair.keys; u += 2) {
      const float* at = scores + u * kBlock;
      __m512 first = exp_difference(_mm512_loadu_ps(at), scale, reference);
      __m512 second = exp_difference(_mm512_loadu_ps(at + kBlock), scale, reference);
      even = _mm512_add_ps(even, first);
      odd = _mm512_add_ps(odd, second);
      store(b.probabilities, u / 2 * kBlock + j, split_words<kParts>(first, second));
    }
    _mm512_storeu_ps(b.sum + j, _mm512_add_ps(even, odd));
  }
}

// Clears the probabilities that are dropped; o is scaled when it is written.
void drop_probabilities(const AttentionProblem& p, const Pair& pair, const ForwardBuffers& b) {
  __m512i threshold = _mm512_set1_epi32(p.threshold);
  for (int64_t u = 0; u < pair.keys; u += 2) {
    for (int64_t j = 0; j < pair.queries; j += 16) {
      const uint16_t* bits = b.bits + u * kBlock + j;
      drop_words(bits, bits + kBlock, threshold, b.probabilities + u / 2 * kBlock + j);
    }
  }
}

// o and lse of one query block. False where a query has numbers without parts.
bool forward_block(const AttentionForward& args, int64_t batch, int64_t head, int64_t block,
                   const ForwardBuffers& b) {
  const AttentionProblem& p = args.problem;
  int64_t first = block * kBlock, queries = smaller(kBlock, p.tokens - first), width = b.width;
  int64_t row = query_row(p, batch, first);
  Source q{(const Element*)args.q + row * args.q_stride + head * p.head_dim, args.q_stride,
           p.tokens - first, p.head_dim};
  if (!have_parts(q, kBlock)) return false;
  pack_right_transposed(q, kBlock, width, b.query_t);
  prefetch_rows(q, kBlock, kBlock);
  __builtin_memset(b.out, 0, width * kBlock * sizeof(float));
  for (int64_t i = 0; i < kBlock; ++i) b.reference[i] = kLowest, b.sum[i] = 0;

  const RowMask mask = row_mask(args, batch);
  BlockRange range = visible_keys(mask, block);
  for (int64_t key_block = range.begin; key_block < range.end; ++key_block) {
    Pair pair = pair_of(mask, block, key_block);
    const Planes keys = b.keys + pair.key * width / 2;
    const Planes values_t = b.values_t + pair.key * width / 2;
    for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
      block_product<false>(n, pair.queries - t, width, {keys + u * width / 2, width * 2},
                           {b.query_t + t, kBlock * 4}, b.scores + u * kBlock + t, kBlock);
    });
    if (pair.hidden) hide(mask, pair, b.scores);
    online_softmax(pair, p.scale * kUnits, b);
    if (p.threshold > 0) {
      dropout_bits(args, batch, head, pair.query, pair.key, pair.keys, b.bits);
      drop_probabilities(p, pair, b);
    }
    for_strips(pair, [&](int64_t u, int64_t n, int64_t t) {
      block_product<true>(width, pair.queries - t, n, {values_t + u / 2, kBlock * 2},
                          {b.probabilities + u / 2 * kBlock + t, kBlock * 4}, b.out + t, kBlock);
    });
  }

  float inverse[kBlock];
  for (int64_t t = 0; t < kBlock; ++t) inverse[t] = attention_keep_scale(p) / b.sum[t];
  if (args.lse) {
    float* lse = args.lse + query_row(p, batch * p.heads + head, first);
    for (int64_t t = 0; t < queries; ++t)
      lse[t] = b.reference[t] * kInverseUnits + __builtin_logf(b.sum[t]);
  }
  Element* o = (Element*)args.o + row * args.o_stride + head * p.head_dim;
  write_transposed(b.out, inverse, queries, p.head_dim, o, args.o_stride);
  return true;
}

}  // namespace

bool attention_forward_unit(const AttentionForward& args, const AttentionUnit& unit,
                            char* scratch) {
  const AttentionProblem& p = args.problem;
  Scratch memory{scratch};
  ForwardBuffers b = carve(p, memory);
  ProductScope scope;
  int64_t group = p.heads / p.kv_heads, blocks = attention_blocks(p);
  int64_t begin = first_query_block(p), slots = slots_of(unit, blocks - begin);
  for (int64_t block = 0; block < blocks; ++block) {
    int64_t first = block * kBlock, at = first * b.width / 2;
    Source k = head_source(p, args.k, args.k_stride, unit.batch, unit.kv_head, first);
    Source v = head_source(p, args.v, args.v_stride, unit.batch, unit.kv_head, first);
    prefetch_rows(k, kBlock, kBlock);
    prefetch_rows(v, kBlock, kBlock);
    if (!have_parts(k, kBlock) || !have_parts(v, kBlock)) return false;
    pack_left(k, kBlock, b.width, b.keys + at);
    pack_left_transposed(v, kBlock, b.width, b.values_t + at);
  }
  for (int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (!forward_block(args, unit.batch, head, begin + block_of_slot(unit, slot), b))
        return false;
    }
  }
  return true;
}

}  // namespace tessera::cpu::TESSERA_ISA
