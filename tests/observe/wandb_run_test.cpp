#include "observe/wandb_run.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/cryptography.h"
#include "base/file.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The records of the golden (tools/goldens/wandb_goldens.py): all kinds of fragments, and ends of
// blocks in which there is room for no header, for nothing but a header, and for one byte more.
TEST(WandbLog, FramesAreThoseThatWandbWrites) {
  WandbLog log;
  std::string bytes = log.header();
  for (const size_t size : {0, 5, 32'700, 30, 100'000, 32'768 - 7 - 7 - 7, 3}) {
    std::string record;
    for (size_t i = 0; i < size; ++i) record += static_cast<char>('a' + i % 23);
    bytes += log.frame(record);
  }
  for (const int64_t left : {-7, -6, -1, 0, 1, 5, 9}) {
    const int64_t at = std::ssize(bytes) % 32'768;
    const int64_t size = (2 * 32'768 - at - 7 - 7 - left) % 32'768;
    bytes += log.frame(std::string(static_cast<size_t>(size), 'x'));
    bytes += log.frame("behind it");
  }
  const fs::path golden = fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/wandb_log.sha256";
  EXPECT_EQ(hex(sha256(bytes)), trim(read_file(golden)));
}

class WandbRunTest : public testing::Test {
 protected:
  std::string records(const WandbRun& run) const {
    for (const auto& entry : fs::directory_iterator(run.directory()))
      if (entry.path().extension() == ".wandb") return read_file(entry.path());
    return "";
  }
  ScratchDirectory scratch_;
};

TEST_F(WandbRunTest, HasARowAStepWithTheValidationInIt) {
  const std::vector<std::pair<std::string, std::string>> options = {{"lr", "0.1 \"x\"\xff"}};
  WandbRun run(scratch_.path(), options, 0, 4);
  EXPECT_TRUE(run.directory().filename().string().starts_with("offline-run-20"));
  EXPECT_TRUE(fs::is_directory(run.directory() / "files"));
  StepReport r = sample_report();
  r.gradient_norm = std::numeric_limits<double>::infinity();
  run.step(r);
  EXPECT_EQ(records(run).find("Loss/train"), std::string::npos) << "the row is not whole yet";
  run.validation({12, 2, 26624, 2.5, 12.2});
  r.batch = 13;
  run.step(r);
  const std::string first = records(run);
  expect_contains(first, "Loss/train");
  expect_contains(first, "Loss/val");
  expect_contains(first, "Infinity");
  expect_contains(first,
                  "throughput (token per gpu per sec)\x82\x01\x05"
                  "204.8");
  run.end({});
  EXPECT_GT(records(run).size(), first.size());
}

// Points of memory in a step are told before the step is.
TEST_F(WandbRunTest, HasMemoryInTheRowOfItsStep) {
  WandbRun run(scratch_.path(), {}, 12, 1);
  auto tell = [&](int64_t step, bool in_step, const char* tag, int64_t gib) {
    run.memory({.step = step, .in_step = in_step, .tag = tag, .resident = gib << 30});
  };
  auto row_of = [&](int64_t batch) {
    const size_t before = records(run).size();
    StepReport r = sample_report();
    r.batch = batch;
    run.step(r);
    return records(run).substr(before);
  };
  auto value = [](const char* tag, const char* digits) {
    return cat("CPUMemoryGB/", tag, "/total\x82\x01", std::string(1, '\x01'), digits);
  };
  tell(12, false, "Before FSDP wrapper", 5);
  tell(12, true, "After opt step", 6);
  EXPECT_EQ(row_of(12), "") << "the row is not whole yet";
  tell(13, false, "Before ckpt", 7);
  tell(13, true, "After opt step", 8);
  tell(14, true, "Before train step", 9);  // of a device that runs ahead
  const std::string first = row_of(13), second = row_of(14);
  for (const std::string& text :
       {value("Before FSDP wrapper", "5"), value("After opt step", "6"), value("Before ckpt", "7")})
    expect_contains(first, text);
  EXPECT_EQ(first.find("Before train step"), std::string::npos);
  expect_contains(second, value("After opt step", "8"));
  EXPECT_EQ(second.find("Before"), std::string::npos);
  run.end({});
  expect_contains(records(run), value("Before train step", "9"));
}

// wandb takes steps only ever upwards.
TEST_F(WandbRunTest, GoesOnInADirectoryOfItsOwnBehindARewind) {
  const std::vector<std::pair<std::string, std::string>> options = {{"lr", "0.1"}};
  WandbRun run(scratch_.path(), options, 0, 1);
  StepReport r = sample_report();
  run.step(r);
  const fs::path before = run.directory();
  EXPECT_EQ(records(run).find("_step"), std::string::npos);
  run.rewound(10);
  EXPECT_NE(run.directory(), before);
  const std::string begin = records(run);
  expect_contains(begin, "\x70\x0b");  // starting_step: 11
  expect_contains(begin, "lr\x82\x01\x05\"0.1\"");
  EXPECT_EQ(begin.find("_step"), std::string::npos);
  r.batch = 10;
  r.loss = 0.5;
  run.step(r);
  run.end({});
  expect_contains(records(run),
                  "_step\x82\x01\x02"
                  "11");
  for (const auto& entry : fs::directory_iterator(before)) {
    if (entry.path().extension() != ".wandb") continue;
    const std::string undone = read_file(entry.path());
    expect_contains(undone,
                    "_step\x82\x01\x02"
                    "13");
    expect_contains(undone.substr(undone.size() - 20), "\xb2\x01");  // its footer
  }

  // Without a place for another one nothing is written any more.
  fs::remove_all(scratch_.path() / "wandb");
  scratch_.write("wandb", "a file");
  run.rewound(10);
  run.step(r);
  run.end({});
}

TEST_F(WandbRunTest, WhatCannotBeMadeIsAnErrorAndAFullDiskIsNone) {
  expect_contains(user_error([] { WandbRun run("/proc/none", {}, 0, 1); }),
                  "for --use_wandb, which keeps its files in the working directory");
}

}  // namespace
}  // namespace tessera
