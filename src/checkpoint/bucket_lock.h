#pragma once
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "checkpoint/directory_lock.h"
#include "checkpoint/places.h"

namespace tessera {

// Keeps checkpoints under s3://BUCKET/PREFIX to one job at a time, as DirectoryLock does with a
// directory. The object `run.lock` is made only where there is none, and written anew again and
// again, only where it is still this holder's (If-None-Match, If-Match). A holder is dead when it
// has not been written for Timing::silence. Of servers that know no such conditions, of two jobs
// that begin in the same moment the last one has it: the other notices before its next save.
class BucketLock : public CheckpointLock {
 public:
  struct Timing {
    std::chrono::milliseconds beat{15'000}, silence{60'000};
  };
  BucketLock(std::filesystem::path directory, Holder holder, Timing timing);
  BucketLock(std::filesystem::path directory, Holder holder)
      : BucketLock(std::move(directory), std::move(holder), Timing{}) {}
  ~BucketLock() override;

  void require_held() override;
  const std::string& token() const override { return token_; }

 private:
  void acquire();
  void release();
  bool write(const S3Store::Condition& condition);
  std::optional<S3Store::Content> read() const;
  bool is_own(const std::optional<S3Store::Content>& there) const;
  void beat();

  std::filesystem::path directory_;
  std::string name_;  // of the object
  Holder holder_;
  Timing timing_;
  std::string token_;
  S3Store store_;  // which gives up sooner than others
  std::atomic<int64_t> beats_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable ending_;
  bool end_ = false;
  std::thread beating_;
};

}  // namespace tessera
