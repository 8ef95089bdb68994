#include "remote/fetch_whole.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "remote/partial_file.h"
#include "tests/base/child_process.h"
#include "tests/base/comes_true.h"
#include "tests/base/error_expectation.h"
#include "tests/remote/local_server.h"

namespace tessera {
namespace {
namespace fs = std::filesystem;

// A file of which two blocks of four have come, and another process that goes on with them, but
// first waits to be told so.
class FetchedByAnother : public testing::Test {
 protected:
  void SetUp() override {
    server_.write("files/a.bin", content_);
    options_ = server_.options();
    location_.url = server_.url("/files/a.bin?plan=ok,ok,403,ok");
    location_.name = "a.bin";
    location_.size = content_.size();
    path_ = options_.cache_directory / "files" / "a.bin";
    expect_contains(user_error([&] { fetch(); }), "status 403");
    ASSERT_EQ(begun_bytes(path_), 2000u);
  }
  void TearDown() override { set_log_listener({}); }

  void fetch() { fetch_whole(location_, {}, path_, options_); }

  void start_another(bool dies) {
    child_ = ::fork();
    if (child_ == 0) {
      set_log_listener([&](LogLevel, std::string_view line) {
        if (line.find("goes on behind") == std::string_view::npos) return;
        scratch_.write("holds", "");
        if (!comes_true([&] { return fs::exists(scratch_ / "told"); })) ::_exit(2);
        if (dies) ::kill(::getpid(), SIGKILL);
      });
      try {
        fetch();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(3);
      }
      ::_exit(read_file(path_) == content_ ? 0 : 1);
    }
    ASSERT_TRUE(comes_true([&] { return fs::exists(scratch_ / "holds"); }));
  }
  void when_waiting(const std::function<void()>& action) {
    set_log_listener([action](LogLevel, std::string_view line) {
      if (line == "'a.bin' is being fetched by another process: waiting for it") action();
    });
  }
  void tell() { scratch_.write("told", ""); }
  size_t requests_at(int offset) {
    return server_.requests(cat("range=bytes=", offset, "-")).size();
  }

  LocalServer server_;
  ScratchDirectory scratch_;
  const std::string content_ = test_content(3500);
  RemoteOptions options_;
  RemoteLocation location_;
  fs::path path_;
  pid_t child_ = 0;
};

TEST_F(FetchedByAnother, ItsCopyIsTaken) {
  start_another(false);
  when_waiting([&] { tell(); });
  fetch();
  EXPECT_EQ(read_file(path_), content_);
  EXPECT_EQ(wait_for_end(child_, "child"), 0);
  EXPECT_EQ(requests_at(0), 1u);
  EXPECT_EQ(requests_at(2000), 2u);  // the first was refused
  EXPECT_EQ(requests_at(3000), 1u);
}

TEST_F(FetchedByAnother, WhatADeadOneBeganIsGoneOnWith) {
  start_another(true);
  when_waiting([&] { tell(); });
  fetch();
  EXPECT_EQ(read_file(path_), content_);
  EXPECT_EQ(wait_for_end(child_, "child"), 128 + SIGKILL);
  EXPECT_EQ(requests_at(0), 1u);
  EXPECT_EQ(requests_at(3000), 1u);
}

TEST_F(FetchedByAnother, ItIsWaitedForAsLongAsItGoesOn) {
  start_another(false);
  options_.lock_deadline = 0.2;
  // In the first 0.2 s more comes, in the second nothing.
  when_waiting([&] { write_file_atomic(path_.string() + ".partial-more", "more"); });
  const double begin = monotonic_seconds();
  testing::internal::CaptureStderr();
  fetch();
  expect_contains(testing::internal::GetCapturedStderr(),
                  "another process that fetches 'a.bin' has not gone on for ");
  EXPECT_GE(monotonic_seconds() - begin, 0.4);
  EXPECT_EQ(read_file(path_), content_);
  EXPECT_EQ(requests_at(0), 2u);
  tell();
  EXPECT_EQ(wait_for_end(child_, "child"), 0);
}

TEST(FetchWhole, LeavesOneFileOfLocks) {
  LocalServer server;
  server.write("files/a.bin", test_content(1500));
  const RemoteOptions options = server.options();
  for (const char* name : {"a", "b", "c"}) {
    RemoteLocation location;
    location.url = server.url("/files/a.bin");
    location.size = 1500;
    fetch_whole(location, {}, options.cache_directory / "files" / name, options);
  }
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(options.cache_directory))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 3 + 1);
}

}  // namespace
}  // namespace tessera
