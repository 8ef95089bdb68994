#include "backends/cpu/kernels/sgd.h"

#include "backends/cpu/kernels/segments.h"

namespace tessera::cpu {

void sgd(const Sgd& args, Isa isa, ThreadPool& pool) {
  if (!*args.ok) return;
  auto range = TESSERA_SELECT(isa, sgd_range);
  for_segments(pool, {args.segment_begin, args.segment_decay, args.segments}, args.size,
               [&](int64_t begin, int64_t end, float decay) { range(args, decay, begin, end); });
}

}  // namespace tessera::cpu
