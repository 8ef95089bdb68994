#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// Attention of `queries` tokens at places start, start + 1 ... of their sequences over caches that
// hold the keys and values of all tokens so far, their own included: sequence b, from start[b] on,
// in row[b] of the caches. Query t sees key u iff u <= start + t and (window == 0 or start + t - u
// < window); query head h reads key/value head h / (heads / kv_heads).
//
// q, o [batch, queries, heads, head_dim]; k, v [rows, capacity, kv_heads, head_dim], of which
// tokens from start + queries on are not read. Scores, probabilities, sums and accumulators are
// f32; inputs are widened exactly, o is rounded once.
//
// Whole blocks of queries that begin at a multiple of kAttentionBlock have the bits of
// attention_forward() over the whole sequence; fewer are computed one by one, which reads keys and
// values once for all heads of a group. Results never depend on the number of threads, and those of
// a sequence not on the others.
struct CachedAttention {
  DType dtype = DType::kF32;  // kF32 or kBF16, of all tensors
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  const int32_t* start = nullptr;  // [batch], at most capacity - queries each
  const int32_t* row = nullptr;    // [batch]
  int64_t batch = 0, queries = 0, rows = 0, capacity = 0, heads = 0, kv_heads = 0;
  int64_t head_dim = 0;  // at most 256
  int64_t window = 0;    // 0: unlimited
  float scale = 0;       // positive
  void* workspace = nullptr;
};

// Bytes of workspace for any `start`; it must be aligned to 64 bytes.
int64_t cached_attention_workspace(const CachedAttention& args, Isa isa, int threads);
void cached_attention(const CachedAttention& args, Isa isa, ThreadPool& pool);

// One query of one batch with the heads of one group; scratch of that many bytes.
TESSERA_DECLARE_PER_ISA(int64_t cached_attention_scratch(const CachedAttention& args);
                        void cached_attention_query(const CachedAttention& args, int64_t batch,
                                                    int64_t kv_head, int64_t query, char* scratch))

}  // namespace tessera::cpu
