#include "base/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "base/thread_stacks.h"
#include "tests/base/child_process.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

// What `work` says where these are the limits, in a process of its own: a hard limit that was
// lowered stays so.
std::string said_within(rlimit limit, const std::function<std::string()>& work) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::string said;
    try {
      said = work();
    } catch (const UserError& error) {
      said = error.what();
    }
    ::_exit(write_fully(ends[1], said) == said.size() ? 0 : 1);
  }
  EXPECT_EQ(wait_for_end(child, "the process with few open files"), 0);
  ::close(ends[1]);
  char text[4096];
  const ssize_t size = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  return {text, static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

std::string to_start_forty() {
  require_open_files(200, "start 40 workers");
  return "enough";
}

constexpr const char* kWhoRaises =
    ": that is the hard limit, which root alone can raise, to 512 or more "
    "(/etc/security/limits.conf, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)";

TEST(OpenFiles, AdviseWhatTheUserCanDo) {
  if (has_sanitizer()) GTEST_SKIP() << "the sanitizer takes descriptors to look at an exception";
  EXPECT_EQ(said_within({1000, 1000}, to_start_forty), "enough");
  const std::string soft = said_within({64, 512}, to_start_forty);
  EXPECT_EQ(soft.find("to start 40 workers takes 2"), 0U) << soft;
  expect_contains(soft,
                  " open files, and this process may have 64: raise that with `ulimit -n 512`");
  const std::string both = said_within({64, 511}, to_start_forty);
  expect_contains(both, cat("this process may have 64, at most 511", kWhoRaises));
  const std::string hard = said_within({64, 64}, to_start_forty);
  expect_contains(hard, cat("this process may have 64", kWhoRaises));
  expect_lacks(hard, "ulimit -n ");
}

TEST(OpenFiles, ErrorsSayWhichLimitWasReached) {
  EXPECT_EQ(open_error_text(ENOENT), "No such file or directory");
  expect_contains(open_error_text(ENFILE), "root can raise that limit: sysctl fs.file-max");
  const auto text = [] { return open_error_text(EMFILE); };
  EXPECT_EQ(said_within({256, 512}, text),
            "Too many open files: this process may have 256: raise that with `ulimit -n 512`");
  EXPECT_EQ(said_within({256, 256}, text),
            cat("Too many open files: this process may have 256", kWhoRaises));
}

}  // namespace
}  // namespace tessera
