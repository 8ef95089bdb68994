#include "checkpoint/bucket_lock.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "base/thread_without_signals.h"
#include "checkpoint/directory.h"
#include "checkpoint/lock_text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMaxBucketLockBytes = 4096;
constexpr double kLockDeadline = 30;  // seconds for one request, with its repetitions

const std::atomic<bool> kNeverEnds = false;

S3Store impatient_store() {
  RemoteOptions options = bucket_store().options();
  options.http.deadline = std::min(options.http.deadline, kLockDeadline);
  return S3Store(std::move(options));
}

}  // namespace

BucketLock::BucketLock(fs::path directory, Holder holder, Timing timing)
    : directory_(std::move(directory)),
      name_((directory_ / kLockName).string()),
      holder_(std::move(holder)),
      timing_(timing),
      token_(random_id()),
      store_(impatient_store()) {
  acquire();
  beating_ = thread_without_signals([this] { beat(); });
  try {
    remove_leftovers(directory_, Leftovers::kAll);
  } catch (...) {
    release();
    throw;
  }
}

BucketLock::~BucketLock() { release(); }

void BucketLock::release() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_all();
  beating_.join();
  try {
    InterruptedBy nothing(kNeverEnds);
    if (is_own(read())) store_.remove(name_);
  } catch (const std::exception&) {
    // It is taken for dead when it gives no sign of life.
  }
}

std::optional<S3Store::Content> BucketLock::read() const {
  return store_.read(name_, kMaxBucketLockBytes);
}

bool BucketLock::is_own(const std::optional<S3Store::Content>& there) const {
  return there && parse_lock(there->text).token == token_;
}

// False where there is another than the condition says. It may be the own one: where the answer to
// a request is lost the request is repeated, and finds what it has written.
bool BucketLock::write(const S3Store::Condition& condition) {
  return store_.write(name_, lock_content(holder_, token_, /*device=*/0, /*flock=*/false, ++beats_),
                      condition);
}

void BucketLock::acquire() {
  std::optional<std::string> seen;
  const auto since = Clock::now();
  while (!write({.is_new = true})) {
    auto there = read();
    if (!there) continue;  // it went just now
    if (is_own(there)) return;
    const LockText other = parse_lock(there->text);
    const bool earlier = other.job == holder_.job && other.attempt < holder_.attempt;
    if (!earlier && seen && there->text != *seen) refuse_in_use(directory_, other);
    if (earlier || (seen && Clock::now() - since >= timing_.silence)) {
      if (!write({.etag = there->etag}) && !is_own(read())) refuse_in_use(directory_, other);
      if (!earlier) std::this_thread::sleep_for(std::min(timing_.beat, timing_.silence) / 5);
      require_held();
      TESSERA_WARN(cat("the lock of '", directory_.string(), "' was left by ",
                       earlier ? "an earlier attempt of this job"
                               : cat(describe(other), ", which gives no sign of life"),
                       ": this run takes it over"));
      return;
    }
    if (!seen) {
      TESSERA_WARN(cat("'", directory_.string(), "' is locked by ", describe(other),
                       ": waiting up to ", timing_.silence.count() / 1000,
                       " s for a sign of life of it"));
    }
    seen = there->text;
    const auto until = Clock::now() + std::min(timing_.beat, timing_.silence) / 5;
    while (Clock::now() < until) {
      check_interruption();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

void BucketLock::require_held() {
  auto there = read();
  if (!there) {  // it was removed by hand
    if (write({.is_new = true})) return;
    there = read();
  }
  if (is_own(there)) return;
  throw UserError(
      taken_over(directory_, there ? parse_lock(there->text) : LockText{}, timing_.silence));
}

void BucketLock::beat() {
  InterruptedBy nothing(kNeverEnds);
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, timing_.beat, [this] { return end_; })) {
    lock.unlock();
    try {
      auto there = read();
      if (is_own(there)) write({.etag = there->etag});
    } catch (const std::exception&) {
      // The next one may reach it.
    }
    lock.lock();
  }
}

}  // namespace tessera
