#pragma once
#include <chrono>

namespace tessera {

// When a wait that goes on is told of: after some seconds, and now and then after that.
class WaitNotice {
 public:
  bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::seconds(30);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(3);
};

}  // namespace tessera
