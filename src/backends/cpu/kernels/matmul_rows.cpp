#include "backends/cpu/kernels/matmul_rows.h"

#include "backends/cpu/kernels/tiles.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Elements of w that one thread takes at a time: some ten microseconds at the speed of memory.
constexpr int64_t kTileElements = 1 << 16;

class RowsMatmul final : public Matmul {
 public:
  RowsMatmul(const MatmulProblem& problem, Isa isa)
      : Matmul(problem),
        isa_(isa),
        columns_(std::max<int64_t>(4, kTileElements / std::max<int64_t>(1, problem.k))) {}

  int64_t workspace_bytes(int) const override {
    const MatmulProblem& p = problem();
    return p.a == DType::kF32 ? 0 : p.m * p.k * size_of(DType::kF32);
  }
  void run(ThreadPool& pool, const void* a, const void* b, void* c, void* workspace,
           const void* bias, int64_t) const override {
    const MatmulProblem& p = problem();
    MatmulRows args{.dtype = p.b,
                    .c = p.c,
                    .x = static_cast<const float*>(a),
                    .w = b,
                    .bias = p.bias ? bias : nullptr,
                    .y = c,
                    .m = p.m,
                    .k = p.k,
                    .x_stride = p.lda,
                    .w_stride = p.ldb,
                    .y_stride = p.ldc};
    if (p.a == DType::kBF16) {
      auto* x = static_cast<float*>(workspace);
      for (int64_t i = 0; i < p.m; ++i) {
        const BF16* row = static_cast<const BF16*>(a) + i * p.lda;
        for (int64_t k = 0; k < p.k; ++k) x[i * p.k + k] = static_cast<float>(row[k]);
      }
      args.x = x;
      args.x_stride = p.k;
    }
    auto range = TESSERA_SELECT(isa_, matmul_rows);
    for_ranges(pool, p.n, columns_, [&](int64_t begin, int64_t end) { range(args, begin, end); });
  }
  std::string description() const override { return cat("rows ", name(isa_)); }

 private:
  Isa isa_;
  int64_t columns_;
};

}  // namespace

std::unique_ptr<const Matmul> make_rows_matmul(const MatmulProblem& p, Isa isa) {
  if (p.m < 1 || p.m > kFewRows || p.transpose_a || !p.transpose_b || p.accumulate) return nullptr;
  return std::make_unique<RowsMatmul>(p, isa);
}

}  // namespace tessera::cpu
