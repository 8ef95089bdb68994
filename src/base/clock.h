#pragma once
#include <cstdint>
#include <string>

namespace tessera {

// Seconds of a clock that never goes back.
double monotonic_seconds();
// The same clock in nanoseconds.
int64_t monotonic_nanoseconds();

// For who waits and looks every so often: the time in which the process ran, not that in which it
// was stopped (SIGSTOP, a debugger, a machine that sleeps).
class RunningTime {
 public:
  // A look that comes later than this behind the one before counts as so many seconds.
  explicit RunningTime(double longest) : longest_(longest) {}
  // Looks. Seconds since it was made.
  double seconds();

 private:
  double longest_, seconds_ = 0, before_ = monotonic_seconds();
};

// From when to when something ran, in nanoseconds of that clock.
struct TimeSpan {
  int64_t begin = 0, end = 0;
};

// The time of day in UTC, in milliseconds, as ISO 8601 has it: "2026-01-31T12:00:00.123Z".
std::string utc_time();

// Peak resident set of this process in bytes (VmHWM), 0 where the system does not tell.
int64_t peak_resident_bytes();

// Resident set now, in bytes.
int64_t resident_bytes();

}  // namespace tessera
