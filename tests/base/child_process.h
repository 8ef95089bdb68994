#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "base/file.h"
#include "base/text.h"

namespace tessera {

// Where the threads of a process are, a line each: name, function of the kernel, system call.
inline std::string threads_of(pid_t pid) {
  std::ostringstream lines;
  std::error_code ended;
  for (const auto& thread :
       std::filesystem::directory_iterator(cat("/proc/", pid, "/task"), ended)) {
    auto line = [&](const char* file) {
      try {
        return std::string(trim(read_file(thread.path() / file)));
      } catch (const std::exception& e) {
        return std::string(e.what());
      }
    };
    lines << line("comm") << " in " << line("wchan") << ", " << line("syscall") << '\n';
  }
  return lines.str();
}

// Waits for the end of a child: its exit status, or 128 + n if signal n ended it. One that takes
// longer than all children of tests do fails the test, which says where it was, and is killed.
inline int wait_for_end(pid_t child, const std::string& name) {
  constexpr int kLimitSeconds = 300;
  int handle = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  pollfd ended{handle, POLLIN, 0};
  if (handle >= 0 && ::poll(&ended, 1, kLimitSeconds * 1000) == 0) {
    ADD_FAILURE() << name << " has not ended within " << kLimitSeconds << " s. Its threads:\n"
                  << threads_of(child);
    ::kill(child, SIGKILL);
  }
  if (handle >= 0) ::close(handle);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tessera
