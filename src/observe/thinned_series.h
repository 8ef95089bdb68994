#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// Numbers over steps in bounded memory: where there are too many, neighbours are joined, two by
// two, and from then on so many steps make one point.
class ThinnedSeries {
 public:
  // At most `most` points (even, at least 2) of so many numbers each.
  ThinnedSeries(size_t numbers, size_t most);

  // Of the finite values that a point stands for; NaN where there is none.
  struct Summary {
    double mean = 0, low = 0, high = 0;
    int64_t count = 0;
  };
  struct Point {
    double step = 0;  // the last
    std::vector<Summary> numbers;
  };

  void add(double step, std::span<const double> values);
  // Takes away all points that later steps are in.
  void cut_behind(double step);
  // The last may stand for fewer than stride() values and still change.
  const std::vector<Point>& points() const { return points_; }
  // Values in a point: a power of two.
  int64_t stride() const { return stride_; }

 private:
  void join_neighbours();
  size_t numbers_, most_;
  int64_t stride_ = 1, added_ = 0;  // to the last point
  std::vector<Point> points_;
};

}  // namespace tessera
