#include "observe/progress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {
namespace {

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

// printf shows the sign of NaN, which depends on the machine's instructions.
double without_sign_of_nan(double x) { return std::isnan(x) ? std::fabs(x) : x; }

// JSON has no NaN: a number that is not finite is null.
std::string number(double x) { return std::isfinite(x) ? cat(x) : "null"; }

}  // namespace

std::string progress_line(const StepReport& r) {
  std::string line = format(
      "Batch %lld Loss: %.5f, Speed: %.2f samples/sec, lr: %.6f, gradnorm: %.4f, Tokens/s: %.0f",
      static_cast<long long>(r.batch), without_sign_of_nan(r.loss),
      rate(static_cast<double>(r.samples), r.step_seconds), r.next_learning_rate,
      without_sign_of_nan(r.gradient_norm), rate(static_cast<double>(r.tokens), r.step_seconds));
  if (r.peak_flops > 0)
    line += format(", Peak: %.1f%%", 100 * rate(r.flops, r.step_seconds) / r.peak_flops);
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
  return (steps_ - kWarmUp) % every_ == 0;
}

std::string RunningAverage::line() const {
  return format(
      "Batch %lld Running Avg Speed: %.2f samples/sec, Running Avg Model TFLOPS/GPU: %.2f",
      static_cast<long long>(batch_), rate(static_cast<double>(samples_), seconds_),
      rate(flops_, seconds_) / 1e12);
}

MetricsFile::MetricsFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw UserError(cat("cannot write metrics to '", path, "': ", std::strerror(errno)));
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::write(int64_t batch, const std::string& rest) {
  if (fd_ < 0) return;
  std::string line = cat("{\"time\":\"", utc_time(), "\",\"batch\":", batch, rest, "}\n");
  // One write a line: readers and a crash never see half of one.
  errno = 0;
  ssize_t written = ::write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  TESSERA_WARN(cat("cannot write metrics to '", path_, "': ", std::strerror(errno ? errno : ENOSPC),
                   "; training goes on without them"));
  struct stat now {};
  if (written > 0 && ::fstat(fd_, &now) == 0 && ::ftruncate(fd_, now.st_size - written) != 0) {
    TESSERA_WARN(cat("the last line of '", path_, "' is incomplete"));
  }
  ::close(std::exchange(fd_, -1));
}

void MetricsFile::step(const StepReport& r) {
  write(r.batch,
        cat(",\"epoch\":", r.epoch, ",\"loss\":", number(r.loss),
            r.z_loss ? cat(",\"z_loss\":", number(*r.z_loss)) : "", ",\"learning_rate\":",
            number(r.learning_rate), ",\"gradient_norm\":", number(r.gradient_norm),
            r.loss_scale ? cat(",\"loss_scale\":", number(*r.loss_scale)) : "", ",\"ok\":", r.ok,
            ",\"samples\":", r.samples, ",\"tokens\":", r.tokens,
            ",\"tokens_seen\":", r.tokens_seen, ",\"step_seconds\":", number(r.step_seconds),
            ",\"data_seconds\":", number(r.data_seconds),
            r.batches_ready ? cat(",\"batches_ready\":", *r.batches_ready) : "",
            r.data_hash ? cat(",\"data_hash\":\"", hex(*r.data_hash), "\"") : "",
            ",\"tokens_per_second\":", number(rate(static_cast<double>(r.tokens), r.step_seconds)),
            ",\"flops\":", number(r.flops), ",\"memory_bytes\":", r.memory_bytes));
}

void MetricsFile::validation(const ValidationReport& r) {
  write(r.batch, cat(",\"epoch\":", r.epoch, ",\"tokens_seen\":", r.tokens_seen,
                     ",\"validation_loss\":", number(r.loss),
                     ",\"validation_perplexity\":", number(r.perplexity)));
}

}  // namespace tessera
