#include "observe/run_report.h"

#include <algorithm>

#include "base/text.h"

namespace tessera {

std::optional<std::string> RunReport::add(const StepReport& r) {
  ++steps_;
  tokens_ += r.tokens;
  seconds_ += r.step_seconds + r.data_seconds;
  peak_memory_ = std::max(peak_memory_, r.memory_bytes);
  if (steps_ % every_ != 0) return std::nullopt;
  const double interval = seconds_ - reported_seconds_;
  reported_seconds_ = seconds_;
  const double tokens_per_second = per_second(static_cast<double>(tokens_), seconds_);
  return cat("step: ", r.batch + 1, "\ntokens seen: ", r.tokens_seen, "\nloss: ", r.loss,
             "\ngradient norm: ", r.gradient_norm, "\nspeed for these ", every_,
             " steps: ", interval / static_cast<double>(every_),
             "\noverall speed: ", seconds_ / static_cast<double>(steps_),
             "\nLR: ", r.next_learning_rate, "\nreserved memory: ", peak_memory_,
             "\nallocated memory: ", peak_memory_,
             "\noverall token per gpu per sec: ", tokens_per_second / static_cast<double>(ranks_),
             "\ntoken per day: ", tokens_per_second * 86400);
}

}  // namespace tessera
