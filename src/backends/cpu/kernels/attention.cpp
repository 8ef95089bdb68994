#include "backends/cpu/kernels/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>

#include "backends/cpu/kernels/bf16/attention_buffers.h"
#include "backends/cpu/kernels/isa/attention_buffers.h"
#include "base/error.h"
#include "base/thread_pool.h"

namespace tessera::cpu {
namespace {

// Batch x key/value heads are usually enough units of work. Where they are few, each is cut into
// chunks of blocks, every one of which packs the operands of the whole head again. In the backward
// each also has a dQ of its own, which are added up afterwards: so fewer there.
int64_t chunks_per_head(const AttentionProblem& p, int64_t enough_units, int64_t blocks_per_chunk) {
  int64_t units = std::max<int64_t>(1, p.batch * p.kv_heads);
  int64_t blocks = attention_blocks(p) - first_query_block(p);
  return std::clamp<int64_t>((enough_units + units - 1) / units, 1,
                             std::max<int64_t>(1, blocks / blocks_per_chunk));
}
int64_t forward_chunks(const AttentionProblem& p) { return chunks_per_head(p, 16, 2); }
int64_t backward_chunks(const AttentionProblem& p) { return chunks_per_head(p, 8, 4); }

// The arithmetic of one namespace, and the scratch that one thread needs for it.
struct Family {
  decltype(&portable::attention_forward_unit) forward_unit;
  decltype(&portable::attention_backward_unit) backward_unit;
  decltype(&portable::attention_finish_dq) finish_dq;
  bool in_bf16;   // products multiply pairs of bf16
  int64_t lanes;  // else: floats of a vector

