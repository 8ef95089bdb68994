#include "base/program_output.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/thread_stacks.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using std::chrono::seconds;

TEST(ProgramOutput, BothStreamsAndTheStatus) {
  auto output =
      program_output({"sh", "-c", "echo \"$1\"; echo b >&2; exit 3", "sh", "a b"}, seconds(20));
  ASSERT_TRUE(output);
  EXPECT_EQ(output->out, "a b\n");
  EXPECT_EQ(output->err, "b\n");
  EXPECT_EQ(output->status, 3);
  EXPECT_EQ(program_output({"sh", "-c", "kill -9 $$"}, seconds(20))->status, 137);
  EXPECT_EQ(program_output({"cat"}, seconds(20))->out, "");  // nothing to read
}

TEST(ProgramOutput, WhatIsNoProgram) {
  EXPECT_FALSE(program_output({"no-such-program-here"}, seconds(20)));
}

TEST(ProgramOutput, SaysWhatToDoWhereTooManyFilesAreOpen) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer takes descriptors to look at an exception";
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  const std::string message =
      message_of<DeviceError>([] { program_output({"true"}, seconds(20)); });
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(message,
            "no pipe: Too many open files: this process may have 3: raise that with `ulimit -n 4`");
}

TEST(ProgramOutput, MoreThanAMebibyteIsReadAndDropped) {
  auto output = program_output({"head", "-c", "3000000", "/dev/zero"}, seconds(20));
  EXPECT_EQ(output->out.size(), size_t{1} << 20);
  EXPECT_EQ(output->status, 0);
}

TEST(ProgramOutput, OneThatDoesNotEndIsKilled) {
  double begin = monotonic_seconds();
  expect_contains(message_of<DeviceError>([] {
                    program_output({"sleep", "100"}, std::chrono::milliseconds(1'200));
                  }),
                  "'sleep' did not end within 1 s");
  EXPECT_LT(monotonic_seconds() - begin, 30);
}

// This process may have blocked the signals that ask for the end; what it starts must not.
TEST(ProgramOutput, SignalsAreNotBlockedInIt) {
  sigset_t term;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
  auto output = program_output({"sh", "-c", "kill -TERM $$; echo still here"}, seconds(20));
  ::pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  EXPECT_EQ(output->status, 143);
  EXPECT_EQ(output->out, "");
}

}  // namespace
}  // namespace tessera
