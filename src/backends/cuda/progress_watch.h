#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::cuda {

// Looks now and then how far a device is, on a thread of its own: what listeners know is true also
// while nobody waits for the device. Begins with start(), at most once.
class ProgressWatch {
 public:
  explicit ProgressWatch(std::function<void()> look) : look_(std::move(look)) {}
  ~ProgressWatch() { stop(); }
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  void start();
  // Nothing looks any more on return.
  void stop();

 private:
  void loop();

  std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tessera::cuda
