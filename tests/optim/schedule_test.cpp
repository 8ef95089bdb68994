#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

Schedule schedule(DecayStyle style, int64_t steps, double plateau = 0) {
  return Schedule({.style = style, .decay_steps = steps, .plateau = plateau});
}

// The value that the progress line of batch k shows.
double printed(const Schedule& s, int64_t k) { return s.rate(k + 1); }

void expect_near(double value, double expected, int64_t k) {
  EXPECT_NEAR(value, expected, 6e-10 * expected) << "at " << k;
}

TEST(Schedule, CosineMatchesPublishedLogLines) {
  Schedule s = schedule(DecayStyle::kCosine, 5000);
  const char* first[] = {"0.000006", "0.000013", "0.000019", "0.000025", "0.000031",
                         "0.000038", "0.000044", "0.000050", "0.000056", "0.000063"};
  for (int k = 0; k < 10; ++k) EXPECT_EQ(format("%.6f", printed(s, k)), first[k]) << k;
  for (int k = 979; k <= 982; ++k) EXPECT_EQ(format("%.6f", printed(s, k)), "0.000091");
  EXPECT_EQ(format("%.6f", printed(s, 15)), "0.000100");
  EXPECT_EQ(s.rate(0), 0.0);
  EXPECT_GT(printed(s, 3990), 1e-5);
  for (int k : {3991, 4500, 4999, 100000}) EXPECT_EQ(printed(s, k), 1e-5) << k;

  Schedule shorter = schedule(DecayStyle::kCosine, 100);
  for (int k = 0; k <= 3; ++k) EXPECT_EQ(format("%.6f", printed(shorter, k)), "0.000100");
  for (int k = 4; k <= 5; ++k) EXPECT_EQ(format("%.6f", printed(shorter, k)), "0.000099");
  for (int k = 90; k <= 97; ++k) EXPECT_EQ(format("%.6f", printed(shorter, k)), "0.000010");
  expect_near(printed(shorter, 49), 5.050264636e-05, 49);
  EXPECT_GT(printed(shorter, 78), 1e-5);
  EXPECT_EQ(printed(shorter, 79), 1e-5);

  EXPECT_EQ(format("%.6f", printed(schedule(DecayStyle::kCosine, 47683), 21)), "0.000014");
}

TEST(Schedule, CosineMatchesDerivedValues) {
  Schedule s = schedule(DecayStyle::kCosine, 5000);
  for (auto [k, v] : std::map<int64_t, double>{{16, 9.999999013e-05},
                                               {100, 9.992870906e-05},
                                               {979, 9.110521479e-05},
                                               {2499, 5.050264636e-05},
                                               {3976, 1.028138921e-05}}) {
    expect_near(printed(s, k), v, k);
  }
  Schedule longer = schedule(DecayStyle::kCosine, 47683);  // a warm-up of 152.5856 steps
  for (auto [k, v] : std::map<int64_t, double>{{0, 6.553698383e-07},
                                               {99, 6.553698383e-05},
                                               {151, 9.961621542e-05},
                                               {152, 9.999999998e-05},
                                               {4999, 9.747164341e-05}}) {
    expect_near(printed(longer, k), v, k);
  }
}

TEST(Schedule, LinearExponentialPlateauConstant) {
  Schedule linear = schedule(DecayStyle::kLinear, 5000);
  for (auto [k, v] : std::map<int64_t, double>{
           {979, 8.072e-05}, {2499, 5.032e-05}, {4499, 1.032e-05}, {4999, 1e-05}}) {
    expect_near(printed(linear, k), v, k);
  }
  Schedule exponential = schedule(DecayStyle::kExponential, 5000);
  for (auto [k, v] : std::map<int64_t, double>{
           {979, 8.749308713e-05}, {2499, 7.087287548e-05}, {4999, 5.022964479e-05}}) {
    expect_near(printed(exponential, k), v, k);
  }
  Schedule plateau = schedule(DecayStyle::kPlateau, 5000, 0.1);
  for (auto [k, v] : std::map<int64_t, double>{
           {515, 1e-04}, {516, 9.997769848e-05}, {2499, 5.575379126e-05}, {4999, 1e-05}}) {
    expect_near(printed(plateau, k), v, k);
  }
  Schedule constant = schedule(DecayStyle::kConstant, 5000);
  EXPECT_LT(printed(constant, 14), 1e-4);
  for (int64_t k : {15, 16, 4999, 9999}) EXPECT_EQ(printed(constant, k), 1e-4);
}

