#include "backends/cpu/kernels/cross_entropy.h"

#include <cstring>

#include "backends/cpu/kernels/tiles.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::cpu {

void cross_entropy_rows(const CrossEntropyRows& args, Isa isa, ThreadPool& pool) {
  auto compute = TESSERA_SELECT(isa, cross_entropy_row);
  int64_t element = size_of(args.dlogits_dtype), bytes = args.classes * element;
  int64_t stride = args.dlogits_stride == 0 ? bytes : args.dlogits_stride * element;
  for_ranges(pool, args.rows, rows_per_tile(args.classes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int32_t target = args.targets[row];
      if (target != kIgnoredTarget) {
        TESSERA_CHECK(target >= 0 && target < args.classes,
                      cat("target ", target, " of ", args.classes));
        compute(args, row);
        continue;
      }
      args.lse[row] = args.loss[row] = 0;
      if (args.dlogits) {
        std::memset(static_cast<char*>(args.dlogits) + row * stride, 0, static_cast<size_t>(bytes));
      }
    }
  });
}

void log_sum_exp_rows(const LogSumExpRows& args, Isa isa, ThreadPool& pool) {
  auto compute = TESSERA_SELECT(isa, log_sum_exp_row);
  for_ranges(pool, args.rows, rows_per_tile(args.stride), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) compute(args, row);
  });
}

void log_sum_exp_gradient_rows(const LogSumExpGradientRows& args, Isa isa, ThreadPool& pool) {
  auto compute = TESSERA_SELECT(isa, log_sum_exp_gradient_row);
  for_ranges(pool, args.rows, rows_per_tile(args.stride), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) compute(args, row);
  });
}

}  // namespace tessera::cpu
