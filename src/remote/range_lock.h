#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>

namespace tessera {

// The lock of number `index` in a file of locks, which is made where it is missing: held by one
// holder among all threads and processes of a host until it is destroyed, or its process ends in
// any way.
class RangeLock {
 public:
  // Waits for at most so long; is_held() says whether it came. Where there can be no locks (a file
  // system without, or no right to write), it is not held, at once. Interrupted; also when
  // `cancel`, which may be null, is set.
  RangeLock(const std::filesystem::path& file, uint64_t index, double deadline_seconds,
            const std::atomic<bool>* cancel = nullptr);
  ~RangeLock();
  RangeLock(const RangeLock&) = delete;
  RangeLock& operator=(const RangeLock&) = delete;
  bool is_held() const { return held_; }
  bool waited_in_vain() const { return waited_in_vain_; }

 private:
  int fd_ = -1;
  bool held_ = false, waited_in_vain_ = false;
};

}  // namespace tessera
