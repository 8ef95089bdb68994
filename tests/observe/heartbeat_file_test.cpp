#include "observe/heartbeat_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

class HeartbeatTest : public testing::Test {
 protected:
  std::filesystem::path path() const { return directory_ / "heart"; }
  nlohmann::json now() const { return nlohmann::json::parse(read_file(path())); }
  // A heartbeat follows within a second or so.
  nlohmann::json once(const std::string& state) const {
    for (int i = 0; i < 1000 && now().at("state") != state; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return now();
  }
  ScratchDirectory directory_;
};

TEST_F(HeartbeatTest, SaysWhereTheRunIs) {
  {
    HeartbeatFile heart(path());
    EXPECT_EQ(now().at("state"), "starting");
    EXPECT_EQ(now().at("pid"), ::getpid());
    EXPECT_FALSE(now().contains("step"));
    StepReport step;
    step.batch = 41;
    step.loss = 2.5;
    heart.doing("training");
    heart.step(step);
    const nlohmann::json seen = once("training");
    EXPECT_GT(seen.at("unix_seconds").get<double>(), 1e9);
    EXPECT_EQ(seen.at("time").get<std::string>().size(), 24u);
    step.batch = 42;
    step.loss = std::numeric_limits<double>::quiet_NaN();
    heart.step(step);
    heart.end({.failed = false});
  }
  // The last word is written whatever the pace.
  EXPECT_EQ(now().at("state"), "finished");
  EXPECT_EQ(now().at("step"), 43);
  EXPECT_TRUE(now().at("loss").is_null());
}

// A kill may come between the writing of a file aside and its move into place.
TEST_F(HeartbeatTest, WhatAKilledAttemptLeftIsRemoved) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto aside = [&](const char* name, pid_t maker) {
    const auto file = directory_ / cat(name, ".tmp-", maker);
    write_file_atomic(file, "half");
    return file;
  };
  const auto left = aside("heart", child), running = aside("heart", ::getpid()),
             other = aside("heart2", child);
  { HeartbeatFile heart(path()); }
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(running));
  EXPECT_TRUE(std::filesystem::exists(other));
}

TEST_F(HeartbeatTest, TheEndSaysHow) {
  for (const auto& [report, state] : {std::pair{EndReport{.failed = true}, "failed"},
                                      {EndReport{.interrupted = true}, "interrupted"}}) {
    { HeartbeatFile(path()).end(report); }
    EXPECT_EQ(now().at("state"), state);
  }
}

TEST_F(HeartbeatTest, WhatCannotBeWrittenIsSaidAtOnceOrOnce) {
  expect_contains(user_error([&] { HeartbeatFile(directory_ / "no/such/folder"); }),
                  "no/such/folder");
  testing::internal::CaptureStderr();
  {
    std::filesystem::create_directory(directory_ / "gone");
    HeartbeatFile heart(directory_ / "gone/heart");
    std::filesystem::remove_all(directory_ / "gone");
    heart.doing("training");
    heart.end({});
  }
  expect_contains(testing::internal::GetCapturedStderr(), "the run goes on");
}

}  // namespace
}  // namespace tessera
