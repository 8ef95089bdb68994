#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// How numbers are distributed: counts in buckets whose limits grow by a tenth from 1e-12 to 1e20,
// on both sides of 0, as TensorBoard's own; and the moments, in f64. Numbers that are not finite
// are left out and counted apart. Distributions of parts can be added.
class Distribution {
 public:
  void add(std::span<const float> values, double factor = 1);
  void add(const Distribution& other);

  int64_t count() const { return count_; }
  int64_t not_finite() const { return not_finite_; }
  double least() const { return least_; }
  double most() const { return most_; }
  double sum() const { return sum_; }
  double sum_of_squares() const { return sum_of_squares_; }

  // Buckets that hold something, ascending: upper limit and count; between those an empty one
  // stands before each that does not follow the one before it directly, so that limits are also
  // begins.
  struct Bucket {
    double limit = 0;
    int64_t count = 0;
  };
  std::vector<Bucket> buckets() const;

  // Between ranks. UserError where the text is none.
  std::string to_text() const;
  static Distribution from_text(std::string_view text);

 private:
  std::map<int32_t, int64_t> counts_;  // by number of the bucket
  int64_t count_ = 0, not_finite_ = 0;
  double least_ = std::numeric_limits<double>::infinity(), most_ = -least_;
  double sum_ = 0, sum_of_squares_ = 0;
};

}  // namespace tessera
