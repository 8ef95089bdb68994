#include "checkpoint/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/text.h"
#include "base/thread_without_signals.h"
#include "checkpoint/bucket_lock.h"
#include "checkpoint/directory.h"
#include "checkpoint/lock_text.h"
#include "checkpoint/places.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{50};
constexpr size_t kMaxLockBytes = 4096;
// NFS may tell a host of a file that another made a moment later.
constexpr std::chrono::seconds kVisibleWithin{2};

[[noreturn]] void fail(const char* action, const fs::path& path) {
  throw UserError(cat("cannot ", action, " '", path.string(), "': ", std::strerror(errno)));
}

// So that a network file system looks again at what is in the directory.
void look_again(const fs::path& directory) {
  int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) ::close(fd);
}

}  // namespace

// A lock file as it was when it was opened: whoever replaces it replaces another file.
class DirectoryLock::LockFile {
 public:
  // Null where there is one already.
  static std::unique_ptr<LockFile> create(const fs::path& path) {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST) return nullptr;
    if (fd < 0) fail("create", path);
    return std::unique_ptr<LockFile>(new LockFile(fd, path));
  }
  // Null where there is none.
  static std::unique_ptr<LockFile> open(const fs::path& path) {
    // NFS wants a file that is open for writing for flock().
    int fd = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return nullptr;
    if (fd < 0) fail("read", path);
    return std::unique_ptr<LockFile>(new LockFile(fd, path));
  }
  ~LockFile() { ::close(fd_); }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  struct stat status() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail("read", path_);
    return status;
  }
  std::string read() const {
    std::string text(kMaxLockBytes, '\0');
    ssize_t n = ::pread(fd_, text.data(), text.size(), 0);
    if (n < 0) fail("read", path_);
    text.resize(static_cast<size_t>(n));
    return text;
  }
  void write(const std::string& text) {
    ssize_t n = ::pwrite(fd_, text.data(), text.size(), 0);
    if (n >= 0 && static_cast<size_t>(n) != text.size()) errno = ENOSPC;
    if (n != static_cast<ssize_t>(text.size()) || ::fsync(fd_) != 0) fail("write", path_);
  }
  void touch() { ::futimens(fd_, nullptr); }

  enum class Flock { kTaken, kHeld, kUnknown };  // by us, by another, not on this file system
  Flock flock() {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return Flock::kTaken;
    return errno == EWOULDBLOCK ? Flock::kHeld : Flock::kUnknown;
  }
  bool is_still_at(const fs::path& path) const {
    struct stat there {
    }, own = status();
    return ::stat(path.c_str(), &there) == 0 && there.st_dev == own.st_dev &&
           there.st_ino == own.st_ino;
  }

 private:
  LockFile(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  fs::path path_;
};

DirectoryLock::DirectoryLock(fs::path directory, Holder holder, Timing timing)
    : directory_(std::move(directory)),
      path_(directory_ / kLockName),
      holder_(std::move(holder)),
      timing_(timing),
      token_(random_id()) {
  std::error_code ignored;
  made_directory_ = !fs::exists(directory_, ignored);
  make_directories(directory_);
  acquire();
  beating_ = thread_without_signals([this] { beat(); });
  try {
    remove_leftovers_of(path_);  // of take_over()
    remove_leftovers(directory_, Leftovers::kAll);
  } catch (...) {
    release();
    throw;
  }
}

DirectoryLock::~DirectoryLock() { release(); }

