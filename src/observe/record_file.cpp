#include "observe/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {

RecordFile::RecordFile(const std::filesystem::path& path, std::string what)
    : path_(path.string()), what_(std::move(what)) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw UserError(cat("cannot write ", what_, " to '", path_, "': ", std::strerror(errno)));
  cut_half_record();
}

// Half a record, as a power cut or a partial copy leaves it, would spoil the next one too.
void RecordFile::cut_half_record() const {
  struct stat now {};
  if (::fstat(fd_, &now) != 0 || !S_ISREG(now.st_mode) || now.st_size == 0) return;
  const int reading = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (reading < 0) return;
  std::string tail(static_cast<size_t>(std::min<off_t>(now.st_size, 1 << 20)), '\0');
  const off_t begin = now.st_size - static_cast<off_t>(tail.size());
  const bool read =
      ::pread(reading, tail.data(), tail.size(), begin) == static_cast<ssize_t>(tail.size());
  ::close(reading);
  if (!read || tail.back() == '\n') return;
  const size_t line = tail.rfind('\n') == std::string::npos ? 0 : tail.rfind('\n') + 1;
  if (tail[line] != '{') return;  // nothing that was written here
  if (::ftruncate(fd_, begin + static_cast<off_t>(line)) == 0)
    TESSERA_WARN(cat("'", path_, "' ended with half a record, which is cut off"));
}

RecordFile::~RecordFile() {
  if (fd_ >= 0) ::close(fd_);
}

void RecordFile::append(std::string_view record) {
  if (fd_ < 0) return;
  errno = 0;
  const ssize_t written = ::write(fd_, record.data(), record.size());
  if (written == static_cast<ssize_t>(record.size())) return;
  TESSERA_WARN(cat("cannot write ", what_, " to '", path_, "': ",
                   std::strerror(errno ? errno : ENOSPC), "; training goes on without them"));
  struct stat now {};
  if (written > 0 && ::fstat(fd_, &now) == 0 && ::ftruncate(fd_, now.st_size - written) != 0)
    TESSERA_WARN(cat("the last record of '", path_, "' is incomplete"));
  ::close(std::exchange(fd_, -1));
}

}  // namespace tessera
