#include "backends/cpu/kernels/rms_norm.h"

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {
constexpr int64_t kBackwardRows = 32;  // rows that share one partial dw
constexpr int64_t kColumns = 1024;     // columns of dw that one tile sums
}  // namespace

void rms_norm_forward(const RmsNormForward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, rms_norm_forward_rows);
  for_ranges(pool, args.rows, rows_per_tile(args.width),
             [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

int64_t rms_norm_backward_workspace(int64_t rows, int64_t width) {
  return ceil_div(rows, kBackwardRows) * width * static_cast<int64_t>(sizeof(float));
}

void rms_norm_backward(const RmsNormBackward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, rms_norm_backward_rows);
  for_ranges(pool, args.rows, kBackwardRows, [&](int64_t begin, int64_t end) {
    rows(args, begin, end, args.workspace + begin / kBackwardRows * args.width);
  });
  auto sum = TESSERA_SELECT(isa, rms_norm_sum_partials);
  for_ranges(pool, args.width, kColumns, [&](int64_t begin, int64_t end) {
    sum(args, ceil_div(args.rows, kBackwardRows), begin, end);
  });
}

}  // namespace tessera::cpu
