#include "backends/cpu/kernels/rms_norm.h"

#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {
constexpr int64_t kBackwardRows = 32;  // rows that share one partial dw
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
  sum_rows(args.workspace, args.width, ceil_div(args.rows, kBackwardRows), args.width, args.dw, isa,
           pool);
}

}  // namespace tessera::cpu
