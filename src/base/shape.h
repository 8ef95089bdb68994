#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Sizes of the dims of a tensor, outermost first. A scalar has an empty shape.
using Shape = std::vector<int64_t>;

inline int64_t num_elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

// "[2, 3, 4]"
std::string to_string(const Shape& shape);

}  // namespace tessera
