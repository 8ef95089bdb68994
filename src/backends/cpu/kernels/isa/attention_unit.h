#pragma once
// What kernels/attention.cpp (threads, workspace) and the arithmetic in isa/ and bf16/ agree on.
// Everything defined here is forced inline: see the rule in isa/simd.h.
#include "backends/cpu/kernels/attention.h"

namespace tessera::cpu {

// What one thread does in one go: one batch and key/value head with all query heads of its group,
// restricted to some of the query blocks (forward) or key blocks (backward), see block_of_slot().
struct AttentionUnit {
  int64_t batch = 0, kv_head = 0, chunk = 0, chunks = 1;
};

#define TESSERA_ATTENTION_INLINE static inline __attribute__((always_inline))

TESSERA_ATTENTION_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
TESSERA_ATTENTION_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
TESSERA_ATTENTION_INLINE int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
TESSERA_ATTENTION_INLINE int64_t attention_blocks(const AttentionProblem& p) {
  return (p.tokens + kAttentionBlock - 1) / kAttentionBlock;
}
TESSERA_ATTENTION_INLINE int64_t first_query_block(const AttentionProblem& p) {
  return p.first_query / kAttentionBlock;
}
// Row of token `t` in q and o, heads and elements aside.
TESSERA_ATTENTION_INLINE int64_t query_row(const AttentionProblem& p, int64_t batch, int64_t t) {
  return batch * (p.tokens - p.first_query) + t - p.first_query;
}
// Block number `slot` of a chunk. Each run of `chunks` blocks is dealt out to the chunks, there and
// back in turn, which evens out the causal triangle.
TESSERA_ATTENTION_INLINE int64_t block_of_slot(const AttentionUnit& unit, int64_t slot) {
  return slot * unit.chunks + (slot % 2 == 0 ? unit.chunk : unit.chunks - 1 - unit.chunk);
}
TESSERA_ATTENTION_INLINE int64_t slots_of(const AttentionUnit& unit, int64_t blocks) {
  int64_t whole = blocks / unit.chunks;
  return whole + (block_of_slot(unit, whole) < blocks ? 1 : 0);
}

struct BlockRange {
  int64_t begin, end;
};
// Which pairs of a row of the batch are visible.
struct RowMask {
  const AttentionProblem& p;
  const int32_t* starts;  // of documents, [T]; or null
};
// Args is AttentionForward or AttentionBackward.
template <class Args>
TESSERA_ATTENTION_INLINE RowMask row_mask(const Args& args, int64_t batch) {
  const int32_t* starts = args.document_starts;
  return {args.problem, starts == nullptr ? nullptr : starts + batch * args.problem.tokens};
}
// Key blocks of which some query of the block sees some key.
TESSERA_ATTENTION_INLINE BlockRange visible_keys(const RowMask& mask, int64_t query_block) {
  const AttentionProblem& p = mask.p;
  int64_t first = query_block * kAttentionBlock;
  int64_t begin = p.window > 0 ? larger(0, first - p.window + 1) : 0;
  if (mask.starts) begin = larger(begin, mask.starts[first]);
  return {begin / kAttentionBlock, p.causal ? query_block + 1 : attention_blocks(p)};
}
// Query blocks among these of which some query sees some key of the block. Empty where the end is
// not behind the begin.
TESSERA_ATTENTION_INLINE BlockRange visible_queries(const RowMask& mask, int64_t key_block,
                                                    BlockRange among) {
  const AttentionProblem& p = mask.p;
  int64_t begin = p.causal ? larger(key_block, among.begin) : among.begin, end = among.end;
  int64_t last = smaller(key_block * kAttentionBlock + kAttentionBlock, p.tokens) - 1;
  if (p.window > 0) end = smaller(end, (last + p.window - 1) / kAttentionBlock + 1);
  if (mask.starts) {
    int64_t seen = larger(key_block + 1, begin);
    while (seen < end && mask.starts[seen * kAttentionBlock] <= last) ++seen;
    end = smaller(end, seen);
  }
  return {begin, end};
}
TESSERA_ATTENTION_INLINE BlockRange visible_queries(const RowMask& mask, int64_t key_block) {
  return visible_queries(mask, key_block, {0, attention_blocks(mask.p)});
}
// Whether some pair of the two blocks is hidden, keys past the end included.
TESSERA_ATTENTION_INLINE bool partly_hidden(const RowMask& mask, int64_t query_block,
                                            int64_t key_block) {
  const AttentionProblem& p = mask.p;
  int64_t t = query_block * kAttentionBlock, u = key_block * kAttentionBlock;
  int64_t t_last = t + kAttentionBlock - 1, u_last = u + kAttentionBlock - 1;
  if (mask.starts && mask.starts[smaller(t_last, p.tokens - 1)] > u) return true;
  return u_last >= p.tokens || (p.causal && u_last > t) || (p.window > 0 && t_last - u >= p.window);
}
// Which queries of a block see a key, asked for in ascending order of keys.
struct SeeingQueries {
  const RowMask& mask;
  int64_t reached;  // queries of the block before this one are of documents that the keys reach

