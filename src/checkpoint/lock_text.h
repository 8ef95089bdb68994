#pragma once
#include <cstdint>
#include <string>

#include "checkpoint/directory_lock.h"

namespace tessera {

// What a lock file says; fields are empty where it is being written, or is no such file.
struct LockText {
  std::string job, token, host, boot;
  int64_t attempt = 0, pid = 0, device = 0;
  bool flock = false;
};

LockText parse_lock(const std::string& text);
// Of this process. `beats`: how often it was written anew, where that is the sign of life.
std::string lock_content(const CheckpointLock::Holder& holder, const std::string& token,
                         int64_t device, bool flock, int64_t beats = 0);

// "process 12 on host (job 00..ff)"
std::string describe(const LockText& lock);
[[noreturn]] void refuse_in_use(const std::filesystem::path& directory, const LockText& holder);
std::string taken_over(const std::filesystem::path& directory, const LockText& by,
                       std::chrono::milliseconds silence);

}  // namespace tessera
