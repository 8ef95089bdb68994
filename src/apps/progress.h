#pragma once
#include <cstdint>
#include <cstdio>

#include "base/clock.h"
#include "base/text.h"

namespace tessera {

// A line on standard error a second: how much is done, the rate, and the time left.
class Progress {
 public:
  explicit Progress(const char* stage)
      : stage_(stage), start_(monotonic_seconds()), last_(start_) {}

  template <class Format>
  void show(int64_t done, int64_t total, Format format_amount) {
    double now = monotonic_seconds();
    if (now - last_ < 1 || done <= 0) return;
    last_ = now;
    double rate = static_cast<double>(done) / (now - start_);
    double left = static_cast<double>(total - done) / rate;
    std::fprintf(stderr, "%s %s of %s, %s/s, %s left\n", stage_, format_amount(done).c_str(),
                 format_amount(total).c_str(), format_amount(static_cast<int64_t>(rate)).c_str(),
                 format_duration(left).c_str());
  }

 private:
  const char* stage_;
  double start_, last_;
};

}  // namespace tessera