TEST(Schedule, FmsCurve) {
  Schedule s({.style = DecayStyle::kFms, .lr = 3e-4, .decay_steps = 1200});
  EXPECT_EQ(s.rate(0), 0.0);
  for (auto [x, v] : std::map<int64_t, double>{{1, 9.916666667e-06},
                                               {30, 2.25e-04},
                                               {59, 2.983927575e-04},
                                               {60, 2.983379260e-04},
                                               {600, 1.65e-04},
                                               {1000, 4.808657049e-05},
                                               {1200, 3e-05},
                                               {5000, 3e-05}}) {
    expect_near(s.rate(x), v, x);
  }
  Schedule longer({.style = DecayStyle::kFms, .lr = 3e-4, .decay_steps = 2000});
  for (auto [x, v] : std::map<int64_t, double>{{1, 5.97e-06},
                                               {50, 2.25e-04},
                                               {100, 2.983379260e-04},
                                               {200, 2.933926297e-04},
                                               {1000, 1.65e-04},
                                               {2000, 3e-05}}) {
    expect_near(longer.rate(x), v, x);
  }
  // Fewer than 20 steps: no warm-up instead of a division by zero.
  Schedule tiny({.style = DecayStyle::kFms, .lr = 3e-4, .decay_steps = 19});
  EXPECT_EQ(tiny.rate(0), 3e-4);
}

TEST(Schedule, StepCurveDependsOnTheEpochOnly) {
  Schedule s({.style = DecayStyle::kStep, .lr = 6e-4, .gamma = 0.1});
  EXPECT_DOUBLE_EQ(s.rate(0, 1), 6e-4);
  EXPECT_DOUBLE_EQ(s.rate(12345, 2), 6e-5);
  EXPECT_DOUBLE_EQ(s.rate(7, 3), 6e-6);
}

TEST(Schedule, ResumeTakesTheStoredValuesAndSaysSo) {
  Schedule original = schedule(DecayStyle::kLinear, 5000);
  Schedule other({.style = DecayStyle::kCosine, .lr = 3e-4, .min_lr = 0, .decay_steps = 100});
  auto lines = other.resume(original.state(42));
  EXPECT_EQ(lines, (std::vector<std::string>{
                       " > using checkpoint value 1e-04 for learning rate",
                       " > using checkpoint value 1e-05 for minimum learning rate",
                       " > using checkpoint value 16 for warmup iterations",
                       " > using checkpoint value 5000 for total number of iterations",
                       " > using checkpoint value linear for decay style"}));
  for (int64_t n : {0, 16, 17, 979, 4999}) EXPECT_EQ(other.rate(n), original.rate(n));
  EXPECT_EQ(original.state(42).num_iters, 42);
}

TEST(Schedule, ResumeTakesPlateauAndFactorToo) {
  Schedule held({.style = DecayStyle::kPlateau, .decay_steps = 100, .plateau = 0.8});
  Schedule stepped({.style = DecayStyle::kStep, .decay_steps = 100, .gamma = 0.5});
  Schedule other({.decay_steps = 100});
  EXPECT_EQ(other.resume(held.state(4)).back(), " > using checkpoint value 0.8 for plateau");
  for (int64_t n : {0, 50, 79, 90}) EXPECT_EQ(other.rate(n), held.rate(n));
  const auto lines = other.resume(stepped.state(4));
  EXPECT_EQ(lines.back(), " > using checkpoint value 0.5 for step factor");
  EXPECT_EQ(lines.size(), 4u) << "neither a floor nor a warm-up";
  EXPECT_EQ(other.rate(5, 3), stepped.rate(5, 3));
}

