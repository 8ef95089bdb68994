#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/error.h"

namespace tessera {

constexpr int64_t kMiB = int64_t{1} << 20;

// Bytes by which the resident memory of a process grows: the most on the way, and what stays. And
// the error with which the action ended: "" if there was none.
struct Growth {
  int64_t most = 0, kept = 0;
  std::string error;
};

// What `action` takes, in a forked process: the peak of one begins anew.
inline Growth growth_of(const std::function<void()>& action) {
  int ends[2];
  TESSERA_CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto tell = [&](const void* data, size_t size) {
      if (::write(ends[1], data, size) != static_cast<ssize_t>(size)) ::_exit(1);
    };
    try {
      const int64_t before = resident_bytes();
      std::string error;
      try {
        action();
      } catch (const UserError& caught) {
        error = caught.what();
      }
      const int64_t growth[] = {peak_resident_bytes() - before, resident_bytes() - before};
      tell(growth, sizeof growth);
      tell(error.data(), error.size());
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  int64_t numbers[2] = {};
  EXPECT_EQ(::read(ends[0], numbers, sizeof numbers), ssize_t{sizeof numbers});
  Growth growth{numbers[0], numbers[1], std::string(4096, '\0')};
  const ssize_t length = ::read(ends[0], growth.error.data(), growth.error.size());
  growth.error.resize(length > 0 ? static_cast<size_t>(length) : 0);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return growth;
}

// AddressSanitizer keeps what was freed.
inline void expect_growth_below(const Growth& growth, int64_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  (void)growth, (void)bytes;
#else
  EXPECT_LT(growth.most, bytes) << growth.most / kMiB << " MiB";
#endif
}

}  // namespace tessera
