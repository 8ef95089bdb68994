#pragma once
#include <cstdint>

#include "base/shape.h"

namespace tessera {

// Where the part of a rank lies in the whole tensor: elements [begin, begin + n) of `size` along
// `dim`, n being the rank's own extent and `begin` known when the program runs. dim = -1: all of
// it.
struct TensorPart {
  int64_t dim = -1;
  int64_t size = 0;
  bool whole() const { return dim < 0; }
};

// Rows of random numbers are counted in blocks of this many (random_bits16).
constexpr int64_t kRandomBlock = 128;

// Numbers of a rank's elements among those of a whole row: row-major, with the last dim rounded up
// to kRandomBlock. The last dim makes lines; line l of the rank begins at element line_begin(l).
class RandomLines {
 public:
  RandomLines() = default;
  // shape: [B, row...] of the rank; begin: where its part begins, 0 for the whole.
  RandomLines(const Shape& shape, const TensorPart& part, int64_t begin);
  int64_t lines() const { return lines_; }  // of one row
  int64_t width() const { return width_; }  // elements of a line
  int64_t line_begin(int64_t line) const {
    return (line / run_ * whole_run_ + first_line_ + line % run_) * pitch_ + first_column_;
  }

 private:
  int64_t lines_ = 1, width_ = 1, pitch_ = kRandomBlock;
  // Lines that are neighbours in the whole row too, and the distance from one run to the next.
  int64_t run_ = 1, whole_run_ = 1, first_line_ = 0, first_column_ = 0;
};

}  // namespace tessera
