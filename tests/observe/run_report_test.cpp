#include "observe/run_report.h"

#include <gtest/gtest.h>

#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

TEST(RunReport, HasElevenLinesWhenItIsDue) {
  RunReport report(2, 4);
  StepReport r = sample_report();
  r.allocated_bytes = 3500;
  r.memory_bytes = 5000;
  r.elapsed_seconds = 3;
  EXPECT_FALSE(report.add(r));
  r.elapsed_seconds = 4;
  EXPECT_TRUE(report.add(r));
  // Of the second interval alone are its own speed and memory.
  r.memory_bytes = 4000;
  EXPECT_FALSE(report.add(r));
  r.elapsed_seconds = 6;
  EXPECT_EQ(report.add(r).value(),
            "step: 13\n"
            "tokens seen: 26624\n"
            "loss: 8.123456\n"
            "gradient norm: 1.23456\n"
            "speed for these 2 steps: 1\n"
            "overall speed: 1.5\n"
            "LR: 1e-04\n"
            "reserved memory: 4000\n"
            "allocated memory: 3500\n"
            "overall token per gpu per sec: 341\n"
            "token per day: 117964800");
}

}  // namespace
}  // namespace tessera
