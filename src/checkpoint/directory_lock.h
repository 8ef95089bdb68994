#pragma once
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.h"

namespace tessera {

inline constexpr std::string_view kLockName = "run.lock";

// Another job that lives saves its checkpoints there.
struct DirectoryInUse : UserError {
  using UserError::UserError;
};

// Keeps a place of checkpoints to one job at a time.
class CheckpointLock {
 public:
  struct Holder {
    std::string job;  // CheckpointOrigin::job
    int attempt = 0;  // of the agent's restarts
  };
  virtual ~CheckpointLock() = default;  // gives it back

  // Before anything is written: UserError if another process has taken the lock over, which it does
  // when this one has been stopped for long. A lock file that was deleted is made again.
  virtual void require_held() = 0;

  // Unlike any other lock's: who finds it in the file sees the same place.
  virtual const std::string& token() const = 0;
};

// DirectoryLock, or of a place in a bucket BucketLock; they throw the same.
std::unique_ptr<CheckpointLock> lock_checkpoints(const std::filesystem::path& directory,
                                                 const CheckpointLock::Holder& holder);

// Keeps a checkpoint directory to one job at a time, on whatever hosts and in whatever containers
// others run that see the directory. The file `{directory}/run.lock` names its holder; a thread
// touches it again and again. The holder is taken for dead, and its lock taken over with a warning,
//  - at once if it was an earlier attempt of the same job, whose end the agent has seen,
//  - at once if it ran on this boot of this machine, on the same mounted file system, and the
//  kernel
//    no longer holds its flock(2) on the file,
//  - else when the file has not been touched for Timing::silence by the clock of this process.
// Process numbers and clocks of other hosts decide nothing.
class DirectoryLock : public CheckpointLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{5'000}, silence{30'000};
  };
  // Makes the directory if need be, takes the lock and removes what others have left half written.
  // Waits for `silence` at most. DirectoryInUse that names the holder if it lives; UserError that
  // names the directory if it cannot be written, or the lock's file if that is a link to nothing;
  // Interrupted.
  DirectoryLock(std::filesystem::path directory, Holder holder, Timing timing);
  DirectoryLock(std::filesystem::path directory, Holder holder)
      : DirectoryLock(std::move(directory), std::move(holder), Timing{}) {}
  // Gives the lock back, and removes the directory if it was made here and is empty.
  ~DirectoryLock() override;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  void require_held() override;
  const std::string& token() const override { return token_; }

 private:
  class LockFile;

  bool create(const std::filesystem::path& path);
  void acquire();
  void release();
  void take_over(const std::string& reason, bool certainly_dead);
  void beat();
  std::string content(const LockFile& file) const;

  std::filesystem::path directory_, path_;
  Holder holder_;
  Timing timing_;
  std::string token_;
  bool made_directory_ = false;

  std::mutex mutex_;  // of what follows
  std::condition_variable ending_;
  bool end_ = false;
  std::unique_ptr<LockFile> file_;
  std::thread beating_;
};

// What the lock file of a directory says, for people: who holds the lock, and for how many seconds
// of this machine's clock the file has not been touched. A holder that lives touches it every 5 s.
struct LockSighting {
  std::string holder;  // "process 12 on host (job 00..ff)"
  double untouched = 0;
};
// nullopt where there is none.
std::optional<LockSighting> find_lock(const std::filesystem::path& directory);

// The token in the lock file of the directory; nullopt where there is none. Of a file system that
// remembers what it was told before, asks again.
std::optional<std::string> lock_token(const std::filesystem::path& directory);
// Whether that is it: where another host has just made it, in two seconds at the latest.
bool sees_lock(const std::filesystem::path& directory, const std::string& token);

}  // namespace tessera
