#include "backends/cpu/kernels/matmul.h"

#include <mutex>
#include <unordered_map>

#include "backends/cpu/kernels/matmul_packed.h"
#include "backends/cpu/kernels/matmul_rows.h"
#include "backends/cpu/kernels/matmul_stationary.h"
#include "base/error.h"
#include "base/text.h"
#ifdef TESSERA_WITH_ONEDNN
#include "backends/cpu/kernels/matmul_onednn.h"
#endif

namespace tessera::cpu {
namespace {

// Our bf16 product comes before oneDNN's because it is 1.1 (machine busy) to 1.5 times as fast:
// geometric mean over forward, dX and dW of seven layer shapes, interleaved. For f32 our tiles take
// 0.65 of oneDNN's time at width 768, 0.8 to 1.0 at 256; oneDNN is 5 to 10 % faster in forward and
// dX than our vectors.
//
// A few rows are bound by reading b: of one row ours and oneDNN's take 20 to 31 GB/s a core, the
// packed ones 8 (amx) and 5 to 8 (vector), over five layer shapes of 768 to 11,008 on a busy
// machine. oneDNN is not everywhere and takes bf16 on AMX only. 16 rows take 1.1 to 1.2 times as
// long as packed ones of bf16 on AMX, 8 rows 0.7; in f32 16 rows take 0.7 to 0.8 of the time of our
// packed vectors (three layer shapes of 768 to 4096, busy machine).
constexpr MatmulImplementation kImplementations[] = {
    {"rows", make_rows_matmul},
#if defined(__x86_64__)
    {"amx", make_amx_matmul},       {"amx_f32", make_amx_f32_matmul},
#endif
    {"bf16", make_bf16_matmul},
#ifdef TESSERA_WITH_ONEDNN
    {"onednn", make_onednn_matmul},
#endif
    {"vector", make_vector_matmul},
};

std::string describe(const MatmulProblem& p) {
  return cat("c ", name(p.c), " [", p.m, ", ", p.n, "] ld ", p.ldc, ", a ", name(p.a), " ld ",
             p.lda, ", b ", name(p.b), " ld ", p.ldb, ", k ", p.k);
}

void check(const MatmulProblem& p) {
  TESSERA_CHECK(p.m >= 0 && p.n >= 0 && p.k >= 0, describe(p));
  TESSERA_CHECK(p.lda >= (p.transpose_a ? p.m : p.k), describe(p));
  TESSERA_CHECK(p.ldb >= (p.transpose_b ? p.k : p.n), describe(p));
  TESSERA_CHECK(p.ldc >= p.n, describe(p));
  TESSERA_CHECK(p.a == p.b && (p.a == DType::kF32 || p.a == DType::kBF16), describe(p));
  TESSERA_CHECK(p.c == DType::kF32 || p.c == p.a, describe(p));
  TESSERA_CHECK(!p.bias || (p.c == p.a && !p.accumulate), describe(p));
}

struct Key {
  MatmulProblem problem;
  Isa isa;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    const MatmulProblem& p = key.problem;
    size_t hash = 0;
    for (int64_t x :
         {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, int64_t{p.transpose_a}, int64_t{p.transpose_b},
          int64_t{p.accumulate}, int64_t{p.bias}, static_cast<int64_t>(p.a),
          static_cast<int64_t>(p.c), static_cast<int64_t>(key.isa)}) {
      hash = (hash ^ static_cast<size_t>(x)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

}  // namespace

std::span<const MatmulImplementation> matmul_implementations() { return kImplementations; }

std::shared_ptr<const Matmul> make_matmul(const MatmulProblem& problem, Isa isa) {
  check(problem);
  static std::mutex mutex;
  static std::unordered_map<Key, std::shared_ptr<const Matmul>, KeyHash> prepared;
  std::lock_guard lock(mutex);
  std::shared_ptr<const Matmul>& entry = prepared[{problem, isa}];
  for (const MatmulImplementation& implementation : kImplementations) {
    if (!entry) entry = implementation.make(problem, isa);
  }
  return entry;
}

}  // namespace tessera::cpu