  int64_t forward_scratch(const AttentionProblem& p) const {
    Scratch count{nullptr};
    if (in_bf16)
      bf16::carve(p, count);
    else
      carve(p, lanes, count);
    return count.used;
  }
  int64_t backward_scratch(const AttentionProblem& p, int64_t chunks) const {
    Scratch count{nullptr};
    if (in_bf16)
      bf16::carve(p, chunks, count);
    else
      carve(p, lanes, chunks, count);
    return count.used;
  }
  // Floats of dQ that one thread needs at a time where it has all keys.
  int64_t dq_floats(const AttentionProblem& p) const {
    return in_bf16 ? bf16::dq_floats_of_group(p) : attention_dq_floats(p);
  }
};

Family vector_family(Isa isa) {
  return {.forward_unit = TESSERA_SELECT(isa, attention_forward_unit),
          .backward_unit = TESSERA_SELECT(isa, attention_backward_unit),
          .finish_dq = TESSERA_SELECT(isa, attention_finish_dq),
          .in_bf16 = false,
          .lanes = *TESSERA_SELECT(isa, kAttentionLanes)};
}

// Splitting f32 into parts pays for longer sequences only. Time on tiles beside vectors, D = 64,
// one thread of a Xeon with AMX: forward T = 128 1.37, 256 1.20, 512 1.0, 1,024 0.82; backward
// 0.95, 0.95, 0.94, 0.85. Both directions take the same: the backward pass computes the scores
// again, and what their roundings differed by would be an error of the probabilities.
constexpr int64_t kTokensOnVectors = 512;

// Those that compute the problem, the last one whatever its numbers are.
struct Families {
  std::array<Family, 2> all;
  int count;
  const Family* begin() const { return all.data(); }
  const Family* end() const { return all.data() + count; }
};
Families families_of([[maybe_unused]] const AttentionProblem& p, Isa isa) {
  const Family vectors = vector_family(isa);
#if defined(__x86_64__)
  auto in_bf16 = [](auto forward, auto backward, auto finish) {
    return Family{.forward_unit = forward,
                  .backward_unit = backward,
                  .finish_dq = finish,
                  .in_bf16 = true,
                  .lanes = 0};
  };
  if (isa == Isa::kAmx && p.dtype == DType::kBF16)
    return {{in_bf16(amx::attention_forward_unit, amx::attention_backward_unit,
                     amx::attention_finish_dq)},
            1};
  if (isa == Isa::kAmx && p.tokens > kTokensOnVectors)
    return {{in_bf16(amx_f32::attention_forward_unit, amx_f32::attention_backward_unit,
                     amx_f32::attention_finish_dq),
             vectors},
            2};
  if (isa == Isa::kAvx512Bf16 && p.dtype == DType::kBF16)
    return {{in_bf16(vdpbf16::attention_forward_unit, vdpbf16::attention_backward_unit,
                     vdpbf16::attention_finish_dq)},
            1};
#endif
  return {{vectors}, 1};
}

void check(const AttentionProblem& p) {
  TESSERA_CHECK(p.dtype == DType::kF32 || p.dtype == DType::kBF16, name(p.dtype));
  TESSERA_CHECK(p.batch >= 0 && p.tokens >= 0 && p.tokens < INT32_MAX - kAttentionBlock);
  TESSERA_CHECK(p.kv_heads > 0 && p.heads > 0 && p.heads % p.kv_heads == 0);
  TESSERA_CHECK(p.head_dim > 0 && p.head_dim <= 256);
  TESSERA_CHECK(p.window >= 0 && p.window <= INT32_MAX);
  TESSERA_CHECK(p.threshold >= 0 && p.threshold < 65536);
  TESSERA_CHECK(p.scale > 0, "the running maximum is taken before scaling");
  TESSERA_CHECK(p.first_query >= 0 && p.first_query % kAttentionBlock == 0 &&
                p.first_query <= p.tokens && (p.first_query == 0 || p.threshold == 0));
}

bool aligned(const void* workspace) { return reinterpret_cast<uintptr_t>(workspace) % 64 == 0; }

// Args is AttentionForward or AttentionBackward.
template <class Args>
void check(const Args& args) {
  const AttentionProblem& p = args.problem;
  check(p);
  TESSERA_CHECK(aligned(args.workspace));
  TESSERA_CHECK(args.document_starts == nullptr || (p.causal && p.first_query == 0));
}

// Where dQ is accumulated: for each thread, or, where several chunks add to the same dQ, for all
// heads of the group per unit.
struct DqSlots {
  int64_t count, floats;
};
DqSlots dq_slots(const AttentionProblem& p, const Family& family, int64_t chunks, int threads) {
  if (chunks == 1) return {threads, family.dq_floats(p)};
  return {p.batch * p.kv_heads * chunks, p.heads / p.kv_heads * attention_dq_floats(p)};
}

// Units are numbered with the chunks of one head next to each other.
AttentionUnit unit_of(const AttentionProblem& p, int64_t chunks, int64_t tile) {
  int64_t head = tile / chunks;
  return {head / p.kv_heads, head % p.kv_heads, tile % chunks, chunks};
}

}  // namespace

int64_t attention_forward_workspace(const AttentionProblem& problem, Isa isa, int threads) {
  check(problem);
  int64_t most = 0;
  for (const Family& family : families_of(problem, isa))
    most = std::max(most, threads * family.forward_scratch(problem));
  return most;
}

int64_t attention_backward_workspace(const AttentionProblem& problem, Isa isa, int threads) {
  check(problem);
  TESSERA_CHECK(problem.first_query == 0);
  int64_t chunks = backward_chunks(problem), most = 0;
  for (const Family& family : families_of(problem, isa)) {
    DqSlots slots = dq_slots(problem, family, chunks, threads);
    most = std::max(most, threads * family.backward_scratch(problem, chunks) +
                              slots.count * slots.floats * static_cast<int64_t>(sizeof(float)));
  }
  return most;
}

void attention_forward(const AttentionForward& args, Isa isa, ThreadPool& pool) {
  const AttentionProblem& p = args.problem;
  check(args);
  if (p.batch == 0 || p.tokens == 0) return;
  int64_t chunks = forward_chunks(p);
  for (const Family& family : families_of(p, isa)) {
    int64_t scratch_bytes = family.forward_scratch(p);
    char* scratch = static_cast<char*>(args.workspace);
    std::atomic<bool> done = true;
    auto work = [&](int64_t tile, int thread) {
      if (!family.forward_unit(args, unit_of(p, chunks, tile), scratch + thread * scratch_bytes))
        done = false;
    };
    // By reference: std::function would copy a closure of this size to the heap.
    pool.run(p.batch * p.kv_heads * chunks, std::ref(work));
    if (done) return;
  }
}

void attention_backward(const AttentionBackward& args, Isa isa, ThreadPool& pool) {
  const AttentionProblem& p = args.problem;
  check(args);
  if (p.batch == 0 || p.tokens == 0) return;
  int64_t chunks = backward_chunks(p);
  for (const Family& family : families_of(p, isa)) {
    DqSlots slots = dq_slots(p, family, chunks, pool.threads());
    int64_t scratch_bytes = family.backward_scratch(p, chunks);
    char* scratch = static_cast<char*>(args.workspace);
    float* dq = reinterpret_cast<float*>(scratch + pool.threads() * scratch_bytes);
    std::atomic<bool> done = true;
    auto work = [&](int64_t tile, int thread) {
      int64_t slot = chunks == 1 ? thread : tile;
      if (!family.backward_unit(args, unit_of(p, chunks, tile), dq + slot * slots.floats,
                                scratch + thread * scratch_bytes))
        done = false;
    };
    pool.run(p.batch * p.kv_heads * chunks, std::ref(work));
    if (!done) continue;
    if (chunks == 1) return;
    int64_t blocks = attention_blocks(p), group = p.heads / p.kv_heads;
    auto finish = [&](int64_t tile, int) {
      int64_t block = tile % blocks, head = tile / blocks % p.heads;
      int64_t batch = tile / blocks / p.heads;
      int64_t first_slot = (batch * p.kv_heads + head / group) * chunks;
      float* first = dq + first_slot * slots.floats + head % group * attention_dq_floats(p);
      family.finish_dq(args, batch, head, block, first, slots.floats, chunks);
    };
    return pool.run(p.batch * p.heads * blocks, std::ref(finish));
  }
}

}  // namespace tessera::cpu
