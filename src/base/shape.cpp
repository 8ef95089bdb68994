#include "base/shape.h"

#include "base/error.h"
#include "base/text.h"

namespace tessera {

int64_t num_elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) {
    if (__builtin_mul_overflow(n, d, &n))
      throw UserError(cat("a tensor ", to_string(shape), " has more elements than 64 bits count"));
  }
  return n;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw UserError("what this run needs has more bytes than 64 bits count");
  return sum;
}

std::string to_string(const Shape& shape) { return cat("[", join(shape, ", "), "]"); }

}  // namespace tessera
