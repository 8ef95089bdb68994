#include "backends/cpu/kernels/swiglu.h"

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {

void swiglu_forward(const SwigluForward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, swiglu_forward_rows);
  for_ranges(pool, args.rows, rows_per_tile(args.width),
             [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

void swiglu_backward(const SwigluBackward& args, Isa isa, ThreadPool& pool) {
  auto rows = TESSERA_SELECT(isa, swiglu_backward_rows);
  for_ranges(pool, args.rows, rows_per_tile(args.width),
             [&](int64_t begin, int64_t end) { rows(args, begin, end); });
}

}  // namespace tessera::cpu
