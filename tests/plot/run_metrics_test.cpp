#include "plot/run_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

class RunMetricsTest : public testing::Test {
 protected:
  RunMetrics read(const std::string& content) const {
    const std::string keys[] = {"loss", "validation_loss"};
    return RunMetrics(ReadFile(directory_.write("metrics", content)), keys);
  }
  ScratchDirectory directory_;
};

TEST_F(RunMetricsTest, WhereAStepIsDoneAgainLaterOnesDoNotCount) {
  const RunMetrics metrics = read(
      "{\"batch\":0,\"loss\":5.5,\"ok\":true}\n"
      "{\"batch\":1,\"loss\":5}\n"
      "{\"batch\":2,\"loss\":4}\n"
      "{\"batch\":0,\"validation_loss\":4.5}\n"
      "{\"batch\":2,\"validation_loss\":4.4}\n"
      "\n"
      "{\"batch\":1,\"loss\":4.9,\"tokens\":12}\n"
      "{\"batch\":3,\"loss\":null}\n"
      "{\"batch\":4,\"lo");
  const Series loss = metrics.series("loss");
  EXPECT_EQ(loss.steps, (std::vector<double>{1, 2, 4}));
  ASSERT_EQ(loss.values.size(), 3u);
  EXPECT_EQ(loss.values[1], 4.9);
  EXPECT_TRUE(std::isnan(loss.values[2]));
  EXPECT_EQ(metrics.series("validation_loss").steps, std::vector<double>{1})
      << "a line of it may lie behind the step, and takes nothing away";
  EXPECT_TRUE(metrics.series("tokens").steps.empty()) << "nobody asked for it";
  EXPECT_EQ(metrics.keys(), (std::set<std::string>{"batch", "loss", "tokens", "validation_loss"}));
}

TEST_F(RunMetricsTest, ANewRunInTheFileIsTheOnlyOne) {
  std::string content;
  for (const int steps : {6, 3})
    for (int i = 0; i < steps; ++i) content += cat("{\"batch\":", i, ",\"loss\":", steps, "}\n");
  const Series loss = read(content).series("loss");
  EXPECT_EQ(loss.steps, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(loss.values, (std::vector<double>{3, 3, 3}));
}

TEST_F(RunMetricsTest, WhatIsNoMetricsFileIsRefused) {
  EXPECT_TRUE(read("").keys().empty());
  expect_contains(user_error([&] { read("{\"batch\":0}\nLoss: 5\n"); }), "metrics', line 2 is not");
  for (const char* line :
       {"[1]", "{\"loss\":1}", "{\"batch\":-1}", "{\"batch\":1.5}", "{\"batch\":1"})
    expect_contains(user_error([&] { read(cat(line, "\n")); }), "line 1 is not one that --metrics");
  expect_contains(user_error([&] { read(std::string(3 << 20, 'x')); }), "longer than 1 MiB");
}

TEST_F(RunMetricsTest, LinesMayLieAcrossWhatIsReadAtOnce) {
  std::string content;
  constexpr int kLines = 60'000;  // 3 MB
  for (int i = 0; i < kLines; ++i)
    content += cat("{\"batch\":", i, ",\"loss\":", i % 97, ".5,\"x\":\"filler\"}\n");
  const Series loss = read(content).series("loss");
  ASSERT_EQ(loss.steps.size(), static_cast<size_t>(kLines));
  for (size_t i = 0; i < loss.steps.size(); ++i) {
    ASSERT_EQ(loss.steps[i], static_cast<double>(i + 1));
    ASSERT_EQ(loss.values[i], static_cast<double>(i % 97) + 0.5);
  }
}

}  // namespace
}  // namespace tessera
