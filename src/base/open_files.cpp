#include "base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

rlim_t raised_from = 0;  // the soft limit; 0: it was not raised

// "this process may have 64 ...", of what wants `wanted`. Beyond the hard limit `ulimit -n` does
// not go, and up to that this program went by itself.
std::string allowed_text(const rlimit& limit, rlim_t wanted) {
  std::string text = cat("this process may have ", limit.rlim_cur);
  if (wanted <= limit.rlim_max) return text + cat(": raise that with `ulimit -n ", wanted, "`");
  return text + cat(limit.rlim_cur < limit.rlim_max ? cat(", at most ", limit.rlim_max) : "",
                    ": that is the hard limit, which root alone can raise, to ", wanted,
                    " or more (/etc/security/limits.conf, LimitNOFILE= of a systemd unit, --ulimit "
                    "nofile= of a container)");
}

}  // namespace

void raise_open_files_limit() {
  constexpr rlim_t kMost = 1 << 20;  // the kernel's own limit, where nobody changed that
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  const rlim_t before = std::exchange(limit.rlim_cur, wanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) raised_from = before;
}

void restore_open_files_limit() {
  rlimit limit{};
  if (raised_from == 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = raised_from;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string open_error_text(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == ENFILE) {
    text += " on this host, whose root can raise that limit: sysctl fs.file-max";
  } else if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += ": " + allowed_text(limit, std::bit_ceil(limit.rlim_cur + 1));
  }
  return text;
}

void require_open_files(uint64_t more, std::string_view work) {
  std::error_code none_left;
  // What looks has one open itself.
  const std::filesystem::directory_iterator open("/proc/self/fd", none_left), end;
  const rlim_t needed = static_cast<rlim_t>(std::distance(open, end)) - 1 + more;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || needed <= limit.rlim_cur) return;
  throw UserError(cat("to ", work, " takes ", needed, " open files, and ",
                      allowed_text(limit, std::bit_ceil(2 * needed))));
}

}  // namespace tessera
