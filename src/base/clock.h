#pragma once
#include <cstdint>

namespace tessera {

// Seconds of a clock that never goes back.
double monotonic_seconds();

// Peak resident set of this process in bytes (VmHWM), 0 where the system does not tell.
int64_t peak_resident_bytes();

// Resident set now, in bytes.
int64_t resident_bytes();

}  // namespace tessera
