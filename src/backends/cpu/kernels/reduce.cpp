#include "backends/cpu/kernels/reduce.h"

#include <numeric>

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kBlocks = 64;  // of a tile: 256 KiB

template <class Blocks>
double reduce(Blocks* blocks, const float* x, int64_t n, double* workspace, ThreadPool& pool) {
  int64_t count = ceil_div(n, kReduceBlock);
  for_ranges(pool, count, kBlocks,
             [&](int64_t begin, int64_t end) { blocks(x, n, begin, end, workspace); });
  return std::accumulate(workspace, workspace + count, 0.0);
}

}  // namespace

int64_t reduce_workspace(int64_t n) {
  return ceil_div(n, kReduceBlock) * static_cast<int64_t>(sizeof(double));
}

double sum(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool) {
  return reduce(TESSERA_SELECT(isa, sum_blocks), x, n, workspace, pool);
}

double sum_of_squares(const float* x, int64_t n, double* workspace, Isa isa, ThreadPool& pool) {
  return reduce(TESSERA_SELECT(isa, square_blocks), x, n, workspace, pool);
}

int64_t count_unequal(const int32_t* targets, int64_t n, int32_t ignored) {
  return n - std::count(targets, targets + n, ignored);
}

}  // namespace tessera::cpu
