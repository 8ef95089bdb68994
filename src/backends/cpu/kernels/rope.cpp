#include "backends/cpu/kernels/rope.h"

#include "backends/cpu/kernels/tiles.h"
#include "base/error.h"

namespace tessera::cpu {

void rope(const Rope& args, Isa isa, ThreadPool& pool) {
  TESSERA_CHECK(args.rotary % 2 == 0 && args.rotary <= args.width);
  auto tokens = TESSERA_SELECT(isa, rope_tokens);
  for_ranges(pool, args.batch * args.tokens, rows_per_tile(args.heads * args.width),
             [&](int64_t begin, int64_t end) { tokens(args, begin, end); });
}

}  // namespace tessera::cpu
