#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/process_identity.h"

namespace tessera {

// The suffix of a process that has ended.
inline std::string ended_process() {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    std::string suffix = unique_suffix();
    (void)!::write(ends[1], suffix.data(), suffix.size());
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  char text[256];
  ssize_t n = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  ::close(ends[1]);
  return {text, static_cast<size_t>(n)};
}

}  // namespace tessera
