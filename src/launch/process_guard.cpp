#include "launch/process_guard.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/pipe.h"
#include "base/text.h"

namespace tessera {
namespace {

// A group to watch, or its negative to forget it. Written at once, so never torn apart.
void tell(int pipe, pid_t group) {
  while (::write(pipe, &group, sizeof group) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void guard(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "tessera-guard");
  // Ends with its agent only, and keeps nothing of the agent's open.
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::dup2(pipe, 0);
  ::close_range(1, ~0u, 0);
  std::set<pid_t> groups;
  pid_t group = 0;
  while (true) {
    ssize_t got = ::read(0, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof group) break;
    if (group > 0) groups.insert(group);
    if (group < 0) groups.erase(-group);
  }
  for (pid_t left : groups) ::kill(-left, SIGKILL);
  ::_exit(0);
}

}  // namespace

ProcessGuard::ProcessGuard() {
  const PipeEnds ends = open_pipe();
  FileDescriptor read_end(ends.read);
  pipe_ = FileDescriptor(ends.write);
  pid_ = ::fork();
  if (pid_ < 0) throw DeviceError(cat("cannot start a process: ", std::strerror(errno)));
  if (pid_ == 0) guard(read_end.get());
}

ProcessGuard::~ProcessGuard() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ProcessGuard::watch(pid_t group) { tell(pipe_.get(), group); }
void ProcessGuard::forget(pid_t group) { tell(pipe_.get(), -group); }

}  // namespace tessera
