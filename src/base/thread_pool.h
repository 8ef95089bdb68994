#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera {

// A fixed set of threads that run numbered tiles. What a tile computes may depend on its number
// only, never on the thread or on how many threads there are: that is what makes results equal for
// every thread count.
class ThreadPool {
 public:
  // `threads` includes the caller, which works too: ThreadPool(1) starts none.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs task(tile, thread) for every tile in [0, tiles), thread in [0, threads()); returns when
  // all are done. The first exception is rethrown here. Not reentrant.
  void run(int64_t tiles, const std::function<void(int64_t tile, int thread)>& task);

 private:
  void work(int thread);
  void take_tiles(int thread);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, finish_;
  const std::function<void(int64_t, int)>* task_ = nullptr;
  int64_t tiles_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint64_t> generation_{0};
  alignas(64) std::atomic<int> busy_{0};
  bool stop_ = false;
  std::exception_ptr error_;
};

// Cores that this process may use (its affinity mask), at least 1.
int available_cores();

}  // namespace tessera
