#pragma once
#include <cstdint>
#include <string>

namespace tessera {

// Seconds of a clock that never goes back.
double monotonic_seconds();
// The same clock in nanoseconds.
int64_t monotonic_nanoseconds();

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
