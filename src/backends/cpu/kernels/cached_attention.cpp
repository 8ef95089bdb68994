#include "backends/cpu/kernels/cached_attention.h"

#include <algorithm>
#include <functional>

#include "backends/cpu/kernels/attention.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace tessera::cpu {
namespace {

// The blocked kernel packs all keys of a head and computes blocks of 64 queries however many there
// are: worth it from a quarter of a block on.
constexpr int64_t kFewestInBlocks = kAttentionBlock / 4;

bool may_use_blocks(const CachedAttention& args) { return args.queries >= kFewestInBlocks; }

AttentionProblem problem_of(const CachedAttention& args, int64_t start) {
  AttentionProblem p;
  p.dtype = args.dtype;
  p.batch = 1;
  p.tokens = start + args.queries;
  p.heads = args.heads;
  p.kv_heads = args.kv_heads;
  p.head_dim = args.head_dim;
  p.window = args.window;
  p.scale = args.scale;
  p.first_query = start;
  return p;
}

// Sequence b.
void by_blocks(const CachedAttention& args, int64_t b, Isa isa, ThreadPool& pool) {
  AttentionForward forward;
  forward.problem = problem_of(args, args.start[b]);
  forward.q_stride = forward.o_stride = args.heads * args.head_dim;
  forward.k_stride = forward.v_stride = args.kv_heads * args.head_dim;
  forward.workspace = args.workspace;
  int64_t element = size_of(args.dtype), q_bytes = args.queries * forward.q_stride * element,
          kv_bytes = args.capacity * forward.k_stride * element;
  forward.q = static_cast<const char*>(args.q) + b * q_bytes;
  forward.k = static_cast<const char*>(args.k) + args.row[b] * kv_bytes;
  forward.v = static_cast<const char*>(args.v) + args.row[b] * kv_bytes;
  forward.o = static_cast<char*>(args.o) + b * q_bytes;
  attention_forward(forward, isa, pool);
}

// Sequences [begin, end).
void by_queries(const CachedAttention& args, int64_t begin, int64_t end, Isa isa,
                ThreadPool& pool) {
  int64_t scratch_bytes = TESSERA_SELECT(isa, cached_attention_scratch)(args);
  auto query = TESSERA_SELECT(isa, cached_attention_query);
  char* scratch = static_cast<char*>(args.workspace);
  auto work = [&](int64_t tile, int thread) {
    int64_t head = tile % args.kv_heads, t = tile / args.kv_heads;
    query(args, begin + t / args.queries, head, t % args.queries, scratch + thread * scratch_bytes);
  };
  // By reference: std::function would copy a closure of this size to the heap.
  pool.run((end - begin) * args.queries * args.kv_heads, std::ref(work));
}

}  // namespace

int64_t cached_attention_workspace(const CachedAttention& args, Isa isa, int threads) {
  int64_t bytes = threads * TESSERA_SELECT(isa, cached_attention_scratch)(args);
  if (!may_use_blocks(args)) return bytes;
  int64_t last_start = (args.capacity - args.queries) / kAttentionBlock * kAttentionBlock;
  return std::max(bytes, attention_forward_workspace(problem_of(args, last_start), isa, threads));
}

void cached_attention(const CachedAttention& args, Isa isa, ThreadPool& pool) {
  for (int64_t b = 0; b < args.batch; ++b) {
    TESSERA_CHECK(args.start[b] >= 0 && args.start[b] + args.queries <= args.capacity &&
                      args.row[b] >= 0 && args.row[b] < args.rows,
                  "tokens beyond the end of the cache");
  }
  TESSERA_CHECK(args.head_dim > 0 && args.head_dim <= 256 && args.heads % args.kv_heads == 0 &&
                args.scale > 0);
  if (!may_use_blocks(args)) return by_queries(args, 0, args.batch, isa, pool);
  for (int64_t b = 0; b < args.batch; ++b) {
    if (args.start[b] % kAttentionBlock == 0) {
      by_blocks(args, b, isa, pool);
    } else {
      by_queries(args, b, b + 1, isa, pool);
    }
  }
}

}  // namespace tessera::cpu
