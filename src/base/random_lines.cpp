#include "base/random_lines.h"

#include <algorithm>

namespace tessera {

RandomLines::RandomLines(const Shape& shape, const TensorPart& part, int64_t begin) {
  auto last = static_cast<int64_t>(shape.size()) - 1;
  for (int64_t d = 1; d < last; ++d) lines_ *= shape[static_cast<size_t>(d)];
  if (last >= 1) width_ = shape[static_cast<size_t>(last)];
  int64_t whole_width = width_;
  run_ = whole_run_ = std::max<int64_t>(1, lines_);
  if (!part.whole() && part.dim == last) {
    whole_width = part.size;
    first_column_ = begin;
  } else if (!part.whole()) {
    int64_t below = 1;  // lines of one index of the cut dim
    for (int64_t d = part.dim + 1; d < last; ++d) below *= shape[static_cast<size_t>(d)];
    run_ = std::max<int64_t>(1, shape[static_cast<size_t>(part.dim)] * below);
    whole_run_ = part.size * below;
    first_line_ = begin * below;
  }
  pitch_ = (whole_width + kRandomBlock - 1) / kRandomBlock * kRandomBlock;
}

}  // namespace tessera
