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
// Keys whose probabilities stay in L1 until they are multiplied.
constexpr int64_t kWaitingKeys = kParts == 1 ? kKeysAtOnce : kBlock;

// kTile keys of a pair of blocks, and the first of its queries that may see them.
struct Strip {
  const Pair& pair;
  int64_t key, query;
  // Where its words begin in those of kWaitingKeys.
  __attribute__((always_inline)) int64_t first_word() const {
    return (pair.key + key) % kWaitingKeys / 2 * kBlock;
  }
};

// The largest of 16 queries' scores.
TESSERA_INLINE __m512 highest_score(const float* scores) {
  __m512 highest[4];
  for (__m512& part : highest) part = _mm512_set1_ps(kLowest);
  for (int64_t u = 0; u < kTile; u += 4)
    for (int i = 0; i < 4; ++i)
      highest[i] = _mm512_max_ps(_mm512_loadu_ps(scores + (u + i) * kBlock), highest[i]);
  return _mm512_max_ps(_mm512_max_ps(highest[0], highest[1]),
                       _mm512_max_ps(highest[2], highest[3]));
}

// The probabilities that wait to be multiplied: of keys [begin, end) of the row, of one run of
// kWaitingKeys. Queries before `query` do not see the last strip of them.
struct Waiting {
  int64_t begin, end, query, queries;
  bool first = true;  // nothing was multiplied yet
};
void multiply(Waiting& w, const ForwardBuffers& b) {
  if (w.begin == w.end) return;
  const Planes values_t = b.values_t + word_of_key(w.begin, b.width);
  const int64_t columns = w.query > 0 ? kTile : w.queries;
  for (int64_t t = 0; t < w.queries; t += columns) {
    const int64_t keys = w.end - w.begin - (t < w.query ? kTile : 0);
    if (keys == 0) continue;
    block_product(!w.first, b.width, columns, keys, {values_t, kKeysAtOnce * 2},
                  {b.probabilities + w.begin % kWaitingKeys / 2 * kBlock + t, kBlock * 4},
                  b.out + t, kBlock);
  }
  w.begin = w.end;
  w.first = false;
}

// A query's reference is the highest score when it was last set; where that is passed by more than
// kSlack, it is set again, and sum and output shrink, for which no probabilities may wait.
void set_references(const Strip& strip, float factor, Waiting& waiting, const ForwardBuffers& b) {
  const __m512 scale = _mm512_set1_ps(factor), slack = _mm512_set1_ps(kSlack);
  for (int64_t j = strip.query; j < strip.pair.queries; j += 16) {
    __m512 highest = _mm512_mul_ps(highest_score(b.scores + j), scale);
    __m512 before = _mm512_loadu_ps(b.reference + j);
    __mmask16 passed = _mm512_cmp_ps_mask(highest, _mm512_add_ps(before, slack), _CMP_GT_OQ);
    if (passed == 0) continue;
    multiply(waiting, b);
    __m512 reference = _mm512_mask_mov_ps(before, passed, highest);
    __m512 shrink = exp_of(_mm512_sub_ps(before, reference));
    _mm512_storeu_ps(b.reference + j, reference);
    _mm512_storeu_ps(b.sum + j, _mm512_mul_ps(_mm512_loadu_ps(b.sum + j), shrink));
    if (waiting.first) continue;
    for (float* at = b.out + j; at < b.out + b.width * kBlock; at += kBlock)
      _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), shrink));
  }
}

// Scores become probabilities exp(factor * score - reference), as a right operand.
void softmax(const Strip& strip, float factor, const ForwardBuffers& b) {
  const __m512 scale = _mm512_set1_ps(factor);
  for (int64_t j = strip.query; j < strip.pair.queries; j += 16) {
    const __m512 reference = _mm512_loadu_ps(b.reference + j);
    __m512 even = _mm512_loadu_ps(b.sum + j), odd = _mm512_setzero_ps();
    for (int64_t u = 0; u < kTile; u += 2) {
      const float* at = b.scores + u * kBlock + j;
      __m512 first = exp_difference(_mm512_loadu_ps(at), scale, reference);
      __m512 second = exp_difference(_mm512_loadu_ps(at + kBlock), scale, reference);
      even = _mm512_add_ps(even, first);
      odd = _mm512_add_ps(odd, second);
      store(b.probabilities, strip.first_word() + u / 2 * kBlock + j,
            split_words<kParts>(first, second));
    }
    _mm512_storeu_ps(b.sum + j, _mm512_add_ps(even, odd));
  }
}

