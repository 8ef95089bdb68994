#include "base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

rlim_t raised_from = 0;  // the soft limit; 0: it was not raised

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

}  // namespace tessera