TEST(Schedule, RefusesWhatIsNoSchedule) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Schedule({.decay_steps = 0}), UserError);
  EXPECT_THROW(Schedule({.lr = -1}), UserError);
  EXPECT_THROW(Schedule({.lr = nan}), UserError);
  EXPECT_THROW(Schedule({.min_lr = INFINITY}), UserError);
  EXPECT_THROW(Schedule({.warmup = 1.5}), UserError);
  EXPECT_THROW(Schedule({.warmup = -0.1}), UserError);
  EXPECT_THROW(Schedule({.plateau = -0.1}), UserError);
  Schedule s({});
  ScheduleState bad = s.state(0);
  bad.end_iter = 0;
  EXPECT_THROW(s.resume(bad), UserError);
  EXPECT_EQ(s.rate(16), 1e-4);  // unchanged by the refused state
}

TEST(Schedule, NamesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DecayStyle::kStep); ++i) {
    auto style = static_cast<DecayStyle>(i);
    EXPECT_EQ(decay_style_from_name(name(style)), style);
  }
  EXPECT_THROW(decay_style_from_name("cosin"), UserError);
}

TEST(Schedule, AFloorAboveThePeakIsSaid) {
  EXPECT_EQ(Schedule({.lr = 1e-6}).warnings(),
            std::vector<std::string>{"--lr 1e-06 is below --min_lr 1e-05: the rate goes up to that "
                                     "after the warm-up; give --min_lr"});
  EXPECT_TRUE(Schedule({.lr = 1e-6, .min_lr = 1e-6}).warnings().empty());
  EXPECT_TRUE(Schedule({.style = DecayStyle::kFms, .lr = 1e-6}).warnings().empty());
  EXPECT_TRUE(Schedule({.style = DecayStyle::kStep, .lr = 1e-6}).warnings().empty());
}

TEST(Schedule, ALongWarmUpThatKeepsTheRateUpIsSaid) {
  EXPECT_EQ(Schedule({.decay_steps = 100, .warmup = 0.5}).warnings(),
            std::vector<std::string>{"after so long a warm-up the rate ends at 0.0001, far above "
                                     "--min_lr 1e-05: give a --warmup below 0.5"});
  EXPECT_EQ(Schedule({.style = DecayStyle::kLinear, .warmup = 0.3}).warnings().size(), 1U);
  EXPECT_TRUE(Schedule({.warmup = 0.15}).warnings().empty());
  EXPECT_TRUE(Schedule({.warmup = 0.25}).warnings().empty());
  EXPECT_TRUE(Schedule({.min_lr = 1e-4, .warmup = 0.5}).warnings().empty());
  for (DecayStyle style : {DecayStyle::kConstant, DecayStyle::kExponential, DecayStyle::kPlateau})
    EXPECT_TRUE(Schedule({.style = style, .warmup = 0.5}).warnings().empty());
}

// The warm-up of more than half of the steps is cut off, and the curve behind it begins too early.
TEST(Schedule, ARateAboveThePeakIsSaid) {
  for (DecayStyle style : {DecayStyle::kLinear, DecayStyle::kExponential}) {
    const Schedule schedule({.style = style, .lr = 1e-3, .decay_steps = 20, .warmup = 0.9});
    ASSERT_EQ(schedule.warnings().size(), 1U);
    expect_contains(schedule.warnings()[0],
                    cat("ends at 0.000111, and the rate then is ",
                        format("%.3g", schedule.rate(20, 1)), ", above --lr 0.001: give"));
  }
  EXPECT_TRUE(Schedule({.style = DecayStyle::kExponential, .warmup = 0.5}).warnings().empty());
}

}  // namespace
}  // namespace tessera
