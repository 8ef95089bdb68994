#pragma once
#include <cstdint>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"

namespace tessera {
class ThreadPool;
}

namespace tessera::cpu {

// Scaled dot-product attention without the score matrix (Dao et al., FlashAttention,
// arXiv:2205.14135, algorithms 1 and 4), grouped-query: query head h reads key/value head
// h / (heads / kv_heads).
//
//   score[t, u] = scale * sum_d q[t, d] k[u, d]      visible keys only
//   lse[t]      = log sum_u exp(score[t, u])
//   o[t, d]     = sum_u exp(score[t, u] - lse[t]) v[u, d]
//
// q, o [B, T, H, D], k, v [B, T, Hk, D], lse [B, H, T] in f32. Heads are adjacent and each token is
// a stride after the one before it, so slices of a packed qkv work; batches are T strides apart.
// Key u is visible to query t iff (not causal or u <= t) and (window == 0 or t - u < window) and
// (no document_starts or u >= document_starts[b, t]). Starts need the causal mask; along a row they
// do not decrease, and none is above its own place. Blocks of which no pair is visible cost
// nothing.
//
// Dropout: with a threshold above 0, the probability of a key counts in o (not in lse) times 1 / (1
// - threshold / 65536) where its random bits are at least the threshold, else not at all. Those of
// key u and query t are random_bits16(row_keys[b], stream, n), n = 128 (((first_head + h) ceil(T /
// 2) + u / 2) ceil(T / 64) + t / 64) + u % 2 * 64 + t % 64 with whole quotients.
//
// Scores, probabilities, sums and accumulators are f32; inputs are widened exactly, outputs rounded
// once. On kAvx512Bf16 and kAmx with bf16 the probabilities and the gradients of the scores are
// rounded to bf16 where they enter a product. lse comes from the unrounded ones. On kAmx f32 is
// multiplied in three parts of bf16, as exactly, from T = 513 on, and by
// vectors where an input has no such parts: infinities, NaN, 3.39e38 and above. NaN in an input
// reaches what depends on it.
//
// Results depend on the instruction set, never on the number of threads.
struct AttentionProblem {
  DType dtype = DType::kF32;  // kF32 or kBF16, of all tensors but lse
  int64_t batch = 0, tokens = 0, heads = 0, kv_heads = 0, head_dim = 0;  // head_dim in [1, 256]
  bool causal = true;
  int64_t window = 0;     // 0: unlimited
  float scale = 0;        // positive; usually 1 / sqrt(head_dim)
  int32_t threshold = 0;  // of dropout, in [0, 65536); 0: none
  uint64_t stream = 0;
  // Forward without dropout only: q, o and lse begin with this token, a multiple of
  // kAttentionBlock; k and v with token 0. Each query's bits are those of the whole problem.
  int64_t first_query = 0;
};

// Queries and keys are visited in blocks of this many tokens. On vectors 64 x 64 scores in f32 are
// 16 KB and stay in L1 beside one block of each operand; products of bf16 take half of them at a
// time.
constexpr int64_t kAttentionBlock = 64;

struct AttentionForward {
  AttentionProblem problem;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;                                            // or null: not wanted
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0;  // elements between tokens
  void* workspace = nullptr;                 // attention_forward_workspace() bytes
  const int64_t* row_keys = nullptr;         // [B], of dropout
  int64_t first_head = 0;                    // number of head 0 among all heads, for dropout
  const int32_t* document_starts = nullptr;  // [B, T], or null: the first key that a query sees
};

// Reads what the forward read and wrote (q, k, v, o, lse) and dout, the gradient of o; writes dq,
// dk and dv, of the same dtype. lse itself has no gradient.
struct AttentionBackward {
  AttentionProblem problem;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const void* o = nullptr;
  const void* dout = nullptr;
  const float* lse = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, o_stride = 0, dout_stride = 0;
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  void* workspace = nullptr;  // attention_backward_workspace() bytes
  const int64_t* row_keys = nullptr;
  int64_t first_head = 0;
  const int32_t* document_starts = nullptr;
};

// Bytes of workspace for a pool of so many threads; it must be aligned to 64 bytes.
int64_t attention_forward_workspace(const AttentionProblem& problem, Isa isa, int threads);
int64_t attention_backward_workspace(const AttentionProblem& problem, Isa isa, int threads);

// Allocate nothing.
void attention_forward(const AttentionForward& args, Isa isa, ThreadPool& pool);
void attention_backward(const AttentionBackward& args, Isa isa, ThreadPool& pool);

}  // namespace tessera::cpu
