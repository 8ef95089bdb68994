#pragma once
// Blocks of attention by products of bf16: what forward and backward share. Scores are kept
// transposed, [key][query], as in isa/attention_block.h; here that also turns every rounding
// of bf16 tensors into an operand of the next product without a shuffle.
#include "backends/cpu/kernels/bf16/attention_operands.h"
#include "backends/cpu/kernels/bf16/block_product.h"
#include "backends/cpu/kernels/isa/attention_dropout.h"
#include "backends/cpu/kernels/isa/attention_unit.h"

namespace tessera::cpu::TESSERA_ISA {

using namespace bf16;

// 2^x = 2^floor(x) p(f), f in [0, 1), p the minimax polynomial of degree 5 with p(0) = 1: relative
// error 1.6e-7, so that lse keeps the precision of f32. -infinity gives 0.
TESSERA_INLINE __m512 exp2(__m512 x) {
  constexpr int kMinusFloor = 0x09;
  __m512 f = _mm512_reduce_ps(x, kMinusFloor);
  __m512 p = _mm512_set1_ps(0.001867130864f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009017028846f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05579991266f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.2401644439f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931512952f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

// e^x for x <= 0 or little above: 2^h with h = x log2(e) in two parts, degree 6; relative error
// 8e-8. Below e^-104, and of -infinity, 0.
TESSERA_INLINE __m512 precise_exp(__m512 x) {
  constexpr int kMinusFloor = 0x09;
  const __m512 log2e = _mm512_set1_ps(1.44269504088896341f);
  // NaN stays. So far below the smallest number scalef needs no help of microcode, which takes 60
  // ns from 2^-126 down to 2^-511: hidden pairs would cost more than visible ones.
  x = _mm512_max_ps(_mm512_set1_ps(-1024.0f), x);
  __m512 high = _mm512_mul_ps(x, log2e);
  __m512 low = _mm512_fmsub_ps(x, log2e, high);
  low = _mm512_fmadd_ps(x, _mm512_set1_ps(1.92596299e-8f), low);
  __m512 f = _mm512_add_ps(_mm512_reduce_ps(high, kMinusFloor), low);
  __m512 p = _mm512_set1_ps(0.00021612915f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0012467847f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009675452f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.055485282f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022931f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69314706f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, high);
}

// Exponents are kept in units of log2, which saves a product. Those of f32 are natural: what is
// subtracted from a score then has no other rounding than its own, and the difference is small
// where the probability is large.
constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;
constexpr float kUnits = kParts == 1 ? kLog2E : 1, kInverseUnits = kParts == 1 ? kLn2 : 1;
TESSERA_INLINE __m512 exp_of(__m512 x) { return kParts == 1 ? exp2(x) : precise_exp(x); }
// exp(score * scale - reference), scale and reference in kUnits.
TESSERA_INLINE __m512 exp_difference(__m512 score, __m512 scale, __m512 reference) {
  return exp_of(_mm512_fmsub_ps(score, scale, reference));
}

// A query block against a key block, counted in whole tiles.
struct Pair {
  int64_t query, key, queries, keys;
  bool hidden, diagonal;
};
TESSERA_INLINE Pair pair_of(const RowMask& mask, int64_t query_block, int64_t key_block) {
  const AttentionProblem& p = mask.p;
  Pair pair;
  pair.query = query_block * kBlock;
  pair.key = key_block * kBlock;
  pair.queries = smaller(kBlock, round_up(p.tokens - pair.query, kTile));
  pair.keys = smaller(kBlock, round_up(p.tokens - pair.key, kTile));
  pair.hidden = partly_hidden(mask, query_block, key_block);
  pair.diagonal = p.causal && query_block == key_block;
  return pair;
}

// Calls f(first key, first query) for each strip of kTile keys of the pair; on the diagonal, a
// strip leaves out the queries before it.
template <class F>
TESSERA_INLINE void for_strips(const Pair& pair, F f) {
  for (int64_t key = 0; key < pair.keys; key += kTile) {
    const int64_t query = pair.diagonal ? key : 0;
    if (query < pair.queries) f(key, query);
  }
}

// Scores of the strip of keys from `key` on become -infinity where a query does not see the key.
static inline void hide(const RowMask& mask, const Pair& pair, int64_t key, float* scores) {
  SeeingQueries queries{mask, pair.query};
  int64_t block_end = smaller(pair.query + kBlock, mask.p.tokens);
  __m512i lanes = (__m512i)IntVec{TESSERA_LANE_NUMBERS};
  for (int64_t u = 0; u < kTile; ++u) {
    BlockRange seeing = queries.of(pair.key + key + u, block_end);
    __m512i begin = _mm512_set1_epi32((int)seeing.begin), end = _mm512_set1_epi32((int)seeing.end);
    for (int64_t j = 0; j < pair.queries; j += 16) {
      __m512i t = _mm512_add_epi32(lanes, _mm512_set1_epi32((int)(pair.query + j)));
      __mmask16 blind = _mm512_cmplt_epi32_mask(t, begin) | _mm512_cmpge_epi32_mask(t, end);
      _mm512_mask_storeu_ps(scores + u * kBlock + j, blind, _mm512_set1_ps(-__builtin_inff()));
    }
  }
}

// Clears those halves of 16 words whose bits are below the threshold, in every part.
TESSERA_INLINE void drop_words(const uint16_t* low, const uint16_t* high, __m512i threshold,
                               Planes words) {
  auto dropped = [&](const uint16_t* bits) __attribute__((always_inline)) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)bits));
    return _mm512_cmplt_epi32_mask(wide, threshold);
  };
  const __mmask16 drop_low = dropped(low), drop_high = dropped(high);
  for (int p = 0; p < kParts; ++p) {
    uint32_t* at = words.words + p * words.plane;
    __m512i both = _mm512_loadu_si512(at);
    both = _mm512_mask_and_epi32(both, drop_low, both, _mm512_set1_epi32((int)0xffff0000u));
    both = _mm512_mask_and_epi32(both, drop_high, both, _mm512_set1_epi32(0xffff));
    _mm512_storeu_si512(at, both);
  }
}

