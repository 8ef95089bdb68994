#pragma once
#include <string>
#include <vector>

#include "plot/series.h"

namespace tessera {

// Marks of an axis at multiples of 1, 2 or 5 times a power of ten.
struct Axis {
  Range range;                // from the first to the last mark
  std::vector<double> marks;  // at least two
  double step = 1;            // between them

  // Where a finite number is, 0 at the begin, 1 at the end. Numbers beyond them are placed there;
  // on an axis without a length everything is in the middle.
  double place(double x) const;
  // The number at a mark: "0.001", "2.5", "40k".
  std::string label(double mark) const;
};

// Around a range of finite numbers, with about so many marks.
Axis axis_around(Range range, int marks);

}  // namespace tessera
