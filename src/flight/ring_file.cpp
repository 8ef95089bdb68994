#include "flight/ring_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

std::filesystem::path file_of(const std::filesystem::path& directory, int rank, const char* end) {
  return directory / cat("rank_", rank, end);
}

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw UserError(cat("cannot make '", path.string(), "': ", std::strerror(error)));
}

}  // namespace

std::filesystem::path ring_path(const std::filesystem::path& directory, int rank) {
  return file_of(directory, rank, ".ring");
}
std::filesystem::path texts_path(const std::filesystem::path& directory, int rank) {
  return file_of(directory, rank, ".texts");
}
std::filesystem::path report_path(const std::filesystem::path& directory, int rank) {
  return file_of(directory, rank, ".report");
}

RingFile::RingFile(const std::filesystem::path& path, int64_t capacity)
    : bytes_(sizeof(RingHeader) + static_cast<size_t>(capacity) * sizeof(RingRecord)) {
  ::unlink(path.c_str());
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) fail(path, errno);
  int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes_));
  if (error == 0) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory_ == MAP_FAILED) error = errno;
  }
  ::close(fd);
  if (error == 0) return;
  ::unlink(path.c_str());
  fail(path, error);
}

RingFile::~RingFile() { ::munmap(memory_, bytes_); }

}  // namespace tessera
