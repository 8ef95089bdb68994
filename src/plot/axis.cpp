#include "plot/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace tessera {

std::string Axis::label(double mark) const {
  const double largest = std::max(std::fabs(range.low), std::fabs(range.high));
  // Digits that tell marks apart; next to a number 1e15 times as large as a step doubles do not.
  auto places = [&](double least) {
    return static_cast<int>(std::clamp(std::ceil(std::log10(largest / step)) + 1, least, 15.0));
  };
  for (const auto& [unit, letter] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    // All marks of an axis have one unit, and none loses a digit.
    if (largest < 10 * unit || std::fmod(step, unit / 10) > step / 100) continue;
    return mark == 0 ? "0" : cat(format("%.*g", places(6), mark / unit), letter);
  }
  if (std::fabs(mark) < step / 1000) return "0";
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return digits > 6 ? format("%.*g", places(2), mark) : format("%.*f", digits, mark);
}

double Axis::place(double x) const {
  const double length =
      range.high / 2 - range.low / 2;  // of halves: a range may exceed the largest
  return length > 0 ? std::clamp((x / 2 - range.low / 2) / length, 0.0, 1.0) : 0.5;
}

Axis axis_around(Range range, int marks) {
  // Marks lie a little beyond the range: they have to be finite too.
  constexpr double kLargest = 1e300;
  range = {std::clamp(range.low, -kLargest, kLargest), std::clamp(range.high, -kLargest, kLargest)};
  auto distance = [&] { return range.high / std::max(1, marks) - range.low / std::max(1, marks); };
  constexpr double kLeast = std::numeric_limits<double>::min();  // below it marks run together
  if (!(distance() >= kLeast)) {
    const double room = std::fabs(range.low) / 10;
    range = {range.low - (room >= kLeast ? room : 1), range.high + (room >= kLeast ? room : 1)};
  }
  const double rough = distance();
  const double power = std::pow(10, std::floor(std::log10(rough)));
  Axis axis;
  axis.step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power < rough * 0.999) continue;
    axis.step = factor * power;
    break;
  }
  const double first = std::floor(range.low / axis.step + 1e-9);
  const double last = std::ceil(range.high / axis.step - 1e-9);
  for (double i = first; i <= last && axis.marks.size() < 1000; ++i)
    axis.marks.push_back(i * axis.step);
  axis.range = {axis.marks.front(), axis.marks.back()};
  return axis;
}

}  // namespace tessera
