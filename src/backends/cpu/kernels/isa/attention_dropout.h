#pragma once
// Dropout of a pair of blocks of attention. Included by isa/attention_block.h and
// bf16/attention_block.h.
#include "backends/cpu/kernels/isa/attention_unit.h"
#include "backends/cpu/kernels/isa/random.h"

namespace tessera::cpu::TESSERA_ISA {

// The bits of the pair of blocks that begin at these tokens, [key][query]. Args is AttentionForward
// or AttentionBackward.
template <class Args>
TESSERA_INLINE void dropout_bits(const Args& args, int64_t batch, int64_t head, int64_t query,
                                 int64_t key, int64_t keys, uint16_t* bits) {
  const AttentionProblem& p = args.problem;
  int64_t blocks = attention_blocks(p), pairs = (p.tokens + 1) / 2;
  int64_t first = ((args.first_head + head) * pairs + key / 2) * blocks + query / kAttentionBlock;
  RandomKey row_key = random_key((uint64_t)args.row_keys[batch], p.stream);
  for (int64_t u = 0; u < keys; u += 2)
    random_block(row_key, (uint64_t)(first + u / 2 * blocks), bits + u * kAttentionBlock);
}

// Scores [key][query] are scaled where they are kept, else 0.
TESSERA_INLINE void drop(const AttentionProblem& p, int64_t keys, int64_t lanes,
                         const uint16_t* bits, float* scores) {
  float scale = attention_keep_scale(p);
  for (int64_t u = 0; u < keys; ++u) {
    for (int64_t at = u * kAttentionBlock; at < u * kAttentionBlock + lanes; at += kLanes)
      store(scores + at, keep_by_bits(load(scores + at), bits + at, p.threshold, scale));
  }
}

}  // namespace tessera::cpu::TESSERA_ISA
