// The bf16 product of AMX on any machine: kernels that only note where they would write.
#include "backends/cpu/kernels/matmul_stationary.h"

#include <gtest/gtest.h>

#include <atomic>

#include "backends/cpu/kernels/tiles.h"
#include "base/thread_pool.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kUnit = 32, kUnitBytes = kUnit * kUnit * 2, kSums = kUnit * kUnit * 4;

// Addresses without memory.
char* address(uintptr_t at) { return reinterpret_cast<char*>(at); }  // NOLINT
char* const kWorkspace = address(uintptr_t{1} << 44);

std::atomic<int64_t> written;  // bytes of the workspace, from its begin
std::atomic<bool> before = false;

void note(const void* place, int64_t bytes) {
  const int64_t end = static_cast<const char*>(place) + bytes - kWorkspace;
  if (end < bytes) before = true;
  for (int64_t now = written; end > now && !written.compare_exchange_weak(now, end);) {
  }
}

void pack(const PanelSource& x) {
  if (x.out) note(x.out, ceil_div(x.lines, kUnit) * ceil_div(x.depths, kUnit) * kUnitBytes);
}

void multiply(const StationaryProduct& x, const PanelSource& ahead) {
  pack(ahead);
  note(x.sums, x.row_panels * (x.keeps_sums ? x.column_panels : 1) * kSums);
}

constexpr StationaryKernels kKernels{kUnit, kUnitBytes, pack, multiply};

TEST(StationaryMatmul, StaysInsideOfItsWorkspace) {
  for (int threads : {3, 8, 64}) {
    ThreadPool pool(threads);
    for (int64_t m : {1, 700, 32768, 50304}) {
      for (int64_t k : {333, 2816}) {
        for (int64_t n : {33, 4096}) {
          const MatmulProblem p{.m = m,
                                .n = n,
                                .k = k,
                                .transpose_b = true,
                                .a = DType::kBF16,
                                .b = DType::kBF16,
                                .c = DType::kBF16,
                                .lda = k,
                                .ldb = k,
                                .ldc = n};
          const auto product = make_stationary_matmul(p, kKernels);
          written = 0;
          product->run(pool, address(uintptr_t{2} << 44), address(uintptr_t{3} << 44),
                       address(uintptr_t{4} << 44), kWorkspace, nullptr, 0);
          EXPECT_FALSE(before);
          EXPECT_GT(written, 0);
          EXPECT_LE(written, product->workspace_bytes(threads))
              << m << " x " << n << " x " << k << ", " << threads << " threads";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
