#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/cpu/kernels/isa.h"
#include "base/dtype.h"
#include "base/thread_pool.h"

namespace tessera::cpu {

// C[m, n] = op(A) op(B), or C += op(A) op(B) where `accumulate`, or C = op(A) op(B) + bias[n] in
// every row where `bias`; op(A) is [m, k], op(B) is [k, n]. Every matrix is row-major with its
// leading dimension in elements; A is stored as [m, k], or as [k, m] where `transpose_a`; B as [k,
// n], or as [n, k] where `transpose_b`.
//
// The three products of a linear layer Y[T, N] = X[T, K] W[N, K]^T:
//   forward  Y  = X W^T     m = T, n = N, k = K, transpose_b
//   input    dX = dY W      m = T, n = K, k = N
//   weight   dW = dY^T X    m = N, n = K, k = T, transpose_a
//
// dtypes: a and b both f32 with c f32, or a and b both bf16 with c bf16 or f32; a bias has that of
// a and c. Sums are f32; c is rounded once, after the old C or the bias was added. On AMX f32 is
// multiplied in three parts of bf16, with the same error but for numbers below 2^-109
// (amx/matmul_f32.cpp).
struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  DType a = DType::kF32, b = DType::kF32, c = DType::kF32;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool accumulate = false;
  bool bias = false;  // not with accumulate

  bool operator==(const MatmulProblem&) const = default;
};

// Reuse distance of a C that no cache holds.
constexpr int64_t kPastCaches = std::numeric_limits<int64_t>::max();

// A prepared product. Immutable: several threads may run one at the same time, each with a pool and
// a workspace of its own. Bits depend on the problem and the instruction set only.
class Matmul {
 public:
  virtual ~Matmul() = default;

  const MatmulProblem& problem() const { return problem_; }
  // Operations, a multiplication and an addition counting two.
  int64_t flops() const { return 2 * problem_.m * problem_.n * problem_.k; }

  // Bytes that run() needs for a pool of so many threads.
  virtual int64_t workspace_bytes(int threads) const = 0;
  // Operands must not overlap C. `workspace` is aligned to 64 bytes and needs no initialisation.
  // `reuse_distance`: bytes that were accessed since C was, by which C is written through the
  // caches or past them.
  virtual void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
                   const void* bias = nullptr, int64_t reuse_distance = 0) const = 0;
  // Implementation and blocking, for reports: "packed avx512, tiles 96x512".
  virtual std::string description() const = 0;

 protected:
  explicit Matmul(const MatmulProblem& problem) : problem_(problem) {}

 private:
  MatmulProblem problem_;
};

// One way to compute products. make() returns null where it declines.
struct MatmulImplementation {
  std::string_view name;
  std::unique_ptr<const Matmul> (*make)(const MatmulProblem& problem, Isa isa);
};

// Best first; the last one takes every problem.
std::span<const MatmulImplementation> matmul_implementations();

// The first implementation that takes the problem. Prepared once per (problem, isa) and kept for
// the life of the process; may be called from several threads. InternalError for extents, leading
// dimensions or dtypes outside the rules above.
std::shared_ptr<const Matmul> make_matmul(const MatmulProblem& problem, Isa isa);

}  // namespace tessera::cpu
