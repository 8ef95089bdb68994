#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace tessera {

// A curve: values over steps, which increase. A value may be no number (NaN, infinity): there the
// curve has a gap.
struct Series {
  std::string name;
  std::vector<double> steps, values;
};

// Curves that share their axes.
struct Panel {
  std::string title;
  std::vector<Series> series;
};

// The mean over all values before, of which each counts `factor` times the one behind it; 0 changes
// nothing. What TensorBoard calls smoothing. `factor` in [0, 1).
Series smoothed(const Series& series, double factor);

// A curve that looks the same in `columns` columns: of each column its first, least, greatest and
// last value, and one that is no number where there is any.
Series thinned(const Series& series, size_t columns);

// The least and greatest number, also in steps; both 0 where there is none.
struct Range {
  double low = 0, high = 0;
};
Range range_of_steps(const Panel& panel);
Range range_of_values(const Panel& panel);

}  // namespace tessera
