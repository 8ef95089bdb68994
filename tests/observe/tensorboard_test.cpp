#include "observe/tensorboard.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "observe/nccl_test_log.h"
#include "observe/tensorboard_events.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

TEST(TensorBoardEvents, AreTheBytesThatTensorBoardWrites) {
  constexpr double kTime = 1800000000.25;
  const Scalar scalars[] = {{"Loss/train", 2.5},
                            {"LR/learning_rate", 1e-4},
                            {"Norms/grad_norm", std::numeric_limits<double>::infinity()}};
  const float numbers[] = {-2, 0, 0.5f, 0.5f, 1e-20f, std::numeric_limits<float>::infinity()};
  Distribution values;
  values.add(numbers);
  std::string table;
  for (int i = 0; i < 20; ++i) table += "| a | b |\n";
  EXPECT_EQ(cat(version_record(kTime), restart_record(kTime, 300),
                scalars_record(kTime, 70000, scalars), text_record(kTime, 0, "Arguments", table),
                histogram_record(kTime, 5, "Weights/a", values)),
            read_file(fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/tensorboard_events.bin"));
}

TEST(NcclTestLog, GivesItsAverages) {
  constexpr const char* kLog =
      "#       size         count      type\n"
      "    67108864      16777216     float     sum      -1    912.6   73.54  128.69      0\n"
      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 128.691 \n#\n"
      "node2: # Avg bus bandwidth    : 96.5\n# Avg bus bandwidth    : nan\n# Avg bus bandwidth";
  EXPECT_EQ(average_bus_bandwidths(kLog, "log"), (std::vector{128.691, 96.5}));
  expect_contains(message_of<UserError>([] { average_bus_bandwidths("# Avg", "a.log"); }),
                  "'a.log' has no line '# Avg bus bandwidth    : ...'");
}

class TensorBoardTest : public testing::Test {
 protected:
  std::string events() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory_)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    EXPECT_TRUE(files[0].filename().string().starts_with("events.out.tfevents.1"));
    return read_file(files[0]);
  }
  ScratchDirectory scratch_;
  fs::path directory_ = scratch_ / "runs" / "a";
};

TEST_F(TensorBoardTest, HasScalarsOfStepsAndValidations) {
  {
    TensorBoardWriter writer(directory_, 7);
    const std::pair<std::string, std::string> options[] = {{"lr", "0.1"}, {"vocab", "a|b"}};
    writer.arguments(options);
    StepReport r = sample_report();
    writer.step(r);
    r.peak_flops = 1e12;
    r.z_loss = 0.5;
    r.loss_scale = 1024;
    r.batches_ready = 3;
    writer.step(r);
    writer.validation({12, 2, 26624, 2.5, 12.2});
    writer.memory({.step = 3, .tag = "After forward"});
    writer.end({.seconds = 90});
    const double bandwidths[] = {96.5, 128.5};
    writer.network_test(bandwidths);
  }
  const std::string text = events();
  for (const char* tag :
       {"Loss/train", "LR/learning_rate", "Norms/grad_norm", "Perf/SeqPerSec", "Perf/ModelTFLOPs",
        "Loss/val", "Loss/perplexity", "Arguments", "Perf/MFU", "Loss/z_loss",
        "Perf/HardwareTFLOPs", "GPUMemoryGB/After forward/max_allocated",
        "CPUMemoryGB/After forward/torch", "Perf/runtime/total", "NCCLTest/avg_bus_bandwidth/mean"})
    expect_contains(text, tag);
  expect_contains(text, "| 1 | lr | 0.1 |\n| 2 | vocab | a\\|b |\n");
}

TEST_F(TensorBoardTest, BeginsWithoutARestart) {
  const TensorBoardWriter writer(directory_, 7);
  EXPECT_EQ(events().size(), version_record(0).size());
}

TEST_F(TensorBoardTest, ARewindIsARestart) {
  TensorBoardWriter writer(directory_, 7);
  const std::string before = events();
  writer.rewound(3);
  const std::string text = events();
  ASSERT_EQ(text.size() - before.size(), restart_record(0, 4).size());
  // But for the time, which is ahead of the step.
  const size_t content = 8 + 4 + 1 + 8, end = text.size() - 4;
  EXPECT_EQ(text.substr(before.size() + content, end - before.size() - content),
            restart_record(0, 4).substr(content, end - before.size() - content));
}

// Steps done are what the axis counts, and those of a point in a step are with that step.
TEST_F(TensorBoardTest, HasPointsOfMemoryAtTheirStep) {
  TensorBoardWriter writer(directory_, 0);
  for (const auto& [in_step, shown_at] : {std::pair{true, "\x10\x06"}, {false, "\x10\x05"}}) {
    const size_t before = events().size();
    writer.memory({.step = 5, .in_step = in_step, .tag = "a point"});
    EXPECT_EQ(events().substr(before + 8 + 4 + 1 + 8, 2), shown_at);  // behind the time
  }
}

TEST_F(TensorBoardTest, ASecondFileOfTheSameMomentHasANameOfItsOwn) {
  TensorBoardWriter first(directory_, 0), second(directory_, 0);
  std::map<fs::path, uintmax_t> files;
  for (const auto& entry : fs::directory_iterator(directory_))
    files[entry.path()] = fs::file_size(entry.path());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files.begin()->second, files.rbegin()->second);
}

TEST_F(TensorBoardTest, WhatCannotBeMadeIsAnError) {
  expect_contains(user_error([] { TensorBoardWriter writer("/proc/none/runs", 0); }),
                  "cannot make '/proc/none/runs' for TensorBoard");
}

}  // namespace
}  // namespace tessera
