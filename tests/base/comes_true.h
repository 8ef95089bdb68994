#pragma once
#include <chrono>
#include <thread>

namespace tessera {

// Waits until it holds, for longer than any stall of a machine takes; whether it does.
template <typename Condition>
bool comes_true(Condition condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace tessera
