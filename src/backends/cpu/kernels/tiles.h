#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/thread_pool.h"

namespace tessera::cpu {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows of `width` elements that one tile takes: about 16,384 elements, so that a tile lasts some
// ten microseconds, long against the cost of handing it out.
constexpr int64_t rows_per_tile(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
}

// body(begin, end) over [0, count) in tiles of `size`.
template <class Body>
void for_ranges(ThreadPool& pool, int64_t count, int64_t size, const Body& body) {
  auto task = [&](int64_t tile, int) { body(tile * size, std::min((tile + 1) * size, count)); };
  // By reference: a closure of this size inside a std::function would be allocated at every launch.
  pool.run(ceil_div(count, size), std::ref(task));
}

}  // namespace tessera::cpu
