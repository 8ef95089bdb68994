#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "base/pause_core.h"
#include "base/thread_stacks.h"

namespace tessera {
namespace {
// Kernels follow each other within microseconds, a wake-up through the system costs tens of them:
// so both sides look for a while before they sleep. About 20 us at 2.5 GHz.
constexpr int kSpins = 1 << 10;
}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t tiles, const std::function<void(int64_t, int)>& task) {
  if (tiles <= 0) return;
  if (workers_.empty() || tiles == 1) {
    for (int64_t i = 0; i < tiles; ++i) task(i, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    task_ = &task;
    tiles_ = tiles;
    error_ = nullptr;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  start_.notify_all();
  take_tiles(0);
  for (int i = 0; i < kSpins && busy_.load(std::memory_order_acquire) > 0; ++i) pause_core();
  if (busy_.load(std::memory_order_acquire) > 0) {
    std::unique_lock lock(mutex_);
    finish_.wait(lock, [this] { return busy_.load(std::memory_order_acquire) == 0; });
  }
  if (error_) std::rethrow_exception(error_);
}

void ThreadPool::take_tiles(int thread) {
  try {
    for (;;) {
      int64_t tile = next_.fetch_add(1, std::memory_order_relaxed);
      if (tile >= tiles_) return;
      (*task_)(tile, thread);
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_.store(tiles_, std::memory_order_relaxed);
  }
}

void ThreadPool::work(int thread) {
  ShowsStack shows("pool");
  uint64_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == seen; ++i)
      pause_core();
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
    }
    take_tiles(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard lock(mutex_);
      finish_.notify_one();
    }
  }
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace tessera
