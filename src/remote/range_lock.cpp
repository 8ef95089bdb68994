#include "remote/range_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/interruption.h"

namespace tessera {

RangeLock::RangeLock(const std::filesystem::path& file, uint64_t index, double deadline_seconds,
                     const std::atomic<bool>* cancel)
    : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) return;
  // Of the open file, not of the process: threads exclude each other too. The kernel takes it back
  // when the last descriptor is closed, also by SIGKILL.
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(index);
  range.l_len = 1;
  double end = monotonic_seconds() + deadline_seconds;
  try {
    while (::fcntl(fd_, F_OFD_SETLK, &range) != 0) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) return;
      if (monotonic_seconds() >= end) {
        waited_in_vain_ = true;
        return;
      }
      check_interruption();
      if (cancel && cancel->load(std::memory_order_relaxed)) throw Interrupted();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
  held_ = true;
}

RangeLock::~RangeLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tessera
