#include "backends/cpu/kernels/reduce.h"

#include <numeric>

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kBlocks = 64;  // of a tile: 256 KiB

// Of a tile of a column sum: sums of 4 KiB stay in L1.
constexpr int64_t kRows = 64, kColumns = 1024;

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

int64_t column_sum_workspace(int64_t rows, int64_t width) {
  return ceil_div(rows, kRows) * width * static_cast<int64_t>(sizeof(float));
}

void column_sum(const ColumnSum& args, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, sum_row_range);
  int64_t row_tiles = ceil_div(args.rows, kRows), column_tiles = ceil_div(args.width, kColumns);
  auto work = [&](int64_t tile, int) {
    int64_t row = tile / column_tiles * kRows, column = tile % column_tiles * kColumns;
    const char* x = static_cast<const char*>(args.x);
    range(args.dtype, x + (row * args.width + column) * size_of(args.dtype), args.width,
          std::min(kRows, args.rows - row), std::min(kColumns, args.width - column),
          args.workspace + tile / column_tiles * args.width + column);
  };
  // By reference: std::function would copy a closure of this size to the heap.
  pool.run(row_tiles * column_tiles, std::ref(work));
  sum_rows(args.workspace, args.width, row_tiles, args.width, args.y, isa, pool);
}

void sum_rows(const float* x, int64_t stride, int64_t rows, int64_t width, float* y, Isa isa,
              ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, sum_row_range);
  for_ranges(pool, width, kColumns, [&](int64_t begin, int64_t end) {
    range(DType::kF32, x + begin, stride, rows, end - begin, y + begin);
  });
}

int64_t count_unequal(const int32_t* targets, int64_t n, int32_t ignored) {
  return n - std::count(targets, targets + n, ignored);
}

}  // namespace tessera::cpu
