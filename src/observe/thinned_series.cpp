#include "observe/thinned_series.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tessera {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

void add_to(ThinnedSeries::Summary& sum, const ThinnedSeries::Summary& more) {
  if (more.count == 0) return;
  if (sum.count == 0) {
    sum = more;
    return;
  }
  const double count = static_cast<double>(sum.count + more.count);
  sum.mean += (more.mean - sum.mean) * (static_cast<double>(more.count) / count);
  sum.low = std::min(sum.low, more.low);
  sum.high = std::max(sum.high, more.high);
  sum.count += more.count;
}

void add_to(ThinnedSeries::Point& point, const ThinnedSeries::Point& more) {
  point.step = more.step;
  for (size_t i = 0; i < point.numbers.size(); ++i) add_to(point.numbers[i], more.numbers[i]);
}

}  // namespace

ThinnedSeries::ThinnedSeries(size_t numbers, size_t most) : numbers_(numbers), most_(most) {
  TESSERA_CHECK(most >= 2 && most % 2 == 0, "the most points are an even number");
}

void ThinnedSeries::add(double step, std::span<const double> values) {
  TESSERA_CHECK(values.size() == numbers_, "a point has as many numbers as the series");
  Point point{step, {}};
  for (const double value : values)
    point.numbers.push_back(std::isfinite(value) ? Summary{value, value, value, 1}
                                                 : Summary{kNoNumber, kNoNumber, kNoNumber, 0});
  if (!points_.empty() && added_ < stride_) {
    add_to(points_.back(), point);
    ++added_;
    return;
  }
  if (points_.size() == most_) join_neighbours();
  points_.push_back(std::move(point));
  added_ = 1;
}

void ThinnedSeries::cut_behind(double step) {
  while (!points_.empty() && points_.back().step > step) points_.pop_back();
  added_ = stride_;  // what comes begins a point
}

void ThinnedSeries::join_neighbours() {
  for (size_t i = 0; i < most_ / 2; ++i) {
    Point pair = std::move(points_[2 * i]);
    add_to(pair, points_[2 * i + 1]);
    points_[i] = std::move(pair);
  }
  points_.resize(most_ / 2);
  stride_ *= 2;
}

}  // namespace tessera
