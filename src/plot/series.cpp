#include "plot/series.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera {
namespace {

Range range_of(const Panel& panel, std::vector<double> Series::*numbers) {
  Range range;
  bool any = false;
  for (const Series& series : panel.series) {
    for (const double x : series.*numbers) {
      if (!std::isfinite(x)) continue;
      range = any ? Range{std::min(range.low, x), std::max(range.high, x)} : Range{x, x};
      any = true;
    }
  }
  return range;
}

}  // namespace

Series smoothed(const Series& series, double factor) {
  Series result = series;
  double sum = 0, weight = 0;
  for (double& value : result.values) {
    if (!std::isfinite(value)) continue;
    sum = factor * sum + (1 - factor) * value;
    weight = factor * weight + (1 - factor);
    value = sum / weight;
  }
  return result;
}

Series thinned(const Series& series, size_t columns) {
  const size_t count = series.steps.size();
  if (count <= 4 * columns) return series;
  Series result;
  result.name = series.name;
  for (size_t column = 0; column < columns; ++column) {
    const size_t begin = column * count / columns, end = (column + 1) * count / columns;
    size_t least = end, greatest = end, gap = end;  // `end`: there is none
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(series.values[i])) {
        gap = std::min(gap, i);
        continue;
      }
      if (least == end || series.values[i] < series.values[least]) least = i;
      if (greatest == end || series.values[i] > series.values[greatest]) greatest = i;
    }
    std::array kept{begin, least, greatest, gap, end - 1};
    std::ranges::sort(kept);
    const auto end_of_kept = std::unique(kept.begin(), kept.end());
    for (auto i = kept.begin(); i != end_of_kept && *i != end; ++i) {
      result.steps.push_back(series.steps[*i]);
      result.values.push_back(series.values[*i]);
    }
  }
  return result;
}

Range range_of_steps(const Panel& panel) { return range_of(panel, &Series::steps); }
Range range_of_values(const Panel& panel) { return range_of(panel, &Series::values); }

}  // namespace tessera
