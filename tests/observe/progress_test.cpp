#include "observe/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "observe/machine_peak.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"

namespace tessera {
namespace {

StepReport sample_report() {
  StepReport r;
  r.batch = 12;
  r.loss = 8.123456;
  r.samples = 8;
  r.tokens = 2048;
  r.step_seconds = 2.5;
  r.data_seconds = 0.001;
  r.epoch = 2;
  r.tokens_seen = 26624;
  r.learning_rate = 2e-4;
  r.next_learning_rate = 1e-4;
  r.gradient_norm = 1.23456;
  return r;
}

TEST(Progress, TheLineBeginsWithTheFixedGrammar) {
  StepReport r = sample_report();
  EXPECT_EQ(progress_line(r),
            "Batch 12 Loss: 8.12346, Speed: 3.20 samples/sec, lr: 0.000100, gradnorm: 1.2346, "
            "Tokens/s: 819");
  r.flops = 1e12;
  r.peak_flops = 1e12;
  r.memory_bytes = 3 << 20;
  r.seconds_left = 185;
  r.ok = false;
  EXPECT_EQ(progress_line(r).substr(progress_line(r).find(", Tokens")),
            ", Tokens/s: 819, Peak: 40.0%, Memory: 3.00 MiB, Left: 3m05s, skipped");
  r.loss = r.gradient_norm = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(progress_line(r).starts_with("Batch 12 Loss: nan, ")) << progress_line(r);
  EXPECT_NE(progress_line(r).find("gradnorm: nan, "), std::string::npos);
}

TEST(Progress, NoTimeMeansNoSpeed) {
  StepReport r = sample_report();
  r.step_seconds = 0;
  expect_contains(progress_line(r), "Speed: 0.00 samples/sec");
}

TEST(MachinePeak, IsNeverBelowASpeedThatWasReached) {
  double speed_now = 100;
  int measurements = 0;
  auto measure = [&] { return ++measurements, speed_now; };
  MachinePeak peak(measure);
  EXPECT_EQ(peak.flops(), 100);
  EXPECT_EQ(peak.flops_after(80), 100);
  EXPECT_EQ(measurements, 1);
  // The machine was slow when the run began.
  speed_now = 300;
  EXPECT_EQ(peak.flops_after(120), 300);
  // It is slow now, when it is measured again.
  speed_now = 50;
  EXPECT_EQ(peak.flops_after(310), 310);
  EXPECT_EQ(peak.flops_after(10), 310);
  EXPECT_EQ(peak.flops_after(std::numeric_limits<double>::infinity()), 310) << "of no time";
  EXPECT_EQ(measurements, 3);
}

TEST(MachinePeak, AGivenOneStays) {
  EXPECT_EQ(MachinePeak(5.0).flops_after(7), 5);
  EXPECT_EQ(MachinePeak().flops_after(7), 0) << "unknown";
}

TEST(RunningAverage, StartsBehindTheWarmUp) {
  RunningAverage average(20);
  StepReport r = sample_report();
  r.flops = 5e12;
  for (int64_t i = 0; i < 70; ++i) {
    r.batch = i;
    r.step_seconds = i < 30 ? 100 : 2;  // slow steps at the beginning do not count
    EXPECT_EQ(average.add(r), i == 49 || i == 69) << i;
  }
  EXPECT_EQ(average.line(),
            "Batch 69 Running Avg Speed: 4.00 samples/sec, Running Avg Model TFLOPS/GPU: 2.50");
}

class MetricsFileTest : public testing::Test {
 protected:
  ScratchDirectory scratch_;
  std::filesystem::path path_ = scratch_ / "metrics";
};

TEST_F(MetricsFileTest, OneJsonObjectALineAppended) {
  {
    MetricsFile metrics(path_.string());
    metrics.step(sample_report());
  }
  {
    MetricsFile metrics(path_.string());
    StepReport bad = sample_report();
    bad.loss = std::nan("");
    bad.gradient_norm = std::numeric_limits<double>::infinity();
    bad.ok = false;
    metrics.step(bad);
    metrics.validation({12, 2, 26624, 2.5, std::exp(2.5)});
  }
  std::string text = read_file(path_);
  std::vector<std::string_view> lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 4u);  // the last is empty
  auto good = nlohmann::json::parse(lines[0]), bad = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(good["batch"], 12);
  EXPECT_EQ(good["loss"].get<double>(), 8.123456);
  EXPECT_EQ(good["ok"], true);
  EXPECT_EQ(good["tokens"], 2048);
  EXPECT_EQ(good["learning_rate"].get<double>(), 2e-4);  // that of this step, not of the next
  EXPECT_EQ(good["epoch"], 2);
  EXPECT_EQ(good["tokens_seen"], 26624);
  EXPECT_TRUE(bad["loss"].is_null());
  EXPECT_TRUE(bad["gradient_norm"].is_null());
  EXPECT_EQ(bad["ok"], false);
  auto validation = nlohmann::json::parse(lines[2]);
  EXPECT_EQ(validation["validation_perplexity"].get<double>(), std::exp(2.5));
  EXPECT_EQ(validation["epoch"], 2);
  EXPECT_EQ(validation["tokens_seen"], 26624);
}

TEST_F(MetricsFileTest, EveryLineSaysWhenItWasWritten) {
  {
    MetricsFile metrics(path_.string());
    metrics.step(sample_report());
    metrics.validation({});
  }
  const std::string text = read_file(path_);
  for (std::string_view line : split(trim(text), '\n')) {
    auto time = nlohmann::json::parse(line).at("time").get<std::string>();
    ASSERT_EQ(time.size(), std::string_view("2026-01-31T12:00:00.123Z").size()) << time;
    for (auto [place, mark] :
         {std::pair{4, '-'}, {7, '-'}, {10, 'T'}, {13, ':'}, {19, '.'}, {23, 'Z'}})
      EXPECT_EQ(time[static_cast<size_t>(place)], mark) << time;
  }
}

TEST_F(MetricsFileTest, HasTheHashOfTheDataWhereThereIsOne) {
  StepReport r = sample_report();
  MetricsFile metrics(path_.string());
  metrics.step(r);
  r.data_hash = 0x1f;
  metrics.step(r);
  const std::string text = read_file(path_);
  const std::vector<std::string_view> lines = split(text, '\n');
  EXPECT_FALSE(nlohmann::json::parse(lines.at(0)).contains("data_hash"));
  EXPECT_EQ(nlohmann::json::parse(lines.at(1)).at("data_hash"), "000000000000001f");
}

TEST_F(MetricsFileTest, NoNameWritesNothing) {
  MetricsFile metrics("");
  metrics.step(sample_report());
}

TEST_F(MetricsFileTest, AFileThatCannotBeOpenedIsAnError) {
  expect_contains(user_error([] { MetricsFile metrics("/proc/none/metrics"); }),
                  "/proc/none/metrics");
}

TEST_F(MetricsFileTest, AFullDiskIsSaidOnce) {
  MetricsFile metrics("/dev/full");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) metrics.step(sample_report());
  std::string log = testing::internal::GetCapturedStderr();
  expect_contains(log, "cannot write metrics to '/dev/full': No space left on device");
  EXPECT_EQ(log.find("cannot"), log.rfind("cannot")) << log;
}

}  // namespace
}  // namespace tessera
