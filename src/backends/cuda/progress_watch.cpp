#include "backends/cuda/progress_watch.h"

#include <chrono>

namespace tessera::cuda {
namespace {

constexpr std::chrono::milliseconds kLookAgain{100};

}  // namespace

void ProgressWatch::start() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable() && !stopped_) thread_ = std::thread([this] { loop(); });
}

void ProgressWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ProgressWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kLookAgain, [this] { return stopped_; })) {
    lock.unlock();
    look_();
    lock.lock();
  }
}

}  // namespace tessera::cuda
