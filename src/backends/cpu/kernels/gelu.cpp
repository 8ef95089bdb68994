#include "backends/cpu/kernels/gelu.h"

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {

void gelu(const Gelu& args, Isa isa, ThreadPool& pool) {
  auto range = TESSERA_SELECT(isa, gelu_range);
  for_ranges(pool, args.n, rows_per_tile(1),
             [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

}  // namespace tessera::cpu
