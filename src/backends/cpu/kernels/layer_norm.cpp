#include "backends/cpu/kernels/layer_norm.h"

#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {
namespace {
constexpr int64_t kBackwardRows = 32;  // rows that share one partial dw and db
}  // namespace

void layer_norm_forward(const LayerNormForward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, layer_norm_forward_rows);
  for_ranges(pool, args.rows, rows_per_tile(args.width),
             [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

int64_t layer_norm_backward_workspace(int64_t rows, int64_t width) {
  return ceil_div(rows, kBackwardRows) * 2 * width * static_cast<int64_t>(sizeof(float));
}

void layer_norm_backward(const LayerNormBackward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, layer_norm_backward_rows);
  int64_t width = args.width, tiles = ceil_div(args.rows, kBackwardRows);
  for_ranges(pool, args.rows, kBackwardRows, [&](int64_t begin, int64_t end) {
    float* partial = args.workspace + begin / kBackwardRows * 2 * width;
    rows(args, begin, end, partial, partial + width);
  });
  sum_rows(args.workspace, 2 * width, tiles, width, args.dw, isa, pool);
  sum_rows(args.workspace + width, 2 * width, tiles, width, args.db, isa, pool);
}

}  // namespace tessera::cpu
