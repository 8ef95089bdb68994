#include "observe/thinned_series.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

TEST(ThinnedSeries, KeepsAllWhileThereIsRoom) {
  ThinnedSeries series(2, 4);
  for (int i = 0; i < 4; ++i) series.add(i + 1, std::array{1.0 * i, -1.0 * i});
  EXPECT_EQ(series.stride(), 1);
  ASSERT_EQ(series.points().size(), 4u);
  EXPECT_EQ(series.points()[3].step, 4);
  EXPECT_EQ(series.points()[3].numbers[1].mean, -3);
}

// Any number of values: never more points than asked for, and every point is what its values say.
TEST(ThinnedSeries, JoinsNeighboursWhereThereIsNone) {
  constexpr size_t kMost = 8;
  for (const int count : {5, 8, 9, 16, 17, 31, 64, 65, 1000}) {
    ThinnedSeries series(1, kMost);
    for (int i = 0; i < count; ++i) series.add(i + 1, std::array{static_cast<double>(i * i % 17)});
    EXPECT_LE(series.points().size(), kMost);
    EXPECT_GE(2 * series.points().size(), std::min<size_t>(kMost, static_cast<size_t>(count)));
    int next = 0;
    for (const ThinnedSeries::Point& point : series.points()) {
      double sum = 0, low = 1e9, high = -1e9;
      int values = 0;
      for (; values < series.stride() && next < count; ++values, ++next) {
        sum += next * next % 17;
        low = std::min<double>(low, next * next % 17);
        high = std::max<double>(high, next * next % 17);
      }
      EXPECT_EQ(point.step, next);
      EXPECT_EQ(point.numbers[0].count, values);
      EXPECT_NEAR(point.numbers[0].mean, sum / values, 1e-12);
      EXPECT_EQ(point.numbers[0].low, low);
      EXPECT_EQ(point.numbers[0].high, high);
    }
    EXPECT_EQ(next, count);
  }
}

TEST(ThinnedSeries, IsCutBehindAStep) {
  ThinnedSeries series(1, 4);
  series.cut_behind(0);
  for (int i = 1; i <= 7; ++i) series.add(i, std::array{1.0});  // 2, 4, 6, 7
  series.cut_behind(5);
  ASSERT_EQ(series.points().size(), 2u) << "what lies in a point with later steps goes, too";
  EXPECT_EQ(series.points()[1].step, 4);
  for (int i = 6; i <= 7; ++i) series.add(i, std::array{2.0});
  ASSERT_EQ(series.points().size(), 3u);
  EXPECT_EQ(series.points()[1].numbers[0].high, 1);
  EXPECT_EQ(series.points()[2].numbers[0].low, 2);
}

TEST(ThinnedSeries, LeavesOutWhatIsNoNumber) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  ThinnedSeries series(1, 2);
  for (const double x : {kNan, 3.0, kNan, std::numeric_limits<double>::infinity()})
    series.add(1, std::array{x});
  ASSERT_EQ(series.points().size(), 2u);
  EXPECT_EQ(series.points()[0].numbers[0].mean, 3);
  EXPECT_EQ(series.points()[0].numbers[0].count, 1);
  EXPECT_TRUE(std::isnan(series.points()[1].numbers[0].mean));
}

}  // namespace
}  // namespace tessera
