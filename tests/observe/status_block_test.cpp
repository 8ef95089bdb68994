#include "observe/status_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "tests/base/error_expectation.h"
#include "tests/observe/sample_reports.h"

namespace tessera {
namespace {

int64_t columns_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

RunView sample_view() {
  RunView view;
  view.step = 540;
  view.total_steps = 1200;
  view.ranks = 4;
  view.losses = {4, 3, 2, 1.5, 1};
  view.last = sample_report();
  view.last->loss = 1;
  view.last->seconds_left = 185;
  view.validation_loss = 1.25;
  view.doing = "saving a checkpoint";
  view.doing_seconds = 12;
  return view;
}

TEST(StatusBlock, ShowsHowTheRunGoes) {
  const auto lines = status_block(sample_view(), 100);
  ASSERT_EQ(lines.size(), 3u);
  expect_contains(lines[0], " 45 %  step 540 of 1200  3m05s left");
  EXPECT_EQ(columns_of(lines[0].substr(0, lines[0].find(' '))), 60);
  EXPECT_TRUE(lines[1].starts_with("loss 1.0000 █▆▃▂▁  lr 0.0001  819 tokens/s")) << lines[1];
  EXPECT_EQ(lines[2], "saving a checkpoint for 12s  4 ranks  validation loss 1.2500");
}

// As where a stream has ended before the steps that were asked for.
TEST(StatusBlock, HasNoTimeLeftBehindTheLastStep) {
  RunView view = sample_view();
  view.total_steps = view.step;
  const std::string line = status_block(view, 100)[0];
  expect_contains(line, " 100 %  step 540 of 540");
  EXPECT_EQ(line.find("left"), std::string::npos);
}

TEST(StatusBlock, FitsAnyWindow) {
  RunView view = sample_view();
  view.losses.assign(500, 2);
  view.losses[490] = std::numeric_limits<double>::quiet_NaN();
  for (int columns = 1; columns < 200; ++columns) {
    for (const std::string& line : status_block(view, columns))
      ASSERT_LE(columns_of(line), columns) << line;
  }
  expect_contains(status_block(view, 120)[1], "!");
}

TEST(StatusBlock, KnowsNothingAtFirst) {
  RunView view;
  view.doing = "training";
  const auto lines = status_block(view, 60);
  ASSERT_EQ(lines.size(), 3u);
  expect_contains(lines[0], "  0 %  step 0 of 0");
  EXPECT_EQ(lines[2], "training");
}

}  // namespace
}  // namespace tessera
