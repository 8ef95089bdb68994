#include "base/pipe.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace tessera {

PipeEnds open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) return {ends[0], ends[1]};
  std::string why = std::strerror(errno);
  rlimit files{};
  if (errno == EMFILE && ::getrlimit(RLIMIT_NOFILE, &files) == 0)
    why += cat(": this process may have ", files.rlim_cur, "; raise that with `ulimit -n`");
  throw DeviceError(cat("no pipe: ", why));
}

}  // namespace tessera
