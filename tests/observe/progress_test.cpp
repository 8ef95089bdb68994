#include "observe/progress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "observe/machine_peak.h"
#include "tests/base/error_expectation.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

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
            ", Tokens/s: 819, TFLOPS/GPU: 0.4, MFU: 0.400, Memory: 3.00 MiB, Left: 3m05s, skipped");
  r.loss = r.gradient_norm = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(progress_line(r).starts_with("Batch 12 Loss: nan, ")) << progress_line(r);
  EXPECT_NE(progress_line(r).find("gradnorm: nan, "), std::string::npos);
}

TEST(Progress, UtilizationIsNeverAboveOne) {
  StepReport r = sample_report();
  r.flops = 1e12;
  EXPECT_FALSE(model_flops_utilization(r)) << "no peak is known";
  r.peak_flops = 0.5e12;
  r.recomputed_flops = 0.2e12;
  EXPECT_DOUBLE_EQ(model_flops_utilization(r).value(), 0.8);
  EXPECT_DOUBLE_EQ(hardware_flops_utilization(r).value(), 0.96);
  r.peak_flops = 0.45e12;
  EXPECT_FALSE(hardware_flops_utilization(r)) << "what was reached was no peak";
  r.step_seconds = 1;
  expect_contains(progress_line(r), ", TFLOPS/GPU: 1");
  EXPECT_EQ(progress_line(r).find("MFU"), std::string::npos);
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
    EXPECT_EQ(average.add(r), i == 39 || i == 59) << i;
  }
  EXPECT_EQ(average.line(),
            "Batch 69 Running Avg Speed: 4.00 samples/sec, Running Avg Model TFLOPS/GPU: 2.50");
  r.recomputed_flops = 42e12;  // one step of 41, 2 s each
  average.add(r);
  expect_contains(average.line(), ", Running Avg Hardware TFLOPS/GPU: 3.01");
}

}  // namespace
}  // namespace tessera
