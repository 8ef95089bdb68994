#include "backends/cpu/kernels/matmul_row.h"

#include "backends/cpu/kernels/tiles.h"
#include "base/text.h"

namespace tessera::cpu {
namespace {

// Elements of w that one thread takes at a time: some ten microseconds at the speed of memory.
constexpr int64_t kTileElements = 1 << 16;

class RowMatmul final : public Matmul {
 public:
  RowMatmul(const MatmulProblem& problem, Isa isa)
      : Matmul(problem),
        isa_(isa),
        columns_(std::max<int64_t>(4, kTileElements / std::max<int64_t>(1, problem.k))) {}

  int64_t workspace_bytes(int) const override { return 0; }
  void run(ThreadPool& pool, const void* a, const void* b, void* c, void*,
           const void* bias) const override {
    const MatmulProblem& p = problem();
    MatmulRow args{.dtype = p.a,
                   .c = p.c,
                   .x = a,
                   .w = b,
                   .bias = p.bias ? bias : nullptr,
                   .y = c,
                   .k = p.k,
                   .stride = p.ldb};
    auto range = TESSERA_SELECT(isa_, matmul_row);
    for_ranges(pool, p.n, columns_, [&](int64_t begin, int64_t end) { range(args, begin, end); });
  }
  std::string description() const override { return cat("row ", name(isa_)); }

 private:
  Isa isa_;
  int64_t columns_;
};

}  // namespace

std::unique_ptr<const Matmul> make_row_matmul(const MatmulProblem& p, Isa isa) {
  if (p.m != 1 || p.transpose_a || !p.transpose_b || p.accumulate) return nullptr;
  return std::make_unique<RowMatmul>(p, isa);
}

}  // namespace tessera::cpu