// The words of 32 numbers of a row, cleared where their bits are below the threshold.
TESSERA_INLINE Words keep_words(Words words, const uint16_t* bits, __m512i threshold) {
  const __mmask32 kept = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(bits), threshold);
#pragma GCC unroll 3
  for (int p = 0; p < kParts; ++p) words.part[p] = _mm512_maskz_mov_epi16(kept, words.part[p]);
  return words;
}

// Whether a result of bf16 is written past the caches, where a line whose neighbours lie pages
// apart would be read first: attention of 6 MiB takes 0.9 of the time in a step, of 2 MiB 1.05. A
// unit ends with a fence.
TESSERA_INLINE bool streams_result(const AttentionProblem& p, int64_t heads) {
  constexpr int64_t kStreamedBytes = int64_t{4} << 20;
  const int64_t rows = p.batch * (p.tokens - p.first_query);
  return kParts == 1 && rows * heads * p.head_dim * (int64_t)sizeof(Element) >= kStreamedBytes;
}
// 32 numbers of a row, as far as they are `columns`.
TESSERA_INLINE void write_row(bool streams, BF16* to, int64_t columns, __m512 first,
                              __m512 second) {
  __m512i row = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  if (streams && columns >= 32 && (uintptr_t)to % 64 == 0) {
    _mm512_stream_si512((__m512i*)to, row);
  } else {
    _mm512_mask_storeu_epi16(to, columns >= 32 ? 0xffffffffu : (1u << columns) - 1, row);
  }
}
// Through the caches, whatever streams_result() would say of bf16.
TESSERA_INLINE void write_row(bool, float* to, int64_t columns, __m512 first, __m512 second) {
  const uint32_t mask = columns >= 32 ? 0xffffffffu : (1u << columns) - 1;
  _mm512_mask_storeu_ps(to, (__mmask16)mask, first);
  _mm512_mask_storeu_ps(to + 16, (__mmask16)(mask >> 16), second);
}

// [width][kBlock] f32, lane t times factor[t], as `rows` rows of head_dim elements.
static inline void write_transposed(const AttentionProblem& p, const float* from,
                                    const float* factor, int64_t rows, Element* to,
                                    int64_t stride) {
  const int64_t head_dim = p.head_dim;
  const bool streams = streams_result(p, p.heads);
  for (int64_t t = 0; t < rows; t += 16) {
    __m512 scale = _mm512_loadu_ps(factor + t);
    for (int64_t d = 0; d < head_dim; d += 32) {
      __m512i halves[2][16];
      for (int h = 0; h < 2; ++h) {
        for (int i = 0; i < 16; ++i) {
          const float* at = from + (d + 16 * h + i) * kBlock + t;
          halves[h][i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_loadu_ps(at), scale));
        }
        transpose_words(halves[h]);
      }
      for (int64_t i = 0; i < smaller(16, rows - t); ++i) {
        write_row(streams, to + (t + i) * stride + d, head_dim - d, (__m512)halves[0][i],
                  (__m512)halves[1][i]);
      }
    }
  }
}

// One head of a [B, T, heads, D] tensor, from token `first` of the batch on.
TESSERA_INLINE Source head_source(const AttentionProblem& p, const void* tensor, int64_t stride,
                                  int64_t batch, int64_t head, int64_t first) {
  return {(const Element*)tensor + (batch * p.tokens + first) * stride + head * p.head_dim, stride,
          p.tokens - first, p.head_dim};
}

}  // namespace tessera::cpu::TESSERA_ISA
