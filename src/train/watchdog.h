#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tessera {

// Notices that no step gets done. Its clock runs while the process does: not while that is stopped
// (SIGSTOP, a debugger, a machine that sleeps).
class Watchdog {
 public:
  struct Limits {
    std::optional<double> first_step, step;  // seconds; none: as long as it takes
  };
  // Where the run is, in words, and whether it waits for other ranks there: then it is rather one
  // of those that is stuck, which should be the first to say so.
  struct Place {
    std::string text;
    bool waits_for_others = false;
  };

  // Both are called by a thread of its own, `expired` once, with the whole message, such as "no
  // step was done for 30 s (--step_timeout): step 17, computing gradients".
  Watchdog(Limits limits, std::function<Place()> place,
           std::function<void(const std::string&)> expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From a call with true to one with false the clock runs; the time in between does not count.
  void watch(bool on);
  // It begins anew, with the limit of a step.
  void step_done();

 private:
  void loop();
  std::optional<double> limit() const { return first_ ? limits_.first_step : limits_.step; }

  Limits limits_;
  std::function<Place()> place_;
  std::function<void(const std::string&)> expired_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false, on_ = false, first_ = true;
  double seconds_ = 0;
  std::thread thread_;
};

}  // namespace tessera
