#pragma once
#include <algorithm>
#include <cstdint>

#include "backends/cpu/kernels/tiles.h"
#include "base/error.h"

namespace tessera::cpu {

// The parameters of a flat buffer. Number s covers [begin[s], begin[s + 1]), the last one up to the
// buffer's size. Ascending, the first 0; empty segments, also at or behind the size, are allowed.
struct Segments {
  const int64_t* begin;  // [count]
  const float* decay;    // [count]
  int64_t count;
};

// body(begin, end, decay) over [0, size) in tiles, each cut where segments begin.
template <class Body>
void for_segments(ThreadPool& pool, const Segments& segments, int64_t size, const Body& body) {
  constexpr int64_t kElements = 16384;  // of a tile: 256 KiB of AdamW's state and gradient
  TESSERA_CHECK(segments.count >= 1 && segments.begin[0] == 0);
  for_ranges(pool, size, kElements, [&](int64_t begin, int64_t end) {
    const int64_t* last = segments.begin + segments.count;
    const int64_t* next = std::upper_bound(segments.begin, last, begin);
    while (begin < end) {
      float decay = segments.decay[next - 1 - segments.begin];
      int64_t stop = next == last ? end : std::min(*next, end);
      body(begin, stop, decay);
      begin = stop;
      while (next != last && *next <= begin) ++next;
    }
  });
}

}  // namespace tessera::cpu