void DirectoryLock::release() {
  {
    std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_all();
  beating_.join();
  std::error_code ignored;
  if (lock_token(directory_) == token_) fs::remove(path_, ignored);
  if (made_directory_) ::rmdir(directory_.c_str());  // fails where anything is in it
}

std::string DirectoryLock::content(const LockFile& file) const {
  return lock_content(holder_, token_, static_cast<int64_t>(file.status().st_dev), /*flock=*/true);
}

// False where there is a lock already.
bool DirectoryLock::create(const fs::path& path) {
  auto file = LockFile::create(path);
  if (!file) return false;
  try {
    std::string text = content(*file);
    // Before anybody can read that it is held so.
    if (file->flock() == LockFile::Flock::kUnknown) text.replace(text.rfind("true"), 4, "false");
    file->write(text);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
  file_ = std::move(file);
  return true;
}

void DirectoryLock::acquire() {
  std::optional<timespec> touched;
  std::string seen;
  auto since = steady_clock::now();
  for (; !create(path_); std::this_thread::sleep_for(kLookAgain)) {
    check_interruption();
    look_again(directory_);
    auto file = LockFile::open(path_);
    std::error_code ignored;
    if (!file && fs::is_symlink(path_, ignored))
      throw UserError(cat("'", path_.string(), "' is a link to nothing: remove it"));
    if (!file) continue;  // it went just now
    struct stat status = file->status();
    std::string text = file->read();
    LockText other = parse_lock(text);
    if (other.job == holder_.job && other.attempt < holder_.attempt)
      return take_over("an earlier attempt of this job", true);
    bool decided_here = !other.boot.empty() && other.boot == boot_id() && other.flock &&
                        other.device == static_cast<int64_t>(status.st_dev);
    if (decided_here) {
      auto flock = file->flock();
      if (flock == LockFile::Flock::kHeld) refuse_in_use(directory_, other);
      // Until `file` goes no other process takes this lock over.
      if (flock == LockFile::Flock::kTaken && file->is_still_at(path_))
        return take_over(cat(describe(other), ", which has ended"), true);
    }
    bool same = touched && touched->tv_sec == status.st_mtim.tv_sec &&
                touched->tv_nsec == status.st_mtim.tv_nsec && seen == text;
    if (touched && !same) refuse_in_use(directory_, other);
    if (!touched) {
      TESSERA_WARN(cat("'", directory_.string(), "' is locked by ", describe(other),
                       ": waiting up to ", timing_.silence.count() / 1000,
                       " s for a sign of life of it"));
    }
    touched = status.st_mtim;
    seen = text;
    if (steady_clock::now() - since >= timing_.silence)
      return take_over(cat(describe(other), ", which gives no sign of life"), false);
  }
}

// The last of several that do so at once has it, and each looks who that was.
void DirectoryLock::take_over(const std::string& reason, bool certainly_dead) {
  fs::path aside = path_;
  aside += ".tmp-" + unique_suffix();
  TESSERA_CHECK(create(aside), "a unique name was not unique");
  if (::rename(aside.c_str(), path_.c_str()) != 0) {
    int saved = errno;
    ::unlink(aside.c_str());
    errno = saved;
    fail("write", path_);
  }
  if (!certainly_dead) std::this_thread::sleep_for(std::min(timing_.beat, timing_.silence) / 5);
  require_held();
  TESSERA_WARN(cat("the lock of '", directory_.string(), "' was left by ", reason,
                   ": this run takes it over"));
}

void DirectoryLock::require_held() {
  look_again(directory_);
  std::optional<std::string> token = lock_token(directory_);
  if (token == token_) return;
  if (!token) {
    std::lock_guard lock(mutex_);
    make_directories(directory_);
    if (create(path_)) {
      TESSERA_WARN(cat("'", path_.string(),
                       "' was gone, which this run had made: if the directory was removed, moved "
                       "or unmounted, what it held is out of reach; what is saved from here on "
                       "goes to the one that is there now"));
      return;
    }
  }
  auto file = LockFile::open(path_);
  throw UserError(
      taken_over(directory_, file ? parse_lock(file->read()) : LockText{}, timing_.silence));
}

void DirectoryLock::beat() {
  std::unique_lock lock(mutex_);
  while (!ending_.wait_for(lock, timing_.beat, [this] { return end_; })) file_->touch();
}

std::unique_ptr<CheckpointLock> lock_checkpoints(const fs::path& directory,
                                                 const CheckpointLock::Holder& holder) {
  if (is_in_bucket(directory)) return std::make_unique<BucketLock>(directory, holder);
  return std::make_unique<DirectoryLock>(directory, holder);
}

std::optional<LockSighting> find_lock(const fs::path& directory) {
  if (!is_in_bucket(directory)) look_again(directory);
  const fs::path path = directory / kLockName;
  const std::optional<double> age = age_of(path);
  if (!age) return {};
  try {
    return LockSighting{describe(parse_lock(read_content(path))), *age};
  } catch (const UserError&) {
    return {};  // it went just now
  }
}

std::optional<std::string> lock_token(const fs::path& directory) {
  if (!is_in_bucket(directory)) look_again(directory);
  try {
    std::string token = parse_lock(read_content(directory / kLockName)).token;
    return token.empty() ? std::nullopt : std::optional(token);
  } catch (const UserError&) {
    return {};
  }
}

bool sees_lock(const fs::path& directory, const std::string& token) {
  const auto deadline = steady_clock::now() + kVisibleWithin;
  while (lock_token(directory) != token) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLookAgain);
  }
  return true;
}

}  // namespace tessera