// Clears the probabilities that are dropped; o is scaled when it is written.
void drop_probabilities(const AttentionProblem& p, const Strip& strip, const ForwardBuffers& b) {
  const __m512i threshold = _mm512_set1_epi32(p.threshold);
  for (int64_t u = 0; u < kTile; u += 2) {
    for (int64_t j = strip.query; j < strip.pair.queries; j += 16) {
      const uint16_t* bits = b.bits + (strip.key + u) * kBlock + j;
      drop_words(bits, bits + kBlock, threshold,
                 b.probabilities + strip.first_word() + u / 2 * kBlock + j);
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
  for (int64_t i = 0; i < kBlock; ++i) b.reference[i] = kLowest, b.sum[i] = 0;

  const RowMask mask = row_mask(args, batch);
  const BlockRange range = visible_keys(mask, block);
  const float factor = p.scale * kUnits;
  Waiting waiting{.begin = range.begin * kBlock,
                  .end = range.begin * kBlock,
                  .query = 0,
                  .queries = round_up(queries, kTile)};
  for (int64_t key_block = range.begin; key_block < range.end; ++key_block) {
    const Pair pair = pair_of(mask, block, key_block);
    if (p.threshold > 0) dropout_bits(args, batch, head, pair.query, pair.key, pair.keys, b.bits);
    for_strips(pair, [&](int64_t key, int64_t query) {
      const Strip strip{pair, key, query};
      block_product(false, kTile, pair.queries - query, width,
                    {b.keys + (pair.key + key) * width / 2, width * 2},
                    {b.query_t + query, kBlock * 4}, b.scores + query, kBlock);
      if (pair.hidden) hide(mask, pair, key, b.scores);
      set_references(strip, factor, waiting, b);
      softmax(strip, factor, b);
      if (p.threshold > 0) drop_probabilities(p, strip, b);
      waiting.end = pair.key + key + kTile;
      waiting.query = query;
    });
    if (waiting.end % kWaitingKeys == 0 || key_block + 1 == range.end) multiply(waiting, b);
  }

  float inverse[kBlock];
  for (int64_t t = 0; t < kBlock; ++t) inverse[t] = attention_keep_scale(p) / b.sum[t];
  if (args.lse) {
    float* lse = args.lse + query_row(p, batch * p.heads + head, first);
    for (int64_t t = 0; t < queries; ++t)
      lse[t] = b.reference[t] * kInverseUnits + __builtin_logf(b.sum[t]);
  }
  Element* o = (Element*)args.o + row * args.o_stride + head * p.head_dim;
  write_transposed(p, b.out, inverse, queries, o, args.o_stride);
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
    int64_t first = block * kBlock;
    Source k = head_source(p, args.k, args.k_stride, unit.batch, unit.kv_head, first);
    Source v = head_source(p, args.v, args.v_stride, unit.batch, unit.kv_head, first);
    prefetch_rows(k, kBlock, kBlock);
    prefetch_rows(v, kBlock, kBlock);
    if (!have_parts(k, kBlock) || !have_parts(v, kBlock)) return false;
    pack_left(k, kBlock, b.width, b.keys + first * b.width / 2);
    pack_left_transposed(v, kBlock, b.width, b.values_t + word_of_key(first, b.width), kKeysAtOnce);
  }
  for (int64_t head = unit.kv_head * group; head < (unit.kv_head + 1) * group; ++head) {
    for (int64_t slot = 0; slot < slots; ++slot) {
      if (!forward_block(args, unit.batch, head, begin + block_of_slot(unit, slot), b))
        return false;
    }
  }
  _mm_sfence();
  return true;
}

}  // namespace tessera::cpu::TESSERA_ISA
