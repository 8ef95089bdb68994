#include "train/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace tessera {
namespace {

double tick_of(const Watchdog::Limits& limits) {
  const double least = std::min(limits.first_step.value_or(1e9), limits.step.value_or(1e9));
  return std::clamp(least / 20, 0.005, 0.5);
}

// What a rank that waits for others leaves them, to speak first.
double patience(double limit) { return std::clamp(limit / 4, 0.2, 10.0); }

}  // namespace

Watchdog::Watchdog(Limits limits, std::function<Place()> place,
                   std::function<void(const std::string&)> expired)
    : limits_(limits), place_(std::move(place)), expired_(std::move(expired)) {
  if (limits_.first_step || limits_.step) thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch(bool on) {
  std::lock_guard lock(mutex_);
  on_ = on;
}

void Watchdog::step_done() {
  std::lock_guard lock(mutex_);
  first_ = false;
  seconds_ = 0;
}

void Watchdog::loop() {
  const double tick = tick_of(limits_);
  RunningTime clock(4 * tick);
  double before = 0;
  std::unique_lock lock(mutex_);
  while (!ends_) {
    changed_.wait_for(lock, std::chrono::duration<double>(tick), [&] { return ends_; });
    const double now = clock.seconds();
    if (on_ && limit()) seconds_ += now - before;
    before = now;
    if (ends_ || !on_ || !limit() || seconds_ < *limit()) continue;
    lock.unlock();
    const Place place = place_();
    lock.lock();
    if (ends_ || seconds_ < *limit() + (place.waits_for_others ? patience(*limit()) : 0)) continue;
    const std::string text =
        cat("no step was done for ", *limit(), " s (",
            first_ ? "--first_step_timeout" : "--step_timeout", "): ", place.text);
    lock.unlock();
    expired_(text);
    return;
  }
}

}  // namespace tessera
