#include "backends/cpu/kernels/adamw.h"

#include <cmath>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/tiles.h"
#include "base/error.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kElements = 16384;  // of a tile: 256 KiB of state and gradient

AdamWFactors factors_of(const AdamW& args) {
  auto step = static_cast<double>(*args.step);
  auto narrow = [](double x) { return static_cast<float>(x); };
  return {.lr = *args.lr,
          .scale = *args.scale,
          .decay = 0,
          .beta1 = narrow(args.beta1),
          .one_minus_beta1 = narrow(1 - args.beta1),
          .beta2 = narrow(args.beta2),
          .one_minus_beta2 = narrow(1 - args.beta2),
          .epsilon = narrow(args.epsilon),
          .inverse_m = narrow(1 / (1 - std::pow(args.beta1, step))),
          .inverse_root_v = narrow(1 / std::sqrt(1 - std::pow(args.beta2, step)))};
}

}  // namespace

void adamw(const AdamW& args, Isa isa, ThreadPool& pool) {
  if (!*args.ok) {
    if (args.shadow) cast_to_bf16(args.w, args.shadow, args.size, isa, pool);
    return;
  }
  TESSERA_CHECK(*args.step >= 1 && args.segments >= 1 && args.segment_begin[0] == 0);
  const AdamWFactors factors = factors_of(args);
  auto range = TESSERA_SELECT(isa, adamw_range);
  for_ranges(pool, args.size, kElements, [&](int64_t begin, int64_t end) {
    const int64_t* last = args.segment_begin + args.segments;
    const int64_t* next = std::upper_bound(args.segment_begin, last, begin);
    while (begin < end) {
      AdamWFactors mine = factors;
      mine.decay = args.segment_decay[next - 1 - args.segment_begin];
      int64_t stop = next == last ? end : std::min(*next, end);
      range(args, mine, begin, stop);
      begin = stop;
      while (next != last && *next <= begin) ++next;
    }
  });
}

}  // namespace tessera::cpu
