#include "observe/progress.h"

#include <cmath>

#include "base/text.h"

namespace tessera {
namespace {

// printf shows the sign of NaN, which depends on the machine's instructions.
double without_sign_of_nan(double x) { return std::isnan(x) ? std::fabs(x) : x; }

}  // namespace

std::string progress_line(const StepReport& r) {
  std::string line = format(
      "Batch %lld Loss: %.5f, Speed: %.2f samples/sec, lr: %.6f, gradnorm: %.4f, Tokens/s: %.0f",
      static_cast<long long>(r.batch), without_sign_of_nan(r.loss),
      per_second(static_cast<double>(r.samples), r.step_seconds), r.next_learning_rate,
      without_sign_of_nan(r.gradient_norm),
      per_second(static_cast<double>(r.tokens), r.step_seconds));
  if (r.flops > 0) line += format(", TFLOPS/GPU: %.3g", per_second(r.flops, r.step_seconds) / 1e12);
  if (const auto mfu = model_flops_utilization(r)) line += format(", MFU: %.3f", *mfu);
  if (r.memory_bytes > 0) line += ", Memory: " + format_bytes(r.memory_bytes);
  if (r.seconds_left >= 0) line += ", Left: " + format_duration(r.seconds_left);
  if (r.loss_scale) line += cat(", Loss scale: ", *r.loss_scale);
  if (!r.ok) line += ", skipped";
  return line;
}

bool RunningAverage::add(const StepReport& report) {
  constexpr int64_t kWarmUp = 30;
  if (++steps_ <= kWarmUp) return false;
  batch_ = report.batch;
  samples_ += report.samples;
  seconds_ += report.step_seconds;
  flops_ += report.flops;
  recomputed_flops_ += report.recomputed_flops;
  return (report.batch + 1) % every_ == 0;
}

std::string RunningAverage::line() const {
  std::string line =
      format("Batch %lld Running Avg Speed: %.2f samples/sec, Running Avg Model TFLOPS/GPU: %.2f",
             static_cast<long long>(batch_), per_second(static_cast<double>(samples_), seconds_),
             per_second(flops_, seconds_) / 1e12);
  if (recomputed_flops_ > 0)
    line += format(", Running Avg Hardware TFLOPS/GPU: %.2f",
                   per_second(flops_ + recomputed_flops_, seconds_) / 1e12);
  return line;
}

}  // namespace tessera
