#pragma once
#include <chrono>

namespace tessera {

// Seconds since 1970 by the clock of the day, which may be set back: for files that say when.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
