#include "base/pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/open_files.h"
#include "base/text.h"

namespace tessera {

PipeEnds open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) return {ends[0], ends[1]};
  throw DeviceError(cat("no pipe: ", open_error_text(errno)));
}

}  // namespace tessera