  // Key u is visible to the queries of the block in [begin, end).
  __attribute__((always_inline)) BlockRange of(int64_t u, int64_t block_end) {
    constexpr int64_t kNone = INT32_MAX;
    const AttentionProblem& p = mask.p;
    if (u >= p.tokens) return {kNone, kNone};
    int64_t end = p.window > 0 ? smaller(u + p.window, kNone) : kNone;
    if (mask.starts) {
      while (reached < block_end && mask.starts[reached] <= u) ++reached;
      end = smaller(end, reached);
    }
    return {p.causal ? u : 0, end};
  }
};

// What kept probabilities are multiplied with; 1 without dropout.
TESSERA_ATTENTION_INLINE float attention_keep_scale(const AttentionProblem& p) {
  return 65536.0f / (float)(65536 - p.threshold);
}
// Random bits of a pair of blocks.
constexpr int64_t kAttentionBits = kAttentionBlock * kAttentionBlock;

// Hands out aligned pieces of a workspace. Without memory (base == nullptr) it only counts, so that
// the size and the layout of a scratch area are one function.
struct Scratch {
  char* base;
  int64_t used = 0;
  template <class T>
  __attribute__((always_inline)) T* take(int64_t count) {
    char* piece = base == nullptr ? nullptr : base + used;
    used += (count * (int64_t)sizeof(T) + 63) / 64 * 64;
    return reinterpret_cast<T*>(piece);
  }
};

// Floats of dQ of one head in the accumulators' layout, [block][head_dim rounded up][64 queries].
TESSERA_ATTENTION_INLINE int64_t attention_dq_floats(const AttentionProblem& p) {
  return attention_blocks(p) * round_up(p.head_dim, 32) * kAttentionBlock;
}

// What each family of kernels defines; isa/ and bf16/attention_buffers.h say how much scratch one
// thread needs. backward_unit accumulates dQ in f32: if the unit has all keys (chunks == 1), in
// `dq` of one head, or of some blocks of it, which it also finishes; else in `dq` of all heads of
// the group, one after the other, where all that has a query is written. finish_dq adds the `parts`
// sums of one head, `part_stride` floats apart, in their order, and writes one query block. A unit
// is false where it cannot multiply its numbers: all that the call was to compute is then left to
// another family, whose dQ has a layout of its own.
#define TESSERA_DECLARE_ATTENTION_UNITS                                                  \
  bool attention_forward_unit(const AttentionForward& args, const AttentionUnit& unit,   \
                              char* scratch);                                            \
  bool attention_backward_unit(const AttentionBackward& args, const AttentionUnit& unit, \
                               float* dq, char* scratch);                                \
  void attention_finish_dq(const AttentionBackward& args, int64_t batch, int64_t head,   \
                           int64_t block, float* dq, int64_t part_stride, int64_t parts)

TESSERA_DECLARE_PER_ISA(TESSERA_DECLARE_ATTENTION_UNITS)
namespace amx {
TESSERA_DECLARE_ATTENTION_UNITS;
}
namespace amx_f32 {
TESSERA_DECLARE_ATTENTION_UNITS;
}
namespace vdpbf16 {
TESSERA_DECLARE_ATTENTION_UNITS;
}

}  // namespace tessera::cpu
