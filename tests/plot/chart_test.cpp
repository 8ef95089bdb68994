#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/text.h"
#include "plot/axis.h"
#include "plot/png_chart.h"
#include "plot/svg_chart.h"
#include "plot/terminal_chart.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string marks(double low, double high, int count = 5) {
  const Axis axis = axis_around({low, high}, count);
  std::vector<std::string> labels;
  for (const double mark : axis.marks) labels.push_back(axis.label(mark));
  EXPECT_LE(axis.range.low, low);
  EXPECT_GE(axis.range.high, high);
  return join(labels, " ");
}

TEST(Axis, HasRoundMarks) {
  EXPECT_EQ(marks(0, 10), "0 2 4 6 8 10");
  EXPECT_EQ(marks(3.2, 8.4), "2 4 6 8 10");
  EXPECT_EQ(marks(1, 1200), "0 500 1000 1500");
  EXPECT_EQ(marks(0, 25'400), "0 10k 20k 30k");
  EXPECT_EQ(marks(0, 2.6e6), "0 1000k 2000k 3000k");
  EXPECT_EQ(marks(0, 0.003), "0 0.001 0.002 0.003");
  EXPECT_EQ(marks(-0.25, 0.3), "-0.4 -0.2 0 0.2 0.4");
  EXPECT_EQ(marks(5, 5), "4.4 4.6 4.8 5.0 5.2 5.4 5.6") << "of one number";
  EXPECT_EQ(marks(0, 0), "-1.0 -0.5 0 0.5 1.0");
}

TEST(Axis, TellsMarksApartThatLieCloseTogether) {
  EXPECT_EQ(marks(9.9902e-5, 9.991e-5, 4), "9.9902e-05 9.9904e-05 9.9906e-05 9.9908e-05 9.991e-05");
  EXPECT_EQ(marks(0, 4e-9, 4), "0 1e-09 2e-09 3e-09 4e-09");
  for (const auto& [low, high] : {std::pair{1e-5, 1.0004e-5},
                                  {137'438'953'472.0, 137'440'000'000.0},
                                  {98e3, 100e3},
                                  {2.00000001, 2.00000009},
                                  {-1e12 - 5, -1e12},
                                  {1e15, 1e15 + 8}}) {
    const std::string text = marks(low, high);
    const std::vector<std::string_view> all = split(text, ' ');
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size()) << text;
  }
}

TEST(Axis, StandsAnyNumbers) {
  for (const double x : {1e-300, 1e300, -1e300, 1e-9, 123456789.0}) {
    const Axis axis = axis_around({-std::fabs(x), x}, 5);
    ASSERT_GE(axis.marks.size(), 2u) << x;
    for (const double mark : axis.marks) EXPECT_FALSE(axis.label(mark).empty());
  }
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  for (const Range range : {Range{0, kLeast}, Range{-kLeast, kLeast}, Range{kLeast, kLeast},
                            Range{0, std::numeric_limits<double>::min()}}) {
    const Axis axis = axis_around(range, 5);
    ASSERT_GE(axis.marks.size(), 2u) << range.high;
    EXPECT_TRUE(std::isfinite(axis.step));
    EXPECT_LE(axis.range.low, range.low);
    EXPECT_GE(axis.range.high, range.high);
  }
  constexpr double kMost = std::numeric_limits<double>::max();
  const Axis widest = axis_around({-kMost, kMost}, 5);
  EXPECT_EQ(widest.place(-kMost), 0);
  EXPECT_EQ(widest.place(0), 0.5);
  EXPECT_EQ(widest.place(kMost), 1);
  Axis point;
  point.range = {4e17, 4e17};
  EXPECT_EQ(point.place(4e17), 0.5);
}

TEST(Series, IsSmoothedWithoutABiasToTheBegin) {
  const Series series{"x", {1, 2, 3, 4}, {4, 4, kNan, 8}};
  const Series smooth = smoothed(series, 0.5);
  EXPECT_EQ(smooth.values[0], 4);
  EXPECT_EQ(smooth.values[1], 4);
  EXPECT_TRUE(std::isnan(smooth.values[2]));
  EXPECT_NEAR(smooth.values[3], (4 * 0.125 + 4 * 0.25 + 8 * 0.5) / 0.875, 1e-12);
  EXPECT_EQ(smoothed(series, 0).values[3], 8);
}

TEST(Series, KeepsItsExtremesWhenItIsThinned) {
  Series series;
  for (int i = 0; i < 10'000; ++i) {
    series.steps.push_back(i);
    series.values.push_back(i == 4321 ? -7 : i == 777 ? 9 : 0.001 * (i % 10));
  }
  const Series thin = thinned(series, 100);
  EXPECT_LE(thin.steps.size(), 400u);
  EXPECT_TRUE(std::ranges::is_sorted(thin.steps));
  EXPECT_EQ(std::ranges::min(thin.values), -7);
  EXPECT_EQ(std::ranges::max(thin.values), 9);
  EXPECT_EQ(thin.steps.back(), 9999);
}

TEST(Series, KeepsItsExtremesBehindWhatIsNoNumber) {
  Series series;
  for (int i = 0; i < 1000; ++i) {
    series.steps.push_back(i);
    series.values.push_back(i % 100 == 0 || i / 100 == 3 ? kNan : i == 550 ? 9 : i == 150 ? -7 : 1);
  }
  series.values[777] = std::numeric_limits<double>::infinity();
  const Series thin = thinned(series, 10);
  EXPECT_LE(thin.steps.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(thin.steps));
  EXPECT_EQ(std::ranges::count(thin.values, 9), 1);
  EXPECT_EQ(std::ranges::count(thin.values, -7), 1);
  for (int column = 0; column < 10; ++column) {
    const auto at = std::ranges::find(thin.steps, 100.0 * column);
    ASSERT_NE(at, thin.steps.end()) << "a gap is kept";
    EXPECT_TRUE(std::isnan(thin.values[static_cast<size_t>(at - thin.steps.begin())]));
  }
}

TEST(TerminalChart, DrawsDotsBesideMarks) {
  const Panel panel{"loss", {{"loss", {1, 2, 3, 4, 5}, {4, 2, kNan, 2, 0}}}};
  EXPECT_EQ(terminal_chart(panel, 18, 4, false),
            "   loss\n"
            "4 ┤⠑⢄             \n"
            "  │  ⠱⡀           \n"
            "2 ┤   ⠈       ⠉⢆  \n"
            "0 ┤             ⠑⢄\n"
            "  └───────────────\n"
            "   1             5\n");
}

TEST(TerminalChart, TellsCurvesApart) {
  const Panel panel{"loss", {{"a: loss", {1, 10}, {1, 2}}, {"b: loss", {1, 10}, {2, 1}}}};
  std::string text = terminal_chart(panel, 40, 8, false);
  expect_contains(text, "── a: loss\n");
  expect_contains(text, "╌╌ b: loss\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  expect_contains(terminal_chart(panel, 40, 8, true), "\x1b[33m──\x1b[0m b: loss\n");
  // Without colours every run has a key of its own, as long as its dashes.
  Panel many{"loss", {}};
  for (int run = 0; run < 9; ++run) many.series.push_back({cat("run", run), {1, 10}, {1, 2}});
  text = terminal_chart(many, 40, 8, false);
  std::set<std::string_view> keys;
  for (const std::string_view row : split(text, '\n'))
    if (const size_t at = row.find(" run"); at != std::string::npos) keys.insert(row.substr(0, at));
  EXPECT_EQ(keys.size(), 9u) << text;
  expect_contains(text, "⠒⠂  run2\n");
  // Nothing to draw, no room, steps next to which one is nothing.
  EXPECT_NE(terminal_chart({"x", {{"x", {4e17}, {1}}}}, 40, 8, false), "");
  EXPECT_NE(terminal_chart({"x", {{"x", {1}, {kNan}}}}, 1, 1, false), "");
}

TEST(SvgChart, HasACurveForEachSeries) {
  const Panel panels[] = {{"loss <&>", {{"a", {1, 2, 3, 4}, {4, kNan, 2, 1}}, {"b", {1}, {3}}}},
                          {"rate", {{"rate", {1, 2}, {0.1, 0.2}}}}};
  const std::string svg = svg_chart(panels);
  expect_contains(svg, "loss &lt;&amp;>");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  size_t curves = 0;
  for (size_t at = 0; (at = svg.find("<title>", at)) != std::string::npos; ++at) ++curves;
  EXPECT_EQ(curves, 3u);
  const std::string page = html_chart(panels, "a & b");
  expect_contains(page, "<title>a &amp; b</title>");
  expect_contains(page, svg);
  for (const char* outside : {"src=", "href=", "url(", "@import"})
    EXPECT_EQ(page.find(outside), std::string::npos);
}

TEST(PngChart, IsTheSamePictureTwiceAsLarge) {
  const Panel panels[] = {{"loss", {{"a", {1, 2, 3, 4}, {4, kNan, 2, 1}}, {"b", {1}, {3}}}},
                          {"rate", {{"rate", {1, 2}, {0.1, 0.2}}}}};
  const std::string png = png_chart(panels);
  ASSERT_GT(png.size(), 5000u) << "of nothing but white there is less";
  EXPECT_TRUE(png.starts_with("\x89PNG\r\n\x1a\n"));
  auto number = [&](size_t at) {
    int64_t value = 0;
    for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(png[i]);
    return value;
  };
  const ChartSize size = chart_size(panels);
  EXPECT_EQ(number(16), 2 * size.width);
  EXPECT_EQ(number(20), 2 * size.height);
  EXPECT_EQ(png_chart(panels), png) << "and the same again";
}

}  // namespace
}  // namespace tessera
