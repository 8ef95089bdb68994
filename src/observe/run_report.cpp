#include "observe/run_report.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tessera {

std::optional<std::string> RunReport::add(const StepReport& r) {
  ++steps_;
  tokens_ += r.tokens;
  peak_memory_ = std::max(peak_memory_, r.memory_bytes);
  if (steps_ % every_ != 0) return std::nullopt;
  const double interval = r.elapsed_seconds - std::exchange(reported_seconds_, r.elapsed_seconds);
  const double tokens_per_second = per_second(static_cast<double>(tokens_), r.elapsed_seconds);
  auto truncated = [](double x) { return static_cast<int64_t>(std::min(x, 1e18)); };
  return cat("step: ", r.batch + 1, "\ntokens seen: ", r.tokens_seen, "\nloss: ", r.loss,
             "\ngradient norm: ", r.gradient_norm, "\nspeed for these ", every_,
             " steps: ", interval / static_cast<double>(every_),
             "\noverall speed: ", r.elapsed_seconds / static_cast<double>(steps_),
             "\nLR: ", r.next_learning_rate, "\nreserved memory: ", std::exchange(peak_memory_, 0),
             "\nallocated memory: ", r.allocated_bytes, "\noverall token per gpu per sec: ",
             truncated(tokens_per_second / static_cast<double>(ranks_)),
             "\ntoken per day: ", truncated(tokens_per_second * 86400));
}

}  // namespace tessera
