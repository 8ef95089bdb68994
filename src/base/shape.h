#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Sizes of the dims of a tensor, outermost first. A scalar has an empty shape.
using Shape = std::vector<int64_t>;

// Product of the sizes. UserError naming the shape where 64 bits do not hold it.
int64_t num_elements(const Shape& shape);

// Sums of sizes. UserError where 64 bits do not hold one.
int64_t checked_add(int64_t a, int64_t b);

// "[2, 3, 4]"
std::string to_string(const Shape& shape);

}  // namespace tessera
