#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/open_files.h"
#include "base/process_identity.h"
#include "base/text.h"

namespace tessera {
namespace {

// Of writes past the page cache: what disks ask for, and what keeps them busy.
constexpr size_t kAlignment = 4096, kBlock = size_t{4} << 20;

[[noreturn]] void fail(const char* action, const std::filesystem::path& path) {
  throw UserError(cat("cannot ", action, " '", path.string(), "': ", open_error_text(errno)));
}

int open_for_reading(const std::filesystem::path& path, struct stat* info) {
  // Without waiting for the other end of what is a pipe; files and directories know no difference.
  int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) fail("read", path);
  if (::fstat(fd, info) != 0) {
    int saved = errno;
    ::close(fd);
    errno = saved;
    fail("read", path);
  }
  if (S_ISREG(info->st_mode)) return fd;
  ::close(fd);
  if (!S_ISDIR(info->st_mode)) {
    throw UserError(
        cat("cannot read '", path.string(), "': it is no file but a pipe, a device or a socket"));
  }
  errno = EISDIR;
  fail("read", path);
}

std::filesystem::file_status status_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::status_known(status)) return status;
  throw UserError(cat("cannot read '", path.string(), "': ", error.message()));
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  return std::filesystem::exists(status_of(path));
}

bool is_file(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(status_of(path));
}

size_t write_fully(int fd, std::string_view text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return done;
    }
  }
  return text.size();
}

std::string read_file(const std::filesystem::path& path) {
  struct stat info {};
  int fd = open_for_reading(path, &info);
  std::string content;
  content.reserve(static_cast<size_t>(info.st_size));
  char buffer[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int saved = errno;
      ::close(fd);
      errno = saved;
      fail("read", path);
    }
    if (n == 0) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  ::close(fd);
  return content;
}

ReadFile::ReadFile(std::filesystem::path path) : path_(std::move(path)) {
  struct stat info {};
  fd_ = open_for_reading(path_, &info);
  size_ = static_cast<uint64_t>(info.st_size);
  if (size_ > 0) return;
  // Files of the kernel say that they are empty whatever they hold.
  char byte;
  ssize_t n = ::pread(fd_, &byte, 1, 0);
  if (n == 0) return;
  int cause = errno;
  ::close(fd_);
  errno = cause;
  if (n < 0) fail("read", path_);
  throw UserError(cat("cannot read '", path_.string(),
                      "': it does not say how long it is; copy it to a file first"));
}

ReadFile::~ReadFile() { ::close(fd_); }

void ReadFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path_);
    if (n == 0) {
      throw UserError(cat("cannot read '", path_.string(), "': it had ", size_,
                          " bytes and has none any more at ", offset,
                          ": another program has cut it short"));
    }
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  struct stat info {};
  int fd = open_for_reading(path, &info);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ > 0) {
    void* p = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
      int saved = errno;
      ::close(fd);
      errno = saved;
      fail("map", path);
    }
    data_ = static_cast<const std::byte*>(p);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::advise(size_t offset, size_t bytes, Advice advice) const {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (offset >= size_ || bytes == 0) return;
  size_t begin = offset / page * page;
  ::madvise(const_cast<std::byte*>(data_) + begin, std::min(offset + bytes, size_) - begin,
            advice == Advice::kSoon ? MADV_WILLNEED : MADV_DONTNEED);
}

AtomicFile::AtomicFile(std::filesystem::path path, Caching caching) : path_(std::move(path)) {
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::status(path_, ignored);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there) &&
      !std::filesystem::is_directory(there)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);  // a device or a pipe is written to
    if (fd_ < 0) fail("write", path_);
    return;
  }
  if (std::filesystem::is_symlink(path_, ignored)) {  // the file that it leads to is replaced
    std::filesystem::path target = std::filesystem::weakly_canonical(path_, ignored);
    if (!ignored) path_ = std::move(target);
  }
  temporary_ = path_;
  temporary_ += ".tmp-" + unique_suffix();
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  if (caching == Caching::kNone) {
    fd_ = ::open(temporary_.c_str(), flags | O_DIRECT, 0666);
    direct_ = fd_ >= 0;
    // Where a file system cannot, some have made the file all the same.
    if (fd_ < 0 && errno == EINVAL) ::unlink(temporary_.c_str());
  }
  if (fd_ < 0) fd_ = ::open(temporary_.c_str(), flags, 0666);
  if (fd_ < 0) fail("create", temporary_);
  if (direct_) {
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBlock)));
    if (!block_) end_direct();
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::end_direct() {
  direct_ = false;
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
}

// Whole blocks of aligned memory; through the page cache from the first that is refused.
void AtomicFile::write_direct(const std::byte* data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = ::write(fd_, data + done, std::min(kBlock, size - done));
    if (n >= 0) {
      done += static_cast<size_t>(n);
      if (static_cast<size_t>(n) % kAlignment != 0) end_direct();  // the disk is nearly full
    } else if (errno == EINVAL && direct_) {
      end_direct();
    } else if (errno != EINTR) {
      fail("write", path_);
    }
  }
}

void AtomicFile::write(const void* data, size_t size) {
  auto* p = static_cast<const std::byte*>(data);
  while (direct_ && size > 0) {
    size_t n = std::min(kBlock - filled_, size);
    if (filled_ == 0 && size >= kAlignment && reinterpret_cast<uintptr_t>(p) % kAlignment == 0) {
      n = size / kAlignment * kAlignment;
      write_direct(p, n);
    } else {
      std::memcpy(block_.get() + filled_, p, n);
      filled_ += n;
      if (filled_ == kBlock) write_direct(block_.get(), std::exchange(filled_, 0));
    }
    p += n;
    size -= n;
  }
  if (size > 0 && write_fully(fd_, {reinterpret_cast<const char*>(p), size}) < size)
    fail("write", path_);
}

void AtomicFile::commit() {
  if (direct_) {
    end_direct();
    write(block_.get(), std::exchange(filled_, 0));
  }
  if (temporary_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) fail("write", path_);
    return;
  }
  if (::fsync(fd_) != 0) fail("write", path_);
  int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    int saved = errno;
    ::unlink(temporary_.c_str());
    errno = saved;
    fail("write", path_);
  }
  sync_directory(path_.parent_path());
}

TemporaryDirectory::TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) make_directories(path_.parent_path());
  std::error_code error;
  if (std::filesystem::create_directory(path_, error)) return;
  throw UserError(cat("cannot create directory '", path_.string(),
                      "': ", error ? error.message() : "it is there already"));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

void sync_directory(const std::filesystem::path& directory) {
  int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // some file systems cannot open directories; the rename itself stands
  ::fsync(fd);
  ::close(fd);
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    throw UserError(cat("cannot create directory '", path.string(), "': ", error.message()));
}

}  // namespace tessera
