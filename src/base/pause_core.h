#pragma once

namespace tessera {

// In a loop that waits for another core: leaves this one's other thread, and the power, to those
// who work. Tens to a hundred cycles.
inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` does nothing on most cores
#endif
}

}  // namespace tessera
