#include "backends/cpu/kernels/adamw.h"

#include <cmath>

#include "backends/cpu/kernels/elementwise.h"
#include "backends/cpu/kernels/segments.h"
#include "base/error.h"

namespace tessera::cpu {
namespace {

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
  TESSERA_CHECK(*args.step >= 1);
  const AdamWFactors factors = factors_of(args);
  auto range = TESSERA_SELECT(isa, adamw_range);
  for_segments(pool, {args.segment_begin, args.segment_decay, args.segments}, args.size,
               [&](int64_t begin, int64_t end, float decay) {
                 AdamWFactors mine = factors;
                 mine.decay = decay;
                 range(args, mine, begin, end);
               });
}

}  // namespace tessera::cpu
