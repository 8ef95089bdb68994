#include "backends/cpu/kernels/sum_n.h"

#include "backends/cpu/kernels/tiles.h"

namespace tessera::cpu {

void sum_n(const SumN& args, Isa isa, ThreadPool& pool) {
  constexpr int64_t kElements = 32768;  // of a tile, as for the other elementwise kernels
  auto range = TESSERA_SELECT(isa, sum_n_range);
  for_ranges(pool, args.n, kElements, [&](int64_t begin, int64_t end) { range(args, begin, end); });
}

}  // namespace tessera::cpu
