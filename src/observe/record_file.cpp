#include "observe/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
